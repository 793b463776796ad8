//! Who holds how much of which counter. A pure state machine: it knows no bytes of the protocol, no sockets and no clock.
//!
//! A request is answered at once and to whoever made it, so it is a function with a result; nothing is said to others.
//!
//! Time is cut into intervals. A counter that nobody holds stays until the interval in which it was last used is over, and
//! then it is as if it were gone; a sweep, a bounded part of the table at a time, makes it so.

mod check;
mod counter;
mod holdings;
mod saved;
mod sweep;

pub use saved::InOnePiece;

use crate::counters::options::CountersSettings;
use crate::id::{ConnId, Id, id};
use crate::names::Names;
use crate::stats::{Counters as Stat, Figures};
use crate::time::{Span, Time};
use crate::wheel::{TimerId, Timers, timer_keys};
use counter::Counter;
use holdings::Holdings;
use slab::Slab;
use std::cell::Cell;
use std::collections::VecDeque;
use sweep::Sweep;

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

/// What a counter takes in memory besides its name, in bytes: its entry and its place in the index, with room to grow.
pub const COUNTER_BYTES: u64 = 64;
/// What a connection's holding of one counter takes in memory, in bytes.
pub const HOLDING_BYTES: u64 = 32;

/// One step of the state machine: when it happens.
pub struct Step<'w> {
    /// The time of the step.
    pub now: Time,
    /// The time of day at [`Time::START`], since 1970.
    pub epoch: Span,
    /// The timers of the counters.
    pub timers: Timers<'w, Timer>,
}

id! { CounterId }

timer_keys! {
    /// What the counters arm timers for.
    pub enum Timer {
        /// The interval is over, or there is more to sweep or to give back.
        Sweep,
    }
}

/// How many holdings are given back at a time when their connection is gone: a millisecond's work. So the others hardly
/// notice, and even of a million the last is back within a tenth of a second, if the machine has time for it.
const RETURNED_AT_ONCE: usize = 32_768;
/// After so long, another tick has begun: no tick serves longer. What is given back in one is bounded for all together who leave in it.
const LONGEST_TICK: Span = Span::from_millis(10);
/// When work goes on that is more than may be done at once.
const PAUSE: Span = Span::from_millis(1);

/// All counters, and what each connection holds of them.
pub struct State {
    settings: CountersSettings,
    names: Names<CounterId>,
    counters: Slab<Counter>,
    /// No counter has an index as high as this.
    slots: usize,
    name_bytes: u64,
    /// What each connection holds.
    clients: Vec<Holdings>,
    holdings: u64,
    /// What those hold who are gone, until it is given back.
    leaving: VecDeque<Holdings>,
    /// How much more may be given back in this tick.
    returnable: usize,
    /// When that was as much as may be at once.
    returnable_since: Time,
    /// The number of the interval that the table was last used in.
    interval: u32,
    /// When that interval is over.
    interval_end: Time,
    sweep: Option<Sweep>,
    /// Armed while there are counters, for the end of the interval or for the rest of the work.
    timer: Option<TimerId>,
    conflicts: Cell<u64>,
    figures: Figures<Stat>,
}

