//! Random histories with crowds of everything whose number a client decides: no step looks at more entries than it may.
//! The meter of the loop fails the test otherwise (`core::meter`).
//!
//! `CROWD` is the number of entries of each crowd: more than a step may look at, in any case.

use poolcounter_core::random::Random;
use poolcounter_core::time::Span;
use poolcounter_counters::CountersSettings;
use poolcounter_pools::PoolsSettings;
use poolcounter_testkit::frames;
use poolcounter_testkit::lines::rows;
use poolcounter_testkit::random::setting;
use poolcounter_testkit::seeds::play;
use poolcounter_testkit::world::{World, administered};

/// Requests in one write.
const BATCH: usize = 50;

/// A world, and its clients.
struct Crowd {
    world: World,
    random: Random,
    /// Connections with the service of each.
    clients: Vec<(usize, &'static str)>,
    size: usize,
}

/// Function that makes very many entries of one kind.
type Dimension = fn(&mut Crowd);

const DIMENSIONS: [Dimension; 14] = [
    // Locks of a connection.
    |crowd| crowd.one("pools", |n| format!("ACQ4ME key:{n} 1 9 0\n")),
    // Waiters for a key.
    |crowd| crowd.each("pools", |_| "ACQ4ANY wanted 1 999999 60\n".into()),
    // Counters of a connection.
    |crowd| {
        let client = crowd.connect("counters");
        let names = 0..crowd.size;
        let requests: Vec<Vec<u8>> = names.map(|n| frames::acquire(1, 9, format!("counter {n}").as_bytes())).collect();
        requests.chunks(BATCH).for_each(|batch| crowd.say(client, &batch.concat()));
    },
    // Free members with attributes of a provider.
    |crowd| {
        crowd.all_from_one("members", "POOL db 0 999999 queue=999999\nPROVIDE db 999999\n", |n| {
            format!("OFFER db m{n} zone=z{} gpu={}\n", n % 7, n % 2)
        });
    },
    // Leases of a connection.
    |crowd| {
        crowd.all_from_one("members", "POOL p 0 999999 queue=999999\n", |n| format!("ADD p m{n}\n"));
        crowd.one("members", |_| "TAKE p\n".into());
    },
    // Waiters for members with attributes, and for several.
    |crowd| {
        let n = crowd.random.below(2) + 1;
        crowd.each("members", move |_| format!("POOL db 0 999999 queue=999999\nTAKE db 600 n={n} zone=none\n"));
    },
    // Sets of watches that share a tube.
    |crowd| crowd.each("jobs", |n| format!("watch common\r\nwatch own/{n}\r\nignore default\r\nreserve\r\n")),
    // Tubes under one pattern.
    |crowd| crowd.one("jobs", |n| format!("put-job {} 0 60 1 tube=w{n}/t\r\na\r\n", n % 3)),
    // Groups of a tube.
    |crowd| crowd.one("jobs", |n| format!("put-job 1 0 60 1 tube=q/t group=g{n}\r\na\r\n")),
    // Delayed jobs that are due at once.
    |crowd| crowd.one("jobs", |n| format!("put-job 1 5 60 1 tube=late{}/t key=k{n}\r\na\r\n", n % 5)),
    // Reserved jobs of a connection with many watches; the first reserved has the latest TTR.
    |crowd| {
        let jobs = crowd.size;
        crowd.one("jobs", |n| format!("put 1 0 {} 1\r\na\r\n", 60 + jobs - n));
        let watches: String = (0..1_000).map(|n| format!("watch of one/{n}\r\n")).collect();
        crowd.all_from_one("jobs", &watches, |_| "reserve-many 10 0\r\n".into());
    },
    // Buried jobs, and root jobs.
    |crowd| {
        crowd.one("jobs", |n| format!("root r/t s{n} {}\r\n", 1_785_585_600 + n));
        crowd.one("jobs", |n| format!("put-job 1 0 60 1 tube=q/t root=s{n} root-ts=1785585600\r\na\r\n"));
    },
    // Watched tubes of few connections.
    |crowd| crowd.one("jobs", |n| format!("watch many/{}\r\n", n % 1_024)),
    // Runners with weights of their own on every tube.
    |crowd| {
        for weight in 1..20 {
            let client = crowd.connect("jobs");
            crowd.say(client, format!("watch */* {weight}\r\nignore default\r\nreserve-with-timeout 0\r\n").as_bytes());
        }
    },
];

/// Returns the requests that concern a crowd, if it is there, with their services.
fn requests() -> Vec<(&'static str, Vec<u8>)> {
    rows(include_str!("crowds.txt")).collect()
}

impl Crowd {
    fn new(seed: u64, size: usize) -> Crowd {
        let pools = PoolsSettings { max_locks: u32::MAX, ..PoolsSettings::default() };
        let settings =
            administered().with(pools).with(CountersSettings { max_memory: 1 << 30, ..CountersSettings::default() });
        Crowd { world: World::with(settings), random: Random::from_seed(seed), clients: Vec::new(), size }
    }

