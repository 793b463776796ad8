//! Clients that put and do jobs at the daemon that serves, a record of their replies, and a check of the database
//! against it.

use poolcounter_client::{Error, NewJob, Producer, PutOutcome, Reservation, Runner, Timeouts};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Numbers of clients that put, and of clients that reserve and delete.
const PRODUCERS: usize = 3;
const RUNNERS: usize = 3;
/// Longer than a reply waits for its commit.
const TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_secs(1), answer: Duration::from_secs(20), retry: Duration::ZERO };
/// Between two requests of a client, so that a case is about faults and not about load.
const PAUSE: Duration = Duration::from_millis(2);

/// Clients at work.
pub struct Crowd {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Heard>>,
}

/// Replies to all clients.
#[derive(Default)]
pub struct Heard {
    /// Jobs that were put, by number, each with its body.
    pub inserted: BTreeMap<u64, String>,
    /// Bodies of puts with an unknown outcome.
    unknown: BTreeSet<String>,
    /// Jobs whose deletion was promised, with the time of the promise.
    pub deleted: BTreeMap<u64, Instant>,
    ending: BTreeSet<u64>,
    /// Jobs that were given out, each with its body and the time of the reserve.
    reserved: Vec<(Instant, u64, String)>,
    /// Times of promises.
    pub promises: Vec<Instant>,
}

impl Crowd {
    /// Starts clients of the first of these daemons that serves.
    pub fn at(daemons: &[SocketAddr]) -> Crowd {
        let servers: Vec<String> = daemons.iter().map(ToString::to_string).collect();
        let is_over = Arc::new(AtomicBool::new(false));
        let producers = (0..PRODUCERS).map(|n| {
            let (servers, is_over) = (servers.clone(), is_over.clone());
            thread::spawn(move || produce(n, &servers, &is_over))
        });
        let mut threads: Vec<_> = producers.collect();
        threads.extend((0..RUNNERS).map(|_| {
            let (servers, is_over) = (servers.clone(), is_over.clone());
            thread::spawn(move || run(&servers, &is_over))
        }));
        Crowd { is_over, threads }
    }

    /// Ends all clients, and returns their replies.
    pub fn end(self) -> Heard {
        self.is_over.store(true, Ordering::Relaxed);
        let mut all = Heard::default();
        for thread in self.threads {
            let heard = thread.join().expect("a client does not panic");
            all.inserted.extend(heard.inserted);
            all.unknown.extend(heard.unknown);
            all.deleted.extend(heard.deleted);
            all.ending.extend(heard.ending);
            all.reserved.extend(heard.reserved);
            all.promises.extend(heard.promises);
        }
        all.promises.sort_unstable();
        all.reserved.sort_unstable();
        all
    }
}

fn produce(n: usize, servers: &[String], is_over: &AtomicBool) -> Heard {
    let producer = Producer::new(servers, TIMEOUTS);
    let mut heard = Heard::default();
    for serial in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let body = format!("{n}/{serial}");
        match producer.put(&NewJob::new(body.clone())) {
            Ok(PutOutcome::Inserted(id)) => {
                heard.promises.push(Instant::now());
                assert_eq!(heard.inserted.insert(id.0, body), None, "a number comes again");
            }
            Ok(other) => panic!("a put is {other:?}"),
            // The request was not sent, or not done.
            Err(Error::Unavailable(_)) => thread::sleep(Duration::from_millis(20)),
            Err(Error::Refused(words)) if words == "OUT_OF_MEMORY" => thread::sleep(Duration::from_millis(20)),
            Err(_) => _ = heard.unknown.insert(body),
        }
        thread::sleep(PAUSE);
    }
    heard
}

fn run(servers: &[String], is_over: &AtomicBool) -> Heard {
    let mut runner = Runner::new(servers, TIMEOUTS);
    let mut heard = Heard::default();
    while !is_over.load(Ordering::Relaxed) {
        let asked = Instant::now();
        match runner.reserve(Some(Duration::ZERO)) {
            Ok(Reservation::Reserved(job)) => {
                let body = String::from_utf8_lossy(&job.body).into_owned();
                heard.reserved.push((asked, job.id.0, body));
                // Some jobs are left, so that there is something to lose.
                if job.id.0 % 3 == 0 {
                    thread::sleep(PAUSE);
                    continue;
                }
                heard.ending.insert(job.id.0);
                if runner.delete(&job).is_ok() {
                    heard.promises.push(Instant::now());
                    heard.deleted.insert(job.id.0, Instant::now());
                }
            }
            Ok(_) => thread::sleep(PAUSE),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
        thread::sleep(PAUSE);
    }
    heard
}

impl Heard {
    /// Compares the replies with the jobs in the database at the end, by number.
    pub fn check(&self, found: &BTreeMap<u64, String>) {
        for (id, body) in &self.inserted {
            match found.get(id) {
                Some(other) => assert_eq!(other, body, "job {id} is another"),
                None => assert!(self.ending.contains(id), "job {id} is lost: {body}"),
            }
        }
        let mut bodies = BTreeSet::new();
        for (id, body) in found {
            assert!(!self.deleted.contains_key(id), "job {id} has come back");
            assert!(bodies.insert(body), "{body} is there twice");
            let is_known = self.inserted.get(id) == Some(body) || self.unknown.contains(body);
            assert!(is_known, "job {id} was never put: {body}");
        }
        for (asked, id, body) in &self.reserved {
            let is_gone = self.deleted.get(id).is_some_and(|deleted| deleted < asked);
            assert!(!is_gone, "job {id} was given out after its end was promised");
            let is_known = self.inserted.get(id) == Some(body) || self.unknown.contains(body);
            assert!(is_known, "job {id} was given out, and is not what was put: {body}");
        }
    }

    /// Returns the longest time without a promise.
    pub fn longest_gap(&self) -> Duration {
        self.promises.windows(2).map(|two| two[1] - two[0]).max().unwrap_or_default()
    }
}
