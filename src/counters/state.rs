//! State machine of the counters: the units of each counter that each connection holds. It knows no bytes of the
//! protocol, no sockets and no clock.
//!
//! A request is answered at once, and only on its own connection, so it is a function with a result.
//!
//! Time is divided into intervals. A counter without held units expires with the interval in which it was last used:
//! requests do not find it any more, and a sweep drops it, in slices. Counters without held units are in a queue, the
//! one longest unused first, and are forgotten earlier when their memory is needed.

mod check;
mod counter;
mod holdings;
mod idle;
mod loading;
mod queries;
mod saved;
mod sweep;

pub use poolcounter_protocol::counters::request::{AcquireUnits, CounterRecord, CounterRefusal, ReleaseUnits};
pub use queries::{CLIENTS_LOOKED_AT, LevelOf, SLOTS_LOOKED_AT};

use crate::options::CountersSettings;
use counter::Counter;
use holdings::Holdings;
use idle::Idle;
use loading::Loading;
use poolcounter_core::id::id;
use poolcounter_core::wheel::timer_keys;
use poolcounter_core::{ConnId, Count, Figures, Id, Names, SideTable, Span, Time, TimerId, Timers};
use poolcounter_protocol::counters::stats::CounterStat as Stat;
use slab::Slab;
use std::cell::Cell;
use std::collections::VecDeque;

/// Memory of a counter besides its name, in bytes: its slot and its entry in the index, with room to grow.
pub const COUNTER_BYTES: u64 = 64;
/// Memory of a connection's holding of one counter, in bytes.
pub const HOLDING_BYTES: u64 = 32;

/// One step of the state machine: its time and timers.
pub struct CountersStep<'w> {
    /// The time of the step.
    pub now: Time,
    /// The time of day at [`Time::START`], since 1970.
    pub epoch: Span,
    /// The timers of the counters.
    pub timers: Timers<'w, CountersTimer>,
}

/// Refused requests for units. A handover does not contain them.
#[derive(Debug, Default)]
pub struct Refusals {
    /// Number of requests that would have exceeded the maximum.
    pub at_maximum: Count,
    /// Number of requests refused for lack of memory.
    pub for_memory: Count,
    /// Counters of requests that were refused at their maximum since the last look; not all if they are many.
    pub names: Vec<Vec<u8>>,
}

/// Most counters that are noted between two looks, and bytes of their names.
const MOST_NAMES: usize = 8;
const NAME_BYTES: usize = 256;

impl Refusals {
    #[cold]
    fn note_at_maximum(&mut self, name: &[u8]) -> CounterRefusal {
        self.at_maximum.bump();
        let name = &name[..name.len().min(NAME_BYTES)];
        if self.names.len() < MOST_NAMES && !self.names.iter().any(|noted| noted == name) {
            self.names.push(name.into());
        }
        CounterRefusal::NotAvailable
    }
}

id! { CounterId }

timer_keys! {
    /// Purposes of the timers of the counters.
    pub enum CountersTimer {
        /// The interval is over.
        Interval,
        /// More is swept, and more holdings of closed connections are released.
        Work,
    }
}

/// All counters, and the holdings of each connection.
#[derive(Default)]
pub struct CountersState {
    settings: CountersSettings,
    names: Names<CounterId>,
    counters: Slab<Counter>,
    /// Counter of the latest request; it may be dropped by now. Often the next request has the same name.
    latest: CounterId,
    /// Number of slots in use: all counters have a lower index.
    slots: usize,
    /// By slot, the maximum that the last request named; 0 without one. A handover does not contain it. The
    /// row of a dropped counter stays, and the next counter of the slot sets it.
    maxima: SideTable<CounterId, u32>,
    pub(crate) refusals: Refusals,
    name_bytes: u64,
    /// Counters without held units.
    idle: Idle,
    /// Holdings by connection.
    clients: SideTable<ConnId, Holdings>,
    holdings: u64,
    /// Holdings of closed connections, until they are released.
    closing: VecDeque<Holdings>,
    /// Counters of another process that are not read yet.
    loading: Option<Box<Loading>>,
    /// Number of the interval in which the table was last used.
    interval: u32,
    /// End of that interval.
    interval_end: Time,
    /// Begin of the sweep under way.
    sweep: Option<Time>,
    /// Timer of the end of the interval, while there are counters.
    timer: Option<TimerId>,
    conflicts: Cell<u64>,
    figures: Figures<Stat>,
}

