//! Hierarchical timer wheel with ticks of one millisecond. It knows neither the clock nor the purposes of its timers.
//!
//! Eight levels of 64 slots: a slot of level 0 is one tick wide, a slot of each further level 64 times as wide as one
//! of the level below. A timer is on the level of the highest base-64 digit in which its tick differs from the wheel's,
//! and moves down when the wheel reaches its slot. So it is armed and cancelled in constant time, and moved at most
//! seven times. Very many timers of a slot are moved in slices, and the wheel stands still until all are.
//!
//! Invariant: on each level the occupied slots are at or after the wheel's own position, and every timer of a level is
//! due before every timer of the levels above. The first occupied slot of the lowest occupied level is therefore the
//! next.

use crate::id::{Id, compact_id};
use crate::list::{Links, List};
use crate::time::Time;
use slab::Slab;
use slices::{PER_TICK, Rounds};
use std::marker::PhantomData;

pub mod slices;

const TICK_US: u64 = 1_000;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 8;
/// Last tick: 2^48 ms are 8900 years. Later deadlines count as this one.
pub const LAST_TICK: u64 = (1 << (SLOT_BITS * LEVELS as u32)) - 1;

/// Most timers that move down at a time; other work is served before the next.
const MOVED_AT_ONCE: usize = 4096;

/// Number of an owner of timers: a service, or the loop itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner(pub u8);

/// Purpose of an owner's timer: an enum, declared with [`timer_keys!`], whose variants may carry an [`Id`].
pub trait TimerKey: Copy {
    /// Returns the number of the variant, and the index of its id.
    fn pack(self) -> (u8, u32);

    /// Returns the key of a number of a variant and an index, as [`TimerKey::pack`] returned them.
    ///
    /// # Panics
    ///
    /// Panics if no variant has this number: the wheel returns only packed keys.
    fn unpack(variant: u8, index: u32) -> Self;
}

/// An id alone is the key of an owner whose timers all have one purpose.
impl<I: Id> TimerKey for I {
    fn pack(self) -> (u8, u32) {
        (0, self.index() as u32)
    }

    fn unpack(_: u8, index: u32) -> Self {
        Self::from_index(index as usize)
    }
}

/// Declares an enum of timer keys, whose variants are plain or name one id: `Wait(claim: ClaimId)`.
#[macro_export]
macro_rules! timer_keys {
    ($(#[$doc:meta])* $vis:vis enum $name:ident { $($(#[$about:meta])* $variant:ident $(($id:ident: $type:ty))?),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        $vis enum $name { $($(#[$about])* $variant $(($type))?),+ }

        impl $crate::wheel::TimerKey for $name {
            fn pack(self) -> (u8, u32) {
                enum Variant { $($variant),+ }
                match self {
                    // Lossless: every Id is made from a u32.
                    $(Self::$variant $(($id))? => (Variant::$variant as u8, 0 $(+ $crate::id::Id::index($id) as u32)?)),+
                }
            }

            fn unpack(variant: u8, index: u32) -> Self {
                enum Variant { $($variant),+ }
                let _ = index;
                $(if variant == Variant::$variant as u8 {
                    return Self::$variant $((<$type as $crate::id::Id>::from_index(index as usize)))?;
                })+
                unreachable!("the wheel gives back only what was armed")
            }
        }
    };
}
pub use timer_keys;

compact_id! {
    /// Id of an armed timer in the wheel's slab.
    Entry
}

/// Right to cancel one armed timer. It is spent once: by [`Timers::cancel`], or by [`TimerId::fired`] after its time
/// has come.
#[derive(Debug)]
#[must_use = "a timer without its id cannot be cancelled"]
pub struct TimerId(Entry);

/// Timer whose time has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// Owner that armed it.
    pub owner: Owner,
    variant: u8,
    index: u32,
}

struct Timer {
    tick: u64,
    index: u32,
    owner: Owner,
    variant: u8,
    place: Place,
}

/// Slot of a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    level: u8,
    slot: u8,
}

