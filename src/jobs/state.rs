//! State machine of the jobs: puts, reservations, waiters and queues. It knows no sockets, no bytes on the wire, no
//! store and no clock: it takes a connection, a request and the time, and emits replies for any connection.
//!
//! Changes that must outlive the process are collected as a batch, which a store takes with [`State::take_batch`] and
//! which is valid once [`State::committed`] reports it. A reply that promises something names the batch it waits for; a
//! job is visible once the batch that put it is committed.
//!
//! Invariant: a job is in one place: pending, ready, delayed, reserved or buried. A tube has a bucket of ready jobs for
//! each group and a queue of jobs without a group, and is queued in each feed that covers it by its first job that may be
//! given out. A connection waits only while the feeds of its set of watches have no job for it.

use poolcounter_core::count::first_before;
use poolcounter_core::wheel::timer_keys;
use poolcounter_core::{ConnId, Figures, Random, Span, Time, TimerId, Timers};

mod bounds;
mod check;
mod commits;
mod conns;
mod figures;
mod ids;
pub mod inbox;
mod job;
mod jobs;
mod limits;
mod put;
mod reading;
mod record;
mod roots;
mod saved;
mod schedule;
mod serving;
mod setting;
mod settings;
mod shown_settings;
mod snapshot;
mod tube;
mod watch;

pub use bounds::Bounds;
pub use bulk::{Listing, Watchers};
pub use commits::{Commit, Handed};
pub use figures::{health, queries, views};
pub use job::{History, Origin, URGENT};
pub use periodic::ShownSchedule;
pub use queries::Summaries;
pub use record::{Record, RecordOf, Stored};
pub use roots::is_signature_of_key;
pub use saved::{Saved, SavedConn};
pub use schedule::periodic;
pub use sets::Watch;
pub use setting::{Paused, Progress, Setting, SettingKind, Value};
pub use shown_settings::ShownSetting;
pub use snapshot::SnapshotPlace;
pub use sums::{Part, SumBy, SumId};
pub use tally::{Counted, Rates, Tally, WINDOWS};
pub use watching::MAX_WATCHES;

pub use poolcounter_protocol::jobs::name::{Pattern, TubeName};
pub use poolcounter_protocol::jobs::request::{JobId, JobState, Until};
pub use poolcounter_protocol::jobs::values::{
    Backoff, Body, Failure, JobChange, JobsOf, Limit, LimitOf, ManyEntry, Peek, Put, PutOptions, Refusal, Reply,
    Reserve, Scope,
};

use crate::stats::Jobs as Stat;
use background::{Background, Task};
use conns::Conns;
use feeds::Feeds;
use figures::{sums, tally};
use ids::TubeId;
use jobs::Jobs;
use limits::{Limits, rates};
use periodic::Schedules;
use reading::Reading;
use roots::Roots;
use schedule::{background, bulk, expiry};
use serving::manage;
use setting::Settings;
use tube::{index, placement, tubes};
use tubes::Tubes;
use watch::{feeds, sets, watch_sets, watches, watching};
use watch_sets::WatchSets;

/// Bytes of a job beside its body, key, signature and error text, for `--jobs-max-memory`: its entry, its part of the
/// indexes and its place in a queue, at their worst.
pub const JOB_BYTES: usize = 150;
/// Bytes of a tube beside its name and its tally, for `--jobs-max-memory`: its entry, what few have, its places in the
/// indexes, at their worst, and the room that its queues keep when they are empty.
const TUBE_BYTES: usize = size_of::<tube::Tube>() + size_of::<tube::Rare>() + 150 + 3 * KEPT_ROOM;
/// Bytes of the sum over tubes with one first or last part, beside its name and its tally.
const SUM_BYTES: usize = size_of::<sums::Sum>() + size_of::<sums::Own>() + 100 + KEPT_ROOM;
/// Bytes that an empty queue or list keeps at most.
const KEPT_ROOM: usize = 80;
/// End of the numbers of jobs: all are smaller, so that stores can keep each number and the next.
const END_OF_IDS: u64 = i64::MAX as u64;
/// End of the numbers of batches of earlier processes. The rest of the range is more than any process uses.
const END_OF_STORED_BATCHES: Commit = Commit(1 << 62);
/// Number of jobs or tubes in one slice of a long command; then other connections are served.
const SLICE: u32 = 1024;
/// Number of watches of a set, feeds of a tube or lanes of a feed that count as one visited entry: nearly all have
/// fewer.
const FEW: usize = 8;
/// Number of entries that the requests of one turn of a connection may visit before it ends; the last request may
/// exceed it.
pub const MOST_IN_A_TURN: usize = 512;
/// Pause before more jobs whose time has come become ready: until the next tick of the wheel.
const PAUSE_BETWEEN_SLICES: Span = Span::from_micros(1);

