//! The store in a file of SQLite, as the loop sees it: batches go to a thread, which reports each commit. Neither side
//! waits for the other.

mod aside;
mod copy;
mod file;
mod look;
mod pages;
mod rewrite;
mod schema;
mod shrink;
mod statements;
mod worker;

pub use file::DatabaseFile;
pub use pages::{Pages, Unread};
pub use schema::Schema;

use crate::contract::{Commit, Contents, Copying, HandedOver, Health, Mark, Ownership, Store, VerdictOf, VisitOf};
use crate::outbox::Outbox;
use file::{FileTrouble, Lock, Opened};
use look::Look;
use poolcounter_core::log_limit::Fault;
use poolcounter_core::time::Span;
use poolcounter_service::contract::Wake;
use rusqlite::Connection;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use worker::{Begin, BeginWith, Worker, WorkerEvent, WorkerOrder};

/// Tables of a file for these contents, beside the table `meta`.
pub trait Tables: Contents {
    /// Their definition.
    const SCHEMA: Schema;

    /// The statements of one open file, each prepared once.
    type Statements<'c>;

    /// Prepares the statements.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read.
    fn prepare(connection: &Connection) -> rusqlite::Result<Self::Statements<'_>>;

    /// Writes the changes of a batch, in the transaction that is under way, but for those that it returns: they can
    /// never be written.
    ///
    /// # Errors
    ///
    /// Any other fault: then no change counts.
    fn write(statements: &mut Self::Statements<'_>, batch: &Self::Batch) -> rusqlite::Result<Vec<Self::Refused>>;

    /// Sends everything to the loop, in pages. `mark` is that of the file.
    ///
    /// # Errors
    ///
    /// The reason for which the reading has ended early.
    fn read(pages: &mut Pages<'_, '_, Self>, connection: &Connection, mark: Mark) -> Result<(), Unread>;
}

/// Store in a file of SQLite.
pub struct SqliteStore<T: Tables> {
    place: DatabaseFile,
    wake: Option<Wake>,
    epoch: Span,
    /// The file and its log, as they were when the thread opened them.
    look: Option<Look>,
    /// Mark of the file when it was found: read before its opening is counted.
    found: Mark,
    opening: u64,
    /// Id of the queue, if it is known.
    queue: Option<u128>,
    outbox: Outbox<T>,
    /// Handover of the previous process, until the thread has opened the file.
    handed_over: Option<HandedOver>,
    reading: ReadProgress,
    /// True once the opening is counted in the file.
    is_counted: bool,
    /// The page that is being visited.
    page: Option<T::Page>,
    thread: Option<Thread<T>>,
    /// True once the thread was ordered to end.
    is_ending: bool,
    fault: Fault,
    health: Health,
}

/// Progress of reading the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReadProgress {
    Done,
    UnderWay,
    /// The contents cannot be read.
    Failed,
}

/// The thread, and the loop's ends of the channels to it.
struct Thread<T: Tables> {
    /// None once the thread is to end.
    orders: Option<Sender<WorkerOrder<T>>>,
    events: Receiver<WorkerEvent<T>>,
    handle: Option<JoinHandle<()>>,
}

/// Fault of a store that was not opened.
const NOT_OPEN: &str = "it is not open";

impl<T: Tables> SqliteStore<T> {
    /// Returns a store that is not open yet.
    pub fn new(place: DatabaseFile) -> Self {
        SqliteStore {
            place,
            wake: None,
            epoch: Span::ZERO,
            look: None,
            found: Mark::default(),
            opening: 0,
            queue: None,
            outbox: Outbox::default(),
            handed_over: None,
            reading: ReadProgress::Done,
            is_counted: true,
            page: None,
            thread: None,
            is_ending: false,
            fault: Fault::default(),
            health: Health::default(),
        }
    }

    /// Starts the thread. It has certainly started once a batch is committed.
    fn start(&mut self, begin: Begin) -> Result<(), String> {
        let (orders, received) = channel();
        let (event_sender, events) = channel();
        let wake = self.wake.clone().unwrap_or_else(|| Wake::new(|| {}));
        let worker = Worker::new(self.place.clone(), received, event_sender, wake);
        let handle = thread::Builder::new().name(format!("{}-store", T::NAME)).spawn(move || worker.run(begin));
        let handle = handle.map_err(|error| format!("no thread can be started: {error}"))?;
        self.thread = Some(Thread { orders: Some(orders), events, handle: Some(handle) });
        Ok(())
    }

    /// Opens the file; None if it is damaged, or is not one of this program.
    fn open(&mut self) -> Result<Option<(Lock, Opened)>, String> {
        self.place = self.place.clone().resolved();
        let lock = self.place.lock(T::NAME)?;
        let opened = match self.place.open_to_read(&lock, &T::SCHEMA) {
            Ok(opened) => opened,
            Err(FileTrouble::Passing(sentence)) => return Err(sentence),
            Err(FileTrouble::Lost(sentence)) => {
                self.note_damage(&sentence);
                return Ok(None);
            }
        };
        self.note_look(opened.look);
        self.found = opened.mark;
        (self.opening, self.queue) = (opened.mark.opening, Some(opened.queue));
        Ok(Some((lock, opened)))
    }

