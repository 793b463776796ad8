//! The store that keeps jobs in a database of PostgreSQL, as the loop sees it. Several daemons share one; one of them has the
//! queue, and the others stand by. A thread asks the database, and tells what comes of that.

mod link;
mod load;
mod messages;
pub mod owner;
mod place;
mod rate;
mod renewals;
pub mod rows;
pub mod schema;
mod serving;
mod session;
pub mod statements;
mod tls;
mod unfit;
mod url;
mod worker;

pub use place::Place;
pub use rate::Rate;
pub use url::PostgresUrl;
pub use worker::init_db;

use super::state::Stored;
use super::store::batch::{Batch, signed};
use super::store::page::Page;
use super::store::{HandedOver, Health, Mark, OwnerHealth, Ownership, Store, Verdict, Visit};
use owner::{Holder, LEASE_SECONDS, Order, StoreEvent, TRUST, Wish};
use poolcounter_core::log_limit::Fault;
use poolcounter_core::time::{Span, Time};
use poolcounter_service::contract::Wake;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// How long the start waits for the first word of the database. A daemon that serves more than jobs starts without it.
const FIRST_WORD: Duration = Duration::from_secs(2);
/// Number of looks without news before the next batch begins: at the end of the tick of a commit, and of the next one, in which clients
/// that were just answered ask again. A commit of few changes costs the database about as much as one of many.
const LOOKS_BEFORE_NEXT: u8 = 2;

/// Difference of clocks that counts, and is worth a word.
const CLOCK_TOLERANCE: Span = Span::from_secs(1);
/// Time from the end of the trust to that of the lease, from when on another may have the queue.
const LEASE_BEYOND_TRUST: Span = Span::from_micros(LEASE_SECONDS * 1_000_000 - TRUST.as_micros());

/// How long it must have failed before an upgrade does not wait for it: a connection that is lost is made again sooner.
const STUCK_AFTER: Span = Span::from_secs(2);

/// Keeps jobs in a database.
pub struct Postgres {
    name: String,
    backend: Backend,
    wake: Option<Wake>,
    /// The time of day at the service's start by the database's clock, as far as that is known.
    epoch: Span,
    /// The same by this machine's clock, and the moment when that was taken.
    own_epoch: Span,
    loaded: (SystemTime, Instant),
    rate: Arc<Rate>,
    /// Until when this process may give out jobs, in microseconds of the backend's clock.
    trusted_until: Arc<AtomicU64>,
    line: Option<Line>,
    /// What was told, and not taken in yet.
    told: VecDeque<StoreEvent>,
    term: u64,
    standing: Role,
    collected: Batch,
    /// How many changes the batch has that is under way.
    under_way: Option<u64>,
    /// So many looks at what is told must find nothing before the next batch begins.
    looks_left: u8,
    /// Which of the times that all is written anew is under way.
    rewrite: Option<u64>,
    page: Option<Page>,
    holder: Holder,
    /// Handover of the process before, until it is decided.
    handed_over: HandedOver,
    fault: Fault,
    /// When it began to fail, by the backend's clock.
    failed_at: Time,
    /// When it went on with the queue of the process before, by the backend's clock.
    begun: Time,
    health: Health,
}

/// What asks the database.
pub struct Backend {
    /// Returns the time.
    pub clock: Arc<dyn Fn() -> Time + Send + Sync>,
    /// Begins to ask, as the successor of a process that had the queue, or as one that has nothing.
    pub start: Start,
    /// How long it may take before it says anything.
    pub patience: Duration,
}

/// What begins to ask the database.
pub type Start = Box<dyn FnMut(Option<HandedOver>, Ends) -> Result<Option<JoinHandle<()>>, String> + Send>;

/// The backend's ends of what is between it and the loop.
pub struct Ends {
    /// What the loop wants.
    pub orders: Receiver<Order>,
    /// What it is told.
    pub told: Sender<StoreEvent>,
    /// Wakes the loop when it was told something.
    pub wake: Wake,
    /// Until when the loop may give out jobs, in microseconds of the clock.
    pub trusted_until: Arc<AtomicU64>,
    /// Rate at which a batch is sent.
    pub rate: Arc<Rate>,
}

