//! Table of the jobs' commands, and the facts about a line that are needed before it is read.

use crate::command::Verb;
use crate::commands;

/// Rights that a rule of access can give, by [`Verb`].
pub const VERBS: &[&str] = &["put", "reserve", "read", "manage", "admin"];
/// Right to put jobs.
pub const PUT: Verb = Verb(0);
/// Right to reserve and finish jobs.
pub const RESERVE: Verb = Verb(1);
/// Right to see tubes and jobs.
pub const READ: Verb = Verb(2);
/// Right to manage tubes.
pub const MANAGE: Verb = Verb(3);
/// Right to administer the queue.
pub const ADMIN: Verb = Verb(4);

/// Traits of a command that are needed before its line is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traits {
    /// True if it may change something that a store keeps.
    pub changes: bool,
    /// True if it is about jobs, tubes or figures, and can be answered only once they are known.
    pub needs_jobs: bool,
    /// True if beanstalkd does not have it, and its line may be longer.
    pub is_extension: bool,
}

const ASKS: Traits = Traits { changes: false, needs_jobs: true, is_extension: false };
/// Traits of a command that concerns only its connection or the daemon.
const OWN: Traits = Traits { needs_jobs: false, ..ASKS };
const CHANGES: Traits = Traits { changes: true, ..ASKS };

impl Traits {
    const fn extension(self) -> Traits {
        Traits { is_extension: true, ..self }
    }
}

