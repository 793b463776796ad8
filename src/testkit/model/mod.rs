//! A naive model of the daemon above its sockets: which bytes each client receives in which order, and when its connection
//! ends. Plain vectors, every question answered by looking at everything; no code is shared with the daemon.
//!
//! Clients that sent something or left get a turn each, in the order in which they began to. Whoever is found to have left gives
//! back in this very moment what it held, before the next has its turn. Then timers fire, output goes out, and connections
//! end. This is a round, and rounds go on until nobody has anything to do.

mod counters;
pub mod jobs;
pub mod members;
mod pools;

use counters::{Answer, Counters};
use pools::{Pools, Replies, Timer};

/// With so much output that does not go out, a client's requests wait.
const FULL_BYTES: usize = 64 * 1024;
/// A turn is one read and so many requests, so that nobody waits long for the others.
const READ_BYTES: usize = 64 * 1024;
const REQUESTS_PER_TURN: usize = 512;
/// What of a frame can matter: its header, three numbers and the longest name. The rest of the body is not kept.
const KEPT_BYTES: usize = 12 + 10 + 65_535;
/// A longer body ends the connection.
const MAX_BODY_BYTES: usize = 1 << 20;
/// How long a client may take to read its last replies.
const LINGER_US: u64 = 5_000_000;

/// What the operator allows.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub max_locks: usize,
    pub max_hold_us: Option<u64>,
    pub max_line: usize,
    pub interval_us: u64,
    pub max_memory: u64,
}

impl Limits {
    /// What they are unless the operator says otherwise.
    pub const USUAL: Limits =
        Limits { max_locks: 4, max_hold_us: None, max_line: 8192, interval_us: 86_400_000_000, max_memory: 1 << 30 };
}

/// Whose client somebody is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    Pools,
    Counters,
}

/// The daemon and its clients.
pub struct Model {
    limits: Limits,
    pools: Pools,
    counters: Counters,
    clients: Vec<Client>,
    now: u64,
    /// Who has a turn in the next round, in order.
    ready: Vec<usize>,
    /// Who has something to be sent in this round, in order.
    dirty: Vec<usize>,
    /// Who is looked at when the round ends, in order.
    closing: Vec<usize>,
    failed_sends: u64,
}

struct Client {
    service: Service,
    /// Sent by the client, and not read.
    sent: Vec<u8>,
    finished: bool,
    reset: bool,
    /// Read, and not answered.
    input: Vec<u8>,
    /// Of a long frame, what is kept, and how much is still to come.
    long: Option<(Vec<u8>, usize)>,
    /// How far the Dump is that is being answered.
    dumped: Option<usize>,
    /// Its end was read.
    heard_out: bool,
    unsent: Vec<u8>,
    /// Replies since the last time that nothing was unsent.
    replies: u64,
    received: Vec<u8>,
    /// How many more bytes it takes.
    room: usize,
    /// It has no turn until its output drains.
    parked: bool,
    /// It has left and does not read: then it is given up.
    given_up: Option<Timer>,
    failed: bool,
    phase: Phase,
    /// No more will be sent to it.
    ended: bool,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    /// The service has forgotten it; the connection ends at this millisecond at the latest.
    Lingering {
        until_ms: u64,
    },
    Gone,
}

impl Model {
    pub fn new(limits: Limits) -> Self {
        Model {
            limits,
            pools: Pools::new(limits),
            counters: Counters::new(limits),
            clients: Vec::new(),
            now: 0,
            ready: Vec::new(),
            dirty: Vec::new(),
            closing: Vec::new(),
            failed_sends: 0,
        }
    }

    pub fn connect(&mut self, service: Service) -> usize {
        self.clients.push(Client::new(service));
        self.clients.len() - 1
    }

    pub fn send(&mut self, client: usize, bytes: &[u8]) {
        self.clients[client].sent.extend(bytes);
        self.make_ready(client);
    }

    pub fn finish(&mut self, client: usize) {
        self.clients[client].finished = true;
        self.clients[client].parked = false;
        self.make_ready(client);
    }

    pub fn reset(&mut self, client: usize) {
        self.clients[client].reset = true;
        self.clients[client].parked = false;
        self.make_ready(client);
        self.touch(client);
    }

