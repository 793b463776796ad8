//! A farm of web servers in virtual time: readers request pages, workers look them up and render missing pages. One
//! page goes viral and is then edited, so that its copy in the cache is stale while very many want it. Times are in
//! microseconds.
//!
//! The farm knows the servers of locks only by their replies to its clients.

use crate::farm::pool_server::PoolServer;
use crate::farm::processors::{Processors, Running};
use crate::farm::tally::{Answer, Tally};
use poolcounter_testkit::random::Random;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

pub const MS: u64 = 1_000;
pub const SECOND: u64 = 1_000 * MS;

const SERVERS: usize = 8;
/// Number of workers of each server. A worker has one request at a time, from its beginning to its end.
const WORKERS: usize = 250;
/// Number of requests that wait at a server for a worker. More are refused.
const BACKLOG: usize = 250;
/// Time after which an unfinished worker is killed.
const LONGEST: u64 = 60 * SECOND;

/// Requests a second for the page that goes viral, and for all other pages.
const PAGE_RATE: u64 = 300;
const OTHER_RATE: u64 = 1_000;
/// Processor time: to look up the page and send it, to render it, and for another page at least and at most.
const LOOKUP: u64 = 2 * MS;
pub const RENDERING: u64 = 4 * SECOND;
const OTHER: (u64, u64) = (5 * MS, 45 * MS);

/// Time without an answer after which a reader leaves. The worker does not notice.
const PATIENCE: u64 = 10 * SECOND;
/// Shortest and longest time until a reader without an answer tries again, and the number of tries.
const COME_AGAIN: (u64, u64) = (2 * SECOND, 5 * SECOND);
const ATTEMPTS: u32 = 3;

/// Time of the edit, and the time for which the farm is watched after it.
pub const EDIT: u64 = 10 * SECOND;
pub const WATCHED: u64 = 120 * SECOND;
/// Time at which the server that renders the page loses its power, if it does, and at which it is up again.
const POWER_LOSS: u64 = EDIT + SECOND;
const POWER_BACK: u64 = POWER_LOSS + 60 * SECOND;

/// Request for the lock: one worker renders, as many as half of the workers may wait, for 15 seconds.
const ACQUIRE: &str = "ACQ4ANY page 1 1000 15";

/// The farm.
pub struct Farm {
    now: u64,
    random: Random,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    servers: Vec<WebServer>,
    pool: Option<Box<dyn PoolServer>>,
    visits: BTreeMap<u64, Visit>,
    /// Visits that wait for a lock, by their connection.
    waiting: BTreeMap<usize, u64>,
    /// Connections of machines that have lost their power.
    silent: Vec<usize>,
    /// Counters for the numbers of events and of visits.
    numbers: u64,
    is_cached: bool,
    /// Server that rendered the page first.
    first_renderer: Option<usize>,
    tally: Tally,
}

/// Event at a given time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive(Page),
    ComeAgain(Page, u32),
    GiveUp(u64),
    Kill(u64),
    Edit,
    PowerLoss,
    PowerBack,
}

/// Requested page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Page {
    /// The page that goes viral.
    Viral,
    /// Any other page.
    Other,
}

#[derive(Default)]
struct WebServer {
    is_down: bool,
    processors: Processors,
    busy: usize,
    queue: VecDeque<u64>,
}

/// Request, until its worker is done with it.
struct Visit {
    page: Page,
    /// Number of the reader's tries, including this one.
    attempts: u32,
    begun: u64,
    server: usize,
    /// True if the reader still waits.
    is_awaited: bool,
    phase: Phase,
}

/// State of a visit.
enum Phase {
    /// Waiting for a worker.
    Queued,
    /// Looking in the cache, or doing all work for another page.
    LookingUp(Running),
    /// Waiting for a lock on this connection.
    Waiting(usize),
    /// Rendering, with a lock on this connection if there is one.
    Rendering(Running, Option<usize>),
}

impl Visit {
    /// Returns its connection to the server of locks.
    fn connection(&self) -> Option<usize> {
        match self.phase {
            Phase::Waiting(connection) | Phase::Rendering(_, Some(connection)) => Some(connection),
            Phase::Queued | Phase::LookingUp(_) | Phase::Rendering(_, None) => None,
        }
    }
}

