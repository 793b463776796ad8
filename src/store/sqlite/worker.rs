//! The thread of the store: it commits batches, brings the log into the file when there is time, and goes on after a
//! failure. It uses the file, and knows no tables.

use super::Tables;
use super::file::{DatabaseFile, Lock, Opened, Trouble, abandon};
use super::look::Look;
use super::schema::QueueId;
use super::statements::Statements;
use crate::contract::{Commit, HandedOver, Mark};
use log::{info, warn};
use poolcounter_core::Span;
use poolcounter_core::log_limit::Fault;
use poolcounter_service::contract::Wake;
use rusqlite::Connection;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

mod opening;
mod watch;

/// Pages of the log at which it is brought into the file: 1 MiB, which delays no commit by much. A longer log would
/// spare some writing of pages that change often, and take longer at a time; with a shorter one there is more to sync.
const MOST_LOG_PAGES: i32 = 256;
/// Time without a batch after which the log is brought into the file.
const IDLE: Duration = Duration::from_millis(100);
/// Pause between two checks of the files while there is no order.
const LOOK: Duration = Duration::from_secs(1);
/// Time without a batch after which a file with much free space shrinks by a step.
const GAP: Duration = Duration::from_millis(10);
/// Time of the last commit or checkpoint above which no checkpoint is made at the end.
const SLOW: Duration = Duration::from_secs(1);
/// Pause before a failed operation is tried again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Order of the loop.
pub enum WorkerOrder<T: Tables> {
    /// Commit a batch.
    Commit(T::Batch),
    /// The loop has taken in a page, and another may follow.
    PageTaken,
    /// Write a slice of everything to the new file.
    Slice {
        /// Number of the rewrite that it is part of.
        number: u64,
        batch: T::Batch,
        is_last: bool,
    },
    /// Copy all that is committed to this file.
    Copy(PathBuf),
    /// End: no order follows but slices that the thread asks for.
    End,
}

/// Event for the loop.
pub enum WorkerEvent<T: Tables> {
    /// A page of the file's contents.
    Page(T::Page),
    /// The file cannot be read, for this reason.
    Unreadable(String),
    Committed {
        commit: Commit,
        took: Span,
        look: Look,
    },
    Checkpointed {
        took: Span,
        look: Look,
    },
    /// The file is open, and the opening is counted; or the file has been written anew.
    Works {
        opening: u64,
        queue: Option<u128>,
        look: Look,
    },
    /// The file does not work at present, for this reason.
    Fails(String),
    /// The batch could not be committed. It is tried again without its puts.
    RolledBack,
    /// Everything must be written anew, beginning with the first slice.
    Rewrite(u64),
    /// A slice of the rewrite with this number is written; the next one may follow.
    NextSlice(u64),
    Copied(Result<u64, String>),
}

/// Start of the thread's work.
pub struct Begin {
    /// The file, if it is open already.
    pub early: Option<(Lock, Opened)>,
    /// Handover of the previous process, whose file it must be; None if any file is taken.
    pub expected: Option<HandedOver>,
    /// True if everything is read from the file. If not, the service has everything.
    pub reads: bool,
}

/// State of the thread.
pub struct Worker<T: Tables> {
    pub(super) place: DatabaseFile,
    /// Lock of the file; None before it is open. It stands before the events, so that it is released before they end.
    pub(super) lock: Option<Lock>,
    orders: Receiver<WorkerOrder<T>>,
    /// Orders that came while another was under way.
    pub(super) later: VecDeque<WorkerOrder<T>>,
    events: Sender<WorkerEvent<T>>,
    wake: Wake,
    /// True once the daemon ends: a failed operation is tried once more.
    pub(super) is_ending: bool,
    /// The file and its log after the last change to them.
    pub(super) look: Look,
    /// Batch that is under way, and the time since which it is.
    pub(super) waiting: Option<(Commit, Instant)>,
    /// True if the last commit or checkpoint was slow.
    is_slow: bool,
    /// Fault of bringing the log into the file.
    log_fault: Fault,
    /// Id that the queue has once this opening is counted in the file; None if it is counted.
    pub(super) uncounted: Option<QueueId>,
    /// Number of rewrites, including the one under way.
    pub(super) rewrites: u64,
    /// Number of this opening of the file, and its last batch.
    pub(super) mark: Mark,
    /// Id of the queue; None if the previous process did not name it, until the file is written anew.
    pub(super) queue: Option<u128>,
}

