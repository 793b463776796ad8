//! Clients that put and do jobs at whichever daemon serves, and what they were told; and whether what is in the database at the end
//! can be what remains of it.

use poolcounter_client::{Error, NewJob, Producer, PutOutcome, Reservation, Runner, Timeouts};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How many clients put, and how many do.
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

/// What clients were told.
#[derive(Default)]
pub struct Heard {
    /// Jobs that were put, by number, each with its body.
    pub inserted: BTreeMap<u64, String>,
    /// Bodies of which it is not known whether they were put.
    unknown: BTreeSet<String>,
    /// Jobs whose end was promised, and jobs whose end was asked for.
    pub deleted: BTreeSet<u64>,
    ending: BTreeSet<u64>,
    /// When jobs were given out, and by whom.
    reserved: Vec<(Instant, u64, String)>,
    /// When something was promised.
    pub promises: Vec<Instant>,
}

impl Crowd {
    /// Clients of the first of these daemons that serves.
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

    /// Has them come to an end, and returns what they were told.
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
            // Nothing was sent, or nothing was done.
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
        match runner.reserve(Some(Duration::ZERO)) {
            Ok(Reservation::Reserved(job)) => {
                let body = String::from_utf8_lossy(&job.body).into_owned();
                heard.reserved.push((Instant::now(), job.id.0, body));
                // Some are left, so that there is something to lose.
                if job.id.0 % 3 == 0 {
                    thread::sleep(PAUSE);
                    continue;
                }
                heard.ending.insert(job.id.0);
                if runner.delete(&job).is_ok() {
                    heard.promises.push(Instant::now());
                    heard.deleted.insert(job.id.0);
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
    /// Compares with what is there at the end, by number.
    pub fn check(&self, found: &BTreeMap<u64, String>) {
        for (id, body) in &self.inserted {
            match found.get(id) {
                Some(other) => assert_eq!(other, body, "job {id} is another"),
                None => assert!(self.ending.contains(id), "job {id} is lost: {body}"),
            }
        }
        let mut bodies = BTreeSet::new();
        for (id, body) in found {
            assert!(!self.deleted.contains(id), "job {id} has come back");
            assert!(bodies.insert(body), "{body} is there twice");
            let is_known = self.inserted.get(id) == Some(body) || self.unknown.contains(body);
            assert!(is_known, "job {id} was never put: {body}");
        }
        for (_, id, body) in &self.reserved {
            let is_known = self.inserted.get(id) == Some(body) || self.unknown.contains(body);
            assert!(is_known, "job {id} was given out, and is not what was put: {body}");
        }
    }

    /// Returns the longest time without a promise.
    pub fn longest_gap(&self) -> Duration {
        self.promises.windows(2).map(|two| two[1] - two[0]).max().unwrap_or_default()
    }
}
