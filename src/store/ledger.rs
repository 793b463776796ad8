//! A ledger: a table of keys and values in a file of SQLite. Writes share commits, as each takes a sync of the disk.

use crate::contract::{Commit, Contents, Mark, Ownership, PageOrder, Store, Verdict, VisitOf};
use crate::sqlite::{DatabaseFile, Pages, Schema, SqliteStore, Tables, Trouble, Writer};
use poolcounter_core::Span;
use poolcounter_service::contract::Wake;
use rusqlite::{Connection, Statement};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::mem::take;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Number of rows that end a page.
const PAGE_ROWS: usize = 512;
/// Bytes of rows that end a page.
const PAGE_BYTES: usize = 256 * 1024;

/// Key and value.
pub type Row = (Vec<u8>, Vec<u8>);

/// New value of a key; None deletes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Key.
    pub key: Vec<u8>,
    /// Value.
    pub value: Option<Vec<u8>>,
}

/// Event of a ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Some of the rows, after the ledger was opened.
    Rows(Vec<Row>),
    /// All rows were read. Writes that were handed over before are committed from now on.
    Opened,
    /// The rows cannot be read, for this reason. Nothing is written.
    Unreadable(String),
    /// The commit of this number and all before it are durable.
    Committed(u64),
    /// Commits fail, for this reason, and are tried again.
    Failing(String),
    /// Commits succeed again.
    Works,
    /// The file was lost or damaged. The owner must hand over everything by [`Ledger::replace`].
    Rewrite,
}

/// Rows that outlive the process.
pub trait Ledger: Send {
    /// Sets the handle that is woken for each event.
    fn attach(&mut self, wake: Wake);

    /// Returns the name of the place for people, such as the path of a file.
    fn place(&self) -> String;

    /// Writes changes, and returns the number of the commit that they are part of.
    fn write(&mut self, changes: Vec<Change>) -> u64;

    /// Writes these rows in place of all others, in one commit, and returns its number. Changes that were handed over
    /// before and are not in a commit yet are dropped.
    fn replace(&mut self, rows: Vec<Row>) -> u64;

    /// Returns the next event.
    fn next_event(&mut self) -> Option<Event>;

    /// Commits what was handed over, and releases the file. While commits fail, it tries once more. If the file was lost,
    /// it returns early: [`Event::Rewrite`] is next, and it is called again after [`Ledger::replace`].
    fn end(&mut self);
}

/// Opens a ledger in a file, and begins to read it.
///
/// # Errors
///
/// One sentence: another daemon has the file, or it cannot be opened. Rows that cannot be read are no error, but
/// [`Event::Unreadable`].
pub fn open(path: &Path) -> Result<Box<dyn Ledger>, String> {
    Ok(Box::new(FileLedger::open(DatabaseFile { path: path.into(), vfs: None })?))
}

/// Opens the ledger of the previous process, which releases it about now, without reading it: the owner has everything,
/// and hands it over by [`Ledger::replace`].
pub fn take_over(path: &Path) -> Box<dyn Ledger> {
    Box::new(FileLedger::take_over(DatabaseFile { path: path.into(), vfs: None }))
}

/// Returns a ledger that commits at once, and keeps nothing.
pub fn memory() -> Box<dyn Ledger> {
    Box::new(MemoryLedger { commits: 0, events: [Event::Opened].into() })
}

/// Ledger in a file.
pub struct FileLedger {
    store: SqliteStore<Entries>,
    wake: Arc<OnceLock<Wake>>,
    events: VecDeque<Event>,
    /// Number of the last commit that the thread has.
    last: u64,
    /// True if changes wait for the next commit.
    has_changes: bool,
    is_open: bool,
    is_failing: bool,
}

