//! The connections that have not finished their handshakes.

use poolcounter_core::id::ConnId;
use poolcounter_core::list::{Links, List};

/// Two queues of them.
#[derive(Default)]
pub struct Handshakes {
    /// All, the oldest first.
    all: List<ConnId>,
    links: Links,
    /// Entries with a turn to come.
    turns: List<ConnId>,
    turn_links: Links,
}

impl Handshakes {
    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.all.len() as usize
    }

    /// Returns the one that was accepted first.
    pub fn oldest(&self) -> Option<ConnId> {
        self.all.front()
    }

    /// Adds one that was accepted.
    pub fn begin(&mut self, id: ConnId) {
        self.all.push_back(&mut self.links, id);
    }

    /// Removes one. Returns whether it had a turn to come.
    pub fn end(&mut self, id: ConnId) -> bool {
        self.all.remove(&mut self.links, id);
        let has_turn = self.turn_links.is_linked(id);
        if has_turn {
            self.turns.remove(&mut self.turn_links, id);
        }
        has_turn
    }

    /// Gives one a turn, which has none to come.
    pub fn queue(&mut self, id: ConnId) {
        self.turns.push_back(&mut self.turn_links, id);
    }

    /// Returns whether one has a turn to come.
    pub fn has_turns(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Removes and returns the next that has a turn to come.
    pub fn next_turn(&mut self) -> Option<ConnId> {
        self.turns.pop_front(&mut self.turn_links)
    }
}
