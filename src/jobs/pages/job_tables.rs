//! Tables of jobs, and of the settings, schedules and root jobs that they have to do with.

use super::tables::{
    JOBS, OF_BURIED, ROOTS, Shown, TUBES, after, count, error, id, key, name, name_or_nothing, number, seconds, text,
    time_if,
};
use crate::state::periodic::text_of;
use crate::state::queries::JobStats;
use crate::state::{JobState, ShownSchedule, ShownSetting};
use poolcounter_core::Span;
use poolcounter_service::report::Emphasis::{Alarm, Caution};
use poolcounter_service::report::{Cell, Column, Table};

/// A job, with the time for which it has been ready or buried.
type JobRow<'a> = (JobStats<'a>, Span);

const ATTEMPTS: &str = "Attempts that failed since it was put, kicked or moved.";

/// Jobs that are buried until a kick.
pub(crate) fn buried(jobs: &[JobRow<'_>]) -> Table {
    let columns: [Shown<JobRow<'_>>; 7] = [
        (Column { actions: OF_BURIED, ..key("id", "job", "Number of the job.") }, |(job, _)| id(job.id)),
        (Column::linked("tube", "tube", TUBES, "Its tube."), |(job, _)| name_or_nothing(job.tube)),
        (seconds("buried", "for", "Time since it was buried."), |(_, span)| Cell::time(*span)),
        age(),
        reserves(),
        (name("key", "key", "Its key."), |(job, _)| name_or_nothing(job.key)),
        (text("error", "error", "Error of its last failure.").marked(Alarm), |(job, _)| error(job)),
    ];
    Table::of_cells("buried", "Buried jobs", jobs, columns)
        .help("The latest buried jobs of each tube; they wait for a kick.")
        .empty("No job is buried.")
}

/// Jobs of a tube that wait for a runner.
pub(crate) fn ready_jobs(jobs: &[JobRow<'_>]) -> Table {
    let columns: [Shown<JobRow<'_>>; 8] = [
        (Column::linked("id", "job", JOBS, "Number of the job."), |(job, _)| id(job.id)),
        (seconds("ready", "for", "Time for which it has been ready."), |(_, span)| Cell::time(*span)),
        priority(),
        age(),
        reserves(),
        (number("attempts", "failed", ATTEMPTS), |(job, _)| count(job.history.attempts)),
        (name("key", "key", "Its key."), |(job, _)| name_or_nothing(job.key)),
        (name("group", "group", "Its group."), |(job, _)| name_or_nothing(job.group)),
    ];
    Table::of_cells("ready_jobs", "Ready jobs", jobs, columns)
        .help("Jobs that have been ready longest come first.")
        .empty("No job is ready.")
}

fn priority<'a>() -> Shown<JobRow<'a>> {
    (number("pri", "priority", "Its priority; lower numbers are served first."), |(job, _)| {
        Cell::Number(job.pri.into())
    })
}

fn age<'a>() -> Shown<JobRow<'a>> {
    (seconds("age", "age", "Time since it was put."), |(job, _)| after(job.age))
}

fn reserves<'a>() -> Shown<JobRow<'a>> {
    (number("reserves", "reserves", "Number of its reservations."), |(job, _)| count(job.reserves))
}

/// Settings that apply to some tubes.
pub(crate) fn settings(settings: &[ShownSetting]) -> Table {
    let left = "Time until the pause ends, or until the rate allows the next start.";
    let columns: [Shown<ShownSetting>; 5] = [
        (text("setting", "setting", "Command that sets it."), |setting| Cell::text(setting.command)),
        (name("of", "of", "Its pattern."), |setting| Cell::text(&setting.of)),
        (text("value", "value", "Its value, as in its command."), |setting| Cell::text(&setting.value)),
        (seconds("left", "left", left), |setting| time_if(setting.left)),
        (origin(), |setting| Cell::text(origin_of(setting.is_of_file))),
    ];
    Table::of_cells("settings", "Settings", settings, columns).empty("Nothing is set.")
}

/// Periodic jobs.
pub(crate) fn schedules(schedules: &[ShownSchedule<'_>]) -> Table {
    let skipped = "Times at which a periodic job was not put, by schedule.";
    let columns: [Shown<ShownSchedule<'_>>; 8] = [
        (name("name", "name", "Its name.").label("schedule"), |schedule| Cell::text(schedule.name)),
        (Column::linked("tube", "tube", TUBES, "Tube into which it is put."), |schedule| {
            schedule.options().map_or(Cell::Nothing, |(options, _)| name_or_nothing(&options.tube))
        }),
        (text("times", "times", "Expression of cron and zone, or seconds."), |schedule| {
            Cell::text(schedule.options().map_or_else(String::new, |(_, of)| text_of(&of.times)))
        }),
        (text("missed", "if missed", "Whether a job is put late for a missed time."), |schedule| {
            Cell::text(schedule.options().map_or("", |(_, of)| if of.is_made_up { "once" } else { "skip" }))
        }),
        (seconds("next", "next in", "Time until it is put next, by schedule.").each("schedule_next"), |schedule| {
            time_if(schedule.next)
        }),
        (seconds("last", "last", "Time since it was put last, by schedule.").each("schedule_last"), |schedule| {
            time_if(schedule.last)
        }),
        (Column::count("skipped", "skipped", "schedule_skipped", skipped).marked(Caution), |schedule| {
            Cell::Number(schedule.skipped)
        }),
        (origin(), |schedule| Cell::text(origin_of(schedule.is_of_file))),
    ];
    let why =
        "A time is skipped while the job of the one before still waits, when there is no room, or when it was missed.";
    Table::of_cells("schedules", "Periodic jobs", schedules, columns)
        .help(why)
        .empty("No job is put periodically. A first one: poolcounter jobs schedule --every 3600 put NAME TUBE BODY")
}

/// One job.
pub(crate) fn job(job: JobRow<'_>) -> Table {
    let since = |(job, span): &JobRow<'_>| {
        if matches!(job.state, JobState::Ready | JobState::Buried) { Cell::time(*span) } else { Cell::Nothing }
    };
    let left = |(job, _): &JobRow<'_>| {
        if matches!(job.state, JobState::Ready | JobState::Buried) { Cell::Nothing } else { after(job.time_left) }
    };
    let buttons = Column { actions: OF_BURIED, ..key("id", "buried", "Its number, with buttons, if it is buried.") };
    let columns: [Shown<JobRow<'_>>; 17] = [
        (Column::linked("tube", "tube", TUBES, "Its tube."), |(job, _)| Cell::text(job.tube)),
        (text("state", "state", "State of the job."), |(job, _)| Cell::text(job.state.word())),
        (seconds("for", "for", "Time for which it has been ready or buried."), since),
        (seconds("left", "left", "Time until its delay or its time to run ends."), left),
        priority(),
        age(),
        (seconds("ttr", "time to run", "Time for which a runner may hold it."), |(job, _)| after(job.ttr.into())),
        reserves(),
        (number("attempts", "failed", ATTEMPTS).marked(Caution), |(job, _)| count(job.history.attempts)),
        (number("timeouts", "timeouts", "Number of times that its time to run ended."), |(job, _)| {
            count(job.history.timeouts)
        }),
        (number("releases", "releases", "Number of its releases."), |(job, _)| count(job.history.releases)),
        (number("buries", "buries", "Number of times that it was buried."), |(job, _)| count(job.history.buries)),
        (number("kicks", "kicks", "Number of times that it was kicked."), |(job, _)| count(job.history.kicks)),
        (name("key", "key", "Its key."), |(job, _)| name_or_nothing(job.key)),
        (name("group", "group", "Its group."), |(job, _)| name_or_nothing(job.group)),
        (Column::linked("root", "root job", ROOTS, "Tube and signature of its root job."), |(job, _)| {
            job.root.map_or(Cell::Nothing, |(signature, _)| Cell::text([job.tube, b" ", signature].concat()))
        }),
        (buttons, |(job, _)| if job.state == JobState::Buried { id(job.id) } else { Cell::Nothing }),
    ];
    Table::of_cells("job", "Job", [job], columns)
}

/// Root job: tube, signature, newest timestamp, and the time since its last change.
type Root<'a> = (&'a [u8], &'a [u8], u64, Span);

/// One root job. Its leaves are in the lists of jobs, where superseded ones are marked.
pub(crate) fn root(root: Root<'_>) -> Table {
    let changed = "Time since its last change; it is kept for 28 days from that.";
    let columns: [Shown<Root<'_>>; 4] = [
        (Column::linked("tube", "tube", TUBES, "Tube of its leaves."), |(tube, ..)| Cell::text(tube)),
        (name("signature", "signature", "Signature that leaves give."), |(_, signature, ..)| Cell::text(signature)),
        (text("newest", "newest timestamp", "Newest of its timestamps."), |(_, _, newest, _)| {
            Cell::text(newest.to_string())
        }),
        (seconds("changed", "changed", changed), |(.., changed)| Cell::time(*changed)),
    ];
    Table::of_cells("root", "Root job", [root], columns).help(
        "A leaf with an older timestamp is superseded: it is dropped when it would be reserved, unless it is buried.",
    )
}

/// Root jobs that a search has found.
pub(crate) fn roots(roots: &[(&[u8], &[u8])]) -> Table {
    let columns: [Shown<(&[u8], &[u8])>; 1] =
        [(Column::linked("root", "root job", ROOTS, "Tube and signature of the root job."), |(tube, signature)| {
            Cell::text([tube, &b" "[..], signature].concat())
        })];
    Table::of_cells("roots", "Root jobs", roots, columns)
}

fn origin_of(is_of_file: bool) -> &'static str {
    if is_of_file { "file" } else { "command" }
}

/// Returns the column of where a setting comes from.
fn origin() -> Column {
    text("origin", "set by", "The configuration file, or a command.")
}
