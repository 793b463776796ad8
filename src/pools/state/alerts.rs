//! Alerts: events for the operator about locks that are held for long, and about refused requests. One timer serves all
//! of them. It is armed only while an alert may become due, so an idle server sleeps.
//!
//! A lock is reported when it reaches the age that the operator has set, and again at each doubling of that age. No
//! lock has a timer of its own for that: when the first can have reached such an age, all that have are examined, in
//! slices.
//!
//! The first refusal opens a window of a minute, at whose end the refusals in it are summed up.

use super::{ClaimId, PoolId, PoolsState, PoolsStep, PoolsTimer, Reply, TypeId};
use poolcounter_core::count::Count;
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::time::{Span, Time};
use poolcounter_core::top_keys::{self, KeyEvent};
use poolcounter_core::wheel::{LAST_TICK, TimerId, Timers};
use poolcounter_protocol::pools::stats::PoolStat as Stat;
use serde::{Deserialize, Serialize};

/// Time over which refusals are collected, and for which no lock is reported after one was.
pub const WINDOW: Span = Span::from_secs(60);
/// The least time between two scans of the locks.
const SCAN_INTERVAL: Span = Span::from_secs(1);
/// Number of locks in one slice of a scan, and the pause until the next: a scan takes a tenth of the time.
const LOCKS_AT_ONCE: usize = 1024;
const SCAN_PAUSE: Span = Span::from_millis(1);

/// Event for the log. Keys are cut to [`top_keys::KEY_BYTES`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PoolEvent {
    /// A lock is held for long: the oldest lock that has reached a milestone since the last event.
    Overdue {
        /// Key of the lock.
        key: Vec<u8>,
        /// Connection that holds it.
        conn: ConnId,
        /// Name that its client gave; empty without one.
        who: Box<[u8]>,
        /// Age of the lock.
        age: Span,
        /// Number of locks that are held for longer than the operator has set, including this one.
        overdue: u64,
    },
    /// A lock is taken back earlier than its client asked for: its connection must be ended.
    TakenBack {
        /// Key of the lock.
        key: Vec<u8>,
        /// Connection that held it.
        conn: ConnId,
        /// Name that its client gave; empty without one.
        who: Box<[u8]>,
        /// Time for which it was held.
        held: Span,
    },
    /// A key refuses more requests than the operator has set.
    Refusing {
        /// The key.
        key: Vec<u8>,
        /// Number of refusals in the window so far.
        refusals: u64,
        /// Time since the window was opened.
        within: Span,
    },
    /// Requests were refused within a `WINDOW`.
    Refused {
        /// Number of QUEUE_FULL replies.
        full: u64,
        /// Number of TIMEOUT replies.
        timeouts: u64,
        /// Key with the most refusals, and their number.
        most: Option<(Vec<u8>, u64)>,
        /// Number of keys that refused more than the operator has set.
        floods: u64,
    },
}

/// Reason of a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RefusalReason {
    Full,
    Timeout,
}

impl RefusalReason {
    /// Returns the reply to the client.
    pub fn reply(self) -> Reply {
        match self {
            RefusalReason::Full => Reply::QueueFull,
            RefusalReason::Timeout => Reply::Timeout,
        }
    }
}

/// State of the alerts: the timer, and the scan under way.
pub(super) struct Alerts {
    /// Timer while locks are held that may become overdue, and while a window is open; it may outlast the locks.
    pub timer: Option<TimerId>,
    /// Time at which the timer is due; [`NEVER`] without one.
    pub due: Time,
    pub history: AlertHistory,
    /// Time before which no lock is examined.
    scan_at: Time,
    /// Lock that is reported at the end of the scan under way.
    found: Option<FoundLock>,
}

/// The oldest lock that has reached a milestone since the last event.
struct FoundLock {
    key: Vec<u8>,
    conn: ConnId,
    who: Box<[u8]>,
    since: Time,
}

/// Last moment of the timer wheel: no alert is due.
pub(super) const NEVER: Time = Time::from_micros(LAST_TICK * 1_000);

/// Last reports, and refusals to report: the part of the alerts that a handover contains.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct AlertHistory {
    /// Time of the last complete scan of the locks.
    pub scanned_at: Time,
    /// Time before which no lock is reported.
    quiet_until: Time,
    window: Option<Window>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Window {
    begun: Time,
    full: Count,
    timeouts: Count,
    /// True if a key that refuses too much was reported in this window.
    has_warned: bool,
}

