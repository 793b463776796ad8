//! The jobs themselves: who put, holds and waits for which, and what comes next. It knows no sockets, no bytes on the wire,
//! no store and no clock: it takes a connection, a request and the time, and emits replies for any connection.
//!
//! Changes that must outlive the process are collected as a batch, which a store takes with [`State::take_batch`] and which counts
//! once [`State::committed`] says so. A reply that promises something tells which batch it waits for; a job is visible once
//! the batch that put it is committed.
//!
//! Invariant: a job is in one place: pending, ready, delayed, reserved or buried. A tube has a bucket of ready jobs for each
//! group and one for those without, and stands in each feed that covers it by the first job of them that may be given out. A
//! connection waits only while the feeds of its set of watches have no job for it.

use poolcounter_core::count::first_before;
use poolcounter_core::id::ConnId;
use poolcounter_core::random::Random;
use poolcounter_core::stats::Figures;
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::{Timers, timer_keys};

mod background;
mod bulk;
mod check;
mod commits;
mod conns;
mod feeds;
mod file_settings;
pub mod health;
mod ids;
mod index;
mod job;
mod jobs;
mod limits;
mod placement;
mod put;
pub mod queries;
mod reading;
mod record;
mod requests;
mod reserve;
mod roots;
mod saved;
mod sets;
mod settings;
mod snapshot;
mod sums;
mod sweeps;
mod tally;
mod tube;
mod tubes;
pub mod views;
mod watch_sets;
mod watches;
mod watching;

pub use bulk::{Listing, Summaries};
pub use commits::{Commit, Handed};
pub use file_settings::FileSetting;
pub use job::{History, URGENT};
pub use record::{Record, Setting, Stored};
pub use saved::{Saved, SavedConn};
pub use sets::Watch;
pub use snapshot::SnapshotPlace;
pub use sums::{SumBy, SumId};
pub use sweeps::{ALL_STATES, JobState};
pub use tally::{Rated, Rates, Tally, WINDOWS};
pub use watching::MAX_WATCHES;

pub use poolcounter_protocol::jobs::name::{Pattern, TubeName};
pub use poolcounter_protocol::jobs::request::{JobId, Until};
pub use poolcounter_protocol::jobs::values::{
    Backoff, Body, Failure, LimitOf, ManyEntry, Peek, Put, PutOptions, Refusal, Reply, Reserve,
};

use crate::stats::Jobs as Stat;
use background::{Background, Task};
use conns::Conns;
use feeds::Feeds;
use ids::TubeId;
use jobs::Jobs;
use limits::Limits;
use reading::Reading;
use roots::Roots;
use settings::Settings;
use tubes::Tubes;
use watch_sets::WatchSets;

/// Bytes of a job beside its body, key, signature and error text, as `--jobs-max-memory` reckons: its entry, its part of
/// the indexes and its place in a queue, at their worst.
pub const JOB_BYTES: usize = 150;
/// No job has this number or a larger one, so that stores can keep each number and the next.
const END_OF_IDS: u64 = i64::MAX as u64;
/// Batches of earlier processes have smaller numbers. So many more are never taken that they do not fit into a store.
const END_OF_STORED_BATCHES: Commit = Commit(1 << 62);
/// Number of jobs or tubes in one slice of a long command; then others are served.
const SLICE: u32 = 1024;
/// So many watches of a set, feeds of a tube or lanes of a feed count as one entry that is looked at for a job: nearly all have fewer.
const FEW: usize = 8;
/// Number of watches that the requests of one turn of a connection may look at before it ends: less than a last request may.
const MOST_IN_A_TURN: usize = 512;
/// Pause before more jobs whose time has come become ready: until the next tick of the wheel.
const PAUSE_BETWEEN_SLICES: Span = Span::from_micros(1);

/// The bounds of the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The longest body in bytes.
    pub max_size: u32,
    /// Largest number of tubes.
    pub max_tubes: usize,
    /// Bytes that jobs may take.
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
    /// The connection that gets it.
    pub conn: ConnId,
    /// The reply.
    pub reply: Reply,
    /// The commit without which it must not be told.
    pub after: Option<Commit>,
    /// The job whose change it promises; None if that is of many, or of none.
    pub about: Option<JobId>,
}

timer_keys! {
    /// Purposes of the timers of the jobs service.
    pub enum Timer {
        /// The next TTR of a connection ends, or its wait.
        Conn(conn: ConnId),
        /// The first delayed job of a tube is due.
        Delay(tube: TubeId),
        /// Background work has its slice.
        Work,
        /// The store has had time to make room for what background work changes.
        Room,
        /// The next pause ends.
        Pause,
        /// The oldest root job is forgotten, or a tube's rates.
        Forget,
        /// The adapter looks after its store.
        Store,
        /// The lease of the store's place may have run out.
        Lease,
    }
}

