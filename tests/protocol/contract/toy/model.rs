//! Naive model of the toy within the loop: plain vectors, and every question answered by looking at everything. It
//! shares no code with either, but for the random numbers, which it draws in the same order.
//!
//! A round is a tick: results of the store are handled, each client with news has its turn, timers fire, collected
//! texts become a batch, and output goes out. Rounds go on until there is nothing to do.

use poolcounter_core::random::Random;
use poolcounter_core::time::Span;
use std::collections::VecDeque;

/// The server, its store and its clients.
pub struct Model {
    clients: Vec<Client>,
    random: Random,
    /// Number of servers so far: each after the first has random numbers by its number.
    servers: u64,
    now_ms: u64,
    is_paused: bool,
    /// Clients with a turn in the next round, in order.
    ready: VecDeque<usize>,
    /// Clients whose waits have ended.
    resumed: Vec<usize>,
    /// Committed texts.
    texts: Vec<String>,
    /// Batches that the service knows to be under way, oldest first.
    under_way: VecDeque<(u64, Vec<String>)>,
    /// Number of these that the store has.
    queued: usize,
    finished: VecDeque<Finished>,
    collected: Vec<String>,
    commit: u64,
    timers: Vec<Timer>,
    /// Number of timers so far.
    armed: u64,
}

enum Finished {
    Committed,
    Crashed,
}

struct Timer {
    deadline_ms: u64,
    order: u64,
    what: What,
}

enum What {
    Wait { client: usize, number: usize, stays: bool },
    Later(String),
}

#[derive(Default)]
struct Client {
    /// Place of its connection among all, for the order after an upgrade.
    slot: usize,
    /// Bytes sent and not read.
    unread: String,
    /// Bytes read and not served.
    read: String,
    finished: bool,
    reset: bool,
    /// True if its end was read.
    ended: bool,
    /// True if it is closed once no reply is pending.
    draining: bool,
    /// True if the service has forgotten it.
    closed: bool,
    /// Replies, with the commits that they wait for.
    replies: VecDeque<(Option<u64>, String)>,
    received: String,
}

impl Model {
    pub fn new() -> Model {
        Model {
            clients: Vec::new(),
            random: Random::from_seed(0),
            servers: 1,
            now_ms: 0,
            is_paused: false,
            ready: VecDeque::new(),
            resumed: Vec::new(),
            texts: Vec::new(),
            under_way: VecDeque::new(),
            queued: 0,
            finished: VecDeque::new(),
            collected: Vec::new(),
            commit: 1,
            timers: Vec::new(),
            armed: 0,
        }
    }

    pub fn connect(&mut self, slot: usize) {
        self.clients.push(Client { slot, ..Client::default() });
    }

    pub fn send(&mut self, client: usize, text: &str) {
        self.clients[client].unread += text;
        self.mark(client);
    }

    pub fn finish(&mut self, client: usize) {
        self.clients[client].finished = true;
        self.mark(client);
    }

    pub fn reset(&mut self, client: usize) {
        self.clients[client].reset = true;
        self.mark(client);
    }

    pub fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// Commits the oldest batch of the store.
    pub fn commit_one(&mut self) {
        self.queued -= 1;
        self.finished.push_back(Finished::Committed);
    }

    /// Crashes the store, which loses its batches.
    pub fn crash(&mut self) {
        self.queued = 0;
        self.finished.push_back(Finished::Crashed);
    }

