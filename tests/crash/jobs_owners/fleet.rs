//! Two daemons that share a database, and clients of the one that serves. To the clients a take-over is a simulated
//! crash, except that the former owner may still be alive.

use crate::jobs_owners::database::{self, Database, Interrupted};
use crate::stored::{self, StoredSettings};
use poolcounter_core::time::Span;
use poolcounter_jobs::JobsSettings;
use poolcounter_service::container::AllSettings;
use poolcounter_service::contract::Info;
use poolcounter_testkit::crash::Response;
use poolcounter_testkit::crash::actor::{SETUP, greeting};
use poolcounter_testkit::crash::speakers::Speakers;
use poolcounter_testkit::crash::survey::survey;
use poolcounter_testkit::jobs_text::take_reply;
use poolcounter_testkit::world::{EPOCH, World};
use std::collections::VecDeque;

const SERVICES: &[&Info] = &[&stored::INFO];
/// Interval between two rounds, in microseconds.
const BEAT: u64 = 50_000;
/// Upper bound of the time of a take-over, in microseconds.
const LONGEST: u64 = 120_000_000;
/// Upper bound of the time of a fault, in microseconds.
const LONGEST_FAULT: u64 = 16_000_000;
/// Time for which the replica hangs, in microseconds.
const LONGEST_HANG: u64 = 12_000_000;
/// Time after which a batch of the clients waits for the replica, in microseconds.
const WAIT_BEGINS: u64 = 5_000;
/// Replies that a former owner may still give.
const HARMLESS: [&str; 2] = ["INTERNAL_ERROR", "OUT_OF_MEMORY"];

/// Counts of events of a fleet.
#[derive(Default)]
pub struct Seen {
    pub replies: usize,
    pub takeovers: usize,
    pub rewrites: usize,
    pub promotions: usize,
}

/// A daemon of the fleet.
struct Host {
    world: World,
    /// Number of its database thread.
    number: usize,
    /// True time at its start, in microseconds.
    begun: u64,
    is_stopped: bool,
    /// Clients of this daemon when another took over, with their unread replies.
    outdone: Vec<(usize, VecDeque<u8>)>,
}

/// The daemons, their clients, and the history of these.
pub struct Fleet {
    database: Database,
    hosts: Vec<Host>,
    /// Owner, as far as the clients know.
    active: usize,
    speakers: Speakers,
    actors: usize,
    /// Time until which no fault is started, in microseconds.
    calm_until: u64,
    seen: Seen,
}

impl Fleet {
    /// Returns two daemons of a database without jobs, with this number of clients.
    pub fn new(database: Database, actors: usize, seed: u64) -> Result<Fleet, String> {
        let mut fleet = Fleet {
            hosts: Vec::new(),
            active: usize::MAX,
            // The fate of a request with this reply is unknown.
            speakers: Speakers::new(seed, &["INTERNAL_ERROR"]),
            actors,
            calm_until: 0,
            seen: Seen::default(),
            database,
        };
        fleet.add_host();
        fleet.add_host();
        fleet.await_owner()?;
        let conn = fleet.hosts[fleet.active].world.connect_to("jobs");
        SETUP.iter().for_each(|line| _ = fleet.ask(conn, line));
        fleet.begin_life()?;
        fleet.database.set_calm(false);
        Ok(fleet)
    }

    fn add_host(&mut self) {
        let begun = self.database.now();
        let settings = JobsSettings { admin: true, ..JobsSettings::default() };
        let settings = AllSettings::defaults(SERVICES).with(StoredSettings(settings));
        let mut world = World::at(SERVICES, settings, EPOCH + Span::from_micros(begun));
        world.begin().expect("it begins in any case");
        let number = self.database.daemons() - 1;
        self.hosts.push(Host { world, number, begun, is_stopped: false, outdone: Vec::new() });
    }

    fn now(&self) -> u64 {
        self.database.now() / 1000
    }