/// Answer to a request.
type Answer<T> = Result<T, CounterRefusal>;

impl CountersState {
    /// Returns a state without counters.
    pub fn new(settings: CountersSettings) -> Self {
        CountersState { settings, names: Names::with_capacity(0), ..CountersState::default() }
    }

    /// Returns the number of counters, including expired counters.
    pub fn len(&self) -> usize {
        self.counters.len()
    }

    /// Returns the number of holdings: counters of which connections hold units, counted once for each connection.
    pub fn holdings(&self) -> u64 {
        self.holdings
    }

    /// Returns the consumption of a counter.
    ///
    /// # Errors
    ///
    /// Fails if there is no such counter.
    pub fn get(&mut self, name: &[u8], step: &mut CountersStep<'_>) -> Answer<u32> {
        self.roll_interval(step);
        let id = self.find(name, step).ok_or(CounterRefusal::NotFound)?;
        Ok(self.counters[id.index()].levels().consumption())
    }

    /// Takes units for a connection, and returns their number. A counter that does not exist is created. Counters
    /// without held units are forgotten when their memory is needed.
    ///
    /// # Errors
    ///
    /// Fails if the maximum would be exceeded, or if the held counters leave no memory for a new one.
    pub fn acquire(&mut self, conn: ConnId, request: AcquireUnits<'_>, step: &mut CountersStep<'_>) -> Answer<u32> {
        self.roll_interval(step);
        let known = self.find(request.name, step);
        if let Some(id) = known {
            *self.maxima.get_mut(id) = request.maximum;
        }
        let consumption = known.map_or(0, |id| self.counters[id.index()].levels().consumption());
        let wanted = u64::from(consumption) + u64::from(request.resources);
        let consumption = u32::try_from(wanted).ok().filter(|wanted| *wanted <= request.maximum);
        let consumption = consumption.ok_or_else(|| self.refusals.note_at_maximum(request.name))?;
        let held = known.map_or(0, |id| self.held(conn, id));
        let new_counter = if known.is_none() { bytes_of(request.name) } else { 0 };
        let new_holding = if held == 0 { HOLDING_BYTES } else { 0 };
        if !self.make_room(new_counter + new_holding, known, step) {
            self.refusals.for_memory.bump();
            return Err(CounterRefusal::OutOfMemory);
        }
        let id = known.unwrap_or_else(|| {
            let id = self.create(Counter::new(request.name, self.interval), step);
            *self.maxima.get_mut(id) = request.maximum;
            id
        });
        // Lossless: the units of one connection are a part of all.
        self.hold(conn, id, held + request.resources);
        self.counters[id.index()].levels_mut().change_by_request(consumption, self.interval);
        self.note_if_idle(id);
        Ok(request.resources)
    }

    /// Releases units of a connection.
    ///
    /// # Errors
    ///
    /// Fails if there is no such counter, or if the connection holds fewer units of it.
    pub fn release(&mut self, conn: ConnId, request: ReleaseUnits<'_>, step: &mut CountersStep<'_>) -> Answer<()> {
        self.roll_interval(step);
        let id = self.find(request.name, step).ok_or(CounterRefusal::NotFound)?;
        let held = self.held(conn, id);
        if held == 0 || held < request.resources {
            return Err(CounterRefusal::NotAcquired);
        }
        self.hold(conn, id, held - request.resources);
        let levels = self.counters[id.index()].levels_mut();
        levels.change_by_request(levels.consumption() - request.resources, self.interval);
        self.note_if_idle(id);
        Ok(())
    }

