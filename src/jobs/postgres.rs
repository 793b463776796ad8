//! The store that keeps jobs in a database of PostgreSQL, as the loop sees it. Several daemons share one database; one
//! of them owns the queue, and the other daemons stand by. A thread asks the database and sends events to the loop.

mod bell;
mod link;
mod messages;
pub mod owner;
mod place;
mod reading;
pub mod rows;
pub mod schema;
mod serving;
mod session;
pub mod statements;
mod tls;
mod worker;

pub use place::Place;
pub use worker::init_db;

use super::store::{HandedOver, Jobs, Store as _, Verdict};
use bell::Bell;
use owner::{Inbox, LEASE_SECONDS, Order, OwnerRow, StoreEvent, TRUST, Wish};
use poolcounter_core::{Span, Time};
use poolcounter_service::contract::Wake;
use poolcounter_store::desk::Desk;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Time that the start waits for the first event of the database. A daemon that serves more than jobs starts without
/// it.
const FIRST_WORD: Duration = Duration::from_secs(2);
/// Number of ticks without changes before the next batch begins, with that of a commit: clients that were just answered
/// ask again. A commit of few changes costs the database about as much as one of many.
const TICKS_BEFORE_NEXT: u8 = 2;
/// Longest wait for such changes; it is at most that of two commits.
const LONGEST_GATHERING: Span = Span::from_millis(5);

/// Difference of clocks below which they count as equal; a greater one is logged.
const CLOCK_TOLERANCE: Span = Span::from_secs(1);
/// Time from the end of the trust to that of the lease, after which another daemon may own the queue.
const LEASE_BEYOND_TRUST: Span = Span::from_micros(LEASE_SECONDS * 1_000_000 - TRUST.as_micros());

/// Time that the store must have failed before an upgrade stops waiting for it. A lost connection is made again sooner.
const STUCK_AFTER: Span = Span::from_secs(2);

/// Store of jobs in a database.
pub struct Postgres {
    name: String,
    /// Name without the servers, which may change while the queue stays.
    identity: String,
    backend: Backend,
    desk: Desk<Jobs, Order, StoreEvent>,
    /// Time of day at the service's start by the database's clock, as far as that is known.
    epoch: Span,
    /// The same by this machine's clock, and the moment at which it was taken.
    own_epoch: Span,
    loaded: (SystemTime, Instant),
    /// End of the trust: jobs may be given out before it. In microseconds of the backend's clock.
    trusted_until: Arc<AtomicU64>,
    /// Events that are not processed yet.
    events: VecDeque<StoreEvent>,
    term: u64,
    standing: Role,
    /// Wait of the next batch; None if it begins at once.
    gathering: Option<Gathering>,
    holder: OwnerRow,
    /// Handover of the previous process, until it is decided.
    handed_over: HandedOver,
    /// Time at which it began to fail, by the backend's clock.
    failed_at: Time,
    /// Time at which it went on with the queue of the previous process, by the backend's clock.
    begun: Time,
    /// Rung with each order, for the thread.
    bell: Arc<Bell>,
    /// The inbox, with the rows that the service has not taken.
    inbox: Inbox,
}

/// Access to the database, or to a model of one.
pub struct Backend {
    /// Returns the time.
    pub clock: Arc<dyn Fn() -> Time + Send + Sync>,
    /// Starts the requests: as the successor of a process that owned the queue, or with nothing.
    pub start: Start,
    /// Time that the start waits for the first event.
    pub patience: Duration,
}

/// Function that starts the thread of requests.
pub type Start = Box<dyn FnMut(Option<HandedOver>, Ends) -> Result<Option<JoinHandle<()>>, String> + Send>;

/// The backend's ends of the channels to the loop.
pub struct Ends {
    /// Orders of the loop.
    pub orders: Receiver<Order>,
    /// Events for the loop.
    pub events: Sender<StoreEvent>,
    /// Wakes the loop after an event is sent.
    pub wake: Wake,
    /// End of the trust: the loop may give out jobs before it. In microseconds of the clock.
    pub trusted_until: Arc<AtomicU64>,
}

/// Wait of the next batch for clients that were just answered.
struct Gathering {
    /// Number of ticks without changes until its end, at least one.
    ticks: u8,
    /// Number of changes so far.
    changes: usize,
    /// Time from which it does not wait for more.
    until: Time,
}

/// Role of this process towards the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    StandsBy,
    /// It owns the queue, and the service does not have its jobs yet.
    Reads,
    /// It owned the queue before an upgrade, and the database has not confirmed that yet.
    GoesOn,
    Owns,
}

impl Postgres {
    /// Returns a store that is not open yet.
    pub fn new(mut place: Place) -> Self {
        // Another store of the place has a thread of its own.
        place.bell = Arc::default();
        let (name, identity) = (place.name(), place.name_at(""));
        let begun = Instant::now();
        let clock = Arc::new(move || Time::START + Span::from_micros(1) + begun.elapsed().into());
        let bell = place.bell.clone();
        let start = worker::starter(place, clock.clone());
        let mut store = Postgres::with(name, Backend { clock, start, patience: FIRST_WORD });
        (store.identity, store.bell) = (identity, bell);
        store
    }