    fn is_calm(&self) -> bool {
        self.database.now() < self.calm_until || self.hosts.iter().any(|host| host.is_stopped)
    }

    /// Kills the daemon that serves, and starts another.
    pub fn kill(&mut self) -> Result<(), String> {
        if self.is_calm() {
            return Ok(());
        }
        self.settle()?;
        println!("{}: {} dies", self.database.now(), self.hosts[self.active].number);
        let host = self.hosts.remove(self.active);
        self.database.kill(host.number);
        drop(host);
        self.speakers.dismiss();
        self.add_host();
        self.active = usize::MAX;
        self.take_over()
    }

    /// Suspends the daemon that serves for `micros`.
    pub fn stop(&mut self, micros: u64) -> Result<(), String> {
        if self.is_calm() {
            return Ok(());
        }
        let number = self.hosts[self.active].number;
        println!("{}: {number} stops for {micros}", self.database.now());
        self.set_stopped(number, true);
        let result = self.pass(micros);
        self.set_stopped(number, false);
        result?;
        self.pass(BEAT)
    }

    fn set_stopped(&mut self, number: usize, is_stopped: bool) {
        self.database.stop(number, is_stopped);
        let host = self.hosts.iter_mut().find(|host| host.number == number);
        host.expect("it is not gone").is_stopped = is_stopped;
    }

    /// Fails over to a database that lacks the last commits. The daemon that serves writes them again.
    pub fn fail_over(&mut self, lost_micros: u64) -> Result<(), String> {
        // A new owner has given no reply that could be lost, but the database may not know its take-over.
        if self.is_calm() || self.database.owner() != Some(self.hosts[self.active].number) {
            return Ok(());
        }
        self.calm_until = self.database.now() + 15_000_000;
        self.database.set_calm(true);
        println!("{}: another database", self.database.now());
        self.database.fail_over(lost_micros);
        self.pass(BEAT)
    }

    /// Ends the server and the daemon that serves, after the replica has hung for a while and a wait for it was
    /// interrupted. The replica is the next server.
    pub fn lose_server(&mut self, how: Interrupted, micros: u64) -> Result<(), String> {
        if self.is_calm() {
            return Ok(());
        }
        println!("{}: the replica hangs, and a wait is {how:?}", self.database.now());
        self.database.hang(LONGEST_HANG);
        (0..self.actors).for_each(|n| self.speak(n));
        self.pass(WAIT_BEGINS)?;
        self.database.interrupt(how);
        self.pass(micros)?;
        self.settle()?;
        println!("{}: {} dies, and the replica is the server", self.database.now(), self.hosts[self.active].number);
        self.seen.promotions += 1;
        let host = self.hosts.remove(self.active);
        self.database.kill(host.number);
        drop(host);
        self.database.promote();
        self.speakers.dismiss();
        self.add_host();
        self.active = usize::MAX;
        self.take_over()
    }

    /// Delays the answers to renewals by `late` for `micros`.
    pub fn delay_renewals(&mut self, late: u64, micros: u64) {
        println!("{}: renewals take {late} more for {micros}", self.database.now());
        self.database.delay_renewals(late, micros);
    }

    /// Takes the database down for `micros`.
    pub fn go_down(&mut self, micros: u64) -> Result<(), String> {
        if self.is_calm() {
            return Ok(());
        }
        println!("{}: down for {micros}", self.database.now());
        self.database.go_down(micros);
        self.pass(BEAT)
    }

    /// Advances the time by `micros`, in rounds.
    pub fn pass(&mut self, micros: u64) -> Result<(), String> {
        let end = self.database.now() + micros;
        self.hear();
        while self.database.now() < end {
            let step = BEAT.min(end - self.database.now());
            self.database.advance(step);
            self.settle()?;
        }
        if self.database.now() >= self.calm_until && self.calm_until > 0 {
            self.calm_until = 0;
            self.database.set_calm(false);
        }
        Ok(())
    }

