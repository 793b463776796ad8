//! The client library and dead servers: the delay of requests, the number of tries, and the recovery.

use crate::client::key_of;
use poolcounter_client::{Client, Error, Limits, MediaWiki, Outcome, Purpose, Timeouts};
use poolcounter_testkit::daemon::{PATIENCE, until};
use poolcounter_testkit::embedded::Embedded;
use poolcounter_testkit::sockets::FullBacklog;
use poolcounter_testkit::strange::Strange;
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

const ONE: Limits = Limits { workers: 1, max_queue: 10, timeout: Duration::ZERO, hold: None, at_least: Duration::ZERO };
/// Timeout of a connect, longer than any request takes by itself.
const CONNECT: Duration = Duration::from_secs(1);
/// Time from which on a request has waited for a connection. socket2 waits for whole milliseconds, rounded down.
const SLOW: Duration = Duration::from_millis(990);
/// Pause before a dead server is tried again, so short that it is tried over and over.
const RETRY: Duration = Duration::from_millis(10);
const TIMEOUTS: Timeouts = Timeouts { connect: CONNECT, answer: PATIENCE, retry: RETRY };
/// Pause between two requests, so that some pauses are over in a test.
const PAUSE: Duration = Duration::from_millis(5);

/// Requests of one client, and the number of requests that waited for a connection in vain.
struct Requests<'a> {
    client: &'a Client,
    key: String,
    slow: usize,
    /// Error of the last request that failed.
    why: String,
}

impl Requests<'_> {
    /// Makes one request, and returns whether a server granted the lock, which is released.
    fn make(&mut self) -> bool {
        thread::sleep(PAUSE);
        let begun = Instant::now();
        let outcome = self.client.acquire(Purpose::Me, &self.key, &ONE);
        self.slow += usize::from(begun.elapsed() >= SLOW);
        match outcome {
            Ok(Outcome::Locked(lock)) => lock.release().is_ok(),
            Err(Error::Unavailable(why)) => {
                self.why = format!("{why:?}");
                false
            }
            other => panic!("{other:?}"),
        }
    }
}

fn is_held_at(server: &str, key: &str) -> bool {
    let client = Client::with(MediaWiki::new([server]), TIMEOUTS);
    match client.acquire(Purpose::Me, key, &ONE) {
        Ok(Outcome::Timeout) => true,
        Ok(Outcome::Locked(_)) => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn machine_that_is_down_costs_one_timeout() {
    let (down, alive) = (FullBacklog::new(), Embedded::start("pools"));
    let address = down.address.to_string();
    let client = Client::with(MediaWiki::new([&address, &alive.address]), TIMEOUTS);
    let mut requests = Requests { client: &client, key: key_of(&address, &alive.address), slow: 0, why: String::new() };
    assert!((0..100).all(|_| requests.make()), "the other server grants each");
    // A busy machine may stop a request for as long.
    assert!((1..=3).contains(&requests.slow), "{} of 100 requests waited: {}", requests.slow, requests.why);
}

#[test]
fn last_servers_failure_is_reported_at_once() {
    let down = FullBacklog::new();
    let client = Client::with(MediaWiki::new([down.address.to_string()]), TIMEOUTS);
    let mut requests = Requests { client: &client, key: "k".into(), slow: 0, why: String::new() };
    assert!(!(0..100).any(|_| requests.make()), "nobody grants anything");
    assert!((1..=3).contains(&requests.slow), "{} of 100 requests waited: {}", requests.slow, requests.why);
}

#[test]
fn recovered_machine_is_found_without_a_wait() {
    let (down, alive) = (FullBacklog::new(), Embedded::start("pools"));
    let address = down.address.to_string();
    let client = Client::with(MediaWiki::new([&address, &alive.address]), TIMEOUTS);
    let mut requests = Requests { client: &client, key: key_of(&address, &alive.address), slow: 0, why: String::new() };
    assert!((0..10).all(|_| requests.make()));
    // A lock of this server fails at its release, to which it answers nonsense.
    let found = Strange::on(down.open(), b"LOCKED\n");
    until("a failure", || !requests.make());
    assert!(found.connections() >= 1 && requests.slow <= 3, "{} requests waited for it", requests.slow);
}

#[test]
fn key_returns_to_its_server() {
    let (listener, alive) = (TcpListener::bind("127.0.0.1:0").expect("a port is free"), Embedded::start("pools"));
    let address = listener.local_addr().expect("is bound").to_string();
    let key = key_of(&address, &alive.address);
    drop(listener);
    let client = Client::with(MediaWiki::new([&address, &alive.address]), TIMEOUTS);
    let Ok(Outcome::Locked(held)) = client.acquire(Purpose::Me, &key, &ONE) else { panic!("the other grants it") };
    assert!(is_held_at(&alive.address, &key));
    held.release().expect("was held until now");
    let back = Embedded::start_on(&address, "pools");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let Ok(Outcome::Locked(_held)) = client.acquire(Purpose::Me, &key, &ONE) else {
            panic!("one of them grants it")
        };
        if is_held_at(&back.address, &key) {
            assert!(!is_held_at(&alive.address, &key));
            return;
        }
        assert!(Instant::now() < deadline, "it is not found");
        thread::sleep(PAUSE);
    }
}

#[test]
fn silent_server_is_retried_more_and_more_rarely() {
    let silent = Strange::start(b"");
    let timeouts = Timeouts { answer: Duration::from_millis(20), retry: Duration::from_millis(50), connect: PATIENCE };
    let client = Client::with(MediaWiki::new([&silent.address]), timeouts);
    let mut requests = Requests { client: &client, key: "k".into(), slow: 0, why: String::new() };
    let begun = Instant::now();
    while silent.connections() < 8 && begun.elapsed() < PATIENCE {
        assert!(!requests.make(), "it grants nothing");
    }
    // After 50, 100 and 200 ms, and then every 400; each time it has 20 to answer.
    let most = 4 + begun.elapsed().as_millis() / 420;
    let asked = silent.connections();
    assert!(asked >= 5 && asked as u128 <= most, "{asked} times, of at most {most}");
}