    pub fn set_room(&mut self, client: usize, room: usize) {
        self.clients[client].room = room;
        self.touch(client);
    }

    /// Whether it is left to chance what follows if another process goes on now.
    pub fn is_order_lost(&self) -> bool {
        self.pools.is_order_lost()
    }

    /// Another process goes on in its place.
    pub fn upgrade(&mut self) {
        self.pools.rearm();
        self.counters.hand_over();
        for client in self.clients.iter_mut().filter(|client| client.given_up.is_some()) {
            client.given_up = Some(self.pools.arm(self.now + LINGER_US));
        }
    }

    /// Lets everything happen that happens without time passing.
    pub fn settle(&mut self) {
        while !(self.ready.is_empty() && self.dirty.is_empty() && self.closing.is_empty()) {
            self.round();
        }
    }

    pub fn advance(&mut self, us: u64) {
        self.settle();
        let target = self.now + us;
        while let Some(at) = self.deadline().filter(|at| *at <= target) {
            self.now = at;
            self.round();
            self.settle();
        }
        self.now = target;
    }

    /// When the next thing happens that happens by itself.
    pub fn deadline(&self) -> Option<u64> {
        let lingering = self.clients.iter().filter_map(|client| match client.phase {
            Phase::Lingering { until_ms } => Some(until_ms * 1_000),
            Phase::Open | Phase::Gone => None,
        });
        let timers = self.clients.iter().filter_map(|client| client.given_up).chain(self.pools.next_timer());
        lingering.chain(timers.map(Timer::at)).chain(self.counters.deadline(self.now)).min()
    }

    pub fn now(&self) -> u64 {
        self.now
    }

    pub fn take_received(&mut self, client: usize) -> Vec<u8> {
        std::mem::take(&mut self.clients[client].received)
    }

    pub fn is_ended(&self, client: usize) -> bool {
        self.clients[client].ended || self.is_closed(client)
    }

    pub fn is_closed(&self, client: usize) -> bool {
        self.clients[client].phase == Phase::Gone
    }

    pub fn is_empty(&self) -> bool {
        self.pools.is_empty()
            && self.counters.is_empty()
            && (0..self.clients.len()).all(|client| self.is_closed(client))
    }

    fn round(&mut self) {
        for client in std::mem::take(&mut self.ready) {
            match self.clients[client].phase {
                Phase::Gone => {}
                _ if self.clients[client].failed => {}
                Phase::Open => self.take_turn(client),
                Phase::Lingering { .. } => self.ignore(client),
            }
        }
        self.fire();
        while !self.dirty.is_empty() {
            let client = self.dirty.remove(0);
            self.deliver(client);
        }
        for client in std::mem::take(&mut self.closing) {
            self.see_off(client);
        }
    }

    /// Reads what a client sent, or that it has ended, and answers line by line.
    fn take_turn(&mut self, id: usize) {
        if self.clients[id].unsent.len() >= FULL_BYTES {
            let client = &mut self.clients[id];
            client.parked = true;
            if client.finished || client.reset {
                client.given_up.get_or_insert_with(|| self.pools.arm(self.now + LINGER_US));
            }
            return;
        }
        if self.clients[id].reset {
            return self.break_off(id);
        }
        self.read(id);
        for _ in 0..REQUESTS_PER_TURN {
            if self.clients[id].unsent.len() >= FULL_BYTES {
                break;
            }
            let progress = match self.clients[id].service {
                Service::Pools => self.answer_line(id),
                Service::Counters => self.answer_frame(id),
            };
            match progress {
                Progress::Answered => {}
                Progress::Amid => break,
                Progress::Lacking => return self.await_more(id),
                Progress::Over => return self.part(id),
            }
        }
        self.make_ready(id);
    }

    fn answer_line(&mut self, id: usize) -> Progress {
        let input = &mut self.clients[id].input;
        let end = input.iter().position(|byte| *byte == b'\n');
        if end.unwrap_or(input.len()) > self.limits.max_line {
            input.clear();
            self.tell(vec![(id, "ERROR LINE_TOO_LONG\n".into())]);
            return Progress::Over;
        }
        let Some(end) = end else { return Progress::Lacking };
        let line: Vec<u8> = input.drain(..=end).take(end).collect();
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        let replies = self.pools.answer(id, line, self.now, self.failed_sends);
        self.tell(replies);
        Progress::Answered
    }

