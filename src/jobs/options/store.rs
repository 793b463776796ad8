//! The place where jobs are kept, as the settings name it.

use super::JobsSettings;
#[cfg(feature = "postgres")]
use crate::postgres::{Place, Postgres};
use crate::sqlite::{DatabaseFile, Sqlite, UNFINISHED_COPY};
use crate::store::{Jobs, Memory, Store};
use poolcounter_service::options::{nearest, number};
use poolcounter_store::place::path_of;
use std::path::PathBuf;

/// The file where jobs are kept if no other is named.
const FILE: &str = "jobs.db";
/// The longest name of a queue.
const MOST_NAME: usize = 64;

/// Place where jobs are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreKind {
    /// Memory alone: jobs end with the process, but an upgrade keeps them.
    Memory,
    /// File of SQLite: this one, or `jobs.db` in the supervisor's directory if there is one, else in the working
    /// directory.
    Sqlite(Option<PathBuf>),
    /// In a database of PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres(Box<Place>),
}

/// Returns the store of the settings, not open yet.
pub fn store_of(settings: &JobsSettings) -> Box<dyn Store<Jobs>> {
    match &settings.store {
        StoreKind::Memory => Box::<Memory>::default(),
        StoreKind::Sqlite(path) => Box::new(Sqlite::new(DatabaseFile { path: absolute(path), vfs: None })),
        #[cfg(feature = "postgres")]
        StoreKind::Postgres(place) => Box::new(Postgres::new((**place).clone()).named(&settings.name)),
    }
}

/// Returns the store of a copy, not open yet: a file that it creates is marked, so that no daemon starts with a part.
pub fn store_of_copy(settings: &JobsSettings) -> Box<dyn Store<Jobs>> {
    let StoreKind::Sqlite(path) = &settings.store else { return store_of(settings) };
    Box::new(Sqlite::new(DatabaseFile { path: absolute(path), vfs: None }).created_as(&UNFINISHED_COPY))
}

/// Limits of the changes that wait for a commit. Beyond them, connections that change more are not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queue {
    /// Changes.
    pub changes: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// Returns the whole path of the file where jobs are kept.
pub fn absolute(path: &Option<PathBuf>) -> PathBuf {
    path_of(path.as_ref(), FILE)
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
            Some(("memory", "")) => Ok(StoreKind::Memory),
            Some(("sqlite", "")) => Ok(StoreKind::Sqlite(None)),
            Some(("sqlite", path)) => Ok(StoreKind::Sqlite(Some(path.into()))),
            #[cfg(not(feature = "postgres"))]
            Some(("postgres" | "postgresql", _)) => {
                Err("sqlite:PATH or memory: this program is built without PostgreSQL".into())
            }
            #[cfg(feature = "postgres")]
            Some(("postgres" | "postgresql", url)) => Ok(StoreKind::Postgres(Box::new(Place::parse(url)?))),
            _ => {
                let kind = text.split(':').next().unwrap_or_default().to_ascii_lowercase();
                let instead = match nearest(&kind, ["sqlite", "postgres", "postgresql", "memory"]) {
                    _ if text.contains('/') && !text.contains(':') => format!("; use sqlite:{text}"),
                    Some("memory") => "; use memory".into(),
                    Some("sqlite") => "; use sqlite: or sqlite:PATH".into(),
                    Some(_) => "; use postgres:URL".into(),
                    None => String::new(),
                };
                Err(format!("sqlite:PATH, postgres:URL or memory{instead}"))
            }
        }
    }
}

/// Reads the name of a queue.
pub(super) fn name(text: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte);
    let is_name = text.len() <= MOST_NAME && text.bytes().all(is_plain);
    is_name.then(|| text.into()).ok_or_else(|| format!("at most {MOST_NAME} letters, digits, -, ., _ and /"))
}

/// Returns why settings about writes have no effect.
pub(super) fn not_kept(settings: &JobsSettings) -> Option<&'static str> {
    matches!(settings.store, StoreKind::Memory).then_some("jobs.store is memory")
}

/// Reads the limits of the changes.
pub(super) fn queue(text: &str) -> Result<Queue, String> {
    let wrong = || "a number from 1 to 10000000, and perhaps a comma and megabytes from 1 to 100000".to_string();
    let (changes, megabytes) = text.split_once(',').unwrap_or((text, "64"));
    let changes = number(changes, 1..=10_000_000).map_err(|_| wrong())?;
    let megabytes: usize = number(megabytes, 1..=100_000).map_err(|_| wrong())?;
    Ok(Queue { changes, bytes: megabytes << 20 })
}
