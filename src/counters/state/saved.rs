//! Handover format of the counters: written by a process that is replaced, read by its successor. It is independent of
//! the tables, so that these can change. The format cannot change without another version.
//!
//! There may be millions of counters, and no client is served while they are written. So they are packed by hand into
//! [`block`]s, and each keeps its slot in the table. The successor takes the blocks as they are, and reads them in
//! slices ([`loading`](super::loading)).

pub(super) mod block;

use super::{Counter, CounterId, CountersState, CountersStep, Holdings, Names};
use block::{CounterReader, CounterWriter, HoldingReader, PackedCounter, put_holdings};
use poolcounter_core::record::BlockWriter;
use poolcounter_core::{Id, Reader, Span, Unreadable, Writer};
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::io;

/// First record: statistics, and the sizes of the counters and holdings that follow.
#[derive(Serialize, Deserialize)]
pub(super) struct CountersHead {
    pub figures: Vec<(String, u64)>,
    pub conflicts: u64,
    /// Interval in which it was saved, and the length of intervals.
    pub interval: (u32, Span),
    /// Number of counters, including expired counters, and number of slots of the table.
    pub counters: usize,
    pub slots: usize,
}

impl CountersState {
    /// Writes the whole state, but for expired counters that wait for the sweep, and holdings of closed connections.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be written.
    pub fn save(&self, out: &mut Writer<'_>) -> io::Result<()> {
        out.put(&CountersHead {
            figures: self.figures.save(),
            conflicts: self.conflicts.get(),
            interval: (self.interval, self.settings.interval),
            counters: self.counters.len(),
            slots: self.slots,
        })?;
        let mut counters = CounterWriter::default();
        for (slot, counter) in &self.counters {
            let levels = counter.levels();
            if !levels.is_expired(self.interval) {
                let peak = levels.has_changed(self.interval).then(|| levels.peak(self.interval));
                let is_used = levels.is_used(self.interval);
                counters.put(out, &PackedCounter { slot, name: counter.name(), peak, is_used })?;
            }
        }
        counters.blocks.end(out)?;
        let mut holdings = BlockWriter::default();
        for (conn, client) in self.clients.iter() {
            put_holdings(&mut holdings, out, conn, client.len(), client.iter())?;
        }
        holdings.end(out)
    }

    /// Fails if [`CountersState::restore`] would: everything is read, and room is made for it; only the packed
    /// form is kept meanwhile.
    ///
    /// # Errors
    ///
    /// The errors of [`CountersState::restore`], and two counters of one name, which no process has.
    pub fn rehearse(&mut self, saved: &mut Reader<'_>, step: &mut CountersStep<'_>) -> Result<(), Unreadable> {
        let head: CountersHead = saved.take()?;
        self.restore_interval(head.interval, step);
        // At least as much room as the tables take.
        let (mut counters, mut names) = (Vec::<(Counter, usize)>::new(), Names::<CounterId>::with_capacity(0));
        let has_room = counters.try_reserve_exact(head.slots).is_ok()
            && names.try_reserve(head.counters.max(self.settings.buckets)).is_ok();
        if !has_room {
            return Err(Unreadable("counters: there is no room for so many".into()));
        }
        let (mut consumptions, mut is_there) = (vec![0; head.slots], vec![0_u64; head.slots.div_ceil(64)]);
        let mut hashes = Vec::new();
        let mut packed = CounterReader::new(saved.keep_blocks()?, head.slots);
        while let Some(counter) = packed.next()? {
            is_there[counter.slot / 64] |= 1 << (counter.slot % 64);
            hashes.push(self.names.hash(counter.name).0);
        }
        // Two of a million names have the same hash once in 37 million times.
        hashes.sort_unstable();
        if !hashes.is_sorted_by(|hash, next| hash < next) {
            return Err(Unreadable("counters: two have the same name".into()));
        }
        let mut last = 0;
        let mut packed = HoldingReader::new(saved.keep_blocks()?, head.slots);
        while let Some((conn, holdings)) = packed.next_client()? {
            last = conn.index();
            for _ in 0..holdings {
                let (id, resources) = packed.next()?;
                // The packed form names only slots of the table.
                if is_there[id.index() / 64] >> (id.index() % 64) & 1 == 0 {
                    return Err(contradiction());
                }
                let consumption = &mut consumptions[id.index()];
                *consumption = add(*consumption, resources).ok_or_else(contradiction)?;
            }
        }
        let room = Vec::<Holdings>::new().try_reserve_exact(last + 1);
        room.map_err(|_| Unreadable("counters: there is no connection of so high a number".into()))
    }

    /// Sets the interval. If intervals have another length now, or the date has been put back, all used counters count
    /// as used in the present one.
    pub(super) fn restore_interval(&mut self, (number, length): (u32, Span), step: &CountersStep<'_>) {
        let (present, _) = self.interval_at(step);
        self.interval = if length == self.settings.interval { number.min(present) } else { present };
    }

    pub(super) fn make_room_for(&mut self, counters: usize, slots: usize) {
        // A free slot at the end costs only its room.
        self.counters = Slab::with_capacity(slots);
        if counters > 0 {
            self.names.reserve(self.settings.buckets.max(counters));
        }
    }

    /// Adds a counter without held units at the next slot of the table, which is this one.
    pub(super) fn restore_counter(&mut self, slot: usize, counter: Counter) {
        let hashing = self.names.hashing();
        let (id, hash) = (CounterId::from_index(slot), hashing.hash(counter.name()));
        self.name_bytes += counter.name().len() as u64;
        // An expired counter gets its units back, unless its holder's connection had ended.
        self.idle.restore(id, counter.name(), counter.levels().is_expired(self.interval));
        self.counters.insert(counter);
        self.names.insert(hash, id, |id| hashing.hash(self.counters[id.index()].name()));
    }

    /// Adds the units of a holding to their counter.
    pub(super) fn add_consumption(&mut self, id: CounterId, resources: u32) -> Result<(), Unreadable> {
        let counter = self.counters.get_mut(id.index()).ok_or_else(contradiction)?;
        let consumption = add(counter.levels().consumption(), resources).ok_or_else(contradiction)?;
        counter.levels_mut().restore(consumption);
        self.note_if_idle(id);
        Ok(())
    }

    /// Begins to count time, once all tables are complete.
    pub(super) fn finish_restore(&mut self, step: &mut CountersStep<'_>) {
        self.slots = self.counters.iter().next_back().map_or(0, |(slot, _)| slot + 1);
        self.roll_interval(step);
        self.arm(step);
    }
}

/// Returns the consumption with one more holding; None if no process can have saved that.
fn add(consumption: u32, resources: u32) -> Option<u32> {
    consumption.checked_add(resources).filter(|_| resources > 0)
}

fn contradiction() -> Unreadable {
    Unreadable("counters: a connection holds more than there is".into())
}
