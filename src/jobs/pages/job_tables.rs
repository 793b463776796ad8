//! Tables of jobs, and of the settings, schedules and root jobs that they have to do with.

use super::tables::{JOBS, OF_BURIED, ROOTS, TUBES, error, name_or_nothing};
use crate::state::periodic::text_of;
use crate::state::queries::JobStats;
use crate::state::{JobState, ShownSchedule, ShownSetting};
use poolcounter_core::Span;
use poolcounter_service::report::Emphasis::{Alarm, Caution};
use poolcounter_service::report::{Cell, Table, table};

/// A job, with the time for which it has been ready or buried.
type JobRow<'a> = (JobStats<'a>, Span);

const AGE: &str = "Time since it was put.";
const PRIORITY: &str = "Its priority; lower numbers are served first.";
const RESERVES: &str = "Number of its reservations.";
const ATTEMPTS: &str = "Attempts that failed since it was put, kicked or moved.";
const ORIGIN: &str = "The configuration file, or a command.";

/// Jobs that are buried until a kick.
pub(crate) fn buried(jobs: &[JobRow<'_>]) -> Table {
    table!(JobRow<'_>, "buried", "Buried jobs", jobs;
        "id", "job", Key to(JOBS) acts(OF_BURIED), "Number of the job.", |(job, _)| Cell::text(job.id.to_string());
        "tube", "tube", Name to(TUBES), "Its tube.", |(job, _)| name_or_nothing(job.tube);
        "buried", "for", Seconds, "Time since it was buried.", |(_, span)| *span;
        "age", "age", Seconds, AGE, |(job, _)| Span::from_secs(job.age);
        "reserves", "reserves", Number, RESERVES, |(job, _)| job.reserves.get();
        "key", "key", Name, "Its key.", |(job, _)| name_or_nothing(job.key);
        "error", "error", Text marked(Alarm), "Error of its last failure.", |(job, _)| error(job);
    )
    .help("The latest buried jobs of each tube; they wait for a kick.")
    .empty("No job is buried.")
}

/// Jobs of a tube that wait for a runner.
pub(crate) fn ready_jobs(jobs: &[JobRow<'_>]) -> Table {
    table!(JobRow<'_>, "ready_jobs", "Ready jobs", jobs;
        "id", "job", Name to(JOBS), "Number of the job.", |(job, _)| Cell::text(job.id.to_string());
        "ready", "for", Seconds, "Time for which it has been ready.", |(_, span)| *span;
        "pri", "priority", Number, PRIORITY, |(job, _)| job.pri;
        "age", "age", Seconds, AGE, |(job, _)| Span::from_secs(job.age);
        "reserves", "reserves", Number, RESERVES, |(job, _)| job.reserves.get();
        "attempts", "failed", Number, ATTEMPTS, |(job, _)| job.history.attempts.get();
        "key", "key", Name, "Its key.", |(job, _)| name_or_nothing(job.key);
        "group", "group", Name, "Its group.", |(job, _)| name_or_nothing(job.group);
    )
    .help("Jobs that have been ready longest come first.")
    .empty("No job is ready.")
}

/// Settings that apply to some tubes.
pub(crate) fn settings(settings: &[ShownSetting]) -> Table {
    table!(ShownSetting, "settings", "Settings", settings;
        "setting", "setting", Text, "Command that sets it.", |setting| Cell::text(setting.command);
        "of", "of", Name, "Its pattern.", |setting| Cell::text(&setting.of);
        "value", "value", Text, "Its value, as in its command.", |setting| Cell::text(&setting.value);
        "left", "left", Seconds, "Time until the pause ends, or until the rate allows the next start.", |setting| setting.left;
        "origin", "set by", Text, ORIGIN, |setting| origin(setting.is_of_file);
    )
    .empty("Nothing is set.")
}

/// Periodic jobs.
pub(crate) fn schedules(schedules: &[ShownSchedule<'_>]) -> Table {
    table!(ShownSchedule<'_>, "schedules", "Periodic jobs", schedules;
        "name", "name", Name label("schedule"), "Its name.", |schedule| Cell::text(schedule.name);
        "tube", "tube", Name to(TUBES), "Tube into which it is put.",
            |schedule| schedule.options().map(|(options, _)| name_or_nothing(&options.tube));
        "times", "times", Text, "Expression of cron and zone, or seconds.",
            |schedule| Cell::text(schedule.options().map_or_else(String::new, |(_, of)| text_of(&of.times)));
        "missed", "if missed", Text, "Whether a job is put late for a missed time.",
            |schedule| Cell::text(schedule.options().map_or("", |(_, of)| if of.is_made_up { "once" } else { "skip" }));
        "next", "next in", Seconds each("schedule_next"), "Time until it is put next, by schedule.", |schedule| schedule.next;
        "last", "last", Seconds each("schedule_last"), "Time since it was put last, by schedule.", |schedule| schedule.last;
        "skipped", "skipped", Number counts("schedule_skipped") marked(Caution),
            "Times at which a periodic job was not put, by schedule.", |schedule| schedule.skipped;
        "origin", "set by", Text, ORIGIN, |schedule| origin(schedule.is_of_file);
    )
    .help("A time is skipped while the job of the one before still waits, when there is no room, or when it was missed.")
    .empty("No job is put periodically. A first one: poolcounter jobs schedule --every 3600 put NAME TUBE BODY")
}

/// One job.
pub(crate) fn job(job: JobRow<'_>) -> Table {
    let is_timed = |job: &JobStats<'_>| !matches!(job.state, JobState::Ready | JobState::Buried);
    table!(JobRow<'_>, "job", "Job", [job];
        "tube", "tube", Name to(TUBES), "Its tube.", |(job, _)| Cell::text(job.tube);
        "state", "state", Text, "State of the job.", |(job, _)| Cell::text(job.state.word());
        "for", "for", Seconds, "Time for which it has been ready or buried.", |(job, span)| (!is_timed(job)).then_some(*span);
        "left", "left", Seconds, "Time until its delay or its time to run ends.",
            |(job, _)| is_timed(job).then(|| Span::from_secs(job.time_left));
        "pri", "priority", Number, PRIORITY, |(job, _)| job.pri;
        "age", "age", Seconds, AGE, |(job, _)| Span::from_secs(job.age);
        "ttr", "time to run", Seconds, "Time for which a runner may hold it.", |(job, _)| Span::from_secs(job.ttr.into());
        "reserves", "reserves", Number, RESERVES, |(job, _)| job.reserves.get();
        "attempts", "failed", Number marked(Caution), ATTEMPTS, |(job, _)| job.history.attempts.get();
        "timeouts", "timeouts", Number, "Number of times that its time to run ended.", |(job, _)| job.history.timeouts.get();
        "releases", "releases", Number, "Number of its releases.", |(job, _)| job.history.releases.get();
        "buries", "buries", Number, "Number of times that it was buried.", |(job, _)| job.history.buries.get();
        "kicks", "kicks", Number, "Number of times that it was kicked.", |(job, _)| job.history.kicks.get();
        "key", "key", Name, "Its key.", |(job, _)| name_or_nothing(job.key);
        "group", "group", Name, "Its group.", |(job, _)| name_or_nothing(job.group);
        "root", "root job", Name to(ROOTS), "Tube and signature of its root job.",
            |(job, _)| job.root.map(|(signature, _)| Cell::text([job.tube, b" ", signature].concat()));
        "id", "buried", Key to(JOBS) acts(OF_BURIED), "Its number, with buttons, if it is buried.",
            |(job, _)| (job.state == JobState::Buried).then(|| Cell::text(job.id.to_string()));
    )
}

/// Root job: tube, signature, newest timestamp, and the time since its last change.
type Root<'a> = (&'a [u8], &'a [u8], u64, Span);

/// One root job. Its leaves are in the lists of jobs, where superseded ones are marked.
pub(crate) fn root(root: Root<'_>) -> Table {
    table!(Root<'_>, "root", "Root job", [root];
        "tube", "tube", Name to(TUBES), "Tube of its leaves.", |(tube, ..)| Cell::text(tube);
        "signature", "signature", Name, "Signature that leaves give.", |(_, signature, ..)| Cell::text(signature);
        "newest", "newest timestamp", Text, "Newest of its timestamps.", |(_, _, newest, _)| Cell::text(newest.to_string());
        "changed", "changed", Seconds, "Time since its last change; it is kept for 28 days from that.", |(.., changed)| *changed;
    )
    .help("A leaf with an older timestamp is superseded: it is dropped when it would be reserved, unless it is buried.")
}

/// Root jobs that a search has found.
pub(crate) fn roots(roots: &[(&[u8], &[u8])]) -> Table {
    table!((&[u8], &[u8]), "roots", "Root jobs", roots;
        "root", "root job", Name to(ROOTS), "Tube and signature of the root job.",
            |(tube, signature)| Cell::text([tube, &b" "[..], signature].concat());
    )
}

/// Returns the cell of where a setting comes from.
fn origin(is_of_file: bool) -> Cell {
    Cell::text(if is_of_file { "file" } else { "command" })
}
