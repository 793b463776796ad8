//! Default place of a store's file.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Variable in which a supervisor names the directories in which a service keeps things.
const STATE_DIRECTORY: &str = "STATE_DIRECTORY";

/// Returns the whole path of a file: the one that is set, or else `file` in the supervisor's directory if there is one,
/// else in the working directory.
pub fn path_of(set: Option<&PathBuf>, file: &str) -> PathBuf {
    let path = set.cloned().unwrap_or_else(|| match std::env::var_os(STATE_DIRECTORY) {
        // The supervisor may name several directories; the first is used.
        Some(directories) => {
            let first = directories.as_encoded_bytes().split(|byte| *byte == b':').next().unwrap_or_default();
            Path::new(OsStr::from_bytes(first)).join(file)
        }
        None => file.into(),
    });
    std::path::absolute(&path).unwrap_or(path)
}
