//! The thread of the store: it commits what it is given, brings the log into the file when there is time, and goes on after a
//! failure. It has the file, and nothing of the jobs.

use super::file::{DatabaseFile, FileTrouble, Lock, Opened, abandon};
use super::look::Look;
use super::schema::QueueId;
use super::statements::Statements;
use crate::state::Commit;
use crate::store::batch::Batch;
use crate::store::page::Page;
use crate::store::{HandedOver, Mark, RefusedRow};
use log::{info, warn};
use poolcounter_core::log_limit::Fault;
use poolcounter_core::time::Span;
use poolcounter_service::contract::Wake;
use rusqlite::Connection;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

mod opening;
mod watch;

/// The log is brought into the file when it has so many pages, which are 1 MiB: what this takes delays no commit by much. A longer
/// log would spare some writing of pages that change often, and take longer at a time; with a shorter one there is more to sync.
const MOST_LOG_PAGES: i32 = 256;
/// After so long without a batch, the log is brought into the file.
const IDLE: Duration = Duration::from_millis(100);
/// Pause between two looks whether the file is still there, while nothing is to be done.
const LOOK: Duration = Duration::from_secs(1);
/// How long it waits before it tries again what failed, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What the loop wants.
pub enum WorkerOrder {
    /// A batch is to be committed.
    Commit(Batch),
    /// A page was taken in, and another may follow.
    PageTaken,
    /// A part of everything that there is, for the file that is written anew.
    Slice {
        /// Which of the times that all is written anew it is for.
        number: u64,
        batch: Batch,
        is_last: bool,
    },
    /// All that is committed is to be copied to this file.
    Copy(PathBuf),
    /// Nothing more comes but slices, if it asks for them.
    End,
}

/// What the loop is told.
pub enum WorkerEvent {
    /// A part of what the file has.
    Page(Page),
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
    /// The file was opened to be read, and that is counted.
    Opened {
        opening: u64,
        queue: Option<u128>,
        look: Look,
    },
    /// The file is open, or was written anew.
    Works {
        opening: u64,
        queue: Option<u128>,
        look: Look,
    },
    /// It does not work for now, for this reason.
    Fails(String),
    /// These changes can never be committed. What else is in their batch is, as is told next.
    Refused(Vec<RefusedRow>),
    /// All that there is must be written anew, the first slice first.
    Rewrite(u64),
    /// The slice was written.
    NextSlice(u64),
    Copied(Result<u64, String>),
}

/// What the thread begins with.
pub enum Begin {
    /// The file, from which all is to be read.
    Open(Lock, Opened),
    /// The service has everything, and another process has handed this over of the file.
    GoOn(HandedOver),
    /// The service has what another process has handed over, and reads the rest from the file.
    ReadOn(HandedOver),
}

/// Why the thread does not go on with a file.
pub(super) enum Stop {
    /// The daemon ends.
    Ended,
    /// The file must not be used any more, for this reason. If a batch could not be committed, this is it.
    Lost(String, Option<Batch>),
}

/// What gives the right to the file, and how that and its log were after the last change to them.
pub(super) struct HeldFile {
    pub(super) lock: Lock,
    pub(super) look: Look,
}

/// The thread's own things.
pub struct Worker {
    pub(super) place: DatabaseFile,
    orders: Receiver<WorkerOrder>,
    /// Orders that came while another was under way.
    later: VecDeque<WorkerOrder>,
    told: Sender<WorkerEvent>,
    wake: Wake,
    /// The daemon ends, and what fails is tried once more.
    is_ending: bool,
    /// Why the log is not brought into the file.
    log_fault: Fault,
    /// This opening of the file is counted there.
    pub(super) is_counted: bool,
    /// How often everything was written anew, or was to be.
    pub(super) rewrites: u64,
    /// Which opening of the file this is, and the last batch that it has.
    pub(super) mark: Mark,
    /// The id of the queue; None if the process before did not say it, until the file is written anew.
    pub(super) queue: Option<u128>,
}