    /// Starts the thread with the file of the previous process.
    fn take_over(&mut self, epoch: Span, handed_over: HandedOver, begin: BeginWith) {
        self.epoch = epoch;
        self.place = self.place.clone().resolved();
        self.handed_over = Some(handed_over.clone());
        // Clients that connect from now on could take its descriptors. If it fails, the thread tries again.
        let early = self.place.open_locked::<T>().ok();
        if let Err(sentence) = self.start(begin(handed_over, early)) {
            self.fault.begin(&sentence);
        }
    }

    fn order(&mut self, order: WorkerOrder<T>) {
        let orders = self.thread.as_ref().and_then(|thread| thread.orders.as_ref());
        if orders.is_none_or(|orders| orders.send(order).is_err()) {
            self.fault.begin(NOT_OPEN);
        }
    }

    /// Returns why the store does not work; None if it does.
    fn reason(&self) -> Option<&str> {
        self.fault.reason().or(self.thread.is_none().then_some(NOT_OPEN))
    }

    /// Notes that the store works, and returns true if it failed before, which the log mentions.
    fn note_works(&mut self) -> bool {
        let is_over = self.fault.end();
        if is_over {
            log::info!("the {} are kept in {} again", T::NAME, self.place.path.display());
        }
        is_over
    }

    /// Notes that the store fails, which the log mentions once.
    fn note_fails(&mut self, sentence: &str) {
        if self.fault.begin(sentence) {
            log::error!("the {} cannot be kept in {}: {sentence}", T::NAME, self.place.path.display());
        }
    }

    /// Notes that the file is open, and that its opening is counted.
    fn note_open(&mut self, opening: u64, queue: Option<u128>, look: Look) {
        (self.handed_over, self.is_counted) = (None, true);
        (self.opening, self.queue) = (opening, queue);
        self.note_look(look);
    }

    fn note_look(&mut self, look: Look) {
        (self.look, self.health.file_bytes) = (Some(look), look.bytes());
    }

    /// Returns whether the file is being read and nothing was written to it.
    fn only_reads(&self) -> bool {
        self.reading == ReadProgress::UnderWay && !self.is_counted && self.handed_over.is_none()
    }

    /// Notes that the file cannot be read.
    fn note_damage(&mut self, sentence: &str) {
        (self.reading, self.page) = (ReadProgress::Failed, None);
        self.fault.begin(sentence);
    }

    /// Processes an event of the thread, and returns its consequence for the service.
    fn take(&mut self, event: WorkerEvent<T>) -> Option<VerdictOf<T>> {
        match event {
            WorkerEvent::Committed { commit, took, look } => {
                self.note_works();
                self.health.last_batch = self.outbox.end();
                self.health.commits.record(took);
                self.note_look(look);
                return Some(VerdictOf::<T>::Committed(commit));
            }
            WorkerEvent::Checkpointed { took, look } => {
                self.health.checkpoints.record(took);
                self.note_look(look);
            }
            WorkerEvent::Opened { opening, queue, look } => {
                self.note_works();
                self.note_open(opening, queue, look);
            }
            WorkerEvent::Works { opening, queue, look } => {
                if !self.note_works() {
                    log::info!("the {} are kept in {}", T::NAME, self.place.path.display());
                }
                self.outbox.rewrite = None;
                self.note_open(opening, queue, look);
            }
            WorkerEvent::Fails(sentence) => self.note_fails(&sentence),
            WorkerEvent::RolledBack(sentence) => {
                self.note_fails(&sentence);
                return Some(VerdictOf::<T>::RolledBack);
            }
            WorkerEvent::Page(page) => {
                let order = T::order(&page);
                self.page = Some(page);
                return Some(VerdictOf::<T>::Page(order));
            }
            WorkerEvent::Unreadable(sentence) => {
                self.note_damage(&sentence);
                return Some(VerdictOf::<T>::Damaged(sentence));
            }
            WorkerEvent::Refused(rows) => return Some(VerdictOf::<T>::Refused(rows)),
            WorkerEvent::Rewrite(number) => {
                self.outbox.rewrite = Some(number);
                self.health.rewrites += 1;
                return Some(VerdictOf::<T>::Rewrite);
            }
            WorkerEvent::NextSlice(number) => {
                // A slice of an earlier rewrite has no effect any more.
                return (self.outbox.rewrite == Some(number))
                    .then_some(VerdictOf::<T>::NextSlice)
                    .or_else(|| self.verdict());
            }
            WorkerEvent::Copied(result) => return Some(VerdictOf::<T>::Copied(result)),
        }
        self.verdict()
    }
}

impl<T: Tables> Store<T> for SqliteStore<T> {
    fn attach(&mut self, wake: Wake) {
        self.wake = Some(wake);
    }

    fn place(&self) -> String {
        self.place.path.display().to_string()
    }

