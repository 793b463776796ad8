//! The options of the jobs: how long, how many and how large they may be, where they are kept, and who may administer them.

use super::state::Bounds;
use crate::options::{Endpoint, Opt, assign, flag, listening, number};

/// What the options of the jobs say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobsSettings {
    /// The longest body in bytes.
    pub max_size: u32,
    /// How many tubes there may be.
    pub max_tubes: usize,
    /// How many bytes jobs may take, reckoned as [`super::state::JOB_BYTES`] each, and what they have beyond that.
    pub max_memory: usize,
    /// Where they are kept.
    pub store: StoreKind,
    /// Whether clients on other machines may administer them, too.
    pub admin: bool,
}

/// Where jobs are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreKind {
    /// Nowhere else: they end with the process, unless another takes over.
    Memory,
}

impl Default for JobsSettings {
    fn default() -> Self {
        let Bounds { max_size, max_tubes, .. } = Bounds::default();
        JobsSettings { max_size, max_tubes, max_memory: 1 << 30, store: StoreKind::Memory, admin: false }
    }
}

impl JobsSettings {
    /// Returns what bounds the jobs.
    pub fn bounds(&self) -> Bounds {
        let JobsSettings { max_size, max_tubes, max_memory, .. } = *self;
        Bounds { max_size, max_tubes, max_memory }
    }
}

/// Where the jobs listen.
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
        default: r#""memory""#,
        doc_short: "where jobs are kept: memory (default: memory)",
        doc_long: "
            Where jobs are kept:
            .Cm memory
            keeps them for as long as the daemon runs, upgrades included.",
        set: |settings, value| {
            let store = if value == "memory" { Ok(StoreKind::Memory) } else { Err("memory".into()) };
            assign(&mut settings.store, store)
        },
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-max-size",
        key: "jobs.max_size",
        hint: "BYTES",
        default: "65535",
        doc_short: "the longest body of a job, at most 1073741824 (default: 65535)",
        doc_long: "
            The longest body of a job.
            A longer one is read to its end and answered with
            .Li JOB_TOO_BIG .
            At most 1073741824; the default is 65535.",
        set: |settings, value| assign(&mut settings.max_size, number(value, 1..=1 << 30)),
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-max-memory",
        key: "jobs.max_memory",
        hint: "MEGABYTES",
        default: "1024",
        doc_short: "what jobs may take; beyond that a put is OUT_OF_MEMORY (default: 1024)",
        doc_long: "
            What jobs may take, reckoned as 150 bytes for each and its body, key, signature and error text.
            Beyond that, a put is answered with
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
];
