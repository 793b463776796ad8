//! The file of a store: who may open it, how it is opened, and how another takes its place.
//!
//! | beside `jobs.db` | what it is |
//! |---|---|
//! | `jobs.db-wal` | SQLite's log: what is committed and not in the file yet |
//! | `jobs.db-lock` | is locked by the daemon that has the file |
//! | `jobs.db-new` | is being written, and counts for nothing |
//! | `jobs.db-whole` | is whole, and is to take the place of `jobs.db` and its log |
//! | `jobs.db-found` | stood in the place of `jobs.db`, and is not the daemon's; with a number if there are more |

use super::look::{FileId, Look};
use super::schema::{self, QueueId};
use crate::store::Mark;
use log::warn;
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
/// How many files of one name are kept aside. Whoever lets so many come together has other troubles.
const MOST_ASIDE: u32 = 1000;

/// Where a store is, and how it is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatabaseFile {
    /// The file.
    pub path: PathBuf,
    /// The name of the SQLite VFS through which it is read and written; the system's own if there is none.
    pub vfs: Option<String>,
}

/// The right to open the file. Others are refused as long as it is there.
pub struct Lock {
    #[allow(dead_code, reason = "it is kept for what its end does")]
    file: Flock<File>,
    id: FileId,
}

/// A place that is open.
pub struct Opened {
    /// The file.
    pub connection: Connection,
    /// The mark that it has.
    pub mark: Mark,
    /// The id of its queue.
    pub queue: u128,
    /// The file and its log as they were then.
    pub look: Look,
}

/// What is wrong with the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileTrouble {
    /// There is no room for now, or something of that kind: nothing is lost, and the same may work later.
    Passing(String),
    /// What was written may be lost: the file must not be used any more.
    Lost(String),
}

impl From<Error> for FileTrouble {
    fn from(error: Error) -> FileTrouble {
        let sentence = error.to_string();
        let Error::SqliteFailure(failure, _) = error else { return FileTrouble::Lost(sentence) };
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
        if is_passing { FileTrouble::Passing(sentence) } else { FileTrouble::Lost(sentence) }
    }
}

/// Returns whether the fault is in the row that was to be written: others can be written, and this one never.
pub fn is_of_row(error: &Error) -> bool {
    let codes = [ErrorCode::TooBig, ErrorCode::ConstraintViolation, ErrorCode::TypeMismatch];
    error.sqlite_error_code().is_some_and(|code| codes.contains(&code))
}

impl From<io::Error> for FileTrouble {
    fn from(error: io::Error) -> FileTrouble {
        FileTrouble::Passing(error.to_string())
    }
}

impl FileTrouble {
    /// Returns the sentence.
    pub fn sentence(self) -> String {
        match self {
            FileTrouble::Passing(sentence) | FileTrouble::Lost(sentence) => sentence,
        }
    }
}

