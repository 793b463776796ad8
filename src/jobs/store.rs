//! Where jobs are kept: what a store does for the service. It owns nothing of the state, and knows no connections.

pub mod batch;
pub mod page;

use super::process::drop_aside;
use super::state::{Commit, JobId, Saved, Stored};
use poolcounter_core::histogram::Histogram;
use poolcounter_core::time::Span;
use poolcounter_service::contract::Wake;
use serde::{Deserialize, Serialize};

/// Takes one record of what a store has; the error says what is wrong with it.
pub type Visit<'a> = &'a mut dyn FnMut(Saved<'_>) -> Result<(), &'static str>;

/// Keeps batches of changes. One batch at a time is under way.
///
/// [`Store::load`] or [`Store::go_on`] is called once before anything is stored; a store that needs neither stores at once.
pub trait Store: Send {
    /// Takes what wakes the loop when a batch is finished.
    fn attach(&mut self, _wake: Wake) {}

    /// Returns what people call the place where jobs are kept, such as the path of a file.
    fn place(&self) -> String;

    /// Begins with what it keeps, which comes in pages: the settings first, then root jobs, and the jobs last, in the order of their
    /// numbers. `epoch` is the time of day at the service's [`Time::START`](poolcounter_core::time::Time::START).
    ///
    /// # Errors
    ///
    /// One sentence that says why it cannot be opened.
    fn load(&mut self, epoch: Span) -> Result<(), String>;

    /// Begins for a service that has everything from the process before, which has handed over this of its store. If what it keeps is
    /// not what the service has, it asks for all of that: [`Verdict::Rewrite`].
    fn go_on(&mut self, epoch: Span, handed_over: HandedOver);

    /// Begins to read what it keeps, in pages as [`Store::load`] does, for a service that has the rest from the process before. If it
    /// is not what that process has handed over, it is [`Verdict::Damaged`]. Batches are committed meanwhile.
    fn read_on(&mut self, epoch: Span, handed_over: HandedOver) {
        self.go_on(epoch, handed_over);
    }

    /// Returns whether a process that takes over can read all that is committed where it is.
    fn can_be_read_on(&self) -> bool {
        false
    }

    /// Returns whether what is committed stands where it should, as far as that can be seen at once. If not, it is about to find out.
    fn is_sound(&self) -> bool {
        true
    }

    /// Returns whether it reads on what another process has left in this place.
    fn is_at(&self, _place: &str) -> bool {
        false
    }

    /// Returns what a process that takes over must know of it. `batch` is the last one that is committed, and `next_id` the number of
    /// the next job. A store that has not gone on yet hands over what was handed over to it.
    fn hand_over(&self, batch: u64, next_id: u64) -> HandedOver {
        HandedOver { mark: Mark { opening: 0, batch, next_id }, ..HandedOver::default() }
    }

    /// Returns whether it keeps nothing, so that each request is committed at once and nothing is handed over: what it changed
    /// is there for the next request of the same connection, also when both came together, as clients of a beanstalkd expect it
    /// of one that does not sync. A store that takes its time must not have that: the first request of a tick would be a batch of
    /// its own, and all others wait for two commits.
    fn is_immediate(&self) -> bool {
        false
    }

    /// Returns whether this process may give out jobs of the place.
    fn ownership(&self) -> Ownership {
        Ownership::Owns
    }

    /// Returns the time until the place counts as expired at the earliest; None when it never does, or has.
    fn expires_in(&self) -> Option<Span> {
        None
    }

    /// Visits the next slice of the page that [`Verdict::Page`] has told of, as another process would have saved it. Returns whether
    /// that was the last of it.
    ///
    /// # Errors
    ///
    /// One sentence that says what is wrong with it. Then the store has the place no more.
    fn visit_page(&mut self, _visit: Visit<'_>) -> Result<bool, String> {
        Ok(true)
    }

    /// Returns whether a batch is under way, or was a moment ago: no other is begun meanwhile. A store that wants the next one to wait
    /// stays busy until [`Store::verdict`] has had nothing to tell a few times, and wakes the loop for these.
    fn is_busy(&self) -> bool;

    /// Returns whether it fails to commit, and tries again and again. Then no job is taken; what is under way goes on to wait.
    fn is_failing(&self) -> bool {
        false
    }

    /// Returns whether it has failed for so long that an upgrade does not wait for what is under way: a reload may be what mends it.
    /// Its handover is not whole then. A store that only reads can be left, too.
    fn may_be_left(&self) -> bool {
        false
    }

    /// Returns how many bytes of changes a batch is to have at most; one change may be larger.
    fn batch_bytes(&self) -> usize {
        usize::MAX
    }

    /// Takes one change of the next batch, or of the next slice.
    fn add(&mut self, change: Stored<'_>);

    /// Begins to commit the changes that were added, as the batch of this number.
    fn commit(&mut self, commit: Commit);

    /// Takes the changes that were added as a slice of everything that the service has, as [`Verdict::Rewrite`] and
    /// [`Verdict::NextSlice`] ask for it.
    fn add_slice(&mut self, _is_last: bool) {}

    /// Returns what it has finished, once.
    fn verdict(&mut self) -> Option<Verdict>;

    /// Has it finish what is under way and close its place, and waits for that: the daemon ends. Returns what it wants before,
    /// which is [`Verdict::Rewrite`] or [`Verdict::NextSlice`] if what it has is lost; None once it has closed.
    fn end(&mut self) -> Option<Verdict> {
        None
    }

    /// Begins to copy all that is committed to a file of this name beside its own; [`Verdict::Copied`] says when it is there. One
    /// copy is made at a time.
    fn copy(&mut self, _name: &[u8]) -> Copying {
        Copying::Impossible
    }

    /// Drops what the service had when it lost its place, on another thread: a million jobs take a while.
    fn discard(&mut self, what: Box<dyn Send>) {
        drop_aside(what);
    }

    /// Returns what operators want to know; None when there is nothing to know.
    fn health(&self) -> Option<Health> {
        None
    }
}

/// What came of the wish for a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copying {
    /// It is being made.
    Begun,
    /// The name is one that the store could take for its own.
    BadName,
    /// The store has nothing of its own to copy.
    Impossible,
}

/// A change that a store can never take, though it can take others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RefusedRow {
    /// Its place in the batch.
    pub index: usize,
    /// What it would have changed.
    pub what: RefusedChange,
    /// Why, in a sentence.
    pub why: String,
}