/// What there is between the loop and the thread.
struct Line {
    orders: Option<Sender<Order>>,
    told: Receiver<StoreEvent>,
    handle: Option<JoinHandle<()>>,
}

/// What this process is to the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    StandsBy,
    /// It has the queue, and the service does not know yet what is in it.
    Reads,
    /// It had the queue before an upgrade.
    GoesOn,
    Owns,
}

impl Postgres {
    /// A store that is not open yet.
    pub fn new(place: Place) -> Self {
        let name = place.name();
        let begun = Instant::now();
        let clock = Arc::new(move || Time::START + Span::from_micros(1) + begun.elapsed().into());
        let start = worker::starter(place, clock.clone());
        Postgres::with(name, Backend { clock, start, patience: FIRST_WORD })
    }

    /// A store with something else that asks the database, or a model of one.
    pub fn with(name: String, backend: Backend) -> Self {
        Postgres {
            name,
            backend,
            wake: None,
            epoch: Span::ZERO,
            own_epoch: Span::ZERO,
            loaded: (SystemTime::now(), Instant::now()),
            rate: Arc::default(),
            trusted_until: Arc::default(),
            line: None,
            told: VecDeque::new(),
            term: 0,
            standing: Role::StandsBy,
            collected: Batch::default(),
            under_way: None,
            looks_left: 0,
            rewrite: None,
            page: None,
            holder: Holder::default(),
            handed_over: HandedOver::default(),
            fault: Fault::default(),
            failed_at: Time::START,
            begun: Time::START,
            health: Health::default(),
        }
    }

    fn start(&mut self, handed_over: Option<HandedOver>) -> Result<(), String> {
        let (orders, received) = channel();
        let (teller, told) = channel();
        let wake = self.wake.clone().unwrap_or_else(|| Wake::new(|| {}));
        let ends = Ends {
            orders: received,
            told: teller,
            wake,
            trusted_until: self.trusted_until.clone(),
            rate: self.rate.clone(),
        };
        let handle = (self.backend.start)(handed_over, ends)?;
        self.line = Some(Line { orders: Some(orders), told, handle });
        Ok(())
    }

    /// Returns until when this process counts on having the queue. One that goes on has some time to be confirmed.
    fn trusted_until(&self) -> Time {
        let confirmed = Time::from_micros(self.trusted_until.load(Ordering::Acquire));
        if self.standing == Role::GoesOn { confirmed.max(self.begun + TRUST) } else { confirmed }
    }

    fn wish(&mut self, wish: Wish) {
        let orders = self.line.as_ref().and_then(|line| line.orders.as_ref());
        if orders.is_none_or(|orders| orders.send(Order { term: self.term, wish }).is_err()) {
            self.fail("its thread has ended");
        }
    }

    /// Notes why it fails, and says so unless that is known.
    fn fail(&mut self, sentence: &str) {
        if self.fault.reason().is_none() {
            self.failed_at = (self.backend.clock)();
        }
        if self.fault.begin(sentence) {
            log::error!("the jobs cannot be kept in {}: {sentence}", self.name);
        }
    }

    /// Notes that it works, and says so once.
    fn mend(&mut self) {
        if self.fault.end() {
            let failed: Duration = (self.backend.clock)().since(self.failed_at).into();
            log::info!("the database works again: {} did not for {:.1} s", self.name, failed.as_secs_f64());
        }
    }

