//! Place where rows are kept over a restart, and its stand-in in memory.

mod sqlite;

use poolcounter_service::contract::Wake;
use std::collections::VecDeque;
use std::path::Path;

/// Key and value.
pub type Row = (Vec<u8>, Vec<u8>);

/// New value of a row; None deletes it.
pub struct Change {
    /// Key.
    pub key: Vec<u8>,
    /// Value.
    pub value: Option<Vec<u8>>,
}

/// News of a ledger.
pub enum Event {
    /// Some of the rows, after the ledger was opened.
    Rows(Vec<Row>),
    /// All rows were told.
    Opened,
    /// The rows cannot be read, with the reason.
    Unreadable(String),
    /// This write and all before it are durable.
    Committed(u64),
    /// Writes fail, with the reason. They are tried again.
    Failing(String),
    /// Writes succeed again.
    Works,
    /// What was written is lost: everything is to be written again.
    Rewrite,
}

/// Rows that outlive the process.
pub trait Ledger: Send {
    /// Sets the handle that is woken for each event.
    fn attach(&mut self, wake: Wake);

    /// Returns the place in words.
    fn place(&self) -> String;

    /// Writes changes, and returns the number of their commit.
    fn write(&mut self, changes: Vec<Change>) -> u64;

    /// Writes these rows in place of all others, and returns the number of the commit.
    fn replace(&mut self, rows: Vec<Row>) -> u64;

    /// Returns the next event.
    fn next_event(&mut self) -> Option<Event>;

    /// Writes what it was given, as far as that is possible, and closes the place.
    fn end(&mut self);
}

/// Opens the ledger in a file of SQLite, once no other process has it.
///
/// # Errors
///
/// One sentence.
pub fn open(path: &Path) -> Result<Box<dyn Ledger>, String> {
    Ok(Box::new(sqlite::Sqlite::open(path.into())?))
}

/// Opens the ledger of another process, which releases it about now. The owner has everything, and hands it over by
/// [`Ledger::replace`].
pub fn take_over(path: &Path) -> Box<dyn Ledger> {
    open(path).unwrap_or_else(|_| memory())
}

/// Returns a ledger whose rows end with the process.
pub fn memory() -> Box<dyn Ledger> {
    Box::new(Memory { commits: 0, events: [Event::Opened].into() })
}

struct Memory {
    commits: u64,
    events: VecDeque<Event>,
}

impl Memory {
    fn commit(&mut self) -> u64 {
        self.commits += 1;
        self.events.push_back(Event::Committed(self.commits));
        self.commits
    }
}

impl Ledger for Memory {
    fn attach(&mut self, _: Wake) {}

    fn place(&self) -> String {
        "memory".into()
    }

    fn write(&mut self, _: Vec<Change>) -> u64 {
        self.commit()
    }

    fn replace(&mut self, _: Vec<Row>) -> u64 {
        self.commit()
    }

    fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn end(&mut self) {}
}