    fn identity(&self) -> String {
        self.place.clone().resolved().path.display().to_string()
    }

    fn load(&mut self, epoch: Span) -> Result<(), String> {
        self.epoch = epoch;
        let opened = self.open().inspect_err(|sentence| self.note_damage(sentence))?;
        let Some((lock, opened)) = opened else { return Ok(()) };
        (self.reading, self.is_counted) = (ReadProgress::UnderWay, false);
        self.start(Begin::Open(lock, opened))
    }

    fn ownership(&self) -> Ownership {
        match self.reading {
            ReadProgress::Done => Ownership::Owns,
            ReadProgress::UnderWay => Ownership::Reads,
            ReadProgress::Failed => Ownership::Damaged,
        }
    }

    fn visit_page(&mut self, visit: VisitOf<'_, T>) -> Result<bool, String> {
        let Some(page) = &mut self.page else { return Ok(true) };
        let visited = T::visit(page, self.epoch, visit);
        match &visited {
            Ok(false) => {}
            Ok(true) => {
                if T::order(page).is_last {
                    self.reading = ReadProgress::Done;
                }
                self.page = None;
                self.order(WorkerOrder::PageTaken);
            }
            Err(sentence) => self.note_damage(&sentence.clone()),
        }
        visited
    }

    fn keeps_times(&self) -> bool {
        true
    }

    fn set_epoch(&mut self, epoch: Span) {
        self.epoch = epoch;
    }

    fn go_on(&mut self, epoch: Span, handed_over: HandedOver) {
        self.take_over(epoch, handed_over, Begin::GoOn);
    }

    fn read_on(&mut self, epoch: Span, handed_over: HandedOver) {
        (self.reading, self.is_counted) = (ReadProgress::UnderWay, false);
        self.take_over(epoch, handed_over, Begin::ReadOn);
    }

    fn can_be_read_on(&self) -> bool {
        (self.handed_over.is_none() || self.reading == ReadProgress::UnderWay) && self.outbox.rewrite.is_none()
    }

    fn is_sound(&self) -> bool {
        self.look.as_ref().is_none_or(|look| self.place.look().is_ok_and(|now| look.is_in(&now)))
    }

    fn hand_over(&self, batch: u64, next_id: u64) -> HandedOver {
        if let Some(handed_over) = &self.handed_over {
            return handed_over.with_next_id(next_id);
        }
        if self.only_reads() {
            // The queue gets another id once all is read.
            return HandedOver { mark: self.found, ..HandedOver::default() };
        }
        HandedOver { mark: Mark { opening: self.opening, batch, next_id }, queue: self.queue, ..HandedOver::default() }
    }

    fn is_busy(&self) -> bool {
        let is_beginning = self.handed_over.is_some() || self.reading == ReadProgress::Failed || !self.is_counted;
        self.outbox.is_busy() || is_beginning
    }

    fn is_failing(&self) -> bool {
        self.reason().is_some()
    }

    /// Without an open file, nothing is committed that could be lost.
    fn may_be_left(&self) -> bool {
        let is_open = self.handed_over.is_none() && self.reading != ReadProgress::Failed;
        !is_open && self.outbox.rewrite.is_none() && self.is_failing() || self.only_reads()
    }

    fn add(&mut self, change: T::Change<'_>) {
        self.outbox.add(change, self.epoch);
    }

    fn commit(&mut self, commit: Commit) {
        let batch = self.outbox.begin(commit);
        self.order(WorkerOrder::Commit(batch));
    }

    fn add_slice(&mut self, is_last: bool) {
        let Some((number, batch)) = self.outbox.slice() else { return };
        self.order(WorkerOrder::Slice { number, batch, is_last });
    }

    fn verdict(&mut self) -> Option<VerdictOf<T>> {
        let event = self.thread.as_ref()?.events.try_recv().ok()?;
        self.take(event)
    }

    fn copy(&mut self, name: &[u8]) -> Copying {
        let own = self.place.path.file_name().map_or(&b""[..], OsStr::as_bytes);
        if name.starts_with(own) {
            return Copying::BadName;
        }
        self.order(WorkerOrder::Copy(self.place.path.with_file_name(OsStr::from_bytes(name))));
        Copying::Begun
    }

    fn end(&mut self) -> Option<VerdictOf<T>> {
        if !std::mem::replace(&mut self.is_ending, true) {
            self.order(WorkerOrder::End);
        }
        loop {
            let event = self.thread.as_ref()?.events.recv().ok()?;
            if let Some(verdict) = self.take(event) {
                return Some(verdict);
            }
        }
    }

    fn health(&self) -> Option<Health> {
        Some(Health { fault: self.reason().map(String::from), ..self.health.clone() })
    }
}

impl<T: Tables> Drop for SqliteStore<T> {
    /// Ends the thread, which finishes what is under way and closes the file.
    fn drop(&mut self) {
        let Some(thread) = &mut self.thread else { return };
        thread.orders = None;
        // A thread that has panicked has printed its message.
        let _ = thread.handle.take().map(JoinHandle::join);
    }
}
