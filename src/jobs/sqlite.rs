//! The store that keeps jobs in a file of SQLite, as the loop sees it: batches go to a thread, which says when they are
//! committed. Neither side waits for the other.

mod copy;
mod file;
mod load;
mod rewrite;
mod schema;
mod statements;
mod worker;

pub use file::Place;

use super::state::{Commit, Stored};
use super::store::batch::Batch;
use super::store::{Health, Mark, Store, Verdict, Visit};
use crate::service::Wake;
use crate::time::Span;
use file::Lock;
use rusqlite::Connection;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use worker::{Begin, Order, Told, Worker};

/// Keeps jobs in a file of SQLite.
pub struct Sqlite {
    place: Place,
    wake: Option<Wake>,
    epoch: Span,
    opening: u64,
    /// The changes that were added.
    collected: Batch,
    /// How many changes the batch has that is under way.
    under_way: Option<u64>,
    /// The thread opens the file, for a service that has everything.
    is_opening: bool,
    /// Which of the times that all is written anew is under way.
    rewrite: Option<u64>,
    thread: Option<Thread>,
    fault: Option<String>,
    health: Health,
}

/// The thread, and what there is between it and the loop.
struct Thread {
    /// None once it is to end.
    orders: Option<Sender<Order>>,
    told: Receiver<Told>,
    handle: Option<JoinHandle<()>>,
}

/// What is wrong with a store that was not opened.
const NOT_OPEN: &str = "it is not open";

impl Sqlite {
    /// A store that is not open yet.
    pub fn new(place: Place) -> Self {
        Sqlite {
            place,
            wake: None,
            epoch: Span::ZERO,
            opening: 0,
            collected: Batch::default(),
            under_way: None,
            is_opening: false,
            rewrite: None,
            thread: None,
            fault: Some(NOT_OPEN.into()),
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

    fn open(&mut self) -> Result<(Lock, Connection, Mark), String> {
        let lock = self.place.lock()?;
        let (connection, mark) = self.place.open(&lock).map_err(file::Trouble::sentence)?;
        // Opening it was one more.
        self.opening = mark.opening;
        Ok((lock, connection, mark))
    }

    fn order(&mut self, order: Order) {
        let orders = self.thread.as_ref().and_then(|thread| thread.orders.as_ref());
        if orders.is_none_or(|orders| orders.send(order).is_err()) {
            self.fault.get_or_insert_with(|| NOT_OPEN.into());
        }
    }

    /// Takes in what the thread tells, as far as the service must know of it.
    fn take(&mut self, told: Told) -> Option<Verdict> {
        match told {
            Told::Committed { commit, took, file_bytes } => {
                self.fault = None;
                self.health.last_batch = self.under_way.take().unwrap_or(0);
                self.health.commits.record(took);
                self.health.file_bytes = file_bytes;
                return Some(Verdict::Committed(commit));
            }
            Told::Checkpointed { took, file_bytes } => {
                self.health.checkpoints.record(took);
                self.health.file_bytes = file_bytes;
            }
            Told::Works { opening, file_bytes } => {
                (self.fault, self.rewrite, self.is_opening) = (None, None, false);
                (self.opening, self.health.file_bytes) = (opening, file_bytes);
            }
            Told::Fails(sentence) => {
                if self.fault.as_ref() != Some(&sentence) {
                    log::error!("the jobs cannot be kept in {}: {sentence}", self.place.path.display());
                }
                self.fault = Some(sentence);
            }
            Told::Rewrite(number) => {
                self.rewrite = Some(number);
                self.health.rewrites += 1;
                return Some(Verdict::Rewrite);
            }
            Told::NextSlice(number) => {
                // A slice of an earlier time counts for nothing any more.
                return (self.rewrite == Some(number)).then_some(Verdict::NextSlice).or_else(|| self.verdict());
            }
            Told::Copied(result) => return Some(Verdict::Copied(result)),
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

    fn load(&mut self, epoch: Span, visit: Visit<'_>, progress: &mut dyn FnMut(f64)) -> Result<(), String> {
        self.epoch = epoch;
        let (lock, connection, mark) = self.open()?;
        load::load(&connection, mark, epoch, visit, progress)?;
        self.health.file_bytes = self.place.bytes();
        self.start(Begin::Open(lock, connection, mark))?;
        self.fault = None;
        Ok(())
    }

    fn go_on(&mut self, epoch: Span, mark: Mark) {
        self.epoch = epoch;
        self.is_opening = true;
        self.fault = self.start(Begin::GoOn(mark)).err();
    }

    fn opening(&self) -> u64 {
        self.opening
    }

    fn is_busy(&self) -> bool {
        self.under_way.is_some() || self.is_opening || self.rewrite.is_some()
    }

    fn is_failing(&self) -> bool {
        self.fault.is_some()
    }

    fn add(&mut self, change: Stored<'_>) {
        self.collected.add(change, self.epoch);
    }

    fn commit(&mut self, commit: Commit) {
        let mut batch = std::mem::take(&mut self.collected);
        batch.commit = commit;
        self.under_way = Some(batch.rows.len() as u64);
        self.order(Order::Commit(batch));
    }

    fn add_slice(&mut self, is_last: bool) {
        let batch = std::mem::take(&mut self.collected);
        let Some(number) = self.rewrite else { return };
        self.order(Order::Slice { number, batch, is_last });
    }

    fn verdict(&mut self) -> Option<Verdict> {
        let told = self.thread.as_ref()?.told.try_recv().ok()?;
        self.take(told)
    }

    fn copy(&mut self, path: &[u8]) -> bool {
        self.order(Order::Copy(OsStr::from_bytes(path).into()));
        true
    }

    fn health(&self) -> Option<Health> {
        Some(Health { fault: self.fault.clone(), ..self.health.clone() })
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
