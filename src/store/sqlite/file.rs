//! The file of a store: the lock, the opening, and the replacement by another file.
//!
//! | beside `jobs.db` | meaning |
//! |---|---|
//! | `jobs.db-wal` | SQLite's log: commits that are not in the file yet |
//! | `jobs.db-lock` | is locked by the daemon that uses the file |
//! | `jobs.db-new` | is being written, and is ignored until it is whole |
//! | `jobs.db-whole` | is whole, and will replace `jobs.db` and its log |
//! | `jobs.db-found` | was found in the place of `jobs.db`, and is not the daemon's; with a number if there are more |

use super::look::{FileId, Look};
use super::schema::{self, Schema};
use crate::contract::Mark;
use log::warn;
use nix::fcntl::{Flock, FlockArg};
use poolcounter_core::text::plain;
use rusqlite::config::DbConfig;
use rusqlite::ffi::ErrorCode;
use rusqlite::{Connection, Error, OpenFlags};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Setting with which the close of a file does not bring the log into it.
const NO_CHECKPOINT: DbConfig = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
/// Pages that SQLite keeps in memory: 16 MiB, so that rows can be deleted in any order without much reading.
const CACHE_KIB: i64 = 16 * 1024;
/// Length to which the log is cut after it was longer.
const LOG_BYTES: i64 = 64 * 1024 * 1024;
/// Mode of the files: their contents are private.
const MODE: u32 = 0o600;
/// Location of a store, and the way to open it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatabaseFile {
    /// The file.
    pub path: PathBuf,
    /// Name of the SQLite VFS for reading and writing; None for the system's own.
    pub vfs: Option<String>,
}

/// Exclusive right to open the file. Other daemons are refused while it exists.
pub struct Lock {
    #[allow(dead_code, reason = "it is kept for what its end does")]
    file: Flock<File>,
    id: FileId,
}

/// A store's file that is open.
pub struct Opened {
    /// The file.
    pub connection: Connection,
    /// Mark in the file.
    pub mark: Mark,
    /// Id of its queue.
    pub queue: u128,
    /// The file and its log as they were then.
    pub look: Look,
}

/// Reason for which something is not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// Temporary fault, such as a full disk: nothing is lost, and a later attempt may succeed.
    Passing(String),
    /// Written data may be lost, or the file is not one of this program: it must not be used any more.
    Lost(String),
    /// The daemon ends.
    Ended,
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        let sentence = error.to_string();
        let Error::SqliteFailure(failure, _) = error else { return Trouble::Lost(sentence) };
        let is_passing = match failure.code {
            ErrorCode::DiskFull
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::OutOfMemory
            | ErrorCode::CannotOpen
            | ErrorCode::OperationInterrupted => true,
            ErrorCode::SystemIoFailure => {
                matches!(failure.extended_code, rusqlite::ffi::SQLITE_IOERR_WRITE | rusqlite::ffi::SQLITE_IOERR_NOMEM)
            }
            _ => false,
        };
        if is_passing { Trouble::Passing(sentence) } else { Trouble::Lost(sentence) }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Passing(plain(&error.to_string()).into_owned())
    }
}

impl Trouble {
    /// Returns the sentence.
    pub fn sentence(self) -> String {
        match self {
            Trouble::Passing(sentence) | Trouble::Lost(sentence) => sentence,
            Trouble::Ended => "the daemon ends".into(),
        }
    }

    /// Returns a fault after which another attempt is made in any case.
    #[must_use]
    pub fn passing(self) -> Trouble {
        if let Trouble::Lost(sentence) = self { Trouble::Passing(sentence) } else { self }
    }
}

impl DatabaseFile {
    /// Returns the path of a file beside the store's file.
    pub fn beside(&self, suffix: &str) -> PathBuf {
        with_suffix(&self.path, suffix)
    }

