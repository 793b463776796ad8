//! The client library against our server, against servers that fail in every way, and against the C daemon.

use poolcounter_client::{
    Client, Error, Failure, Fault, Limits, Lock, LockLoss, MediaWiki, Outcome, Purpose, Timeouts,
};
use poolcounter_protocol::pools::stats::{IN_FULL, PoolStat as Stat};
use poolcounter_testkit::daemon::{Daemon, PATIENCE, until};
use poolcounter_testkit::embedded::Embedded;
use poolcounter_testkit::original::{Original, nowhere};
use poolcounter_testkit::strange::{Strange, scripted};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

/// Limits of one lock, without a wait.
const ONE: Limits = Limits { workers: 1, max_queue: 10, timeout: Duration::ZERO, hold: None, at_least: Duration::ZERO };
/// Limits of one lock, with a wait longer than any test.
const PATIENT: Limits = Limits { timeout: Duration::from_secs(60), ..ONE };
/// Long timeouts: a server on a busy machine is not dead.
const TIMEOUTS: Timeouts = Timeouts { connect: PATIENCE, answer: PATIENCE, retry: PATIENCE };
/// Timeouts for servers that will not answer.
const SHORT: Timeouts = Timeouts { answer: Duration::from_millis(100), ..TIMEOUTS };

fn client(servers: &[&str]) -> Client {
    Client::with(MediaWiki::new(servers.iter().copied()), TIMEOUTS)
}

/// Returns the lock on `key`, which must be free.
fn lock<'a>(client: &'a Client, key: &str) -> Lock<'a> {
    match client.acquire(Purpose::Me, key, &ONE) {
        Ok(Outcome::Locked(lock)) => lock,
        other => panic!("{key} is not locked but {other:?}"),
    }
}

/// Returns whether `key` is held.
fn is_held(client: &Client, key: &str) -> bool {
    match client.acquire(Purpose::Me, key, &ONE).expect("the server answers") {
        Outcome::Locked(_) => false,
        Outcome::Timeout => true,
        other => panic!("{other:?}"),
    }
}

fn stat(client: &Client, stat: Stat) -> u64 {
    let (_, stats) = client.stats().remove(0);
    stats.expect("the server answers").of(stat)
}

/// Waits until a statistic of the only server has this value.
fn wait_for(client: &Client, wanted: Stat, value: u64) {
    until(&format!("{wanted:?} = {value}"), || stat(client, wanted) == value);
}

/// Returns the error when the only server, which is named by its address, has this fault.
fn unavailable(address: &str, fault: Fault) -> Error {
    Error::Unavailable(vec![(address.into(), Failure { address: address.into(), fault })])
}

/// Returns a key whose first server is `first`, of these two.
pub fn key_of(first: &str, second: &str) -> String {
    let digest = |server: &str, n: u32| md5::compute(format!("{server}key {n}")).0;
    let n = (0..).find(|n| digest(first, *n) < digest(second, *n)).expect("every other key is such");
    format!("key {n}")
}

#[test]
fn lock_excludes_others_until_it_is_dropped() {
    let server = Embedded::start("pools");
    let (one, two) = (client(&[&server.address]), client(&[&server.address]));
    let held = lock(&one, "k");
    assert!(is_held(&two, "k"));
    held.release().expect("was held until now");
    assert!(!is_held(&two, "k"));
    let held = lock(&two, "k");
    assert!(is_held(&one, "k"));
    drop(held);
    assert!(!is_held(&one, "k"));
    assert_eq!(stat(&one, Stat::ProcessingWorkers), 0);
}

#[test]
fn wait_ends_with_its_own_timeout() {
    let server = Embedded::start("pools");
    let one = client(&[&server.address]);
    let two =
        Client::with(MediaWiki::new([&server.address]), Timeouts { answer: Duration::from_millis(500), ..TIMEOUTS });
    let _held = lock(&one, "k");
    let begun = Instant::now();
    let outcome = two.acquire(Purpose::Me, "k", &Limits { timeout: Duration::from_millis(700), ..ONE });
    assert!(matches!(outcome, Ok(Outcome::Timeout)), "{outcome:?}");
    assert!(begun.elapsed() >= Duration::from_millis(700), "{:?}", begun.elapsed());
}

