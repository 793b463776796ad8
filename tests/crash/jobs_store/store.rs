//! A store of jobs that commits when the test says so. It outlives the servers of an upgrade, as a disk would.

use poolcounter_core::time::Span;
use poolcounter_jobs::state::{Commit, History, JobId, Record, Stored, Until};
use poolcounter_jobs::store::batch::Batch;
use poolcounter_jobs::store::page::Page;
use poolcounter_jobs::store::{HandedOver, Ownership, Store, Verdict, Visit};
use poolcounter_jobs::{self as jobs, JobQueue, JobsSettings};
use poolcounter_service::contract::{Info, Service, Wake};
use poolcounter_service::options::Opt;
use poolcounter_service::settings::{self, Configure};
use poolcounter_testkit::crash::kept_rows::KeptRows;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

thread_local! {
    /// The store of the services that are made on this thread: a line of the registry has no room for one.
    static CURRENT: RefCell<SlowStore> = RefCell::default();
}

/// The line of the registry: the jobs, with this store.
pub static INFO: Info = Info { settings: settings::defaults::<SlowSettings>, ..jobs::INFO };

/// The settings of jobs that go to the store of this thread.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SlowSettings(pub JobsSettings);

impl Configure for SlowSettings {
    const OPTIONS: &'static [Opt<Self>] = &[];

    fn open(&self) -> Box<dyn Service> {
        Box::new(JobQueue::with_store(&self.0, Box::new(SlowStore::current())))
    }
}

/// A handle of the store.
#[derive(Clone, Default)]
pub struct SlowStore(Arc<Mutex<Desk>>);

/// What a batch went through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happened {
    /// It was handed over.
    Taken(u64),
    /// The service was told that it is committed.
    Committed(u64),
}

#[derive(Default)]
struct Desk {
    wake: Option<Wake>,
    collected: Vec<String>,
    under_way: Option<(Commit, Vec<String>)>,
    finished: Option<Commit>,
    /// What is on the disk, by batch.
    batches: Vec<Vec<String>>,
    happened: Vec<Happened>,
    is_failing: bool,
    epoch: Span,
    /// What is collected, and all that is on the disk, as rows.
    rows: Batch,
    disk: Vec<Arc<Batch>>,
    /// Number of jobs in each page that a process reads which takes over; None if that gets all from the process before.
    page_jobs: Option<usize>,
    /// What was there at the start and is not taken in, and whether the first of it is read.
    pages: VecDeque<Page>,
    is_read: bool,
}

impl SlowStore {
    /// Returns a new store, which services that are made on this thread from now on use.
    pub fn install() -> SlowStore {
        let store = SlowStore::default();
        CURRENT.set(store.clone());
        store
    }

    fn current() -> SlowStore {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Commits the batch that is under way, and tells whether there was one.
    pub fn commit_one(&self) -> bool {
        let mut desk = self.desk();
        let Some((commit, changes)) = desk.under_way.take() else { return false };
        desk.batches.push(changes);
        let rows = std::mem::take(&mut desk.rows);
        desk.disk.push(Arc::new(rows));
        desk.finished = Some(commit);
        let wake = desk.wake.clone();
        drop(desk);
        wake.into_iter().for_each(|wake| wake.wake());
        true
    }

    /// Makes these pages all that is there, for a service that is about to begin.
    pub fn fill(&self, pages: Vec<Page>) {
        self.desk().pages = pages.into();
    }

    /// Has processes that take over read the jobs, so many in a page.
    pub fn read_after_upgrades(&self, page_jobs: usize) {
        self.desk().page_jobs = Some(page_jobs);
    }

    /// Returns whether there is more to read.
    pub fn has_pages(&self) -> bool {
        !self.desk().pages.is_empty()
    }

    /// Reads one more page, if there is one.
    pub fn read_one(&self) {
        let mut desk = self.desk();
        desk.is_read = true;
        let wake = desk.wake.clone();
        drop(desk);
        wake.into_iter().for_each(|wake| wake.wake());
    }

    /// Has it fail for now, or not any more.
    pub fn fail(&self, is_failing: bool) {
        self.desk().is_failing = is_failing;
    }

    /// What is on the disk, by batch.
    pub fn batches(&self) -> Vec<Vec<String>> {
        self.desk().batches.clone()
    }

    /// What happened since the last call, in order.
    pub fn take_happened(&self) -> Vec<Happened> {
        std::mem::take(&mut self.desk().happened)
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.0.lock().expect("no holder of the lock panics")
    }
}

impl Store for SlowStore {
    fn attach(&mut self, wake: Wake) {
        self.desk().wake = Some(wake);
    }

