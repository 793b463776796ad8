//! Standbys that copy the jobs: at each take-over the copy equals the database, and the jobs are not read again.

use super::{Stage, answer, is_serving, page, until};
use nix::sys::signal::Signal;
use poolcounter_testkit::daemon::{Client, Daemon};
use poolcounter_testkit::postgres::{Cluster, own, shared};
use poolcounter_testkit::random::Random;
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

/// Line of the log of a take-over with copied jobs.
const COPIED: &str = "jobs were copied before the take-over";
const MILLION: u64 = 1_000_000;
const TUBES: [&str; 4] = ["a/mail", "b/mail", "a/page", "plain"];

/// Starts two daemons, the second of which stands by, with further options.
fn pair<'a>(cluster: &'a Cluster, options: &'static [&'static str]) -> Stage<'a> {
    let mut stage = Stage::new(cluster, 1);
    stage.options = options;
    stage.add();
    stage
}

/// Returns a figure of a daemon.
fn figure(daemon: &Daemon, name: &str) -> u64 {
    let text = page(daemon, "/metrics").1;
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("poolcounter_jobs_{name} ")));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {text}"))
}

fn count(stage: &Stage<'_>) -> u64 {
    stage.cluster.query(&stage.schema, "SELECT count(*) FROM job")[0].parse().expect("a number")
}

/// Waits until the standby has a copy of all jobs.
pub fn await_copy(stage: &Stage<'_>, standby: usize) {
    let daemon = &stage.daemons[standby];
    until(
        || figure(daemon, "store_followed") == count(stage) && figure(daemon, "store_behind") == 0,
        "the standby has all jobs",
    );
    until(|| page(daemon, "/status.json").1.contains("this daemon follows"), "it has all root jobs");
}

/// Returns the number of root jobs that a daemon has copied before it took over, by its log.
fn copied_roots(log: &[String]) -> usize {
    let line =
        log.iter().rev().find_map(|line| line.split_once(&format!("{COPIED}, and "))).expect("it has copied them");
    line.1.trim_end_matches(" root jobs").parse().expect("a number")
}

/// Sends a request, and returns the first line of the reply.
fn ask(client: &mut Client, request: &str) -> String {
    client.send(format!("{request}\r\n").as_bytes());
    client.line().trim_end().to_string()
}

/// Ends the owner and waits for the other. Starts another in place of the first.
fn take_over(stage: &mut Stage<'_>, owner: usize, signal: Signal) -> Vec<String> {
    let other = 1 - owner;
    stage.daemons[owner].signal(signal);
    let address = stage.daemons[other].jobs();
    until(|| is_serving(address), "the standby serves");
    stage.daemons[owner] = stage.start(owner, "127.0.0.1:0");
    stage.daemons[other].new_log()
}

/// Reads an answer with a body.
fn text(client: &mut Client, request: &str) -> (String, String) {
    client.send(format!("{request}\r\n").as_bytes());
    let line = client.line().trim_end().to_string();
    let Some(len) =
        line.strip_prefix("OK ").or(line.strip_prefix("FOUND ")).and_then(|rest| rest.split(' ').next_back())
    else {
        return (line, String::new());
    };
    let len: usize = len.parse().expect("a number");
    let mut text = String::new();
    while text.len() < len + 2 {
        text += &client.line();
        text += "\n";
    }
    text.truncate(len);
    (line, text)
}