    /// Answers a frame, or takes away what of a long one need not be kept.
    fn answer_frame(&mut self, id: usize) -> Progress {
        let Client { input, long, .. } = &mut self.clients[id];
        if let Some((kept, missing)) = long {
            let come = input.len().min(*missing);
            if come == 0 {
                return Progress::Lacking;
            }
            *missing -= come;
            let last = input.drain(..come).next_back();
            if *missing > 0 {
                return Progress::Answered;
            }
            let frame = kept.clone();
            let progress = self.answer_whole(id, &frame);
            let client = &mut self.clients[id];
            client.long = None;
            if progress == Progress::Amid {
                client.input.splice(0..0, last);
                client.long = Some((frame, 1));
            }
            return progress;
        }
        let Some(len) = input.get(4..8).filter(|_| input.len() >= 12) else { return Progress::Lacking };
        let body = len.iter().fold(0, |sum, byte| sum * 256 + usize::from(*byte));
        if body > MAX_BODY_BYTES {
            let frame = std::mem::take(input);
            self.say(id, counters::invalid(&frame));
            return Progress::Over;
        }
        let kept = (12 + body).min(KEPT_BYTES);
        if input.len() < kept {
            return Progress::Lacking;
        }
        let frame = input[..kept].to_vec();
        if 12 + body > kept {
            input.drain(..kept);
            *long = Some((frame, 12 + body - kept));
            return Progress::Answered;
        }
        let progress = self.answer_whole(id, &frame);
        if progress == Progress::Answered {
            self.clients[id].input.drain(..kept);
        }
        progress
    }

    fn answer_whole(&mut self, id: usize, frame: &[u8]) -> Progress {
        let there = |client: &&Client| client.service == Service::Counters;
        let opened = self.clients.iter().filter(there).count();
        let open = self.clients.iter().filter(there).filter(|client| client.phase != Phase::Gone).count();
        let goes_on = self.clients[id].dumped.is_some();
        match self.counters.answer(id, frame, goes_on, self.now, [open, opened]) {
            Answer::Reply(reply) => {
                self.say(id, reply);
                Progress::Answered
            }
            Answer::Dump => self.dump(id, frame),
        }
    }

    /// Tells of each counter, as long as the output is not full.
    fn dump(&mut self, id: usize, frame: &[u8]) -> Progress {
        let first = self.clients[id].dumped.take().unwrap_or(0);
        for place in first..self.counters.places() {
            if self.clients[id].unsent.len() >= FULL_BYTES {
                self.clients[id].dumped = Some(place);
                return Progress::Amid;
            }
            if let Some(record) = self.counters.record(place, frame) {
                self.say(id, record);
            }
        }
        self.say(id, counters::reply(frame, 0, b""));
        Progress::Answered
    }

    /// What a client sends after its connection was given up is read up to its end.
    fn ignore(&mut self, id: usize) {
        if self.clients[id].reset {
            return self.break_off(id);
        }
        self.clients[id].input.clear();
        self.read(id);
        self.await_more(id);
    }

    /// What was sent is read as far as there is room; behind the last of it, that there is no more.
    fn read(&mut self, client: usize) {
        let Client { service, sent, input, finished, heard_out, .. } = &mut self.clients[client];
        let longest = match service {
            Service::Pools => self.limits.max_line + 1,
            Service::Counters => KEPT_BYTES,
        };
        if input.len() > longest {
            // There is a request to answer first.
        } else {
            let room = longest + READ_BYTES - input.len();
            *heard_out |= *finished && sent.len() < room;
            input.extend(sent.drain(..sent.len().min(room)));
        }
    }

    /// Everything that was read is dealt with.
    fn await_more(&mut self, id: usize) {
        let client = &self.clients[id];
        if client.heard_out {
            self.part(id);
        } else if client.finished || !client.sent.is_empty() {
            self.make_ready(id);
        }
    }

