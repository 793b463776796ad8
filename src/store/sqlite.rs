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
mod tables;
mod worker;

pub use file::{DatabaseFile, Trouble};
pub use pages::Pages;
pub use schema::Schema;
pub use tables::{Tables, Writer};

use crate::contract::{Commit, Copying, HandedOver, Mark, Ownership, Store, Verdict, VisitOf};
use crate::desk::Desk;
use crate::health::Health;
use file::{Lock, Opened};
use look::Look;
use poolcounter_core::Span;
use poolcounter_service::contract::Wake;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::thread;
use std::time::Duration;
use worker::{Begin, Worker, WorkerEvent, WorkerOrder};

/// Store in a file of SQLite.
pub struct SqliteStore<T: Tables> {
    place: DatabaseFile,
    /// Schema of the file if it is created; None for that of the contents.
    created: Option<&'static Schema>,
    desk: Desk<T, WorkerOrder<T>, WorkerEvent<T>>,
    epoch: Span,
    /// The file and its log, as they were when the thread opened them.
    look: Option<Look>,
    /// Mark of the file as it was found, with the number of this opening once that is counted.
    mark: Mark,
    /// Id of the queue, if it is known.
    queue: Option<u128>,
    /// Handover of the previous process, until the thread has opened the file.
    handed_over: Option<HandedOver>,
    reading: ReadProgress,
    /// True once the opening is counted in the file.
    is_counted: bool,
    /// True once the thread was ordered to end.
    is_ending: bool,
}

/// Progress of reading the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReadProgress {
    Done,
    UnderWay,
    /// The contents cannot be read.
    Failed,
}

/// Fault of a store that was not opened.
const NOT_OPEN: &str = "it is not open";

impl<T: Tables> SqliteStore<T> {
    /// Returns a store that is not open yet.
    pub fn new(place: DatabaseFile) -> Self {
        SqliteStore {
            place,
            created: None,
            desk: Desk::default(),
            epoch: Span::ZERO,
            look: None,
            mark: Mark::default(),
            queue: None,
            handed_over: None,
            reading: ReadProgress::Done,
            is_counted: true,
            is_ending: false,
        }
    }

    /// Returns a store whose file has this schema if it is created, and can be used in spite of its fault.
    #[must_use]
    pub fn created_as(mut self, schema: &'static Schema) -> Self {
        self.created = Some(schema);
        self
    }

    /// Starts the thread. It has certainly started once a batch is committed.
    fn start(&mut self, begin: Begin) -> Result<(), String> {
        let place = self.place.clone();
        self.desk.start(|orders, events, wake| {
            let worker = Worker::new(place, orders, events, wake);
            let started = thread::Builder::new().name(format!("{}-store", T::NAME)).spawn(move || worker.run(begin));
            started.map(Some).map_err(|error| format!("no thread can be started: {error}"))
        })
    }

    /// Opens the file; None if it is damaged, or is not one of this program.
    fn open(&mut self) -> Result<Option<(Lock, Opened)>, String> {
        self.place = self.place.clone().resolved();
        let lock = self.place.lock(T::NAME)?;
        let created = self.created.filter(|_| !self.place.path.exists());
        let opened = match self.place.open_to_read(created.unwrap_or(&T::SCHEMA)) {
            Ok(opened) => opened,
            Err(Trouble::Lost(sentence)) => {
                self.note_damage(&sentence);
                return Ok(None);
            }
            Err(trouble) => return Err(trouble.sentence()),
        };
        self.look = Some(opened.look);
        (self.mark, self.queue) = (opened.mark, Some(opened.queue));
        Ok(Some((lock, opened)))
    }

    /// Starts the thread with the file that the previous process releases about now. Any file is taken for a service that
    /// expects none, and replaces all of it.
    pub fn take_over(&mut self, epoch: Span, expected: Option<HandedOver>, reads: bool) {
        self.epoch = epoch;
        self.place = self.place.clone().resolved();
        self.handed_over = Some(expected.clone().unwrap_or_default());
        // Clients that connect from now on could take its descriptors. If it fails, the thread tries again.
        let early = self.place.open_locked::<T>().ok();
        if let Err(sentence) = self.start(Begin { early, expected, reads }) {
            self.desk.fault.begin(&sentence);
        }
    }

    /// Returns whether everything was read, or needs no reading.
    pub fn has_read(&self) -> bool {
        self.reading == ReadProgress::Done && self.handed_over.is_none()
    }

    /// Returns whether a batch or a rewrite is under way.
    pub fn is_under_way(&self) -> bool {
        self.desk.is_busy()
    }

    /// Returns whether everything is being written anew.
    pub fn is_rewriting(&self) -> bool {
        self.desk.rewrite.is_some()
    }

    fn order(&mut self, order: WorkerOrder<T>) {
        if !self.desk.order(order) {
            self.desk.fault.begin(NOT_OPEN);
        }
    }

    /// Returns why the store does not work; None if it does.
    pub fn reason(&self) -> Option<&str> {
        self.desk.fault.reason().or((!self.desk.has_thread()).then_some(NOT_OPEN))
    }

    /// Notes that the store works, and returns true if it failed before, which the log mentions.
    fn note_works(&mut self) -> bool {
        let is_over = self.desk.fault.end();
        if is_over {
            log::info!("the {} are kept in {} again", T::NAME, self.place.path.display());
        }
        is_over
    }

    /// Notes that the store fails, which the log mentions once.
    fn note_fails(&mut self, sentence: &str) {
        if self.desk.fault.begin(sentence) {
            log::error!("the {} cannot be kept in {}: {sentence}", T::NAME, self.place.path.display());
        }
    }

