//! Random clients on a server in virtual time, which crashes when the test says so. Every request is served before the
//! next is sent, so that their order is known.

use poolcounter_core::Span;
use poolcounter_service::container::AllSettings;
use poolcounter_testkit::crash::Response;
use poolcounter_testkit::crash::actor::{SETUP, greeting};
use poolcounter_testkit::crash::speakers::Speakers;
use poolcounter_testkit::crash::survey::survey;
use poolcounter_testkit::jobs_text::take_reply;
use poolcounter_testkit::random::Random;
use poolcounter_testkit::world::{EPOCH, World};
use std::collections::VecDeque;

/// Bound of the steps of a working disk until a commit.
const MOST_WORK: usize = 100_000;

/// Storage of the jobs.
pub trait Disk {
    /// Returns a server that starts with the stored jobs, at this time of day.
    fn server(&mut self, epoch: Span) -> World;
    /// Performs the disk's pending work, without a fault.
    fn work(&mut self);
}

/// Clients, their server, and their history over all its lives.
pub struct Sim<D> {
    pub disk: D,
    pub world: World,
    speakers: Speakers,
    /// Time of day at the start of the present server.
    epoch: Span,
}

impl<D: Disk> Sim<D> {
    /// Returns a server without jobs, and this number of clients.
    pub fn new(mut disk: D, actors: usize, seed: u64) -> Sim<D> {
        let world = disk.server(EPOCH);
        let mut sim = Sim { disk, world, speakers: Speakers::new(seed, &[]), epoch: EPOCH };
        let conn = sim.world.connect_to("jobs");
        SETUP.iter().for_each(|line| _ = sim.ask(conn, line));
        sim.begin_life(actors).expect("nothing was promised yet");
        sim
    }

    fn now(&self) -> u64 {
        let since = self.epoch.as_micros() - EPOCH.as_micros() + self.world.now().as_micros();
        since / 1000
    }

    /// Returns the number of replies received.
    pub fn replies(&self) -> usize {
        self.speakers.replies
    }

    /// Sends the next requests of one client, if it may send more.
    pub fn speak(&mut self, n: usize) {
        let bytes = self.speakers.speak(n, self.now());
        if !bytes.is_empty() {
            self.send(n, &bytes);
        }
    }

    fn send(&mut self, n: usize, bytes: &[u8]) {
        self.world.send(self.speakers.conn(n), bytes);
        self.settle();
    }

    /// Resets a client's connection and opens another; unless an unknown job may have been reserved for it.
    pub fn lose(&mut self, n: usize) {
        if !self.speakers.may_lose(n) {
            return;
        }
        self.speakers.lost(n);
        self.world.reset(self.speakers.conn(n));
        self.settle();
        self.connect(n);
    }

    /// Lets time pass.
    pub fn pass(&mut self, span: Span) {
        self.world.advance(span);
        self.settle();
    }

    /// Lets the server do all that it can, and the clients read their replies.
    pub fn settle(&mut self) {
        self.world.settle();
        let now = self.now();
        for n in 0..self.speakers.len() {
            let received = self.world.take_received(self.speakers.conn(n));
            self.speakers.hear(n, received, now);
        }
    }

    /// Continues until no request is under way, on a working disk.
    pub fn finish(&mut self) {
        for _ in 0..MOST_WORK {
            if !self.speakers.are_owed() {
                return;
            }
            self.disk.work();
            self.settle();
        }
        panic!("what clients are owed does not come");
    }

    /// Replaces the server by another that starts with the contents of the disk, after `down`. `crash` changes the
    /// disk.
    ///
    /// # Errors
    ///
    /// Describes the contradiction if the state found breaks a promise to the clients.
    pub fn crash(&mut self, down: Span, crash: impl FnOnce(&mut D)) -> Result<(), String> {
        // Replies that left the server before the crash are received.
        self.settle();
        let actors = self.speakers.dismiss().len();
        self.epoch += Span::from_micros(self.world.now().as_micros()) + down;
        crash(&mut self.disk);
        // The old server must close its files before the next opens them.
        drop(std::mem::replace(&mut self.world, World::of(&[], AllSettings::defaults(&[]))));
        self.world = self.disk.server(self.epoch);
        self.begin_life(actors)
    }

    fn begin_life(&mut self, actors: usize) -> Result<(), String> {
        let conn = self.world.connect_to("jobs");
        let start = self.now();
        let found = survey(&mut |request| self.ask(conn, request), actors, || start);
        let now = self.now();
        self.speakers.begin_life(&found, actors, now)?;
        (0..actors).for_each(|n| self.connect(n));
        Ok(())
    }

    fn connect(&mut self, n: usize) {
        self.speakers.connected(n, self.world.connect_to("jobs"));
        for line in greeting(n) {
            let bytes = self.speakers.say(n, line, self.now());
            self.send(n, &bytes);
        }
    }

    fn ask(&mut self, conn: usize, request: &str) -> Response {
        self.world.send(conn, format!("{request}\r\n").as_bytes());
        let mut received = VecDeque::new();
        for _ in 0..MOST_WORK {
            self.world.settle();
            received.extend(self.world.take_received(conn));
            if let Some(reply) = take_reply(&mut received) {
                return Response::of(&reply);
            }
            self.disk.work();
        }
        panic!("{request} is not answered");
    }
}

/// Takes a random step of a test of a whole life: an action of the clients, or one of those left to the disk.
pub fn step<D: Disk>(
    sim: &mut Sim<D>,
    random: &mut Random,
    actors: usize,
    disk: impl FnOnce(&mut Sim<D>, &mut Random),
) {
    match random.below(20) {
        0 => sim.lose(random.below(actors)),
        1 => sim.pass(Span::from_millis(random.pick(&[0, 5, 100, 1_000, 2_500]))),
        2..=9 => disk(sim, random),
        _ => sim.speak(random.below(actors)),
    }
}