/// A reply, its recipient, and the commit it waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Connection that gets the reply.
    pub conn: ConnId,
    /// The reply.
    pub reply: Reply,
    /// Commit before which it must not be sent.
    pub after: Option<Commit>,
    /// Job whose change it promises; None if it promises changes of many jobs, or of none.
    pub about: Option<JobId>,
    /// True if it answers the same request as the reply to the connection before it, and both wait for a commit.
    pub follows: bool,
}

impl Event {
    /// Returns a reply that waits for this commit, or for none.
    pub fn new(conn: ConnId, reply: Reply, after: Option<Commit>) -> Event {
        Event { conn, reply, after, about: None, follows: false }
    }
}

timer_keys! {
    /// Purposes of the timers of the jobs service.
    pub enum Timer {
        /// A TTR of a connection's jobs ends, or its wait does.
        Conn(conn: ConnId),
        /// The first delayed job of a tube becomes ready.
        Delay(tube: TubeId),
        /// A slice of background work is due.
        Work,
        /// The store has had time to make room for changes of background work.
        Room,
        /// A pause ends.
        Pause,
        /// A periodic job is due.
        Periodic,
        /// A period of a rate ends.
        Rate,
        /// The oldest root job is forgotten, a tube's rates are, or the job that has been buried for longest expires.
        Forget,
        /// The adapter checks its store.
        Store,
        /// The lease of the store's place may have run out.
        Lease,
        /// The adapter returns memory to the system.
        Memory,
    }
}

/// One step of the state machine: its time, and the places of its effects.
pub struct Step<'a, 'w> {
    /// The time of the step.
    pub now: Time,
    /// The timers of the jobs.
    pub timers: &'a mut Timers<'w, Timer>,
    /// Source of jitter.
    pub random: &'a mut Random,
    /// Replies, in order.
    pub events: &'a mut Vec<Event>,
    /// Returns the address of a connection's peer.
    pub peer: &'a dyn Fn(ConnId) -> String,
}

impl Step<'_, '_> {
    fn reply(&mut self, conn: ConnId, reply: Reply) {
        self.events.push(Event::new(conn, reply, None));
    }

    fn reply_after(&mut self, conn: ConnId, reply: Reply, after: Option<Commit>) {
        self.events.push(Event::new(conn, reply, after));
    }

    fn reply_after_of(&mut self, conn: ConnId, reply: Reply, after: Option<Commit>, about: JobId) {
        self.events.push(Event { about: Some(about), ..Event::new(conn, reply, after) });
    }

    /// Lets the replies to a connection from `first` on wait together if one of them promises a job: they answer one
    /// request, and are one reply if there is no room for its jobs.
    fn hold_together(&mut self, conn: ConnId, first: usize) {
        let replies = &mut self.events[first..];
        if !replies.iter().any(|event| event.about.is_some() && event.after.is_some()) {
            return;
        }
        let last = replies.iter().filter_map(|event| event.after).max();
        let own = replies.iter_mut().filter(|event| event.conn == conn);
        own.enumerate().for_each(|(index, event)| (event.after, event.follows) = (last, index > 0));
    }
}

/// All jobs, tubes, watches and settings.
#[derive(Default)]
pub struct State {
    /// Limits of the service.
    pub bounds: Bounds,
    jobs: Jobs,
    next_id: u64,
    tubes: Tubes,
    sets: WatchSets,
    feeds: Feeds,
    limits: Limits,
    settings: Settings,
    schedules: Schedules,
    roots: Roots,
    conns: Conns,
    background: Background,
    /// True while no job is given out. After a restart it is true until the first [`State::set_shut`]: the restored state
    /// may contain jobs that could not be given out.
    pub is_shut: bool,
    /// True while this daemon ends connections: that counts as no attempt at the jobs that they hold.
    pub ends_connections: bool,
    commits: commits::Commits,
    burials: expiry::Burials,
    cancelled: manage::Cancelled,
    /// Jobs that are being read from a store beside the jobs that were handed over; None otherwise.
    reading: Option<Box<Reading>>,
    /// True while jobs are read from a store, after a start or by a successor: a tube without jobs may have some there.
    may_lack_jobs: bool,
    /// True while new jobs are refused.
    pub is_draining: bool,
    figures: Figures<Stat>,
    /// Bytes that the adapter keeps for connections.
    pub kept_bytes: usize,
    /// Number of entries visited in the present turn of a connection, beyond the entries of each request. The adapter resets
    /// it at the start of a turn.
    pub visited: usize,
}