#[test]
fn waiters_are_done_or_take_over() {
    let server = Embedded::start("pools");
    let one = client(&[&server.address]);
    for (purpose, is_done) in [(Purpose::Anyone, true), (Purpose::Me, false)] {
        let held = lock(&one, "k");
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let two = client(&[&server.address]);
                match two.acquire(purpose, "k", &PATIENT).expect("the server answers") {
                    Outcome::Done => true,
                    Outcome::Locked(lock) => lock.release().is_err(),
                    other => panic!("{other:?}"),
                }
            });
            wait_for(&one, Stat::WaitingWorkers, 1);
            held.release().expect("was held until now");
            assert_eq!(waiter.join().expect("the waiter does not panic"), is_done, "{purpose:?}");
        });
    }
}

#[test]
fn locks_nest_up_to_the_servers_limit() {
    let server = Embedded::start("pools");
    let (one, two) = (client(&[&server.address]), client(&[&server.address]));
    let (a, b, c, d) = (lock(&one, "a"), lock(&one, "b"), lock(&one, "c"), lock(&one, "d"));
    assert!(matches!(one.acquire(Purpose::Me, "e", &ONE), Err(Error::LockHeld)));
    // Each lock releases its own key, in any order.
    b.release().expect("was held until now");
    assert!(!is_held(&two, "b") && is_held(&two, "d"));
    drop(a);
    assert!(!is_held(&two, "a") && is_held(&two, "d"));
    d.release().expect("was held until now");
    assert!(!is_held(&two, "d") && is_held(&two, "c"));
    let e = lock(&one, "e");
    drop((c, e));
    assert_eq!(stat(&one, Stat::ProcessingWorkers), 0);
    assert_eq!(stat(&one, Stat::ReleaseMismatch), 0);
}

#[test]
fn key_can_be_held_twice() {
    let server = Embedded::start("pools");
    let client = client(&[&server.address]);
    let two = Limits { workers: 2, ..ONE };
    let (first, second) = (client.acquire(Purpose::Me, "k", &two), client.acquire(Purpose::Me, "k", &two));
    assert!(matches!((&first, &second), (Ok(Outcome::Locked(_)), Ok(Outcome::Locked(_)))));
    assert_eq!(stat(&client, Stat::ProcessingWorkers), 2);
    drop(first);
    assert_eq!(stat(&client, Stat::ProcessingWorkers), 1);
    drop(second);
    assert_eq!(stat(&client, Stat::ProcessingWorkers), 0);
}

#[test]
fn lock_ends_with_its_client() {
    let server = Embedded::start("pools");
    let other = client(&[&server.address]);
    let one = client(&[&server.address]);
    // The destructor does not run, as in a process that is killed.
    std::mem::forget(lock(&one, "k"));
    assert!(is_held(&other, "k"));
    drop(one);
    wait_for(&other, Stat::ProcessingWorkers, 0);
}

#[test]
fn client_can_move_to_another_thread() {
    let server = Embedded::start("pools");
    let client = client(&[&server.address]);
    assert!(!is_held(&client, "k"));
    thread::spawn(move || assert!(!is_held(&client, "k"))).join().expect("it does not panic");
}

#[test]
fn expired_hold_is_reported_on_release() {
    let server = Embedded::start("pools");
    let (one, two) = (client(&[&server.address]), client(&[&server.address]));
    let short = Limits { hold: Some(Duration::from_millis(50)), ..ONE };
    let outcome = one.acquire(Purpose::Me, "k", &short).expect("the server answers");
    let Outcome::Locked(first) = outcome else { panic!("{outcome:?}") };
    let outcome = two.acquire(Purpose::Me, "k", &PATIENT).expect("the server answers");
    assert!(matches!(outcome, Outcome::Locked(_)), "{outcome:?}");
    assert_eq!(first.release(), Err(Error::Expired));
    assert!(is_held(&one, "k"), "the release took nothing from the other");
}