/// Compares all values of each job of a daemon, and of each root job, with the database.
fn compare(stage: &Stage<'_>, daemon: usize) -> usize {
    let rows = stage.cluster.query(
        &stage.schema,
        "SELECT id || '|' || tube || '|' || pri || '|' || delay || '|' || ttr || '|' || reserves || '|' || timeouts || '|' || \
         releases || '|' || buries || '|' || kicks || '|' || CASE WHEN buried THEN 'buried' \
         WHEN coalesce(delayed_until, 0) > extract(epoch FROM clock_timestamp()) * 1000000 THEN 'delayed' ELSE 'ready' END \
         || '|' || convert_from(coalesce(key, ''), 'UTF8') || '|' || convert_from(coalesce(job_group, ''), 'UTF8') || '|' \
         || convert_from(coalesce(error, ''), 'UTF8') || '|' || convert_from(body, 'UTF8') FROM job ORDER BY id",
    );
    let mut client = Client::to(stage.daemons[daemon].jobs());
    let mut listed = BTreeMap::new();
    for tube in TUBES {
        for state in ["ready", "delayed", "buried"] {
            listed.extend(list(&mut client, tube, state));
        }
    }
    assert_eq!(listed.len(), rows.len(), "{listed:?} {rows:?}");
    for row in &rows {
        let id = row.split('|').next().expect("it has a number");
        let (found, stats) = text(&mut client, &format!("stats-job {id}"));
        assert!(found.starts_with("OK"), "job {id}: {found}");
        let value = |name: &str| {
            let line = stats.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
            line.unwrap_or_else(|| panic!("{name}: {stats}")).trim_matches('"').to_string()
        };
        let names =
            ["id", "tube", "pri", "delay", "ttr", "reserves", "timeouts", "releases", "buries", "kicks", "state"];
        let mut values: Vec<String> = names.map(value).into();
        values.extend(listed[id].clone());
        values.push(text(&mut client, &format!("peek {id}")).1);
        assert_eq!(&values.join("|"), row);
    }
    let roots = "SELECT tube || ' ' || convert_from(signature, 'UTF8') || ' ' || newest FROM root ORDER BY 1";
    for root in stage.cluster.query(&stage.schema, roots) {
        let (name, newest) = root.rsplit_once(' ').expect("three words");
        assert_eq!(ask(&mut client, &format!("root {name} 0")), format!("ROOT {newest}"));
    }
    rows.len()
}

/// Returns key, group and error of the jobs of a tube in a state.
fn list(client: &mut Client, tube: &str, state: &str) -> BTreeMap<String, Vec<String>> {
    let mut jobs = BTreeMap::new();
    let mut last = String::new();
    let (_, text) = text(client, &format!("list-jobs {tube} {state} 1000"));
    for line in text.lines() {
        let Some((name, value)) = line.trim_start_matches("- ").trim().split_once(": ") else { continue };
        let value = value.trim_matches('"');
        if name == "id" {
            last = value.into();
            jobs.insert(last.clone(), vec![String::new(); 3]);
        }
        if let Some(place) = ["key", "group", "error"].iter().position(|other| *other == name) {
            jobs.get_mut(&last).expect("its number comes first")[place] = value.into();
        }
    }
    jobs
}

/// Puts, reserves and changes jobs, like clients.
fn work(client: &mut Client, random: &mut Random, requests: usize) {
    for serial in 0..requests {
        let tube = random.pick(&TUBES);
        let (delay, pri) = (random.pick(&[0, 0, 1000]), random.below(5));
        match random.below(13) {
            0..4 => {
                let len = if random.once_in(20) { 40_000 } else { random.below(400) };
                let body = format!("{serial}-{}", "x".repeat(len));
                let options = match random.below(4) {
                    0 => format!(" key=k{}", random.next()),
                    1 => format!(" group=g{}", random.below(3)),
                    2 => format!(" root=r root-ts={}", random.below(10)),
                    _ => String::new(),
                };
                client.send(
                    format!("put-job {pri} {delay} 60 {} tube={tube}{options}\r\n{body}\r\n", body.len()).as_bytes(),
                );
                client.line();
            }
            4..9 => {
                client.send(b"reserve-with-timeout 0\r\n");
                let line = client.line();
                let Some(rest) = line.trim_end().strip_prefix("RESERVED ") else { continue };
                client.line();
                let id = rest.split(' ').next().expect("a number");
                let then = match random.below(6) {
                    0 => format!("release {id} {pri} {delay}"),
                    1 => format!("bury {id} {pri}"),
                    2 => format!("fail {id} {pri} 0 5\r\nwrong"),
                    3 => continue,
                    _ => format!("delete {id}"),
                };
                client.send(format!("{then}\r\n").as_bytes());
                client.line();
            }
            9 => {
                client.send(format!("use {tube}\r\nkick {}\r\n", random.below(4)).as_bytes());
                client.line();
                client.line();
            }
            10 if random.once_in(10) => {
                client.send(format!("clear {tube}\r\n").as_bytes());
                client.line();
            }
            11 => {
                client.send(format!("root {tube} s{} {}\r\n", random.below(40), random.below(1000)).as_bytes());
                client.line();
            }
            _ => thread::sleep(Duration::from_millis(random.below(20) as u64)),
        }
    }
}

