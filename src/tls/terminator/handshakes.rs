//! Connections that have not finished their handshakes.

use poolcounter_core::{ConnId, Queue, SideTable};
use std::collections::BTreeSet;

/// Most bytes that unfinished handshakes hold together: certificates of thousands of clients that begin at once.
const MOST_BYTES: usize = 32 << 20;

/// Queues of connections whose handshake is not finished.
#[derive(Default)]
pub struct Handshakes {
    /// All handshakes, the oldest first.
    pub all: Queue<ConnId>,
    /// Handshakes that have a turn to come.
    pub turns: Queue<ConnId>,
    /// Bytes that each handshake holds, if any, and the same in order.
    bytes: SideTable<ConnId, usize>,
    by_bytes: BTreeSet<(usize, ConnId)>,
    /// Sum of these bytes.
    all_bytes: usize,
}

impl Handshakes {
    /// Removes a connection. Returns whether it had a turn to come.
    pub fn end(&mut self, id: ConnId) -> bool {
        self.all.remove(id);
        self.note_bytes(id, 0);
        let has_turn = self.turns.contains(id);
        self.turns.remove(id);
        has_turn
    }

    /// Notes the number of bytes that a handshake holds.
    pub fn note_bytes(&mut self, id: ConnId, bytes: usize) {
        let before = std::mem::replace(self.bytes.get_mut(id), bytes);
        self.all_bytes = self.all_bytes + bytes - before;
        self.by_bytes.remove(&(before, id));
        if bytes > 0 {
            self.by_bytes.insert((bytes, id));
        }
    }

    /// Returns the handshake that holds most bytes, if all together hold more than [`MOST_BYTES`].
    pub fn largest_beyond(&self) -> Option<ConnId> {
        let (_, largest) = self.by_bytes.last()?;
        (self.all_bytes > MOST_BYTES).then_some(*largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_core::id::Id;

    #[test]
    fn handshakes_with_most_bytes_end_first() {
        let mut handshakes = Handshakes::default();
        let large = 64 << 10;
        for index in 0..1000 {
            let id = ConnId::from_index(index);
            handshakes.all.push_back(id);
            handshakes.note_bytes(id, 1);
            handshakes.note_bytes(id, if index % 2 == 0 { large + index } else { 2000 });
            while let Some(largest) = handshakes.largest_beyond() {
                assert_eq!(largest, id, "the last one is the largest");
                handshakes.end(largest);
            }
            assert!(handshakes.all_bytes <= MOST_BYTES);
        }
        assert!((900..1000).contains(&handshakes.all.len()), "{}", handshakes.all.len());
        while let Some(id) = handshakes.all.front() {
            handshakes.end(id);
        }
        assert!(
            handshakes.all_bytes == 0
                && handshakes.by_bytes.is_empty()
                && handshakes.bytes.iter().all(|(_, bytes)| *bytes == 0)
        );
    }
}