/// What a change that is refused would have changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusedChange {
    /// The job would have been put.
    Put(JobId),
    /// The job is there and was changed or deleted.
    Job(JobId),
    /// A root job or a setting.
    Other,
}

/// What a store has finished.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// This batch outlives the process, as far as anything here does, and so do all before it.
    Committed(Commit),
    /// It can never take these changes of the batch that is under way; all others of it are taken, as [`Verdict::Committed`] says next.
    Refused(Vec<RefusedRow>),
    /// It wants all that was ever handed to it, from the beginning, in slices: what it has is lost, or is something else.
    Rewrite,
    /// It wants the next slice of that.
    NextSlice,
    /// A copy is there, of so many bytes, or a sentence says why not.
    Copied(Result<u64, String>),
    /// A page of what is kept is to be visited, now that the store has its place: the first, another, or the last.
    Page(PageOrder),
    /// Another has the place, for this reason: what the service has counts for nothing any more.
    Lost(String),
    /// The jobs cannot be read, for this reason. Those that were read do not count.
    Damaged(String),
}

/// Which page it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageOrder {
    /// Which share of everything was read with it.
    pub share: u8,
    /// Whether it is the first.
    pub is_first: bool,
    /// Whether it is the last.
    pub is_last: bool,
}

/// Whether jobs of a place may be given out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ownership {
    /// They may.
    Owns,
    /// The process before had the place. Whether it was lost meanwhile is not known yet.
    GoesOn,
    /// For now they may not: the place was not confirmed for some time. What is promised is still kept.
    Lapsed,
    /// The lease of the place has run out, and others may have it. The state is kept, as it may turn out that none has taken it.
    Expired,
    /// They may once all that is there was read.
    Reads,
    /// Others have it, or may have it.
    StandsBy,
    /// The jobs cannot be read.
    Damaged,
}

