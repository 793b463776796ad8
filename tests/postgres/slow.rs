//! Slow links, and servers on which something is locked: the owner stays the same, and no sessions pile up.

use super::crowd::Crowd;
use super::{Stage, answer, is_serving, page, until};
use poolcounter_testkit::daemon::{Client, Daemon};
use poolcounter_testkit::original::free_port;
use poolcounter_testkit::postgres::{Cluster, own, shared};
use poolcounter_testkit::running::refusal_of_store;
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes a second of a link.
const RATE: u64 = 1_000_000;

/// Returns the number of take-overs of the queue.
pub fn takeovers(cluster: &Cluster, schema: &str) -> u64 {
    cluster.query(schema, "SELECT epoch FROM owner")[0].parse().expect("a number")
}

/// Reading the jobs takes longer than the lease, which is renewed meanwhile: the other standby does not get the queue.
#[test]
#[ignore = "it takes half a minute: make test-postgres"]
fn take_over_by_a_slow_link_keeps_the_queue() {
    let Some(cluster) = shared() else { return };
    let mut stage = Stage::new(cluster, 3);
    cluster.query(
        &stage.schema,
        "INSERT INTO job (id, tube, pri, delay, ttr, created, body) SELECT id, 'x', 9, 0, 60, 0, \
         decode(repeat(md5(id::text), 2000), 'hex') FROM generate_series(1000001, 1000300) AS id; \
         INSERT INTO job (id, tube, pri, delay, ttr, created, body) SELECT 1000301, 'x', 9, 0, 60, 0, \
         decode(repeat(md5('x'), 400000), 'hex'); UPDATE owner SET next_id = 1000302",
    );
    stage.proxies.iter().for_each(|proxy| proxy.limit(RATE));
    let before = takeovers(cluster, &stage.schema);
    let begun = Instant::now();
    stage.daemons.remove(0).signal(nix::sys::signal::Signal::SIGKILL);
    let mut owner = None;
    until(
        || {
            owner = stage.addresses().into_iter().find(|address| is_serving(*address));
            owner.is_some()
        },
        "a standby serves",
    );
    println!("16 MB were read in {:.1} s", begun.elapsed().as_secs_f64());
    assert_eq!(takeovers(cluster, &stage.schema), before + 1);
    assert!(owner.is_some_and(|owner| answer(owner, "peek 1000301").starts_with("FOUND 1000301 6400000")));
}

/// A batch whose sending takes longer than the lease is committed, and its daemon keeps the queue.
#[test]
#[ignore = "it takes half a minute: make test-postgres"]
fn batch_by_a_slow_link_is_committed() {
    let Some(cluster) = shared() else { return };
    let mut stage = Stage::new(cluster, 2);
    // The timeout of the store is longer than this batch takes.
    stage.daemons.clear();
    for proxy in &stage.proxies {
        let url = cluster.url_at(&stage.schema, proxy.port);
        stage.daemons.push(Daemon::start_with_jobs(&["--jobs-store", &url, "--jobs-store-timeout", "60"]));
        until(|| is_serving(stage.daemons[0].jobs()), "the first daemon serves");
    }
    stage.proxies.iter().for_each(|proxy| proxy.limit(RATE));
    let before = takeovers(cluster, &stage.schema);
    let begun = Instant::now();
    let body = "x".repeat(64_000);
    let mut clients: Vec<Client> = (0..20).map(|_| Client::to(stage.daemons[0].jobs())).collect();
    for client in &mut clients {
        client.send(format!("put 9 0 60 64000\r\n{body}\r\n").repeat(16).as_bytes());
    }
    for client in &mut clients {
        (0..16).for_each(|_| assert!(client.line().starts_with("INSERTED")));
    }
    println!("20 MB were committed in {:.1} s", begun.elapsed().as_secs_f64());
    assert_eq!(takeovers(cluster, &stage.schema), before);
    assert_eq!(cluster.query(&stage.schema, "SELECT count(*) FROM job"), ["320"]);
}

/// During a lock a daemon has two sessions, and one that is starting or ending. A fault lasts until the failed batch is
/// committed.
#[test]
#[ignore = "it takes half a minute: make test-postgres"]
fn locked_tables_cost_the_server_few_sessions() {
    let Some(cluster) = own(&["fsync=off"]) else { return };
    for table in ["owner", "job"] {
        let mut stage = Stage::new(&cluster, 2);
        let lock = format!("BEGIN; LOCK TABLE {}.{table}; SELECT pg_sleep(25); COMMIT", stage.schema);
        stage.play(|stage| {
            thread::scope(|scope| {
                let locked = scope.spawn(|| stage.cluster.query("postgres", &lock));
                let (mut most, mut faults, begun) = (0, Vec::new(), Instant::now());
                while !locked.is_finished() {
                    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'poolcounter'";
                    most = most.max(stage.cluster.query("postgres", sql)[0].parse::<u32>().expect("a number"));
                    if (12..24).contains(&begun.elapsed().as_secs()) {
                        let text = page(&stage.daemons[0], "/metrics").1;
                        faults.push(
                            text.lines()
                                .any(|line| line.starts_with("poolcounter_jobs_store_fault") && line.ends_with(" 1")),
                        );
                    }
                    thread::sleep(Duration::from_millis(100));
                }
                println!("{table}: {most} sessions at most");
                assert!(most <= 6, "{most} sessions of two daemons");
                assert!(
                    !faults.is_empty() && faults.iter().all(|is_there| *is_there),
                    "the fault comes and goes: {faults:?}"
                );
            });
        });
    }
}