impl FileLedger {
    /// Opens the ledger, as [`open`] does.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn open(place: DatabaseFile) -> Result<FileLedger, String> {
        let mut ledger = FileLedger::new(place);
        ledger.store.load(Span::ZERO)?;
        if ledger.store.ownership() == Ownership::Damaged {
            ledger.is_failing = true;
            ledger.events.extend(ledger.store.reason().map(|why| Event::Unreadable(why.into())));
        }
        Ok(ledger)
    }

    /// Opens the ledger of the previous process, as [`take_over`] does.
    pub fn take_over(place: DatabaseFile) -> FileLedger {
        let mut ledger = FileLedger::new(place);
        ledger.store.take_over(Span::ZERO, None, false);
        ledger
    }

    fn new(place: DatabaseFile) -> FileLedger {
        let (mut store, wake) = (SqliteStore::new(place), Arc::<OnceLock<Wake>>::default());
        let waker = wake.clone();
        store.attach(Wake::new(move || waker.get().into_iter().for_each(Wake::wake)));
        let events = VecDeque::new();
        FileLedger { store, wake, events, last: 0, has_changes: false, is_open: false, is_failing: false }
    }

    /// Hands the changes to the thread if it has none, and returns the number of their commit.
    fn flush(&mut self) -> u64 {
        let number = self.last + 1;
        if self.is_open && !self.store.is_under_way() {
            self.commit();
        }
        number
    }

    fn commit(&mut self) {
        if take(&mut self.has_changes) {
            self.last += 1;
            self.store.commit(Commit(self.last));
        }
    }

    /// Adds the events that follow from a verdict, after what the store has found out until then.
    fn take(&mut self, verdict: Option<Verdict>) {
        let fault = self.store.reason().map(String::from);
        let is_news = self.is_failing != fault.is_some();
        self.is_failing = fault.is_some();
        if is_news && !matches!(verdict, Some(Verdict::Damaged(_))) {
            self.events.push_back(fault.map_or(Event::Works, Event::Failing));
        }
        let mut rows = Vec::new();
        if let Some(Verdict::Page(_)) = verdict {
            let mut add = |row| {
                rows.push(row);
                Ok(())
            };
            while self.store.visit_page(&mut add) == Ok(false) {}
        }
        self.events.extend((!rows.is_empty()).then_some(Event::Rows(rows)));
        // Everything was read before the file can be lost.
        if !std::mem::replace(&mut self.is_open, self.store.has_read()) && self.is_open {
            self.events.push_back(Event::Opened);
        }
        self.events.extend(match verdict {
            Some(Verdict::Committed(commit)) => Some(Event::Committed(commit.0)),
            Some(Verdict::Damaged(why)) => Some(Event::Unreadable(why)),
            Some(Verdict::Rewrite) => Some(Event::Rewrite),
            _ => None,
        });
        self.flush();
    }
}

impl Ledger for FileLedger {
    fn attach(&mut self, wake: Wake) {
        // The events so far are processed in the first tick.
        self.wake.get_or_init(|| wake).wake();
    }

    fn place(&self) -> String {
        self.store.place()
    }

    fn write(&mut self, changes: Vec<Change>) -> u64 {
        changes.into_iter().for_each(|change| self.store.add(Some(change)));
        self.has_changes = true;
        self.flush()
    }

    fn replace(&mut self, rows: Vec<Row>) -> u64 {
        self.store.add(None);
        rows.into_iter().for_each(|(key, value)| self.store.add(Some(Change { key, value: Some(value) })));
        self.has_changes = true;
        if !self.store.is_rewriting() {
            return self.flush();
        }
        // The rows are the first batch of the new file, and no slices follow.
        self.commit();
        self.store.add_slice(true);
        self.last
    }

    fn next_event(&mut self) -> Option<Event> {
        while self.events.is_empty() {
            let verdict = self.store.verdict();
            let is_last = verdict.is_none();
            self.take(verdict);
            if is_last {
                break;
            }
        }
        self.events.pop_front()
    }

    fn end(&mut self) {
        self.commit();
        while let Some(verdict) = self.store.end() {
            let is_lost = verdict == Verdict::Rewrite;
            self.take(Some(verdict));
            if is_lost {
                break;
            }
        }
    }
}

/// Rows in the table `entry`.
struct Entries;

