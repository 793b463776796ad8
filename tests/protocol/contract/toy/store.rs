//! Fake store: batches are committed when the test says so, or by a real thread. It owns no part of the service, and
//! outlives the servers of an upgrade as a disk would.

use poolcounter_service::contract::Wake;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

thread_local! {
    /// Store of the toys that are made on this thread: an entry of the registry has no room for one.
    static CURRENT: RefCell<Store> = RefCell::default();
}

/// Handle of the store.
#[derive(Clone, Default)]
pub struct Store(Arc<Shared>);

#[derive(Default)]
struct Shared {
    desk: Mutex<Desk>,
    news: Condvar,
}

#[derive(Default)]
struct Desk {
    /// Number of crashes of the store.
    crashes: u64,
    queue: VecDeque<Batch>,
    finished: VecDeque<Finished>,
    /// Texts on the disk.
    texts: Vec<String>,
    wake: Option<Wake>,
    calls: Calls,
    /// True if the thread does not commit.
    is_stuck: bool,
    /// True if the thread is to end.
    is_over: bool,
}

/// Changes that a service commits together.
pub struct Batch {
    /// Number of the batch.
    pub commit: u64,
    /// Number of crashes of the store that the service knew of.
    pub crashes: u64,
    pub texts: Vec<String>,
}

/// Result of the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finished {
    /// The batch with this number is on the disk.
    Committed(u64),
    /// Everything that was handed over and not committed is lost.
    Crashed,
}

/// Number of calls of the service by the loop, over all servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Calls {
    pub serves: u64,
    pub hangups: u64,
    pub closes: u64,
    pub commits: u64,
}

/// Thread of a store, which ends with the test.
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

    /// Sets the handle that wakes the loop.
    pub fn attach(&self, wake: Wake) {
        self.desk().wake = Some(wake);
    }

    /// Takes a batch. A batch from before a crash that the service does not know of is lost, too.
    pub fn submit(&self, batch: Batch) {
        let mut desk = self.desk();
        desk.calls.commits += 1;
        if batch.crashes == desk.crashes {
            desk.queue.push_back(batch);
            self.0.news.notify_all();
        }
    }

    /// Returns the oldest result that the service does not know yet.
    pub fn take_finished(&self) -> Option<Finished> {
        self.desk().finished.pop_front()
    }

    /// Returns the number of batches that are under way.
    pub fn queued(&self) -> usize {
        self.desk().queue.len()
    }

    /// Returns the texts on the disk.
    pub fn texts(&self) -> Vec<String> {
        self.desk().texts.clone()
    }

    /// Returns the number of calls of the service.
    pub fn calls(&self) -> Calls {
        self.desk().calls
    }

    /// Counts a call.
    pub fn count(&self, count: impl FnOnce(&mut Calls)) {
        count(&mut self.desk().calls);
    }

    /// Commits the oldest batch, and returns whether there was one.
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

    /// Stops the commits of the thread, or resumes them.
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

    /// Wakes the loop after releasing the lock, because a wake may do anything.
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
