//! Disk that buffers unsynced writes, and loses or tears them when the power fails; and that fails when the test says
//! so. Synced bytes are in files of the system. Names in directories are not a part of this: they change at once.

use poolcounter_testkit::random::Random;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Size of an atomic write, in bytes.
const SECTOR: usize = 512;

/// Handle of the disk.
#[derive(Clone)]
pub struct FaultyDisk(Arc<Mutex<Inner>>);

/// Reason of a failed operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// No space is left.
    Full,
    /// The device reports an error.
    Device,
    /// There is no power, and nothing is known of the operation.
    Off,
}

/// Rates of faults: one failure in this number of operations, or none if it is 0.
#[derive(Clone, Copy, Default, Debug)]
pub struct Faults {
    pub read: usize,
    pub write: usize,
    pub full: usize,
    pub sync: usize,
    /// True for a sync that does nothing, and succeeds.
    pub lies: bool,
    /// Time that each sync takes.
    pub sync_takes: Duration,
}

struct Inner {
    random: Random,
    files: HashMap<PathBuf, Content>,
    faults: Faults,
    /// Number of writes and syncs before the power fails.
    cut_after: Option<usize>,
    is_off: bool,
    /// Number of syncs, and of failures.
    syncs: usize,
    failures: usize,
}

struct Content {
    file: File,
    /// Content that a reader sees.
    seen: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

impl FaultyDisk {
    /// Returns a disk that works.
    pub fn new(seed: u64) -> FaultyDisk {
        FaultyDisk(Arc::new(Mutex::new(Inner {
            random: Random::new(seed),
            files: HashMap::new(),
            faults: Faults::default(),
            cut_after: None,
            is_off: false,
            syncs: 0,
            failures: 0,
        })))
    }

    /// Sets the rates of faults from now on.
    pub fn fail(&self, faults: Faults) {
        self.inner().faults = faults;
    }

    /// Cuts the power after this number of writes and syncs.
    pub fn cut_after(&self, actions: usize) {
        self.inner().cut_after = Some(actions);
    }

    /// Cuts the power now, unless it is off.
    pub fn cut(&self) {
        self.inner().cut();
    }

    /// Restores the power, and ends all faults.
    pub fn power_on(&self) {
        let mut inner = self.inner();
        inner.files.clear();
        (inner.is_off, inner.cut_after, inner.faults) = (false, None, Faults::default());
    }

    /// Returns whether there is power.
    pub fn is_on(&self) -> bool {
        !self.inner().is_off
    }

    /// Ends all faults.
    pub fn heal(&self) {
        let mut inner = self.inner();
        (inner.cut_after, inner.faults) = (None, Faults::default());
    }

    /// Returns the number of syncs, and of failures.
    pub fn counts(&self) -> (usize, usize) {
        let inner = self.inner();
        (inner.syncs, inner.failures)
    }

    /// Waits for as long as a sync takes.
    pub fn delay_sync(&self) {
        let takes = self.inner().faults.sync_takes;
        thread::sleep(takes);
    }

    pub fn open(&self, path: &Path, may_create: bool) -> Result<(), Failure> {
        self.inner().open(path, may_create)
    }

    /// Reads up to `bytes.len()` bytes, and returns their number.
    pub fn read(&self, path: &Path, at: usize, bytes: &mut [u8]) -> Result<usize, Failure> {
        let mut inner = self.inner();
        let once_in = inner.faults.read;
        inner.meet(once_in, Failure::Device)?;
        let seen = &inner.content(path)?.seen;
        let there = seen.get(at..).unwrap_or_default();
        let len = there.len().min(bytes.len());
        bytes[..len].copy_from_slice(&there[..len]);
        Ok(len)
    }

    pub fn write(&self, path: &Path, at: usize, bytes: &[u8]) -> Result<(), Failure> {
        let mut inner = self.inner();
        let Faults { write, full, .. } = inner.faults;
        inner.meet(write, Failure::Device)?;
        inner.meet(full, Failure::Full)?;
        inner.change(path, Change::Write(at, bytes.to_vec()))
    }

    pub fn truncate(&self, path: &Path, len: usize) -> Result<(), Failure> {
        self.inner().change(path, Change::Truncate(len))
    }

    pub fn sync(&self, path: &Path) -> Result<(), Failure> {
        let mut inner = self.inner();
        inner.act()?;
        inner.syncs += 1;
        let once_in = inner.faults.sync;
        let met = inner.meet(once_in, Failure::Device);
        if met.is_err() {
            // The system marks pages that it could not write as written, and readers continue to see them.
            inner.lose_some(path);
        }
        met?;
        if inner.faults.lies {
            return Ok(());
        }
        inner.content(path)?.sync().map_err(|_| Failure::Device)
    }