impl Worker {
    /// A thread that takes orders there and tells here.
    pub fn new(place: DatabaseFile, orders: Receiver<WorkerOrder>, told: Sender<WorkerEvent>, wake: Wake) -> Worker {
        let (later, log_fault, mark) = (VecDeque::new(), Fault::default(), Mark::default());
        Worker {
            place,
            orders,
            later,
            told,
            wake,
            is_ending: false,
            log_fault,
            is_counted: true,
            rewrites: 0,
            mark,
            queue: None,
        }
    }

    /// Works until the loop has gone.
    pub fn run(mut self, begin: Begin) {
        // Nothing is left to do when it has ended.
        let _ = self.serve(begin);
    }

    fn serve(&mut self, begin: Begin) -> Result<(), Stop> {
        let (mut held, mut connection) = match begin {
            Begin::Open(lock, Opened { connection, mark, queue, look }) => {
                (self.mark, self.queue) = (mark, Some(queue));
                let mut held = HeldFile { lock, look };
                let Some(connection) = self.read(connection, &mut held)? else { return Ok(()) };
                self.is_counted = false;
                (held, connection)
            }
            Begin::GoOn(handed_over) => self.go_on(&handed_over)?,
            Begin::ReadOn(handed_over) => match self.read_on(&handed_over)? {
                Some(open) => open,
                None => return Ok(()),
            },
        };
        while let Err(Stop::Lost(why, batch)) = self.work_to_the_end(&connection, &mut held) {
            warn!(
                "{} is not used any more, because of this: {why}; all jobs are written anew",
                self.place.path.display()
            );
            self.tell(WorkerEvent::Fails(why));
            connection = self.write_anew(&mut held, Some(connection), batch)?;
        }
        if let Err((connection, error)) = connection.close() {
            warn!("{} could not be closed: {error}", self.place.path.display());
            abandon(connection);
        }
        Ok(())
    }

    /// Does what the loop wants until the daemon ends and the file can be closed.
    fn work_to_the_end(&mut self, connection: &Connection, held: &mut HeldFile) -> Result<(), Stop> {
        match self.work(connection, held) {
            // What is closed under another name, or none, is lost.
            Err(Stop::Ended) => self.look_before(held),
            stop => stop,
        }
    }

    /// Does what the loop wants with an open file.
    fn work(&mut self, connection: &Connection, held: &mut HeldFile) -> Result<(), Stop> {
        self.count_opening(connection, held, QueueId::Drawn)?;
        let mut statements = Statements::prepare(connection).map_err(|error| Stop::Lost(error.to_string(), None))?;
        loop {
            if self.is_ending {
                return Err(Stop::Ended);
            }
            let has_log = statements.log_pages() > 0;
            match self.next(Some(if has_log { IDLE } else { LOOK }))? {
                Some(WorkerOrder::Commit(batch)) => self.commit(&mut statements, held, batch)?,
                Some(WorkerOrder::Copy(path)) => self.copy(connection, &mut statements, held, &path)?,
                // It was for a file that is written already.
                Some(WorkerOrder::Slice { .. } | WorkerOrder::PageTaken) => {}
                Some(WorkerOrder::End) => self.end(),
                None if has_log => self.checkpoint(&mut statements, held)?,
                None => self.look_before(held)?,
            }
            if statements.log_pages() >= MOST_LOG_PAGES {
                self.checkpoint(&mut statements, held)?;
            }
        }
    }