    /// Brings every daemon to the present, and passes the replies to the clients.
    fn settle(&mut self) -> Result<(), String> {
        let now = self.database.now();
        for host in self.hosts.iter_mut().filter(|host| !host.is_stopped) {
            let behind = now - host.begun - host.world.now().as_micros();
            host.world.advance(Span::from_micros(behind));
        }
        // Answers of the database to the present requests come later.
        let takeovers = self.database.take_takeovers();
        let active = self.hosts.get(self.active).map(|host| host.number);
        self.seen.takeovers += takeovers.len();
        let is_other = |takeover: &database::Takeover| takeover.is_fresh || Some(takeover.daemon) != active;
        if !takeovers.is_empty() {
            println!("{now}: {takeovers:?}, and {active:?} serves");
        }
        if takeovers.iter().any(is_other) && active.is_some() {
            return self.outdo();
        }
        self.hear();
        self.check_outdone()?;
        if self.are_sent_away() { self.begin_again() } else { Ok(()) }
    }

    /// Returns whether the daemon that served has ended a client's connection: its lease has run out.
    fn are_sent_away(&self) -> bool {
        let host = self.hosts.get(self.active).filter(|host| !host.is_stopped);
        host.is_some_and(|host| (0..self.speakers.len()).any(|n| host.world.is_closed(self.speakers.conn(n))))
    }

    /// Connects all clients to the daemon that serves next, which may be the same one. Their reservations have ended
    /// with their connections. Those that asked nothing while the lease had run out may still be connected, and leave.
    fn begin_again(&mut self) -> Result<(), String> {
        let host = &mut self.hosts[self.active];
        println!("{}: {} sends its clients away", self.database.now(), host.number);
        for n in 0..self.speakers.len() {
            let conn = self.speakers.conn(n);
            if !host.world.is_closed(conn) {
                self.speakers.lost(n);
                host.world.reset(conn);
            }
        }
        self.speakers.dismiss();
        self.active = usize::MAX;
        self.take_over()
    }

    /// Handles the take-over by another daemon. Replies of the former owner count up to this time; later ones must be
    /// harmless.
    fn outdo(&mut self) -> Result<(), String> {
        let host = &mut self.hosts[self.active];
        host.outdone = self.speakers.dismiss();
        self.active = usize::MAX;
        self.check_outdone()?;
        self.take_over()
    }

