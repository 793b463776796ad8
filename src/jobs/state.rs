//! The jobs themselves: who put, holds and waits for which, and what comes next. It knows no sockets, no bytes on the wire,
//! no store and no clock: it takes a connection, a request and the time, and emits replies for any connection.
//!
//! What must outlive the process is collected as a batch, which a store takes with [`State::take_batch`] and which counts
//! once [`State::committed`] says so. A reply that promises something tells which batch it waits for; a job is visible once
//! the batch that put it is committed.
//!
//! Invariant: a job is in one place: pending, ready, delayed, reserved or buried. A tube has a bucket of ready jobs for each
//! group and one for those without; each set of watches that covers the tube sees the first job of each bucket, unless the
//! tube is paused or at its limit. A connection waits only while its set of watches has no job for it.

use poolcounter_core::count::first_before;
use poolcounter_core::id::ConnId;
use poolcounter_core::list::Links;
use poolcounter_core::names::Names;
use poolcounter_core::random::Random;
use poolcounter_core::stats::Figures;
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::{Timers, timer_keys};
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

mod attempts;
mod bulk;
mod check;
mod commits;
mod conns;
pub mod curves;
mod gate;
mod index;
mod job;
mod jobs;
mod limits;
pub mod matrix;
mod placement;
mod put;
pub mod queries;
mod rates;
mod requests;
mod reserve;
mod roots;
mod saved;
mod sets;
mod settings;
mod snapshot;
mod sums;
mod sweeps;
mod tube;
pub mod views;
mod watching;

pub use bulk::{Listing, Summaries};
pub use commits::{Commit, Record, Setting, Stored};
pub use job::{History, URGENT};
pub use rates::{Rated, Rates, WINDOWS};
pub use saved::{Saved, SavedConn};
pub use sets::Watch;
pub use snapshot::SnapshotPlace;
pub use sums::{SumBy, Tally};
pub use sweeps::{ALL_STATES, JobState};
pub use watching::MAX_WATCHES;

pub use poolcounter_protocol::jobs::name::{Pattern, TubeName};
pub use poolcounter_protocol::jobs::request::{JobId, Until};
pub use poolcounter_protocol::jobs::values::{
    Backoff, Body, Failure, LimitOf, ManyEntry, Peek, Put, PutOptions, Refusal, Reply, Reserve,
};

use crate::stats::Jobs as Stat;
use conns::Conn;
use jobs::Jobs;
use limits::Limits;
use poolcounter_protocol::jobs::name::PatternMap;
use roots::Roots;
use sets::{SetId, WatchSet};
use settings::Settings;
use sweeps::{Sweep, SweepId};
use tube::{Bucket, Tube, TubeId};

/// What a job takes beside its body, key, signature and error text, as `--jobs-max-memory` reckons: its entry, its part of
/// the indexes and its place in a queue, at their worst.
pub const JOB_BYTES: usize = 150;
/// No job has this number or a larger one, so that stores can keep each number and the next.
const END_OF_IDS: u64 = i64::MAX as u64;
/// Batches of earlier processes have smaller numbers. So many more are never taken that they do not fit into a store.
const END_OF_STORED_BATCHES: Commit = Commit(1 << 62);
/// How many jobs or tubes one slice of a long command goes through; then others are served.
const SLICE: u32 = 1024;
/// How many jobs become ready in one round of timers because their time has come, in whatever tubes: some two milliseconds, so
/// that the next round follows at once.
const DUE_AT_ONCE: u32 = 2048;
/// How long the next slice waits: until the next tick of the wheel, so that it is not in the same round of timers. A slice that
/// takes longer is followed at once by those whom others have kept waiting, and then by the next.
const PAUSE_BETWEEN_SLICES: Span = Span::from_micros(1);

/// The bounds of the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The longest body in bytes.
    pub max_size: u32,
    /// How many tubes there may be.
    pub max_tubes: usize,
    /// How many bytes jobs may take.
    pub max_memory: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { max_size: 65_535, max_tubes: 1 << 20, max_memory: usize::MAX }
    }
}

/// A reply, to whom, and after which commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Who is told.
    pub conn: ConnId,
    /// What.
    pub reply: Reply,
    /// The commit without which it must not be told.
    pub after: Option<Commit>,
    /// The job whose change it promises; None if that is of many, or of none.
    pub about: Option<JobId>,
}

timer_keys! {
    /// What the jobs service arms timers for.
    pub enum Timer {
        /// The next TTR of a connection ends, or its wait.
        Conn(conn: ConnId),
        /// The first delayed job of a tube is due.
        Delay(tube: TubeId),
        /// A long command goes on.
        Sweep(sweep: SweepId),
        /// The next pause ends.
        Pause,
        /// The oldest root job is forgotten, or a tube's rates.
        Forget,
        /// More of what connections held that are gone is given back.
        Orphans,
        /// The adapter looks after its store.
        Store,
        /// Those go on being served whose set of watches had more dropped jobs than one turn may drop.
        Serve,
    }
}

/// One step of the state machine: when it happens, and where its effects go.
pub struct Step<'a, 'w> {
    /// The time of the step.
    pub now: Time,
    /// The timers of the jobs.
    pub timers: &'a mut Timers<'w, Timer>,
    /// Where jitter comes from.
    pub random: &'a mut Random,
    /// Who is told what, in order.
    pub events: &'a mut Vec<Event>,
}

impl Step<'_, '_> {
    fn tell(&mut self, conn: ConnId, reply: Reply) {
        self.events.push(Event { conn, reply, after: None, about: None });
    }