#[test]
fn space_in_a_key_is_sent_like_mediawiki() {
    let server = Daemon::start(&[]);
    let (client, mut plain) = (client(&[&server.address.to_string()]), server.connect());
    let held = lock(&client, "a key");
    assert_eq!(plain.ask("ACQ4ME a%20key 1 5 0"), "TIMEOUT");
    held.release().expect("was held until now");
    assert_eq!(plain.ask("ACQ4ME a%20key 1 5 0"), "LOCKED");
    for key in ["", "a\nb", "a\r", "\0"] {
        assert!(matches!(client.acquire(Purpose::Me, key, &ONE), Err(Error::BadName)), "{key:?}");
    }
}

#[test]
fn refusal_leaves_the_connection_as_it_was() {
    let server = Embedded::start("pools");
    let client = client(&[&server.address]);
    let held = lock(&client, "k");
    let refused = client.acquire(Purpose::Me, "j", &Limits { workers: 0, ..ONE });
    assert!(matches!(&refused, Err(Error::Refused(words)) if words == "BAD_SYNTAX"), "{refused:?}");
    held.release().expect("was held until now");
    // This refusal does cost the connection: the server closes it.
    let refused = client.acquire(Purpose::Me, "k".repeat(9_000), &ONE);
    assert!(matches!(&refused, Err(Error::Refused(words)) if words == "LINE_TOO_LONG"), "{refused:?}");
    assert!(!is_held(&client, "k"));
}

#[test]
fn restarted_server_is_connected_anew() {
    let mut server = Embedded::start("pools");
    let address = server.address.clone();
    let client = client(&[&address]);
    let (lost, kept) = (lock(&client, "k"), lock(&client, "j"));
    drop(server);
    server = Embedded::start_on(&address, "pools");
    assert_eq!(lost.release(), Err(Error::Lost));
    let again = lock(&client, "j");
    assert_eq!(kept.release(), Err(Error::Lost), "it was on another connection");
    assert_eq!(stat(&client, Stat::ProcessingWorkers), 1, "and takes nothing from this one");
    again.release().expect("was held until now");
    drop(server);
}

#[test]
fn holder_and_waiter_hear_of_a_killed_server() {
    let server = Daemon::start(&[]);
    let address = server.address.to_string();
    let holder = client(&[&address]);
    let held = lock(&holder, "k");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let waiter = client(&[&address]);
            let error = waiter.acquire(Purpose::Me, "k", &PATIENT).map(|_| ()).expect_err("the server is killed");
            // The waiting connection was its first, so it has not even tried another.
            assert_eq!(error, unavailable(&address, Fault::Closed));
        });
        wait_for(&holder, Stat::WaitingWorkers, 1);
        drop(server);
        waiting.join().expect("the waiter is told");
    });
    assert_eq!(held.release(), Err(Error::Lost));
    let refused = Fault::Unreachable(ErrorKind::ConnectionRefused, "nothing listens there".into());
    let error = holder.acquire(Purpose::Me, "k", &ONE).map(|_| ()).expect_err("the server is gone");
    assert_eq!(error, unavailable(&address, refused));
}

#[test]
fn killed_servers_waiter_moves_to_the_next_server() {
    let (first, second) = (Daemon::start(&[]), Embedded::start("pools"));
    let (first_address, second_address) = (first.address.to_string(), second.address.clone());
    let key = key_of(&first_address, &second_address);
    let holder = client(&[&first_address]);
    let _held = lock(&holder, &key);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let both = client(&[&second_address, &first_address]);
            let outcome = both.acquire(Purpose::Me, &key, &PATIENT).expect("the second server answers");
            assert!(matches!(outcome, Outcome::Locked(_)), "{outcome:?}");
            assert!(is_held(&client(&[&second_address]), &key), "it is the second that has granted it");
        });
        wait_for(&holder, Stat::WaitingWorkers, 1);
        drop(first);
        waiting.join().expect("the waiter gets a place");
    });
}