impl Default for Alerts {
    fn default() -> Self {
        Alerts { timer: None, due: NEVER, history: AlertHistory::default(), scan_at: Time::START, found: None }
    }
}

impl Alerts {
    /// Returns whether a window is open: a request was refused within the last [`WINDOW`].
    pub fn is_window_open(&self) -> bool {
        self.history.window.is_some()
    }

    /// Returns the time at which the present window was opened.
    pub fn window_begun(&self) -> Option<Time> {
        self.history.window.as_ref().map(|window| window.begun)
    }
}

impl PoolsState {
    /// Arms the timer for the moment at which a newly granted lock may be overdue.
    pub(super) fn schedule_lock_scan(&mut self, step: &mut PoolsStep<'_, '_>) {
        let at = step.now + self.settings.warn_hold;
        if at < self.alerts.due {
            self.arm_alerts(at.max(self.alerts.history.quiet_until).max(self.alerts.scan_at), step.timers);
        }
    }

    /// Counts a refusal by a pool of a request of this type of work.
    pub(super) fn note_refusal(
        &mut self,
        pool: PoolId,
        type_id: TypeId,
        refusal: RefusalReason,
        step: &mut PoolsStep<'_, '_>,
    ) {
        if self.alerts.history.window.is_none() {
            self.top_keys.begin_window();
            self.arm_alerts(step.now + WINDOW, step.timers);
        }
        let nothing = Window { begun: step.now, full: Count::ZERO, timeouts: Count::ZERO, has_warned: false };
        let limit = self.refusals_in_window();
        let window = self.alerts.history.window.get_or_insert(nothing);
        let pool = &self.pools[pool.index()];
        let of_type = &mut self.types[type_id];
        match refusal {
            RefusalReason::Full => {
                self.figures.count(Stat::FullQueues);
                of_type.full.bump();
                window.full.bump();
            }
            RefusalReason::Timeout => {
                of_type.timeouts.bump();
                window.timeouts.bump();
            }
        }
        let refusals = self.top_keys.count(&pool.key, KeyEvent::Refusal, step.now);
        if refusals > limit && !window.has_warned {
            window.has_warned = true;
            let (key, within) = (top_keys::truncated(&pool.key).into(), step.now.since(window.begun));
            step.events.push(PoolEvent::Refusing { key, refusals, within });
        }
    }

    /// Handles the timer: reports the alerts that are due.
    pub(super) fn expire_alerts(&mut self, step: &mut PoolsStep<'_, '_>) {
        self.alerts.timer.take().into_iter().for_each(TimerId::fired);
        self.alerts.due = NEVER;
        let history = &mut self.alerts.history;
        if let Some(window) = history.window.take_if(|window| window.begun + WINDOW <= step.now) {
            step.events.push(self.summarize(&window));
        }
        let next_lock_scan = self.scan_locks(step);
        self.rearm_alerts(next_lock_scan, step.timers);
    }

    /// Arms the timer for the next scan or the end of the window, if there is any.
    pub(super) fn rearm_alerts(&mut self, next_lock_scan: Option<Time>, timers: &mut Timers<'_, PoolsTimer>) {
        let window_end = self.alerts.history.window.as_ref().map(|window| window.begun + WINDOW);
        if let Some(at) = window_end.into_iter().chain(next_lock_scan).min() {
            self.arm_alerts(at, timers);
        }
    }

    /// Returns the time of the next scan of the locks; None if no lock can become overdue.
    pub(super) fn next_lock_scan(&self) -> Option<Time> {
        let next = self.next_milestone().filter(|next| *next < NEVER)?;
        Some(next.max(self.alerts.history.quiet_until).max(self.alerts.scan_at))
    }

    fn arm_alerts(&mut self, at: Time, timers: &mut Timers<'_, PoolsTimer>) {
        if at < self.alerts.due {
            self.alerts.due = at;
            let later = self.alerts.timer.replace(timers.arm(at, PoolsTimer::Alerts));
            later.into_iter().for_each(|timer| timers.cancel(timer));
        }
    }

    /// Returns the number of requests that a key may refuse in a [`WINDOW`].
    fn refusals_in_window(&self) -> u64 {
        u64::from(self.settings.warn_refusals) * (WINDOW.as_micros() / 1_000_000)
    }

