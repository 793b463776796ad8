//! Clients at random, which know nothing of servers: what each says next, what it hears, and the history of all that.

use super::Told;
use super::actor::{Actor, Request, retries};
use super::history::{Found, History};
use crate::jobs_text::take_reply;
use std::collections::VecDeque;

/// Requests of one client under way; with more it waits.
const MOST_UNDER_WAY: usize = 12;

/// Clients, and what they asked and were told over all lives of their servers.
pub struct Speakers {
    history: History,
    clients: Vec<Client>,
    seed: u64,
    life: usize,
    next_number: usize,
    /// Replies that say nothing of what became of a request: for the history, it has none.
    silent: &'static [&'static str],
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

impl Speakers {
    /// None yet, of a server without jobs.
    pub fn new(seed: u64, silent: &'static [&'static str]) -> Speakers {
        let history = History::new(Found::default(), retries());
        Speakers { history, clients: Vec::new(), seed, life: 0, next_number: 0, silent, replies: 0 }
    }

    /// Has so many clients begin with a server on which this was found, at this time in milliseconds. None is connected.
    ///
    /// # Errors
    ///
    /// When what was found is not what they were promised.
    pub fn begin_life(&mut self, found: &Found, actors: usize, now: u64) -> Result<(), String> {
        self.life += 1;
        self.history.crashed(found.clone(), now)?;
        self.clients.extend((0..actors).map(|n| {
            let actor = Actor::new(n, actors, self.life, self.seed, found, now);
            Client { actor, conn: 0, number: 0, received: VecDeque::new(), under_way: VecDeque::new() }
        }));
        Ok(())
    }

    /// Ends their part with a server, and returns their connections, with what was not heard to its end.
    pub fn dismiss(&mut self) -> Vec<(usize, VecDeque<u8>)> {
        self.clients.drain(..).map(|client| (client.conn, client.received)).collect()
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Returns the number of a client's connection.
    pub fn conn(&self, n: usize) -> usize {
        self.clients[n].conn
    }

    /// A client has a new connection of this number, on which it says its greeting first.
    pub fn connected(&mut self, n: usize, conn: usize) {
        self.next_number += 1;
        let client = &mut self.clients[n];
        client.actor.forget();
        (client.conn, client.number) = (conn, self.next_number);
        client.received.clear();
        client.under_way.clear();
    }

    /// Returns whether a client's connection may be lost: not if it may have been given a job, nobody knows which.
    pub fn may_lose(&self, n: usize) -> bool {
        !self.clients[n].under_way.iter().any(|(request, ..)| request.line.starts_with("reserve"))
    }

    /// A client's connection is about to be lost.
    pub fn lost(&mut self, n: usize) {
        self.history.lost(self.clients[n].number);
    }

    /// Returns what a client says next; nothing if it waits.
    pub fn speak(&mut self, n: usize, now: u64) -> Vec<u8> {
        let client = &mut self.clients[n];
        if client.under_way.len() > MOST_UNDER_WAY {
            return Vec::new();
        }
        let group = client.actor.speak();
        let bytes = group.bytes();
        let many = group.is_many.then_some(self.next_number as u64);
        self.next_number += 1;
        self.ask(n, group.requests, many, now);
        bytes
    }

    /// Has a client say a line, and returns it as it goes over the wire.
    pub fn say(&mut self, n: usize, line: String, now: u64) -> Vec<u8> {
        let bytes = format!("{line}\r\n").into_bytes();
        self.ask(n, vec![Request { line, body: None }], None, now);
        bytes
    }

    fn ask(&mut self, n: usize, requests: Vec<Request>, many: Option<u64>, now: u64) {
        let Speakers { clients, history, .. } = self;
        let client = &mut clients[n];
        for request in requests {
            let body = request.body.as_deref().unwrap_or_default();
            let asked = history.begin(client.number, &request.line, body, many, now);
            client.under_way.push_back((request, asked, many));
        }
    }

    /// A client hears what its server has sent.
    pub fn hear(&mut self, n: usize, bytes: Vec<u8>, now: u64) {
        let Speakers { clients, history, silent, replies, .. } = self;
        let client = &mut clients[n];
        client.received.extend(bytes);
        while let Some(reply) = take_reply(&mut client.received) {
            *replies += 1;
            let told = Told::of(&reply);
            let (request, asked, many) = client.under_way.pop_front().expect("it has asked");
            if silent.contains(&&*told.line) {
                continue;
            }
            history.told(asked, told.clone(), now);
            client.actor.told(&request, &told);
            let is_refused = told.line == "OUT_OF_MEMORY" && many.is_some();
            // All jobs of a put-many are refused at once.
            while is_refused && client.under_way.front().is_some_and(|(.., other)| *other == many) {
                let (_, asked, _) = client.under_way.pop_front().expect("it was there");
                history.told(asked, told.clone(), now);
            }
        }
    }

    /// Returns whether a client waits for a reply.
    pub fn are_owed(&self) -> bool {
        self.clients.iter().any(|client| !client.under_way.is_empty())
    }
}
