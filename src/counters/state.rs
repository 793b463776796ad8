//! Who holds how much of which counter. A pure state machine: it knows no bytes of the protocol, no sockets and no clock.
//!
//! A request is answered at once and to whoever made it, so it is a function with a result; nothing is said to others.
//!
//! Time is cut into intervals. A counter that nobody holds stays until the interval in which it was last used is over, and
//! then it is as if it were gone; a sweep, a bounded part of the table at a time, makes it so.

mod check;
mod holdings;
mod saved;

pub use saved::Saved;

use crate::id::{ConnId, Id, id};
use crate::names::Names;
use crate::stats::{Counters as Stat, Figures};
use crate::time::{Span, Time};
use crate::wheel::{TimerId, Timers};
use holdings::Holdings;
use slab::Slab;
use std::cell::Cell;

/// A request for units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acquire<'a> {
    /// Of the counter with this name; not empty.
    pub name: &'a [u8],
    /// How many; at least one.
    pub resources: u32,
    /// How many all may hold together afterwards; not less than `resources`.
    pub maximum: u32,
}

/// Units that come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Release<'a> {
    /// To the counter with this name; not empty.
    pub name: &'a [u8],
    /// How many. To give back nothing succeeds for whoever holds something.
    pub resources: u32,
}

/// Why a request does not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// There is no such counter.
    NotFound,
    /// The others hold too much.
    NotAvailable,
    /// The connection holds less than it would give back.
    NotAcquired,
    /// The counters take as much memory as they may.
    OutOfMemory,
}

/// A counter as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// How much of it is held.
    pub consumption: u32,
    /// The most that was held at a time in this interval.
    pub peak: u32,
}

/// What the operator allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// For how many counters room is made when the first one comes.
    pub buckets: usize,
    /// The length of an interval. Intervals begin at whole multiples of it since 1970.
    pub interval: Span,
    /// How many bytes counters and holdings may take, reckoned as [`COUNTER_BYTES`] and [`HOLDING_BYTES`] each, and the names.
    pub max_memory: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { buckets: 1_000_000, interval: Span::from_secs(86_400), max_memory: 1 << 30 }
    }
}

/// What a counter takes in memory besides its name, in bytes: its entry and its place in the index, with room to grow.
pub const COUNTER_BYTES: u64 = 64;
/// What a connection's holding of one counter takes in memory, in bytes.
pub const HOLDING_BYTES: u64 = 32;

/// One step of the state machine: when it happens.
pub struct Step<'a, 'w> {
    /// The time of the step.
    pub now: Time,
    /// The time of day at [`Time::START`], since 1970.
    pub epoch: Span,
    /// The timers of the counters: one, of the sweep.
    pub timers: &'a mut Timers<'w>,
}

id! { CounterId }

/// How many places in the table a sweep looks at before others have their turn: a fraction of a millisecond.
const SWEEP_SLOTS: usize = 4096;
/// When the sweep goes on.
const SWEEP_PAUSE: Span = Span::from_millis(1);
/// What the timer is armed for: there is but one.
const SWEEP: usize = 0;

struct Counter {
    name: Box<[u8]>,
    consumption: u32,
    /// The highest consumption in the interval `peak_in`.
    peak: u32,
    peak_in: u32,
    /// The interval of the last successful request.
    used_in: u32,
}

/// A sweep that is under way.
struct Sweep {
    /// The first place in the table that it has not looked at.
    next: usize,
    began: Time,
}

/// All counters, and what each connection holds of them.
pub struct State {
    limits: Limits,
    names: Names<CounterId>,
    counters: Slab<Counter>,
    /// No counter has an index as high as this.
    slots: usize,
    name_bytes: u64,
    /// What each connection holds.
    clients: Vec<Holdings>,
    holdings: u64,
    /// The number of the interval that the table was last used in.
    interval: u32,
    sweep: Option<Sweep>,
    /// Armed while there are counters, for the end of the interval or for the rest of the sweep.
    timer: Option<TimerId>,
    conflicts: Cell<u64>,
    figures: Figures<Stat>,
}

impl State {
    /// No counters.
    pub fn new(limits: Limits) -> Self {
        State {
            limits,
            names: Names::with_capacity(0),
            counters: Slab::new(),
            slots: 0,
            name_bytes: 0,
            clients: Vec::new(),
            holdings: 0,
            interval: 0,
            sweep: None,
            timer: None,
            conflicts: Cell::new(0),
            figures: Figures::default(),
        }
    }

    /// The consumption of a counter.
    ///
    /// # Errors
    ///
    /// When there is no such counter.
    pub fn get(&mut self, name: &[u8], step: &mut Step<'_, '_>) -> Result<u32, Refusal> {
        self.turn(step);
        let id = self.find(name, step).ok_or(Refusal::NotFound)?;
        Ok(self.counters[id.index()].consumption)
    }