impl State {
    /// No counters.
    pub fn new(settings: CountersSettings) -> Self {
        State {
            settings,
            names: Names::with_capacity(0),
            counters: Slab::new(),
            slots: 0,
            name_bytes: 0,
            clients: Vec::new(),
            holdings: 0,
            leaving: VecDeque::new(),
            returnable: RETURNED_AT_ONCE,
            returnable_since: Time::START,
            interval: 0,
            interval_end: Time::START,
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
    pub fn get(&mut self, name: &[u8], step: &mut Step<'_>) -> Result<u32, Refusal> {
        self.turn(step);
        let id = self.find(name, step).ok_or(Refusal::NotFound)?;
        Ok(self.counters[id.index()].levels().consumption())
    }

    /// Takes units for a connection, and tells how many. A counter that nobody has asked for yet is made.
    ///
    /// # Errors
    ///
    /// When the others hold too much, or there is no memory for it.
    pub fn acquire(&mut self, conn: ConnId, request: Acquire<'_>, step: &mut Step<'_>) -> Result<u32, Refusal> {
        self.turn(step);
        let known = self.find(request.name, step);
        let consumption = known.map_or(0, |id| self.counters[id.index()].levels().consumption());
        let wanted = u64::from(consumption) + u64::from(request.resources);
        let consumption = u32::try_from(wanted).ok().filter(|wanted| *wanted <= request.maximum);
        let consumption = consumption.ok_or(Refusal::NotAvailable)?;
        let held = known.map_or(0, |id| self.held(conn, id));
        let new_counter = if known.is_none() { COUNTER_BYTES + request.name.len() as u64 } else { 0 };
        let new_holding = if held == 0 { HOLDING_BYTES } else { 0 };
        if self.used_memory() + new_counter + new_holding > self.settings.max_memory {
            return Err(Refusal::OutOfMemory);
        }
        let id = known.unwrap_or_else(|| self.create(Counter::new(request.name, self.interval), step));
        // Lossless: what one holds is a part of what all hold.
        self.hold(conn, id, held + request.resources);
        self.counters[id.index()].levels_mut().change_by_request(consumption, self.interval);
        Ok(request.resources)
    }

    /// Gives units of a connection back.
    ///
    /// # Errors
    ///
    /// When there is no such counter, or the connection holds less of it.
    pub fn release(&mut self, conn: ConnId, request: Release<'_>, step: &mut Step<'_>) -> Result<(), Refusal> {
        self.turn(step);
        let id = self.find(request.name, step).ok_or(Refusal::NotFound)?;
        let held = self.held(conn, id);
        if held == 0 || held < request.resources {
            return Err(Refusal::NotAcquired);
        }
        self.hold(conn, id, held - request.resources);
        let levels = self.counters[id.index()].levels_mut();
        levels.change_by_request(levels.consumption() - request.resources, self.interval);
        Ok(())
    }

    /// The connection is gone: gives back all that it holds.
    pub fn close(&mut self, conn: ConnId, step: &mut Step<'_>) {
        let Some(holdings) = self.clients.get_mut(conn.index()).map(std::mem::take) else { return };
        self.turn(step);
        if holdings.is_empty() {
            return;
        }
        let is_at_work = !self.leaving.is_empty();
        self.leaving.push_back(holdings);
        if step.now.since(self.returnable_since) >= LONGEST_TICK {
            self.begin_to_return(step.now);
        }
        self.give_back(step);
        // Whoever leaves later does not put off what goes on with those before.
        if !is_at_work && !self.leaving.is_empty() {
            self.timer.take().into_iter().for_each(|timer| step.timers.cancel(timer));
            self.arm(step);
        }
    }

    /// From now on as much may be given back as may be in one tick.
    fn begin_to_return(&mut self, now: Time) {
        self.returnable = RETURNED_AT_ONCE;
        self.returnable_since = now;
    }

    /// Gives back what those held who are gone: as much as may be in this tick, by all of them together.
    fn give_back(&mut self, step: &mut Step<'_>) {
        while self.returnable > 0 {
            let Some(holdings) = self.leaving.front_mut() else { return };
            let Some((id, resources)) = holdings.pop() else {
                self.leaving.pop_front();
                continue;
            };
            self.holdings -= 1;
            self.returnable -= 1;
            let levels = self.counters[id.index()].levels_mut();
            levels.change(levels.consumption() - resources, self.interval);
            self.drop_if_over(id, step);
        }
    }

    /// The timer is due: the interval is over, or a sweep or what those held who are gone is to be gone on with.
    pub fn expire(&mut self, Timer::Sweep: Timer, step: &mut Step<'_>) {
        self.timer.take().into_iter().for_each(TimerId::fired);
        if !self.turn(step) {
            self.go_on_with_sweep(step);
        }
        self.begin_to_return(step.now);
        self.give_back(step);
        self.arm(step);
    }

    /// The counter in a place of the table, if there is one. All of them are found in the places below [`State::slots`].
    pub fn record(&self, slot: usize) -> Option<Record<'_>> {
        let counter = self.counters.get(slot).filter(|counter| !counter.levels().is_over(self.interval))?;
        let (consumption, peak) = (counter.levels().consumption(), counter.levels().peak(self.interval));
        Some(Record { name: counter.name(), consumption, peak })
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
    pub fn turn(&mut self, step: &mut Step<'_>) -> bool {
        if step.now < self.interval_end {
            return false;
        }
        let (interval, end) = self.interval_at(step);
        self.interval_end = end;
        if interval == self.interval {
            return false;
        }
        self.interval = interval;
        self.begin_sweep(step);
        true
    }

    fn find(&mut self, name: &[u8], step: &mut Step<'_>) -> Option<CounterId> {
        let is_named = |id: CounterId| {
            let same = *self.counters[id.index()].name() == *name;
            self.conflicts.set(self.conflicts.get() + u64::from(!same));
            same
        };
        let id = self.names.find(self.names.hash(name), is_named)?;
        (!self.drop_if_over(id, step)).then_some(id)
    }

    fn create(&mut self, counter: Counter, step: &mut Step<'_>) -> CounterId {
        if self.counters.capacity() == 0 {
            self.names.reserve(self.settings.buckets);
        }
        self.name_bytes += counter.name().len() as u64;
        let hashing = self.names.hashing();
        let hash = hashing.hash(counter.name());
        let id = CounterId::from_index(self.counters.insert(counter));
        self.names.insert(hash, id, |id| hashing.hash(self.counters[id.index()].name()));
        self.slots = self.slots.max(id.index() + 1);
        self.figures.count(Stat::TotalObjects);
        self.arm(step);
        id
    }

    /// Whether the counter is gone, because nobody has used it in this interval.
    fn drop_if_over(&mut self, id: CounterId, step: &mut Step<'_>) -> bool {
        if !self.counters[id.index()].levels().is_over(self.interval) {
            return false;
        }
        let counter = self.counters.remove(id.index());
        self.names.remove(self.names.hash(counter.name()), id);
        self.name_bytes -= counter.name().len() as u64;
        if self.counters.is_empty() {
            self.slots = 0;
            self.end_sweep(step.now);
            self.timer.take().into_iter().for_each(|timer| step.timers.cancel(timer));
        }
        true
    }

    /// Has the timer wake us when work is to go on, or the next sweep to begin.
    fn arm(&mut self, step: &mut Step<'_>) {
        if self.timer.is_some() || self.counters.is_empty() {
            return;
        }
        let is_at_work = self.sweep.is_some() || !self.leaving.is_empty();
        let due = if is_at_work { step.now + PAUSE } else { self.interval_end };
        self.timer = Some(step.timers.arm(due, Timer::Sweep));
    }

    /// The number of the present interval, and its end.
    fn interval_at(&self, step: &Step<'_>) -> (u32, Time) {
        let interval = self.settings.interval.as_micros();
        let time_of_day = (step.epoch + step.now.since(Time::START)).as_micros();
        // Intervals of ten seconds have numbers of 31 bits until the year 2650. With a date beyond that, the last one never ends.
        let number = (time_of_day / interval).min(u64::from(u32::MAX / 2)) as u32;
        (number, step.now + Span::from_micros(interval - time_of_day % interval))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Reader, Unreadable, Writer};
    use crate::wheel::{Owner, Wheel};

    const OWNER: Owner = Owner(0);

    fn act<R>(state: &mut State, wheel: &mut Wheel, now: Time, act: impl FnOnce(&mut State, &mut Step<'_>) -> R) -> R {
        let done = act(state, &mut Step { now, epoch: Span::from_secs(1_000_000), timers: wheel.of(OWNER) });
        state.check();
        done
    }

    /// One connection holds a unit of each of so many counters, and another of the last one; then the first is gone.
    fn left(counters: usize) -> (State, Wheel) {
        let (mut state, mut wheel) = (State::new(CountersSettings::default()), Wheel::default());
        let [first, second] = [0, 1].map(ConnId::from_index);
        let mut step = Step { now: Time::START, epoch: Span::from_secs(1_000_000), timers: wheel.of(OWNER) };
        for n in 0..counters {
            let name = format!("counter {n}");
            let acquire = Acquire { name: name.as_bytes(), resources: 1, maximum: 10 };
            assert_eq!(state.acquire(first, acquire, &mut step), Ok(1));
            if n == counters - 1 {
                assert_eq!(state.acquire(second, acquire, &mut step), Ok(1));
            }
        }
        act(&mut state, &mut wheel, Time::START, |state, step| state.close(first, step));
        (state, wheel)
    }

    #[test]
    fn very_many_holdings_come_back_bit_by_bit() {
        let (mut state, mut wheel) = left(2 * RETURNED_AT_ONCE);
        assert_eq!(state.holdings, RETURNED_AT_ONCE as u64 + 1);
        let mut turns = 0;
        while !state.leaving.is_empty() {
            let now = wheel.next().expect("somebody goes on with it");
            turns += 1;
            assert_eq!(now, Time::START + Span::from_millis(turns));
            let due = wheel.expire(now).expect("it is due");
            act(&mut state, &mut wheel, now, |state, step| state.expire(due.key(), step));
        }
        assert_eq!((state.holdings, turns), (1, 2));
        // Then nothing is to be done until the interval is over.
        let end = wheel.next().expect("the counters end one day");
        assert!(end > Time::START + Span::from_secs(60));
        act(&mut state, &mut wheel, end, |state, step| state.close(ConnId::from_index(1), step));
        while !state.is_empty() {
            let now = wheel.next().expect("the sweep goes on");
            while let Some(due) = wheel.expire(now) {
                act(&mut state, &mut wheel, now, |state, step| state.expire(due.key(), step));
            }
        }
    }

    /// However many leave in a tick, and whoever leaves meanwhile.
    #[test]
    fn those_who_leave_together_share_a_budget() {
        const EACH: usize = RETURNED_AT_ONCE / 2;
        let (mut state, mut wheel) = (State::new(CountersSettings::default()), Wheel::default());
        let mut step = Step { now: Time::START, epoch: Span::from_secs(1_000_000), timers: wheel.of(OWNER) };
        for n in 0..8 * EACH {
            let acquire = Acquire { name: &(n / 8).to_be_bytes(), resources: 1, maximum: 10 };
            assert_eq!(state.acquire(ConnId::from_index(n % 8), acquire, &mut step), Ok(1));
        }
        (0..7).for_each(|conn| state.close(ConnId::from_index(conn), &mut step));
        assert_eq!(state.holdings as usize, 8 * EACH - RETURNED_AT_ONCE);
        for tick in 1..=3 {
            let now = wheel.next().expect("somebody goes on with it");
            assert_eq!(now, Time::START + Span::from_millis(tick));
            let due = wheel.expire(now).expect("it is due");
            act(&mut state, &mut wheel, now, |state, step| state.expire(due.key(), step));
            act(&mut state, &mut wheel, now, |state, step| state.close(ConnId::from_index(9), step));
            if tick == 1 {
                act(&mut state, &mut wheel, now, |state, step| state.close(ConnId::from_index(7), step));
            }
            let left = 8 * EACH - (tick as usize + 1) * RETURNED_AT_ONCE;
            assert_eq!(state.holdings as usize, left, "{tick}");
        }
    }

    #[test]
    fn whoever_takes_over_holds_nothing_for_those_who_are_gone() {
        let (state, _) = left(2 * RETURNED_AT_ONCE);
        let (mut other, mut wheel) = (State::new(CountersSettings::default()), Wheel::default());
        let mut saved = Vec::new();
        state.save(&mut Writer::new(&mut saved)).expect("memory takes all");
        let mut trial = State::new(CountersSettings::default());
        let read =
            |state: &mut State, wheel: &mut Wheel, restore: fn(&mut State, &mut Reader<'_>, &mut Step<'_>) -> _| {
                act(state, wheel, Time::START, |state, step| restore(state, &mut Reader::new(&mut &saved[..]), step))
            };
        assert_eq!(read(&mut trial, &mut Wheel::default(), State::rehearse), Ok(()));
        let restored: Result<(), Unreadable> = read(&mut other, &mut wheel, State::restore);
        assert_eq!((restored, other.holdings), (Ok(()), 1));
        assert_eq!(other.counters.len(), 2 * RETURNED_AT_ONCE);
        let last = format!("counter {}", 2 * RETURNED_AT_ONCE - 1);
        for (name, consumption) in [("counter 0", 0), (&*last, 1)] {
            let now = Time::START;
            let found = act(&mut other, &mut wheel, now, |other, step| other.get(name.as_bytes(), step));
            assert_eq!(found, Ok(consumption), "{name}");
        }
    }
}
