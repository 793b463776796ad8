//! A store that is not there: batches are committed when the test says so, or by a real thread. It owns nothing of the
//! service, and outlives the servers of an upgrade as a disk would.

use poolcounter_service::contract::Wake;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

thread_local! {
    /// The store of the toys that are made on this thread: a line of the registry has no room for one.
    static CURRENT: RefCell<Store> = RefCell::default();
}

/// A handle of the store.
#[derive(Clone, Default)]
pub struct Store(Arc<Shared>);

#[derive(Default)]
struct Shared {
    desk: Mutex<Desk>,
    news: Condvar,
}

#[derive(Default)]
struct Desk {
    /// How often the store has crashed.
    crashes: u64,
    queue: VecDeque<Batch>,
    finished: VecDeque<Finished>,
    /// What is on the disk.
    texts: Vec<String>,
    wake: Option<Wake>,
    calls: Calls,
    /// The thread lets batches lie.
    is_stuck: bool,
    /// The thread ends.
    is_over: bool,
}

/// What a service wants to be committed together.
pub struct Batch {
    /// Its number.
    pub commit: u64,
    /// How many crashes of the store the service knew of.
    pub crashes: u64,
    pub texts: Vec<String>,
}

/// What the store tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finished {
    /// The batch with this number is on the disk.
    Committed(u64),
    /// Everything that was handed over and not committed is lost.
    Crashed,
}

/// How often the loop has called the service, over all servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Calls {
    pub serves: u64,
    pub hangups: u64,
    pub closes: u64,
    pub commits: u64,
}

/// The thread of a store, which ends with the test.
pub struct Worker {
    store: Store,
    thread: Option<JoinHandle<()>>,
}

impl Store {
    /// Returns a new store, which toys that are made on this thread from now on use.
    pub fn install() -> Store {
        let store = Store::default();
        CURRENT.set(store.clone());
        store
    }

    /// Returns the store that was installed last on this thread.
    pub fn current() -> Store {
        CURRENT.with_borrow(Clone::clone)
    }

    /// Takes what wakes the loop.
    pub fn attach(&self, wake: Wake) {
        self.desk().wake = Some(wake);
    }

    /// Takes a batch. One from before a crash that the service has not heard of is lost with the others.
    pub fn submit(&self, batch: Batch) {
        let mut desk = self.desk();
        desk.calls.commits += 1;
        if batch.crashes == desk.crashes {
            desk.queue.push_back(batch);
            self.0.news.notify_all();
        }
    }

    /// Returns what was finished first and is not known yet.
    pub fn take_finished(&self) -> Option<Finished> {
        self.desk().finished.pop_front()
    }

    /// How many batches are under way.
    pub fn queued(&self) -> usize {
        self.desk().queue.len()
    }

    /// What is on the disk.
    pub fn texts(&self) -> Vec<String> {
        self.desk().texts.clone()
    }

    /// How often the service was called.
    pub fn calls(&self) -> Calls {
        self.desk().calls
    }

    /// Counts a call.
    pub fn count(&self, count: impl FnOnce(&mut Calls)) {
        count(&mut self.desk().calls);
    }

    /// Commits the oldest batch, and tells whether there was one.
    pub fn commit_one(&self) -> bool {
        let mut desk = self.desk();
        let Some(batch) = desk.queue.pop_front() else { return false };
        desk.texts.extend(batch.texts);
        desk.finished.push_back(Finished::Committed(batch.commit));
        Self::wake(desk);
        true
    }

    /// Commits everything.
    pub fn commit_all(&self) {
        while self.commit_one() {}
    }

    /// Loses everything that is not committed.
    pub fn crash(&self) {
        let mut desk = self.desk();
        desk.queue.clear();
        desk.crashes += 1;
        desk.finished.push_back(Finished::Crashed);
        Self::wake(desk);
    }

    /// Has the thread let batches lie, or go on.
    pub fn stick(&self, is_stuck: bool) {
        self.desk().is_stuck = is_stuck;
        self.0.news.notify_all();
    }

    /// Starts the thread that commits.
    pub fn work(&self) -> Worker {
        let store = self.clone();
        Worker { store: self.clone(), thread: Some(std::thread::spawn(move || while store.work_once() {})) }
    }

    /// Waits for a batch and commits it; returns false at the end.
    fn work_once(&self) -> bool {
        let is_idle = |desk: &mut Desk| !desk.is_over && (desk.is_stuck || desk.queue.is_empty());
        let desk = self.0.news.wait_while(self.desk(), is_idle).expect("no holder of the lock panics");
        let is_over = desk.is_over;
        drop(desk);
        self.commit_one();
        !is_over
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.0.desk.lock().expect("no holder of the lock panics")
    }

    /// Wakes the loop, with the lock given back: a wake may do anything.
    fn wake(desk: MutexGuard<'_, Desk>) {
        let wake = desk.wake.clone();
        drop(desk);
        if let Some(wake) = wake {
            wake.wake();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.store.desk().is_over = true;
        self.store.0.news.notify_all();
        let result = self.thread.take().expect("it runs until here").join();
        // A second panic would hide the first.
        if !std::thread::panicking() {
            result.expect("it does not panic");
        }
    }
}