impl Farm {
    /// Returns a farm with or without a server of locks, in which a server may lose its power.
    pub fn new(pool: Option<Box<dyn PoolServer>>, loses_power: bool, seed: u64) -> Farm {
        let mut farm = Farm {
            now: 0,
            random: Random::new(seed),
            events: BinaryHeap::new(),
            servers: (0..SERVERS).map(|_| WebServer::default()).collect(),
            pool,
            visits: BTreeMap::new(),
            waiting: BTreeMap::new(),
            silent: Vec::new(),
            numbers: 0,
            is_cached: true,
            first_renderer: None,
            tally: Tally::default(),
        };
        farm.at(0, Event::Arrive(Page::Viral));
        farm.at(0, Event::Arrive(Page::Other));
        farm.at(EDIT, Event::Edit);
        if loses_power {
            farm.at(POWER_LOSS, Event::PowerLoss);
            farm.at(POWER_BACK, Event::PowerBack);
        }
        farm
    }

    /// Runs the farm, and returns the results.
    pub fn run(mut self) -> Tally {
        while self.now < EDIT + WATCHED {
            let pool = self.pool.as_ref().and_then(|pool| pool.next_work()).unwrap_or(u64::MAX);
            let ends = self.servers.iter().map(|server| server.processors.next_end().unwrap_or(u64::MAX));
            let (end, server) = ends.zip(0..).min().expect("there are servers");
            let event = self.events.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
            self.now = pool.min(end).min(event);
            if self.now == pool {
                self.ask_pool(|_| {});
            } else if self.now == end {
                self.end_work(server);
            } else if let Some(Reverse((.., event))) = self.events.pop() {
                self.take(event);
            }
        }
        self.shut_down();
        self.tally
    }

    /// Switches all machines off, and lets the server of locks notice that.
    fn shut_down(&mut self) {
        for visit in std::mem::take(&mut self.visits).into_values() {
            self.count_rendering(&visit);
            self.silent.extend(visit.connection());
        }
        self.waiting.clear();
        for connection in std::mem::take(&mut self.silent) {
            self.ask_pool(|pool| pool.close(connection));
        }
        assert!(self.pool.as_ref().is_none_or(|pool| pool.is_empty()), "somebody still has a lock");
    }

