//! What of the counters outlives the process: written by one that ends, read by the one that takes over.
//! It is independent of the tables, so that these can change. What is written here cannot, without a new version of the handover.

use super::{Counter, CounterId, State, Step};
use crate::id::{ConnId, Id};
use crate::service::Unreadable;
use crate::time::Span;
use serde::{Deserialize, Serialize};

/// All counters, and what was counted.
#[derive(Serialize, Deserialize)]
pub struct Saved {
    figures: Vec<(String, u64)>,
    conflicts: u64,
    /// The interval in which it was saved, and the length of intervals.
    interval: (u32, Span),
    counters: Vec<SavedCounter>,
    holdings: Vec<SavedHolding>,
}

#[derive(Serialize, Deserialize)]
struct SavedCounter {
    name: Vec<u8>,
    /// The highest consumption in the interval, if it changed in it.
    peak: Option<u32>,
    is_used: bool,
}

#[derive(Serialize, Deserialize)]
struct SavedHolding {
    conn: ConnId,
    /// Its place among the saved counters.
    counter: u32,
    resources: u32,
}

impl State {
    /// Everything, but for counters that are over and only wait for the sweep. The others keep their order. What those held
    /// who are gone is not held any more.
    pub fn save(&self) -> Saved {
        let counters = self.going_on().map(|(_, counter)| SavedCounter {
            name: counter.name().to_vec(),
            peak: counter.levels().has_changed(self.interval).then(|| counter.levels().peak(self.interval)),
            is_used: counter.levels().is_used(self.interval),
        });
        let ranks = self.ranks();
        let clients = self.clients.iter().enumerate().map(|(index, client)| (ConnId::from_index(index), client));
        let holdings = clients.flat_map(|(conn, client)| {
            let ranks = &ranks;
            client.iter().map(move |(id, resources)| SavedHolding { conn, counter: ranks[id.index()], resources })
        });
        Saved {
            figures: self.figures.save(),
            conflicts: self.conflicts.get(),
            interval: (self.interval, self.limits.interval),
            counters: counters.collect(),
            holdings: holdings.collect(),
        }
    }

    /// By place, and for the first one that can have no counter: where the next counter is after [`State::restore`].
    pub fn ranks(&self) -> Vec<u32> {
        let mut ranks = vec![0; self.slots + 1];
        for (rank, (index, _)) in self.going_on().enumerate() {
            ranks[index + 1] = rank as u32 + 1;
        }
        for slot in 1..ranks.len() {
            ranks[slot] = ranks[slot].max(ranks[slot - 1]);
        }
        ranks
    }

    fn going_on(&self) -> impl Iterator<Item = (usize, &Counter)> {
        self.counters.iter().filter(|(_, counter)| !counter.levels().is_over(self.interval))
    }

    /// Goes on from what another process saved.
    ///
    /// # Errors
    ///
    /// When it contradicts itself.
    pub fn restore(&mut self, saved: Saved, step: &mut Step<'_>) -> Result<(), Unreadable> {
        let (number, length) = saved.interval;
        // Where intervals are longer or shorter now than they were, or where the date has been put back, everything that was
        // used counts as used in this one.
        let (present, _) = self.interval_at(step);
        self.interval = if length == self.limits.interval { number.min(present) } else { present };
        for SavedCounter { name, peak, is_used } in saved.counters {
            let is_there = |id: CounterId| *self.counters[id.index()].name() == *name;
            if self.names.find(self.names.hash(&name), is_there).is_some() {
                return Err(Unreadable("counters: a name stands there twice".into()));
            }
            self.create(Counter::restored(&name, peak, is_used, self.interval), step);
        }
        for SavedHolding { conn, counter, resources } in saved.holdings {
            self.restore_holding(conn, CounterId::from_index(counter as usize), resources)?;
        }
        self.figures.restore(&saved.figures);
        self.conflicts.set(saved.conflicts);
        // The timer waits for the interval's end, but the sweep of the one before may go on.
        self.turn(step);
        self.timer.take().into_iter().for_each(|timer| step.timers.cancel(timer));
        self.arm(step);
        Ok(())
    }

    fn restore_holding(&mut self, conn: ConnId, id: CounterId, resources: u32) -> Result<(), Unreadable> {
        let wrong = || Unreadable("counters: somebody holds what there is not".into());
        let counter = self.counters.get_mut(id.index()).filter(|_| resources > 0).ok_or_else(wrong)?;
        counter.levels_mut().restore(resources).ok_or_else(wrong)?;
        self.hold(conn, id, resources);
        Ok(())
    }
}