    /// Commits a batch, however long that takes.
    pub(super) fn commit(
        &mut self,
        statements: &mut Statements<'_>,
        held: &mut HeldFile,
        batch: Batch,
    ) -> Result<(), Stop> {
        let mut pause = FIRST_PAUSE;
        let begun = Instant::now();
        loop {
            let committed =
                self.look_before(held).and_then(|()| match statements.commit(&batch).map_err(FileTrouble::from) {
                    // The replies leave only if it is there for the next start.
                    Ok(refused) => self.look_after(held).map(|()| Ok(refused)),
                    Err(FileTrouble::Passing(sentence)) => Ok(Err(sentence)),
                    Err(FileTrouble::Lost(sentence)) => Err(Stop::Lost(sentence, None)),
                });
            match committed {
                Ok(Ok(refused)) => {
                    self.tell_refused(refused);
                    self.mark.batch = batch.commit.0;
                    self.tell_committed(batch.commit, begun, held);
                    return Ok(());
                }
                Ok(Err(sentence)) => {
                    self.tell(WorkerEvent::Fails(sentence));
                    self.rest(&mut pause)?;
                }
                Err(Stop::Lost(sentence, _)) => return Err(Stop::Lost(sentence, Some(batch))),
                Err(Stop::Ended) => return Err(Stop::Ended),
            }
        }
    }

    /// Brings the log into the file. If there is no room for that now, there may be after the next batch.
    fn checkpoint(&mut self, statements: &mut Statements<'_>, held: &mut HeldFile) -> Result<(), Stop> {
        self.look_before(held)?;
        let begun = Instant::now();
        match statements.checkpoint().map_err(FileTrouble::from) {
            Ok(()) => {
                self.look_after(held)?;
                if self.log_fault.end() {
                    info!("the log of {} is brought into it again", self.place.path.display());
                }
                self.tell(WorkerEvent::Checkpointed { took: begun.elapsed().into(), look: held.look });
                Ok(())
            }
            Err(FileTrouble::Passing(sentence)) => {
                if self.log_fault.begin(&sentence) {
                    warn!("the log of {} cannot be brought into it now: {sentence}", self.place.path.display());
                }
                self.rest(&mut FIRST_PAUSE.clone())
            }
            Err(FileTrouble::Lost(sentence)) => Err(Stop::Lost(sentence, None)),
        }
    }

    /// Returns the next order; None if there is none for so long.
    pub(super) fn next(&mut self, patience: Option<Duration>) -> Result<Option<WorkerOrder>, Stop> {
        if let Some(order) = self.later.pop_front() {
            return Ok(Some(order));
        }
        match patience {
            None => self.orders.recv().map(Some).map_err(|_| Stop::Ended),
            Some(patience) => match self.orders.recv_timeout(patience) {
                Ok(order) => Ok(Some(order)),
                Err(RecvTimeoutError::Timeout) => Ok(None),
                Err(RecvTimeoutError::Disconnected) => Err(Stop::Ended),
            },
        }
    }

    /// Keeps an order for later.
    pub(super) fn put_off(&mut self, order: WorkerOrder) {
        self.later.push_back(order);
    }

    /// Waits before the same is tried again, the longer the more often; if the daemon ends meanwhile, it is tried once more at once.
    pub(super) fn rest(&mut self, pause: &mut Duration) -> Result<(), Stop> {
        if self.is_ending {
            return Err(Stop::Ended);
        }
        let until = Instant::now() + *pause;
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        loop {
            match self.orders.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(WorkerOrder::End) => {
                    self.end();
                    return Ok(());
                }
                Ok(order) => self.put_off(order),
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(Stop::Ended),
            }
        }
    }

    /// Notes that the daemon ends.
    pub(super) fn end(&mut self) {
        self.is_ending = true;
    }

    /// Returns how long the first pause before another try is.
    pub(super) fn first_pause() -> Duration {
        FIRST_PAUSE
    }

    pub(super) fn tell_committed(&self, commit: Commit, begun: Instant, held: &HeldFile) {
        self.tell(WorkerEvent::Committed { commit, took: begun.elapsed().into(), look: held.look });
    }

    pub(super) fn tell_refused(&self, refused: Vec<RefusedRow>) {
        if !refused.is_empty() {
            self.tell(WorkerEvent::Refused(refused));
        }
    }

    pub(super) fn tell_works(&self, held: &HeldFile) {
        self.tell(WorkerEvent::Works { opening: self.mark.opening, queue: self.queue, look: held.look });
    }

    pub(super) fn tell(&self, told: WorkerEvent) {
        // If the loop has gone, it wants to know nothing.
        let _ = self.told.send(told);
        self.wake.wake();
    }
}