    /// Releases all holdings of a closed connection.
    pub fn close(&mut self, conn: ConnId, step: &mut CountersStep<'_>) {
        if self.clients.get(conn).is_empty() {
            return;
        }
        self.roll_interval(step);
        self.closing.push_back(std::mem::take(self.clients.get_mut(conn)));
        self.work(step);
    }

    /// Releases holdings of closed connections, and continues the sweep, as far as the budget of the tick lasts.
    fn work(&mut self, step: &mut CountersStep<'_>) {
        self.release_closed(step);
        self.continue_sweep(step);
        if self.sweep.is_some() || !self.closing.is_empty() {
            step.timers.go_on(CountersTimer::Work);
        }
    }

    fn release_closed(&mut self, step: &mut CountersStep<'_>) {
        while let Some(mut holdings) = self.closing.pop_front() {
            while let Some((id, resources)) = holdings.pop() {
                self.holdings -= 1;
                let levels = self.counters[id.index()].levels_mut();
                levels.change(levels.consumption() - resources, self.interval);
                self.note_if_idle(id);
                self.drop_if_expired(id, step);
                if !step.timers.spend(1) {
                    return self.closing.push_back(holdings);
                }
            }
        }
    }

    /// Handles the end of the interval, or a slice of work.
    pub fn expire(&mut self, timer: CountersTimer, step: &mut CountersStep<'_>) {
        if let CountersTimer::Interval = timer {
            self.timer.take().into_iter().for_each(TimerId::fired);
            self.roll_interval(step);
            self.arm(step);
        }
        self.work(step);
    }