/// Changes that are committed together.
#[derive(Default)]
struct Batch {
    commit: Commit,
    /// True if no other rows are kept.
    is_whole: bool,
    changes: Vec<Change>,
}

/// Some of the rows.
#[derive(Default)]
struct Page {
    rows: Vec<Row>,
    is_last: bool,
}

impl Contents for Entries {
    const NAME: &'static str = "members";

    /// None drops all rows, and all changes before.
    type Change<'a> = Option<Change>;
    type Batch = Batch;
    type Page = Page;
    type Record<'a> = Row;
    type Request = Infallible;

    fn add(batch: &mut Batch, change: Option<Change>, _: Span) {
        match change {
            Some(change) => batch.changes.push(change),
            None => (batch.is_whole, batch.changes) = (true, Vec::new()),
        }
    }

    fn number(batch: &mut Batch) -> &mut Commit {
        &mut batch.commit
    }

    fn drop_puts(_: &mut Batch) {}

    fn order(page: &Page) -> PageOrder {
        PageOrder { is_last: page.is_last, ..PageOrder::default() }
    }

    fn visit(page: &mut Page, _: Span, visit: VisitOf<'_, Entries>) -> Result<bool, String> {
        take(&mut page.rows).into_iter().try_for_each(visit).map_err(String::from)?;
        Ok(true)
    }
}

impl Tables for Entries {
    /// The mark is `pmem`.
    const SCHEMA: Schema = Schema {
        application: 0x706d_656d,
        format: 1,
        tables: || "CREATE TABLE entry (key BLOB PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;".into(),
        last: None,
        fault: |_| Ok(None),
    };

    type Writer<'c> = EntryWriter<'c>;

    fn read(pages: &mut Pages<'_, Entries>, connection: &Connection, _: Mark) -> Result<(), Trouble> {
        let mut statement = connection.prepare("SELECT key, value FROM entry")?;
        let mut rows = statement.query([])?;
        let (mut page, mut bytes) = (Page::default(), 0);
        while let Some(row) = rows.next()? {
            let (key, value): Row = (row.get(0)?, row.get(1)?);
            bytes += key.len() + value.len();
            page.rows.push((key, value));
            if page.rows.len() >= PAGE_ROWS || bytes >= PAGE_BYTES {
                bytes = 0;
                pages.send(take(&mut page))?;
            }
        }
        page.is_last = true;
        pages.send(page)
    }
}

/// Statements that write rows.
struct EntryWriter<'c> {
    clear: Statement<'c>,
    put: Statement<'c>,
    delete: Statement<'c>,
}

impl<'c> Writer<'c, Entries> for EntryWriter<'c> {
    fn prepare(connection: &'c Connection) -> rusqlite::Result<Self> {
        Ok(EntryWriter {
            clear: connection.prepare("DELETE FROM entry")?,
            put: connection.prepare("INSERT OR REPLACE INTO entry VALUES (?1, ?2)")?,
            delete: connection.prepare("DELETE FROM entry WHERE key = ?1")?,
        })
    }

    fn write(&mut self, batch: &Batch) -> rusqlite::Result<()> {
        if batch.is_whole {
            self.clear.execute([])?;
        }
        for Change { key, value } in &batch.changes {
            match value {
                Some(value) => self.put.execute((key, value))?,
                None => self.delete.execute([key])?,
            };
        }
        Ok(())
    }
}

/// Ledger that keeps nothing.
struct MemoryLedger {
    commits: u64,
    events: VecDeque<Event>,
}

impl Ledger for MemoryLedger {
    fn attach(&mut self, wake: Wake) {
        wake.wake();
    }

    fn place(&self) -> String {
        "memory".into()
    }

    fn write(&mut self, _: Vec<Change>) -> u64 {
        self.commits += 1;
        self.events.push_back(Event::Committed(self.commits));
        self.commits
    }

    fn replace(&mut self, _: Vec<Row>) -> u64 {
        self.write(Vec::new())
    }

    fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn end(&mut self) {}
}
