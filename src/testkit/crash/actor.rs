//! Random client of the jobs. It avoids requests for one job on two connections if their order matters.

use super::Response;
use super::history::Found;
use super::shape::{Place, Retry};
use crate::random::Random;
use std::collections::BTreeMap;

/// Bounds of the jobs that are reserved at once, and of the remembered jobs of each kind.
const MOST_HELD: usize = 4;
const MOST_KNOWN: usize = 20;
/// Number of own jobs above which a client ends jobs instead of putting more.
const ENOUGH: i32 = 30;
/// Delay that ends after every test, in seconds. Only the owner of such a job kicks it.
const LONG: u32 = 5000;

/// Delay in milliseconds above which only the owner of a job kicks it.
const SOON_MS: u64 = 60_000;

/// Returns the first requests of the client with this number. The watch keeps the tube alive that is paused at times.
pub fn greeting(number: usize) -> [String; 2] {
    ["watch work/*".into(), format!("watch pause/{number}")]
}

/// Settings that are made before any actor begins, and stay: elsewhere a job that fails is ready at once.
pub const SETUP: [&str; 5] = [
    "retry work/dies 2 1 1 1",
    "dead-letter work/dies work/dead",
    "retry work/stays 2 1 1 1",
    "retry */* 0 0 1 0",
    "retry default 0 0 1 0",
];

/// Returns [`SETUP`] in the form for a history.
pub fn retries() -> BTreeMap<String, Retry> {
    let dies = Retry { attempts: 2, seconds: 1, dead_letter: Some("work/dead".into()) };
    let stays = Retry { attempts: 2, seconds: 1, dead_letter: None };
    [("work/dies".into(), dies), ("work/stays".into(), stays)].into()
}

/// Requests that go out together, with one reply each.
#[derive(Default)]
pub struct Group {
    pub requests: Vec<Request>,
    /// True if they are one put-many.
    pub is_many: bool,
}

pub struct Request {
    pub line: String,
    /// None if it has none.
    pub body: Option<Vec<u8>>,
}

/// State of a random client.
pub struct Actor {
    /// Number of the client, which names its own settings.
    number: usize,
    /// Number of earlier lives of the server.
    life: usize,
    serial: u32,
    random: Random,
    held: Vec<u64>,
    /// Jobs that it has put, and that other clients may have reserved since.
    put: Vec<u64>,
    /// Jobs that it has buried, or delayed for long.
    set_aside: Vec<u64>,
    /// Number of jobs that it has put and not yet ended.
    balance: i32,
}

impl Group {
    /// Returns whether the client may leave without a reply: not if an unknown job may have been reserved for it.
    pub fn may_be_abandoned(&self) -> bool {
        !self.requests.iter().any(|request| request.line.starts_with("reserve"))
    }

    /// Returns the bytes on the wire.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.is_many {
            bytes.extend_from_slice(format!("put-many {}\r\n", self.requests.len()).as_bytes());
        }
        for request in &self.requests {
            bytes.extend_from_slice(request.line.as_bytes());
            bytes.extend_from_slice(b"\r\n");
            if let Some(body) = &request.body {
                bytes.extend_from_slice(body);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        bytes
    }
}

impl Actor {
    /// Returns the client of this number, which takes over its share of the buried and long delayed jobs.
    pub fn new(number: usize, actors: usize, life: usize, seed: u64, found: &Found, now: u64) -> Actor {
        let mine = |id: u64| id % actors as u64 == number as u64;
        let is_aside = |place: Place| match place {
            Place::Ready => false,
            Place::Delayed(from, _) => from > now + SOON_MS,
            Place::Buried => true,
        };
        let jobs = found.jobs.iter().filter(|job| mine(job.id) && !job.shape.tube.starts_with("own/"));
        let set_aside = jobs.filter(|job| is_aside(job.shape.place)).map(|job| job.id).collect();
        let random = Random::new(seed ^ (number as u64) << 32 ^ (life as u64) << 48);
        // Each client counts an equal share of the jobs found.
        let balance = i32::try_from(found.jobs.len() / actors).unwrap_or(i32::MAX);
        Actor { number, life, serial: 0, random, held: Vec::new(), put: Vec::new(), set_aside, balance }
    }

    /// Forgets its reservations after its connection was lost.
    pub fn forget(&mut self) {
        self.held.clear();
    }

    /// Returns its next requests.
    pub fn speak(&mut self) -> Group {
        if !self.has_enough() && self.random.once_in(12) {
            let requests = (0..2 + self.random.below(3)).map(|_| self.put_plainly()).collect();
            return Group { requests, is_many: true };
        }
        let count = self.random.pick(&[1, 1, 2, 5]);
        Group { requests: (0..count).map(|_| self.request()).collect(), is_many: false }
    }

    fn has_enough(&self) -> bool {
        self.balance > ENOUGH
    }

