//! Contract between a service and its store. A store owns no part of the state, and knows no connections.

use super::health::Health;
use poolcounter_core::Span;
use poolcounter_service::contract::Wake;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::thread;

/// Number of pages that are read before the loop has taken in the first.
pub const PAGES_AHEAD: usize = 4;

/// Number of a batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Commit(pub u64);

/// Data of a service that a store keeps: the forms in which they are handed over, committed and read.
pub trait Contents: Sized + Send + 'static {
    /// Name for people, in the plural, as in "the jobs cannot be read".
    const NAME: &'static str;

    /// One change of the data.
    type Change<'a>;
    /// Changes that are committed together.
    type Batch: Default + Send;
    /// Part of the data, as it is read.
    type Page: Send;
    /// One record of a page.
    type Record<'a>;
    /// Request that comes by the store itself, such as a row that another program has written there.
    type Request: Send;

    /// Adds a change to a batch. `epoch` is the time of day at the service's
    /// [`Time::START`](poolcounter_core::time::Time::START).
    fn add(batch: &mut Self::Batch, change: Self::Change<'_>, epoch: Span);

    /// Returns the number of a batch.
    fn number(batch: &mut Self::Batch) -> &mut Commit;

    /// Removes the changes from a batch that are refused when there is no room for them.
    fn drop_puts(batch: &mut Self::Batch);

    /// Returns the position of a page.
    fn order(page: &Self::Page) -> PageOrder;

    /// Visits the next slice of a page, and returns whether that was the last.
    ///
    /// # Errors
    ///
    /// One sentence that says what is wrong with a record.
    fn visit(page: &mut Self::Page, epoch: Span, visit: VisitOf<'_, Self>) -> Result<bool, String>;
}

/// Function that takes one record of a store; the error says what is wrong with it.
pub type VisitOf<'a, C> = &'a mut dyn FnMut(<C as Contents>::Record<'_>) -> Result<(), &'static str>;

/// Store of batches of changes. One batch at a time is under way.
///
/// [`Store::load`] or [`Store::go_on`] is called once before any commit; a store that needs neither commits at once.
pub trait Store<C: Contents>: Send {
    /// Sets the handle that wakes the loop when a batch is finished.
    fn attach(&mut self, _wake: Wake) {}

    /// Returns the name of the place for people, such as the path of a file.
    fn place(&self) -> String;

    /// Returns the identity of the place: a process that takes over must have a store of the same one. It is the same
    /// before and after the opening.
    fn identity(&self) -> String {
        self.place()
    }

    /// Opens the store and starts to read it. Its contents come in pages. `epoch` is the time of day at the service's
    /// [`Time::START`](poolcounter_core::time::Time::START).
    ///
    /// # Errors
    ///
    /// One sentence that says why it cannot be opened. Contents that cannot be read are no error: then
    /// [`Store::ownership`] is [`Ownership::Damaged`], and [`Health::fault`] says why.
    fn load(&mut self, epoch: Span) -> Result<(), String>;

    /// Returns whether times are stored by the clock of this machine: once it was set, they must be stored anew.
    fn keeps_times(&self) -> bool {
        false
    }

    /// Sets the time of day at the service's [`Time::START`](poolcounter_core::time::Time::START), after the clock was
    /// set.
    fn set_epoch(&mut self, _epoch: Span) {}

    /// Opens the store for a service that has everything from the previous process, whose store was in the state
    /// `handed_over`. If its contents differ from that, it asks for everything: [`Verdict::Rewrite`].
    fn go_on(&mut self, epoch: Span, handed_over: HandedOver);

    /// Opens the store and starts to read it, in pages as [`Store::load`] does, for a service that has the rest
    /// from the previous process. If its contents differ from `handed_over`, it reports [`Verdict::Damaged`]. Batches
    /// are committed meanwhile.
    fn read_on(&mut self, epoch: Span, handed_over: HandedOver) {
        self.go_on(epoch, handed_over);
    }

    /// Returns whether a successor can read all committed data from the store.
    fn can_be_read_on(&self) -> bool {
        false
    }

    /// Returns whether the committed data are in their place, as far as that can be seen at once. If not, the store
    /// will find out soon.
    fn is_sound(&self) -> bool {
        true
    }

    /// Returns the handover of the store for a successor. `batch` is the last committed one, and `next_id` the next
    /// number that the service gives out. A store that has not gone on yet hands over its own handover.
    fn hand_over(&self, batch: u64, next_id: u64) -> HandedOver {
        HandedOver { mark: Mark { opening: 0, batch, next_id }, ..HandedOver::default() }
    }

    /// Returns true if it stores nothing, so that each request is committed at once: a change is visible for the next
    /// request of the same connection, also when both came together, as clients expect of a beanstalkd that does not
    /// sync. A store that takes its time must return false: the first request of a tick would be a batch of its own,
    /// and all others wait for two commits.
    fn is_immediate(&self) -> bool {
        false
    }

    /// Returns the ownership: whether this process may give out what the place has.
    fn ownership(&self) -> Ownership {
        Ownership::Owns
    }

    /// Returns the least time until the place expires; None if it never does, or has.
    fn expires_in(&self) -> Option<Span> {
        None
    }

    /// Visits the next slice of the page of [`Verdict::Page`], as records of a handover. Returns whether that was the
    /// last slice.
    ///
    /// # Errors
    ///
    /// One sentence that says what is wrong with it. Then the store does not use the place any more.
    fn visit_page(&mut self, _visit: VisitOf<'_, C>) -> Result<bool, String> {
        Ok(true)
    }

    /// Returns whether a batch is under way, and no other is begun.
    fn is_busy(&self) -> bool;

    /// Returns whether the next batch, which has this number of changes so far, waits for the changes of clients
    /// that were just answered. Then it wakes the loop, which asks again in the next tick.
    fn gathers(&mut self, _changes: usize) -> bool {
        false
    }

    /// Returns whether it fails to commit, and tries again. Then puts are refused; changes under way go on to wait.
    fn is_failing(&self) -> bool {
        false
    }

    /// Returns whether it has failed for long enough that an upgrade need not wait for changes under way: a reload may
    /// mend it. Its handover is not whole then. A store that only reads can be left, too.
    fn may_be_left(&self) -> bool {
        false
    }

    /// Adds one change to the next batch, or to the next slice.
    fn add(&mut self, change: C::Change<'_>);

    /// Starts to commit the added changes, as the batch of this number.
    fn commit(&mut self, commit: Commit);

    /// Sends the added changes as a slice of everything that the service has, as [`Verdict::Rewrite`] and
    /// [`Verdict::NextSlice`] ask for it.
    fn add_slice(&mut self, _is_last: bool) {}

    /// Returns the next request that came by the store. Its changes are committed before the store reads more of them.
    fn next_request(&mut self) -> Option<C::Request> {
        None
    }

    /// Returns the next event of the store; None without one.
    fn verdict(&mut self) -> Option<Verdict>;

    /// Finishes the work under way and closes the store, and waits for that: the daemon ends. Returns a request that
    /// must be met before, [`Verdict::Rewrite`] or [`Verdict::NextSlice`] if its data are lost; None once it has
    /// closed.
    fn end(&mut self) -> Option<Verdict> {
        None
    }

    /// Starts to copy all that is committed to a file of this name beside its own; [`Verdict::Copied`] reports the end.
    /// One copy is made at a time.
    fn copy(&mut self, _name: &[u8]) -> Copying {
        Copying::Impossible
    }

    /// Drops the service's old state after the loss of the place, on another thread: a million records take a while.
    fn discard(&mut self, what: Box<dyn Send>) {
        // Without another thread it is dropped here, which takes its time.
        let _ = thread::Builder::new().name("store-drop".into()).spawn(move || drop(what));
    }

    /// Returns the figures for operators; None without any.
    fn health(&self) -> Option<Health> {
        None
    }
}

/// Answer to a request for a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copying {
    /// The copy has begun.
    Begun,
    /// The name could be one of the store's own files.
    BadName,
    /// The store has no data of its own to copy.
    Impossible,
}

/// Event of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// This batch and all before it are durable.
    Committed(Commit),
    /// There is no room for the batch under way. It is committed later without the changes that put something: these, and the puts
    /// of later batches, must be taken back.
    RolledBack,
    /// The store needs everything anew, in slices: its data are lost, or differ.
    Rewrite,
    /// The store needs the next slice of everything.
    NextSlice,
    /// A copy is complete, with its number of bytes, or has failed, for this reason.
    Copied(Result<u64, String>),
    /// A page can be visited, as the store has its place: the first, another, or the last.
    Page(PageOrder),
    /// Another daemon owns the place, for this reason: the service must discard its data.
    Lost(String),
    /// The contents cannot be read, for this reason. Pages that were read so far are invalid.
    Damaged(String),
}

/// Position of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PageOrder {
    /// Share of everything that was read with it, in percent.
    pub share: u8,
    /// True if it is the first.
    pub is_first: bool,
    /// True if it is the last.
    pub is_last: bool,
}

