//! Counters without held units. They are kept for their peaks, and forgotten when their memory is needed.

use super::{CounterId, CountersState, CountersStep, bytes_of};
use poolcounter_core::{Id, Queue};

/// Most counters that one request forgets: less than a millisecond's work. A request needs the memory of at most 1,010,
/// as names have 1 to 65,535 bytes; it needs more only after a restart with less memory.
const FORGOTTEN_AT_ONCE: usize = 1024;

/// Queue of counters, the one longest unused first, and their memory. After a restore it begins in the order of the
/// table, with expired counters first.
#[derive(Default)]
pub(super) struct Idle {
    pub queue: Queue<CounterId>,
    pub bytes: u64,
}

impl Idle {
    /// Appends a counter, unless it is queued.
    pub fn add(&mut self, id: CounterId, name: &[u8]) {
        if !self.queue.contains(id) {
            self.queue.push_back(id);
            self.bytes += bytes_of(name);
        }
    }

    /// Adds a counter of another process.
    pub fn restore(&mut self, id: CounterId, name: &[u8], is_expired: bool) {
        match is_expired {
            true => self.queue.push_front(id),
            false => self.queue.push_back(id),
        }
        self.bytes += bytes_of(name);
    }

    /// Removes a counter, if it is queued.
    pub fn remove(&mut self, id: CounterId, name: &[u8]) {
        if self.queue.contains(id) {
            self.queue.remove(id);
            self.bytes -= bytes_of(name);
        }
    }
}

impl CountersState {
    /// Adds a counter to the queue or removes it, after a change of its held units.
    #[inline(always)]
    pub(super) fn note_if_idle(&mut self, id: CounterId) {
        let counter = &self.counters[id.index()];
        match counter.levels().consumption() {
            0 => self.idle.add(id, counter.name()),
            _ => self.idle.remove(id, counter.name()),
        }
    }

    /// Makes room for `bytes` by forgetting idle counters other than `wanted`, which is about to be used. Returns
    /// false, and forgets none, if the held counters leave too little.
    pub(super) fn make_room(&mut self, bytes: u64, wanted: Option<CounterId>, step: &mut CountersStep<'_>) -> bool {
        if bytes == 0 || self.used_memory() + bytes <= self.settings.max_memory {
            return true;
        }
        let is_idle = |id: &CounterId| self.counters[id.index()].levels().consumption() == 0;
        let wanted = wanted.filter(is_idle);
        let wanted_bytes = wanted.map_or(0, |id| bytes_of(self.counters[id.index()].name()));
        if self.used_memory() - self.idle.bytes + wanted_bytes + bytes > self.settings.max_memory {
            return false;
        }
        wanted.into_iter().for_each(|id| self.idle.remove(id, self.counters[id.index()].name()));
        for _ in 0..FORGOTTEN_AT_ONCE {
            let Some(first) = self.idle.queue.front() else { break };
            if self.used_memory() + bytes <= self.settings.max_memory {
                break;
            }
            self.forget(first, step);
        }
        true
    }
}
