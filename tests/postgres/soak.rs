//! Random faults of links, daemons and servers, with clients at work: `make soak-postgres`. Each round has a history of
//! its own, which is checked against the database at its end. Meanwhile the sessions of the daemons are counted, an owner
//! without a link must say that it owns nothing, and a lock of the jobs must not cost the owner its queue.

use super::cut::says_it_owns;
use super::kept::{pair, signal_receiver};
use super::proxy::Fate;
use super::{Stage, answer, is_serving, processes, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use poolcounter_testkit::daemon::Client;
use poolcounter_testkit::postgres::{Cluster, own};
use poolcounter_testkit::random::Random;
use poolcounter_testkit::running::Over;
use std::env;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Time for which the daemons of a round meet faults.
const ROUND: Duration = Duration::from_secs(15);
/// Longest pause between two faults, in milliseconds.
const PAUSE: usize = 1500;
/// Longest time of a fault, in milliseconds: more than a lease.
const LONGEST_FAULT: usize = 7000;
/// Some locks, and stops of a replica, last longer by this factor: more than an answer may take.
const LONG: u32 = 3;
/// Time after which an owner without a link owns nothing any more.
const TRUST_IS_OVER: Duration = Duration::from_millis(4500);
/// Jobs of other tubes than the clients', their bytes, bytes a second of slow links, and the time that reading or
/// committing them may take there.
const LARGE_JOBS: usize = 64;
const LARGE: usize = 60_000;
const SLOW_RATE: u64 = 400_000;
const SLOW_TIME: Duration = Duration::from_secs(60);
/// Time of the bytes of some slow links in each direction.
const LONG_LINK: Duration = Duration::from_millis(50);
/// Most sessions of a daemon, and of the tests themselves.
const SESSIONS: usize = 4;
const OWN_SESSIONS: usize = 2;

/// Something that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    /// Commits do not reach the database, and their connections end.
    CommitsDropped,
    /// Commits take effect, and their connections end before the answer.
    AnswersDropped,
    /// Answers to commits are late.
    AnswersDelayed,
    /// Answers to renewals are late.
    RenewalsDelayed,
    /// A link holds back all bytes.
    LinkHeld,
    /// The connections of a link end.
    LinkCut,
    /// A link is slow.
    LinkSlow,
    /// A daemon is killed while all links are slow: reading the jobs takes longer than a lease.
    KilledAtSlowLinks,
    /// The owner has more to commit than its link carries in the time of a lease.
    MuchPutAtSlowLinks,
    DaemonStopped,
    DaemonKilled,
    /// A daemon ends in an orderly way, and is started again.
    DaemonEnded,
    ServerKilled,
    /// All processes of the server stop, and go on.
    ServerStopped,
    SessionsTerminated,
    StatementsCancelled,
    JobsLocked,
    OwnerLocked,
    /// The server takes no commits.
    ReadOnly,
    /// The replica receives nothing.
    ReplicaStopped,
}

use Trouble::*;

/// Replica of the server.
#[derive(Clone, Copy)]
struct Replica<'a> {
    cluster: &'a Cluster,
    /// True if commits wait for it.
    is_synchronous: bool,
}

/// Kinds of trouble with their weights.
const TROUBLES: [(Trouble, usize); 19] = [
    (CommitsDropped, 4),
    (AnswersDropped, 4),
    (AnswersDelayed, 2),
    (RenewalsDelayed, 2),
    (LinkHeld, 3),
    (LinkCut, 3),
    (LinkSlow, 2),
    (KilledAtSlowLinks, 1),
    (MuchPutAtSlowLinks, 1),
    (DaemonStopped, 3),
    (DaemonKilled, 3),
    (DaemonEnded, 3),
    (ServerKilled, 2),
    (ServerStopped, 2),
    (SessionsTerminated, 3),
    (StatementsCancelled, 3),
    (JobsLocked, 2),
    (OwnerLocked, 2),
    (ReadOnly, 1),
];

/// Returns the number in a variable of the environment.
fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, and not {text}")))
}

