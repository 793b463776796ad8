//! Many clients over few keys and few counters, in random order, against the daemon above its sockets and the naive
//! model of it. The two must agree about every byte and every end of a connection after every step.

use poolcounter_testkit::chatter::Chatter;
use poolcounter_testkit::counting::Counting;
use poolcounter_testkit::frames;
use poolcounter_testkit::model::{Limits, Service};
use poolcounter_testkit::random::Random;
use poolcounter_testkit::seeds::{History, play, sum};
use poolcounter_testkit::twin::{Action, Twin};
use std::collections::BTreeMap;

/// Number of histories that contain every reply.
const ENOUGH: usize = 64;
/// Longest jump of time: a month.
const FAR_US: u64 = 30 * 86_400_000_000;

/// Longest jump of time in intervals.
const FAR_INTERVALS: u64 = 2_000;

/// Every reply of the pools.
const REPLIES: [&str; 17] = [
    "LOCKED",
    "DONE",
    "RELEASED",
    "QUEUE_FULL",
    "TIMEOUT",
    "LOCK_HELD",
    "NOT_LOCKED",
    "ERROR WAIT_FOR_RESPONSE",
    "ERROR BAD_SYNTAX",
    "ERROR KEEP_OVER_HOLD",
    "ERROR BAD_COMMAND",
    "ERROR WRONG_STAT",
    "ERROR LINE_TOO_LONG",
    "uptime",
    "total processing time",
    "total_acquired",
    "ArticleView",
];

/// Every reply of the counters: the opcode and the status.
const FRAMES: [(u8, u8); 16] = [
    (0x00, 0x00),
    (0x00, 0x04),
    (0x01, 0x00),
    (0x01, 0x01),
    (0x01, 0x04),
    (0x02, 0x00),
    (0x02, 0x04),
    (0x02, 0x21),
    (0x02, 0x82),
    (0x03, 0x00),
    (0x03, 0x01),
    (0x03, 0x04),
    (0x03, 0x22),
    (0x10, 0x00),
    (0x11, 0x00),
    (0x12, 0x81),
];

/// Action of a step.
#[derive(Clone, Copy)]
enum Move {
    Speak,
    Connect,
    Pass,
    Finish,
    Reset,
    Block,
    Unblock,
    Flood,
    Upgrade,
}

const MOVES: [(Move, usize); 9] = [
    (Move::Speak, 40),
    (Move::Connect, 6),
    (Move::Pass, 8),
    (Move::Finish, 3),
    (Move::Reset, 2),
    (Move::Block, 1),
    (Move::Unblock, 2),
    (Move::Flood, 1),
    (Move::Upgrade, 1),
];

/// Simulation of one seed.
struct Simulation {
    random: Random,
    twin: Twin,
    chatter: Chatter,
    counting: Counting,
    /// Services of the clients.
    services: &'static [Service],
    interval_us: u64,
    /// Longest jump of time, in microseconds.
    far_us: u64,
    moves: Vec<(Move, usize)>,
    most_clients: usize,
    clients: Vec<Client>,
}

struct Client {
    number: usize,
    service: Service,
    /// True if it sends no more.
    silent: bool,
    /// Rest of its started request.
    pending: Vec<u8>,
}

/// Number of each reply.
type Tally = BTreeMap<String, u64>;

#[test]
fn random_clients_find_daemon_and_model_agree() {
    let tallies = play("simulation", simulate);
    let (histories, tally) = (tallies.len(), sum(tallies));
    println!("replies compared: {tally:?}");
    if histories >= ENOUGH {
        let frames = FRAMES.map(name_of);
        let mut replies = REPLIES.into_iter().chain(frames.iter().map(String::as_str));
        assert_eq!(replies.find(|reply| !tally.contains_key(*reply)), None, "was never seen");
    }
}

