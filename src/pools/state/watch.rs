//! What the operator is told without asking: that a lock is held for long, and that requests are refused. One timer serves
//! all of it. It is armed when there is something to look after, and an idle server sleeps.
//!
//! A lock is told of when it becomes as old as the operator wants, and again whenever that age has doubled. That costs the
//! locks nothing: when one can have become so old, all are looked at.
//!
//! The first refusal opens a window of a minute, at whose end the refusals in it are summed up.

use super::{PoolId, Stage, State, Step, Timer};
use crate::id::{ConnId, Id};
use crate::sketch::{self, Event};
use crate::stats::Pools as Stat;
use crate::time::{Span, Time};
use crate::wheel::{LAST_TICK, TimerId, Timers};
use serde::{Deserialize, Serialize};

/// How long refusals are collected, and how long nothing is said of locks after something was.
pub const WINDOW: Span = Span::from_secs(60);
/// The locks are not looked at more often.
const LOOK_INTERVAL: Span = Span::from_secs(1);

/// What the operator is told. Keys are cut to [`sketch::KEY_BYTES`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// A lock is held for long: of those that have become so old since the last notice, the oldest.
    Overdue {
        /// Its key.
        key: Vec<u8>,
        /// Who holds it.
        conn: ConnId,
        /// For how long.
        age: Span,
        /// How many locks are held for longer than the operator wants, this one among them.
        overdue: u64,
    },
    /// A key refuses more than the operator wants.
    Refusing {
        /// The key.
        key: Vec<u8>,
        /// How many requests it has refused within this span.
        refusals: u64,
        /// How long it took.
        within: Span,
    },
    /// Requests were refused within a `WINDOW`.
    Refused {
        /// QUEUE_FULL replies.
        full: u64,
        /// TIMEOUT replies.
        timeouts: u64,
        /// The key that refused most, with how many.
        most: Option<(Vec<u8>, u64)>,
        /// How many keys refused more than the operator wants.
        floods: u64,
    },
}

/// Why a request was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    Full,
    Timeout,
}

/// What is looked after.
pub(super) struct Watch {
    /// Armed while locks are held that may become too old, and while a window is open; it may outlast the locks.
    pub timer: Option<TimerId>,
    /// When that is due; [`NEVER`] without a timer.
    pub due: Time,
    pub memory: Memory,
}

/// When the wheel ends: nothing is looked after any more.
pub(super) const NEVER: Time = Time::from_micros(LAST_TICK * 1_000);

/// What was said of late, and what is to be said soon.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Memory {
    /// When the locks were looked at last.
    looked_at: Time,
    /// Nothing is said of locks until then.
    quiet_until: Time,
    window: Option<Window>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Window {
    begun: Time,
    full: u64,
    timeouts: u64,
    /// A key that refuses too much was told of.
    has_warned: bool,
}

impl Default for Watch {
    fn default() -> Self {
        Watch { timer: None, due: NEVER, memory: Memory::default() }
    }
}

impl State {
    /// A lock was granted: once it may be too old, the locks are looked at.
    pub(super) fn watch_locks(&mut self, step: &mut Step<'_, '_>) {
        let at = step.now + self.settings.warn_hold;
        if at < self.watch.due {
            self.watch_from(at.max(self.watch.memory.quiet_until), step.timers);
        }
    }

    /// A pool has refused a request.
    pub(super) fn note_refusal(&mut self, pool: PoolId, refusal: Refusal, step: &mut Step<'_, '_>) {
        if self.watch.memory.window.is_none() {
            self.sketch.open_window();
            self.watch_from(step.now + WINDOW, step.timers);
        }
        let nothing = Window { begun: step.now, full: 0, timeouts: 0, has_warned: false };
        let limit = self.refusals_in_window();
        let window = self.watch.memory.window.get_or_insert(nothing);
        let pool = &self.pools[pool.index()];
        let of_type = &mut self.types[pool.type_id];
        match refusal {
            Refusal::Full => {
                self.figures.count(Stat::FullQueues);
                of_type.full += 1;
                window.full += 1;
            }
            Refusal::Timeout => {
                of_type.timeouts += 1;
                window.timeouts += 1;
            }
        }
        let refusals = self.sketch.count(&pool.key, Event::Refusal, step.now);
        if refusals > limit && !window.has_warned {
            window.has_warned = true;
            let (key, within) = (sketch::cut(&pool.key).into(), step.now.since(window.begun));
            step.notices.push(Notice::Refusing { key, refusals, within });
        }
    }

    /// The timer is due.
    pub(super) fn look_around(&mut self, step: &mut Step<'_, '_>) {
        self.watch.timer.take().into_iter().for_each(TimerId::fired);
        self.watch.due = NEVER;
        let memory = &mut self.watch.memory;
        if let Some(window) = memory.window.take_if(|window| window.begun + WINDOW <= step.now) {
            step.notices.push(self.sum_up(&window));
        }
        let next_look = self.look_at_locks(step);
        self.watch_again(next_look, step.timers);
    }