    /// Returns whether the file is being read and nothing was written to it.
    fn only_reads(&self) -> bool {
        self.reading == ReadProgress::UnderWay && !self.is_counted && self.handed_over.is_none()
    }

    /// Notes that the file cannot be read.
    fn note_damage(&mut self, sentence: &str) {
        self.reading = ReadProgress::Failed;
        self.desk.fault.begin(sentence);
    }

    /// Processes an event of the thread, and returns its consequence for the service.
    fn take(&mut self, event: WorkerEvent<T>) -> Option<Verdict> {
        match event {
            WorkerEvent::Committed { commit, took, look } => {
                self.note_works();
                self.look = Some(look);
                return Some(self.desk.committed(commit, took));
            }
            WorkerEvent::Checkpointed { took, look } => {
                self.desk.checkpointed(took);
                self.look = Some(look);
            }
            WorkerEvent::Works { opening, queue, look } => {
                let has_all = self.handed_over.is_some() || self.desk.rewrite.is_some();
                // The end of the reading is logged in any case.
                if !self.note_works() && has_all && self.reading == ReadProgress::Done {
                    log::info!("the {} are kept in {}", T::NAME, self.place.path.display());
                }
                self.desk.rewrite = None;
                (self.handed_over, self.is_counted) = (None, true);
                (self.mark.opening, self.queue, self.look) = (opening, queue, Some(look));
            }
            WorkerEvent::Fails(sentence) => self.note_fails(&sentence),
            WorkerEvent::RolledBack => return Some(Verdict::RolledBack),
            WorkerEvent::Page(page) => return Some(self.desk.paged(page)),
            WorkerEvent::Unreadable(sentence) => {
                self.note_damage(&sentence);
                return Some(Verdict::Damaged(sentence));
            }
            WorkerEvent::Rewrite(number) => return Some(self.desk.rewritten(number)),
            WorkerEvent::NextSlice(number) => return self.desk.next_slice(number).or_else(|| self.verdict()),
            WorkerEvent::Copied(result) => return Some(Verdict::Copied(result)),
        }
        self.verdict()
    }
}

impl<T: Tables> Store<T> for SqliteStore<T> {
    fn attach(&mut self, wake: Wake) {
        self.desk.wake = Some(wake);
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
        self.start(Begin { early: Some((lock, opened)), expected: None, reads: true })
    }

    fn ownership(&self) -> Ownership {
        match self.reading {
            ReadProgress::Done => Ownership::Owns,
            ReadProgress::UnderWay => Ownership::Reads,
            ReadProgress::Failed => Ownership::Damaged,
        }
    }

    fn visit_page(&mut self, visit: VisitOf<'_, T>) -> Result<bool, String> {
        let visited = self.desk.visit(self.epoch, visit).inspect_err(|sentence| self.note_damage(sentence))?;
        let Some(order) = visited else { return Ok(false) };
        if order.is_last {
            self.reading = ReadProgress::Done;
        }
        self.order(WorkerOrder::PageTaken);
        Ok(true)
    }

    fn keeps_times(&self) -> bool {
        true
    }

    fn set_epoch(&mut self, epoch: Span) {
        self.epoch = epoch;
    }

    fn go_on(&mut self, epoch: Span, handed_over: HandedOver) {
        self.take_over(epoch, Some(handed_over), false);
    }

    fn read_on(&mut self, epoch: Span, handed_over: HandedOver) {
        (self.reading, self.is_counted) = (ReadProgress::UnderWay, false);
        self.take_over(epoch, Some(handed_over), true);
    }

    fn can_be_read_on(&self) -> bool {
        (self.handed_over.is_none() || self.reading == ReadProgress::UnderWay) && self.desk.rewrite.is_none()
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
            return HandedOver { mark: self.mark, ..HandedOver::default() };
        }
        HandedOver { mark: Mark { batch, next_id, ..self.mark }, queue: self.queue, ..HandedOver::default() }
    }

    fn is_busy(&self) -> bool {
        let is_beginning = self.handed_over.is_some() || self.reading == ReadProgress::Failed || !self.is_counted;
        self.desk.is_busy() || is_beginning
    }

    fn is_failing(&self) -> bool {
        self.reason().is_some()
    }

    /// Without an open file, nothing is committed that could be lost.
    fn may_be_left(&self) -> bool {
        let is_open = self.handed_over.is_none() && self.reading != ReadProgress::Failed;
        !is_open && self.desk.rewrite.is_none() && self.is_failing() || self.only_reads()
    }

    fn add(&mut self, change: T::Change<'_>) {
        self.desk.add(change, self.epoch);
    }

    fn commit(&mut self, commit: Commit) {
        let batch = self.desk.begin(commit);
        self.order(WorkerOrder::Commit(batch));
    }

    fn add_slice(&mut self, is_last: bool) {
        let Some((number, batch)) = self.desk.slice() else { return };
        self.order(WorkerOrder::Slice { number, batch, is_last });
    }

    fn verdict(&mut self) -> Option<Verdict> {
        let event = self.desk.next_event(Duration::ZERO)?;
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

    fn end(&mut self) -> Option<Verdict> {
        if !std::mem::replace(&mut self.is_ending, true) {
            self.order(WorkerOrder::End);
        }
        loop {
            let event = self.desk.next_event(Duration::MAX)?;
            if let Some(verdict) = self.take(event) {
                return Some(verdict);
            }
        }
    }

    fn health(&self) -> Option<Health> {
        let file_bytes = self.look.map_or(0, |look| look.bytes());
        Some(Health { file_bytes, ..self.desk.health(self.reason()) })
    }
}