    fn place(&self) -> String {
        "a test".into()
    }

    fn load(&mut self, epoch: Span) -> Result<(), String> {
        self.desk().epoch = epoch;
        Ok(())
    }

    fn ownership(&self) -> Ownership {
        if self.desk().pages.is_empty() { Ownership::Owns } else { Ownership::Reads }
    }

    fn visit_page(&mut self, visit: Visit<'_>) -> Result<bool, String> {
        let mut desk = self.desk();
        let epoch = desk.epoch;
        let Some(page) = desk.pages.front_mut() else { return Ok(true) };
        let is_over = page.visit(epoch, visit)?;
        if is_over {
            desk.pages.pop_front();
        }
        Ok(is_over)
    }

    fn go_on(&mut self, _: Span, _: HandedOver) {}

    fn read_on(&mut self, _: Span, _: HandedOver) {
        let mut desk = self.desk();
        let jobs = desk.page_jobs.expect("it was asked for");
        desk.pages = KeptRows::of(&desk.disk).pages(jobs).into();
        // So its rows were added.
        desk.epoch = Span::ZERO;
    }

    fn can_be_read_on(&self) -> bool {
        self.desk().page_jobs.is_some()
    }

    fn is_at(&self, place: &str) -> bool {
        place == self.place()
    }

    fn is_busy(&self) -> bool {
        let desk = self.desk();
        let reads = !desk.pages.is_empty() && desk.page_jobs.is_none();
        desk.under_way.is_some() || desk.finished.is_some() || reads
    }

    fn is_failing(&self) -> bool {
        self.desk().is_failing
    }

    fn add(&mut self, change: Stored<'_>) {
        let text = match &change {
            Stored::Put(record, body) => {
                format!("put {} {}", record.id.0, String::from_utf8_lossy(body.bytes()))
            }
            Stored::Update(record) => format!("update {}", record.id.0),
            Stored::Delete(id) => format!("delete {}", id.0),
            Stored::Root(tube, signature, newest, _) => {
                format!("root {} {} {newest}", tube.escape_ascii(), signature.escape_ascii())
            }
            Stored::RootGone(..) => "root gone".into(),
            Stored::Setting(_) => "setting".into(),
            Stored::NextId(id) => format!("next {id}"),
        };
        let mut desk = self.desk();
        desk.collected.push(text);
        desk.rows.add(change, Span::ZERO);
    }

    fn commit(&mut self, commit: Commit) {
        let mut desk = self.desk();
        assert!(desk.under_way.is_none() && desk.finished.is_none(), "one batch at a time");
        desk.happened.push(Happened::Taken(commit.0));
        let changes = std::mem::take(&mut desk.collected);
        desk.under_way = Some((commit, changes));
    }

    fn verdict(&mut self) -> Option<Verdict> {
        let mut desk = self.desk();
        if std::mem::take(&mut desk.is_read) {
            return desk.pages.front().map(|page| Verdict::Page(page.order()));
        }
        let commit = desk.finished.take()?;
        desk.happened.push(Happened::Committed(commit.0));
        Some(Verdict::Committed(commit))
    }
}

/// A job to which nothing has happened.
pub fn plain(id: u64) -> Record<'static> {
    Record {
        id: JobId(id),
        tube: b"enwiki/refreshLinks",
        pri: 1024,
        delay: 0,
        ttr: 60,
        created: 5_000_000,
        delayed: None,
        is_buried: false,
        reserves: 0.into(),
        history: History::default(),
        key: b"",
        until: Until::Reserved,
        root: None,
        group: b"",
        error: b"",
    }
}