commands! {
    /// Command of the jobs, beanstalkd's first. Commands about a job that their connection has reserved need no right.
    JobCommand, traits: Traits {
        Put = "put", "<pri> <delay> <ttr> <bytes>", Some(PUT), "Puts a job into the used tube.",
            CHANGES;
        Use = "use", "<tube>", None, "Chooses the tube of later puts.",
            OWN;
        Reserve = "reserve", "", Some(RESERVE), "Waits for a job of the watched tubes.",
            ASKS;
        ReserveWithTimeout = "reserve-with-timeout", "<seconds>", Some(RESERVE), "Waits for a job of the watched tubes, at most for the given time.",
            ASKS;
        ReserveJob = "reserve-job", "<id>", Some(RESERVE), "Reserves one job.",
            ASKS;
        Delete = "delete", "<id>", Some(RESERVE), "Deletes a job. A job that the connection has reserved needs no right.",
            CHANGES;
        Release = "release", "<id> <pri> <delay>", None, "Gives a reserved job back.",
            CHANGES;
        Bury = "bury", "<id> <pri>", None, "Puts a reserved job aside.",
            CHANGES;
        Touch = "touch", "<id>", None, "Asks for more time for a reserved job.",
            ASKS;
        Watch = "watch", "<pattern> [<weight>]", None, "Adds tubes to those from which the connection reserves.",
            OWN;
        Ignore = "ignore", "<pattern>", None, "Removes them.",
            OWN;
        Peek = "peek", "<id>", Some(READ), "Shows a job.",
            ASKS;
        PeekReady = "peek-ready", "", Some(READ), "Shows the first ready job of the used tube.",
            ASKS;
        PeekDelayed = "peek-delayed", "", Some(READ), "Shows the first delayed job of the used tube.",
            ASKS;
        PeekBuried = "peek-buried", "", Some(READ), "Shows the first buried job of the used tube.",
            ASKS;
        Kick = "kick", "<number>", Some(MANAGE), "Makes buried jobs of the used tube ready, or delayed ones if none is buried.",
            CHANGES;
        KickJob = "kick-job", "<id>", Some(MANAGE), "Makes one job ready.",
            CHANGES;
        Stats = "stats", "", Some(READ), "Shows the statistics of the server.",
            ASKS;
        StatsJob = "stats-job", "<id>", Some(READ), "Shows the statistics of a job. A job that the connection has reserved needs no right.",
            ASKS;
        StatsTube = "stats-tube", "<tube>", Some(READ), "Shows the statistics of a tube.",
            ASKS;
        ListTubes = "list-tubes", "", Some(READ), "Lists all tubes.",
            ASKS;
        ListTubeUsed = "list-tube-used", "", None, "Shows the used tube.",
            OWN;
        ListTubesWatched = "list-tubes-watched", "", None, "Lists the watched tubes.",
            OWN;
        PauseTube = "pause-tube", "<tube> <seconds>", Some(MANAGE), "Hands out no job of a tube for a while.",
            CHANGES;
        Quit = "quit", "", None, "Ends the connection.",
            OWN;
        PutJob = "put-job", "<pri> <delay> <ttr> <bytes> [tube=<tube>] [key=<key>] [until=reserved|deleted] [for=<seconds>] [root=<root> root-ts=<time>] [group=<group>]", Some(PUT), "Puts a job with options, such as a key that prevents duplicates.",
            CHANGES.extension();
        PutMany = "put-many", "<number>", Some(PUT), "Puts several jobs in one transaction.",
            CHANGES.extension();
        Root = "root", "<tube> <root> <time>", Some(PUT), "Registers a root job, which supersedes older jobs of the same root.",
            CHANGES.extension();
        Identify = "identify", "<name>", None, "Names the connection.",
            OWN.extension();
        Limit = "limit", "<pattern>|group:<group> <number> [per <seconds>] [each|all|ordered]", Some(MANAGE), "Limits the number of jobs reserved at a time, or of those that start in a period.",
            CHANGES.extension();
        Retry = "retry", "<pattern> <attempts> <first> <factor> <max>", Some(MANAGE), "Sets the attempts and delays of failed jobs.",
            CHANGES.extension();
        Fail = "fail", "<id> <pri> <delay> <bytes> [bury]", None, "Reports the failure of a reserved job, with its error.",
            CHANGES.extension();
        DeadLetter = "dead-letter", "<pattern> [<tube>]", Some(MANAGE), "Sets the tube for jobs that have failed too often.",
            CHANGES.extension();
        Clear = "clear", "<pattern> [ready|reserved|delayed|buried]", Some(ADMIN), "Deletes the jobs of some tubes.",
            CHANGES.extension();
        KickAll = "kick-all", "<pattern> [delayed|buried]", Some(MANAGE), "Makes the buried and delayed jobs of some tubes ready, or those in one of the states.",
            CHANGES.extension();
        PauseAll = "pause-all", "<pattern> <seconds>", Some(MANAGE), "Hands out no job of some tubes, and of later ones, for a while.",
            CHANGES.extension();
        Move = "move", "<id>|<pattern> <tube> [ready|delayed|buried]", Some(MANAGE), "Moves a job, or the jobs of some tubes, to another tube. A reserved job stays.",
            CHANGES.extension();
        SetJob = "set-job", "<id> [pri=<pri>] [delay=<seconds>] [ttr=<seconds>]", Some(MANAGE), "Changes a job that is not reserved.",
            CHANGES.extension();
        Cancel = "cancel", "<id>|<pattern>", Some(MANAGE), "Deletes a reserved job, or the reserved jobs of some tubes; the runner ends the command.",
            CHANGES.extension();
        ListJobs = "list-jobs", "<tube> ready|reserved|delayed|buried <number> [after=<id>]", Some(READ), "Lists jobs of a tube.",
            ASKS.extension();
        Summary = "summary", "[wiki|type|tube|runner]", Some(READ), "Shows sums by parts of tubes' names, by tube or by runner.",
            ASKS.extension();
        ListSettings = "list-settings", "[<pattern>]", Some(READ), "Lists the settings of tubes and groups, or those that apply to some tubes.",
            ASKS.extension();
        SchedulePut = "schedule-put", "<name> <pri> <ttr> <bytes> tube=<tube> [key=<key>] [missed=skip|once] every=<seconds>|[timezone=<zone>] cron=<expression>", Some(MANAGE), "Sets a periodic job, whose body follows.",
            CHANGES.extension();
        ScheduleDelete = "schedule-delete", "<name>", Some(MANAGE), "Ends a periodic job.",
            CHANGES.extension();
        ListSchedules = "list-schedules", "", Some(READ), "Lists the periodic jobs.",
            ASKS.extension();
        ReserveMany = "reserve-many", "<number> <seconds>", Some(RESERVE), "Waits for jobs, and reserves several at once.",
            ASKS.extension();
        Begin = "begin", "<id>", None, "Notes that the work on a job of reserve-many begins.",
            ASKS.extension();
        Dropped = "dropped", "<tube>", Some(RESERVE), "Takes the number of jobs that were dropped in a tube as superseded.",
            ASKS.extension();
        Extensions = "extensions", "", None, "Lists commands and options.",
            OWN.extension();
        Drain = "drain", "", Some(ADMIN), "Refuses new jobs.",
            ASKS.extension();
        Undrain = "undrain", "", Some(ADMIN), "Accepts new jobs again.",
            ASKS.extension();
        StoreCopy = "store-copy", "<name>", Some(ADMIN), "Copies the store to a file beside it.",
            ASKS.extension();
    }
}

