//! The store that keeps jobs in a file of SQLite, as the loop sees it: batches go to a thread, which says when they are
//! committed. Neither side waits for the other.

mod copy;
mod file;
mod load;
mod look;
mod rewrite;
mod schema;
mod statements;
mod worker;

pub use file::DatabaseFile;

use super::state::{Commit, Stored};
use super::store::batch::Batch;
use super::store::page::Page;
use super::store::{Copying, HandedOver, Health, Mark, Ownership, Store, Verdict, Visit};
use file::{Lock, Opened};
use look::Look;
use poolcounter_core::log_limit::Fault;
use poolcounter_core::time::Span;
use poolcounter_service::contract::Wake;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use worker::{Begin, Worker, WorkerEvent, WorkerOrder};

/// Keeps jobs in a file of SQLite.
pub struct Sqlite {
    place: DatabaseFile,
    wake: Option<Wake>,
    epoch: Span,
    /// The file and its log, as the thread has them open.
    look: Option<Look>,
    /// Mark of the file as it was found: read before its opening is counted.
    found: Mark,
    opening: u64,
    /// The id of the queue, as far as it is known.
    queue: Option<u128>,
    /// The changes that were added.
    collected: Batch,
    /// How many changes the batch has that is under way.
    under_way: Option<u64>,
    /// Mark that the process before has handed over, until the thread has opened the file.
    handed_over: Option<HandedOver>,
    /// Which of the times that all is written anew is under way.
    rewrite: Option<u64>,
    reading: Reading,
    /// The opening is counted in the file.
    is_counted: bool,
    /// The page that is being visited.
    page: Option<Page>,
    thread: Option<Thread>,
    /// The thread was told that nothing more comes.
    is_ending: bool,
    fault: Fault,
    health: Health,
}

/// Progress of reading the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reading {
    Done,
    UnderWay,
    /// The jobs cannot be read.
    Failed,
}

/// The thread, and what there is between it and the loop.
struct Thread {
    /// None once it is to end.
    orders: Option<Sender<WorkerOrder>>,
    told: Receiver<WorkerEvent>,
    handle: Option<JoinHandle<()>>,
}

/// What is wrong with a store that was not opened.
const NOT_OPEN: &str = "it is not open";

impl Sqlite {
    /// A store that is not open yet.
    pub fn new(place: DatabaseFile) -> Self {
        Sqlite {
            place,
            wake: None,
            epoch: Span::ZERO,
            look: None,
            found: Mark::default(),
            opening: 0,
            queue: None,
            collected: Batch::default(),
            under_way: None,
            handed_over: None,
            rewrite: None,
            reading: Reading::Done,
            is_counted: true,
            page: None,
            thread: None,
            is_ending: false,
            fault: Fault::default(),
            health: Health::default(),
        }
    }

    /// Starts the thread. It is sure to have started when a batch is committed.
    fn start(&mut self, begin: Begin) -> Result<(), String> {
        let (orders, received) = channel();
        let (teller, told) = channel();
        let wake = self.wake.clone().unwrap_or_else(|| Wake::new(|| {}));
        let worker = Worker::new(self.place.clone(), received, teller, wake);
        let handle = thread::Builder::new().name("jobs-store".into()).spawn(move || worker.run(begin));
        let handle = handle.map_err(|error| format!("no thread can be started: {error}"))?;
        self.thread = Some(Thread { orders: Some(orders), told, handle: Some(handle) });
        Ok(())
    }

    fn open(&mut self) -> Result<(Lock, Opened), String> {
        self.place = self.place.clone().resolved();
        let lock = self.place.lock()?;
        let opened = self.place.open_to_read(&lock).map_err(file::FileTrouble::sentence)?;
        self.note_look(opened.look);
        self.found = opened.mark;
        (self.opening, self.queue) = (opened.mark.opening, Some(opened.queue));
        Ok((lock, opened))
    }

    fn order(&mut self, order: WorkerOrder) {
        let orders = self.thread.as_ref().and_then(|thread| thread.orders.as_ref());
        if orders.is_none_or(|orders| orders.send(order).is_err()) {
            self.fault.begin(NOT_OPEN);
        }
    }

