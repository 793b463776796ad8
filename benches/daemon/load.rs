//! Steady load in a closed loop: every client sends, waits for its replies, and sends again.

use super::clients::Clients;
use super::protocol::Protocol;
use super::report::Values;
use super::server::Server;
use super::settings::Settings;
use std::io;
use std::time::{Duration, Instant};

/// Source of the clients' requests.
pub trait Player {
    /// Appends a client's next requests, and returns the number of their replies.
    fn speak(&mut self, client: usize, requests: &mut Vec<u8>) -> usize;

    /// Handles a reply, and returns whether it is valid.
    fn hear(&mut self, client: usize, reply: &[u8]) -> bool;
}

struct Loop<'a, P> {
    clients: Clients,
    protocol: Protocol,
    player: &'a mut P,
    talks: Vec<Talk>,
    requests: Vec<u8>,
    replies: usize,
}

#[derive(Clone, Default)]
struct Talk {
    /// Number of replies that are to come.
    awaited: usize,
    /// Beginning of an incomplete reply.
    partial: Vec<u8>,
}

/// Plays until the time is over: returns replies per second, and the server's processor time per reply in microseconds.
pub fn play(server: &Server, count: usize, player: &mut impl Player, settings: &Settings) -> io::Result<Values> {
    let clients = Clients::connect(server, count)?;
    let (protocol, talks) = (server.protocol, vec![Talk::default(); count]);
    let mut load = Loop { clients, protocol, player, talks, requests: Vec::new(), replies: 0 };
    (0..count).try_for_each(|client| load.speak(client))?;
    load.run_for(settings.time / 4)?;
    let (replies, used, start) = (load.replies, server.cpu_time()?, Instant::now());
    load.run_for(settings.time)?;
    let (time, used, replies) =
        (start.elapsed(), server.cpu_time()?.saturating_sub(used), (load.replies - replies) as f64);
    Ok(vec![replies / time.as_secs_f64(), used.as_secs_f64() * 1e6 / replies])
}

impl<P: Player> Loop<'_, P> {
    fn run_for(&mut self, time: Duration) -> io::Result<()> {
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            let count = self.clients.wait_for_some()?;
            for n in 0..count {
                let (client, _) = self.clients.ready(n);
                self.hear(client)?;
            }
        }
        Ok(())
    }

    fn hear(&mut self, client: usize) -> io::Result<()> {
        let talk = &mut self.talks[client];
        let received = self.clients.receive(client)?;
        let joined = if talk.partial.is_empty() { Vec::new() } else { [&talk.partial, received].concat() };
        let mut rest = if joined.is_empty() { received } else { &joined };
        while let Some(len) = self.protocol.len(rest) {
            let (reply, further) = rest.split_at(len);
            if !self.player.hear(client, reply) {
                return Err(io::Error::other(format!("unexpected reply: {}", reply.escape_ascii())));
            }
            self.replies += 1;
            talk.awaited -= 1;
            rest = further;
        }
        talk.partial = rest.to_vec();
        if talk.awaited == 0 { self.speak(client) } else { Ok(()) }
    }

    fn speak(&mut self, client: usize) -> io::Result<()> {
        self.requests.clear();
        self.talks[client].awaited = self.player.speak(client, &mut self.requests);
        self.clients.send(client, &self.requests)
    }
}
