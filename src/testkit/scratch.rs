//! A directory of a test's own.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// Directory for files and sockets that is removed with the test.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates an empty directory. Its name is short, because the paths of sockets must be.
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("poolcounter-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("can be made");
        Scratch(path)
    }

    /// Returns the path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover in the temporary directory does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}
