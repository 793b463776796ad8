//! The options of the jobs: how long, how many and how large they may be, where they are kept, and who may administer them.

mod part_names;
mod setting_tables;

pub use part_names::PartNames;
pub use setting_tables::TABLES;

#[cfg(feature = "postgres")]
use super::postgres::PostgresUrl;
use super::state::{Bounds, FileSetting};
use poolcounter_core::time::Span;
use poolcounter_service::options::{Endpoint, Opt, assign, flag, listening, nearest, number, seconds_or_forever};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Settings of the jobs.
#[derive(Clone, PartialEq, Debug)]
pub struct JobsSettings {
    /// The longest body in bytes.
    pub max_size: u32,
    /// Largest number of tubes.
    pub max_tubes: usize,
    /// Bytes that jobs may take, reckoned as [`super::state::JOB_BYTES`] each, and what they have beyond that.
    pub max_memory: usize,
    /// Place where they are kept.
    pub store: StoreKind,
    /// Time for which a reply waits for a commit while the store fails.
    pub store_timeout: Span,
    /// Changes that may wait for a commit.
    pub queue: Queue,
    /// Whether clients on other machines may administer them, too.
    pub admin: bool,
    /// Words of pages and metrics for the first and the last part of tubes' names.
    pub part_names: PartNames,
    /// Thresholds of conditions.
    pub warnings: Warnings,
    /// Settings of patterns of tubes.
    pub of_tubes: Vec<FileSetting>,
}

/// Thresholds of conditions. [`Span::FOREVER`] turns one off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Warnings {
    /// Time for which a job may be ready before it is late.
    pub age: Span,
    /// Time for which a job may be ready before it is very late.
    pub alarm_age: Span,
    /// Time for which a runner may hold a job.
    pub hold: Span,
    /// Share of attempts that may fail, in thousandths.
    pub failures: u64,
}

impl Default for Warnings {
    fn default() -> Self {
        let [age, alarm_age, hold] = [600, 3600, 600].map(Span::from_secs);
        Warnings { age, alarm_age, hold, failures: 100 }
    }
}

/// Place where jobs are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreKind {
    /// Nowhere else: they end with the process, unless another takes over.
    Memory,
    /// In a file of SQLite: this one, or `jobs.db` where the supervisor has a place for it, else in the working directory.
    Sqlite(Option<PathBuf>),
    /// In a database of PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres(Box<PostgresUrl>),
}

/// Changes that may wait for a commit before connections that change more are not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queue {
    /// Changes.
    pub changes: usize,
    /// Their bytes.
    pub bytes: usize,
}

/// The longest body that may be allowed: SQLite takes no row of 1,000,000,000 bytes.
const MOST_SIZE: u32 = 1 << 29;
/// The file where jobs are kept if no other is named.
const FILE: &str = "jobs.db";
/// Variable in which a supervisor names the directories in which a service keeps things.
const STATE_DIRECTORY: &str = "STATE_DIRECTORY";

/// Returns the whole path of the file where jobs are kept.
pub fn absolute(path: &Option<PathBuf>) -> PathBuf {
    let path = path.clone().unwrap_or_else(|| match std::env::var_os(STATE_DIRECTORY) {
        // Of several, the first.
        Some(directories) => {
            let first = directories.as_encoded_bytes().split(|byte| *byte == b':').next().unwrap_or_default();
            Path::new(OsStr::from_bytes(first)).join(FILE)
        }
        None => FILE.into(),
    });
    std::path::absolute(&path).unwrap_or(path)
}