#[test]
#[ignore = "it takes a minute: make test-postgres"]
fn histories_hold_under_random_faults() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970");
    let seed = number("SOAK_SEED").unwrap_or(now.as_secs());
    let end = Instant::now() + Duration::from_secs(number("SOAK_SECONDS").unwrap_or(60));
    let Some(cluster) = own(&["fsync=off"]) else { return };
    let mut rounds = 0;
    while rounds == 0 || Instant::now() < end {
        let seed = seed + rounds;
        println!("SOAK_SEED={seed}");
        let mut random = Random::new(seed);
        let daemons = 1 + random.below(3);
        match random.below(6) {
            0 | 1 => {
                let Some((server, replica)) = pair("*") else { return };
                let replica = Replica { cluster: &replica, is_synchronous: true };
                play(&mut stage(&server, daemons), Some(replica), &mut random);
            }
            // The only daemon has all that the replica may lack.
            2 => {
                let Some((server, replica)) = pair("") else { return };
                let replica = Replica { cluster: &replica, is_synchronous: false };
                play(&mut stage(&server, 1), Some(replica), &mut random);
            }
            _ => play(&mut stage(&cluster, daemons), None, &mut random),
        }
        rounds += 1;
    }
    println!("{rounds} rounds");
}

/// Starts daemons at a queue with large jobs.
fn stage(cluster: &Cluster, daemons: usize) -> Stage<'_> {
    let sql = format!(
        "INSERT INTO job (id, tube, pri, delay, ttr, created, body) SELECT id, 'read', 9, 0, 60, 0, \
         convert_to(repeat('x', {LARGE}), 'UTF8') FROM generate_series(1, {LARGE_JOBS}) AS id; \
         UPDATE owner SET next_id = {LARGE_JOBS} + 1"
    );
    Stage::with(cluster, daemons, |schema| _ = cluster.query(schema, &sql))
}

/// Plays a round. If there is a replica, it takes the server's place at the end.
fn play<'a>(stage: &mut Stage<'a>, replica: Option<Replica<'a>>, random: &mut Random) {
    let heard = stage.play(|stage| {
        let (is_over, cluster) = (AtomicBool::new(false), stage.cluster);
        let most = thread::scope(|scope| {
            let over = Over(&is_over);
            let sessions = scope.spawn(|| most_sessions(cluster, &is_over));
            let end = Instant::now() + ROUND;
            let mut troubles = random.swarm(&TROUBLES);
            troubles.extend(replica.map(|_| (ReplicaStopped, 6)));
            while Instant::now() < end {
                thread::sleep(Duration::from_millis(random.below(PAUSE) as u64));
                let (trouble, place) = (random.weigh(&troubles), random.below(stage.daemons.len()));
                let mut time = Duration::from_millis(random.below(LONGEST_FAULT) as u64);
                if matches!(trouble, JobsLocked | OwnerLocked | ReplicaStopped) && random.once_in(3) {
                    time *= LONG;
                }
                println!("  {trouble:?} at {place} for {} ms", time.as_millis());
                let is_worse = random.once_in(2);
                meet(stage, trouble, place, time, is_worse, replica);
            }
            drop(over);
            sessions.join().expect("it only counts")
        });
        println!("  {most} sessions at most");
        assert!(most <= SESSIONS * stage.daemons.len() + OWN_SESSIONS, "{most} sessions");
        match replica {
            Some(Replica { cluster, is_synchronous: true }) if random.once_in(2) => {
                println!("  the server and all daemons are lost, and the replica takes over");
                let function = if random.once_in(2) { "pg_terminate_backend" } else { "pg_cancel_backend" };
                stage.lose_all(cluster, function);
            }
            Some(Replica { cluster, is_synchronous }) => {
                println!("  the {} replica takes over", if is_synchronous { "synchronous" } else { "asynchronous" });
                stage.await_service();
                stage.fail_over(cluster);
            }
            None => {}
        }
    });
    println!("  {:.1} s without a promise at most", heard.longest_gap().as_secs_f64());
}

/// Returns the greatest number of sessions of the daemons at a time.
fn most_sessions(cluster: &Cluster, is_over: &AtomicBool) -> usize {
    let mut most = 0;
    while !is_over.load(Ordering::Relaxed) {
        let sql =
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'poolcounter' AND pid <> pg_backend_pid()";
        // The server may be down.
        let counted = cluster.try_query("postgres", sql).ok().and_then(|count| count.first()?.parse().ok());
        most = most.max(counted.unwrap_or(0));
        thread::sleep(Duration::from_millis(250));
    }
    most
}

/// Interrupts the statements, or ends the sessions, of all daemons by a function of the server.
fn interrupt(cluster: &Cluster, function: &str) {
    let sql = format!(
        "SELECT {function}(pid) FROM pg_stat_activity WHERE application_name = 'poolcounter' AND pid <> pg_backend_pid()"
    );
    cluster.query("postgres", &sql);
}