/// All timers of the server.
pub struct Wheel {
    /// Position of the wheel, in ticks.
    now: u64,
    timers: Slab<Timer>,
    links: Links,
    slots: [[List<Entry>; SLOTS]; LEVELS],
    /// One bit per slot that is not empty.
    occupied: [u64; LEVELS],
    /// One bit per level with such a slot.
    levels: u8,
    /// Slot that the wheel has reached, while some of its timers have yet to move down. The wheel stands at its start.
    moving: Option<Place>,
    /// Background work, which takes turns with the timers.
    rounds: Rounds,
    /// Tick before which no timer is armed: see [`Wheel::arm_from`].
    earliest: u64,
}

/// One owner's part of the wheel, as the loop passes it on: without the type of the owner's keys.
pub struct OwnTimers<'a> {
    wheel: &'a mut Wheel,
    owner: Owner,
}

/// One owner's part of the wheel, with the type of the owner's keys.
pub struct Timers<'a, K> {
    wheel: &'a mut Wheel,
    owner: Owner,
    keys: PhantomData<K>,
}

impl OwnTimers<'_> {
    /// Returns the owner's timers with the type of their keys. An owner has one type of keys.
    pub fn typed<K: TimerKey>(&mut self) -> Timers<'_, K> {
        self.wheel.of(self.owner)
    }
}

impl<K: TimerKey> Timers<'_, K> {
    /// Arms a timer for `key` that is due at `at`, at most one tick later and never earlier.
    pub fn arm(&mut self, at: Time, key: K) -> TimerId {
        self.wheel.arm(at, self.owner, key.pack())
    }

    /// Disarms a timer.
    pub fn cancel(&mut self, timer: TimerId) {
        self.wheel.cancel(timer);
    }

    /// Returns the time at which an armed timer fires.
    pub fn deadline(&self, timer: &TimerId) -> Time {
        self.wheel.deadline(timer)
    }

    /// Returns the result of [`Wheel::expire`] for a timer of this key.
    fn due(&self, key: K) -> Due {
        let (variant, index) = key.pack();
        Due { owner: self.owner, variant, index }
    }
}

impl Due {
    /// Returns the key of the timer. `K` must be the type of the owner's keys.
    pub fn key<K: TimerKey>(self) -> K {
        K::unpack(self.variant, self.index)
    }
}

impl TimerId {
    /// Spends the id of a timer that has fired.
    pub fn fired(self) {}
}

impl Default for Wheel {
    fn default() -> Self {
        let slots = std::array::from_fn(|_| std::array::from_fn(|_| List::default()));
        let (timers, links, rounds) = (Slab::new(), Links::default(), Rounds::new(PER_TICK));
        Wheel { now: 0, timers, links, slots, occupied: [0; LEVELS], levels: 0, moving: None, rounds, earliest: 0 }
    }
}

