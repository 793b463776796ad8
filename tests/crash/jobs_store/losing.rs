//! Store of jobs on a disk that can lose unsynced writes: each batch is on it as a whole, or not at all. On command of
//! the test it commits, is full, or fails to sync and asks for a rewrite.

use crate::kept_rows::KeptRows;
use crate::stored;
use poolcounter_core::time::Span;
use poolcounter_jobs::state::{Commit, Stored};
use poolcounter_jobs::store::batch::Batch;
use poolcounter_jobs::store::page::Page;
use poolcounter_jobs::store::{Contents, HandedOver, Jobs, Ownership, Store, Verdict, Visit};
use poolcounter_service::contract::Wake;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

/// Handle of the store.
#[derive(Clone, Default)]
pub struct LosingStore(Arc<Mutex<Desk>>);

/// Fate of the work that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The work succeeds.
    Succeed,
    /// The disk is full for now.
    Full,
    /// The sync fails: earlier writes may be lost.
    FailToSync,
}

#[derive(Default)]
struct Desk {
    epoch: Span,
    wake: Option<Wake>,
    /// Batches with which a new server starts.
    disk: Vec<Arc<Batch>>,
    /// Rest of these that the service has not visited yet.
    page: Option<Page>,
    collected: Batch,
    /// Batch whose verdict is pending.
    under_way: Option<(Commit, Arc<Batch>)>,
    /// State of a rewrite.
    anew: Option<Anew>,
    verdicts: VecDeque<Verdict>,
    is_full: bool,
}

#[derive(Default)]
struct Anew {
    slices: Vec<Arc<Batch>>,
    /// A slice has come that was not answered yet; true for the last one.
    has_come: Option<bool>,
}

impl LosingStore {
    /// Returns a new disk, which services that are made on this thread from now on use.
    pub fn install() -> LosingStore {
        let store = LosingStore::default();
        let handle = store.clone();
        stored::install(move || Box::new(handle.clone()));
        store
    }

    /// Ends the work under way with this fate, and returns whether there was any.
    pub fn meet(&self, fate: Fate) -> bool {
        let mut desk = self.desk();
        let is_anything = desk.meet(fate);
        let wake = desk.wake.clone().filter(|_| is_anything);
        drop(desk);
        wake.into_iter().for_each(|wake| wake.wake());
        is_anything
    }

    /// Crashes the process: a batch under way is written or lost.
    pub fn crash(&self, is_written: bool) {
        let mut desk = self.desk();
        // A new file is valid only once it is whole, and then it was reported.
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
                // Requests for slices of an earlier attempt are dropped.
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

impl Store<Jobs> for LosingStore {
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
        desk.verdicts.push_back(Verdict::Page(Jobs::order(&page)));
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