    /// Takes units for a connection, and tells how many. A counter that nobody has asked for yet is made.
    ///
    /// # Errors
    ///
    /// When the others hold too much, or there is no memory for it.
    pub fn acquire(&mut self, conn: ConnId, request: Acquire<'_>, step: &mut Step<'_, '_>) -> Result<u32, Refusal> {
        self.turn(step);
        let known = self.find(request.name, step);
        let consumption = known.map_or(0, |id| self.counters[id.index()].consumption);
        let wanted = u64::from(consumption) + u64::from(request.resources);
        let consumption = u32::try_from(wanted).ok().filter(|wanted| *wanted <= request.maximum);
        let consumption = consumption.ok_or(Refusal::NotAvailable)?;
        let held = known.map_or(0, |id| self.held(conn, id));
        let new_counter = if known.is_none() { COUNTER_BYTES + request.name.len() as u64 } else { 0 };
        let new_holding = if held == 0 { HOLDING_BYTES } else { 0 };
        if self.used_memory() + new_counter + new_holding > self.limits.max_memory {
            return Err(Refusal::OutOfMemory);
        }
        let id = known.unwrap_or_else(|| self.create(request.name, step));
        // Lossless: what one holds is a part of what all hold.
        self.hold(conn, id, held + request.resources);
        self.counters[id.index()].change(consumption, self.interval);
        self.counters[id.index()].used_in = self.interval;
        Ok(request.resources)
    }

    /// Gives units of a connection back.
    ///
    /// # Errors
    ///
    /// When there is no such counter, or the connection holds less of it.
    pub fn release(&mut self, conn: ConnId, request: Release<'_>, step: &mut Step<'_, '_>) -> Result<(), Refusal> {
        self.turn(step);
        let id = self.find(request.name, step).ok_or(Refusal::NotFound)?;
        let held = self.held(conn, id);
        if held == 0 || held < request.resources {
            return Err(Refusal::NotAcquired);
        }
        self.hold(conn, id, held - request.resources);
        let counter = &mut self.counters[id.index()];
        counter.change(counter.consumption - request.resources, self.interval);
        counter.used_in = self.interval;
        Ok(())
    }

    /// The connection is gone: gives back all that it holds.
    pub fn close(&mut self, conn: ConnId, step: &mut Step<'_, '_>) {
        let Some(holdings) = self.clients.get_mut(conn.index()).map(std::mem::take) else { return };
        self.turn(step);
        for (id, resources) in holdings.iter() {
            self.holdings -= 1;
            let counter = &mut self.counters[id.index()];
            counter.change(counter.consumption - resources, self.interval);
            self.drop_if_over(id, step);
        }
    }

    /// The timer is due: the interval is over, or a sweep goes on.
    pub fn expire(&mut self, key: usize, step: &mut Step<'_, '_>) {
        debug_assert_eq!(key, SWEEP, "there is no other timer");
        self.timer.take().into_iter().for_each(TimerId::fired);
        if !self.turn(step) {
            self.go_on_with_sweep(step);
        }
        self.arm(step);
    }