    /// Takes in what is told, as far as the service must know of it.
    fn take(&mut self, told: StoreEvent) -> Option<Verdict> {
        match told {
            StoreEvent::Clock(ahead) => self.go_by(ahead),
            StoreEvent::StandsBy(holder) => {
                if self.holder != holder {
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
                let order = page.order();
                self.page = Some(page);
                self.mend();
                return Some(Verdict::Page(order));
            }
            StoreEvent::Committed { commit, took } => {
                self.mend();
                self.health.last_batch = self.under_way.take().unwrap_or(0);
                self.health.commits.record(took);
                self.looks_left = LOOKS_BEFORE_NEXT;
                return Some(Verdict::Committed(commit));
            }
            StoreEvent::Works(holder) => {
                self.end_going_on();
                (self.rewrite, self.holder) = (None, holder);
                // What has failed is not committed yet.
                if self.under_way.is_none() {
                    self.mend();
                }
            }
            StoreEvent::Fails(sentence) | StoreEvent::Refused(sentence) => self.fail(&sentence),
            StoreEvent::Unfit(rows) => return Some(Verdict::Refused(rows)),
            StoreEvent::Lost(why) => {
                self.stand_by(&why);
                return Some(Verdict::Lost(why));
            }
            StoreEvent::Rewrite(number, holder) => {
                self.end_going_on();
                (self.rewrite, self.holder) = (Some(number), holder);
                self.health.rewrites += 1;
                return Some(Verdict::Rewrite);
            }
            StoreEvent::NextSlice(number) => {
                // A slice of an earlier time counts for nothing any more.
                return (self.rewrite == Some(number)).then_some(Verdict::NextSlice).or_else(|| self.verdict());
            }
        }
        self.verdict()
    }

    fn set_epoch(&mut self, epoch: Span) {
        (self.epoch, self.own_epoch, self.loaded) = (epoch, epoch, (SystemTime::now(), Instant::now()));
    }

    /// Reckons with the clock of the database, which all daemons share.
    fn go_by(&mut self, ahead: i64) {
        // A step of this machine's clock since then is none of the time that has passed.
        let (wall, begun) = self.loaded;
        let stepped = match SystemTime::now().duration_since(wall + begun.elapsed()) {
            Ok(forward) => micros_of(forward),
            Err(back) => -micros_of(back.duration()),
        };
        let apart = ahead.saturating_add(stepped);
        // What is less than can be measured changes nothing.
        let apart = if apart.unsigned_abs() > CLOCK_TOLERANCE.as_micros() { apart } else { 0 };
        self.epoch = Span::from_micros(self.own_epoch.as_micros().saturating_add_signed(apart));
        if ahead.unsigned_abs() > CLOCK_TOLERANCE.as_micros() {
            let (seconds, how) = (ahead as f64 / 1e6, if ahead > 0 { "ahead of" } else { "behind" });
            log::warn!("the clock of {} is {:.1} s {how} this machine's; delays go by it", self.name, seconds.abs());
        }
    }

    /// The jobs that another process has left are those in the database.
    fn end_going_on(&mut self) {
        if self.standing == Role::GoesOn {
            self.standing = Role::Owns;
        }
    }

    /// Another daemon has the jobs: what is under way counts for nothing.
    fn stand_by(&mut self, why: &str) {
        log::error!("the jobs in {} are not this daemon's any more: {why}", self.name);
        self.term += 1;
        self.standing = Role::StandsBy;
        (self.under_way, self.rewrite, self.page) = (None, None, None);
        (self.collected, self.holder) = (Batch::default(), Holder::default());
    }
}

impl Drop for Postgres {
    /// Ends the thread, which finishes what is under way and lets others have the queue.
    fn drop(&mut self) {
        let Some(line) = &mut self.line else { return };
        line.orders = None;
        // A thread that has panicked has said so.
        let _ = line.handle.take().map(JoinHandle::join);
    }
}

fn micros_of(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Commit;
    use crate::store::batch::Row;

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
        ends.told.send(StoreEvent::Clock(HOUR)).expect("it is heard");
        assert_eq!(store.verdict(), None);
        store.add(Stored::Root(b"tube", b"signature", 5, 0));
        store.commit(Commit(1));
        let Ok(Order { wish: Wish::Commit(batch), .. }) = ends.orders.try_recv() else { panic!("there is a batch") };
        let Row::Root(.., changed) = &batch.rows[0] else { panic!("it has the root job") };
        let late = changed - signed(epoch) - HOUR;
        assert!(late.abs() < 1_000_000, "{late}");
    }
}