    fn request(&mut self) -> Request {
        match self.random.below(16) {
            0..=4 if self.has_enough() && self.held.len() < MOST_HELD => say("reserve-with-timeout 0".into()),
            0..=2 => self.put_plainly(),
            3..=4 => self.put_with_options(),
            5..=8 if !self.held.is_empty() => self.give_back(),
            5..=9 if self.held.len() < MOST_HELD => say("reserve-with-timeout 0".into()),
            10 if !self.put.is_empty() => {
                let id = take(&mut self.put, &mut self.random);
                say(format!("delete {id}"))
            }
            11..=12 if !self.set_aside.is_empty() => self.fetch_back(),
            13 => self.keep_own_tube(),
            14 => self.set(),
            _ if !self.held.is_empty() => self.give_back(),
            _ => self.set(),
        }
    }

    /// Returns a put with a unique body.
    fn put(&mut self, line: &str, options: &str) -> Request {
        self.serial += 1;
        let mut body = format!("{}/{}/{}", self.life, self.number, self.serial).into_bytes();
        if self.random.once_in(20) {
            body.resize(body.len() + self.random.below(20_000), b'.');
        }
        Request { line: format!("{line} {}{options}", body.len()), body: Some(body) }
    }

    fn put_plainly(&mut self) -> Request {
        let (pri, delay) = (self.random.below(5), self.random.pick(&[0, 0, 0, 0, 0, 0, 0, 1, 1, LONG]));
        self.put(&format!("put {pri} {delay} 500"), "")
    }

    fn put_with_options(&mut self) -> Request {
        let (pri, tube) = (self.random.below(2000), self.random.pick(&["a", "b", "dies", "dies", "stays"]));
        let options = match self.random.below(4) {
            0 => format!(" tube=work/{tube} key=k{}", self.random.below(6)),
            1 => format!(" tube=work/b key=K{} until=deleted", self.random.below(4)),
            2 => format!(" tube=work/{tube} group=g{}", self.random.below(3)),
            _ => format!(" tube=work/a root=S{} root-ts={}", self.number, 1 + self.random.below(9)),
        };
        self.put(&format!("put-job {pri} 0 500"), &options)
    }

    /// Returns a request that ends or releases a reserved job.
    fn give_back(&mut self) -> Request {
        let (id, pri) = (take(&mut self.held, &mut self.random), self.random.below(9));
        match self.random.below(12) {
            0..=1 => say(format!("release {id} {pri} {}", self.random.pick(&[0, 0, 1, LONG]))),
            2 => say(format!("bury {id} {pri}")),
            3..=4 => {
                let text = format!("error {}", self.random.below(100)).into_bytes();
                Request { line: format!("fail {id} {pri} 0 {}", text.len()), body: Some(text) }
            }
            _ => say(format!("delete {id}")),
        }
    }

    fn fetch_back(&mut self) -> Request {
        let id = take(&mut self.set_aside, &mut self.random);
        let word = self.random.pick(&["kick-job", "kick-job", "reserve-job", "delete"]);
        say(format!("{word} {id}"))
    }

    /// Returns a request for the client's own tube, in which many jobs change at once.
    fn keep_own_tube(&mut self) -> Request {
        let tube = format!("own/{}", self.number);
        match self.random.below(8) {
            0 => say(format!("clear {tube}")),
            1 => say(format!("clear {tube} {}", self.random.pick(&["ready", "delayed", "buried"]))),
            2 => say(format!("kick-all {tube}")),
            _ => {
                let delay = self.random.pick(&[0, LONG]);
                self.put(&format!("put-job 9 {delay} 500"), &format!(" tube={tube}"))
            }
        }
    }

    fn set(&mut self) -> Request {
        let (number, value) = (self.number, self.random.below(4));
        say(match self.random.below(5) {
            0 => format!("limit set/{number} {value}"),
            1 => format!("retry set/{number} {value} 0 1 0"),
            2 => format!("dead-letter set/{number}{}", self.random.pick(&["", " dead/a", " dead/b"])),
            3 => format!("pause-all pause/{number} {}", 5000 + self.random.below(100)),
            _ => format!("root work/a S{number} {}", 1 + self.random.below(12)),
        })
    }

    /// Updates the state after the reply to a request.
    pub fn told(&mut self, request: &Request, told: &Response) {
        let words: Vec<&str> = request.line.split(' ').collect();
        let id = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let long = LONG.to_string();
        self.balance += i32::from(told.line.starts_with("INSERTED"));
        match (told.line.split(' ').next().unwrap_or_default(), words[0]) {
            ("RESERVED", _) => self.held.extend(told.number("RESERVED")),
            ("INSERTED", _) if request.line.contains("tube=own/") => {}
            ("INSERTED", _) if words[2] == long => self.set_aside.extend(told.number("INSERTED")),
            ("INSERTED", _) => self.put.extend(told.number("INSERTED")),
            ("RELEASED", "release") if words[3] == long => self.set_aside.push(id),
            ("DELETED", _) => self.balance -= 1,
            ("CLEARED", _) => self.balance -= told.number("CLEARED").unwrap_or(0) as i32,
            // A failed job may have moved to a tube where other clients find it.
            ("BURIED", "bury") => self.set_aside.push(id),
            _ => {}
        }
        if self.put.len() > MOST_KNOWN {
            self.put.remove(0);
        }
    }
}

fn take(ids: &mut Vec<u64>, random: &mut Random) -> u64 {
    ids.swap_remove(random.below(ids.len()))
}

fn say(line: String) -> Request {
    Request { line, body: None }
}