    /// The counter in a place of the table, if there is one. All of them are found in the places below [`State::slots`].
    pub fn record(&self, slot: usize) -> Option<Record<'_>> {
        let counter = self.counters.get(slot).filter(|counter| !counter.is_over(self.interval))?;
        let Counter { consumption, peak, peak_in, .. } = *counter;
        let peak = if peak_in == self.interval { peak } else { consumption };
        Some(Record { name: &counter.name, consumption, peak })
    }

    /// How many places of the table may have a counter.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Notes a well-formed request.
    pub fn count(&mut self, command: Stat) {
        self.figures.count(command);
    }

    /// What was counted, with the levels as they are now. What happens below the protocol is not known here.
    pub fn figures(&self) -> Figures<Stat> {
        let mut figures = self.figures.clone();
        figures.set(Stat::Objects, self.counters.len() as u64);
        figures.set(Stat::UsedMemory, self.used_memory());
        figures.set(Stat::Conflicts, self.conflicts.get());
        figures
    }

    /// Whether there is no counter.
    pub fn is_empty(&self) -> bool {
        self.counters.is_empty() && self.names.is_empty() && self.holdings == 0 && self.timer.is_none()
    }

    /// Comes to the present: when another interval has begun, what is over is swept out. Tells whether it has.
    pub fn turn(&mut self, step: &mut Step<'_, '_>) -> bool {
        let interval = self.interval_at(step);
        if interval == self.interval {
            return false;
        }
        self.interval = interval;
        self.sweep = (!self.counters.is_empty()).then_some(Sweep { next: 0, began: step.now });
        self.go_on_with_sweep(step);
        true
    }

    fn go_on_with_sweep(&mut self, step: &mut Step<'_, '_>) {
        let Some(Sweep { next, began }) = self.sweep.take() else { return };
        let end = self.slots.min(next + SWEEP_SLOTS);
        for slot in next..end {
            if self.counters.contains(slot) {
                self.drop_if_over(CounterId::from_index(slot), step);
            }
        }
        if end < self.slots {
            self.sweep = Some(Sweep { next: end, began });
        } else {
            self.end_sweep(began, step.now);
        }
    }

    fn end_sweep(&mut self, began: Time, now: Time) {
        let elapsed = now.since(began);
        self.figures.count(Stat::GcCount);
        self.figures.set(Stat::LastGcElapsed, elapsed.as_micros());
        self.figures.add(Stat::TotalGcElapsed, elapsed);
    }

    fn find(&mut self, name: &[u8], step: &mut Step<'_, '_>) -> Option<CounterId> {
        let is_named = |id: CounterId| {
            let same = *self.counters[id.index()].name == *name;
            self.conflicts.set(self.conflicts.get() + u64::from(!same));
            same
        };
        let id = self.names.find(self.names.hash(name), is_named)?;
        (!self.drop_if_over(id, step)).then_some(id)
    }

    fn create(&mut self, name: &[u8], step: &mut Step<'_, '_>) -> CounterId {
        if self.counters.capacity() == 0 {
            self.names.reserve(self.limits.buckets);
        }
        let counter =
            Counter { name: name.into(), consumption: 0, peak: 0, peak_in: self.interval, used_in: self.interval };
        let id = CounterId::from_index(self.counters.insert(counter));
        let hashing = self.names.hashing();
        self.names.insert(hashing.hash(name), id, |id| hashing.hash(&self.counters[id.index()].name));
        self.slots = self.slots.max(id.index() + 1);
        self.name_bytes += name.len() as u64;
        self.figures.count(Stat::TotalObjects);
        self.arm(step);
        id
    }

    /// Whether the counter is gone, because nobody has used it in this interval.
    fn drop_if_over(&mut self, id: CounterId, step: &mut Step<'_, '_>) -> bool {
        if !self.counters[id.index()].is_over(self.interval) {
            return false;
        }
        let Counter { name, .. } = self.counters.remove(id.index());
        self.names.remove(self.names.hash(&name), id);
        self.name_bytes -= name.len() as u64;
        if self.counters.is_empty() {
            self.slots = 0;
            self.sweep.take().into_iter().for_each(|sweep| self.end_sweep(sweep.began, step.now));
            self.timer.take().into_iter().for_each(|timer| step.timers.cancel(timer));
        }
        true
    }

    /// Has the timer wake us when the sweep is to go on, or the next to begin.
    fn arm(&mut self, step: &mut Step<'_, '_>) {
        if self.timer.is_some() || self.counters.is_empty() {
            return;
        }
        let interval = self.limits.interval.as_micros();
        let into_interval = (step.epoch + step.now.since(Time::START)).as_micros() % interval;
        let pause = if self.sweep.is_some() { SWEEP_PAUSE } else { Span::from_micros(interval - into_interval) };
        self.timer = Some(step.timers.arm(step.now + pause, CounterId::from_index(SWEEP)));
    }

    fn interval_at(&self, step: &Step<'_, '_>) -> u32 {
        let time_of_day = step.epoch + step.now.since(Time::START);
        let number = time_of_day.as_micros() / self.limits.interval.as_micros();
        u32::try_from(number).expect("intervals of ten seconds have numbers as short until the year 3331")
    }

    fn held(&self, conn: ConnId, id: CounterId) -> u32 {
        self.clients.get(conn.index()).map_or(0, |holdings| holdings.of(id))
    }

    /// Sets what a connection holds of a counter.
    fn hold(&mut self, conn: ConnId, id: CounterId, resources: u32) {
        if self.clients.len() <= conn.index() {
            self.clients.resize_with(conn.index() + 1, Holdings::default);
        }
        let had = self.clients[conn.index()].set(id, resources);
        self.holdings += u64::from(resources > 0);
        self.holdings -= u64::from(had);
    }

    fn used_memory(&self) -> u64 {
        self.counters.len() as u64 * COUNTER_BYTES + self.name_bytes + self.holdings * HOLDING_BYTES
    }
}

impl Counter {
    /// Nobody holds it, and nobody has used it in this interval.
    fn is_over(&self, interval: u32) -> bool {
        self.consumption == 0 && self.used_in != interval
    }

    fn change(&mut self, consumption: u32, interval: u32) {
        if self.peak_in != interval {
            self.peak_in = interval;
            self.peak = self.consumption;
        }
        self.consumption = consumption;
        self.peak = self.peak.max(consumption);
    }
}