#[test]
fn server_that_refuses_is_passed_over() {
    let (dead, alive) = (nowhere(), Embedded::start("pools"));
    let key = key_of(&dead, &alive.address);
    let both = client(&[&dead, &alive.address]);
    lock(&both, &key).release().expect("was held until now");
    let stats = both.stats();
    assert!(
        matches!(&stats[0], (address, Err(Error::Unavailable(failures))) if *address == dead && failures[0].0 == dead),
        "{stats:?}"
    );
    assert!(matches!(&stats[1], (address, Ok(_)) if *address == alive.address), "{stats:?}");
}

#[test]
fn silent_server_is_skipped_for_a_while() {
    let silent = Strange::start(b"");
    let retry = Duration::from_millis(300);
    let client = Client::with(MediaWiki::new([&silent.address]), Timeouts { retry, ..SHORT });
    let unavailable = unavailable(&silent.address, Fault::Silent);
    let fails = || assert_eq!(client.acquire(Purpose::Me, "k", &ONE).map(|_| ()), Err(unavailable.clone()));
    let begun = Instant::now();
    fails();
    assert!(begun.elapsed() >= SHORT.answer && begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    let failed_at = Instant::now();
    fails();
    // A busy machine may have stopped this process for so long that the server was tried again.
    assert!(silent.connections() == 1 || failed_at.elapsed() >= retry);
    thread::sleep(retry);
    let before = silent.connections();
    fails();
    assert_eq!(silent.connections(), before + 1, "after a while it is asked again");
}

#[test]
fn late_answer_is_dropped() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("is bound").to_string();
    let server = thread::spawn(move || {
        let mut request = [0; 1024];
        let (mut first, _) = listener.accept().expect("the client connects");
        assert_ne!(first.read(&mut request).expect("it asks"), 0);
        // The client has timed out, and connects once more.
        let (mut second, _) = listener.accept().expect("it connects again");
        // The client may have closed the connection.
        let _ = first.write_all(b"LOCKED\n");
        assert_ne!(second.read(&mut request).expect("it asks again"), 0);
        second.write_all(b"QUEUE_FULL\n").expect("it listens");
    });
    let client = Client::with(MediaWiki::new([address]), Timeouts { retry: Duration::ZERO, ..SHORT });
    assert!(matches!(client.acquire(Purpose::Me, "k", &ONE), Err(Error::Unavailable(_))));
    let patient = Limits { timeout: PATIENCE, ..ONE };
    let outcome = client.acquire(Purpose::Me, "k", &patient).expect("the server answers");
    assert!(matches!(outcome, Outcome::QueueFull), "{outcome:?}");
    server.join().expect("the server does not panic");
}

#[test]
fn garbage_is_no_answer() {
    static ENDLESS: [u8; 100_000] = [b'x'; 100_000];
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"RELEASED\n", b"LOCKED\r\n", b"\n", b"\0\xff\n", &ENDLESS] {
        let strange = Strange::start(answer);
        let client = client(&[&strange.address]);
        let garbled = unavailable(&strange.address, Fault::Garbled);
        let error = client.acquire(Purpose::Me, "k", &ONE).map(|_| ()).expect_err("this is no answer");
        assert_eq!(error, garbled, "{}", answer[..answer.len().min(30)].escape_ascii());
    }
}

#[test]
fn refusal_of_statistics_is_no_garbage() {
    let strange = Strange::start("ERROR DENIED\n");
    let stats = client(&[&strange.address]).stats().remove(0).1;
    assert_eq!(stats.err(), Some(Error::Refused("DENIED".into())));
}

#[test]
fn unrequested_answer_ends_the_connection() {
    let strange = Strange::start(b"LOCKED\nRELEASED\n");
    let client = client(&[&strange.address]);
    let held = lock(&client, "k");
    assert_eq!(held.release(), Err(Error::Lost), "the second line came before the release");
}

