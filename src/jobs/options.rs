//! Options of the jobs: limits of times, numbers and sizes, the store, and permission to administer them.

mod part_names;
mod setting_tables;
mod store;
mod warnings;

pub use part_names::PartNames;
pub use setting_tables::TABLES;
pub use store::{Queue, StoreKind, absolute, store_of, store_of_copy};
pub use warnings::Warnings;
use warnings::share;

use super::state::{Bounds, Setting};
use poolcounter_core::Span;
use poolcounter_service::options::{Endpoint, Opt, assign, flag, listening, number, option_table, seconds_or_forever};

/// Settings of the jobs.
#[derive(Clone, PartialEq, Debug)]
pub struct JobsSettings {
    /// The longest body in bytes.
    pub max_size: u32,
    /// Largest number of tubes.
    pub max_tubes: usize,
    /// Time after which a buried job is deleted.
    pub bury_ttl: Span,
    /// Most bytes of all jobs. Each job counts as [`super::state::JOB_BYTES`] and the bytes that it has beyond that.
    pub max_memory: usize,
    /// Place where they are kept.
    pub store: StoreKind,
    /// True if the daemon must not start when the jobs cannot be read.
    pub required: bool,
    /// Name of the queue; empty if it has none but its place.
    pub name: String,
    /// Time for which a reply waits for a commit while the store fails.
    pub store_timeout: Span,
    /// Limits of the changes that wait for a commit.
    pub queue: Queue,
    /// True if clients on other machines may administer the jobs, too.
    pub admin: bool,
    /// Words of pages and metrics for the first and the last part of tubes' names.
    pub part_names: PartNames,
    /// Browsers that pages show the bodies of jobs to.
    pub show_bodies: ShowBodies,
    /// Thresholds of conditions.
    pub warnings: Warnings,
    /// Settings of patterns of tubes.
    pub of_tubes: Vec<Setting>,
}

/// Browsers that pages show the bodies of jobs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShowBodies {
    /// Browsers on this machine whose requests come through no proxy.
    Local,
    /// Every browser that may read the pages.
    All,
    /// None.
    None,
}

/// The longest body that may be allowed: SQLite takes no row of 1,000,000,000 bytes.
const MOST_SIZE: u32 = 1 << 29;

fn show_bodies(text: &str) -> Result<ShowBodies, String> {
    match text {
        "local" => Ok(ShowBodies::Local),
        "all" => Ok(ShowBodies::All),
        "none" => Ok(ShowBodies::None),
        _ => Err("local, all or none".into()),
    }
}

impl Default for JobsSettings {
    fn default() -> Self {
        let Bounds { max_size, max_tubes, .. } = Bounds::default();
        JobsSettings {
            max_size,
            max_tubes,
            bury_ttl: Span::FOREVER,
            max_memory: 1 << 30,
            store: StoreKind::Sqlite(None),
            required: false,
            name: String::new(),
            store_timeout: Span::from_secs(30),
            queue: Queue { changes: 65_536, bytes: 64 << 20 },
            admin: false,
            part_names: PartNames::default(),
            show_bodies: ShowBodies::Local,
            warnings: Warnings::default(),
            of_tubes: Vec::new(),
        }
    }
}

impl JobsSettings {
    /// Returns the limits of the jobs.
    pub fn bounds(&self) -> Bounds {
        let JobsSettings { max_size, max_tubes, max_memory, bury_ttl, queue: Queue { changes, bytes }, .. } = *self;
        Bounds { max_size, max_tubes, max_memory, bury_ttl, queue: (changes, bytes) }
    }
}

/// Listening options of the jobs.
pub const LISTENING: &[Opt<Endpoint>] = listening!(
    "jobs",
    "jobs",
    port 11300,
    "Serve a job queue over the beanstalkd protocol too. See SERVICES in poolcounter(8)."
);

