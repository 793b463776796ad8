//! Ledger in a file of SQLite. A thread of its own waits for the disk, and writes what has come meanwhile in one commit.

use super::{Change, Event, Ledger, Row};
use poolcounter_service::contract::Wake;
use rusqlite::{Connection, params};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Pause after a write that failed, or while another process has the file.
const RETRY: Duration = Duration::from_secs(1);
/// Time for which another process may have the file at a start, as the one before at an upgrade.
const HANDOVER: Duration = Duration::from_secs(10);
/// Rows told at once.
const PAGE: usize = 4096;

const SCHEMA: &str = "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
                      CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID; \
                      BEGIN IMMEDIATE; COMMIT;";

/// Changes to be written, behind a deletion of all rows if they replace them.
struct Order {
    number: u64,
    replaces: bool,
    changes: Vec<Change>,
}

type SharedWake = Arc<Mutex<Option<Wake>>>;

/// The loop's side of the ledger.
pub struct Sqlite {
    path: PathBuf,
    commits: u64,
    orders: Option<Sender<Order>>,
    events: Receiver<Event>,
    wake: SharedWake,
    thread: Option<JoinHandle<()>>,
    is_ending: Arc<AtomicBool>,
}

/// The thread's side.
struct Worker {
    events: Sender<Event>,
    wake: SharedWake,
    is_failing: bool,
    /// True once the service ends: nothing that fails is tried again.
    is_ending: Arc<AtomicBool>,
}

impl Sqlite {
    /// Starts the thread, which opens the file, or makes it.
    ///
    /// # Errors
    ///
    /// Fails if there can be no more threads.
    pub fn open(path: PathBuf) -> Result<Self, String> {
        let (orders, to_do) = channel();
        let (told, events) = channel();
        let wake = SharedWake::default();
        let is_ending = Arc::new(AtomicBool::new(false));
        let worker = Worker { events: told, wake: wake.clone(), is_failing: false, is_ending: is_ending.clone() };
        let file = path.clone();
        let thread = thread::Builder::new().name("members".into()).spawn(move || worker.run(&file, &to_do));
        let thread = Some(thread.map_err(|error| error.to_string())?);
        Ok(Sqlite { path, commits: 0, orders: Some(orders), events, wake, thread, is_ending })
    }

    fn order(&mut self, replaces: bool, changes: Vec<Change>) -> u64 {
        self.commits += 1;
        let order = Order { number: self.commits, replaces, changes };
        // The thread ends only if it cannot read the file, and then nothing is written.
        if let Some(orders) = &self.orders {
            let _ = orders.send(order);
        }
        self.commits
    }
}

impl Ledger for Sqlite {
    fn attach(&mut self, wake: Wake) {
        *self.wake.lock().unwrap_or_else(PoisonError::into_inner) = Some(wake.clone());
        // The thread may have told something already.
        wake.wake();
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn write(&mut self, changes: Vec<Change>) -> u64 {
        self.order(false, changes)
    }

    fn replace(&mut self, rows: Vec<Row>) -> u64 {
        self.order(true, rows.into_iter().map(|(key, value)| Change { key, value: Some(value) }).collect())
    }

    fn next_event(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    fn end(&mut self) {
        self.orders = None;
        self.is_ending.store(true, Ordering::Relaxed);
        // A thread that has panicked has said so.
        self.thread.take().into_iter().for_each(|thread| _ = thread.join());
    }
}

impl Worker {
    fn tell(&self, event: Event) {
        // The service may have ended.
        let _ = self.events.send(event);
        self.wake.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Wake::wake);
    }

    fn run(mut self, path: &Path, orders: &Receiver<Order>) {
        let mut connection = match self.read(path) {
            Ok(connection) => connection,
            Err(error) => return self.tell(Event::Unreadable(error.to_string())),
        };
        self.tell(Event::Opened);
        while let Ok(first) = orders.recv() {
            let batch: Vec<Order> = [first].into_iter().chain(orders.try_iter()).collect();
            while let Err(error) = write(&mut connection, &batch) {
                self.is_failing = true;
                self.tell(Event::Failing(error.to_string()));
                if self.is_ending.load(Ordering::Relaxed) {
                    return;
                }
                thread::sleep(RETRY);
            }
            if std::mem::take(&mut self.is_failing) {
                self.tell(Event::Works);
            }
            batch.last().into_iter().for_each(|last| self.tell(Event::Committed(last.number)));
        }
    }

    /// Opens the file once no other process has it, and tells its rows.
    fn read(&self, path: &Path) -> rusqlite::Result<Connection> {
        let begun = Instant::now();
        loop {
            match self.try_to_read(path) {
                Err(error) if is_locked(&error) && begun.elapsed() < HANDOVER => thread::sleep(RETRY / 20),
                result => return result,
            }
        }
    }

    fn try_to_read(&self, path: &Path) -> rusqlite::Result<Connection> {
        let connection = Connection::open(path)?;
        connection.execute_batch(SCHEMA)?;
        {
            let mut statement = connection.prepare("SELECT key, value FROM kept")?;
            let mut rows = statement.query([])?;
            let mut page = Vec::new();
            while let Some(row) = rows.next()? {
                page.push((row.get(0)?, row.get(1)?));
                if page.len() == PAGE {
                    self.tell(Event::Rows(std::mem::take(&mut page)));
                }
            }
            self.tell(Event::Rows(page));
        }
        Ok(connection)
    }
}

fn is_locked(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked))
}

fn write(connection: &mut Connection, batch: &[Order]) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    {
        let mut put = transaction.prepare("INSERT OR REPLACE INTO kept VALUES (?1, ?2)")?;
        let mut delete = transaction.prepare("DELETE FROM kept WHERE key = ?1")?;
        for Order { replaces, changes, .. } in batch {
            if *replaces {
                transaction.execute("DELETE FROM kept", [])?;
            }
            for Change { key, value } in changes {
                match value {
                    Some(value) => put.execute(params![key, value])?,
                    None => delete.execute(params![key])?,
                };
            }
        }
    }
    transaction.commit()
}