/// A daemon whose take-over was not answered, or was given up, recognizes it as its own: it renews the lease, and reads
/// the jobs.
#[test]
fn take_over_that_was_given_up_counts() {
    let Some(cluster) = shared() else { return };
    let mut stage = Stage::new(cluster, 2);
    let address = || cluster.query(&stage.schema, "SELECT address FROM owner").remove(0);
    let first = address();
    stage.proxies[0].hold(true);
    until(|| is_serving(stage.daemons[1].jobs()), "the other has taken over");
    stage.proxies[0].hold(false);
    until(|| page(&stage.daemons[0], "/healthz").1.contains("stand by"), "the first stands by");
    assert!(answer(stage.daemons[1].jobs(), "put 0 0 9 1\r\nx").starts_with("INSERTED"));
    cluster.query(
        &stage.schema,
        &format!(
            "UPDATE owner SET epoch = epoch + 1, address = '{first}', since = clock_timestamp(), \
             until = clock_timestamp() + interval '5 s'"
        ),
    );
    let begun = Instant::now();
    until(|| is_serving(stage.daemons[0].jobs()), "the first serves");
    assert!(begun.elapsed() < Duration::from_secs(4), "the lease has run out: {:?}", begun.elapsed());
    assert!(answer(stage.daemons[0].jobs(), "peek-ready").starts_with("FOUND"));
    stage.daemons[1].wait_for_log("not this daemon's any more");
}

/// An old snapshot keeps all versions of the owner's row: the cost of a commit must not grow with each statement of it.
#[test]
fn statements_of_a_batch_do_not_read_the_row_of_the_owner() {
    let Some(cluster) = shared() else { return };
    let mut stage = Stage::new(cluster, 1);
    let schema = stage.schema.clone();
    let scans = || {
        let sql = format!(
            "SELECT seq_scan + idx_scan FROM pg_stat_user_tables WHERE relname = 'owner' AND schemaname = '{schema}'"
        );
        cluster.query(&schema, &sql)[0].parse::<u64>().expect("a number")
    };
    let mut client = Client::to(stage.daemons[0].jobs());
    let before = scans();
    for id in 1..=200 {
        client.send(b"put 9 0 60 1\r\nx\r\n");
        assert!(client.line().starts_with("INSERTED"));
        client.send(format!("delete {id}\r\n").as_bytes());
        assert!(client.line().starts_with("DELETED"));
    }
    // The server counts them at the end of the session.
    stage.daemons.clear();
    until(|| scans() > before + 300, "the figures are there");
    assert!(scans() < before + 500, "{} reads of the row for 400 commits", scans() - before);
}

/// A pool in transaction mode is refused: settings and prepared statements of a session are missing in the next
/// transaction.
#[test]
fn pool_that_shares_sessions_is_refused_with_a_sentence() {
    let Some(cluster) = shared() else { return };
    if !std::path::Path::new("/usr/sbin/pgbouncer").exists() {
        return poolcounter_testkit::skipped("jobs behind PgBouncer: Debian's package pgbouncer is not installed");
    }
    let url = cluster.url("pooled");
    for (mode, is_refused) in [("transaction", true), ("session", false)] {
        let (mut pool, port) = pool(cluster, mode);
        let url = url
            .replace(&format!(":{}/", cluster.port), &format!(":{port}/"))
            .replace("&options=-csearch_path%3Dpooled", "");
        if is_refused {
            let said = refusal_of_store(&url, &[]);
            assert!(said.contains("pool_mode = transaction"), "{said}");
        } else {
            let daemon = Daemon::start_with_jobs(&["--jobs-store", &url]);
            until(|| is_serving(daemon.jobs()), "the daemon serves");
        }
        pool.kill().expect("it runs");
        pool.wait().expect("it has ended");
    }
}

/// Starts a PgBouncer, and returns its port.
fn pool(cluster: &Cluster, mode: &str) -> (std::process::Child, u16) {
    let port = free_port(Ipv4Addr::LOCALHOST);
    let path = cluster.directory.join(format!("pool-{mode}.ini"));
    let text = format!(
        "[databases]\npostgres = host=127.0.0.1 port={} dbname=postgres connect_query='SET search_path = pooled'\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\nauth_type = any\npool_mode = {mode}\nunix_socket_dir =\n\
         server_reset_query =\nuser = postgres\n",
        cluster.port, port
    );
    let text = text.replace("dbname=postgres", "dbname=postgres user=postgres").replace("user = postgres\n", "");
    std::fs::write(&path, text).expect("can be written");
    let mut command = poolcounter_testkit::postgres::as_server(std::path::Path::new("/usr/sbin/pgbouncer"));
    let child = command.arg("-q").arg(&path).spawn().expect("it runs");
    until(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok(), "the pool listens");
    (child, port)
}

/// A transaction that the server aborts because of a conflict is sent again.
#[test]
fn commits_that_conflict_are_sent_again() {
    let Some(cluster) = shared() else { return };
    // A sequence also counts in transactions that are aborted: of 16 commits, the first five conflict.
    cluster.query(
        "postgres",
        "CREATE SEQUENCE public.commits MINVALUE 0; \
         CREATE FUNCTION public.conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF nextval('public.commits') % 16 < 5 THEN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END IF; \
         RETURN NULL; END $$",
    );
    let mut stage = Stage::with(cluster, 1, |schema| {
        cluster.query(
            schema,
            "CREATE TRIGGER conflict AFTER INSERT ON job FOR EACH STATEMENT EXECUTE FUNCTION public.conflict()",
        );
    });
    let crowd = Crowd::at(&stage.addresses());
    let commits = || cluster.query("postgres", "SELECT last_value FROM public.commits")[0].parse().unwrap_or(0);
    until(|| commits() > 200, "many transactions conflict");
    let heard = crowd.end();
    stage.daemons.clear();
    heard.check(&stage.found());
}