fn worker(stage: &Stage<'_>, owner: usize) -> Client {
    let mut client = Client::to(stage.daemons[owner].jobs());
    for tube in TUBES {
        // No delay ends while a daemon is compared with the database.
        client.send(format!("watch {tube}\r\nretry {tube} 10 1000 1 1000\r\n").as_bytes());
        client.line();
        client.line();
    }
    client
}

/// Random histories, at the end of which the standby takes over at a random moment; sometimes its link is cut or held.
#[test]
fn a_standby_that_follows_has_what_the_database_has() {
    let Some(cluster) = shared() else { return };
    let mut stage = pair(cluster, &["--jobs-admin"]);
    let mut random = Random::new(std::process::id().into());
    let (mut owner, mut warm, mut most) = (0, 0, 0);
    for round in 0..8 {
        let standby = 1 - owner;
        let trouble = random.below(4);
        let mut client = worker(&stage, owner);
        work(&mut client, &mut random, 150);
        match trouble {
            0 => stage.proxies[standby].turn_to(cluster.port),
            1 => stage.proxies[standby].hold(true),
            _ => await_copy(&stage, standby),
        }
        work(&mut client, &mut random, 300);
        if trouble == 1 {
            thread::sleep(Duration::from_secs(1));
            stage.proxies[standby].hold(false);
        }
        if random.once_in(2) {
            await_copy(&stage, standby);
        }
        let signal = if round % 4 == 3 { Signal::SIGKILL } else { Signal::SIGTERM };
        let log = take_over(&mut stage, owner, signal);
        warm += usize::from(log.iter().any(|line| line.contains(COPIED)));
        assert!(!log.iter().any(|line| line.contains("is not what the database has")), "{log:#?}");
        owner = standby;
        most = most.max(compare(&stage, owner));
    }
    println!("{warm} of 8 take-overs were warm, with up to {most} jobs");
    assert!(warm >= 4 && most > 50, "{warm}, {most}");
}

/// If not all changes are noted, everything is copied anew.
#[test]
fn a_standby_that_has_missed_changes_begins_anew() {
    let Some(cluster) = shared() else { return };
    let mut stage = pair(cluster, &["--jobs-admin"]);
    let mut random = Random::new(1);
    let mut client = worker(&stage, 0);
    work(&mut client, &mut random, 100);
    await_copy(&stage, 1);
    stage.proxies[1].hold(true);
    work(&mut client, &mut random, 200);
    cluster.query(&stage.schema, "DELETE FROM changed WHERE batch = (SELECT max(batch) - 20 FROM changed)");
    stage.proxies[1].hold(false);
    await_copy(&stage, 1);
    let log = take_over(&mut stage, 0, Signal::SIGTERM);
    assert!(log.iter().any(|line| line.contains(COPIED)), "{log:#?}");
    assert!(compare(&stage, 1) > 10);
    // The standby sees none of the next changes.
    await_copy(&stage, 0);
    stage.proxies[0].hold(true);
    let mut client = worker(&stage, 1);
    work(&mut client, &mut random, 100);
    cluster.query(&stage.schema, "DELETE FROM changed");
    stage.daemons[1].signal(Signal::SIGTERM);
    stage.daemons[1].wait();
    stage.proxies[0].hold(false);
    until(|| is_serving(stage.daemons[0].jobs()), "the standby serves");
    // So few jobs may be copied anew before the take-over.
    assert!(compare(&stage, 0) > 10);
}

/// Makes settings and root jobs: the version is in their values.
fn set(client: &mut Client, version: u64) {
    for (request, wanted) in [
        (format!("limit a/* {version}"), format!("LIMIT {version}")),
        (format!("retry b/* {version} 0 1 0"), "RETRY".into()),
        (format!("dead-letter b/* dead/{version}"), format!("DEAD_LETTER dead/{version}")),
        (format!("pause-all p/* {}", 1000 * version), "PAUSED".into()),
    ] {
        assert_eq!(ask(client, &request), wanted, "{request}");
    }
    for root in 0..100 * version {
        let newest = 1000 * version + root;
        assert_eq!(ask(client, &format!("root a/t s{root} {newest}")), format!("ROOT {newest}"));
    }
}

