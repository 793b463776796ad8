//! The store's files as the system shows them at their paths. A path may come to name another file, or none, while the
//! store goes on with its open file: data written then are lost when that is closed.

use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Identity of a file: its device, and its inode there. While the file is open, no other has the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FileId {
    device: u64,
    inode: u64,
}

/// A file as it is at its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    pub id: FileId,
    pub bytes: u64,
}

/// The file of the store and its log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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
        match Seen::at(path) {
            Ok(seen) => Ok(Some(seen.id)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Seen {
    /// Examines the file at a path, after links. Linux is not asked for times: it then gives each later write a time of
    /// its own, and the next sync has to write that, too.
    fn at(path: &Path) -> io::Result<Seen> {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
            let seen = statx(CWD, path, AtFlags::empty(), StatxFlags::INO | StatxFlags::SIZE)?;
            let device = makedev(seen.stx_dev_major, seen.stx_dev_minor);
            Ok(Seen { id: FileId { device, inode: seen.stx_ino }, bytes: seen.stx_size })
        }
        #[cfg(not(target_os = "linux"))]
        {
            let metadata = std::fs::metadata(path)?;
            Ok(Seen { id: FileId::of(&metadata), bytes: metadata.len() })
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
        self.first_of(now, |before, after| before.id != after.id || before.bytes > after.bytes).is_none()
    }

    fn first_of(&self, now: &Look, differs: impl Fn(&Seen, &Seen) -> bool) -> Option<&'static str> {
        let is_file = differs(&self.file, &now.file).then_some("the file");
        is_file.or_else(|| differs(&self.log, &now.log).then_some("its log"))
    }
}

/// Examines the file at a path.
///
/// # Errors
///
/// One sentence that says what is wrong.
pub fn see(path: &Path) -> Result<Seen, String> {
    match Seen::at(path) {
        Ok(seen) => Ok(seen),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(format!("{} was removed or renamed", path.display())),
        Err(error) => Err(format!("{} cannot be looked at: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_is_seen_through_a_link_as_its_metadata_say() {
        let path = std::env::temp_dir().join(format!("poolcounter-file-at-{}", std::process::id()));
        let link = path.with_extension("link");
        fs::write(&path, "three").expect("a temporary file can be written");
        std::os::unix::fs::symlink(&path, &link).expect("a link can be made");
        for path in [&path, &link] {
            let (seen, metadata) = (Seen::at(path).expect("it is there"), fs::metadata(path).expect("it is there"));
            assert_eq!(seen, Seen { id: FileId::of(&metadata), bytes: 5 });
        }
        fs::remove_file(&path).expect("it is there");
        let kind = Seen::at(&link).expect_err("the link leads nowhere").kind();
        assert_eq!(kind, ErrorKind::NotFound);
        fs::remove_file(&link).expect("it is there");
    }
}