#[test]
fn release_that_is_not_answered_costs_the_connection() {
    let strange = Strange::start(b"LOCKED\n");
    let client = client(&[&strange.address]);
    let (first, second) = (lock(&client, "k"), lock(&client, "j"));
    assert_eq!(first.release(), Err(Error::Lost));
    assert_eq!(second.release(), Err(Error::Lost));
}

#[test]
fn without_servers_there_is_no_lock() {
    let client = client(&[]);
    let error = client.acquire(Purpose::Me, "k", &ONE).map(|_| ()).expect_err("nobody can be asked");
    assert_eq!(error, Error::Unavailable(Vec::new()));
}

#[test]
fn errors_are_sentences() {
    let refused = Fault::Unreachable(ErrorKind::ConnectionRefused, "nothing listens there".into());
    let failures = [("a", "10.0.0.5:7531", refused), ("b:1", "b:1", Fault::Silent)];
    let failure =
        |(server, address, fault): (&str, &str, _)| (server.into(), Failure { address: address.into(), fault });
    assert_eq!(
        Error::Unavailable(failures.map(failure).into()).to_string(),
        "no server answers; a: 10.0.0.5:7531: nothing listens there; b:1: it does not answer"
    );
    assert_eq!(Error::Refused("BAD_SYNTAX".into()).to_string(), "the server refuses: BAD_SYNTAX");
}

#[test]
fn original_understands_the_client() {
    let Some(program) = Original::program() else {
        return poolcounter_testkit::skipped("the client at the C daemon, because that is not installed");
    };
    let server = Original::start(&program);
    // The port is the default of the client.
    let address = server.address.ip().to_string();
    let (one, two) = (client(&[&address]), client(&[&address]));
    let held = lock(&one, "a key");
    assert!(is_held(&two, "a key"));
    let full = two.acquire(Purpose::Anyone, "a key", &Limits { max_queue: 1, ..PATIENT });
    assert!(matches!(full, Ok(Outcome::QueueFull)), "{full:?}");
    let begun = Instant::now();
    let second = Limits { timeout: Duration::from_secs(1), ..ONE };
    assert!(matches!(two.acquire(Purpose::Me, "a key", &second), Ok(Outcome::Timeout)));
    // The C daemon is a millisecond early at times.
    assert!(begun.elapsed() >= Duration::from_millis(990), "{:?}", begun.elapsed());
    // Newest first, which is the only order that it supports.
    let (b, c, d) = (lock(&one, "b"), lock(&one, "c"), lock(&one, "d"));
    assert!(matches!(one.acquire(Purpose::Me, "e", &ONE), Err(Error::LockHeld)));
    [d, c, b, held].into_iter().for_each(|lock| lock.release().expect("was held until now"));
    assert_eq!(stat(&one, Stat::ProcessingWorkers), 0);
    let mut held = lock(&one, "k");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let waiter = client(&[&address]);
            let outcome = waiter.acquire(Purpose::Anyone, "k", &PATIENT);
            assert!(matches!(outcome, Ok(Outcome::Done)), "{outcome:?}");
        });
        wait_for(&one, Stat::WaitingWorkers, 1);
        held.release().expect("was held until now");
        waiter.join().expect("the waiter is done");
    });
    held = lock(&one, "k");
    drop(server);
    assert_eq!(held.release(), Err(Error::Lost));
}

/// Proves the note in the documentation of `Lock`: with the C daemon, release the newest lock first.
#[test]
fn original_releases_the_newest_whatever_the_key() {
    let Some(program) = Original::program() else {
        return poolcounter_testkit::skipped("the client at the C daemon, because that is not installed");
    };
    let server = Original::start(&program);
    let address = server.address.ip().to_string();
    let (one, two) = (client(&[&address]), client(&[&address]));
    let (a, _b) = (lock(&one, "a"), lock(&one, "b"));
    a.release().expect("it says so");
    assert!(is_held(&two, "a") && !is_held(&two, "b"));
}

