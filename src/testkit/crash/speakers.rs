//! Random clients without a server: the next requests of each, its replies, and their history.

use super::Response;
use super::actor::{Actor, Request, retries};
use super::history::{Found, History};
use crate::jobs_text::take_reply;
use std::collections::VecDeque;

/// Bound of one client's requests under way; with more it waits.
const MOST_UNDER_WAY: usize = 12;

/// Clients, with their requests and replies over all lives of their servers.
pub struct Speakers {
    history: History,
    clients: Vec<Client>,
    seed: u64,
    life: usize,
    next_number: usize,
    /// Replies that leave the outcome of a request open: for the history, it has none.
    silent: &'static [&'static str],
    /// Number of replies received.
    pub replies: usize,
}

struct Client {
    actor: Actor,
    /// Number of its connection in the world; `number` is that in the history.
    conn: usize,
    number: usize,
    received: VecDeque<u8>,
    under_way: VecDeque<(Request, usize, Option<u64>)>,
}

impl Speakers {
    /// Returns an empty set of clients, of a server without jobs.
    pub fn new(seed: u64, silent: &'static [&'static str]) -> Speakers {
        let history = History::new(Found::default(), retries());
        Speakers { history, clients: Vec::new(), seed, life: 0, next_number: 0, silent, replies: 0 }
    }

    /// Starts this number of clients on a server with this state, at this time in milliseconds. None is connected.
    ///
    /// # Errors
    ///
    /// Describes the contradiction if the state breaks a promise to the clients.
    pub fn begin_life(&mut self, found: &Found, actors: usize, now: u64) -> Result<(), String> {
        self.life += 1;
        self.history.crashed(found.clone(), now)?;
        self.clients.extend((0..actors).map(|n| {
            let actor = Actor::new(n, actors, self.life, self.seed, found, now);
            Client { actor, conn: 0, number: 0, received: VecDeque::new(), under_way: VecDeque::new() }
        }));
        Ok(())
    }

    /// Disconnects all clients, and returns their connections, with the bytes of incomplete replies.
    pub fn dismiss(&mut self) -> Vec<(usize, VecDeque<u8>)> {
        self.clients.drain(..).map(|client| (client.conn, client.received)).collect()
    }

    /// Returns the number of clients.
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Returns the number of a client's connection.
    pub fn conn(&self, n: usize) -> usize {
        self.clients[n].conn
    }

    /// Notes a client's new connection, on which it sends its greeting first.
    pub fn connected(&mut self, n: usize, conn: usize) {
        self.next_number += 1;
        let client = &mut self.clients[n];
        client.actor.forget();
        (client.conn, client.number) = (conn, self.next_number);
        client.received.clear();
        client.under_way.clear();
    }

    /// Returns whether a client's connection may be lost: not if an unknown job may have been reserved for it.
    pub fn may_lose(&self, n: usize) -> bool {
        !self.clients[n].under_way.iter().any(|(request, ..)| request.line.starts_with("reserve"))
    }

    /// Notes that a client's connection is about to be lost.
    pub fn lost(&mut self, n: usize) {
        self.history.lost(self.clients[n].number);
    }

    /// Returns a client's next requests; nothing if it waits.
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

    /// Notes a request of a client, and returns its bytes on the wire.
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

    /// Adds bytes that a client has received from its server.
    pub fn hear(&mut self, n: usize, bytes: Vec<u8>, now: u64) {
        let Speakers { clients, history, silent, replies, .. } = self;
        let client = &mut clients[n];
        client.received.extend(bytes);
        while let Some(reply) = take_reply(&mut client.received) {
            *replies += 1;
            let told = Response::of(&reply);
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