    fn connect(&mut self, service: &'static str) -> usize {
        let client = self.world.connect_to(service);
        self.clients.push((client, service));
        client
    }

    /// Sends bytes, and lets the loop turn until it would sleep.
    fn say(&mut self, client: usize, bytes: &[u8]) {
        self.world.send(client, bytes);
        self.turn();
        self.world.take_received(client);
    }

    fn turn(&mut self) {
        while self.world.next_work().is_some_and(|at| at <= self.world.now()) {
            self.world.tick_unchecked();
        }
    }

    fn all_from_one(&mut self, service: &'static str, first: &str, request: impl Fn(usize) -> String) {
        let client = self.connect(service);
        self.say(client, first.as_bytes());
        for begin in (0..self.size).step_by(BATCH) {
            let text: String = (begin..self.size.min(begin + BATCH)).map(&request).collect();
            self.say(client, text.as_bytes());
        }
    }

    /// Makes all requests on one connection.
    fn one(&mut self, service: &'static str, request: impl Fn(usize) -> String) {
        self.all_from_one(service, "", request);
    }

    /// Makes one request on each of many connections.
    fn each(&mut self, service: &'static str, request: impl Fn(usize) -> String) {
        for n in 0..self.size {
            let client = self.connect(service);
            self.world.send(client, request(n).as_bytes());
            if n % BATCH == 0 {
                self.turn();
            }
        }
        self.turn();
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }

    /// Takes a random step: a request, the end of a connection, or time.
    fn step(&mut self) {
        match self.below(10) {
            0 | 1 if !self.clients.is_empty() => {
                let place = self.below(self.clients.len());
                let (client, _) = self.clients.swap_remove(place);
                self.world.reset(client);
            }
            2 => {
                let span = Span::from_millis(self.random.below(8_000));
                let end = self.world.now() + span;
                while let Some(next) = self.world.next_work().filter(|next| *next <= end) {
                    let wait = next.since(self.world.now());
                    self.world.tick_unchecked_after(wait);
                }
                let rest = end.since(self.world.now());
                self.world.tick_unchecked_after(rest);
            }
            3 if !self.clients.is_empty() => {
                // A crowd leaves at once.
                let place = self.below(self.clients.len());
                let service = self.clients[place].1;
                for (client, _) in self.clients.extract_if(.., |(_, of)| *of == service) {
                    self.world.reset(client);
                }
            }
            4 => self.world.upgrade(),
            _ => {
                let requests = requests();
                let (service, request) = &requests[self.below(requests.len())];
                let client = self.world.connect_to(service);
                self.clients.push((client, *service));
                if self.random.below(8) == 0 {
                    self.world.set_room(client, 0);
                }
                self.world.send(client, request);
            }
        }
        self.turn();
    }
}

#[test]
fn random_crowds_make_no_step_long() {
    let size = setting("CROWD", 5_000) as usize;
    play("crowds", |history| {
        let mut crowd = Crowd::new(history.seed, size);
        for _ in 0..1 + crowd.below(4) {
            let dimension = crowd.below(DIMENSIONS.len());
            println!("dimension {dimension}");
            DIMENSIONS[dimension](&mut crowd);
        }
        (0..history.steps).for_each(|_| crowd.step());
        for (client, _) in std::mem::take(&mut crowd.clients) {
            crowd.world.reset(client);
        }
        crowd.turn();
    });
}

/// Each crowd occurs at least once, alone.
#[test]
fn every_crowd_comes_and_goes() {
    let size = setting("CROWD", 5_000) as usize;
    for (n, dimension) in DIMENSIONS.iter().enumerate() {
        println!("dimension {n}");
        let mut crowd = Crowd::new(n as u64, size);
        dimension(&mut crowd);
        for (service, request) in requests() {
            let client = crowd.connect(service);
            crowd.say(client, &request);
        }
        for (client, _) in std::mem::take(&mut crowd.clients) {
            crowd.world.reset(client);
        }
        crowd.turn();
    }
}
