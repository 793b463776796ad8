//! Many clients over few keys and few counters, in random order, against the daemon above its sockets and the naive
//! model of it. The two must agree about every byte and every end of a connection after every step.

use crate::chatter::Chatter;
use crate::counting::Counting;
use crate::frames;
use crate::model::{Limits, Service};
use crate::random::Random;
use crate::twin::{Action, Twin};

/// Longest jump of time: a month.
const FAR_US: u64 = 30 * 86_400_000_000;
/// Longest jump of time in intervals.
const FAR_INTERVALS: u64 = 2_000;

/// Services of the clients of a history.
type Services = &'static [Service];

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
    Babble,
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
    services: Services,
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

/// Plays the input by clients of the pools.
pub fn pools(data: &[u8]) {
    play(Random::of_choices(data), u64::MAX, Some(&[Service::Pools]));
}

/// Plays the input by clients of the counters.
pub fn counters(data: &[u8]) {
    play(Random::of_choices(data), u64::MAX, Some(&[Service::Counters]));
}

/// Plays a history of so many steps, or until all choices are used up; of these services, or of random ones. Returns the
/// daemon and its model after the end of all clients.
pub fn play(random: Random, steps: u64, services: Option<Services>) -> Twin {
    let mut simulation = Simulation::new(random, services);
    for _ in 0..steps {
        if simulation.random.is_used_up() {
            break;
        }
        simulation.step();
    }
    simulation.end();
    simulation.twin
}

impl Simulation {
    fn new(mut random: Random, services: Option<Services>) -> Self {
        let limits = Limits {
            max_locks: random.pick(&[1, 2, 4, 4]),
            max_hold_us: random.pick(&[None, None, Some(2_000_000), Some(1_000)]),
            max_line: random.pick(&[64, 100, 8192]),
            interval_us: random.pick(&[10_000_000, 10_000_000, 60_000_000, 86_400_000_000]),
            max_memory: random.pick(&[250, 1_000, 1 << 30, 1 << 30]),
        };
        let (chatter, counting) = (Chatter::new(&mut random, limits.max_line), Counting::new(&mut random));
        let all: [Services; 3] = [&[Service::Pools], &[Service::Counters], &[Service::Pools, Service::Counters]];
        let drawn = random.pick(&all);
        let mut moves = random.swarm(&MOVES);
        // Seeds keep their histories, which have no such bytes.
        moves.extend(services.map(|_| (Move::Babble, 4)));
        Simulation {
            twin: Twin::new(limits),
            chatter,
            counting,
            services: services.unwrap_or(drawn),
            interval_us: limits.interval_us,
            far_us: FAR_US.min(FAR_INTERVALS * limits.interval_us),
            moves,
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
            Move::Babble => self.babble(),
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

    /// Sends any bytes.
    fn babble(&mut self) {
        let Some(n) = self.speaker() else { return };
        let mut words = std::mem::take(&mut self.clients[n].pending);
        // Lossless: each is a byte.
        words.extend((0..self.random.below(40)).map(|_| self.random.below(256) as u8));
        self.twin.act(Action::Send(self.clients[n].number, words));
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
