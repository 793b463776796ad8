//! The place where members are kept, as the settings name it.

use poolcounter_store::place::path_of;
use std::path::PathBuf;

/// The file where members are kept if no other is named.
const FILE: &str = "members.db";

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
        Some(path_of(path.as_ref(), FILE))
    }
}