    /// Returns why it does not work; None if it does.
    fn reason(&self) -> Option<&str> {
        self.fault.reason().or(self.thread.is_none().then_some(NOT_OPEN))
    }

    /// Notes that it works, and returns whether the log says so: it failed before.
    fn note_works(&mut self) -> bool {
        let is_over = self.fault.end();
        if is_over {
            log::info!("the jobs are kept in {} again", self.place.path.display());
        }
        is_over
    }

    /// Notes that the file is open, and that this is counted there.
    fn note_open(&mut self, opening: u64, queue: Option<u128>, look: Look) {
        (self.handed_over, self.is_counted) = (None, true);
        (self.opening, self.queue) = (opening, queue);
        self.note_look(look);
    }

    fn note_look(&mut self, look: Look) {
        (self.look, self.health.file_bytes) = (Some(look), look.bytes());
    }

    /// Returns whether the file is read, and nothing was written to it.
    fn only_reads(&self) -> bool {
        self.reading == Reading::UnderWay && !self.is_counted && self.handed_over.is_none()
    }

    /// Notes that what the file has is of no use.
    fn note_damage(&mut self, sentence: &str) {
        (self.reading, self.page) = (Reading::Failed, None);
        self.fault.begin(sentence);
    }

    /// Takes in what the thread tells, as far as the service must know of it.
    fn take(&mut self, told: WorkerEvent) -> Option<Verdict> {
        match told {
            WorkerEvent::Committed { commit, took, look } => {
                self.note_works();
                self.health.last_batch = self.under_way.take().unwrap_or(0);
                self.health.commits.record(took);
                self.note_look(look);
                return Some(Verdict::Committed(commit));
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
                    log::info!("the jobs are kept in {}", self.place.path.display());
                }
                self.rewrite = None;
                self.note_open(opening, queue, look);
            }
            WorkerEvent::Fails(sentence) => {
                if self.fault.begin(&sentence) {
                    log::error!("the jobs cannot be kept in {}: {sentence}", self.place.path.display());
                }
            }
            WorkerEvent::Page(page) => {
                let order = page.order();
                self.page = Some(page);
                return Some(Verdict::Page(order));
            }
            WorkerEvent::Unreadable(sentence) => {
                self.note_damage(&sentence);
                return Some(Verdict::Damaged(sentence));
            }
            WorkerEvent::Refused(rows) => return Some(Verdict::Refused(rows)),
            WorkerEvent::Rewrite(number) => {
                self.rewrite = Some(number);
                self.health.rewrites += 1;
                return Some(Verdict::Rewrite);
            }
            WorkerEvent::NextSlice(number) => {
                // A slice of an earlier time counts for nothing any more.
                return (self.rewrite == Some(number)).then_some(Verdict::NextSlice).or_else(|| self.verdict());
            }
            WorkerEvent::Copied(result) => return Some(Verdict::Copied(result)),
        }
        self.verdict()
    }
}

impl Store for Sqlite {
    fn attach(&mut self, wake: Wake) {
        self.wake = Some(wake);
    }

    fn place(&self) -> String {
        self.place.path.display().to_string()
    }

    fn load(&mut self, epoch: Span) -> Result<(), String> {
        self.epoch = epoch;
        let (lock, opened) = self.open()?;
        (self.reading, self.is_counted) = (Reading::UnderWay, false);
        self.start(Begin::Open(lock, opened))
    }

    fn ownership(&self) -> Ownership {
        match self.reading {
            Reading::Done => Ownership::Owns,
            Reading::UnderWay => Ownership::Reads,
            Reading::Failed => Ownership::Damaged,
        }
    }

    fn visit_page(&mut self, visit: Visit<'_>) -> Result<bool, String> {
        let Some(page) = &mut self.page else { return Ok(true) };
        let visited = page.visit(self.epoch, visit);
        match &visited {
            Ok(false) => {}
            Ok(true) => {
                if page.is_last {
                    self.reading = Reading::Done;
                }
                self.page = None;
                self.order(WorkerOrder::PageTaken);
            }
            Err(sentence) => self.note_damage(&sentence.clone()),
        }
        visited
    }