/// Causes a fault at a daemon or the server, and ends it.
fn meet(
    stage: &mut Stage<'_>,
    trouble: Trouble,
    place: usize,
    time: Duration,
    is_worse: bool,
    replica: Option<Replica<'_>>,
) {
    let cluster = stage.cluster;
    let lock = |table: &str| {
        let seconds = time.as_secs_f64();
        cluster.query(
            "postgres",
            &format!("BEGIN; LOCK TABLE {}.{table}; SELECT pg_sleep({seconds}); COMMIT", stage.schema),
        );
    };
    let proxy = &stage.proxies[place];
    match trouble {
        CommitsDropped | AnswersDropped => {
            let fate = if trouble == CommitsDropped { Fate::DropsBefore } else { Fate::DropsAfter };
            for _ in 0..5 {
                proxy.set(Some(fate));
                thread::sleep(time / 5);
            }
            proxy.set(None);
        }
        AnswersDelayed | RenewalsDelayed => {
            let fate = if trouble == AnswersDelayed { Fate::Delays } else { Fate::DelaysRenewals };
            proxy.set(Some(fate(time / 2)));
            thread::sleep(time);
            proxy.set(None);
        }
        LinkHeld => {
            proxy.hold(true);
            thread::sleep(time);
            if time > TRUST_IS_OVER {
                assert!(!says_it_owns(&stage.daemons[place]), "a daemon without a link says that it owns the queue");
            }
            proxy.hold(false);
        }
        LinkCut => proxy.turn_to(cluster.port),
        LinkSlow => {
            proxy.limit(20_000);
            thread::sleep(time);
            proxy.limit(0);
        }
        KilledAtSlowLinks => {
            stage.proxies.iter().for_each(|proxy| proxy.limit(SLOW_RATE));
            stage.restart(place, Signal::SIGKILL);
            let begun = Instant::now();
            stage.await_service();
            assert!(begun.elapsed() < SLOW_TIME, "no daemon has served for {:?}", begun.elapsed());
            stage.proxies.iter().for_each(|proxy| proxy.limit(0));
        }
        MuchPutAtSlowLinks => {
            stage.await_service();
            stage.proxies.iter().for_each(|proxy| proxy.limit(SLOW_RATE));
            let delay = if is_worse { LONG_LINK } else { Duration::ZERO };
            stage.proxies.iter().for_each(|proxy| proxy.delay(delay));
            let owner = stage.put_much();
            if is_worse {
                // Standbys have to follow it by their slow links.
                stage.restart(owner, Signal::SIGKILL);
                stage.await_service();
            }
            stage.proxies.iter().for_each(|proxy| {
                proxy.limit(0);
                proxy.delay(Duration::ZERO);
            });
        }
        DaemonStopped => {
            stage.daemons[place].signal(Signal::SIGSTOP);
            thread::sleep(time);
            stage.daemons[place].signal(Signal::SIGCONT);
        }
        DaemonKilled => stage.restart(place, Signal::SIGKILL),
        DaemonEnded => stage.restart(place, Signal::SIGTERM),
        ServerKilled => {
            cluster.kill();
            thread::sleep(time / 4);
            cluster.run();
        }
        ServerStopped => {
            let stopped = processes(cluster);
            stopped.iter().for_each(|pid| signal_process(*pid, Signal::SIGSTOP));
            thread::sleep(time);
            stopped.iter().for_each(|pid| signal_process(*pid, Signal::SIGCONT));
        }
        SessionsTerminated => interrupt(cluster, "pg_terminate_backend"),
        StatementsCancelled => interrupt(cluster, "pg_cancel_backend"),
        JobsLocked => {
            stage.await_service();
            let before = stage.take_overs();
            lock("job");
            thread::sleep(Duration::from_secs(1));
            assert_eq!(stage.take_overs(), before, "the owner has lost the queue by a lock of the jobs");
        }
        OwnerLocked => lock("owner"),
        ReadOnly => {
            for setting in ["on", "off"] {
                cluster.query("postgres", &format!("ALTER SYSTEM SET default_transaction_read_only = {setting}"));
                cluster.query("postgres", "SELECT pg_reload_conf()");
                thread::sleep(time / 4);
            }
        }
        ReplicaStopped => {
            let Some(Replica { cluster: replica, .. }) = replica else { return };
            let follows = || !replica.query("postgres", "SELECT pid FROM pg_stat_wal_receiver").is_empty();
            until(follows, "the replica follows");
            signal_receiver(replica, Signal::SIGSTOP);
            thread::sleep(time);
            signal_receiver(replica, Signal::SIGCONT);
        }
    }
}