/// Ownership of a place: permission to give out what it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ownership {
    /// Its contents may be given out.
    Owns,
    /// The previous process owned the place. It is unknown yet if it was lost meanwhile.
    GoesOn,
    /// Jobs may not be given out at present: the ownership was not confirmed for some time. Promises still hold.
    Lapsed,
    /// The lease of the place has run out, and another daemon may own it. The state is kept, because perhaps none does.
    Expired,
    /// Its contents may be given out once all is read.
    Reads,
    /// Another daemon owns the place, or may own it.
    StandsBy,
    /// The contents cannot be read.
    Damaged,
}

impl Ownership {
    /// Returns whether the contents of the place are another daemon's, or unreadable.
    pub fn is_away(self) -> bool {
        matches!(self, Ownership::StandsBy | Ownership::Damaged)
    }

    /// Returns whether clients are sent away.
    pub fn turns_away(self) -> bool {
        self.is_away() || self == Ownership::Expired
    }
}

/// State of a store: two stores with the same mark have the same contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Mark {
    /// Number of the latest opening.
    pub opening: u64,
    /// Last committed batch.
    pub batch: u64,
    /// Next number that the service gives out.
    pub next_id: u64,
}

impl Mark {
    /// Returns whether nothing was ever stored at a place with this mark.
    pub fn is_of_new_file(self) -> bool {
        self.batch == 0 && self.next_id <= 1
    }
}