    pub fn len(&self, path: &Path) -> Result<usize, Failure> {
        Ok(self.inner().content(path)?.seen.len())
    }

    pub fn remove(&self, path: &Path) -> Result<(), Failure> {
        let mut inner = self.inner();
        inner.act()?;
        inner.files.remove(path);
        fs::remove_file(path).map_err(|_| Failure::Device)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no holder of the lock panics")
    }
}

impl Inner {
    fn open(&mut self, path: &Path, may_create: bool) -> Result<(), Failure> {
        if self.is_off {
            return Err(Failure::Off);
        }
        let file = OpenOptions::new().read(true).write(true).create(may_create).truncate(false).open(path);
        let file = file.map_err(|_| Failure::Device)?;
        // A file that was renamed, or removed by others, is another now.
        if self.files.get(path).is_none_or(|content| inode(&content.file) != inode(&file)) {
            let seen = fs::read(path).map_err(|_| Failure::Device)?;
            self.files.insert(path.into(), Content { file, seen, unsynced: Vec::new() });
        }
        Ok(())
    }

    fn content(&mut self, path: &Path) -> Result<&mut Content, Failure> {
        if self.is_off {
            return Err(Failure::Off);
        }
        self.files.get_mut(path).ok_or(Failure::Device)
    }

    fn change(&mut self, path: &Path, change: Change) -> Result<(), Failure> {
        let content = self.content(path)?;
        apply(&mut content.seen, &change);
        content.unsynced.push(change);
        self.act()
    }

    /// Counts one more write or sync, at which the power may fail.
    fn act(&mut self) -> Result<(), Failure> {
        match &mut self.cut_after {
            Some(0) => self.cut(),
            Some(actions) => *actions -= 1,
            None => {}
        }
        if self.is_off { Err(Failure::Off) } else { Ok(()) }
    }

    fn meet(&mut self, once_in: usize, failure: Failure) -> Result<(), Failure> {
        let failure = if self.is_off { Failure::Off } else { failure };
        let fails = self.is_off || once_in > 0 && self.random.once_in(once_in);
        self.failures += usize::from(fails);
        if fails { Err(failure) } else { Ok(()) }
    }

    fn cut(&mut self) {
        if std::mem::replace(&mut self.is_off, true) {
            return;
        }
        let paths: Vec<PathBuf> = self.files.keys().cloned().collect();
        paths.iter().for_each(|path| self.lose_some(path));
    }

    /// Applies all unsynced changes, none, the first ones, or any of them, or parts of some.
    fn lose_some(&mut self, path: &Path) {
        let Some(content) = self.files.get_mut(path) else { return };
        let changes = std::mem::take(&mut content.unsynced);
        if changes.is_empty() {
            return;
        }
        let kind = self.random.below(5);
        let kept = self.random.below(changes.len() + 1);
        // The file is not opened by its name, which another file may have by now.
        let mut file = content.read_whole().expect("the system's own disk works");
        for (n, change) in changes.iter().enumerate() {
            match kind {
                1 if n < kept => apply(&mut file, change),
                2 => apply(&mut file, change),
                3 if self.random.once_in(2) => apply(&mut file, change),
                4 => tear(&mut file, change, &mut self.random),
                // The change is lost.
                _ => {}
            }
        }
        content.write_whole(&file).expect("the system's own disk works");
    }
}

impl Content {
    fn sync(&mut self) -> io::Result<()> {
        for change in self.unsynced.drain(..) {
            match change {
                Change::Write(at, bytes) => self.file.write_all_at(&bytes, at as u64)?,
                Change::Truncate(len) => self.file.set_len(len as u64)?,
            }
        }
        Ok(())
    }

    fn read_whole(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.file.metadata()?.len() as usize];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    fn write_whole(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.set_len(bytes.len() as u64)?;
        self.file.write_all_at(bytes, 0)
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write(at, written) => {
            bytes.resize(bytes.len().max(at + written.len()), 0);
            bytes[*at..at + written.len()].copy_from_slice(written);
        }
        Change::Truncate(len) => bytes.resize(*len, 0),
    }
}

/// Applies some sectors of a write.
fn tear(bytes: &mut Vec<u8>, change: &Change, random: &mut Random) {
    match change {
        Change::Write(at, written) => {
            for (n, sector) in written.chunks(SECTOR).enumerate() {
                if random.once_in(2) {
                    apply(bytes, &Change::Write(at + n * SECTOR, sector.to_vec()));
                }
            }
        }
        Change::Truncate(_) => apply(bytes, change),
    }
}

fn inode(file: &File) -> Option<u64> {
    file.metadata().ok().map(|metadata| metadata.ino())
}
