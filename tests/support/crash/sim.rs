//! Clients at random on a server in virtual time, which crashes when the test says so. Every request is served before the next
//! is sent, so that their order is known.

use super::Told;
use super::actor::{Actor, Request, SETUP, greeting, retries};
use super::history::{Found, History};
use super::survey::survey;
use crate::support::jobs_text::take_reply;
use crate::support::random::Random;
use crate::support::world::{EPOCH, World};
use poolcounter::registry::AllSettings;
use poolcounter::time::Span;
use std::collections::VecDeque;

/// Requests of one client under way; with more it waits.
const MOST_UNDER_WAY: usize = 12;
/// No commit takes so many steps of a disk that works.
const MOST_WORK: usize = 100_000;

/// What jobs are kept on.
pub trait Disk {
    /// Returns a server that begins with what there is, at this time of day.
    fn server(&mut self, epoch: Span) -> World;
    /// Does what there is to do, without a fault.
    fn work(&mut self);
}

/// Clients, their server, and what they were told over all its lives.
pub struct Sim<D> {
    pub disk: D,
    pub world: World,
    history: History,
    clients: Vec<Client>,
    seed: u64,
    /// The time of day at the start of the present server.
    epoch: Span,
    life: usize,
    next_number: usize,
    /// How many replies were heard.
    pub replies: usize,
}

struct Client {
    actor: Actor,
    /// The number of its connection, in the world and in the history.
    conn: usize,
    number: usize,
    received: VecDeque<u8>,
    under_way: VecDeque<(Request, usize, Option<u64>)>,
}

impl<D: Disk> Sim<D> {
    /// A server without jobs, and so many clients.
    pub fn new(mut disk: D, actors: usize, seed: u64) -> Sim<D> {
        let world = disk.server(EPOCH);
        let history = History::new(Found::default(), retries());
        let mut sim =
            Sim { disk, world, history, clients: Vec::new(), seed, epoch: EPOCH, life: 0, next_number: 0, replies: 0 };
        let conn = sim.world.connect_to("jobs");
        SETUP.iter().for_each(|line| _ = sim.ask(conn, line));
        sim.begin_life(actors).expect("nothing was promised yet");
        sim
    }

    fn now(&self) -> u64 {
        let since = self.epoch.as_micros() - EPOCH.as_micros() + self.world.now().as_micros();
        since / 1000
    }

    /// One client says something, if it may say more.
    pub fn speak(&mut self, n: usize) {
        let client = &mut self.clients[n];
        if client.under_way.len() > MOST_UNDER_WAY {
            return;
        }
        let group = client.actor.speak();
        let bytes = group.bytes();
        let many = group.is_many.then_some(self.next_number as u64);
        self.next_number += 1;
        self.send(n, &bytes, group.requests, many);
    }

    fn send(&mut self, n: usize, bytes: &[u8], requests: Vec<Request>, many: Option<u64>) {
        let now = self.now();
        let Sim { clients, history, world, .. } = self;
        let client = &mut clients[n];
        for request in requests {
            let body = request.body.as_deref().unwrap_or_default();
            let asked = history.begin(client.number, &request.line, body, many, now);
            client.under_way.push_back((request, asked, many));
        }
        world.send(client.conn, bytes);
        self.settle();
    }

    /// A client's connection is lost, and it comes again; unless it may have been given a job, nobody knows which.
    pub fn lose(&mut self, n: usize) {
        let client = &self.clients[n];
        if client.under_way.iter().any(|(request, ..)| request.line.starts_with("reserve")) {
            return;
        }
        self.history.lost(client.number);
        self.world.reset(client.conn);
        self.settle();
        self.clients[n].actor.forget();
        self.connect(n);
    }

    /// Time passes.
    pub fn pass(&mut self, span: Span) {
        self.world.advance(span);
        self.settle();
    }