    /// Checks that a former owner promises nothing and gives out nothing.
    fn check_outdone(&mut self) -> Result<(), String> {
        for host in &mut self.hosts {
            for (conn, received) in &mut host.outdone {
                received.extend(host.world.take_received(*conn));
                while let Some(reply) = take_reply(received) {
                    let told = Response::of(&reply);
                    if !HARMLESS.contains(&&*told.line) {
                        let (number, now) = (host.number, self.database.now());
                        let line = told.line;
                        println!("{}", self.database.describe(number));
                        return Err(format!("daemon {number} says {line} at {now}, after another has taken over"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits until a daemon serves, and compares its jobs with the promises.
    fn take_over(&mut self) -> Result<(), String> {
        self.await_owner()?;
        self.begin_life()
    }

    fn await_owner(&mut self) -> Result<(), String> {
        let end = self.database.now() + LONGEST;
        while self.database.now() < end {
            self.database.advance(BEAT);
            self.settle()?;
            if self.serving().is_none() {
                continue;
            }
            // Faults under way end before the comparison.
            self.database.set_calm(true);
            for _ in 0..LONGEST_FAULT / BEAT {
                self.database.advance(BEAT);
                self.settle()?;
            }
            if let Some(index) = self.serving() {
                self.active = index;
                return Ok(());
            }
        }
        let all: Vec<String> = self.hosts.iter().map(|host| self.database.describe(host.number)).collect();
        Err(format!("no daemon takes over: {all:#?}"))
    }

    /// Returns the index of the daemon that serves jobs.
    fn serving(&mut self) -> Option<usize> {
        let owner = self.database.owner()?;
        let index = self.hosts.iter().position(|host| host.number == owner && !host.is_stopped)?;
        let world = &mut self.hosts[index].world;
        let conn = world.connect_to("jobs");
        world.send(conn, b"list-tube-used\r\n");
        world.settle();
        world.take_received(conn).starts_with(b"USING").then_some(index)
    }

    fn begin_life(&mut self) -> Result<(), String> {
        let was_calm = self.is_calm();
        self.database.set_calm(true);
        let conn = self.hosts[self.active].world.connect_to("jobs");
        let (actors, start) = (self.actors, self.now());
        let found = survey(&mut |request| self.ask(conn, request), actors, || start);
        let now = self.now();
        self.speakers.begin_life(&found, actors, now)?;
        (0..actors).for_each(|n| self.connect(n));
        self.database.set_calm(was_calm);
        Ok(())
    }

    /// Sends the next request of a client, if it may send one.
    pub fn speak(&mut self, n: usize) {
        let bytes = self.speakers.speak(n, self.now());
        if !bytes.is_empty() {
            self.send(n, &bytes);
        }
    }

    fn send(&mut self, n: usize, bytes: &[u8]) {
        let host = &mut self.hosts[self.active];
        host.world.send(self.speakers.conn(n), bytes);
        if !host.is_stopped {
            host.world.settle();
        }
    }

    /// Ends a client's connection and makes a new one, unless a reply under way may give it a job.
    pub fn lose(&mut self, n: usize) {
        if !self.speakers.may_lose(n) {
            return;
        }
        self.speakers.lost(n);
        let host = &mut self.hosts[self.active];
        host.world.reset(self.speakers.conn(n));
        host.world.settle();
        self.connect(n);
    }

    fn connect(&mut self, n: usize) {
        self.speakers.connected(n, self.hosts[self.active].world.connect_to("jobs"));
        for line in greeting(n) {
            let bytes = self.speakers.say(n, line, self.now());
            self.send(n, &bytes);
        }
    }

    fn hear(&mut self) {
        let now = self.now();
        for n in 0..self.speakers.len() {
            let received = self.hosts[self.active].world.take_received(self.speakers.conn(n));
            self.speakers.hear(n, received, now);
        }
    }

    /// Waits for all replies, and compares for the last time.
    pub fn end(mut self) -> Result<Seen, String> {
        self.database.set_calm(true);
        self.calm_until = u64::MAX;
        self.pass(40_000_000)?;
        if self.speakers.are_owed() {
            return Err("what clients are owed does not come".into());
        }
        let conn = self.hosts[self.active].world.connect_to("jobs");
        let text = self.ask(conn, "stats").body;
        let text = String::from_utf8_lossy(&text).into_owned();
        let rewrites = text.lines().find_map(|line| line.strip_prefix("store-rewrites: "));
        self.seen.rewrites = rewrites.and_then(|count| count.parse().ok()).expect("stats has it");
        self.calm_until = 0;
        self.kill()?;
        self.seen.replies = self.speakers.replies;
        Ok(self.seen)
    }

    fn ask(&mut self, conn: usize, request: &str) -> Response {
        self.hosts[self.active].world.send(conn, format!("{request}\r\n").as_bytes());
        let mut received = VecDeque::new();
        for _ in 0..100_000 {
            let host = &mut self.hosts[self.active];
            host.world.settle();
            received.extend(host.world.take_received(conn));
            if let Some(reply) = take_reply(&mut received) {
                return Response::of(&reply);
            }
            self.database.advance(1000);
            let now = self.database.now();
            let behind = now - host.begun - host.world.now().as_micros();
            host.world.advance(Span::from_micros(behind));
        }
        let number = self.hosts[self.active].number;
        panic!("{request} is not answered: {}", self.database.describe(number));
    }
}