/// Sends a signal to a process of a server, which may have ended.
fn signal_process(pid: u32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
}

impl<'a> Stage<'a> {
    fn await_service(&self) {
        until(|| self.addresses().iter().any(|address| is_serving(*address)), "a daemon serves");
    }

    /// Returns the number of the last take-over.
    fn take_overs(&self) -> String {
        self.cluster.query(&self.schema, "SELECT epoch FROM owner").remove(0)
    }

    /// Puts large jobs at the owner, waits until the database has them, and returns its place.
    fn put_much(&self) -> usize {
        let large = || self.cluster.query(&self.schema, "SELECT count(*) FROM job WHERE tube = 'large'").remove(0);
        let commits =
            |address: &SocketAddr| answer(*address, "put-job 9 0 60 1 tube=large\r\nx").starts_with("INSERTED");
        let mut owner = None;
        until(
            || {
                owner = self.addresses().iter().position(commits);
                owner.is_some()
            },
            "a daemon commits",
        );
        let owner = owner.expect("it was found");
        let address = self.addresses()[owner];
        answer(address, "clear large");
        until(|| large() == "0", "there are none");
        let mut client = Client::to(address);
        let put = format!("put 9 0 60 {LARGE}\r\n{}\r\n", "x".repeat(LARGE));
        client.send(format!("use large\r\n{}", put.repeat(LARGE_JOBS)).as_bytes());
        client.stream().set_read_timeout(Some(super::LONGEST)).expect("an option");
        let begun = Instant::now();
        assert_eq!(client.line(), "USING large\r");
        // The commit may take longer than the daemon's clients wait for it.
        let replies: Vec<String> = (0..LARGE_JOBS).map(|_| client.line()).collect();
        let is_taken = |reply: &String| reply.starts_with("INSERTED") || reply == "INTERNAL_ERROR\r";
        assert!(replies.iter().all(is_taken), "the owner refuses jobs, or has gone: {replies:?}");
        until(|| large() == LARGE_JOBS.to_string(), "the jobs are committed");
        assert!(begun.elapsed() < SLOW_TIME, "the commit has taken {:?}", begun.elapsed());
        owner
    }

    /// Loses the server and all daemons while commits wait for the replica and are interrupted, promotes the replica,
    /// and starts the daemons again.
    fn lose_all(&mut self, replica: &'a Cluster, function: &str) {
        self.await_service();
        let follows = || !replica.query("postgres", "SELECT pid FROM pg_stat_wal_receiver").is_empty();
        until(follows, "the replica follows");
        signal_receiver(replica, Signal::SIGSTOP);
        thread::sleep(Duration::from_millis(500));
        interrupt(self.cluster, function);
        thread::sleep(Duration::from_secs(2));
        for daemon in &mut self.daemons {
            daemon.signal(Signal::SIGKILL);
            daemon.wait();
        }
        self.cluster.kill();
        // The replica loses what is on its way to it.
        signal_receiver(replica, Signal::SIGTERM);
        signal_receiver(replica, Signal::SIGCONT);
        self.promote(replica);
        for place in 0..self.daemons.len() {
            let address = self.daemons[place].jobs().to_string();
            self.daemons[place] = self.start(place, &address);
        }
        self.await_service();
    }

    /// Ends a daemon by a signal, and starts another at the same address.
    fn restart(&mut self, place: usize, signal: Signal) {
        let address = self.daemons[place].jobs().to_string();
        self.daemons[place].signal(signal);
        self.daemons[place].wait();
        self.daemons[place] = self.start(place, &address);
    }

    /// Kills the server, and promotes its replica.
    fn fail_over(&mut self, replica: &'a Cluster) {
        self.cluster.kill();
        self.promote(replica);
        self.await_service();
    }

    fn promote(&mut self, replica: &'a Cluster) {
        replica.promote();
        replica.query("postgres", "ALTER SYSTEM SET synchronous_standby_names = ''");
        replica.query("postgres", "SELECT pg_reload_conf()");
        self.proxies.iter().for_each(|proxy| proxy.turn_to(replica.port));
        self.cluster = replica;
    }
}
