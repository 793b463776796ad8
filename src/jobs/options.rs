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
pub const LISTENING: &[Opt<Endpoint>] =
    listening!("jobs", "jobs", port 11300, "serve a job queue over the beanstalkd protocol too");

/// The other options.
pub const OPTIONS: &[Opt<JobsSettings>] = &[
    Opt {
        long: "jobs-store",
        key: "jobs.store",
        hint: "STORE",
        help: "where jobs are kept: memory (default: memory)",
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
        help: "the longest body of a job, at most 1073741824 (default: 65535)",
        set: |settings, value| assign(&mut settings.max_size, number(value, 1..=1 << 30)),
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-max-memory",
        key: "jobs.max_memory",
        hint: "MEGABYTES",
        help: "what jobs may take; beyond that a put is OUT_OF_MEMORY (default: 1024)",
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
        help: "how many tubes there may be (default: 1048576)",
        set: |settings, value| assign(&mut settings.max_tubes, number(value, 1..=100_000_000)),
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-admin",
        key: "jobs.admin",
        help: "let clients on other machines drain, clear and copy jobs, too",
        set: |settings, value| assign(&mut settings.admin, flag(value)),
        ..Opt::BLANK
    },
];