    fn go_on(&mut self, epoch: Span, handed_over: HandedOver) {
        self.epoch = epoch;
        self.place = self.place.clone().resolved();
        self.handed_over = Some(handed_over.clone());
        if let Err(sentence) = self.start(Begin::GoOn(handed_over)) {
            self.fault.begin(&sentence);
        }
    }

    fn read_on(&mut self, epoch: Span, handed_over: HandedOver) {
        self.epoch = epoch;
        self.place = self.place.clone().resolved();
        (self.reading, self.is_counted) = (Reading::UnderWay, false);
        self.handed_over = Some(handed_over.clone());
        if let Err(sentence) = self.start(Begin::ReadOn(handed_over)) {
            self.fault.begin(&sentence);
        }
    }

    fn can_be_read_on(&self) -> bool {
        (self.handed_over.is_none() || self.reading == Reading::UnderWay) && self.rewrite.is_none()
    }

    fn is_sound(&self) -> bool {
        self.look.as_ref().is_none_or(|look| self.place.look().is_ok_and(|now| look.is_in(&now)))
    }

    fn is_at(&self, place: &str) -> bool {
        self.place.clone().resolved().path.display().to_string() == place
    }

    fn hand_over(&self, batch: u64, next_id: u64) -> HandedOver {
        if let Some(handed_over) = &self.handed_over {
            return handed_over.with_next_id(next_id);
        }
        if self.only_reads() {
            // When all is read, the queue has another id.
            return HandedOver { mark: self.found, ..HandedOver::default() };
        }
        HandedOver { mark: Mark { opening: self.opening, batch, next_id }, queue: self.queue, ..HandedOver::default() }
    }

    fn is_busy(&self) -> bool {
        let is_beginning = self.handed_over.is_some() || self.reading == Reading::Failed || !self.is_counted;
        self.under_way.is_some() || self.rewrite.is_some() || is_beginning
    }

    fn is_failing(&self) -> bool {
        self.reason().is_some()
    }

    /// A file that cannot be opened has taken nothing yet.
    fn may_be_left(&self) -> bool {
        let is_open = self.handed_over.is_none() && self.reading != Reading::Failed;
        !is_open && self.rewrite.is_none() && self.is_failing() || self.only_reads()
    }

    fn add(&mut self, change: Stored<'_>) {
        self.collected.add(change, self.epoch);
    }

    fn commit(&mut self, commit: Commit) {
        let mut batch = std::mem::take(&mut self.collected);
        batch.commit = commit;
        self.under_way = Some(batch.rows.len() as u64);
        self.order(WorkerOrder::Commit(batch));
    }

    fn add_slice(&mut self, is_last: bool) {
        let batch = std::mem::take(&mut self.collected);
        let Some(number) = self.rewrite else { return };
        self.order(WorkerOrder::Slice { number, batch, is_last });
    }

    fn verdict(&mut self) -> Option<Verdict> {
        let told = self.thread.as_ref()?.told.try_recv().ok()?;
        self.take(told)
    }

    fn copy(&mut self, name: &[u8]) -> Copying {
        let own = self.place.path.file_name().map_or(&b""[..], OsStr::as_bytes);
        if name.starts_with(own) {
            return Copying::BadName;
        }
        self.order(WorkerOrder::Copy(self.place.path.with_file_name(OsStr::from_bytes(name))));
        Copying::Begun
    }

    fn end(&mut self) -> Option<Verdict> {
        if !std::mem::replace(&mut self.is_ending, true) {
            self.order(WorkerOrder::End);
        }
        loop {
            let told = self.thread.as_ref()?.told.recv().ok()?;
            if let Some(verdict) = self.take(told) {
                return Some(verdict);
            }
        }
    }

    fn health(&self) -> Option<Health> {
        Some(Health { fault: self.reason().map(String::from), ..self.health.clone() })
    }
}

impl Drop for Sqlite {
    /// Ends the thread, which finishes what is under way and closes the file.
    fn drop(&mut self) {
        let Some(thread) = &mut self.thread else { return };
        thread.orders = None;
        // A thread that has panicked has said so.
        let _ = thread.handle.take().map(JoinHandle::join);
    }
}