    fn tell_after(&mut self, conn: ConnId, reply: Reply, after: Option<Commit>) {
        self.events.push(Event { conn, reply, after, about: None });
    }

    fn tell_after_of(&mut self, conn: ConnId, reply: Reply, after: Option<Commit>, about: JobId) {
        self.events.push(Event { conn, reply, after, about: Some(about) });
    }
}

/// All jobs, tubes, watches and settings.
pub struct State {
    bounds: Bounds,
    jobs: Jobs,
    next_id: u64,
    tubes: Slab<Tube>,
    tube_names: Names<TubeId>,
    buckets: Slab<Bucket>,
    sums: sums::Sums,
    /// Tubes that are none any more, oldest first.
    hidden: BTreeSet<(Time, TubeId)>,
    sets: Slab<WatchSet>,
    set_of: BTreeMap<Box<[Watch]>, SetId>,
    /// The sets that have a watch of each pattern, and which of theirs it is.
    watched: PatternMap<Vec<(SetId, u16)>>,
    /// Sets that are none any more, of which some tubes still know.
    dropped_sets: VecDeque<SetId>,
    /// Sets that no connection has, kept because the next runner will have the same watches.
    idle_sets: VecDeque<SetId>,
    /// Sets that may have a job for somebody who waits; empty between steps, unless the serve timer is armed.
    awake: Vec<SetId>,
    serve_timer: Option<poolcounter_core::wheel::TimerId>,
    limits: Limits,
    settings: Settings,
    roots: Roots,
    forget_timer: Option<poolcounter_core::wheel::TimerId>,
    conns: Vec<Option<Box<Conn>>>,
    next_serial: u32,
    /// What connections held that are gone, by their serials.
    orphans: BTreeMap<u32, conns::Held>,
    orphan_timer: Option<poolcounter_core::wheel::TimerId>,
    waiting_links: Links,
    next_ticket: u64,
    waiting: u64,
    sweeps: Slab<Sweep>,
    /// The last round of timers, and how many more jobs may become ready in it.
    round: (Time, u32),
    /// Nobody is given a job for now.
    is_shut: bool,
    commits: commits::Commits,
    is_draining: bool,
    ready: u64,
    urgent: u64,
    delayed: u64,
    buried: u64,
    reserved: u64,
    figures: Figures<Stat>,
}

impl State {
    /// No jobs.
    pub fn new(bounds: Bounds) -> Self {
        State {
            bounds,
            jobs: Jobs::default(),
            next_id: 1 + first_before(u32::MAX.into()),
            tubes: Slab::new(),
            tube_names: Names::default(),
            buckets: Slab::new(),
            sums: sums::Sums::default(),
            hidden: BTreeSet::new(),
            sets: Slab::new(),
            set_of: BTreeMap::new(),
            watched: PatternMap::default(),
            dropped_sets: VecDeque::new(),
            idle_sets: VecDeque::new(),
            awake: Vec::new(),
            serve_timer: None,
            limits: Limits::default(),
            settings: Settings::default(),
            roots: Roots::default(),
            forget_timer: None,
            conns: Vec::new(),
            // Lossless: it is below the largest value.
            next_serial: first_before(u32::MAX.into()) as u32,
            orphans: BTreeMap::new(),
            orphan_timer: None,
            waiting_links: Links::default(),
            next_ticket: first_before(u32::MAX.into()),
            waiting: 0,
            sweeps: Slab::new(),
            round: (Time::START, DUE_AT_ONCE),
            is_shut: false,
            commits: commits::Commits::default(),
            is_draining: false,
            ready: 0,
            urgent: 0,
            delayed: 0,
            buried: 0,
            reserved: 0,
            figures: Figures::default(),
        }
    }

    /// Returns the bounds of the service.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Returns how many jobs there are.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Returns the number of the next job.
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// A timer is due.
    pub fn expire(&mut self, timer: Timer, step: &mut Step<'_, '_>) {
        match timer {
            Timer::Conn(conn) => self.expire_conn(conn, step),
            Timer::Delay(tube) => self.end_delays(tube, step),
            Timer::Sweep(sweep) => self.go_on_with_sweep(sweep, step),
            Timer::Pause => self.end_pauses(step),
            Timer::Forget => self.forget(step),
            // Not of the state: the adapter has armed it.
            Timer::Store => {}
            Timer::Orphans => {
                self.orphan_timer.take().into_iter().for_each(poolcounter_core::wheel::TimerId::fired);
                self.give_orphans_back(step);
            }
            Timer::Serve => {
                self.serve_timer.take().into_iter().for_each(poolcounter_core::wheel::TimerId::fired);
                self.drop_sets(step);
                self.serve_waiting(step);
            }
        }
    }

    /// Counts a job that becomes ready because its time has come. Returns false when others must be served before.
    fn may_end_one(&mut self, now: Time) -> bool {
        if self.round.0 != now {
            self.round = (now, DUE_AT_ONCE);
        }
        let has_time = self.round.1 > 0;
        self.round.1 -= u32::from(has_time);
        has_time
    }

    /// Returns true when no connection holds, waits for or watches anything, and there are no jobs.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.conns.iter().all(Option::is_none) && self.sweeps.is_empty() && self.waiting == 0
    }

    /// Returns how many timers are armed on no connection's behalf.
    pub fn own_timers(&self) -> usize {
        let delays = self.tubes.iter().filter(|(_, tube)| tube.delay_timer.is_some()).count();
        let sweeps = self.sweeps.len();
        let single = [&self.forget_timer, &self.serve_timer, &self.orphan_timer, &self.settings.pause_timer];
        delays + sweeps + single.into_iter().filter(|timer| timer.is_some()).count()
    }
}