    /// Returns the store of a queue with a name, which the log has before the place.
    #[must_use]
    pub fn named(mut self, queue: &str) -> Self {
        if !queue.is_empty() {
            self.name = format!("{queue} ({})", self.name);
        }
        self
    }

    /// Returns a store with another backend, such as a model of a database.
    pub fn with(name: String, backend: Backend) -> Self {
        Postgres {
            identity: name.clone(),
            name,
            backend,
            desk: Desk::default(),
            epoch: Span::ZERO,
            own_epoch: Span::ZERO,
            loaded: (SystemTime::now(), Instant::now()),
            trusted_until: Arc::default(),
            events: VecDeque::new(),
            term: 0,
            standing: Role::StandsBy,
            gathering: None,
            holder: OwnerRow::default(),
            handed_over: HandedOver::default(),
            failed_at: Time::START,
            begun: Time::START,
            bell: Arc::default(),
            inbox: Inbox::default(),
        }
    }

    fn start(&mut self, handed_over: Option<HandedOver>) -> Result<(), String> {
        let Postgres { desk, backend, trusted_until, .. } = self;
        let trusted_until = trusted_until.clone();
        desk.start(|orders, events, wake| (backend.start)(handed_over, Ends { orders, events, wake, trusted_until }))
    }

    /// Returns the time until which this process may act as the owner: while work goes on after an upgrade, at least
    /// [`TRUST`] after the start.
    fn trusted_until(&self) -> Time {
        let confirmed = Time::from_micros(self.trusted_until.load(Ordering::Acquire));
        if self.standing == Role::GoesOn { confirmed.max(self.begun + TRUST) } else { confirmed }
    }

    fn wish(&mut self, wish: Wish) {
        if !self.desk.order(Order { term: self.term, wish }) {
            self.fail("its thread has ended");
        }
        self.bell.ring();
    }

    /// Notes that the store fails, and logs the reason at the first failure.
    fn fail(&mut self, sentence: &str) {
        if self.desk.fault.reason().is_none() {
            self.failed_at = (self.backend.clock)();
        }
        if !self.desk.fault.begin(sentence) {
            return;
        }
        if self.standing == Role::StandsBy && !self.holder.address.is_empty() {
            let owner = &self.holder.address;
            log::warn!("the standby does not reach {}: {sentence}; it could not take over from {owner}", self.name);
        } else {
            log::error!("the jobs cannot be kept in {}: {sentence}", self.name);
        }
    }

    /// Notes that the store works, and logs it after a failure.
    fn mend(&mut self) {
        if self.desk.fault.end() {
            let failed: Duration = (self.backend.clock)().since(self.failed_at).into();
            log::info!("the database works again: {} did not for {:.1} s", self.name, failed.as_secs_f64());
        }
    }

    /// Processes an event, and returns its consequence for the service.
    fn take(&mut self, event: StoreEvent) -> Option<Verdict> {
        match event {
            StoreEvent::Clock(ahead) => self.go_by(ahead),
            StoreEvent::StandsBy(holder) => {
                if (self.holder.epoch, &self.holder.address) != (holder.epoch, &holder.address) {
                    log::info!("the jobs in {} are served by {}; this daemon stands by", self.name, holder.address);
                }
                self.holder = holder;
                self.mend();
            }
            StoreEvent::Owns(holder) => {
                log::info!("the jobs in {} are this daemon's now, by the take-over {}", self.name, holder.epoch);
                (self.standing, self.holder) = (Role::Reads, holder);
                self.mend();
            }
            StoreEvent::Page(page) => {
                self.mend();
                return Some(self.desk.paged(page));
            }
            StoreEvent::Committed { commit, took } => {
                self.mend();
                let most = Span::from_micros(took.as_micros().saturating_mul(2)).min(LONGEST_GATHERING);
                let until = (self.backend.clock)() + most;
                self.gathering = Some(Gathering { ticks: TICKS_BEFORE_NEXT, changes: 0, until });
                return Some(self.desk.committed(commit, took));
            }
            StoreEvent::Works(holder) => {
                self.end_going_on();
                (self.desk.rewrite, self.holder) = (None, holder);
                // A batch that has failed is not committed yet.
                if !self.desk.is_under_way() {
                    self.mend();
                }
            }
            StoreEvent::Fails(sentence) | StoreEvent::Refused(sentence) => self.fail(&sentence),
            StoreEvent::Lost(why) => {
                self.stand_by(&why);
                return Some(Verdict::Lost(why));
            }
            StoreEvent::Rewrite(number, holder) => {
                self.end_going_on();
                self.holder = holder;
                return Some(self.desk.rewritten(number));
            }
            StoreEvent::Inbox(inbox) => self.inbox = inbox,
            StoreEvent::NextSlice(number) => return self.desk.next_slice(number).or_else(|| self.verdict()),
        }
        self.verdict()
    }

