//! Random faults of links, daemons and servers, with clients at work: `make soak-postgres`. Each round has a history of
//! its own, which is checked against the database at its end.

use super::kept::{pair, signal_receiver};
use super::proxy::Fate;
use super::{Stage, is_serving, until};
use nix::sys::signal::Signal;
use poolcounter_testkit::postgres::{Cluster, own};
use poolcounter_testkit::random::Random;
use std::env;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Time for which the daemons of a round meet faults.
const ROUND: Duration = Duration::from_secs(15);
/// Longest pause between two faults, in milliseconds.
const PAUSE: usize = 1500;
/// Longest time of a fault, in milliseconds: more than a lease.
const LONGEST_FAULT: usize = 7000;

/// Something that goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trouble {
    /// Commits do not reach the database, and their connections end.
    CommitsDropped,
    /// Commits take effect, and their connections end before the answer.
    AnswersDropped,
    /// Answers to commits are late.
    AnswersDelayed,
    /// A link holds back all bytes.
    LinkHeld,
    /// The connections of a link end.
    LinkCut,
    /// A link is slow.
    LinkSlow,
    DaemonStopped,
    DaemonKilled,
    /// A daemon ends in an orderly way, and is started again.
    DaemonEnded,
    ServerKilled,
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

/// Kinds of trouble with their weights.
const TROUBLES: [(Trouble, usize); 15] = [
    (CommitsDropped, 4),
    (AnswersDropped, 4),
    (AnswersDelayed, 2),
    (LinkHeld, 3),
    (LinkCut, 3),
    (LinkSlow, 2),
    (DaemonStopped, 3),
    (DaemonKilled, 3),
    (DaemonEnded, 3),
    (ServerKilled, 2),
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
        if random.once_in(3) {
            let Some((server, replica)) = pair() else { return };
            play(&mut Stage::new(&server, daemons), Some(&replica), &mut random);
        } else {
            play(&mut Stage::new(&cluster, daemons), None, &mut random);
        }
        rounds += 1;
    }
    println!("{rounds} rounds");
}

/// Plays a round. If there is a replica, it takes the server's place at the end.
fn play<'a>(stage: &mut Stage<'a>, replica: Option<&'a Cluster>, random: &mut Random) {
    let heard = stage.play(|stage| {
        let end = Instant::now() + ROUND;
        let mut troubles = random.swarm(&TROUBLES);
        troubles.extend(replica.map(|_| (ReplicaStopped, 6)));
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(random.below(PAUSE) as u64));
            let (trouble, place) = (random.weigh(&troubles), random.below(stage.daemons.len()));
            let time = Duration::from_millis(random.below(LONGEST_FAULT) as u64);
            println!("  {trouble:?} at {place} for {} ms", time.as_millis());
            meet(stage, trouble, place, time, replica);
        }
        if let Some(replica) = replica {
            println!("  the replica takes over");
            stage.fail_over(replica);
        }
    });
    println!("  {:.1} s without a promise at most", heard.longest_gap().as_secs_f64());
}

/// Causes a fault at a daemon or the server, and ends it.
fn meet(stage: &mut Stage<'_>, trouble: Trouble, place: usize, time: Duration, replica: Option<&Cluster>) {
    let cluster = stage.cluster;
    let sessions = |function: &str| {
        let sql = format!(
            "SELECT {function}(pid) FROM pg_stat_activity WHERE application_name = 'poolcounter' AND pid <> pg_backend_pid()"
        );
        cluster.query("postgres", &sql);
    };
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
        AnswersDelayed => {
            proxy.set(Some(Fate::Delays(time / 2)));
            thread::sleep(time);
            proxy.set(None);
        }
        LinkHeld => {
            proxy.hold(true);
            thread::sleep(time);
            proxy.hold(false);
        }
        LinkCut => proxy.turn_to(cluster.port),
        LinkSlow => {
            proxy.limit(20_000);
            thread::sleep(time);
            proxy.limit(0);
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
        SessionsTerminated => sessions("pg_terminate_backend"),
        StatementsCancelled => sessions("pg_cancel_backend"),
        JobsLocked => lock("job"),
        OwnerLocked => lock("owner"),
        ReadOnly => {
            for setting in ["on", "off"] {
                cluster.query("postgres", &format!("ALTER SYSTEM SET default_transaction_read_only = {setting}"));
                cluster.query("postgres", "SELECT pg_reload_conf()");
                thread::sleep(time / 4);
            }
        }
        ReplicaStopped => {
            let Some(replica) = replica else { return };
            let follows = || !replica.query("postgres", "SELECT pid FROM pg_stat_wal_receiver").is_empty();
            until(follows, "the replica follows");
            signal_receiver(replica, Signal::SIGSTOP);
            thread::sleep(time);
            signal_receiver(replica, Signal::SIGCONT);
        }
    }
}

impl<'a> Stage<'a> {
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
        replica.query("postgres", "SELECT pg_promote(true)");
        replica.query("postgres", "ALTER SYSTEM SET synchronous_standby_names = ''");
        replica.query("postgres", "SELECT pg_reload_conf()");
        self.proxies.iter().for_each(|proxy| proxy.turn_to(replica.port));
        self.cluster = replica;
        until(|| self.addresses().iter().any(|address| is_serving(*address)), "a daemon serves again");
    }
}