    fn at(&mut self, at: u64, event: Event) {
        self.numbers += 1;
        self.events.push(Reverse((at, self.numbers, event)));
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Arrive(page) => {
                let mean = SECOND / if page == Page::Viral { PAGE_RATE } else { OTHER_RATE };
                let next = self.now + self.between((0, 2 * mean));
                self.at(next, Event::Arrive(page));
                self.arrive(page, 1);
            }
            Event::ComeAgain(page, attempts) => self.arrive(page, attempts),
            Event::GiveUp(visit) => self.give_up(visit),
            Event::Kill(visit) => self.kill(visit),
            Event::Edit => self.is_cached = false,
            Event::PowerLoss => self.lose_power(),
            Event::PowerBack => self.servers.iter_mut().for_each(|server| server.is_down = false),
        }
    }

    fn between(&mut self, (least, most): (u64, u64)) -> u64 {
        least + self.random.below((most - least) as usize) as u64
    }

    /// Sends a reader's request for a page to any server that is up.
    fn arrive(&mut self, page: Page, attempts: u32) {
        let up: Vec<usize> = (0..SERVERS).filter(|server| !self.servers[*server].is_down).collect();
        let server = self.random.pick(&up);
        let visit = Visit { page, attempts, begun: self.now, server, is_awaited: true, phase: Phase::Queued };
        if self.servers[server].queue.len() >= BACKLOG {
            return self.answer(&visit, Answer::None);
        }
        self.numbers += 1;
        let number = self.numbers;
        self.visits.insert(number, visit);
        self.servers[server].queue.push_back(number);
        self.at(self.now + PATIENCE, Event::GiveUp(number));
        self.employ(server);
    }

    /// Assigns waiting requests to free workers, also requests whose reader has left.
    fn employ(&mut self, server: usize) {
        while self.servers[server].busy < WORKERS
            && let Some(number) = self.servers[server].queue.pop_front()
        {
            let visit = &self.visits[&number];
            if !visit.is_awaited {
                self.visits.remove(&number);
                continue;
            }
            let work = if visit.page == Page::Viral { LOOKUP } else { self.between(OTHER) };
            self.servers[server].busy += 1;
            let running = self.servers[server].processors.begin(number, work, self.now);
            self.at(self.now + LONGEST, Event::Kill(number));
            self.visit(number).phase = Phase::LookingUp(running);
        }
    }

    fn visit(&mut self, number: u64) -> &mut Visit {
        self.visits.get_mut(&number).expect("a visit is there until its worker has done with it")
    }

    /// Handles the end of a processor's job.
    fn end_work(&mut self, server: usize) {
        let Some(number) = self.servers[server].processors.take_ended(self.now) else { return };
        match (&self.visits[&number].phase, self.visits[&number].page) {
            (Phase::Rendering(..), _) => {
                self.is_cached = true;
                self.end(number, Answer::Current, Some("RELEASE"));
            }
            (_, Page::Viral) if !self.is_cached && self.pool.is_some() => self.ask_for_lock(number),
            (_, Page::Viral) if !self.is_cached => self.render(number, None),
            _ => self.end(number, Answer::Current, None),
        }
    }

    fn render(&mut self, number: u64, connection: Option<usize>) {
        let (now, server) = (self.now, self.visits[&number].server);
        self.first_renderer.get_or_insert(server);
        self.tally.renderings += 1;
        let running = self.servers[server].processors.begin(number, RENDERING, now);
        self.visit(number).phase = Phase::Rendering(running, connection);
    }

    fn ask_for_lock(&mut self, number: u64) {
        let connection = self.pool.as_mut().expect("there is one").connect();
        self.visit(number).phase = Phase::Waiting(connection);
        self.waiting.insert(connection, number);
        self.tally.most_waiting = self.tally.most_waiting.max(self.waiting.len());
        self.ask_pool(|pool| pool.send(connection, ACQUIRE));
    }

    /// Calls the server of locks, and passes its output to the waiting visits.
    fn ask_pool(&mut self, ask: impl FnOnce(&mut dyn PoolServer)) {
        let Some(pool) = &mut self.pool else { return };
        pool.pass_until(self.now);
        ask(&mut **pool);
        let received = pool.take_received(&mut self.waiting.keys().copied());
        let of_visits = |(connection, reply)| Some((connection, self.waiting.remove(&connection)?, reply));
        let heard: Vec<(usize, u64, Vec<u8>)> = received.into_iter().filter_map(of_visits).collect();
        for (connection, visit, reply) in heard {
            match &reply[..] {
                b"LOCKED\n" => self.render(visit, Some(connection)),
                b"DONE\n" if self.is_cached => self.end(visit, Answer::Current, None),
                b"DONE\n" | b"QUEUE_FULL\n" | b"TIMEOUT\n" => self.end(visit, Answer::Stale, None),
                other => panic!("no client expects {}", other.escape_ascii()),
            }
        }
    }

    /// Ends a visit: its worker sends a last request to the server of locks, if there is one to send, and closes.
    fn end(&mut self, number: u64, answer: Answer, last_word: Option<&str>) {
        let visit = self.visits.remove(&number).expect("a visit is there until its worker has done with it");
        self.answer(&visit, answer);
        self.count_rendering(&visit);
        self.servers[visit.server].busy -= 1;
        self.employ(visit.server);
        if let Some(connection) = visit.connection() {
            self.waiting.remove(&connection);
            self.ask_pool(|pool| {
                last_word.into_iter().for_each(|line| pool.send(connection, line));
                pool.close(connection);
            });
        }
    }

    /// Notes the answer to a reader; a reader without one tries again.
    fn answer(&mut self, visit: &Visit, answer: Answer) {
        if !visit.is_awaited {
            return;
        }
        self.tally.note(visit.page, answer, visit.begun, self.now);
        if answer == Answer::None && visit.attempts < ATTEMPTS {
            let at = self.now + self.between(COME_AGAIN);
            self.at(at, Event::ComeAgain(visit.page, visit.attempts + 1));
        }
    }

    fn give_up(&mut self, number: u64) {
        if let Some(mut visit) = self.visits.remove(&number) {
            self.answer(&visit, Answer::None);
            visit.is_awaited = false;
            self.visits.insert(number, visit);
        }
    }

    fn kill(&mut self, number: u64) {
        let Some(visit) = self.visits.get(&number) else { return };
        if let Phase::LookingUp(running) | Phase::Rendering(running, _) = visit.phase {
            self.servers[visit.server].processors.stop(running, self.now);
        }
        self.end(number, Answer::None, None);
    }

    /// Cuts the power of the server that renders the page. All other machines are notified at once, except the server
    /// of locks.
    fn lose_power(&mut self) {
        let lost = self.first_renderer.expect("the page is asked for all the time");
        let all = std::mem::take(&mut self.visits).into_iter();
        let (gone, rest): (BTreeMap<_, _>, _) = all.partition(|(_, visit)| visit.server == lost);
        self.visits = rest;
        self.waiting.retain(|_, number| !gone.contains_key(number));
        for visit in gone.values() {
            self.answer(visit, Answer::None);
            self.count_rendering(visit);
            self.silent.extend(visit.connection());
        }
        self.servers[lost] = WebServer { is_down: true, processors: Processors::new(self.now), ..WebServer::default() };
    }

    /// Counts the processor time of the rendering until now.
    fn count_rendering(&mut self, visit: &Visit) {
        if let Phase::Rendering(running, _) = visit.phase {
            self.tally.rendering_us += RENDERING - self.servers[visit.server].processors.left_us(running, self.now);
        }
    }
}