    /// Returns the counter in a slot of the table, if there is one. All counters are in slots below
    /// [`CountersState::slots`].
    pub fn record(&self, slot: usize) -> Option<CounterRecord<'_>> {
        let counter = self.counters.get(slot).filter(|counter| !counter.levels().is_expired(self.interval))?;
        let (consumption, peak) = (counter.levels().consumption(), counter.levels().peak(self.interval));
        Some(CounterRecord { name: counter.name(), consumption, peak })
    }

    /// Returns the number of slots of the table that may have a counter.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Counts a well-formed request.
    pub fn count(&mut self, command: Stat) {
        self.figures.count(command);
    }

    /// Returns the figures, with the levels as they are now, but without the figures of the connections' traffic.
    pub fn figures(&self) -> Figures<Stat> {
        let mut figures = self.figures.clone();
        figures.set(Stat::Objects, self.counters.len() as u64);
        figures.set(Stat::UsedMemory, self.used_memory());
        figures.set(Stat::Conflicts, self.conflicts.get());
        figures
    }

    /// Returns true if there is no counter.
    pub fn is_empty(&self) -> bool {
        self.counters.is_empty() && self.names.is_empty() && self.holdings == 0 && self.timer.is_none()
    }

    /// Starts another interval if its time has come, and the sweep of the last one. Returns true if so.
    pub fn roll_interval(&mut self, step: &mut CountersStep<'_>) -> bool {
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

    #[inline(always)]
    fn find(&mut self, name: &[u8], step: &mut CountersStep<'_>) -> Option<CounterId> {
        if self.counters.get(self.latest.index()).is_none_or(|latest| *latest.name() != *name) {
            self.latest = self.find_by_hash(name)?;
        }
        (!self.drop_if_expired(self.latest, step)).then_some(self.latest)
    }

    #[inline(never)]
    fn find_by_hash(&self, name: &[u8]) -> Option<CounterId> {
        let hash = self.names.hash(name);
        let is_named = |id: CounterId| {
            let other = self.counters[id.index()].name();
            let is_named = *other == *name;
            // The table also compares names of which only a few bits of the hashes are equal.
            if !is_named && self.names.hash(other) == hash {
                self.conflicts.set(self.conflicts.get() + 1);
            }
            is_named
        };
        self.names.find(hash, is_named)
    }

    fn create(&mut self, counter: Counter, step: &mut CountersStep<'_>) -> CounterId {
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

    /// Drops the counter if it has expired. Returns true if so.
    fn drop_if_expired(&mut self, id: CounterId, step: &mut CountersStep<'_>) -> bool {
        if !self.counters[id.index()].levels().is_expired(self.interval) {
            return false;
        }
        self.forget(id, step);
        true
    }

    /// Drops a counter without held units.
    fn forget(&mut self, id: CounterId, step: &mut CountersStep<'_>) {
        let counter = self.counters.remove(id.index());
        self.idle.remove(id, counter.name());
        self.names.remove(self.names.hash(counter.name()), id);
        self.name_bytes -= counter.name().len() as u64;
        if self.counters.is_empty() {
            self.slots = 0;
            self.end_sweep(step.now);
            self.timer.take().into_iter().for_each(|timer| step.timers.cancel(timer));
        }
    }

    /// Arms the timer for the end of the interval.
    fn arm(&mut self, step: &mut CountersStep<'_>) {
        if self.timer.is_some() || self.counters.is_empty() {
            return;
        }
        self.timer = Some(step.timers.arm(self.interval_end, CountersTimer::Interval));
    }

    /// Returns the number of the present interval, and its end.
    fn interval_at(&self, step: &CountersStep<'_>) -> (u32, Time) {
        let interval = self.settings.interval.as_micros();
        let time_of_day = (step.epoch + step.now.since(Time::START)).as_micros();
        // Intervals of ten seconds have numbers of 31 bits until the year 2650. With a later date, the last one never
        // ends.
        let number = (time_of_day / interval).min(u64::from(u32::MAX / 2)) as u32;
        (number, step.now + Span::from_micros(interval - time_of_day % interval))
    }

    /// Returns the number of counters of which a connection holds units.
    pub fn held_by(&self, conn: ConnId) -> u32 {
        // Lossless: a connection cannot hold units of more counters than the memory has room for.
        self.clients.get(conn).len() as u32
    }

    /// Returns whether a connection holds units of a counter.
    pub fn holds_units_of(&self, conn: ConnId, name: &[u8]) -> bool {
        self.named(name).is_some_and(|id| self.held(conn, id) > 0)
    }

    /// Returns the counter of this name, expired or not.
    fn named(&self, name: &[u8]) -> Option<CounterId> {
        self.names.find(self.names.hash(name), |id: CounterId| self.counters[id.index()].name() == name)
    }

    fn held(&self, conn: ConnId, id: CounterId) -> u32 {
        self.clients.get(conn).of(id)
    }

    /// Sets the units of a counter that a connection holds.
    fn hold(&mut self, conn: ConnId, id: CounterId, resources: u32) {
        let had = self.clients.get_mut(conn).set(id, resources);
        self.holdings += u64::from(resources > 0);
        self.holdings -= u64::from(had);
    }

    fn used_memory(&self) -> u64 {
        self.counters.len() as u64 * COUNTER_BYTES + self.name_bytes + self.holdings * HOLDING_BYTES
    }
}

/// Returns the memory of a counter with this name, in bytes.
fn bytes_of(name: &[u8]) -> u64 {
    COUNTER_BYTES + name.len() as u64
}

#[cfg(test)]
mod tests {
    use super::saved::CountersHead;
    use super::*;
    use poolcounter_core::record::{Reader, Unreadable, Writer};
    use poolcounter_core::slices::PER_TICK;
    use poolcounter_core::wheel::{Owner, Wheel};

    const OWNER: Owner = Owner(0);

    fn act<R>(
        state: &mut CountersState,
        wheel: &mut Wheel,
        now: Time,
        act: impl FnOnce(&mut CountersState, &mut CountersStep<'_>) -> R,
    ) -> R {
        let done = act(state, &mut CountersStep { now, epoch: Span::from_secs(1_000_000), timers: wheel.of(OWNER) });
        state.check();
        done
    }

    /// A connection holds a unit of each of `counters` counters, and another one of the last; then the first closes.
    fn left(counters: usize) -> (CountersState, Wheel) {
        let (mut state, mut wheel) = (CountersState::new(CountersSettings::default()), Wheel::default());
        let [first, second] = [0, 1].map(ConnId::from_index);
        let mut step = CountersStep { now: Time::START, epoch: Span::from_secs(1_000_000), timers: wheel.of(OWNER) };
        for n in 0..counters {
            let name = format!("counter {n}");
            let acquire = AcquireUnits { name: name.as_bytes(), resources: 1, maximum: 10 };
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
        let (mut state, mut wheel) = left(100_000);
        let mut now = Time::START;
        let mut ticks = 1;
        while !state.closing.is_empty() {
            assert!(state.holdings as usize + ticks * (PER_TICK as usize + 1) > 100_000, "{ticks}");
            assert_eq!(wheel.next(), Some(now), "the work goes on at once");
            while let Some(due) = wheel.expire(now) {
                act(&mut state, &mut wheel, now, |state, step| state.expire(due.key(), step));
            }
            ticks += 1;
        }
        assert_eq!((state.holdings, ticks), (1, 26));
        // No work is left until the interval is over.
        wheel.expire(now);
        now = wheel.next().expect("the counters end one day");
        assert!(now > Time::START + Span::from_secs(60));
        act(&mut state, &mut wheel, now, |state, step| state.close(ConnId::from_index(1), step));
        while !state.is_empty() {
            let now = wheel.next().expect("the sweep goes on");
            while let Some(due) = wheel.expire(now) {
                act(&mut state, &mut wheel, now, |state, step| state.expire(due.key(), step));
            }
        }
    }

    #[test]
    fn latest_counter_is_found_without_its_hash() {
        let (mut state, mut wheel) = (CountersState::new(CountersSettings::default()), Wheel::default());
        let mut step = CountersStep { now: Time::START, epoch: Span::from_secs(1_000_000), timers: wheel.of(OWNER) };
        let acquire = AcquireUnits { name: b"a", resources: 1, maximum: 10 };
        assert_eq!(state.acquire(ConnId::from_index(0), acquire, &mut step), Ok(1));
        assert_eq!(state.get(b"a", &mut step), Ok(1));
        state.names = Names::with_capacity(0);
        assert_eq!(state.get(b"a", &mut step), Ok(1));
        assert_eq!(state.get(b"b", &mut step), Err(CounterRefusal::NotFound));
    }

    /// The budget is shared by any number of connections that close in a tick.
    #[test]
    fn connections_closed_together_share_a_budget() {
        const EACH: usize = PER_TICK as usize;
        let (mut state, mut wheel) = (CountersState::new(CountersSettings::default()), Wheel::default());
        let mut step = CountersStep { now: Time::START, epoch: Span::from_secs(1_000_000), timers: wheel.of(OWNER) };
        for n in 0..8 * EACH {
            let acquire = AcquireUnits { name: &(n / 8).to_be_bytes(), resources: 1, maximum: 10 };
            assert_eq!(state.acquire(ConnId::from_index(n % 8), acquire, &mut step), Ok(1));
        }
        for conn in 0..8 {
            act(&mut state, &mut wheel, Time::START, |state, step| state.close(ConnId::from_index(conn), step));
        }
        // Each releases one of its holdings even when the budget is used up.
        assert!(state.holdings as usize >= 7 * EACH - 8, "{}", state.holdings);
        let mut ticks = 0;
        while state.holdings > 0 {
            let before = state.holdings as usize;
            while let Some(due) = wheel.expire(Time::START) {
                act(&mut state, &mut wheel, Time::START, |state, step| state.expire(due.key(), step));
            }
            assert!(before - state.holdings as usize <= EACH + 1, "{before}, {}", state.holdings);
            ticks += 1;
        }
        assert_eq!(ticks, 8);
    }

    #[test]
    fn restore_drops_releases_that_were_under_way() {
        let (state, _) = left(20_000);
        let (mut other, mut wheel) = (CountersState::new(CountersSettings::default()), Wheel::default());
        let mut saved = Vec::new();
        state.save(&mut Writer::new(&mut saved)).expect("memory takes all");
        let mut trial = CountersState::new(CountersSettings::default());
        let read = |state: &mut CountersState,
                    wheel: &mut Wheel,
                    restore: fn(&mut CountersState, &mut Reader<'_>, &mut CountersStep<'_>) -> _| {
            act(state, wheel, Time::START, |state, step| restore(state, &mut Reader::new(&mut &saved[..]), step))
        };
        assert_eq!(read(&mut trial, &mut Wheel::default(), CountersState::rehearse), Ok(()));
        let restored: Result<(), Unreadable> = read(&mut other, &mut wheel, CountersState::restore);
        assert_eq!(restored, Ok(()));
        let mut slices = 1;
        while act(&mut other, &mut wheel, Time::START, CountersState::restore_more) == Ok(false) {
            wheel.end_tick();
            slices += 1;
        }
        assert_eq!((slices, other.holdings), (5, 1));
        assert_eq!(other.counters.len(), 20_000);
        let last = format!("counter {}", 20_000 - 1);
        for (name, consumption) in [("counter 0", 0), (&*last, 1)] {
            let now = Time::START;
            let found = act(&mut other, &mut wheel, now, |other, step| other.get(name.as_bytes(), step));
            assert_eq!(found, Ok(consumption), "{name}");
        }
    }

    #[test]
    fn rehearsal_refuses_more_counters_than_memory_holds() {
        const NO_MEMORY: usize = 1 << 50;
        for (counters, slots) in [(NO_MEMORY, 1), (1, NO_MEMORY), (usize::MAX, 1), (1, usize::MAX)] {
            let mut state = CountersState::new(CountersSettings::default());
            let interval = (0, state.settings.interval);
            let head = CountersHead { figures: Vec::new(), conflicts: 0, interval, counters, slots };
            let mut saved = Vec::new();
            Writer::new(&mut saved).put(&head).expect("memory takes all");
            let rehearse = |state: &mut CountersState, step: &mut CountersStep<'_>| {
                state.rehearse(&mut Reader::new(&mut &saved[..]), step)
            };
            let refused = act(&mut state, &mut Wheel::default(), Time::START, rehearse);
            assert_eq!(refused, Err(Unreadable("counters: there is no room for so many".into())));
        }
    }

    /// In the second interval, a request uses one of the counters, and the connection that holds all of them ends.
    #[test]
    fn counters_expired_during_a_takeover_come_first() {
        const COUNTERS: usize = 3 * PER_TICK as usize;
        let (mut state, mut wheel) = (CountersState::new(CountersSettings::default()), Wheel::default());
        let (now, epoch, holder) = (Time::START, Span::from_secs(1_000_000), ConnId::from_index(0));
        let name = |n: usize| n.to_be_bytes();
        for n in 0..COUNTERS {
            let acquire = AcquireUnits { name: &name(n), resources: 1, maximum: 2 };
            let mut step = CountersStep { now, epoch, timers: wheel.of(OWNER) };
            assert_eq!(state.acquire(holder, acquire, &mut step), Ok(1));
        }
        let now = now + state.settings.interval;
        let acquire = AcquireUnits { name: &name(0), resources: 1, maximum: 2 };
        assert_eq!(act(&mut state, &mut wheel, now, |state, step| state.acquire(holder, acquire, step)), Ok(1));
        while let Some(due) = wheel.expire(now) {
            act(&mut state, &mut wheel, now, |state, step| state.expire(due.key(), step));
        }
        act(&mut state, &mut wheel, now, |state, step| state.close(holder, step));
        assert!(!state.closing.is_empty() && state.sweep.is_none());
        let mut saved = Vec::new();
        state.save(&mut Writer::new(&mut saved)).expect("memory takes all");
        let (mut other, mut wheel) = (CountersState::new(CountersSettings::default()), Wheel::default());
        let restore = |state: &mut CountersState, step: &mut CountersStep<'_>| {
            state.restore(&mut Reader::new(&mut &saved[..]), step)
        };
        assert_eq!(act(&mut other, &mut wheel, now, restore), Ok(()));
        while act(&mut other, &mut wheel, now, CountersState::restore_more) == Ok(false) {
            wheel.end_tick();
        }
        assert_eq!(other.idle.queue.iter().last(), Some(CounterId::from_index(0)));
        assert!(other.counters.len() > 1, "the others expire, too");
    }
}