/// One step of the state machine: when it happens, and where its effects go.
pub struct Step<'a, 'w> {
    /// The time of the step.
    pub now: Time,
    /// The timers of the jobs.
    pub timers: &'a mut Timers<'w, Timer>,
    /// Source of jitter.
    pub random: &'a mut Random,
    /// Replies, in order.
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
    tubes: Tubes,
    sets: WatchSets,
    feeds: Feeds,
    limits: Limits,
    settings: Settings,
    roots: Roots,
    conns: Conns,
    background: Background,
    /// Whether no job is given out for now.
    is_shut: bool,
    /// Connections are ended by this daemon: that is no attempt at the jobs that they hold.
    ends_connections: bool,
    commits: commits::Commits,
    /// Jobs that are being read from a store beside those that were handed over; None otherwise.
    reading: Option<Box<Reading>>,
    is_draining: bool,
    figures: Figures<Stat>,
    /// Bytes that the adapter keeps for connections.
    pub kept_bytes: usize,
    /// Number of entries that were looked at in the present turn of a connection, beyond those of each request.
    visited: usize,
}

impl State {
    /// No jobs.
    pub fn new(bounds: Bounds) -> Self {
        State {
            bounds,
            jobs: Jobs::default(),
            next_id: 1 + first_before(u32::MAX.into()),
            tubes: Tubes::default(),
            sets: WatchSets::default(),
            feeds: Feeds::default(),
            limits: Limits::default(),
            settings: Settings::default(),
            roots: Roots::default(),
            conns: Conns::default(),
            background: Background::default(),
            is_shut: false,
            ends_connections: false,
            commits: commits::Commits::default(),
            reading: None,
            is_draining: false,
            figures: Figures::default(),
            kept_bytes: 0,
            visited: 0,
        }
    }

    /// Begins the turn of a connection.
    pub fn begin_turn(&mut self) {
        self.visited = 0;
    }

    /// Returns whether the requests of this turn have looked at so much that others must be served before the next.
    pub fn is_turn_over(&self) -> bool {
        self.visited >= MOST_IN_A_TURN
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
            Timer::Work => self.work(true, step),
            Timer::Room => {
                self.background.end_pause();
                self.work(true, step);
            }
            Timer::Pause => self.end_pauses(step),
            Timer::Forget => {
                self.background.forget_is_due();
                self.forget(step);
            }
            // Not of the state: the adapter has armed it.
            Timer::Store | Timer::Lease => {}
        }
    }

    /// Gives each task of the background work a part of the slice. What changes jobs may wait for the store to have room.
    fn work(&mut self, may_wait: bool, step: &mut Step<'_, '_>) {
        for _ in 0..self.background.len() {
            match self.background.pop() {
                Some(Task::Sweep(sweep)) => self.run(sweep, may_wait, step),
                Some(Task::Orphans) => self.give_orphans_back(may_wait, step),
                Some(Task::Forget) => self.forget(step),
                Some(Task::Serve) => self.go_on_serving(step),
                None => {}
            }
        }
    }

    /// Continues with this work in the next slice.
    fn go_on(&mut self, task: Task, step: &mut Step<'_, '_>) {
        self.background.push(task);
        let is_backed_up = self.is_backed_up();
        self.background.go_on(is_backed_up, step);
    }

    /// Brings what is chosen from time to time up to now, and begins another batch if one is full. Called before each step.
    pub fn note_time(&mut self, now: Time) {
        self.close_full_batch();
        self.tubes.sums.choose_if_due(now);
    }

    /// Returns true when no connection holds, waits for or watches anything, and there are no jobs.
    pub fn is_empty(&self) -> bool {
        let has_waiting = self.sets.waiting() > 0;
        self.jobs.is_empty() && self.conns.len() == 0 && self.background.has_no_sweeps() && !has_waiting
    }

    /// Returns a state without anything, with the same bounds. Nothing is left to do for this one: it has no timers.
    pub fn begin_anew(&mut self, timers: &mut Timers<'_, Timer>) -> State {
        let (of_sweeps, of_conns, of_tubes) =
            (self.background.take_timers(), self.conns.take_timers(), self.tubes.take_timers());
        let of_pauses = self.settings.pause_timer.take();
        of_sweeps.into_iter().chain(of_conns).chain(of_tubes).chain(of_pauses).for_each(|timer| timers.cancel(timer));
        let mut state = State { kept_bytes: self.kept_bytes, ..State::new(self.bounds) };
        let (changes, bytes) = self.queue();
        state.set_queue(changes, bytes);
        state
    }

    /// Returns how many timers are armed on no connection's behalf.
    pub fn own_timers(&self) -> usize {
        let delays = self.tubes.iter().filter(|(_, tube)| tube.delay_timer.is_some()).count();
        delays + self.background.timers() + usize::from(self.settings.pause_timer.is_some())
    }
}