/// Asserts that a daemon goes by the settings and root jobs of this version.
fn assert_set(daemon: &Daemon, version: u64) {
    let mut client = Client::to(daemon.jobs());
    for root in 0..100 * version {
        assert_eq!(ask(&mut client, &format!("root a/t s{root} 0")), format!("ROOT {}", 1000 * version + root));
    }
    let leaf = |timestamp: u64| format!("put-job 0 0 60 1 tube=a/t root=s7 root-ts={timestamp}\r\nx");
    assert_eq!(ask(&mut client, &leaf(1000 * version + 6)), "SUPERSEDED");
    for _ in 0..=version {
        assert!(ask(&mut client, &leaf(1000 * version + 7)).starts_with("INSERTED"));
    }
    ask(&mut client, "watch a/t\r\nignore default");
    client.line();
    for _ in 0..version {
        assert!(ask(&mut client, "reserve-with-timeout 0").starts_with("RESERVED"));
        client.line();
    }
    assert_eq!(ask(&mut client, "reserve-with-timeout 0"), "TIMED_OUT", "the limit is {version}");
    let put = ask(&mut client, "put-job 0 0 60 1 tube=b/t\r\nx");
    let id = put.strip_prefix("INSERTED ").unwrap_or_else(|| panic!("{put}"));
    for attempt in 1..=version {
        assert_eq!(ask(&mut client, &format!("reserve-job {id}")), format!("RESERVED {id} 1"));
        client.line();
        let told = ask(&mut client, &format!("fail {id} 0 0 0\r\n"));
        assert_eq!(told, if attempt == version { "BURIED" } else { "RELEASED" }, "{attempt} of {version}");
    }
    assert!(text(&mut client, &format!("stats-job {id}")).1.contains(&format!("tube: \"dead/{version}\"")));
    assert!(ask(&mut client, "put-job 0 0 60 1 tube=p/t\r\nx").starts_with("INSERTED"));
    let stats = text(&mut client, "stats-tube p/t").1;
    let pause = stats.lines().find_map(|line| line.strip_prefix("pause: ")).expect("it is there");
    assert_eq!(pause, (1000 * version).to_string());
    ask(&mut client, "clear *\r\nclear */*");
}

/// The owner changes settings and root jobs before a standby follows, and while it follows.
#[test]
fn settings_and_root_jobs_are_followed() {
    let Some(cluster) = shared() else { return };
    let mut stage = Stage::new(cluster, 1);
    stage.options = &["--jobs-admin"];
    set(&mut Client::to(stage.daemons[0].jobs()), 1);
    stage.add();
    await_copy(&stage, 1);
    let mut owner = 0;
    for version in 2..5 {
        set(&mut Client::to(stage.daemons[owner].jobs()), version);
        if version != 3 {
            await_copy(&stage, 1 - owner);
        }
        let signal = if version == 2 { Signal::SIGKILL } else { Signal::SIGTERM };
        let log = take_over(&mut stage, owner, signal);
        owner = 1 - owner;
        assert_eq!(copied_roots(&log), 100 * version as usize, "{log:#?}");
        assert_set(&stage.daemons[owner], version);
        await_copy(&stage, 1 - owner);
    }
}

/// An owner of format 3 notes no root jobs: a standby reads them at the take-over.
#[test]
fn root_jobs_that_an_earlier_version_changes_are_read() {
    let Some(cluster) = shared() else { return };
    let mut stage = pair(cluster, &[]);
    set(&mut Client::to(stage.daemons[0].jobs()), 1);
    await_copy(&stage, 1);
    stage.proxies[1].hold(true);
    set(&mut Client::to(stage.daemons[0].jobs()), 2);
    cluster.query(&stage.schema, "UPDATE changed SET tubes = NULL, signatures = NULL");
    stage.proxies[1].hold(false);
    await_copy(&stage, 1);
    let log = take_over(&mut stage, 0, Signal::SIGTERM);
    assert_eq!(copied_roots(&log), 0, "{log:#?}");
    assert_set(&stage.daemons[1], 2);
}