impl State {
    /// Returns a state without jobs.
    pub fn new(bounds: Bounds) -> Self {
        State {
            bounds,
            next_id: 1 + first_before(u32::MAX.into()),
            commits: commits::Commits::begin(),
            ..State::default()
        }
    }

    /// Returns the number of jobs.
    pub fn len(&self) -> usize {
        self.jobs.len
    }

    /// Returns the number of the next job.
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Handles a timer that is due.
    pub fn expire(&mut self, timer: Timer, step: &mut Step<'_, '_>) {
        match timer {
            Timer::Conn(conn) => self.expire_conn(conn, step),
            Timer::Delay(tube) => self.end_delays(tube, step),
            Timer::Work => self.work(true, step),
            Timer::Room => {
                self.background.pause.take().into_iter().for_each(TimerId::fired);
                self.work(true, step);
            }
            Timer::Pause => self.end_pauses(step),
            Timer::Periodic => self.put_periodic(true, step),
            Timer::Rate => self.end_rates(step),
            Timer::Forget => {
                self.background.forget.take().into_iter().for_each(TimerId::fired);
                self.forget(true, step);
            }
            // A timer of the adapter.
            Timer::Store | Timer::Lease | Timer::Memory => {}
        }
    }

    /// Shares the slice among the tasks of the background work. Changes of jobs may wait until the store has room.
    fn work(&mut self, may_wait: bool, step: &mut Step<'_, '_>) {
        let (sweeps, others, begins_with_sweeps) = self.background.begin_slice();
        if begins_with_sweeps {
            self.run_some(sweeps, may_wait, step);
        }
        for _ in 0..others {
            match self.background.pop() {
                Some(Task::Orphans) => self.give_orphans_back(may_wait, step),
                Some(Task::Unwatch) => self.unwatch_left(step),
                Some(Task::Forget) => self.forget(may_wait, step),
                Some(Task::Deadlines) => self.go_on_with_deadlines(may_wait, step),
                Some(Task::Serve) => self.go_on_serving(step),
                Some(Task::Sweep(_)) | None => {}
            }
        }
        if !begins_with_sweeps {
            self.run_some(sweeps, may_wait, step);
        }
        let is_backed_up = self.is_backed_up();
        self.background.go_on(is_backed_up, step);
    }

    /// Continues with this work in the next slice.
    fn go_on(&mut self, task: Task, step: &mut Step<'_, '_>) {
        self.background.push(task);
        let is_backed_up = self.is_backed_up();
        self.background.go_on(is_backed_up, step);
    }

    /// Updates the choices that are made from time to time, and begins another batch if one is full. Called before each
    /// step.
    #[inline]
    pub fn note_time(&mut self, now: Time) {
        self.close_full_batch();
        self.tubes.choose_if_due(now);
    }

    /// Returns true when no connection holds, waits for or watches anything, and there are no jobs.
    pub fn is_empty(&self) -> bool {
        let has_waiting = self.sets.waiting > 0;
        self.jobs.is_empty() && self.conns.len() == 0 && self.background.is_done() && !has_waiting
    }

    /// Returns an empty state with the same limits, and takes all timers out of this one.
    pub fn begin_anew(&mut self, timers: &mut Timers<'_, Timer>) -> State {
        let (of_sweeps, of_conns, of_tubes) =
            (self.background.take_timers(), self.conns.take_timers(), self.tubes.take_timers());
        let of_rates = self.limits.rates.timer.take();
        let of_settings = [self.settings.pause_timer.take(), self.schedules.timer.take(), of_rates];
        let of_settings = of_settings.into_iter().flatten();
        of_sweeps.into_iter().chain(of_conns).chain(of_tubes).chain(of_settings).for_each(|timer| timers.cancel(timer));
        let mut state = State { kept_bytes: self.kept_bytes, ..State::new(self.bounds) };
        state.schedules.wall = self.schedules.wall;
        state
    }

    /// Returns the number of armed timers that belong to no connection.
    pub fn background_timers(&self) -> usize {
        let delays = self.tubes.iter().filter(|(_, tube)| tube.delay_timer.is_some()).count();
        let of_settings = [&self.settings.pause_timer, &self.schedules.timer, &self.limits.rates.timer];
        let of_settings = of_settings.into_iter().flatten().count();
        delays + self.background.timers() + of_settings
    }
}