fn store(text: &str) -> Result<StoreKind, String> {
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
        Some(("postgres" | "postgresql", url)) => Ok(StoreKind::Postgres(Box::new(PostgresUrl::parse(url)?))),
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

/// Reads a share as thousandths.
fn share(text: &str) -> Result<u64, String> {
    let share: f64 = number(text, 0.0..=1.0)?;
    // Lossless: it is at most 1.
    Ok((share * 1000.0).round() as u64)
}

fn queue(text: &str) -> Result<Queue, String> {
    let wrong = || "a number from 1 to 10000000, and perhaps a comma and megabytes from 1 to 100000".to_string();
    let (changes, megabytes) = text.split_once(',').unwrap_or((text, "64"));
    let changes = number(changes, 1..=10_000_000).map_err(|_| wrong())?;
    let megabytes: usize = number(megabytes, 1..=100_000).map_err(|_| wrong())?;
    Ok(Queue { changes, bytes: megabytes << 20 })
}

impl Default for JobsSettings {
    fn default() -> Self {
        let Bounds { max_size, max_tubes, .. } = Bounds::default();
        JobsSettings {
            max_size,
            max_tubes,
            max_memory: 1 << 30,
            store: StoreKind::Sqlite(None),
            store_timeout: Span::from_secs(30),
            queue: Queue { changes: 65_536, bytes: 64 << 20 },
            admin: false,
            part_names: PartNames::default(),
            warnings: Warnings::default(),
            of_tubes: Vec::new(),
        }
    }
}

impl JobsSettings {
    /// Returns what bounds the jobs.
    pub fn bounds(&self) -> Bounds {
        let JobsSettings { max_size, max_tubes, max_memory, .. } = *self;
        Bounds { max_size, max_tubes, max_memory }
    }
}

/// Listening options of the jobs.
pub const LISTENING: &[Opt<Endpoint>] = listening!(
    "jobs",
    "jobs",
    port 11300,
    "serve a job queue over the beanstalkd protocol too",
    "Serve a job queue over the beanstalkd protocol too; see\n.Sx JOBS ."
);

/// The other options.
pub const OPTIONS: &[Opt<JobsSettings>] = &[
    Opt {
        long: "jobs-store",
        key: "jobs.store",
        hint: "STORE",
        default: r#""sqlite:""#,
        doc_short: "where jobs are kept: sqlite:PATH, postgres:URL, or memory (default: jobs.db in $STATE_DIRECTORY, or where it is started)",
        doc_long: "
            Where jobs are kept; see
            .Sx WHERE JOBS ARE KEPT .
            .Cm sqlite:\\&PATH
            keeps them in a file of SQLite, which is made if it is not there;
            .Cm postgres:\\&URL
            keeps them in a database that several daemons share, of which one serves jobs and the others stand by;
            .Cm memory
            keeps them for as long as the daemon runs, upgrades included.
            The default is
            .Cm sqlite:\\& ,
            which is
            .Pa jobs.db
            in the directory that systemd names in
            .Ev STATE_DIRECTORY ,
            else in the working directory.",
        set: |settings, value| assign(&mut settings.store, store(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-store-timeout",
        key: "jobs.store_timeout",
        hint: "SECONDS",
        default: "30",
        doc_short: "how long a reply waits for a store that fails; then it is INTERNAL_ERROR (default: 30)",
        doc_long: "
            How long a reply that promises something waits while the store fails, in seconds.
            Then it is
            .Li INTERNAL_ERROR ,
            and nobody knows whether what was asked for is done.
            0 is for ever.
            The default is 30.",
        set: |settings, value| assign(&mut settings.store_timeout, seconds_or_forever(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-store-queue",
        key: "jobs.store_queue",
        hint: "CHANGES[,MEGABYTES]",
        default: r#""65536,64""#,
        doc_short: "how much may wait to be committed; beyond that, who changes more is not read (default: 65536,64)",
        doc_long: "
            How many changes, and how many megabytes of them, may wait to be committed.
            Beyond that, connections that would change more are not read until there is room.
            The default is 65536,64.",
        set: |settings, value| assign(&mut settings.queue, queue(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-max-size",
        key: "jobs.max_size",
        hint: "BYTES",
        default: "65535",
        doc_short: "the longest body of a job, at most 536870912 (default: 65535)",
        doc_long: "
            The longest body of a job.
            A longer one is read to its end and answered with
            .Li JOB_TOO_BIG .
            At most 536870912; the default is 65535.",
        set: |settings, value| assign(&mut settings.max_size, number(value, 1..=MOST_SIZE)),
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-max-memory",
        key: "jobs.max_memory",
        hint: "MEGABYTES",
        default: "1024",
        doc_short: "what jobs may take; beyond that a put is OUT_OF_MEMORY (default: 1024)",
        doc_long: "
            What jobs may take, reckoned as 150 bytes for each and its body, key, signature and error text, with the orders of tubes that
            patterns watch, requests that are not all there, and answers that are not sent.
            Beyond that, a put, a list, a summary, and a reserve through a pattern that nobody else watches are answered with
            .Li OUT_OF_MEMORY .
            The default is 1024.",
        set: |settings, value| {
            let bytes = number(value, 1..=1_000_000).map(|megabytes: usize| megabytes << 20);
            assign(&mut settings.max_memory, bytes)
        },
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-max-tubes",
        key: "jobs.max_tubes",
        hint: "N",
        default: "1048576",
        doc_short: "how many tubes there may be (default: 1048576)",
        doc_long: "
            How many tubes there may be.
            The default is 1048576.",
        set: |settings, value| assign(&mut settings.max_tubes, number(value, 1..=100_000_000)),
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-admin",
        key: "jobs.admin",
        default: "false",
        doc_short: "let clients on other machines drain, clear and copy jobs, too",
        doc_long: "
            Let clients on other machines
            .Ic drain , undrain , clear
            and
            .Ic store-copy ,
            too.",
        set: |settings, value| assign(&mut settings.admin, flag(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-warn-age",
        key: "jobs.warn_age",
        hint: "SECONDS",
        default: "600",
        doc_short: "age of a ready job at which the status warns; 0 is never (default: 600)",
        doc_long: "
            The status warns of a job that has been ready for longer than this.
            0 turns that off.
            The default is 600.",
        set: |settings, value| assign(&mut settings.warnings.age, seconds_or_forever(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-alarm-age",
        key: "jobs.alarm_age",
        hint: "SECONDS",
        default: "3600",
        doc_short: "age of a ready job at which the status is critical; 0 is never (default: 3600)",
        doc_long: "
            The status is critical when a job has been ready for longer than this.
            0 turns that off.
            The default is 3600.",
        set: |settings, value| assign(&mut settings.warnings.alarm_age, seconds_or_forever(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-warn-hold",
        key: "jobs.warn_hold",
        hint: "SECONDS",
        default: "600",
        doc_short: "time after which the status warns of a runner that holds one job; 0 is never (default: 600)",
        doc_long: "
            The status warns of a runner that has held one job for longer than this.
            0 turns that off.
            The default is 600.",
        set: |settings, value| assign(&mut settings.warnings.hold, seconds_or_forever(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-warn-failures",
        key: "jobs.warn_failures",
        hint: "SHARE",
        default: "0.1",
        doc_short: "share of failed attempts at which the status warns; 1 is never (default: 0.1)",
        doc_long: "
            The status warns when more than this share of the attempts of the last five minutes have failed, for each last part of tubes' names.
            1 turns that off.
            The default is 0.1.",
        set: |settings, value| assign(&mut settings.warnings.failures, share(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-part-names",
        key: "jobs.part_names",
        hint: "FIRST,LAST",
        default: r#"["wiki", "type"]"#,
        doc_short: "words of pages and metrics for the first and the last part of tubes' names (default: wiki,type)",
        doc_long: "
            Words for the first and the last part of tubes' names.
            Pages, their paths, the members of the JSON and metrics are called by them: with
            .Cm app,task ,
            there are
            .Pa /jobs/app/ Ns Ar name ,
            the table
            .Ql apps
            and the metric
            .Va poolcounter_jobs_app_ready .
            Two different words of a to z and _, each of 20 letters at most; in the file a list of both.
            The default is wiki,type.",
        repeats: true,
        set: |settings, value| settings.part_names.add(value),
        ..Opt::BLANK
    },
];
