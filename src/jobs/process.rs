//! The process and its machine, as `stats` shows them, files at their paths, and a thread for slow drops. It asks the
//! system, and knows no jobs.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::sys::utsname::uname;
use std::io;
use std::path::Path;
use std::thread;

/// A machine, as its system describes it.
pub struct Machine {
    /// Host name.
    pub hostname: String,
    /// Version of the operating system.
    pub os: String,
    /// Architecture of the processor.
    pub platform: String,
}

impl Machine {
    /// Returns this machine. Unknown fields are empty.
    pub fn this() -> Machine {
        let Ok(names) = uname() else {
            return Machine { hostname: String::new(), os: String::new(), platform: String::new() };
        };
        let [hostname, os, platform] =
            [names.nodename(), names.version(), names.machine()].map(|name| name.to_string_lossy().into_owned());
        Machine { hostname, os, platform }
    }
}

/// Returns the processor time of this process in seconds: its own, and that of the system for it.
pub fn processor_time() -> [f64; 2] {
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    getrusage(UsageWho::RUSAGE_SELF).map_or([0.0; 2], |usage| [usage.user_time(), usage.system_time()].map(seconds))
}

/// Identity and length of a file at a path.
#[derive(Debug)]
pub struct FileAt {
    /// Device.
    pub device: u64,
    /// Inode on that device.
    pub inode: u64,
    /// Length.
    pub bytes: u64,
}

impl FileAt {
    /// Examines the file at a path, after links. Times are not asked for: Linux then gives each later write a time of its
    /// own, and the next sync has to write that, too.
    ///
    /// # Errors
    ///
    /// Any error of the system, such as a missing file.
    #[cfg(target_os = "linux")]
    pub fn new(path: &Path) -> io::Result<FileAt> {
        use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
        let seen = statx(CWD, path, AtFlags::empty(), StatxFlags::INO | StatxFlags::SIZE)?;
        let device = makedev(seen.stx_dev_major, seen.stx_dev_minor);
        Ok(FileAt { device, inode: seen.stx_ino, bytes: seen.stx_size })
    }

    /// Examines the file at a path, after links.
    ///
    /// # Errors
    ///
    /// Any error of the system, such as a missing file.
    #[cfg(not(target_os = "linux"))]
    pub fn new(path: &Path) -> io::Result<FileAt> {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(path)?;
        Ok(FileAt { device: metadata.dev(), inode: metadata.ino(), bytes: metadata.len() })
    }
}

/// Returns memory that is free to the system, on another thread: a gigabyte takes a while. Only the allocator of glibc
/// knows how.
pub fn return_memory_aside() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    let _ = thread::Builder::new().name("jobs-memory".into()).spawn(trim);
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "the allocator is asked by a function of C")]
fn trim() {
    // SAFETY: any thread may call it at any time; it changes nothing that is allocated.
    unsafe { nix::libc::malloc_trim(0) };
}

/// Drops a value on another thread: a million jobs take a while.
pub fn drop_aside(what: Box<dyn Send>) {
    // Without another thread it is dropped here, which takes its time.
    let _ = thread::Builder::new().name("jobs-drop".into()).spawn(move || drop(what));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_is_seen_through_a_link_as_its_metadata_say() {
        let path = std::env::temp_dir().join(format!("poolcounter-file-at-{}", std::process::id()));
        let link = path.with_extension("link");
        fs::write(&path, "three").expect("a temporary file can be written");
        std::os::unix::fs::symlink(&path, &link).expect("a link can be made");
        for path in [&path, &link] {
            let (seen, metadata) = (FileAt::new(path).expect("it is there"), fs::metadata(path).expect("it is there"));
            assert_eq!((seen.device, seen.inode, seen.bytes), (metadata.dev(), metadata.ino(), 5));
        }
        fs::remove_file(&path).expect("it is there");
        let kind = FileAt::new(&link).expect_err("the link leads nowhere").kind();
        assert_eq!(kind, io::ErrorKind::NotFound);
        fs::remove_file(&link).expect("it is there");
    }
}