    fn fire(&mut self) {
        loop {
            let given_up = (0..self.clients.len()).filter_map(|id| Some((self.clients[id].given_up?, Some(id))));
            let claims = self.pools.next_timer().map(|timer| (timer, None));
            let Some((timer, id)) = given_up.chain(claims).min().filter(|(timer, _)| timer.at() <= self.now) else {
                break;
            };
            if let Some(id) = id {
                self.clients[id].given_up = None;
                self.break_off(id);
            } else {
                let replies = self.pools.fire(timer, self.now);
                self.tell(replies);
            }
        }
        self.counters.turn(self.now);
        for id in 0..self.clients.len() {
            if matches!(self.clients[id].phase, Phase::Lingering { until_ms } if until_ms * 1_000 <= self.now) {
                self.break_off(id);
            }
        }
    }

    /// The millisecond in which a linger timer that is armed now fires.
    fn linger_until_ms(&self) -> u64 {
        (self.now + LINGER_US).div_ceil(1_000)
    }

    fn deliver(&mut self, id: usize) {
        let client = &mut self.clients[id];
        if client.failed || client.phase == Phase::Gone {
            return;
        }
        if client.reset {
            return self.break_off(id);
        }
        let len = client.room.min(client.unsent.len());
        client.room -= len;
        client.received.extend(client.unsent.drain(..len));
        if client.unsent.is_empty() {
            client.replies = 0;
        }
        if client.unsent.len() < FULL_BYTES {
            client.given_up = None;
        }
        if client.parked && client.unsent.len() < FULL_BYTES {
            client.parked = false;
            self.make_ready(id);
        } else if client.phase != Phase::Open && client.unsent.is_empty() {
            self.closing.push(id);
        }
    }

    /// Gives back what a client held, unless it has, and has it looked at when the round ends.
    fn part(&mut self, id: usize) {
        self.closing.push(id);
        self.clients[id].given_up = None;
        if self.clients[id].phase != Phase::Open {
            return;
        }
        self.clients[id].phase = Phase::Lingering { until_ms: self.linger_until_ms() };
        self.clients[id].dumped = None;
        match self.clients[id].service {
            Service::Pools => {
                let replies = self.pools.leave(id, self.now);
                self.tell(replies);
            }
            Service::Counters => self.counters.leave(id, self.now),
        }
    }

    fn see_off(&mut self, id: usize) {
        let client = &mut self.clients[id];
        if client.phase == Phase::Gone {
            return;
        }
        let is_drained = client.unsent.is_empty();
        if client.failed || is_drained && client.heard_out {
            client.phase = Phase::Gone;
            let is_told = client.service == Service::Pools && !is_drained;
            self.failed_sends += if is_told { client.replies } else { 0 };
            self.dirty.retain(|other| *other != id);
            return;
        }
        client.ended |= is_drained;
        if !client.heard_out && (client.finished || !client.sent.is_empty()) {
            self.make_ready(id);
        }
    }

    fn tell(&mut self, replies: Replies) {
        replies.into_iter().for_each(|(client, text)| self.say(client, text.into_bytes()));
    }

    fn say(&mut self, client: usize, reply: Vec<u8>) {
        self.clients[client].unsent.extend(reply);
        self.clients[client].replies += 1;
        self.touch(client);
    }

    fn break_off(&mut self, client: usize) {
        self.clients[client].failed = true;
        self.part(client);
    }

    fn make_ready(&mut self, client: usize) {
        let Client { parked, phase, .. } = self.clients[client];
        if !parked && phase != Phase::Gone && !self.ready.contains(&client) {
            self.ready.push(client);
        }
    }

    /// Whoever has news last is written to last.
    fn touch(&mut self, client: usize) {
        self.dirty.retain(|other| *other != client);
        if !self.clients[client].unsent.is_empty() && self.clients[client].phase != Phase::Gone {
            self.dirty.push(client);
        }
    }
}

impl Client {
    fn new(service: Service) -> Self {
        Client {
            service,
            sent: Vec::new(),
            finished: false,
            reset: false,
            input: Vec::new(),
            long: None,
            dumped: None,
            heard_out: false,
            unsent: Vec::new(),
            replies: 0,
            received: Vec::new(),
            room: usize::MAX,
            parked: false,
            given_up: None,
            failed: false,
            phase: Phase::default(),
            ended: false,
        }
    }
}

/// What came of an attempt to answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// There may be more to answer.
    Answered,
    /// The answer is longer than what can be said at once.
    Amid,
    /// The rest is no whole request.
    Lacking,
    /// The connection ends.
    Over,
}