    /// Arms the timer for the next thing to do, if there is any.
    pub(super) fn watch_again(&mut self, next_look: Option<Time>, timers: &mut Timers<'_, Timer>) {
        let window_end = self.watch.memory.window.as_ref().map(|window| window.begun + WINDOW);
        if let Some(at) = window_end.into_iter().chain(next_look).min() {
            self.watch_from(at, timers);
        }
    }

    /// When to look at the locks after those that are there were looked at; None if there is nothing to look for.
    pub(super) fn next_look(&self) -> Option<Time> {
        let Memory { looked_at, quiet_until, .. } = self.watch.memory;
        let next = self.holds().map(|since| self.milestone(since, looked_at)).min()?;
        (next < NEVER).then(|| next.max(quiet_until).max(looked_at + LOOK_INTERVAL))
    }

    fn watch_from(&mut self, at: Time, timers: &mut Timers<'_, Timer>) {
        if at < self.watch.due {
            self.watch.due = at;
            let later = self.watch.timer.replace(timers.arm(at, Timer::Watch));
            later.into_iter().for_each(|timer| timers.cancel(timer));
        }
    }

    /// Returns how many requests a key may refuse in a [`WINDOW`].
    fn refusals_in_window(&self) -> u64 {
        u64::from(self.settings.warn_refusals) * (WINDOW.as_micros() / 1_000_000)
    }

    fn sum_up(&self, window: &Window) -> Notice {
        let limit = self.refusals_in_window();
        let most = self.sketch.in_window().max_by_key(|(_, refusals)| *refusals);
        let floods = self.sketch.in_window().filter(|(_, refusals)| *refusals > limit).count() as u64;
        let most = most.map(|(key, refusals)| (key.to_vec(), refusals));
        Notice::Refused { full: window.full, timeouts: window.timeouts, most, floods }
    }

    /// Tells of the oldest lock that has reached an age to tell of, and when to look again.
    fn look_at_locks(&mut self, step: &mut Step<'_, '_>) -> Option<Time> {
        let Memory { looked_at, quiet_until, .. } = self.watch.memory;
        if self.holding == 0 || self.settings.warn_hold == Span::FOREVER {
            return None;
        }
        if step.now >= quiet_until {
            let is_news = |since: &Time| self.milestone(*since, looked_at) <= step.now;
            if let Some(since) = self.holds().filter(is_news).min() {
                step.notices.push(self.overdue(since, step.now));
                self.watch.memory.quiet_until = step.now + WINDOW;
            }
            self.watch.memory.looked_at = step.now;
        }
        self.next_look()
    }

    fn overdue(&self, since: Time, now: Time) -> Notice {
        let is_it = |stage: &Stage, began: Time| matches!(stage, Stage::Holding { .. }) && began == since;
        let place = self.places.iter().map(|(_, place)| place).find(|place| is_it(&place.stage, place.since));
        let place = place.expect("the lock was found a moment ago");
        let overdue = self.holds().filter(|since| now.since(*since) >= self.settings.warn_hold).count() as u64;
        let key = sketch::cut(&self.pools[place.pool.index()].key).into();
        Notice::Overdue { key, conn: place.conn, age: now.since(since), overdue }
    }

    /// Since when each lock is held.
    fn holds(&self) -> impl Iterator<Item = Time> {
        let places = self.places.iter().map(|(_, place)| place);
        places.filter(|place| matches!(place.stage, Stage::Holding { .. })).map(|place| place.since)
    }