    fn summarize(&self, window: &Window) -> PoolEvent {
        let limit = self.refusals_in_window();
        let most = self.top_keys.refusals_in_window().max_by_key(|(_, refusals)| *refusals);
        let floods = self.top_keys.refusals_in_window().filter(|(_, refusals)| *refusals > limit).count() as u64;
        let most = most.map(|(key, refusals)| (key.to_vec(), refusals));
        PoolEvent::Refused { full: window.full.get(), timeouts: window.timeouts.get(), most, floods }
    }

    /// Examines some of the locks that have reached a milestone, and returns the time to continue or to scan again. The
    /// oldest is reported at the end.
    fn scan_locks(&mut self, step: &mut PoolsStep<'_, '_>) -> Option<Time> {
        if step.now >= self.alerts.history.quiet_until {
            let found = self.alerts.found.take();
            self.alerts.found = found.or_else(|| Some(self.overdue_lock(self.oldest_at_milestone(step.now)?)));
            self.pass_milestones(step.now, LOCKS_AT_ONCE);
            if self.oldest_at_milestone(step.now).is_some() {
                self.alerts.scan_at = step.now + SCAN_PAUSE;
            } else {
                self.end_scan(step);
            }
        }
        self.next_lock_scan()
    }

    fn end_scan(&mut self, step: &mut PoolsStep<'_, '_>) {
        self.alerts.scan_at = step.now + SCAN_INTERVAL;
        self.alerts.history.scanned_at = step.now;
        if let Some(FoundLock { key, conn, who, since }) = self.alerts.found.take() {
            self.alerts.history.quiet_until = step.now + WINDOW;
            step.events.push(PoolEvent::Overdue {
                key,
                conn,
                who,
                age: step.now.since(since),
                overdue: self.held.overdue(),
            });
        }
    }