    fn set_epoch(&mut self, epoch: Span) {
        (self.epoch, self.own_epoch, self.loaded) = (epoch, epoch, (SystemTime::now(), Instant::now()));
    }

    /// Uses the clock of the database, which all daemons share.
    fn go_by(&mut self, ahead: i64) {
        // A step of this machine's clock since then is no time that has passed.
        let (wall, begun) = self.loaded;
        let stepped = match SystemTime::now().duration_since(wall + begun.elapsed()) {
            Ok(forward) => micros_of(forward),
            Err(back) => -micros_of(back.duration()),
        };
        let apart = ahead.saturating_add(stepped);
        // A difference below the error of measurement changes nothing.
        let apart = if apart.unsigned_abs() > CLOCK_TOLERANCE.as_micros() { apart } else { 0 };
        self.epoch = Span::from_micros(self.own_epoch.as_micros().saturating_add_signed(apart));
        if ahead.unsigned_abs() > CLOCK_TOLERANCE.as_micros() {
            let (seconds, how) = (ahead as f64 / 1e6, if ahead > 0 { "ahead of" } else { "behind" });
            log::warn!("the clock of {} is {:.1} s {how} this machine's; delays go by it", self.name, seconds.abs());
        }
    }

    /// Ends the confirmation after an upgrade: the jobs of the previous process are in the database.
    fn end_going_on(&mut self) {
        if self.standing == Role::GoesOn {
            self.standing = Role::Owns;
        }
    }

    /// Stands by, because another daemon owns the queue: discards everything under way.
    fn stand_by(&mut self, why: &str) {
        log::error!("the jobs in {} are not this daemon's any more: {why}", self.name);
        self.term += 1;
        self.standing = Role::StandsBy;
        (self.gathering, self.holder, self.inbox) = (None, OwnerRow::default(), Inbox::default());
        self.desk.forget();
    }
}

impl Drop for Postgres {
    /// Ends the thread, which may wait.
    fn drop(&mut self) {
        self.desk.end_orders();
        self.bell.end();
    }
}

fn micros_of(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Commit, Stored};
    use crate::store::batch::{Row, read_root};
    use crate::store::columns::Named;
    use std::sync::mpsc::channel;

    #[test]
    fn times_are_kept_by_the_clock_of_the_database() {
        const HOUR: i64 = 3_600_000_000;
        let (sender, started) = channel();
        let start = Box::new(move |_, ends| {
            sender.send(ends).expect("it is waited for");
            Ok(None)
        });
        let clock = Arc::new(|| Time::START + Span::from_secs(1));
        let mut store = Postgres::with("a test".into(), Backend { clock, start, patience: Duration::ZERO });
        let epoch = Span::from_secs(1_000_000);
        store.load(epoch).expect("it begins");
        let ends: Ends = started.recv().expect("it has begun");
        ends.events.send(StoreEvent::Clock(HOUR)).expect("it is heard");
        assert_eq!(store.verdict(), None);
        store.add(Stored::Root(b"tube", b"signature", 5, 0));
        store.commit(Commit(1));
        let Ok(Order { wish: Wish::Commit(batch), .. }) = ends.orders.try_recv() else { panic!("there is a batch") };
        let Row::Named(Named::Root, _, Some(value)) = &batch.rows[0] else { panic!("it has the root job") };
        let (_, changed) = read_root(epoch, batch.text(*value)).expect("it makes sense");
        let late = changed - HOUR;
        assert!(late.abs() < 1_000_000, "{late}");
    }

    #[test]
    fn next_batch_waits_while_changes_come_and_not_for_long() {
        let time = Arc::new(AtomicU64::new(1));
        let now = time.clone();
        let clock = Arc::new(move || Time::from_micros(now.load(Ordering::Relaxed)));
        let start = Box::new(|_, _| Ok(None));
        let mut store = Postgres::with("a test".into(), Backend { clock, start, patience: Duration::ZERO });
        let mut gathers = |changes: &[usize], tick_ms: u64, took_ms: u64| -> Vec<bool> {
            let took = Span::from_millis(took_ms);
            store.events.push_back(StoreEvent::Committed { commit: Commit(1), took });
            assert_eq!(store.verdict(), Some(Verdict::Committed(Commit(1))));
            let mut tick = |changes: &usize| {
                let gathers = store.gathers(*changes);
                time.fetch_add(tick_ms * 1_000, Ordering::Relaxed);
                gathers
            };
            changes.iter().map(&mut tick).collect()
        };
        // Alone, for one more tick.
        assert_eq!(gathers(&[0, 0, 1], 0, 1), [true, false, false]);
        // While there are more in each second tick.
        assert_eq!(gathers(&[20, 30, 30, 31, 31, 31, 32], 0, 1), [true, true, true, true, true, false, false]);
        // For as long as two commits, and for 5 ms at most.
        assert_eq!(gathers(&[1, 2, 3, 4, 5], 1, 1), [true, true, true, false, false]);
        assert_eq!(gathers(&[1, 2, 3, 4, 5, 6, 7, 8], 1, 9), [true, true, true, true, true, true, false, false]);
    }
}