impl Ownership {
    /// Returns whether the jobs of the place are not this daemon's, or not to be had.
    pub fn is_away(self) -> bool {
        matches!(self, Ownership::StandsBy | Ownership::Damaged)
    }

    /// Returns whether clients are sent away.
    pub fn turns_away(self) -> bool {
        self.is_away() || self == Ownership::Expired
    }
}

/// How far a store is: two stores with the same mark have the same jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Mark {
    /// The number of the latest opening.
    pub opening: u64,
    /// The last batch that is committed.
    pub batch: u64,
    /// The number of the next job.
    pub next_id: u64,
}

impl Mark {
    /// Returns whether a place with this mark was opened once more after it had `earlier`, and nothing else has happened to it.
    pub fn is_after(self, earlier: Mark) -> bool {
        self == Mark { opening: earlier.opening.saturating_add(1), ..earlier }
    }

    /// Returns whether nothing was ever kept at a place with this mark.
    pub fn is_of_new_file(self) -> bool {
        self.batch == 0 && self.next_id <= 1
    }
}

/// Handover of a store between two processes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HandedOver {
    /// How far the store is.
    pub mark: Mark,
    /// Which queue it has: a random number that is kept with the queue. None if the process did not know that.
    pub queue: Option<u128>,
    /// What the process calls itself where others may have the place. None if it did not say so.
    pub address: Option<String>,
    /// Whether the store has all that the service has. If not, everything is to be written anew.
    pub is_whole: bool,
}

impl HandedOver {
    /// Returns the same for a store that has gone no further, of a service whose next job has another number.
    #[must_use]
    pub fn with_next_id(&self, next_id: u64) -> HandedOver {
        HandedOver { mark: Mark { next_id, ..self.mark }, ..self.clone() }
    }
}

impl Default for HandedOver {
    /// Nothing was ever kept.
    fn default() -> HandedOver {
        HandedOver { mark: Mark::default(), queue: None, address: None, is_whole: true }
    }
}

/// What operators want to know of a store.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// Why it fails at present.
    pub fault: Option<String>,
    /// How long commits took.
    pub commits: Histogram,
    /// How long it took to bring what is committed from the log into the file, each time.
    pub checkpoints: Histogram,
    /// How many changes the last batch had.
    pub last_batch: u64,
    /// The bytes of its files.
    pub file_bytes: u64,
    /// How often all was written anew.
    pub rewrites: u64,
    /// Who has the place; None where that is never another.
    pub owner: Option<OwnerHealth>,
}

/// Who has a place that several daemons share.
#[derive(Clone, PartialEq, Debug)]
pub struct OwnerHealth {
    /// Whether this daemon has it.
    pub is_self: bool,
    /// What the owner calls itself; empty if that is not known.
    pub address: String,
    /// The number of its take-over.
    pub epoch: u64,
    /// When that was, in microseconds since the service's start.
    pub since: i64,
}

/// A store that keeps nothing: what the state has is all there is.
#[derive(Default)]
pub struct Memory;

impl Store for Memory {
    fn place(&self) -> String {
        "memory".into()
    }

    fn load(&mut self, _: Span) -> Result<(), String> {
        Ok(())
    }

    fn go_on(&mut self, _: Span, _: HandedOver) {}

    fn is_immediate(&self) -> bool {
        true
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn add(&mut self, _: Stored<'_>) {}

    fn commit(&mut self, _: Commit) {}

    fn verdict(&mut self) -> Option<Verdict> {
        None
    }
}
