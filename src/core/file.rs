//! Files of settings, certificates and passwords, which are read whole.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

/// Opens a regular file for reading, and nothing else: a FIFO would wait for its writer, and a device may have no end.
///
/// # Errors
///
/// `InvalidInput` if it is another kind of file; else the system's error.
pub fn open_regular(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "this is not a regular file"));
    }
    File::open(path)
}
