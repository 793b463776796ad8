//! Store of jobs that commits when the test says so. It outlives the servers of an upgrade, as a disk would.

use crate::kept_rows::KeptRows;
use crate::stored;
use poolcounter_core::time::Span;
use poolcounter_jobs::state::{Commit, History, JobId, Record, Stored, Until};
use poolcounter_jobs::store::batch::Batch;
use poolcounter_jobs::store::page::Page;
use poolcounter_jobs::store::{Contents, Copying, HandedOver, Jobs, Ownership, Store, Verdict, Visit};
use poolcounter_service::contract::Wake;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

/// Handle of the store.
#[derive(Clone, Default)]
pub struct SlowStore(Arc<Mutex<Desk>>);

/// Event of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Happened {
    /// The batch was handed over.
    Taken(u64),
    /// The service was notified of the commit.
    Committed(u64),
}

#[derive(Default)]
struct Desk {
    wake: Option<Wake>,
    collected: Vec<String>,
    under_way: Option<(Commit, Vec<String>)>,
    finished: Option<Commit>,
    /// Changes on the disk, by batch.
    batches: Vec<Vec<String>>,
    happened: Vec<Happened>,
    is_failing: bool,
    /// True while the lease of the place is not confirmed.
    is_lapsed: bool,
    /// True from the moment at which there is no room for the batch under way until it is committed, and whether the
    /// service is to be notified of that.
    is_full: bool,
    is_rolled_back: bool,
    epoch: Span,
    /// Collected changes, and everything on the disk, as rows.
    rows: Batch,
    disk: Vec<Arc<Batch>>,
    /// Number of jobs in each page that a new process reads after an upgrade; None if it gets all from the process
    /// before.
    page_jobs: Option<usize>,
    /// Pages that the service has not visited yet; true if the first of them is read.
    pages: VecDeque<Page>,
    is_read: bool,
    /// True if times are stored by the clock of the machine, with the times of day at the start after each step of it.
    keeps_times: bool,
    epochs: Vec<Span>,
}

impl SlowStore {
    /// Returns a new store, which services that are made on this thread from now on use.
    pub fn install() -> SlowStore {
        let store = SlowStore::default();
        let handle = store.clone();
        stored::install(move || Box::new(handle.clone()));
        store
    }

    /// Commits the batch that is under way, and returns whether there was one.
    pub fn commit_one(&self) -> bool {
        let mut desk = self.desk();
        let Some((commit, changes)) = desk.under_way.take() else { return false };
        desk.batches.push(changes);
        let rows = std::mem::take(&mut desk.rows);
        desk.disk.push(Arc::new(rows));
        (desk.finished, desk.is_full) = (Some(commit), false);
        let wake = desk.wake.clone();
        drop(desk);
        wake.into_iter().for_each(|wake| wake.wake());
        true
    }

    /// Confirms the lease of the place no more, or again.
    pub fn lapse(&self, is_lapsed: bool) {
        self.desk().is_lapsed = is_lapsed;
    }

    /// Fails to commit the batch that is under way, for lack of room, and returns whether there was one.
    pub fn roll_back(&self) -> bool {
        let mut desk = self.desk();
        let Some((_, changes)) = &mut desk.under_way else { return false };
        // The signature of a key begins with a space.
        changes.retain(|change| !["put ", "root default  "].iter().any(|put| change.starts_with(put)));
        Jobs::drop_puts(&mut desk.rows);
        (desk.is_full, desk.is_rolled_back) = (true, true);
        let wake = desk.wake.clone();
        drop(desk);
        wake.into_iter().for_each(|wake| wake.wake());
        true
    }

    /// Replaces the contents by these pages, for a service that is about to start.
    pub fn fill(&self, pages: Vec<Page>) {
        self.desk().pages = pages.into();
    }

    /// Lets new processes read the jobs after an upgrade, `page_jobs` in a page.
    pub fn read_after_upgrades(&self, page_jobs: usize) {
        self.desk().page_jobs = Some(page_jobs);
    }

    /// Lets the store keep times by the clock of the machine.
    pub fn keep_times(&self) {
        self.desk().keeps_times = true;
    }

    /// Returns the times of day at the start that the clock had after each step.
    pub fn epochs(&self) -> Vec<Span> {
        self.desk().epochs.clone()
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

    /// Lets the store fail for now, or work again.
    pub fn fail(&self, is_failing: bool) {
        self.desk().is_failing = is_failing;
    }

    /// Returns the changes on the disk, by batch.
    pub fn batches(&self) -> Vec<Vec<String>> {
        self.desk().batches.clone()
    }

    /// Returns the events since the last call, in order.
    pub fn take_happened(&self) -> Vec<Happened> {
        std::mem::take(&mut self.desk().happened)
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.0.lock().expect("no holder of the lock panics")
    }
}

impl Store<Jobs> for SlowStore {
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

    fn keeps_times(&self) -> bool {
        self.desk().keeps_times
    }

    fn set_epoch(&mut self, epoch: Span) {
        self.desk().epochs.push(epoch);
    }

    fn ownership(&self) -> Ownership {
        let desk = self.desk();
        match desk.pages.is_empty() {
            false => Ownership::Reads,
            true if desk.is_lapsed => Ownership::Lapsed,
            true => Ownership::Owns,
        }
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
        // The rows were added with this epoch.
        desk.epoch = Span::ZERO;
    }

    fn can_be_read_on(&self) -> bool {
        self.desk().page_jobs.is_some()
    }

    fn is_busy(&self) -> bool {
        let desk = self.desk();
        let reads = !desk.pages.is_empty() && desk.page_jobs.is_none();
        desk.under_way.is_some() || desk.finished.is_some() || reads
    }

    fn is_failing(&self) -> bool {
        let desk = self.desk();
        desk.is_failing || desk.is_full
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
            Stored::Taken(..) => "taken".into(),
            Stored::Unfinished(is_so) => format!("unfinished {is_so}"),
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

    /// Begins a copy that never ends.
    fn copy(&mut self, _: &[u8]) -> Copying {
        Copying::Begun
    }

    fn verdict(&mut self) -> Option<Verdict> {
        let mut desk = self.desk();
        if std::mem::take(&mut desk.is_read) {
            return desk.pages.front().map(|page| Verdict::Page(Jobs::order(page)));
        }
        if std::mem::take(&mut desk.is_rolled_back) {
            return Some(Verdict::RolledBack);
        }
        let commit = desk.finished.take()?;
        desk.happened.push(Happened::Committed(commit.0));
        Some(Verdict::Committed(commit))
    }
}

/// Returns a new job.
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
        origin: None,
        error: b"",
    }
}