    fn overdue_lock(&self, id: ClaimId) -> FoundLock {
        let claim = &self.claims[id.index()];
        let key = top_keys::truncated(&self.pools[claim.pool.index()].key).into();
        FoundLock { key, conn: claim.conn, who: self.whos.of(id).into(), since: claim.since }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{AcquireLock, PoolsSettings, Purpose};
    use poolcounter_core::wheel::{Owner, Wheel};

    const OWNER: Owner = Owner(0);

    /// Pools whose clients each send a request at a second of their own.
    struct Rig {
        state: PoolsState,
        wheel: Wheel,
        events: Vec<PoolEvent>,
        now: Time,
    }

    impl Rig {
        fn new(limits: PoolsSettings) -> Rig {
            Rig { state: PoolsState::new(limits), wheel: Wheel::default(), events: Vec::new(), now: Time::START }
        }

        fn step(&mut self, take: impl FnOnce(&mut PoolsState, &mut PoolsStep<'_, '_>)) {
            let (timers, replies) = (&mut self.wheel.of(OWNER), &mut Vec::new());
            take(&mut self.state, &mut PoolsStep { now: self.now, timers, replies, events: &mut self.events });
            self.state.end_turn();
            self.state.check();
        }

        fn acquire(&mut self, conn: usize, key: &[u8], max_queue: u32) {
            let (timeout, hold) = (Span::ZERO, Span::FOREVER);
            let mut request = AcquireLock {
                key,
                purpose: Purpose::Me,
                workers: 1,
                max_queue,
                timeout,
                hold,
                keep: Span::ZERO,
                who: b"",
                also: Vec::new(),
            };
            self.step(|state, step| state.acquire(ConnId::from_index(conn), Ok(&mut request), step));
        }

        fn release(&mut self, conn: usize) {
            self.step(|state, step| state.release(ConnId::from_index(conn), None, step));
        }

        /// Lets time pass, and returns the events with the seconds at which they came.
        fn pass(&mut self, seconds: u64) -> Vec<(u64, PoolEvent)> {
            self.pass_to(self.now + Span::from_secs(seconds))
        }

        fn pass_to(&mut self, end: Time) -> Vec<(u64, PoolEvent)> {
            let mut events = Vec::new();
            while let Some(at) = self.wheel.next().filter(|at| *at <= end) {
                self.now = self.now.max(at);
                while let Some(due) = self.wheel.expire(self.now) {
                    self.step(|state, step| state.expire(due.key(), step));
                }
                let second = self.now.as_micros() / 1_000_000;
                events.extend(self.events.drain(..).map(|event| (second, event)));
            }
            self.now = end;
            events
        }
    }

    fn overdue(key: &[u8], conn: usize, age: u64, overdue: u64) -> PoolEvent {
        let (conn, age) = (ConnId::from_index(conn), Span::from_secs(age));
        PoolEvent::Overdue { key: key.into(), conn, who: Box::default(), age, overdue }
    }

    #[test]
    fn old_lock_is_reported_when_its_age_doubles() {
        let mut rig = Rig::new(PoolsSettings::default());
        rig.acquire(1, b"k", 9);
        assert_eq!(
            rig.pass(1_300),
            [300, 600, 1_200].map(|age| (age, overdue(b"k", 1, age, 1))),
            "and at no other time"
        );
        rig.release(1);
        assert_eq!(rig.pass(1_000_000), []);
        assert!(rig.wheel.is_empty(), "an idle server does not wake up");
    }

    #[test]
    fn many_old_locks_are_reported_once_a_minute() {
        let mut rig = Rig::new(PoolsSettings::default());
        for n in 0..90 {
            rig.acquire(n, n.to_string().as_bytes(), 9);
            assert_eq!(rig.pass(1), []);
        }
        let events = rig.pass(400);
        let expected =
            [(300, overdue(b"0", 0, 300, 1)), (360, overdue(b"1", 1, 359, 61)), (420, overdue(b"61", 61, 359, 90))];
        assert_eq!(events, expected);
    }

    #[test]
    fn very_many_old_locks_are_examined_in_parts() {
        let mut rig = Rig::new(PoolsSettings { warn_hold: Span::from_secs(10), ..PoolsSettings::default() });
        let locks = 2 * LOCKS_AT_ONCE + 1;
        (0..locks).for_each(|n| rig.acquire(n, n.to_string().as_bytes(), 9));
        for (ms, seen) in [(10_000, LOCKS_AT_ONCE), (10_001, 2 * LOCKS_AT_ONCE)] {
            assert_eq!(rig.pass_to(Time::START + Span::from_millis(ms)), []);
            assert_eq!(rig.state.held.overdue(), seen as u64);
        }
        let (key, conn, age) = (b"0".to_vec(), ConnId::from_index(0), Span::from_millis(10_002));
        assert_eq!(
            rig.pass(60),
            [(10, PoolEvent::Overdue { key, conn, who: Box::default(), age, overdue: locks as u64 })]
        );
    }

    /// A new lock may become old before the time for which the timer is armed.
    #[test]
    fn new_lock_is_not_overlooked() {
        let mut rig = Rig::new(PoolsSettings { warn_hold: Span::from_secs(10), ..PoolsSettings::default() });
        rig.acquire(1, b"old", 9);
        assert_eq!(rig.pass(400), [10, 70, 130, 190, 320].map(|at| (at, overdue(b"old", 1, at, 1))));
        rig.acquire(2, b"new", 9);
        assert_eq!(rig.pass(60), [(410, overdue(b"new", 2, 10, 2))]);
    }

    #[test]
    fn alert_that_is_switched_off_never_comes() {
        let mut rig = Rig::new(PoolsSettings { warn_hold: Span::FOREVER, ..PoolsSettings::default() });
        rig.acquire(1, b"k", 9);
        assert!(rig.wheel.is_empty());
        assert_eq!(rig.pass(1_000_000), []);
    }

    #[test]
    fn refusing_key_is_reported_at_most_each_minute() {
        let mut rig =
            Rig::new(PoolsSettings { warn_refusals: 1, warn_hold: Span::FOREVER, ..PoolsSettings::default() });
        rig.acquire(1, b"busy", 1);
        rig.acquire(2, b"busier", 1);
        for _ in 0..60 {
            rig.acquire(3, b"busy", 1);
        }
        assert_eq!(rig.events, [], "as many as one a second for a minute");
        assert_eq!(rig.pass(30), []);
        rig.acquire(3, b"busy", 1);
        let (key, within) = (b"busy".to_vec(), Span::from_secs(30));
        assert_eq!(std::mem::take(&mut rig.events), [PoolEvent::Refusing { key, refusals: 61, within }]);
        for _ in 0..100 {
            rig.acquire(3, b"busier", 9);
        }
        let most = Some((b"busier".to_vec(), 100));
        assert_eq!(rig.pass(600), [(60, PoolEvent::Refused { full: 61, timeouts: 100, most, floods: 2 })]);
        assert!(rig.wheel.is_empty());
        rig.acquire(3, b"busy", 1);
        let most = Some((b"busy".to_vec(), 1));
        assert_eq!(rig.pass(600), [(690, PoolEvent::Refused { full: 1, timeouts: 0, most, floods: 0 })]);
    }
}