impl<T: Tables> Worker<T> {
    /// Returns a worker that takes orders from `orders` and sends events to `events`.
    pub fn new(
        place: DatabaseFile,
        orders: Receiver<WorkerOrder<T>>,
        events: Sender<WorkerEvent<T>>,
        wake: Wake,
    ) -> Self {
        let (later, log_fault, mark) = (VecDeque::new(), Fault::default(), Mark::default());
        Worker {
            place,
            lock: None,
            orders,
            later,
            events,
            wake,
            is_ending: false,
            look: Look::default(),
            waiting: None,
            is_slow: false,
            log_fault,
            uncounted: None,
            rewrites: 0,
            mark,
            queue: None,
        }
    }

    /// Works until the loop has ended.
    pub fn run(mut self, begin: Begin) {
        // The reason of the end has no consequence.
        let _ = self.serve(begin);
    }

    fn serve(&mut self, begin: Begin) -> Result<(), Trouble> {
        let Some(mut connection) = self.begin(begin)? else { return Ok(()) };
        while let Err(Trouble::Passing(why) | Trouble::Lost(why)) = self.work_to_the_end(&connection) {
            warn!("{} is not used any more: {why}; all {} are written anew", self.place.path.display(), T::NAME);
            self.report(WorkerEvent::Fails(why));
            connection = self.write_anew(Some(connection))?;
        }
        if self.is_slow {
            // The log stays as it is: to bring it into the file takes more syncs.
            abandon(connection);
        } else if let Err((connection, error)) = connection.close() {
            warn!("{} could not be closed: {error}", self.place.path.display());
            abandon(connection);
        }
        Ok(())
    }

    /// Executes orders until the daemon ends and the file can be closed.
    fn work_to_the_end(&mut self, connection: &Connection) -> Result<(), Trouble> {
        match self.work(connection) {
            // Data in a file that has another name, or none, are lost when it is closed.
            Err(Trouble::Ended) => self.look_before(),
            trouble => trouble,
        }
    }

    /// Executes orders with an open file.
    fn work(&mut self, connection: &Connection) -> Result<(), Trouble> {
        self.count_opening(connection)?;
        let mut statements = Statements::<T>::prepare(connection)?;
        let mut has_space = Worker::<T>::is_sparse(connection);
        loop {
            if self.is_ending && !self.later.iter().any(|order| matches!(order, WorkerOrder::Commit(_))) {
                return Err(Trouble::Ended);
            }
            let has_log = statements.log_pages() > 0;
            let patience = if has_log { IDLE } else { LOOK };
            match self.next(Some(if has_space { GAP } else { patience }))? {
                Some(WorkerOrder::Commit(batch)) => self.commit(&mut statements, batch)?,
                Some(WorkerOrder::Copy(path)) => self.copy(&mut statements, &path)?,
                // An order for a file that is written already.
                Some(WorkerOrder::Slice { .. } | WorkerOrder::PageTaken) => {}
                Some(WorkerOrder::End) => self.is_ending = true,
                None if has_space => has_space = self.shrink(&mut statements)?,
                None if has_log => {
                    self.checkpoint(&mut statements)?;
                    has_space = Worker::<T>::is_sparse(connection);
                }
                None => self.look_before()?,
            }
            if statements.log_pages() >= MOST_LOG_PAGES {
                self.checkpoint(&mut statements)?;
                has_space = Worker::<T>::is_sparse(connection);
            }
        }
    }