#[test]
fn abandoned_work_goes_to_the_next_waiter() {
    let server = Embedded::start("pools");
    let (first, observer) = (client(&[&server.address]), client(&[&server.address]));
    let held = lock(&first, "k");
    assert!(held.loss().is_none() && held.descriptor().is_some());
    thread::scope(|scope| {
        let second = scope.spawn(|| {
            let second = client(&[&server.address]);
            let outcome = second.acquire(Purpose::Anyone, "k", &PATIENT).expect("the server answers");
            assert!(matches!(outcome, Outcome::Locked(_)), "{outcome:?}");
        });
        wait_for(&observer, Stat::WaitingWorkers, 1);
        held.abandon();
        second.join().expect("it has the lock");
    });
    wait_for(&observer, Stat::HashtableEntries, 0);
}

#[test]
fn revoked_lock_is_known_as_revoked() {
    for answer in ["LOCKED\nNOT_LOCKED\n", "LOCKED\n"] {
        let address = scripted(&[answer]);
        let client = client(&[&address]);
        let held = lock(&client, "k");
        until("the loss", || held.loss().is_some());
        let is_taken_back = answer.contains("NOT_LOCKED");
        let (loss, error) = match is_taken_back {
            true => (LockLoss::TakenBack, Error::Expired),
            false => (LockLoss::Connection, Error::Lost),
        };
        assert_eq!((held.loss(), held.release()), (Some(loss), Err(error)), "{answer}");
    }
}

#[test]
fn draining_server_is_passed_over() {
    let (draining, alive) = (Strange::start(b"ERROR DRAINING\n"), Embedded::start("pools"));
    let client = client(&[&draining.address, &alive.address]);
    let key = key_of(&draining.address, &alive.address);
    for _ in 0..3 {
        lock(&client, &key).release().expect("was held until now");
    }
    assert_eq!(draining.connections(), 1, "the connection is kept");
    let error = self::client(&[&draining.address]).acquire(Purpose::Me, "k", &ONE).map(|_| ());
    assert_eq!(error, Err(unavailable(&draining.address, Fault::Draining)));
}

#[test]
fn locks_stay_held_while_their_server_drains() {
    let (draining, alive) = (scripted(&["LOCKED\n", "ERROR DRAINING\n", "RELEASED\n"]), Embedded::start("pools"));
    let client = client(&[&draining, &alive.address]);
    let key = key_of(&draining, &alive.address);
    let held = lock(&client, &key);
    let second = lock(&client, &key);
    assert!(held.loss().is_none());
    assert_eq!((held.release(), second.release()), (Ok(()), Ok(())));
}

#[test]
fn wait_is_watched_each_second() {
    let server = Embedded::start("pools");
    let (first, second) = (client(&[&server.address]), client(&[&server.address]));
    let _held = lock(&first, "k");
    let limits = Limits { timeout: Duration::from_millis(2_500), ..ONE };
    let mut seen = Vec::new();
    let outcome = second.acquire_several(Purpose::Me, "k", &limits, &[], |waited| seen.push(waited));
    assert!(matches!(outcome, Ok(Outcome::Timeout)), "{outcome:?}");
    assert!(seen.len() == 2 && seen[0] >= Duration::from_secs(1), "{seen:?}");
}

#[test]
fn any_statistics_can_be_asked_for() {
    let server = Embedded::start("pools");
    let client = client(&[&server.address]);
    let _held = lock(&client, "k");
    let ask = |words: &str| client.query(words).remove(0).1;
    assert_eq!(ask("total_acquired"), Ok(vec![b"total_acquired: 1".to_vec()]));
    assert_eq!(ask("").expect("is known").len(), IN_FULL);
    assert_eq!(ask("KEYS 1").expect("is known").len(), 1);
    assert_eq!(ask("holders nobody"), Ok(Vec::new()));
    assert!(ask("report 0").expect("is known").concat().ends_with(b"}"));
    assert_eq!(ask("nonsense"), Err(Error::Refused("WRONG_STAT".into())));
    assert_eq!(ask("UPTIME\nRELEASE"), Err(Error::BadName));
    assert_eq!(stat(&client, Stat::TotalReleases), 0, "nothing else was said");
}
