//! Naive model of the daemon above its sockets: the bytes that each client receives, their order, and the ends of
//! connections. Plain vectors, every question answered by looking at everything; no code is shared with the daemon.
//!
//! Clients that sent something or disconnected get a turn each, in the order in which they began to. A client that is
//! found to have disconnected releases in this very moment what it held, before the next has its turn. Then timers
//! fire, output goes out, and connections end. This is a round, and rounds go on until no client has anything to do.

pub mod counters;
pub mod jobs;
pub mod members;
pub mod pools;

use counters::{Answer, Counters};
use pools::{Pools, Replies, Timer};

/// Size of the unsent output above which a client's requests wait.
const FULL_BYTES: usize = 64 * 1024;
/// Length of the read of a turn. A turn is one read and a bounded number of requests, so that no client waits long for
/// another.
const READ_BYTES: usize = 64 * 1024;
const REQUESTS_PER_TURN: usize = 512;
/// Length of the relevant part of a frame: its header, three numbers and the longest name. The rest of the body is not
/// kept.
const KEPT_BYTES: usize = 12 + 10 + 65_535;
/// Maximum length of a body; a longer one ends the connection.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Longest time for a client to read its last replies.
const LINGER_US: u64 = 5_000_000;

/// Settings of the operator.
#[derive(Clone, Copy, Default, Debug)]
pub struct Limits {
    pub max_locks: usize,
    pub max_hold_us: Option<u64>,
    pub max_line: usize,
    pub interval_us: u64,
    pub max_memory: u64,
}

impl Limits {
    /// Default settings.
    pub const USUAL: Limits =
        Limits { max_locks: 4, max_hold_us: None, max_line: 8192, interval_us: 86_400_000_000, max_memory: 1 << 30 };
}

/// Service of a client.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Service {
    #[default]
    Pools,
    Counters,
}

/// The daemon and its clients.
#[derive(Default)]
pub struct Model {
    limits: Limits,
    pools: Pools,
    counters: Counters,
    clients: Vec<Client>,
    now: u64,
    /// Clients that have a turn in the next round, in order.
    ready: Vec<usize>,
    /// Clients with output to be sent in this round, in order.
    dirty: Vec<usize>,
    /// Clients whose connections the service ends, the last one first.
    ending: Vec<usize>,
    /// Clients that are checked at the end of the round, in order.
    closing: Vec<usize>,
    /// Client that had the last turn in this round.
    last_turn: Option<usize>,
    failed_sends: u64,
}

#[derive(Default)]
struct Client {
    service: Service,
    /// Bytes sent by the client, and not read.
    sent: Vec<u8>,
    finished: bool,
    reset: bool,
    /// Bytes read, and not answered.
    input: Vec<u8>,
    /// Kept part of a long frame, and the number of bytes still to come.
    long: Option<(Vec<u8>, usize)>,
    /// Next place of the Dump that is being answered.
    dumped: Option<usize>,
    /// True if its end was read.
    heard_out: bool,
    unsent: Vec<u8>,
    /// Number of replies since the output was last empty.
    replies: u64,
    received: Vec<u8>,
    /// Number of bytes that it still takes.
    room: usize,
    /// True if it has no turn until its output drains.
    parked: bool,
    /// Timer after which the connection is dropped: the client has disconnected and does not read.
    given_up: Option<Timer>,
    failed: bool,
    phase: Phase,
    /// True if no more will be sent to it.
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
        Model { limits, pools: Pools::new(limits), counters: Counters::new(limits), ..Model::default() }
    }

    pub fn connect(&mut self, service: Service) -> usize {
        self.clients.push(Client { service, room: usize::MAX, ..Client::default() });
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
        if room > 0 {
            self.touch(client);
        }
    }

    /// Returns whether the order of events would be random after a handover now.
    pub fn is_order_lost(&self) -> bool {
        self.pools.is_order_lost()
    }

    /// Hands over to another process.
    pub fn upgrade(&mut self) {
        self.pools.rearm();
        self.counters.hand_over();
        for client in self.clients.iter_mut().filter(|client| client.given_up.is_some()) {
            client.given_up = Some(self.pools.arm(self.now + LINGER_US));
        }
    }

    /// Handles all events that need no time to pass.
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

    /// Returns the time of the next event that happens by itself.
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
        self.last_turn = None;
        while let Some(client) = self.ending.pop() {
            match self.clients[client].reset {
                true => self.break_off(client),
                false => self.part(client),
            }
        }
        for client in std::mem::take(&mut self.closing) {
            self.see_off(client);
        }
    }

    /// Reads bytes of a client, or its end, and answers one request after the other.
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
        self.last_turn = Some(id);
        self.read(id);
        for request in 0..REQUESTS_PER_TURN {
            // The end of a client of pools is seen behind its last line, even if the reply to it fills the output.
            if request > 0 && self.clients[id].service == Service::Pools && self.clients[id].input.is_empty() {
                return self.await_more(id);
            }
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

    /// Answers a frame, or drops the irrelevant part of a long one.
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

    /// Writes a reply for each counter, as long as the output is not full.
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

    /// Reads and drops the bytes of a client after its last request, up to its end.
    fn ignore(&mut self, id: usize) {
        if self.clients[id].reset {
            return self.break_off(id);
        }
        self.clients[id].input.clear();
        self.read(id);
        self.await_more(id);
    }

    /// Reads the sent bytes as far as there is room, and the end behind the last of them.
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

    /// Waits for more bytes after all requests were handled; handles the end after the last byte.
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
                let (replies, ended) = self.pools.fire(timer, self.now);
                self.tell(replies);
                self.ending.extend(ended);
            }
        }
        self.counters.turn(self.now);
        for id in 0..self.clients.len() {
            if matches!(self.clients[id].phase, Phase::Lingering { until_ms } if until_ms * 1_000 <= self.now) {
                self.break_off(id);
            }
        }
    }

    /// Returns the millisecond in which a linger timer that is armed now fires.
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

    /// Releases what a client held, unless that is done, and schedules its check at the end of the round.
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

    /// Adds a client at the end of the order in which output is sent. Only the client that had the last turn moves
    /// there.
    fn touch(&mut self, client: usize) {
        if self.last_turn == Some(client) {
            self.dirty.retain(|other| *other != client);
        }
        let is_new = !self.dirty.contains(&client);
        if is_new && !self.clients[client].unsent.is_empty() && self.clients[client].phase != Phase::Gone {
            self.dirty.push(client);
        }
    }
}

/// Result of an attempt to answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// There may be more to answer.
    Answered,
    /// The answer is longer than the room for output.
    Amid,
    /// The rest is no whole request.
    Lacking,
    /// The connection ends.
    Over,
}