    pub fn queued(&self) -> usize {
        self.queued
    }

    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    pub fn is_quiet(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Returns the number of bytes that a client has sent and that are not served.
    pub fn backlog(&self, client: usize) -> usize {
        self.clients[client].unread.len() + self.clients[client].read.len()
    }

    pub fn take_received(&mut self, client: usize) -> String {
        std::mem::take(&mut self.clients[client].received)
    }

    /// Returns whether the client sees the end.
    pub fn is_ended(&self, client: usize) -> bool {
        self.clients[client].closed && self.clients[client].replies.is_empty()
    }

    /// Returns the milliseconds until the next timer is due.
    pub fn ahead_ms(&self) -> Option<u64> {
        self.timers.iter().map(|timer| timer.deadline_ms.saturating_sub(self.now_ms)).min()
    }

    pub fn pass(&mut self, ms: u64) {
        self.settle();
        let target = self.now_ms + ms;
        while let Some(ahead) = self.ahead_ms().filter(|ahead| !self.is_paused && self.now_ms + ahead <= target) {
            self.now_ms += ahead;
            self.settle();
        }
        self.now_ms = target;
        self.settle();
    }

    /// Hands over to another process, which finds the clients with news anew: first closed clients, then clients with
    /// unserved input, then clients that have sent something.
    pub fn upgrade(&mut self) {
        assert!(self.is_quiet());
        self.servers += 1;
        self.random = Random::from_seed(self.servers);
        self.is_paused = false;
        for timer in &mut self.timers {
            timer.deadline_ms = timer.deadline_ms.max(self.now_ms);
        }
        let open: Vec<usize> = (0..self.clients.len()).filter(|n| !self.clients[*n].closed).collect();
        let clients = &self.clients;
        let left = open.iter().copied().filter(|n| clients[*n].finished || clients[*n].reset);
        let mut unserved: Vec<usize> =
            open.iter().copied().filter(|n| clients[*n].ended || !clients[*n].read.is_empty()).collect();
        unserved.sort_by_key(|n| clients[*n].slot);
        let sent = open.iter().copied().filter(|n| !clients[*n].unread.is_empty());
        let order: Vec<usize> = left.chain(unserved).chain(sent).collect();
        self.ready.clear();
        order.into_iter().for_each(|client| self.mark(client));
    }

    pub fn settle(&mut self) {
        while !self.finished.is_empty() || !self.is_paused && (!self.ready.is_empty() || self.ahead_ms() == Some(0)) {
            self.round();
        }
    }

    fn mark(&mut self, client: usize) {
        if !self.clients[client].closed && !self.ready.contains(&client) {
            self.ready.push_back(client);
        }
    }

    fn resume(&mut self) {
        std::mem::take(&mut self.resumed).into_iter().for_each(|client| self.mark(client));
    }

    fn round(&mut self) {
        while let Some(finished) = self.finished.pop_front() {
            match finished {
                Finished::Committed => self.committed(),
                Finished::Crashed => self.crashed(),
            }
        }
        self.resume();
        if !self.is_paused {
            for _ in 0..self.ready.len() {
                let client = self.ready.pop_front().expect("nobody else takes them");
                self.turn(client);
            }
            self.resume();
            self.fire();
            self.resume();
        }
        if !self.collected.is_empty() {
            self.under_way.push_back((self.commit, std::mem::take(&mut self.collected)));
            self.queued += 1;
            self.commit += 1;
        }
        self.flush();
        self.resume();
    }

    fn turn(&mut self, n: usize) {
        let client = &mut self.clients[n];
        if client.closed {
            return;
        }
        if client.reset {
            return self.close(n);
        }
        if self.resumed.contains(&n) {
            // Its wait has ended in this round: it is served in the next.
            return;
        }
        if self.waits(n) {
            return self.hangup(n);
        }
        let client = &mut self.clients[n];
        if client.draining {
            return self.close_if_owed_nothing(n);
        }
        let unread = std::mem::take(&mut client.unread);
        client.read += &unread;
        client.ended = client.finished;
        while let Some((line, rest)) = client_line(&self.clients[n].read) {
            self.clients[n].read = rest;
            self.serve(n, &line);
            if self.clients[n].draining {
                break;
            }
            if self.waits(n) {
                return self.hangup(n);
            }
        }
        let client = &mut self.clients[n];
        client.draining |= client.ended;
        if client.draining {
            self.close_if_owed_nothing(n);
        }
    }

    fn close_if_owed_nothing(&mut self, n: usize) {
        if self.clients[n].replies.iter().all(|(commit, _)| commit.is_none()) {
            self.close(n);
        }
    }

    fn serve(&mut self, n: usize, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |n: usize| words[n].parse::<usize>().expect("the tests speak well");
        match words[0] {
            "PUT" => {
                self.collected.push(words[1].into());
                let under_way: usize = self.under_way.iter().map(|(_, texts)| texts.len()).sum();
                let number = self.texts.len() + under_way + self.collected.len();
                let reply = format!("STORED {number} {}\n", words[1]);
                self.clients[n].replies.push_back((Some(self.commit), reply));
            }
            "GET" => {
                let reply = self.text(number(1)).unwrap_or_else(|| "NONE\n".into());
                self.say(n, &reply);
            }
            "WAIT" | "STAY" => match self.text(number(1)) {
                Some(reply) => self.say(n, &reply),
                None => {
                    let span = self.random.jitter(Span::from_millis(number(2) as u64), 100, 150);
                    let what = What::Wait { client: n, number: number(1), stays: words[0] == "STAY" };
                    self.arm(span.as_micros().div_ceil(1_000), what);
                }
            },
            "LATER" => {
                self.arm(number(1) as u64, What::Later(words[2].into()));
                self.say(n, "OK\n");
            }
            "FILL" => self.say(n, &format!("{}\n", "x".repeat(number(1) - 1))),
            "QUIT" => {
                self.say(n, "BYE\n");
                self.clients[n].draining = true;
            }
            _ => self.say(n, "ERROR\n"),
        }
    }

    fn hangup(&mut self, n: usize) {
        let goes = |timer: &Timer| matches!(timer.what, What::Wait { client, stays, .. } if client == n && !stays);
        if self.clients[n].finished && self.timers.iter().any(goes) {
            self.end_wait(n, "GONE\n");
        }
    }

    fn fire(&mut self) {
        let mut due: Vec<(u64, u64)> = self
            .timers
            .iter()
            .map(|timer| (timer.deadline_ms, timer.order))
            .filter(|(at, _)| *at <= self.now_ms)
            .collect();
        due.sort_unstable();
        for (_, order) in due {
            let n = self.timers.iter().position(|timer| timer.order == order).expect("firing one ends no other");
            match &mut self.timers[n].what {
                What::Wait { client, .. } => {
                    let client = *client;
                    self.end_wait(client, "LATE\n");
                }
                What::Later(text) => {
                    self.collected.push(std::mem::take(text));
                    self.timers.remove(n);
                }
            }
        }
    }

    fn committed(&mut self) {
        let (commit, texts) = self.under_way.pop_front().expect("the store had it");
        self.texts.extend(texts);
        for client in &mut self.clients {
            client.replies.iter_mut().filter(|reply| reply.0 == Some(commit)).for_each(|reply| reply.0 = None);
        }
        for (client, number) in self.waiting() {
            if let Some(reply) = self.text(number) {
                self.end_wait(client, &reply);
            }
        }
    }

    fn crashed(&mut self) {
        self.under_way.clear();
        for client in &mut self.clients {
            for reply in client.replies.iter_mut().filter(|reply| reply.0.is_some()) {
                *reply = (None, "LOST\n".into());
            }
        }
    }

    fn flush(&mut self) {
        // The end of one may notify another, which is then found to be gone.
        while let Some(n) = (0..self.clients.len()).find(|n| self.ends_in_flush(*n)) {
            self.close(n);
        }
        for client in &mut self.clients {
            while let Some((None, text)) = client.replies.front() {
                client.received += text;
                client.replies.pop_front();
            }
        }
    }

    fn ends_in_flush(&self, n: usize) -> bool {
        let client = &self.clients[n];
        let is_held = client.replies.iter().any(|(commit, _)| commit.is_some());
        let is_sent = client.replies.front().is_some_and(|(commit, _)| commit.is_none());
        !client.closed && (client.draining && !is_held || client.reset && is_sent)
    }

    fn close(&mut self, n: usize) {
        self.clients[n].closed = true;
        if self.clients[n].reset {
            self.clients[n].replies.clear();
        }
        self.timers.retain(|timer| !matches!(timer.what, What::Wait { client, .. } if client == n));
        for (client, number) in self.waiting() {
            if number == 0 {
                self.end_wait(client, "LEFT\n");
            }
        }
    }

    fn say(&mut self, n: usize, text: &str) {
        self.clients[n].replies.push_back((None, text.into()));
    }

    fn text(&self, number: usize) -> Option<String> {
        Some(format!("TEXT {number} {}\n", self.texts.get(number.checked_sub(1)?)?))
    }

    fn arm(&mut self, ahead_ms: u64, what: What) {
        self.armed += 1;
        self.timers.push(Timer { deadline_ms: self.now_ms + ahead_ms, order: self.armed, what });
    }

    fn waits(&self, n: usize) -> bool {
        self.waiting().iter().any(|(client, _)| *client == n)
    }

    /// Returns the waiting clients with their texts, in the order in which they began.
    fn waiting(&self) -> Vec<(usize, usize)> {
        let wait = |timer: &Timer| match timer.what {
            What::Wait { client, number, .. } => Some((client, number)),
            What::Later(_) => None,
        };
        self.timers.iter().filter_map(wait).collect()
    }

    fn end_wait(&mut self, n: usize, reply: &str) {
        self.timers.retain(|timer| !matches!(timer.what, What::Wait { client, .. } if client == n));
        self.say(n, reply);
        self.resumed.push(n);
    }
}

/// Returns the first line, and the rest behind it.
fn client_line(read: &str) -> Option<(String, String)> {
    read.split_once('\n').map(|(line, rest)| (line.into(), rest.into()))
}
