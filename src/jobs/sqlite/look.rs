//! The store's files as the system shows them at their paths. A path may come to name another file, or none, while the
//! store goes on with its open file: data written then are lost when that is closed.

use crate::process::FileAt;
use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Identity of a file: its device, and its inode there. While the file is open, no other has the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileId {
    device: u64,
    inode: u64,
}

/// A file as it is at its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    pub id: FileId,
    pub bytes: u64,
}

/// The file of the store and its log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    pub file: Seen,
    pub log: Seen,
}

impl FileId {
    /// Returns the identity of the file with these metadata.
    pub fn of(metadata: &Metadata) -> FileId {
        FileId { device: metadata.dev(), inode: metadata.ino() }
    }

    /// Returns the identity of the file at a path, after links; None if there is none.
    ///
    /// # Errors
    ///
    /// Any other error of the system.
    pub fn at(path: &Path) -> io::Result<Option<FileId>> {
        match FileAt::new(path) {
            Ok(FileAt { device, inode, .. }) => Ok(Some(FileId { device, inode })),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Look {
    /// Examines the file and its log.
    ///
    /// # Errors
    ///
    /// One sentence that names the missing one.
    pub fn at(file: &Path, log: &Path) -> Result<Look, String> {
        Ok(Look { file: see(file)?, log: see(log)? })
    }

    /// Returns the bytes of both.
    pub fn bytes(&self) -> u64 {
        self.file.bytes + self.log.bytes
    }

    /// Returns which of the files is another one by `now`; None if both are the same.
    pub fn replaced(&self, now: &Look) -> Option<&'static str> {
        self.first_of(now, |before, after| before.id != after.id)
    }

    /// Returns which of the files has another length by `now`, which only another program can have changed; None if
    /// neither.
    pub fn resized(&self, now: &Look) -> Option<&'static str> {
        self.first_of(now, |before, after| before.bytes != after.bytes)
    }

    /// Returns whether these are the same files by `now`, and not shorter. The log may be on its way into the file.
    pub fn is_in(&self, now: &Look) -> bool {
        self.replaced(now).or(self.first_of(now, |before, after| before.bytes > after.bytes)).is_none()
    }

    fn first_of(&self, now: &Look, differs: impl Fn(&Seen, &Seen) -> bool) -> Option<&'static str> {
        let is_file = differs(&self.file, &now.file).then_some("the file");
        is_file.or_else(|| differs(&self.log, &now.log).then_some("its log"))
    }
}

fn see(path: &Path) -> Result<Seen, String> {
    match FileAt::new(path) {
        Ok(FileAt { device, inode, bytes }) => Ok(Seen { id: FileId { device, inode }, bytes }),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(format!("{} was removed or renamed", path.display())),
        Err(error) => Err(format!("{} cannot be looked at: {error}", path.display())),
    }
}
