//! The file of a store: who may open it, how it is opened, and how another takes its place.
//!
//! | beside `jobs.db` | what it is |
//! |---|---|
//! | `jobs.db-wal` | SQLite's log: what is committed and not in the file yet |
//! | `jobs.db-lock` | is locked by the daemon that has the file |
//! | `jobs.db-new` | is being written, and counts for nothing |
//! | `jobs.db-whole` | is whole, and is to take the place of `jobs.db` and its log |

use super::schema;
use crate::jobs::store::Mark;
use nix::fcntl::{Flock, FlockArg};
use rusqlite::config::DbConfig;
use rusqlite::ffi::ErrorCode;
use rusqlite::{Connection, Error, OpenFlags};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Pages that SQLite keeps in memory: 16 MiB, so that jobs can be deleted in any order without much reading.
const CACHE_KIB: i64 = 16 * 1024;
/// How large the log stays once it was larger.
const LOG_BYTES: i64 = 64 * 1024 * 1024;
/// Bodies are nobody else's.
const MODE: u32 = 0o600;

/// Where a store is, and how it is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// The name of the SQLite VFS through which it is read and written; the system's own if there is none.
    pub vfs: Option<String>,
}

/// The right to open the file. Others are refused as long as it is there.
pub struct Lock(#[allow(dead_code, reason = "it is kept for what its end does")] Flock<File>);

/// What is wrong with the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// There is no room for now, or something of that kind: nothing is lost, and the same may work later.
    Passing(String),
    /// What was written may be lost: the file must not be used any more.
    Lost(String),
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
            | ErrorCode::OperationInterrupted
            | ErrorCode::TooBig => true,
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
        Trouble::Passing(error.to_string())
    }
}

impl Trouble {
    /// Returns the sentence.
    pub fn sentence(self) -> String {
        match self {
            Trouble::Passing(sentence) | Trouble::Lost(sentence) => sentence,
        }
    }
}

impl Place {
    /// Returns the path of what stands beside the file.
    pub fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = OsString::from(&self.path);
        name.push(suffix);
        name.into()
    }

    /// Takes the right to open the file.
    ///
    /// # Errors
    ///
    /// One sentence: another daemon has it, or the place is not to be written to.
    pub fn lock(&self) -> Result<Lock, String> {
        let path = self.beside("-lock");
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(MODE).open(&path);
        let file = opened.map_err(|error| format!("{} cannot be opened: {error}", path.display()))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                // For people only: the lock is what counts.
                let _ = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
                Ok(Lock(lock))
            }
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                Err(match pid.trim() {
                    "" => "another daemon keeps its jobs there".into(),
                    pid => format!("another daemon keeps its jobs there, the process {pid}"),
                })
            }
            Err((_, error)) => Err(format!("{} cannot be locked: {error}", path.display())),
        }
    }

    /// Opens the file, which is made if it is not there, and brings it to the present format. Returns the mark that it had.
    ///
    /// # Errors
    ///
    /// One sentence that says why not.
    pub fn open(&self, _lock: &Lock) -> Result<(Connection, Mark), Trouble> {
        self.finish_replacement()?;
        if !self.path.exists() {
            OpenOptions::new().write(true).create_new(true).mode(MODE).open(&self.path)?;
            self.sync_directory()?;
        }
        let connection = self.connect(&self.path)?;
        let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if mode != "wal" {
            return Err(Trouble::Passing(format!("it cannot have a log: its journal mode is {mode}")));
        }
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
        schema::prepare(&connection)?.map_err(Trouble::Passing)?;
        let mark = read_mark(&connection)?;
        Ok((connection, mark))
    }

    fn connect(&self, path: &Path) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = match &self.vfs {
            Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs.as_str()),
            None => Connection::open_with_flags(path, flags),
        }?;
        connection.busy_timeout(std::time::Duration::ZERO)?;
        // Before anything is read, so that the index of the log is in memory and not in a file for others to share.
        connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
        connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
        connection.pragma_update(None, "temp_store", "MEMORY")?;
        Ok(connection)
    }

    /// Opens an empty file that is to take the place of the present one, with its transaction begun. It has no journal: until it
    /// is whole, it counts for nothing.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn open_new(&self) -> Result<Connection, Trouble> {
        let path = self.beside("-new");
        remove(&path)?;
        OpenOptions::new().write(true).create_new(true).mode(MODE).open(&path)?;
        let connection = self.connect(&path)?;
        connection.query_row("PRAGMA journal_mode = OFF", [], |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute_batch("BEGIN")?;
        schema::create(&connection)?;
        Ok(connection)
    }

    /// Has the file that was written anew, which is committed and closed, take the place of the present one.
    ///
    /// # Errors
    ///
    /// When it is not sure to be there after a crash. It can be tried again.
    pub fn replace(&self) -> Result<(), Trouble> {
        let new = self.beside("-new");
        if new.exists() {
            File::open(&new)?.sync_all()?;
            fs::rename(&new, self.beside("-whole"))?;
            // From here on it is what counts, whatever is left of the other.
            self.sync_directory()?;
        }
        self.finish_replacement()
    }

    /// Brings to an end what a crash may have interrupted. The log goes before the file has its new name, for SQLite would take
    /// it for the log of that.
    fn finish_replacement(&self) -> Result<(), Trouble> {
        let whole = self.beside("-whole");
        if whole.exists() {
            remove(&self.beside("-wal"))?;
            self.sync_directory()?;
            fs::rename(&whole, &self.path)?;
            self.sync_directory()?;
        }
        Ok(())
    }

    /// Moves the file out of the way, and returns where it is now.
    ///
    /// # Errors
    ///
    /// When it cannot be moved.
    pub fn put_aside(&self, connection: Connection, mark: Mark) -> Result<PathBuf, Trouble> {
        // What is in the log comes into the file when it is closed.
        connection.close().map_err(|(_, error)| error)?;
        if self.beside("-wal").exists() {
            return Err(Trouble::Passing("its log is not in it".into()));
        }
        let aside = self.beside(&format!("-{}-{}", mark.opening, mark.batch));
        fs::rename(&self.path, &aside)?;
        self.sync_directory()?;
        Ok(aside)
    }

    fn sync_directory(&self) -> io::Result<()> {
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// Returns the bytes of the file and its log.
    pub fn bytes(&self) -> u64 {
        let len = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
        len(&self.path) + len(&self.beside("-wal"))
    }
}

/// Returns how far the file is.
pub fn read_mark(connection: &Connection) -> rusqlite::Result<Mark> {
    connection.query_row("SELECT epoch, batch, next_id FROM meta", [], |row| {
        let number = |column| Ok::<_, Error>(row.get::<_, i64>(column)?.cast_unsigned());
        Ok(Mark { opening: number(0)?, batch: number(1)?, next_id: number(2)? })
    })
}

/// Closes a file that must not be written any more: SQLite would bring the log into it.
pub fn abandon(connection: Connection) {
    // If this fails, the file has lost what it had in any case, and is replaced whole.
    let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
    drop(connection);
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
