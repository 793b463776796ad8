//! Options of the jobs: limits of times, numbers and sizes, the store, and permission to administer them.

mod part_names;
mod setting_tables;
mod store;
mod warnings;

pub use part_names::PartNames;
pub use setting_tables::TABLES;
pub use store::{Queue, StoreKind, absolute};
pub use warnings::Warnings;
use warnings::share;

use super::state::{Bounds, FileSetting};
use poolcounter_core::time::Span;
use poolcounter_service::options::{Endpoint, Opt, assign, flag, listening, number, seconds_or_forever};

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
    pub of_tubes: Vec<FileSetting>,
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
        let JobsSettings { max_size, max_tubes, max_memory, bury_ttl, .. } = *self;
        Bounds { max_size, max_tubes, max_memory, bury_ttl }
    }
}

/// Listening options of the jobs.
pub const LISTENING: &[Opt<Endpoint>] = listening!(
    "jobs",
    "jobs",
    port 11300,
    "serve a job queue over the beanstalkd protocol too",
    "Serve a job queue over the beanstalkd protocol too; see\n.Sx SERVICES ."
);

/// The other options.
pub const OPTIONS: &[Opt<JobsSettings>] = &[
    Opt {
        long: "jobs-store",
        key: "jobs.store",
        hint: "STORE",
        default: r#""sqlite:""#,
        doc_short: "store of the jobs: sqlite:PATH, postgres:URL, or memory (default: jobs.db in $STATE_DIRECTORY or the working directory)",
        doc_long: "
            Store of the jobs; see
            .Pa docs/stores.md .
            .Cm sqlite:\\&PATH
            keeps them in a file of SQLite, which is made if it is not there;
            .Cm postgres:\\&URL
            keeps them in a database that several daemons share, of which one serves jobs and the others stand by;
            .Cm memory
            keeps them for as long as the daemon runs, upgrades included.
            A reload that names another store is refused:
            .Cm poolcounter jobs copy
            takes the jobs there while the daemon is stopped.
            The default is
            .Cm sqlite:\\& ,
            which is
            .Pa jobs.db
            in the directory that systemd names in
            .Ev STATE_DIRECTORY ,
            else in the working directory.",
        set: |settings, value| assign(&mut settings.store, StoreKind::parse(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-required",
        key: "jobs.required",
        default: "false",
        doc_short: "do not start if the store of the jobs cannot be read",
        doc_long: "
            Do not start if the file of the jobs is damaged, or is not one of this program.
            Without this, all other services are served then, and every request for jobs is answered with
            .Li INTERNAL_ERROR .
            Damage that is found only when the jobs are read, after the start, closes the jobs in both cases.",
        set: |settings, value| assign(&mut settings.required, flag(value)),
        idle: store::not_kept,
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-name",
        key: "jobs.name",
        hint: "NAME",
        default: r#""""#,
        doc_short: "name of the queue in the log, on the page and in metrics (default: the file or database of its store)",
        doc_long: "
            Name of the queue in the log, on the status page, in its conditions and in the label
            .Va queue
            of metrics: at most 64 letters, digits and
            .Ql -._/ .
            Daemons that share a queue in PostgreSQL have the same name.
            The default is the file or database of the store.",
        set: |settings, value| assign(&mut settings.name, store::name(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-store-timeout",
        key: "jobs.store_timeout",
        hint: "SECONDS",
        default: "30",
        doc_short: "time for which a reply waits for a failing store before it is INTERNAL_ERROR; 0: without limit (default: 30)",
        doc_long: "
            Time for which a reply that depends on a commit waits while the store fails, in seconds.
            Then it is
            .Li INTERNAL_ERROR ,
            and the change may be done or not.
            0 is for ever.
            The default is 30.",
        set: |settings, value| assign(&mut settings.store_timeout, seconds_or_forever(value)),
        idle: store::not_kept,
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-store-queue",
        key: "jobs.store_queue",
        hint: "CHANGES[,MEGABYTES]",
        default: r#""65536,64""#,
        doc_short: "maximum uncommitted changes; above it, writers are paused (default: 65536,64)",
        doc_long: "
            Maximum number of uncommitted changes, and their maximum size in megabytes.
            Beyond that, connections that would change more are not read until there is room.
            The default is 65536,64.",
        set: |settings, value| assign(&mut settings.queue, store::queue(value)),
        idle: store::not_kept,
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-max-size",
        key: "jobs.max_size",
        hint: "BYTES",
        default: "65535",
        doc_short: "maximum size of a job's body, at most 536870912 (default: 65535)",
        doc_long: "
            Maximum size of the body of a job.
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
        doc_short: "maximum memory of jobs; above it, puts are answered OUT_OF_MEMORY (default: 1024)",
        doc_long: "
            Memory of jobs, estimated as 150 bytes for each and its body, key, signature and error text, with about a kilobyte for each
            tube, and for each first and last part of their names, settings, watches, the orders of tubes that patterns watch, requests
            that are not all there, and answers that are not sent.
            Beyond that, a put, a list and a summary are answered with
            .Li OUT_OF_MEMORY ;
            above it by a sixteenth, a use or a watch of a new tube, too, and a reserve through a pattern that no other connection watches.
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
        doc_short: "maximum number of tubes (default: 1048576)",
        doc_long: "
            Maximum number of tubes.
            The default is 1048576.",
        set: |settings, value| assign(&mut settings.max_tubes, number(value, 1..=100_000_000)),
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-bury-ttl",
        key: "jobs.bury_ttl",
        hint: "SECONDS",
        default: "0",
        doc_short: "time after which a buried job is deleted; 0: never (default: 0)",
        doc_long: "
            Time after which a buried job is deleted, in seconds from its burial, across restarts and upgrades.
            0, the default, means never.",
        set: |settings, value| assign(&mut settings.bury_ttl, seconds_or_forever(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-admin",
        key: "jobs.admin",
        default: "false",
        doc_short: "allow clients on other machines to drain, clear and copy jobs, too",
        doc_long: "
            Allow clients on other machines the commands
            .Ic drain , undrain , clear
            and
            .Ic store-copy .",
        set: |settings, value| assign(&mut settings.admin, flag(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-show-bodies",
        key: "jobs.show_bodies",
        hint: "WHO",
        default: "\"local\"",
        doc_short: "browsers to which pages show bodies of jobs: local, all or none (default: local)",
        doc_long: "
            Browsers to which the page of a job shows its body:
            .Cm local
            ones, which are on this machine and come without a proxy,
            .Cm all
            that may read the pages, or
            .Cm none .
            The default is
            .Cm local .",
        set: |settings, value| assign(&mut settings.show_bodies, show_bodies(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-warn-age",
        key: "jobs.warn_age",
        hint: "SECONDS",
        default: "600",
        doc_short: "age of a ready job at which the status warns; 0: never (default: 600)",
        doc_long: "
            The status warns of a job that has been ready for longer than this.
            0 turns that off.
            The default is 600.",
        set: |settings, value| assign(&mut settings.warnings.age, seconds_or_forever(value)),
        idle: |JobsSettings { warnings: Warnings { age, alarm_age, .. }, .. }| {
            (*age != Span::FOREVER && alarm_age <= age).then_some("jobs.alarm_age is not longer")
        },
        ..Opt::BLANK
    },
    Opt {
        long: "jobs-alarm-age",
        key: "jobs.alarm_age",
        hint: "SECONDS",
        default: "3600",
        doc_short: "age of a ready job at which the status is critical; 0: never (default: 3600)",
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
        doc_short: "time after which the status warns of a runner that holds one job; 0: never (default: 600)",
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
        doc_short: "share of failed attempts at which the status warns; 1: never (default: 0.1)",
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
        doc_short: "words for the first and the last part of tubes' names on pages and in metrics (default: wiki,type)",
        doc_long: "
            Words for the first and the last part of tubes' names.
            Pages, their paths, the members of the JSON and metrics are named after them: with
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