    /// The first moment later than `seen` at which a lock has an age to tell of.
    fn milestone(&self, since: Time, seen: Time) -> Time {
        let mut age = self.settings.warn_hold;
        while age <= seen.since(since) && age < Span::FOREVER {
            age += age;
        }
        since + age
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pools::options::PoolsSettings;
    use crate::pools::state::{Acquire, Purpose};
    use crate::wheel::{Owner, Wheel};

    const OWNER: Owner = Owner(0);

    /// Pools whose clients each say something at a second of their own.
    struct Rig {
        state: State,
        wheel: Wheel,
        notices: Vec<Notice>,
        now: Time,
    }

    impl Rig {
        fn new(settings: PoolsSettings) -> Rig {
            Rig { state: State::new(settings), wheel: Wheel::default(), notices: Vec::new(), now: Time::START }
        }

        fn step(&mut self, take: impl FnOnce(&mut State, &mut Step<'_, '_>)) {
            let (timers, replies) = (&mut self.wheel.of(OWNER), &mut Vec::new());
            take(&mut self.state, &mut Step { now: self.now, timers, replies, notices: &mut self.notices });
            self.state.check();
        }

        fn acquire(&mut self, conn: usize, key: &[u8], max_queue: u32) {
            let (timeout, hold) = (Span::ZERO, Span::FOREVER);
            let request = Acquire { key, purpose: Purpose::Me, workers: 1, max_queue, timeout, hold };
            self.step(|state, step| state.acquire(ConnId::from_index(conn), Ok(request), step));
        }

        fn release(&mut self, conn: usize) {
            self.step(|state, step| state.release(ConnId::from_index(conn), None, step));
        }

        /// Lets time pass, and tells at which seconds there was what to tell.
        fn pass(&mut self, seconds: u64) -> Vec<(u64, Notice)> {
            let end = self.now + Span::from_secs(seconds);
            let mut told = Vec::new();
            while let Some(at) = self.wheel.next().filter(|at| *at <= end) {
                self.now = self.now.max(at);
                while let Some(due) = self.wheel.expire(self.now) {
                    self.step(|state, step| state.expire(due.key(), step));
                }
                let second = self.now.as_micros() / 1_000_000;
                told.extend(self.notices.drain(..).map(|notice| (second, notice)));
            }
            self.now = end;
            told
        }
    }

    fn overdue(key: &[u8], conn: usize, age: u64, overdue: u64) -> Notice {
        let (conn, age) = (ConnId::from_index(conn), Span::from_secs(age));
        Notice::Overdue { key: key.into(), conn, age, overdue }
    }

    #[test]
    fn an_old_lock_is_told_of_whenever_its_age_has_doubled() {
        let mut rig = Rig::new(PoolsSettings::default());
        rig.acquire(1, b"k", 9);
        assert_eq!(
            rig.pass(1_300),
            [300, 600, 1_200].map(|age| (age, overdue(b"k", 1, age, 1))),
            "and at no other time"
        );
        rig.release(1);
        assert_eq!(rig.pass(1_000_000), []);
        assert!(rig.wheel.is_empty(), "nobody wakes an idle server");
    }

    #[test]
    fn many_old_locks_are_told_of_once_a_minute() {
        let mut rig = Rig::new(PoolsSettings::default());
        for n in 0..90 {
            rig.acquire(n, n.to_string().as_bytes(), 9);
            assert_eq!(rig.pass(1), []);
        }
        let told = rig.pass(400);
        let expected =
            [(300, overdue(b"0", 0, 300, 1)), (360, overdue(b"1", 1, 359, 61)), (420, overdue(b"61", 61, 359, 90))];
        assert_eq!(told, expected);
    }

    /// The timer is armed for something later when a new lock may be the first to be old.
    #[test]
    fn a_new_lock_is_not_overlooked() {
        let mut rig = Rig::new(PoolsSettings { warn_hold: Span::from_secs(10), ..PoolsSettings::default() });
        rig.acquire(1, b"old", 9);
        assert_eq!(rig.pass(400), [10, 70, 130, 190, 320].map(|at| (at, overdue(b"old", 1, at, 1))));
        rig.acquire(2, b"new", 9);
        assert_eq!(rig.pass(60), [(410, overdue(b"new", 2, 10, 2))]);
    }

    #[test]
    fn nothing_is_told_that_nobody_wants_to_know() {
        let mut rig = Rig::new(PoolsSettings { warn_hold: Span::FOREVER, ..PoolsSettings::default() });
        rig.acquire(1, b"k", 9);
        assert!(rig.wheel.is_empty());
        assert_eq!(rig.pass(1_000_000), []);
    }

    #[test]
    fn a_key_that_refuses_many_is_told_of_at_once_and_once_a_minute() {
        let mut rig =
            Rig::new(PoolsSettings { warn_refusals: 1, warn_hold: Span::FOREVER, ..PoolsSettings::default() });
        rig.acquire(1, b"busy", 1);
        rig.acquire(2, b"busier", 1);
        for _ in 0..60 {
            rig.acquire(3, b"busy", 1);
        }
        assert_eq!(rig.notices, [], "as many as one a second for a minute");
        assert_eq!(rig.pass(30), []);
        rig.acquire(3, b"busy", 1);
        let (key, within) = (b"busy".to_vec(), Span::from_secs(30));
        assert_eq!(std::mem::take(&mut rig.notices), [Notice::Refusing { key, refusals: 61, within }]);
        for _ in 0..100 {
            rig.acquire(3, b"busier", 9);
        }
        let most = Some((b"busier".to_vec(), 100));
        assert_eq!(rig.pass(600), [(60, Notice::Refused { full: 61, timeouts: 100, most, floods: 2 })]);
        assert!(rig.wheel.is_empty());
        rig.acquire(3, b"busy", 1);
        let most = Some((b"busy".to_vec(), 1));
        assert_eq!(rig.pass(600), [(690, Notice::Refused { full: 1, timeouts: 0, most, floods: 0 })]);
    }
}