    /// Commits a batch. After a temporary fault it is tried again until it succeeds, without its puts: their clients
    /// are told to try again.
    pub(super) fn commit(&mut self, statements: &mut Statements<'_, T>, mut batch: T::Batch) -> Result<(), Trouble> {
        let commit = *T::number(&mut batch);
        self.waiting = Some((commit, Instant::now()));
        self.try_until_done(|worker| {
            let tried = Instant::now();
            worker.look_before_commit()?;
            match statements.commit(&mut batch).map_err(Trouble::from) {
                // The replies leave only if the next start will find the file.
                Ok(()) => worker.look_after_commit()?,
                Err(Trouble::Passing(sentence)) => {
                    // The log may have grown until there was no room.
                    worker.look_after()?;
                    T::drop_puts(&mut batch);
                    worker.report(WorkerEvent::Fails(sentence.clone()));
                    worker.report(WorkerEvent::RolledBack);
                    return Err(Trouble::Passing(sentence));
                }
                Err(trouble) => return Err(trouble),
            }
            worker.is_slow = tried.elapsed() > SLOW;
            Ok(())
        })?;
        self.mark.batch = commit.0;
        self.report_committed();
        Ok(())
    }

    /// Brings the log into the file. If the disk is full, that may change by the next batch.
    pub(super) fn checkpoint(&mut self, statements: &mut Statements<'_, T>) -> Result<(), Trouble> {
        self.look_before()?;
        let begun = Instant::now();
        match statements.checkpoint().map_err(Trouble::from) {
            Ok(()) => {
                self.is_slow = begun.elapsed() > SLOW;
                self.look_after()?;
                if self.log_fault.end() {
                    info!("checkpoints of {} work again", self.place.path.display());
                }
                self.report(WorkerEvent::Checkpointed { took: begun.elapsed().into(), look: self.look });
                Ok(())
            }
            Err(Trouble::Passing(sentence)) => {
                self.look_after()?;
                if self.log_fault.begin(&sentence) {
                    warn!("cannot checkpoint {}: {sentence}", self.place.path.display());
                }
                self.rest(&mut FIRST_PAUSE.clone())
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// Tries something until it succeeds, or fails for good. Temporary faults are reported.
    pub(super) fn try_until_done<R>(
        &mut self,
        mut attempt: impl FnMut(&mut Self) -> Result<R, Trouble>,
    ) -> Result<R, Trouble> {
        let mut pause = FIRST_PAUSE;
        loop {
            match attempt(self) {
                Err(Trouble::Passing(sentence)) => {
                    self.report(WorkerEvent::Fails(sentence));
                    self.rest(&mut pause)?;
                }
                result => return result,
            }
        }
    }

    /// Returns the next order; None if none comes in this time.
    pub(super) fn next(&mut self, patience: Option<Duration>) -> Result<Option<WorkerOrder<T>>, Trouble> {
        if let Some(order) = self.later.pop_front() {
            return Ok(Some(order));
        }
        match patience {
            None => self.orders.recv().map(Some).map_err(|_| Trouble::Ended),
            Some(patience) => match self.orders.recv_timeout(patience) {
                Ok(order) => Ok(Some(order)),
                Err(RecvTimeoutError::Timeout) => Ok(None),
                Err(RecvTimeoutError::Disconnected) => Err(Trouble::Ended),
            },
        }
    }

    /// Waits before another attempt, each time for longer; if the daemon ends meanwhile, the last attempt is made at
    /// once.
    fn rest(&mut self, pause: &mut Duration) -> Result<(), Trouble> {
        if self.is_ending {
            return Err(Trouble::Ended);
        }
        let until = Instant::now() + *pause;
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        loop {
            match self.orders.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(WorkerOrder::End) => {
                    self.is_ending = true;
                    return Ok(());
                }
                Ok(order) => self.later.push_back(order),
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(Trouble::Ended),
            }
        }
    }

    /// Reports that the batch under way is committed, if there is one.
    pub(super) fn report_committed(&mut self) {
        if let Some((commit, begun)) = self.waiting.take() {
            self.report(WorkerEvent::Committed { commit, took: begun.elapsed().into(), look: self.look });
        }
    }

    pub(super) fn report_works(&self) {
        self.report(WorkerEvent::Works { opening: self.mark.opening, queue: self.queue, look: self.look });
    }

    pub(super) fn report(&self, event: WorkerEvent<T>) {
        // A loop that has ended needs no event.
        let _ = self.events.send(event);
        self.wake.wake();
    }
}