/// The other options.
pub const OPTIONS: &[Opt<JobsSettings>] = option_table!(JobsSettings;
    "--jobs-store STORE",
        "Store of the jobs: sqlite:PATH, postgres:URL, or memory (default: jobs.db in $STATE_DIRECTORY or the working \
         directory). See docs/stores.md. sqlite:PATH keeps the jobs in a file of SQLite, which is made if it does not \
         exist. postgres:URL keeps them in a database that several daemons share: one of them serves jobs, the others \
         stand by. memory keeps them for as long as the daemon runs, upgrades included. A reload that names another \
         store is refused: poolcounter jobs copy takes the jobs there while the daemon is stopped. The default is \
         sqlite: without a path, which is jobs.db in the directory that systemd names in STATE_DIRECTORY, else in the \
         working directory.",
        |settings, value| assign(&mut settings.store, StoreKind::parse(value)), in_file("jobs.store", r#""sqlite:""#);
    "--jobs-required",
        "Do not start if the file of the jobs is damaged, or is not a file of this program. Without the option, all \
         other services are served then, and every request for jobs is answered with INTERNAL_ERROR. Damage that is \
         found only when the jobs are read, after the start, closes the jobs in both cases.",
        |settings, value| assign(&mut settings.required, flag(value)), in_file("jobs.required", "false"),
        idle_if(store::not_kept);
    "--jobs-name NAME",
        "Name of the queue in the log, on the page and in metrics (default: the file or database of its store). It is \
         also in conditions, and in metrics it is the label queue. It has at most 64 letters, digits and the \
         characters -, ., _ and /. Daemons that share a queue in PostgreSQL have the same name.",
        |settings, value| assign(&mut settings.name, store::name(value)), in_file("jobs.name", r#""""#);
    "--jobs-store-timeout SECONDS",
        "Time for which a reply waits for a failing store before it is INTERNAL_ERROR; 0: without limit (default: 30). \
         It applies to replies that depend on a commit. After INTERNAL_ERROR the change may be done or not.",
        |settings, value| assign(&mut settings.store_timeout, seconds_or_forever(value)),
        in_file("jobs.store_timeout", "30"),
        idle_if(store::not_kept);
    "--jobs-store-queue CHANGES[,MEGABYTES]",
        "Maximum number of uncommitted changes, and their maximum size in megabytes; above it, writers are paused \
         (default: 65536,64). Connections that would change more are not read until there is room.",
        |settings, value| assign(&mut settings.queue, store::queue(value)),
        in_file("jobs.store_queue", r#""65536,64""#),
        idle_if(store::not_kept);
    "--jobs-max-size BYTES",
        "Maximum size of the body of a job, at most 536870912 (default: 65535). A longer body is read to its end and \
         answered with JOB_TOO_BIG.",
        |settings, value| assign(&mut settings.max_size, number(value, 1..=MOST_SIZE)),
        in_file("jobs.max_size", "65535");
    "--jobs-max-memory MEGABYTES",
        "Maximum memory of jobs; above it, puts are answered OUT_OF_MEMORY (default: 1024). The memory is estimated as \
         150 bytes for each job and its body, key, signature and error text, with about a kilobyte for each tube, and \
         for each first and last part of their names, settings, watches, the orders of tubes that patterns watch, \
         incomplete requests, and unsent answers. Above the maximum, lists and summaries are answered with \
         OUT_OF_MEMORY as well; above it by a sixteenth, also a use or a watch of a new tube, and a reserve through a \
         pattern that no other connection watches.",
        |settings, value| {
            let bytes = number(value, 1..=1_000_000).map(|megabytes: usize| megabytes << 20);
            assign(&mut settings.max_memory, bytes)
        }, in_file("jobs.max_memory", "1024");
    "--jobs-max-tubes N",
        "Maximum number of tubes (default: 1048576).",
        |settings, value| assign(&mut settings.max_tubes, number(value, 1..=100_000_000)),
        in_file("jobs.max_tubes", "1048576");
    "--jobs-bury-ttl SECONDS",
        "Time from the burial after which a buried job is deleted, across restarts and upgrades; 0: never (default: \
         0).",
        |settings, value| assign(&mut settings.bury_ttl, seconds_or_forever(value)), in_file("jobs.bury_ttl", "0");
    "--jobs-admin",
        "Allow clients on other machines to drain, undrain, clear and copy jobs, too (default: off). Their commands \
         are drain, undrain, clear and store-copy.",
        |settings, value| assign(&mut settings.admin, flag(value)), in_file("jobs.admin", "false");
    "--jobs-show-bodies WHO",
        "Browsers to which pages show bodies of jobs: local, all or none (default: local). local browsers are on this \
         machine and come without a proxy; all are all browsers that may read the pages.",
        |settings, value| assign(&mut settings.show_bodies, show_bodies(value)),
        in_file("jobs.show_bodies", "\"local\"");
    "--jobs-warn-age SECONDS",
        "Age of a ready job above which the status warns; 0: never (default: 600).",
        |settings, value| assign(&mut settings.warnings.age, seconds_or_forever(value)),
        in_file("jobs.warn_age", "600"),
        idle_if(|JobsSettings { warnings: Warnings { age, alarm_age, .. }, .. }| {
            (*age != Span::FOREVER && alarm_age <= age).then_some("jobs.alarm_age is not longer")
        });
    "--jobs-alarm-age SECONDS",
        "Age of a ready job above which the status is critical; 0: never (default: 3600).",
        |settings, value| assign(&mut settings.warnings.alarm_age, seconds_or_forever(value)),
        in_file("jobs.alarm_age", "3600");
    "--jobs-warn-hold SECONDS",
        "Time after which the status warns of a runner that holds one job; 0: never (default: 600).",
        |settings, value| assign(&mut settings.warnings.hold, seconds_or_forever(value)),
        in_file("jobs.warn_hold", "600");
    "--jobs-warn-failures SHARE",
        "Share of failed attempts above which the status warns; 1: never (default: 0.1). It is the share of the \
         attempts of the last five minutes, for each last part of tubes' names.",
        |settings, value| assign(&mut settings.warnings.failures, share(value)), in_file("jobs.warn_failures", "0.1");
    "--jobs-part-names FIRST,LAST",
        "Words for the first and the last part of tubes' names on pages and in metrics (default: wiki,type). Pages, \
         their paths, the members of the JSON and metrics are named after them: with app,task, there are \
         /jobs/app/NAME, the table apps and the metric poolcounter_jobs_app_ready. They are two different words of a \
         to z and _, each of 20 letters at most.",
        |settings, value| assign(&mut settings.part_names, PartNames::parse(value)),
        in_file("jobs.part_names", r#""wiki,type""#);
);