/// Handover of a store between two processes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HandedOver {
    /// Mark of the store.
    pub mark: Mark,
    /// Id of its queue, a random number that is kept with the queue. None if the process did not know it.
    pub queue: Option<u128>,
    /// Address of the process, if several daemons share the place. None if it did not name it.
    pub address: Option<String>,
    /// True if the store has all that the service has. If not, everything must be written anew.
    pub is_whole: bool,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "opening {}, batch {}, next job {}", self.opening, self.batch, self.next_id)
    }
}

impl HandedOver {
    /// Returns whether a place with this mark and this queue is that of the process, opened once more at most.
    pub fn is_of(&self, mark: Mark, queue: u128) -> bool {
        let again = Mark { opening: self.mark.opening.saturating_add(1), ..self.mark };
        (mark == self.mark || mark == again) && self.queue.is_none_or(|own| own == queue)
    }

    /// Returns the same handover for a service whose next number is another.
    #[must_use]
    pub fn with_next_id(&self, next_id: u64) -> HandedOver {
        HandedOver { mark: Mark { next_id, ..self.mark }, ..self.clone() }
    }
}

impl Default for HandedOver {
    /// Returns the handover of a store that was never used.
    fn default() -> HandedOver {
        HandedOver { mark: Mark::default(), queue: None, address: None, is_whole: true }
    }
}

/// Store that keeps nothing.
#[derive(Default)]
pub struct Memory;

impl<C: Contents> Store<C> for Memory {
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

    fn add(&mut self, _: C::Change<'_>) {}

    fn commit(&mut self, _: Commit) {}

    fn verdict(&mut self) -> Option<Verdict> {
        None
    }
}