    /// Locks the place for these contents, so that no other daemon opens the file.
    ///
    /// # Errors
    ///
    /// One sentence: another daemon holds the lock, or the place cannot be written to.
    pub fn lock(&self, contents: &str) -> Result<Lock, String> {
        let path = self.beside("-lock");
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(MODE).open(&path);
        let file = opened.map_err(|error| format!("{} cannot be opened: {error}", path.display()))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                // The process id is for people only: the lock is what counts.
                let _ = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
                let seen = lock.metadata().map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
                Ok(Lock { file: lock, id: FileId::of(&seen) })
            }
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                Err(match pid.trim() {
                    "" => format!("another daemon keeps its {contents} there"),
                    pid => format!("another daemon keeps its {contents} there, the process {pid}"),
                })
            }
            Err((_, error)) => Err(format!("{} cannot be locked: {error}", path.display())),
        }
    }

    /// Returns whether other daemons are still refused: the locked file is the one at the path of the lock.
    pub fn is_kept_by(&self, lock: Option<&Lock>) -> bool {
        lock.is_some_and(|lock| FileId::at(&self.beside("-lock")).is_ok_and(|id| id == Some(lock.id)))
    }

    /// Returns the place itself, if the path leads over links: SQLite keeps its log beside the file. It is the same
    /// before and after the file is made.
    pub fn resolved(self) -> DatabaseFile {
        let in_directory = |name| fs::canonicalize(self.directory()).map(|directory| directory.join(name)).ok();
        let path = fs::canonicalize(&self.path).ok().or_else(|| self.path.file_name().and_then(in_directory));
        DatabaseFile { path: path.unwrap_or(self.path), ..self }
    }

    /// Examines the file and its log.
    ///
    /// # Errors
    ///
    /// One sentence that says what is wrong.
    pub fn look(&self) -> Result<Look, String> {
        Look::at(&self.path, &self.beside("-wal"))
    }

    /// Opens the file of a place that is locked, which is created if it is missing. A file that is there is only read, so
    /// that this waits for no sync. A file that cannot be used stays as it is.
    ///
    /// # Errors
    ///
    /// One sentence with the reason.
    pub fn open_to_read(&self, schema: &Schema) -> Result<Opened, Trouble> {
        self.finish_replacement(schema)?;
        if !self.path.exists() {
            self.create(schema)?;
        }
        let before = FileId::at(&self.path)?;
        let mut connection = self.connect(&self.path)?;
        schema::examine(&connection, schema)?.map_err(Trouble::Lost)?;
        let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if mode != "wal" {
            return Err(Trouble::Passing(format!("it cannot have a log: its journal mode is {mode}")));
        }
        connection.pragma_update(None, "synchronous", "FULL")?;
        super::statements::count_log_pages(&mut connection)?;
        connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
        schema::prepare(&connection, schema)?;
        if let Some(fault) = (schema.fault)(&connection)? {
            return Err(Trouble::Passing(fault.into()));
        }
        let (mark, queue) = (schema.mark(&connection)?, read_queue(&connection)?);
        let look = self.look().map_err(Trouble::Passing)?;
        if before != Some(look.file.id) {
            return Err(Trouble::Passing("the file was replaced while it was opened".into()));
        }
        connection.set_db_config(NO_CHECKPOINT, false)?;
        Ok(Opened { connection, mark, queue, look })
    }

    /// Creates the file of this schema: it has its tables from its first moment on.
    fn create(&self, schema: &Schema) -> Result<(), Trouble> {
        if self.path.is_symlink() {
            return Err(Trouble::Passing("it is a link to a file that is missing".into()));
        }
        let connection = self.open_new(schema, None)?;
        connection.execute_batch("COMMIT")?;
        connection.close().map_err(|(_, error)| error)?;
        self.complete()?;
        self.take_place()
    }

    /// Notes that the new file is whole, and replaces the present one even after a crash.
    fn complete(&self) -> io::Result<()> {
        let new = self.beside("-new");
        File::open(&new)?.sync_all()?;
        fs::rename(&new, self.beside("-whole"))?;
        self.sync_directory()
    }

    fn connect(&self, path: &Path) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = match &self.vfs {
            Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs.as_str()),
            None => Connection::open_with_flags(path, flags),
        }?;
        // The close of a file that turns out to be damaged would write to it.
        connection.set_db_config(NO_CHECKPOINT, true)?;
        connection.busy_timeout(std::time::Duration::ZERO)?;
        // It is set before any read, so that the index of the log is in memory and not in a file for others to share.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        if schema::pragma(&connection, "page_count")? == 0 {
            // An empty file needs no journal: nothing in it can be lost.
            connection.query_row("PRAGMA journal_mode = OFF", [], |_| Ok(()))?;
            // The free pages of the file can be moved to its end then, and cut off.
            connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        }
        Ok(connection)
    }

    /// Creates an empty file that will replace the present one, with its transaction begun. It has no journal, because
    /// the file is ignored until it is whole.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be created.
    pub fn open_new(&self, schema: &Schema, queue: Option<u128>) -> Result<Connection, Trouble> {
        // The directory may have been removed, too.
        fs::create_dir_all(self.directory())?;
        let path = self.beside("-new");
        remove(&path)?;
        OpenOptions::new().write(true).create_new(true).mode(MODE).open(&path)?;
        let connection = self.connect(&path)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute_batch("BEGIN")?;
        schema::create(&connection, schema, queue)?;
        Ok(connection)
    }

    /// Replaces the present file, which is `ours`, with the rewritten one, which is committed and closed. Files in the
    /// place that are not `ours` are put aside; then it returns their new path.
    ///
    /// # Errors
    ///
    /// Fails if the new file may be lost in a crash. It can be tried again once all is written anew again.
    pub fn replace(&self, ours: &mut Look) -> Result<Option<PathBuf>, Trouble> {
        self.complete()?;
        let aside = self.put_strangers_aside(ours)?;
        self.take_place()?;
        ours.file.id = FileId::at(&self.path)?.unwrap_or(ours.file.id);
        Ok(aside)
    }

    /// Finishes a replacement that a crash may have interrupted. A file that is not newer than the present one is not a
    /// rewritten one, and is put aside.
    fn finish_replacement(&self, schema: &Schema) -> Result<(), Trouble> {
        let whole = self.beside("-whole");
        if !whole.exists() {
            return Ok(());
        }
        let log = with_suffix(&whole, "-wal");
        let (has_log, is_newer) = (log.exists(), self.is_newer(&whole, schema));
        // The comparison has made a log.
        (!has_log).then(|| remove(&log)).transpose()?;
        if is_newer {
            return self.take_place();
        }
        let aside = self.free_name()?;
        fs::rename(&whole, &aside)?;
        self.sync_directory()?;
        warn!("{} is not newer than {}, and is in {} now", whole.display(), self.path.display(), aside.display());
        Ok(())
    }

    /// Replaces the file and its log with the whole file. The log is removed before the file gets its new name, because
    /// SQLite would take it for the log of the new file.
    fn take_place(&self) -> Result<(), Trouble> {
        remove(&self.beside("-wal"))?;
        self.sync_directory()?;
        fs::rename(self.beside("-whole"), &self.path)?;
        Ok(self.sync_directory()?)
    }

    /// Returns whether a file has a later mark than the one in its place, or that one cannot be read. A rewritten file
    /// has a later mark.
    fn is_newer(&self, whole: &Path, schema: &Schema) -> bool {
        let mark_of = |path: &Path| {
            let connection = path.exists().then(|| self.connect(path)).transpose().ok()??;
            let mark = schema.mark(&connection);
            abandon(connection);
            mark.ok().map(|mark| (mark.opening, mark.batch))
        };
        let new = mark_of(whole);
        new.is_some() && new > mark_of(&self.path)
    }

    pub(super) fn sync_directory(&self) -> io::Result<()> {
        File::open(self.directory())?.sync_all()
    }

    fn directory(&self) -> &Path {
        self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Returns the id of the file's queue.
pub(super) fn read_queue(connection: &Connection) -> Result<u128, Trouble> {
    let text: String = connection.query_row("SELECT queue FROM meta", [], |row| row.get(0))?;
    let unreadable = || Trouble::Lost(format!("the id of its queue makes no sense: {}", text.escape_debug()));
    u128::from_str_radix(&text, 16).map_err(|_| unreadable())
}

/// Closes a file that must not be written any more: SQLite would bring the log into it.
pub fn abandon(connection: Connection) {
    // If this fails, the file's data are lost in any case, and it is replaced whole.
    let _ = connection.set_db_config(NO_CHECKPOINT, true);
    drop(connection);
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
