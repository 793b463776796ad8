//! The place where members are kept, as the settings name it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The file where members are kept if no other is named.
const FILE: &str = "members.db";
/// Variable in which a supervisor names the directories in which a service keeps things.
const STATE_DIRECTORY: &str = "STATE_DIRECTORY";

/// Place where members are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreKind {
    /// Memory alone: what is known of members ends with the process, but an upgrade keeps it.
    Memory,
    /// File of SQLite: this one, or `members.db` in the supervisor's directory if there is one, else in the working
    /// directory.
    Sqlite(Option<PathBuf>),
}

impl StoreKind {
    /// Reads the place.
    ///
    /// # Errors
    ///
    /// The accepted forms.
    pub fn parse(text: &str) -> Result<StoreKind, String> {
        match text.split_once(':') {
            None if text == "memory" => Ok(StoreKind::Memory),
            Some(("sqlite", "")) => Ok(StoreKind::Sqlite(None)),
            Some(("sqlite", path)) => Ok(StoreKind::Sqlite(Some(path.into()))),
            _ => Err("sqlite:PATH or memory".into()),
        }
    }

    /// Returns the whole path of the file; None for memory.
    pub fn path(&self) -> Option<PathBuf> {
        let StoreKind::Sqlite(path) = self else { return None };
        let path = path.clone().unwrap_or_else(|| match std::env::var_os(STATE_DIRECTORY) {
            // The supervisor may name several directories; the first is used.
            Some(directories) => {
                let first = directories.as_encoded_bytes().split(|byte| *byte == b':').next().unwrap_or_default();
                Path::new(OsStr::from_bytes(first)).join(FILE)
            }
            None => FILE.into(),
        });
        Some(std::path::absolute(&path).unwrap_or(path))
    }
}