impl Wheel {
    /// Returns the part of `owner`.
    pub fn of<K: TimerKey>(&mut self, owner: Owner) -> Timers<'_, K> {
        Timers { wheel: self, owner, keys: PhantomData }
    }

    /// Returns the part of `owner`, for keys of a type that is given later.
    pub fn own(&mut self, owner: Owner) -> OwnTimers<'_> {
        OwnTimers { wheel: self, owner }
    }

    /// Returns the number of armed timers of an owner. It visits all timers.
    pub fn armed(&self, owner: Owner) -> usize {
        self.timers.iter().filter(|(_, timer)| timer.owner == owner).count()
    }

    /// Sets the earliest time at which timers that are armed from now on are due; [`Time::START`] for any time.
    pub fn arm_from(&mut self, earliest: Time) {
        self.earliest = earliest.as_micros().div_ceil(TICK_US);
    }

    /// Returns the number of armed timers.
    pub fn len(&self) -> usize {
        self.timers.len()
    }

    /// Returns true if no timer is armed.
    pub fn is_empty(&self) -> bool {
        self.timers.is_empty()
    }

    /// Returns the time to wake: never after the earliest deadline, and before it only if a slot of a higher level
    /// begins.
    #[inline]
    pub fn next(&self) -> Option<Time> {
        if self.rounds.is_pending() {
            return Some(Time::from_micros(self.now * TICK_US));
        }
        self.first_place().map(|place| Time::from_micros(self.start_of(place) * TICK_US))
    }

    /// Removes and returns one timer that is due at `now`, or an owner whose slice has come; call until there is none,
    /// which ends the tick of the background work. With very many timers near, some that are due may be left: then
    /// [`Wheel::next`] is not later.
    #[inline]
    pub fn expire(&mut self, now: Time) -> Option<Due> {
        let now = now.as_micros() / TICK_US;
        // Often the loop calls several times within a tick of the wheel.
        let is_idle = now == self.now && self.occupied[0] & 1 << (now % SLOTS as u64) == 0 && self.moving.is_none();
        if is_idle && !self.rounds.is_active() { None } else { self.next_due(now) }
    }

    #[inline(never)]
    fn next_due(&mut self, now: u64) -> Option<Due> {
        let due = self.rounds.next().or_else(|| self.turn_to(now));
        if due.is_none() {
            self.rounds.end_tick();
        }
        due
    }

    fn turn_to(&mut self, now: u64) -> Option<Due> {
        while let Some(place) = self.first_place() {
            let start = self.start_of(place);
            if start > now {
                break;
            }
            self.now = start;
            if place.level == 0 {
                return self.pop(place);
            }
            self.move_down(place);
            if self.moving.is_some() {
                return None;
            }
        }
        self.now = self.now.max(now.min(LAST_TICK));
        None
    }

    fn arm(&mut self, at: Time, owner: Owner, (variant, index): (u8, u32)) -> TimerId {
        let tick = at.as_micros().div_ceil(TICK_US).max(self.earliest).clamp(self.now, LAST_TICK);
        let place = self.place_of(tick);
        let entry = Entry::from_index(self.timers.insert(Timer { tick, index, owner, variant, place }));
        self.link(entry, place);
        TimerId(entry)
    }

    fn cancel(&mut self, TimerId(entry): TimerId) {
        let place = self.timers.remove(entry.index()).place;
        self.slots[place.level as usize][place.slot as usize].remove(&mut self.links, entry);
        self.note_if_empty(place);
    }

    /// Returns the time at which an armed timer fires.
    pub fn deadline(&self, timer: &TimerId) -> Time {
        Time::from_micros(self.timers[timer.0.index()].tick * TICK_US)
    }

    fn link(&mut self, entry: Entry, Place { level, slot }: Place) {
        self.slots[level as usize][slot as usize].push_back(&mut self.links, entry);
        self.occupied[level as usize] |= 1 << slot;
        self.levels |= 1 << level;
    }

    fn pop_front(&mut self, place: Place) -> Option<Entry> {
        let entry = self.slots[place.level as usize][place.slot as usize].pop_front(&mut self.links)?;
        self.note_if_empty(place);
        Some(entry)
    }

    fn pop(&mut self, place: Place) -> Option<Due> {
        let entry = self.pop_front(place)?;
        let Timer { index, owner, variant, .. } = self.timers.remove(entry.index());
        Some(Due { owner, variant, index })
    }

    /// Moves the timers of a slot to the levels below, or some of them if they are very many.
    fn move_down(&mut self, from: Place) {
        for _ in 0..MOVED_AT_ONCE {
            let Some(entry) = self.pop_front(from) else { break };
            let place = self.place_of(self.timers[entry.index()].tick);
            self.timers[entry.index()].place = place;
            self.link(entry, place);
        }
        let is_done = self.slots[from.level as usize][from.slot as usize].is_empty();
        self.moving = (!is_done).then_some(from);
    }

    fn note_if_empty(&mut self, Place { level, slot }: Place) {
        if self.slots[level as usize][slot as usize].is_empty() {
            let slots = &mut self.occupied[level as usize];
            *slots &= !(1 << slot);
            self.levels &= !(u8::from(*slots == 0) << level);
        }
    }

    /// Returns the slot of a timer for `tick`, which is valid until the wheel has reached that slot.
    fn place_of(&self, tick: u64) -> Place {
        let highest_bit = 63 - ((tick ^ self.now) | 1).leading_zeros();
        let level = highest_bit / SLOT_BITS;
        let slot = (tick >> (level * SLOT_BITS)) as usize % SLOTS;
        // Lossless: there are few of either.
        Place { level: level as u8, slot: slot as u8 }
    }

    /// Returns the next slot whose timers move down or fire.
    fn first_place(&self) -> Option<Place> {
        self.moving.or_else(|| {
            let level = self.levels.trailing_zeros() as u8;
            Some(Place { level, slot: self.occupied.get(usize::from(level))?.trailing_zeros() as u8 })
        })
    }

    /// Returns the first tick of a slot at or ahead of the wheel's position.
    fn start_of(&self, Place { level, slot }: Place) -> u64 {
        let shift = u32::from(level) * SLOT_BITS;
        let above = self.now >> (shift + SLOT_BITS) << (shift + SLOT_BITS);
        above | u64::from(slot) << shift
    }

    /// Compares every table with every other.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self) {
        let mut seen = 0;
        for (level, slots) in self.slots.iter().enumerate() {
            assert_eq!(self.levels >> level & 1 == 1, self.occupied[level] != 0, "the bit of level {level}");
            for (slot, list) in slots.iter().enumerate() {
                assert_eq!(self.occupied[level] >> slot & 1 == 1, !list.is_empty(), "the bit of slot {level}/{slot}");
                let here = Place { level: level as u8, slot: slot as u8 };
                for entry in list.iter(&self.links) {
                    let timer = &self.timers[entry.index()];
                    assert!(timer.tick >= self.now, "a timer was left behind");
                    assert_eq!(timer.place, here, "a timer knows where it lies");
                    let is_right = self.place_of(timer.tick) == here || self.moving == Some(here);
                    assert!(is_right, "a timer lies in the wrong slot");
                    seen += 1;
                }
            }
        }
        assert_eq!(seen, self.timers.len(), "every timer lies in one slot");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ConnId;
    use crate::time::Span;
    use std::collections::BTreeMap;

    const OWNER: Owner = Owner(3);

    timer_keys! {
        enum Key { Plain, Of(conn: ConnId) }
    }

    fn key(n: usize) -> Key {
        Key::Of(ConnId::from_index(n))
    }

    fn timers(wheel: &mut Wheel) -> Timers<'_, Key> {
        wheel.of(OWNER)
    }

    fn expire(wheel: &mut Wheel, now: Time) -> Option<Key> {
        wheel.expire(now).map(|due| {
            assert_eq!(due.owner, OWNER);
            due.key()
        })
    }

    fn fired(wheel: &mut Wheel, now: Time) -> Vec<usize> {
        let index = |key| match key {
            Key::Of(conn) => conn.index(),
            Key::Plain => panic!("no plain timer is armed"),
        };
        std::iter::from_fn(|| expire(wheel, now)).map(index).collect()
    }

    #[test]
    fn gives_back_the_key_it_was_armed_for() {
        let mut wheel = Wheel::default();
        for key in [Key::Plain, key(0), key(77)] {
            timers(&mut wheel).arm(Time::from_micros(1), key).fired();
            assert_eq!(expire(&mut wheel, Time::from_micros(1_000)), Some(key));
        }
    }

    #[test]
    fn fires_in_time_and_never_early() {
        for at in [1, 999, 1_000, 1_001, 63_999, 64_000, 64_001, 5_000_000, 3_600_000_000, 1 << 52] {
            let mut wheel = Wheel::default();
            timers(&mut wheel).arm(Time::from_micros(at), key(1)).fired();
            let tick = Time::from_micros(at.div_ceil(1_000) * 1_000);
            assert_eq!(wheel.expire(Time::from_micros(tick.as_micros() - 1)), None, "{at} fired early");
            wheel.check();
            assert!(wheel.next() <= Some(tick), "{at} would be slept through");
            assert_eq!(expire(&mut wheel, tick), Some(key(1)), "{at} is late");
            assert!(wheel.is_empty());
        }
    }

    #[test]
    fn cancelled_timer_leaves_nothing() {
        let mut wheel = Wheel::default();
        let ids: Vec<TimerId> =
            (0..1_000).map(|n| timers(&mut wheel).arm(Time::from_micros(n * 7_777_777), key(n as usize))).collect();
        wheel.expire(Time::from_micros(500));
        for id in ids.into_iter().skip(1) {
            timers(&mut wheel).cancel(id);
            wheel.check();
        }
        assert!(wheel.is_empty());
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn deadline_in_the_past_is_due_at_once() {
        let mut wheel = Wheel::default();
        wheel.expire(Time::from_micros(10_000_000));
        timers(&mut wheel).arm(Time::from_micros(5), key(1)).fired();
        assert_eq!(expire(&mut wheel, Time::from_micros(10_000_000)), Some(key(1)));
    }

    #[test]
    fn very_many_timers_move_down_in_parts() {
        let mut wheel = Wheel::default();
        let at = Time::from_micros(5_000_000_000);
        let many = 3 * MOVED_AT_ONCE + 3;
        let ids: Vec<TimerId> = (0..many).map(|n| timers(&mut wheel).arm(at, key(n))).collect();
        let before = Time::from_micros(at.as_micros() - 1_000);
        while wheel.next() <= Some(before) {
            assert_eq!(expire(&mut wheel, before), None);
            let moved = wheel.timers.iter().filter(|(_, timer)| Some(timer.place) != wheel.moving).count();
            assert!(moved % MOVED_AT_ONCE == 0 || moved == many, "{moved} of {many} have moved at once");
            wheel.check();
        }
        let mut left: Vec<TimerId> = ids.into_iter().rev().collect();
        assert_eq!(expire(&mut wheel, at), None);
        // Some timers have moved, and some have not.
        for id in left.split_off(many - 10).into_iter().chain(left.drain(..10)) {
            timers(&mut wheel).cancel(id);
            wheel.check();
        }
        left.into_iter().for_each(TimerId::fired);
        let mut slices = 1;
        let mut count = 0;
        while wheel.next().is_some() {
            count += fired(&mut wheel, at).len();
            slices += 1;
        }
        assert_eq!((count, slices), (many - 20, 3));
        assert!(wheel.is_empty());
    }

    /// Random arming, cancelling and turning, compared with a sorted map, from spans of a millisecond to spans of
    /// years.
    #[test]
    fn behaves_like_a_sorted_map() {
        let mut wheel = Wheel::default();
        let mut model: BTreeMap<(u64, usize), TimerId> = BTreeMap::new();
        let mut now = Time::START;
        let mut seed = 7_u64;
        for n in 0..30_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let span = Span::from_micros((seed >> 20) >> (seed >> 58));
            match seed >> 8 & 7 {
                0..=3 => {
                    let at = now + span;
                    let id = timers(&mut wheel).arm(at, key(n));
                    model.insert((at.as_micros().div_ceil(1_000), n), id);
                }
                4..=5 => {
                    if let Some(at) = model.keys().nth(seed as usize % model.len().max(1)).copied() {
                        timers(&mut wheel).cancel(model.remove(&at).expect("just seen"));
                    }
                }
                _ => {
                    now = now + Span::from_micros(span.as_micros() >> 8);
                    let later = model.split_off(&(now.as_micros() / 1_000 + 1, 0));
                    let mut due: Vec<usize> = model.into_keys().map(|(_, n)| n).collect();
                    let mut got = fired(&mut wheel, now);
                    due.sort_unstable();
                    got.sort_unstable();
                    assert_eq!(got, due);
                    model = later;
                }
            }
            let earliest = model.keys().next().map(|(tick, _)| Time::from_micros(tick * 1_000));
            assert_eq!(wheel.next().is_some(), earliest.is_some());
            assert!(wheel.next() <= earliest, "would sleep past a deadline");
            assert_eq!(wheel.timers.len(), model.len());
            if n % 64 == 0 {
                wheel.check();
            }
        }
    }
}
