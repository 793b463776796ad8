//! Ids of the tables of the state, numbers that are given out, and orders by them.

use poolcounter_core::count::first_before;
use poolcounter_core::id::id;
use std::collections::{BTreeMap, BTreeSet};

id! {
    /// Id of a tube.
    TubeId
}
id! {
    /// Id of the ready jobs of one tube that belong to one group, or to none.
    BucketId
}
id! {
    /// Id of a group of jobs.
    GroupId
}
id! {
    /// Id of a limit of several tubes together, or of a group.
    GateId
}
id! {
    /// Id of the tubes that the same limits hold back.
    LaneId
}
id! {
    /// Id of a name or a pattern that connections watch.
    FeedId
}
id! {
    /// Id of a set of watches.
    SetId
}
id! {
    /// Id of a root job.
    RootId
}
id! {
    /// Id of a command under way that goes through many tubes or jobs.
    SweepId
}

/// Numbers that are given out in order, each once.
pub(super) struct Serials(u64);

impl Default for Serials {
    fn default() -> Self {
        Serials(first_before(u32::MAX.into()))
    }
}

impl Serials {
    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// Things in the order of their tickets, each once.
#[derive(Default)]
pub(super) struct Tickets<T> {
    order: BTreeSet<(u64, T)>,
    of: BTreeMap<T, u64>,
}

impl<T: Ord + Copy> Tickets<T> {
    /// Gives a thing this ticket.
    pub fn set(&mut self, id: T, ticket: u64) {
        self.remove(id);
        self.of.insert(id, ticket);
        self.order.insert((ticket, id));
    }

    /// Removes a thing, if it is there.
    pub fn remove(&mut self, id: T) {
        if let Some(ticket) = self.of.remove(&id) {
            self.order.remove(&(ticket, id));
        }
    }

    /// Returns the ticket of a thing, if it is there.
    pub fn of(&self, id: T) -> Option<u64> {
        self.of.get(&id).copied()
    }

    /// Returns the first.
    pub fn first(&self) -> Option<T> {
        self.order.first().map(|(_, id)| *id)
    }

    /// Returns the number of things.
    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// Compares the order with the tickets.
    pub fn check(&self) {
        let is_in_order = |(id, ticket): (&T, &u64)| self.order.contains(&(*ticket, *id));
        assert!(self.order.len() == self.of.len() && self.of.iter().all(is_in_order), "each thing has one ticket");
    }
}
