//! The loop's side of a store with a thread: changes on their way to it, its events, and figures.

use super::contract::{Commit, Contents, PageOrder, Verdict, VisitOf};
use super::health::Health;
use poolcounter_core::Span;
use poolcounter_core::log_limit::Fault;
use poolcounter_service::contract::Wake;
use std::mem::take;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The loop's side of a store of these contents, whose thread takes orders `O` and sends events `E`.
pub struct Desk<C: Contents, O, E> {
    /// Handle that wakes the loop.
    pub wake: Option<Wake>,
    collected: C::Batch,
    /// Number of the collected changes.
    changes: u64,
    /// Number of changes of the batch that is under way.
    under_way: Option<u64>,
    /// Number of the rewrite that is under way.
    pub rewrite: Option<u64>,
    /// The page that is being visited.
    page: Option<C::Page>,
    /// Fault of the store.
    pub fault: Fault,
    health: Health,
    thread: Option<Thread<O, E>>,
}

/// The thread, and the loop's ends of the channels to it.
struct Thread<O, E> {
    /// None once the thread is to end.
    orders: Option<Sender<O>>,
    events: Receiver<E>,
    handle: Option<JoinHandle<()>>,
}

impl<C: Contents, O, E> Default for Desk<C, O, E> {
    fn default() -> Self {
        Desk {
            wake: None,
            collected: C::Batch::default(),
            changes: 0,
            under_way: None,
            rewrite: None,
            page: None,
            fault: Fault::default(),
            health: Health::default(),
            thread: None,
        }
    }
}

impl<C: Contents, O, E> Desk<C, O, E> {
    /// Starts the thread by a function, which gets the thread's ends of the channels and the handle that wakes the loop.
    ///
    /// # Errors
    ///
    /// That of the function.
    pub fn start<F>(&mut self, start: F) -> Result<(), String>
    where
        F: FnOnce(Receiver<O>, Sender<E>, Wake) -> Result<Option<JoinHandle<()>>, String>,
    {
        let (orders, received) = channel();
        let (sender, events) = channel();
        let handle = start(received, sender, self.wake.clone().unwrap_or_else(|| Wake::new(|| {})))?;
        self.thread = Some(Thread { orders: Some(orders), events, handle });
        Ok(())
    }

    /// Returns whether the thread was started.
    pub fn has_thread(&self) -> bool {
        self.thread.is_some()
    }

    /// Gives the thread an order, and returns false if there is no thread any more.
    pub fn order(&self, order: O) -> bool {
        let orders = self.thread.as_ref().and_then(|thread| thread.orders.as_ref());
        orders.is_some_and(|orders| orders.send(order).is_ok())
    }

    /// Ends the orders: the thread ends once it has finished what is under way.
    pub fn end_orders(&mut self) {
        self.thread.iter_mut().for_each(|thread| thread.orders = None);
    }

    /// Returns the next event of the thread, for which it waits at most for this time; None if none comes, or the
    /// thread has ended.
    pub fn next_event(&self, patience: Duration) -> Option<E> {
        self.thread.as_ref()?.events.recv_timeout(patience).ok()
    }

    /// Adds a change. `epoch` is the time of day at [`Time::START`](poolcounter_core::time::Time::START).
    pub fn add(&mut self, change: C::Change<'_>, epoch: Span) {
        self.changes += 1;
        C::add(&mut self.collected, change, epoch);
    }

    /// Returns the changes as the batch of this number, which is under way from now on.
    pub fn begin(&mut self, commit: Commit) -> C::Batch {
        let mut batch = take(&mut self.collected);
        *C::number(&mut batch) = commit;
        self.under_way = Some(take(&mut self.changes));
        batch
    }

    /// Returns the changes as a slice, with the number of the rewrite; None if there is none, and they count for
    /// nothing.
    pub fn slice(&mut self) -> Option<(u64, C::Batch)> {
        let batch = take(&mut self.collected);
        self.changes = 0;
        Some((self.rewrite?, batch))
    }

    /// Returns whether a batch is under way.
    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// Returns whether a batch or a rewrite is under way.
    pub fn is_busy(&self) -> bool {
        self.is_under_way() || self.rewrite.is_some()
    }

    /// Notes that a batch was committed, in this time.
    pub fn committed(&mut self, commit: Commit, took: Span) -> Verdict {
        self.health.last_batch = self.under_way.take().unwrap_or(0);
        self.health.commits.record(took);
        Verdict::Committed(commit)
    }

    /// Notes that a checkpoint was made, in this time.
    pub fn checkpointed(&mut self, took: Span) {
        self.health.checkpoints.record(took);
    }

    /// Keeps a page that was read.
    pub fn paged(&mut self, page: C::Page) -> Verdict {
        let order = C::order(&page);
        self.page = Some(page);
        Verdict::Page(order)
    }

    /// Notes that everything must be written anew, in the rewrite of this number.
    pub fn rewritten(&mut self, number: u64) -> Verdict {
        self.rewrite = Some(number);
        self.health.rewrites += 1;
        Verdict::Rewrite
    }

    /// Returns the request for the next slice of this rewrite; None if an earlier one asks, as it has no effect any
    /// more.
    pub fn next_slice(&self, number: u64) -> Option<Verdict> {
        (self.rewrite == Some(number)).then_some(Verdict::NextSlice)
    }

    /// Visits the next slice of the page. Returns the position of the page if that was its last slice, or there is no
    /// page.
    ///
    /// # Errors
    ///
    /// One sentence that says what is wrong with a record. Then the page is given up.
    pub fn visit(&mut self, epoch: Span, visit: VisitOf<'_, C>) -> Result<Option<PageOrder>, String> {
        let Some(page) = &mut self.page else { return Ok(Some(PageOrder::default())) };
        let (visited, order) = (C::visit(page, epoch, visit), C::order(page));
        if visited != Ok(false) {
            self.page = None;
        }
        visited.map(|is_over| is_over.then_some(order))
    }

    /// Forgets the changes, and the page.
    pub fn forget(&mut self) {
        (self.collected, self.changes, self.under_way, self.rewrite, self.page) = Default::default();
    }

    /// Returns the figures for operators, with the fault of the store.
    pub fn health(&self, fault: Option<&str>) -> Health {
        Health { fault: fault.map(String::from), ..self.health.clone() }
    }
}

impl<O, E> Drop for Thread<O, E> {
    /// Ends the thread, which finishes what is under way.
    fn drop(&mut self) {
        self.orders = None;
        // A thread that has panicked has printed its message.
        let _ = self.handle.take().map(JoinHandle::join);
    }
}