impl JobCommand {
    /// Returns whether it changes jobs or tubes for an operator.
    pub fn manages(self) -> bool {
        matches!(self.row().verb, Some(MANAGE | ADMIN)) && !self.only_asks()
    }

    /// Returns whether it only asks for something that is known without a change.
    pub fn only_asks(self) -> bool {
        use JobCommand::{Extensions, ListTubeUsed, ListTubesWatched, StoreCopy};
        self.row().verb == Some(READ) || matches!(self, Extensions | ListTubeUsed | ListTubesWatched | StoreCopy)
    }
}

/// Options of put-job.
pub const OPTIONS: [&str; 7] = ["tube", "key", "until", "for", "root", "root-ts", "group"];

/// Options of fail.
pub const FAIL_OPTIONS: [&str; 1] = ["bury"];

/// Returns the extension with whose word a line begins, if any. Lines of extensions may be longer than other lines.
pub fn extension_of(line: &[u8]) -> Option<JobCommand> {
    let word = line.split(|byte| *byte == b' ').next().unwrap_or(line);
    JobCommand::of_word(word).filter(|command| command.traits().is_extension)
}

/// Returns true if the first line may change something that a store keeps; false for a line that is incomplete.
pub fn may_change(input: &[u8]) -> bool {
    command_of(input).is_some_and(|(command, _)| command.traits().changes)
}

/// Returns true if the first line is of a command that goes through the tubes of a pattern, or through all groups.
pub fn goes_through_tubes(input: &[u8]) -> bool {
    use JobCommand::{Cancel, Clear, KickAll, Limit, Move, PauseAll};
    let is_of_tubes = |command| matches!(command, Cancel | Clear | KickAll | Limit | Move | PauseAll);
    command_of(input).is_some_and(|(command, rest)| is_of_tubes(command) && rest.contains(&b'*'))
}

/// Returns true if the first line is of a command about jobs, tubes or figures; false for a line that is incomplete.
pub fn needs_jobs(input: &[u8]) -> bool {
    command_of(input).is_some_and(|(command, _)| command.traits().needs_jobs)
}

/// Returns the number of the job in the first line of a command that only the holder of a reserved job may send. The
/// job may also be in another state, which `delete` allows.
pub fn held_job(input: &[u8]) -> Option<u64> {
    use JobCommand::{Begin, Bury, Delete, Fail, Release, Touch};
    let (command, rest) = command_of(input)?;
    let word = rest.trim_ascii().split(|byte| *byte == b' ').next()?;
    let is_of_holder = matches!(command, Delete | Release | Bury | Touch | Begin | Fail);
    std::str::from_utf8(word).ok().filter(|_| is_of_holder)?.parse().ok()
}

/// Returns the command of the first line, and the rest of the line behind its word; None for an incomplete line.
fn command_of(input: &[u8]) -> Option<(JobCommand, &[u8])> {
    let line = &input[..memchr::memchr(b'\n', input)?];
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\r')).unwrap_or(line.len());
    Some((JobCommand::of_word(&line[..end])?, &line[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_alone_counts() {
        let extensions = [&b"put 1"[..], b"put-job 1", b"put-jobs"].map(extension_of);
        assert_eq!(extensions, [None, Some(JobCommand::PutJob), None]);
        assert!(may_change(b"put 1 2 3 4\r\n") && may_change(b"clear *\n") && !may_change(b"peek 1\r\nput\r\n"));
        assert!(!may_change(b"put 1 2 3 4"), "not a whole line");
        assert!(goes_through_tubes(b"kick-all */a\r\n") && goes_through_tubes(b"limit group:* 1\r\n"));
        assert!(!goes_through_tubes(b"clear a\r\nclear *\r\n") && !goes_through_tubes(b"watch *\r\n"));
        assert!(needs_jobs(b"put 1 2 3 4\r\n") && needs_jobs(b"stats\r\n") && !needs_jobs(b"watch a\r\nstats\r\n"));
    }
}
