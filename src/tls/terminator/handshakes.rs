//! Connections that have not finished their handshakes.

use poolcounter_core::id::ConnId;
use poolcounter_core::list::{Links, List};

/// Queues of connections whose handshake is not finished.
#[derive(Default)]
pub struct Handshakes {
    /// All handshakes, the oldest first.
    all: List<ConnId>,
    links: Links,
    /// Handshakes that have a turn to come.
    turns: List<ConnId>,
    turn_links: Links,
}

impl Handshakes {
    /// Returns the number of handshakes.
    pub fn len(&self) -> usize {
        self.all.len() as usize
    }

    /// Returns the connection that was accepted first.
    pub fn oldest(&self) -> Option<ConnId> {
        self.all.front()
    }

    /// Adds a newly accepted connection.
    pub fn begin(&mut self, id: ConnId) {
        self.all.push_back(&mut self.links, id);
    }

    /// Removes a connection. Returns whether it had a turn to come.
    pub fn end(&mut self, id: ConnId) -> bool {
        self.all.remove(&mut self.links, id);
        let has_turn = self.turn_links.is_linked(id);
        if has_turn {
            self.turns.remove(&mut self.turn_links, id);
        }
        has_turn
    }

    /// Queues a turn of a connection that has none to come.
    pub fn queue(&mut self, id: ConnId) {
        self.turns.push_back(&mut self.turn_links, id);
    }

    /// Returns whether any has a turn to come.
    pub fn has_turns(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Removes and returns the next connection with a turn to come.
    pub fn next_turn(&mut self) -> Option<ConnId> {
        self.turns.pop_front(&mut self.turn_links)
    }
}