impl DatabaseFile {
    /// Returns the path of what stands beside the file.
    pub fn beside(&self, suffix: &str) -> PathBuf {
        with_suffix(&self.path, suffix)
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
                let seen = lock.metadata().map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
                Ok(Lock { file: lock, id: FileId::of(&seen) })
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

    /// Returns whether another daemon that asks for the place is still refused: the file that is locked stands where it looks.
    pub fn is_kept_by(&self, lock: &Lock) -> bool {
        FileId::at(&self.beside("-lock")).is_ok_and(|id| id == Some(lock.id))
    }

    /// Returns the place itself, if the path is that of a link: SQLite has its log beside the file.
    pub fn resolved(self) -> DatabaseFile {
        DatabaseFile { path: fs::canonicalize(&self.path).unwrap_or(self.path), ..self }
    }

    /// Looks at the file and its log.
    ///
    /// # Errors
    ///
    /// One sentence that says what is wrong.
    pub fn look(&self) -> Result<Look, String> {
        Look::at(&self.path, &self.beside("-wal"))
    }

    /// Opens the file as the one that the daemon has written, and counts that.
    ///
    /// # Errors
    ///
    /// One sentence that says why not.
    pub fn open(&self, lock: &Lock) -> Result<Opened, FileTrouble> {
        let opened = self.open_to_read(lock)?;
        self.note_opening(&opened.connection, QueueId::Kept).map(|(mark, queue, look)| Opened {
            mark,
            queue,
            look,
            ..opened
        })
    }

    /// Counts an opening, and returns the mark of the file after that, the id of its queue and its look.
    ///
    /// # Errors
    ///
    /// One sentence that says why not.
    pub fn note_opening(&self, connection: &Connection, queue: QueueId) -> Result<(Mark, u128, Look), FileTrouble> {
        schema::note_opening(connection, queue)?;
        let look = self.look().map_err(FileTrouble::Passing)?;
        Ok((schema::read_mark(connection)?, read_queue(connection)?, look))
    }

    /// Opens the file, which is made if it is not there, and brings it to the present format. One that has that is only read, so that
    /// this waits for no sync.
    ///
    /// # Errors
    ///
    /// One sentence that says why not.
    pub fn open_to_read(&self, _lock: &Lock) -> Result<Opened, FileTrouble> {
        self.finish_replacement()?;
        if !self.path.exists() {
            OpenOptions::new().write(true).create_new(true).mode(MODE).open(&self.path)?;
            self.sync_directory()?;
        }
        let before = FileId::at(&self.path)?;
        let connection = self.connect(&self.path)?;
        let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if mode != "wal" {
            return Err(FileTrouble::Passing(format!("it cannot have a log: its journal mode is {mode}")));
        }
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
        schema::prepare(&connection)?.map_err(FileTrouble::Passing)?;
        let (mark, queue) = (schema::read_mark(&connection)?, read_queue(&connection)?);
        let look = self.look().map_err(FileTrouble::Passing)?;
        if before != Some(look.file.id) {
            return Err(FileTrouble::Passing("the file was replaced while it was opened".into()));
        }
        Ok(Opened { connection, mark, queue, look })
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
    pub fn open_new(&self, queue: Option<u128>) -> Result<Connection, FileTrouble> {
        // Somebody may have removed that, too.
        fs::create_dir_all(self.directory())?;
        let path = self.beside("-new");
        remove(&path)?;
        OpenOptions::new().write(true).create_new(true).mode(MODE).open(&path)?;
        let connection = self.connect(&path)?;
        connection.query_row("PRAGMA journal_mode = OFF", [], |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute_batch("BEGIN")?;
        schema::create(&connection, queue)?;
        Ok(connection)
    }

    /// Has the file that was written anew, which is committed and closed, take the place of the present one, which is `ours`. What
    /// stands there and is not that is put aside; then it returns where that is.
    ///
    /// # Errors
    ///
    /// When it is not sure to be there after a crash. It can be tried again once all is written anew again.
    pub fn replace(&self, ours: &mut Look) -> Result<Option<PathBuf>, FileTrouble> {
        let new = self.beside("-new");
        File::open(&new)?.sync_all()?;
        fs::rename(&new, self.beside("-whole"))?;
        // From here on it is what counts, whatever is left of the other.
        self.sync_directory()?;
        let aside = self.put_strangers_aside(ours)?;
        self.take_place()?;
        ours.file.id = FileId::at(&self.path)?.unwrap_or(ours.file.id);
        Ok(aside)
    }

    /// Moves out of the way what stands at the paths of the file and its log and is neither.
    fn put_strangers_aside(&self, ours: &Look) -> Result<Option<PathBuf>, FileTrouble> {
        let log = self.beside("-wal");
        let is_strange = |path: &Path, id| FileId::at(path).map(|found| found.is_some_and(|found| found != id));
        let (file_is, log_is) = (is_strange(&self.path, ours.file.id)?, is_strange(&log, ours.log.id)?);
        if !file_is && !log_is {
            return Ok(None);
        }
        let aside = self.free_name("-found")?;
        if file_is {
            fs::rename(&self.path, &aside)?;
        }
        if log_is {
            // So that it is the log of the one beside it.
            fs::rename(&log, with_suffix(&aside, "-wal"))?;
        }
        self.sync_directory()?;
        Ok(Some(aside))
    }

    /// Returns a path beside the file at which nothing stands, nor the log of anything.
    fn free_name(&self, suffix: &str) -> Result<PathBuf, FileTrouble> {
        let names = (1..=MOST_ASIDE).map(|number| match number {
            1 => self.beside(suffix),
            _ => self.beside(&format!("{suffix}-{number}")),
        });
        let is_free =
            |path: &PathBuf| [path, &with_suffix(path, "-wal")].iter().all(|path| path.symlink_metadata().is_err());
        let free = names.into_iter().find(is_free);
        free.ok_or_else(|| FileTrouble::Passing(format!("there are {MOST_ASIDE} files {suffix} beside it")))
    }

    /// Brings to an end what a crash may have interrupted. A file that is not newer than the one whose place it would take is none
    /// that was written anew, and is put aside.
    fn finish_replacement(&self) -> Result<(), FileTrouble> {
        let whole = self.beside("-whole");
        if !whole.exists() {
            return Ok(());
        }
        if self.is_newer(&whole) {
            return self.take_place();
        }
        let aside = self.free_name("-found")?;
        fs::rename(&whole, &aside)?;
        self.sync_directory()?;
        warn!("{} is not newer than {}, and is {} now", whole.display(), self.path.display(), aside.display());
        Ok(())
    }

    /// Has the file that is whole take the place of the other and its log. The log goes before the file has its new name, for SQLite
    /// would take it for the log of that.
    fn take_place(&self) -> Result<(), FileTrouble> {
        remove(&self.beside("-wal"))?;
        self.sync_directory()?;
        fs::rename(self.beside("-whole"), &self.path)?;
        self.sync_directory()?;
        Ok(())
    }

    /// Returns whether a file has a later mark than the one in its place, or that cannot be read. One that was written anew has.
    fn is_newer(&self, whole: &Path) -> bool {
        let mark_of = |path: &Path| {
            let connection = path.exists().then(|| self.connect(path)).transpose().ok()??;
            let mark = schema::read_mark(&connection);
            abandon(connection);
            mark.ok().map(|mark| (mark.opening, mark.batch))
        };
        let new = mark_of(whole);
        new.is_some() && new > mark_of(&self.path)
    }

    /// Moves the file out of the way, and returns where it is now.
    ///
    /// # Errors
    ///
    /// When it cannot be moved.
    pub fn put_aside(&self, connection: Connection, mark: Mark) -> Result<PathBuf, FileTrouble> {
        // What is in the log comes into the file when it is closed.
        connection.close().map_err(|(_, error)| error)?;
        if self.beside("-wal").exists() {
            return Err(FileTrouble::Passing("its log is not in it".into()));
        }
        let aside = self.free_name(&format!("-{}-{}", mark.opening, mark.batch))?;
        fs::rename(&self.path, &aside)?;
        self.sync_directory()?;
        Ok(aside)
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(self.directory())?.sync_all()
    }

    fn directory(&self) -> &Path {
        self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Returns the id of the file's queue.
fn read_queue(connection: &Connection) -> Result<u128, FileTrouble> {
    let text: String = connection.query_row("SELECT queue FROM meta", [], |row| row.get(0))?;
    let unreadable = || FileTrouble::Passing(format!("the id of its queue makes no sense: {}", text.escape_debug()));
    u128::from_str_radix(&text, 16).map_err(|_| unreadable())
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
