//! A disk that keeps aside what was written and not synced, and loses or tears it when the power fails; and that fails when the
//! test says so. What is synced is in files of the system. Names in directories are not a part of this: they change at once.

use poolcounter_testkit::random::Random;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

/// What a disk writes in one piece.
const SECTOR: usize = 512;

/// A handle of the disk.
#[derive(Clone)]
pub struct FaultyDisk(Arc<Mutex<Inner>>);

/// Why something was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// There is no room.
    Full,
    /// The device says no, or there is no power.
    Device,
}

/// How often what fails: once in so many times, or never if that is 0.
#[derive(Clone, Copy, Default, Debug)]
pub struct Faults {
    pub read: usize,
    pub write: usize,
    pub full: usize,
    pub sync: usize,
    /// A sync does nothing, and says that all is well.
    pub lies: bool,
}

struct Inner {
    random: Random,
    files: HashMap<PathBuf, Content>,
    faults: Faults,
    /// The power fails after so many more writes and syncs.
    cut_after: Option<usize>,
    is_off: bool,
    /// How many syncs there were, and how many failures.
    syncs: usize,
    failures: usize,
}

struct Content {
    file: File,
    /// What a reader sees.
    seen: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

impl FaultyDisk {
    /// A disk that works.
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

    /// Has it fail so often from now on.
    pub fn fail(&self, faults: Faults) {
        self.inner().faults = faults;
    }

    /// Has the power fail after so many more writes and syncs.
    pub fn cut_after(&self, actions: usize) {
        self.inner().cut_after = Some(actions);
    }

    /// The power fails now, unless it has already.
    pub fn cut(&self) {
        self.inner().cut();
    }

    /// The power is back, and the disk works.
    pub fn power_on(&self) {
        let mut inner = self.inner();
        inner.files.clear();
        (inner.is_off, inner.cut_after, inner.faults) = (false, None, Faults::default());
    }

    /// Whether there is power.
    pub fn is_on(&self) -> bool {
        !self.inner().is_off
    }

    /// It works from now on.
    pub fn heal(&self) {
        let mut inner = self.inner();
        (inner.cut_after, inner.faults) = (None, Faults::default());
    }

    /// How many syncs there were, and how many failures.
    pub fn counts(&self) -> (usize, usize) {
        let inner = self.inner();
        (inner.syncs, inner.failures)
    }

    pub fn open(&self, path: &Path, may_create: bool) -> Result<(), Failure> {
        self.inner().open(path, may_create)
    }

    /// Reads as much as there is.
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
            // The system takes what it could not write for written, and a reader goes on to see it.
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
            return Err(Failure::Device);
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
            return Err(Failure::Device);
        }
        self.files.get_mut(path).ok_or(Failure::Device)
    }

    fn change(&mut self, path: &Path, change: Change) -> Result<(), Failure> {
        let content = self.content(path)?;
        apply(&mut content.seen, &change);
        content.unsynced.push(change);
        self.act()
    }

    /// One more write or sync, at which the power may fail.
    fn act(&mut self) -> Result<(), Failure> {
        match &mut self.cut_after {
            Some(0) => self.cut(),
            Some(actions) => *actions -= 1,
            None => {}
        }
        if self.is_off { Err(Failure::Device) } else { Ok(()) }
    }

    fn meet(&mut self, once_in: usize, failure: Failure) -> Result<(), Failure> {
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

    /// Of what was not synced the disk has all, nothing, the beginning, or any part; and some of that in part.
    fn lose_some(&mut self, path: &Path) {
        let Some(content) = self.files.get_mut(path) else { return };
        let changes = std::mem::take(&mut content.unsynced);
        if changes.is_empty() {
            return;
        }
        let kind = self.random.below(5);
        let kept = self.random.below(changes.len() + 1);
        // Not by its name, which another file may have by now.
        let mut file = content.read_whole().expect("the system's own disk works");
        for (n, change) in changes.iter().enumerate() {
            match kind {
                1 if n < kept => apply(&mut file, change),
                2 => apply(&mut file, change),
                3 if self.random.once_in(2) => apply(&mut file, change),
                4 => tear(&mut file, change, &mut self.random),
                // Nothing of it is there.
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

/// Each sector of a write is there or not.
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