    /// Has the server do all that it can, and the clients hear what they are told.
    pub fn settle(&mut self) {
        self.world.settle();
        let now = self.now();
        for client in &mut self.clients {
            client.received.extend(self.world.take_received(client.conn));
            while let Some(reply) = take_reply(&mut client.received) {
                self.replies += 1;
                hear(client, &told_of(&reply), &mut self.history, now);
            }
        }
    }

    /// Goes on until nothing is under way, on a disk that works.
    pub fn finish(&mut self) {
        for _ in 0..MOST_WORK {
            if self.clients.iter().all(|client| client.under_way.is_empty()) {
                return;
            }
            self.disk.work();
            self.settle();
        }
        panic!("what clients are owed does not come");
    }

    /// The server is gone, and another begins with what the disk has, a while later. `crash` says what the disk has.
    ///
    /// # Errors
    ///
    /// When what it finds is not what the clients were promised.
    pub fn crash(&mut self, down: Span, crash: impl FnOnce(&mut D)) -> Result<(), String> {
        // What left the server before is heard.
        self.settle();
        let actors = self.clients.len();
        self.clients.clear();
        self.epoch += Span::from_micros(self.world.now().as_micros()) + down;
        self.life += 1;
        crash(&mut self.disk);
        // What it has open must be closed before the next opens it.
        drop(std::mem::replace(&mut self.world, World::of(&[], AllSettings::defaults(&[]))));
        self.world = self.disk.server(self.epoch);
        self.begin_life(actors)
    }

    fn begin_life(&mut self, actors: usize) -> Result<(), String> {
        let conn = self.world.connect_to("jobs");
        let start = self.now();
        let found = survey(&mut |request| self.ask(conn, request), actors, || start);
        let now = self.now();
        self.history.crashed(found.clone(), now)?;
        for n in 0..actors {
            let actor = Actor::new(n, actors, self.life, self.seed, &found, now);
            let (received, under_way) = (VecDeque::new(), VecDeque::new());
            self.clients.push(Client { actor, conn: 0, number: 0, received, under_way });
            self.connect(n);
        }
        Ok(())
    }

    fn connect(&mut self, n: usize) {
        self.next_number += 1;
        let client = &mut self.clients[n];
        (client.conn, client.number) = (self.world.connect_to("jobs"), self.next_number);
        client.received.clear();
        client.under_way.clear();
        for line in greeting(n) {
            let bytes = format!("{line}\r\n");
            self.send(n, bytes.as_bytes(), vec![Request { line, body: None }], None);
        }
    }

    fn ask(&mut self, conn: usize, request: &str) -> Told {
        self.world.send(conn, format!("{request}\r\n").as_bytes());
        let mut received = VecDeque::new();
        for _ in 0..MOST_WORK {
            self.world.settle();
            received.extend(self.world.take_received(conn));
            if let Some(reply) = take_reply(&mut received) {
                return told_of(&reply);
            }
            self.disk.work();
        }
        panic!("{request} is not answered");
    }
}

/// A client hears one reply.
fn hear(client: &mut Client, told: &Told, history: &mut History, now: u64) {
    let (request, asked, many) = client.under_way.pop_front().expect("it has asked");
    history.told(asked, told.clone(), now);
    client.actor.told(&request, told);
    let is_refused = told.line == "OUT_OF_MEMORY" && many.is_some();
    // All jobs of a put-many are refused at once.
    while is_refused && client.under_way.front().is_some_and(|(.., other)| *other == many) {
        let (_, asked, _) = client.under_way.pop_front().expect("it was there");
        history.told(asked, told.clone(), now);
    }
}

fn told_of(reply: &[u8]) -> Told {
    let text = String::from_utf8_lossy(reply);
    let line = text.split("\r\n").next().unwrap_or_default().to_string();
    let body = reply.get(line.len() + 2..).unwrap_or_default().to_vec();
    Told { line, body }
}

/// A random choice of what a test of a whole life does next: what clients do, and what is left to the disk.
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
