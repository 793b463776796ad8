//! A store of jobs on a disk that can lose what it has not synced: each batch is whole on it, or not there. It does what the test
//! says, and when: commits, has no room, fails to sync and asks for everything anew.

use poolcounter_core::time::Span;
use poolcounter_jobs::state::{Commit, Stored};
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
    /// The disk of the services that are made on this thread: a line of the registry has no room for one.
    static CURRENT: RefCell<LosingStore> = RefCell::default();
}

/// The line of the registry: the jobs, with this store.
pub static INFO: Info = Info { settings: settings::defaults::<LosingSettings>, ..jobs::INFO };

/// The settings of jobs that go to the store of this thread.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LosingSettings(pub JobsSettings);

impl Configure for LosingSettings {
    const OPTIONS: &'static [Opt<Self>] = &[];

    fn open(&self) -> Box<dyn Service> {
        Box::new(JobQueue::with_store(&self.0, Box::new(CURRENT.with_borrow(Clone::clone))))
    }
}

/// A handle of the store.
#[derive(Clone, Default)]
pub struct LosingStore(Arc<Mutex<Desk>>);

/// What the disk does with what is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It takes it.
    Succeed,
    /// It has no room for now.
    Full,
    /// The sync fails: what was written before may be lost.
    FailToSync,
}

#[derive(Default)]
struct Desk {
    epoch: Span,
    wake: Option<Wake>,
    /// What a new server begins with.
    disk: Vec<Arc<Batch>>,
    /// The part of it that is not taken in yet.
    page: Option<Page>,
    collected: Batch,
    /// The batch whose verdict is owed.
    under_way: Option<(Commit, Arc<Batch>)>,
    /// All that there is, as far as it was written anew.
    anew: Option<Anew>,
    verdicts: VecDeque<Verdict>,
    is_full: bool,
}

#[derive(Default)]
struct Anew {
    slices: Vec<Arc<Batch>>,
    /// A slice has come that was not answered yet, and it is the last.
    has_come: Option<bool>,
}

impl LosingStore {
    /// Returns a new disk, which services that are made on this thread from now on use.
    pub fn install() -> LosingStore {
        let store = LosingStore::default();
        CURRENT.set(store.clone());
        store
    }

    /// Has what is under way meet this fate, and tells whether there was anything.
    pub fn meet(&self, fate: Fate) -> bool {
        let mut desk = self.desk();
        let is_anything = desk.meet(fate);
        let wake = desk.wake.clone().filter(|_| is_anything);
        drop(desk);
        wake.into_iter().for_each(|wake| wake.wake());
        is_anything
    }

    /// The process and its disk's memory are gone. What was under way is on the disk or not.
    pub fn crash(&self, is_written: bool) {
        let mut desk = self.desk();
        // A new file counts for nothing before it is whole, and then it was told.
        if let Some((_, batch)) = desk.under_way.take().filter(|_| is_written && desk.anew.is_none()) {
            desk.disk.push(batch);
        }
        *desk = Desk { disk: std::mem::take(&mut desk.disk), ..Desk::default() };
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.0.lock().expect("no holder of the lock panics")
    }
}

impl Desk {
    fn meet(&mut self, fate: Fate) -> bool {
        let Some((commit, batch)) = self.under_way.clone() else { return false };
        self.is_full = fate == Fate::Full;
        match (&mut self.anew, fate) {
            (_, Fate::Full) => {}
            (None, Fate::Succeed) => {
                self.disk.push(batch);
                self.under_way = None;
                self.verdicts.push_back(Verdict::Committed(commit));
            }
            (_, Fate::FailToSync) => {
                // Nothing of an earlier attempt is asked for any more.
                self.verdicts.retain(|verdict| *verdict != Verdict::NextSlice);
                self.verdicts.push_back(Verdict::Rewrite);
                self.anew = Some(Anew::default());
            }
            (Some(anew), Fate::Succeed) => match anew.has_come.take() {
                Some(true) => {
                    self.disk = std::mem::take(&mut anew.slices);
                    (self.anew, self.under_way) = (None, None);
                    self.verdicts.push_back(Verdict::Committed(commit));
                }
                Some(false) => self.verdicts.push_back(Verdict::NextSlice),
                None => return false,
            },
        }
        true
    }
}

impl Store for LosingStore {
    fn attach(&mut self, wake: Wake) {
        self.desk().wake = Some(wake);
    }

    fn place(&self) -> String {
        "a test".into()
    }

    fn load(&mut self, epoch: Span) -> Result<(), String> {
        let mut desk = self.desk();
        desk.epoch = epoch;
        let page = KeptRows::of(&desk.disk).page();
        desk.verdicts.push_back(Verdict::Page(page.order()));
        desk.page = Some(page);
        desk.wake.iter().for_each(Wake::wake);
        Ok(())
    }

    fn ownership(&self) -> Ownership {
        if self.desk().page.is_some() { Ownership::Reads } else { Ownership::Owns }
    }

    fn visit_page(&mut self, visit: Visit<'_>) -> Result<bool, String> {
        let mut desk = self.desk();
        let epoch = desk.epoch;
        let is_over = desk.page.as_mut().is_none_or(|page| page.visit(epoch, visit).expect("was kept"));
        desk.page.take_if(|_| is_over);
        Ok(is_over)
    }

    fn go_on(&mut self, _: Span, _: HandedOver) {}

    fn is_busy(&self) -> bool {
        let desk = self.desk();
        desk.under_way.is_some() || !desk.verdicts.is_empty()
    }

    fn is_failing(&self) -> bool {
        let desk = self.desk();
        desk.is_full || desk.anew.is_some()
    }

    fn add(&mut self, change: Stored<'_>) {
        let mut desk = self.desk();
        let epoch = desk.epoch;
        desk.collected.add(change, epoch);
    }

    fn commit(&mut self, commit: Commit) {
        let mut desk = self.desk();
        assert!(desk.under_way.is_none() && desk.anew.is_none(), "one batch at a time");
        let mut batch = std::mem::take(&mut desk.collected);
        batch.commit = commit;
        desk.under_way = Some((commit, Arc::new(batch)));
    }

    fn add_slice(&mut self, is_last: bool) {
        let mut desk = self.desk();
        let slice = Arc::new(std::mem::take(&mut desk.collected));
        let Some(anew) = &mut desk.anew else { panic!("nobody asked for a slice") };
        assert!(anew.has_come.is_none(), "one slice at a time");
        anew.slices.push(slice);
        anew.has_come = Some(is_last);
    }

    fn verdict(&mut self) -> Option<Verdict> {
        self.desk().verdicts.pop_front()
    }
}