fn simulate(history: History) -> Tally {
    let mut simulation = Simulation::new(history.seed);
    for _ in 0..history.steps {
        simulation.step();
    }
    simulation.end();
    tally(&simulation.twin)
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let limits = Limits {
            max_locks: random.pick(&[1, 2, 4, 4]),
            max_hold_us: random.pick(&[None, None, Some(2_000_000), Some(1_000)]),
            max_line: random.pick(&[64, 100, 8192]),
            interval_us: random.pick(&[10_000_000, 10_000_000, 60_000_000, 86_400_000_000]),
            max_memory: random.pick(&[250, 1_000, 1 << 30, 1 << 30]),
        };
        Simulation {
            twin: Twin::new(limits),
            chatter: Chatter::new(&mut random, limits.max_line),
            counting: Counting::new(&mut random),
            services: random.pick(&[&[Service::Pools], &[Service::Counters], &[Service::Pools, Service::Counters]]),
            interval_us: limits.interval_us,
            far_us: FAR_US.min(FAR_INTERVALS * limits.interval_us),
            moves: random.swarm(&MOVES),
            most_clients: 2 + random.below(12),
            clients: Vec::new(),
            random,
        }
    }

    /// Takes several actions at once, or nearly so, without a comparison in between.
    fn step(&mut self) {
        for _ in 0..self.random.pick(&[1, 1, 1, 2, 5]) {
            if self.clients.iter().all(|client| client.silent) {
                self.connect();
            }
            let next = self.random.weigh(&self.moves);
            self.play(next);
        }
        self.settle();
    }

    fn play(&mut self, next: Move) {
        match next {
            Move::Speak => self.speak(),
            Move::Connect => self.connect(),
            Move::Pass => self.pass(),
            Move::Finish => self.fall_silent(Action::Finish),
            Move::Reset => self.fall_silent(Action::Reset),
            Move::Block => {
                let room = self.random.pick(&[0, 3, 40, 1_000]);
                self.make_room(room);
            }
            Move::Unblock => {
                let room = self.random.pick(&[1, 1_000, 100_000, usize::MAX, usize::MAX]);
                self.make_room(room);
            }
            Move::Flood => self.flood(),
            Move::Upgrade => self.twin.act(Action::Upgrade),
        }
    }

    fn connect(&mut self) {
        if self.clients.len() < self.most_clients || self.clients.iter().all(|client| client.silent) {
            let (number, service) = (self.twin.received().len(), self.random.pick(self.services));
            self.clients.push(Client { number, service, silent: false, pending: Vec::new() });
            self.twin.act(Action::Connect(service));
        }
    }

    /// Sends a few requests of a client, or the rest of a started one, and may stop in the middle.
    fn speak(&mut self) {
        let Some(n) = self.speaker() else { return };
        let mut words = std::mem::take(&mut self.clients[n].pending);
        if words.is_empty() || self.random.once_in(2) {
            for _ in 0..self.random.pick(&[1, 1, 1, 2, 4]) {
                words.extend(match self.clients[n].service {
                    Service::Pools => self.chatter.line(&mut self.random),
                    Service::Counters => self.counting.frame(&mut self.random),
                });
            }
        }
        if self.random.once_in(4) {
            self.clients[n].pending = words.split_off(self.random.below(words.len()));
        }
        self.twin.act(Action::Send(self.clients[n].number, words));
    }

    /// Lets a client request more than it reads, or just very much.
    fn flood(&mut self) {
        let Some(n) = self.speaker() else { return };
        let mut words = std::mem::take(&mut self.clients[n].pending);
        let (request, most) = match self.clients[n].service {
            Service::Pools => {
                let lines =
                    [(&b"STATS\n"[..], 150), (b"RELEASE\n", 600), (b"ACQ4ME k 9 9\nRELEASE\n", 50), (b"\n", 1_000)];
                let (line, most) = self.random.pick(&lines);
                (line.to_vec(), most)
            }
            Service::Counters => {
                let twice = [frames::acquire(1, 9, b"foo"), frames::release(1, b"foo")].concat();
                match self.random.below(4) {
                    0 => (frames::stats(), 150),
                    1 => (twice, 600),
                    2 => (frames::frame(0x00, b"nothing"), 3_000),
                    _ => (frames::dump(), 1_000),
                }
            }
        };
        words.extend(request.repeat(1 + self.random.below(most)));
        let number = self.clients[n].number;
        if self.random.once_in(2) {
            self.twin.act(Action::Room(number, self.random.below(5_000)));
        }
        self.twin.act(Action::Send(number, words));
    }

    fn fall_silent(&mut self, how: impl Fn(usize) -> Action) {
        if let Some(n) = self.speaker() {
            self.clients[n].silent = true;
            self.twin.act(how(self.clients[n].number));
        }
    }

    fn make_room(&mut self, room: usize) {
        if !self.clients.is_empty() {
            let n = self.random.below(self.clients.len());
            self.twin.act(Action::Room(self.clients[n].number, room));
        }
    }

    /// Lets time pass: any, or up to the next deadline, or nearly so.
    fn pass(&mut self) {
        let any = self.random.next() % 10_u64.pow(1 + self.random.below(11) as u32);
        let model = self.twin.model();
        let ahead = model.deadline().map_or(any, |at| at - model.now());
        let us = match self.random.below(6) {
            0 => ahead,
            1 => ahead.saturating_sub(1),
            2 => ahead.saturating_sub(1_000),
            3 => ahead + any % 2_000,
            _ => any,
        };
        self.twin.act(Action::Pass(us.min(self.far_us)));
    }

    fn settle(&mut self) {
        self.twin.act(Action::Settle);
        self.clients.retain(|client| self.twin.is_open(client.number));
    }

    /// Returns a client that may send something.
    fn speaker(&mut self) -> Option<usize> {
        let speakers: Vec<usize> = (0..self.clients.len()).filter(|n| !self.clients[*n].silent).collect();
        (!speakers.is_empty()).then(|| self.random.pick(&speakers))
    }

    /// Closes all connections, in any way; the last one requests all counts before.
    fn end(&mut self) {
        while self.speaker().is_some() {
            if self.random.once_in(3) {
                self.make_room(usize::MAX);
            }
            let how = self.random.pick(&[Action::Finish, Action::Reset]);
            self.fall_silent(how);
            if self.random.once_in(2) {
                self.settle();
            }
        }
        self.twin.act(Action::Pass(10_000_000));
        self.settle();
        // Requests of a client that does not read are not served until it does.
        for client in &self.clients {
            self.twin.act(Action::Room(client.number, usize::MAX));
        }
        self.settle();
        // Counters stay until their interval is over.
        self.twin.act(Action::Pass(self.interval_us));
        assert!(self.twin.is_empty(), "something is left of somebody who is gone");
        for service in self.services {
            let last = self.twin.received().len();
            self.twin.act(Action::Connect(*service));
            let request = match service {
                Service::Pools => b"STATS FULL\n".to_vec(),
                Service::Counters => frames::stats(),
            };
            self.twin.act(Action::Send(last, request));
            self.twin.act(Action::Finish(last));
            self.twin.act(Action::Settle);
        }
        assert!(self.twin.is_empty(), "something is left of the last one");
    }
}

/// Counts the received replies by their beginnings.
fn tally(twin: &Twin) -> Tally {
    let mut tally = Tally::new();
    for line in twin.received_of(Service::Pools).flat_map(|received| received.split(|byte| *byte == b'\n')) {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        if let Some(reply) = REPLIES.iter().find(|reply| reply.as_bytes() == name) {
            *tally.entry((*reply).into()).or_default() += 1;
        }
    }
    for reply in twin.received_of(Service::Counters).flat_map(frames::replies) {
        *tally.entry(name_of((reply[1], reply[2]))).or_default() += 1;
    }
    tally
}

fn name_of((opcode, status): (u8, u8)) -> String {
    format!("{opcode:02x} {status:02x}")
}