#[test]
fn a_cold_standby_follows_nothing() {
    let Some(cluster) = shared() else { return };
    let mut stage = pair(cluster, &["--jobs-standby", "cold"]);
    for _ in 0..10 {
        assert!(answer(stage.daemons[0].jobs(), "put 0 0 60 1\r\nx").starts_with("INSERTED"));
    }
    thread::sleep(Duration::from_secs(2));
    assert_eq!(figure(&stage.daemons[1], "store_followed"), 0);
    let log = take_over(&mut stage, 0, Signal::SIGTERM);
    assert!(!log.iter().any(|line| line.contains(COPIED)), "{log:#?}");
    assert_eq!(figure(&stage.daemons[1], "current_jobs_ready"), 10);
}

/// Beyond its memory limit a standby copies nothing more, and reads the rest at the take-over.
#[test]
fn a_standby_with_little_memory_reads_the_rest() {
    let Some(cluster) = shared() else { return };
    let mut stage = Stage::with(cluster, 1, |schema| put_many(cluster, schema, 20_000));
    stage.options = &["--jobs-max-memory", "2"];
    stage.add();
    let standby = &stage.daemons[1];
    until(|| page(standby, "/status.json").1.contains("this daemon follows"), "it has copied what it may");
    let copied = figure(standby, "store_followed");
    assert!((1000..15_000).contains(&copied), "{copied}");
    let log = take_over(&mut stage, 0, Signal::SIGTERM);
    assert!(log.iter().any(|line| line.contains(COPIED)), "{log:#?}");
    assert_eq!(figure(&stage.daemons[1], "current_jobs_ready"), 20_000);
}

/// Puts jobs of 300 bytes, in rows like those of a daemon.
fn put_many(cluster: &Cluster, schema: &str, jobs: u64) {
    let sql = format!(
        "INSERT INTO job (id, tube, pri, delay, ttr, created, body) \
         SELECT id, 'wiki' || id % 1000 || '/refreshLinks', 9, 0, 60, 0, convert_to(repeat('x', 300), 'UTF8') \
         FROM generate_series(1, {jobs}) AS id; UPDATE owner SET next_id = {jobs} + 1"
    );
    cluster.query(schema, &sql);
}

/// Times and memory of take-overs with a million jobs, cold and warm.
#[test]
#[ignore = "it takes two minutes: make test-postgres"]
fn a_million_jobs_are_taken_over_at_once() {
    take_many_over(MILLION, 0);
}

/// The same with a million root jobs.
#[test]
#[ignore = "it takes two minutes: make test-postgres"]
fn a_million_root_jobs_are_taken_over_at_once() {
    take_many_over(1000, MILLION);
}

fn take_many_over(jobs: u64, roots: u64) {
    let Some(cluster) = own(&["fsync=off"]) else { return };
    let mut times = Vec::new();
    for options in [&["--jobs-standby", "cold"], &["--jobs-standby", "warm"]] {
        let mut stage = Stage::with(&cluster, 1, |schema| {
            put_many(&cluster, schema, jobs);
            let sql = format!(
                "INSERT INTO root SELECT 'wiki' || id % 1000 || '/refreshLinks', convert_to('page ' || md5(id::text), 'UTF8'), \
                 id, CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint) + id FROM generate_series(1, {roots}) AS id"
            );
            cluster.query(schema, &sql);
        });
        stage.options = options;
        stage.add();
        if options[1] == "warm" {
            await_copy(&stage, 1);
        } else {
            thread::sleep(Duration::from_secs(6));
        }
        let [owner, copy] = [0, 1].map(|daemon: usize| stage.daemons[daemon].memory() >> 20);
        let begun = Instant::now();
        stage.daemons[0].signal(Signal::SIGKILL);
        let address = stage.daemons[1].jobs();
        let mut most = 0;
        until(
            || {
                most = most.max(stage.daemons[1].memory() >> 20);
                is_serving(address)
            },
            "the standby serves",
        );
        let took = begun.elapsed();
        let log = stage.daemons[1].new_log();
        println!(
            "{}: served after {:.2} s; the owner had {owner} MiB, the standby {copy}, at most {most}: {log:#?}",
            options[1],
            took.as_secs_f64()
        );
        assert_eq!(figure(&stage.daemons[1], "current_jobs_ready"), jobs);
        assert_eq!(figure(&stage.daemons[1], "current_roots"), roots);
        assert!(options[1] == "cold" || most <= owner * 6 / 5, "the copy takes {most} MiB beside the jobs of the loop");
        times.push(took);
    }
    assert!(times[1] < times[0], "the copy is of no use: {times:?}");
}
