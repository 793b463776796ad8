//! Table of the jobs' commands, and the facts about a line that are needed before it is read.

use crate::command::Verb;
use crate::commands;
use Sees::{Any, Named, No};

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

/// Jobs whose put may decide the reply to a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sees {
    /// None of them.
    No,
    /// The job that the command names.
    Named,
    /// Any job.
    Any,
}

/// Traits of a command that are needed before its line is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traits {
    /// True if it may change something that a store keeps.
    pub changes: bool,
    /// Jobs whose puts may decide its reply.
    pub sees: Sees,
    /// True if it can be answered only once the jobs, tubes and figures are known.
    pub needs_jobs: bool,
    /// True if beanstalkd does not have it, and its line may be longer.
    pub is_extension: bool,
}

const ASKS: Traits = Traits { changes: false, sees: No, needs_jobs: true, is_extension: false };
/// Traits of a command that concerns only its connection or the daemon.
const OWN: Traits = Traits { needs_jobs: false, ..ASKS };
const CHANGES: Traits = Traits { changes: true, ..ASKS };

impl Traits {
    const fn sees(self, sees: Sees) -> Traits {
        Traits { sees, ..self }
    }

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
            ASKS.sees(Any);
        ReserveWithTimeout = "reserve-with-timeout", "<seconds>", Some(RESERVE), "Waits for a job of the watched tubes, at most for the given time.",
            ASKS.sees(Any);
        ReserveJob = "reserve-job", "<id>", Some(RESERVE), "Reserves one job.",
            ASKS.sees(Named);
        Delete = "delete", "<id>", Some(RESERVE), "Deletes a job. A job that the connection has reserved needs no right.",
            CHANGES.sees(Named);
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
            ASKS.sees(Named);
        PeekReady = "peek-ready", "", Some(READ), "Shows the first ready job of the used tube.",
            ASKS.sees(Any);
        PeekDelayed = "peek-delayed", "", Some(READ), "Shows the first delayed job of the used tube.",
            ASKS.sees(Any);
        PeekBuried = "peek-buried", "", Some(READ), "Shows the first buried job of the used tube.",
            ASKS;
        Kick = "kick", "<number>", Some(MANAGE), "Makes buried jobs of the used tube ready, or delayed ones if none is buried.",
            CHANGES.sees(Any);
        KickJob = "kick-job", "<id>", Some(MANAGE), "Makes one job ready.",
            CHANGES.sees(Named);
        Stats = "stats", "", Some(READ), "Shows the statistics of the server.",
            ASKS.sees(Any);
        StatsJob = "stats-job", "<id>", Some(READ), "Shows the statistics of a job. A job that the connection has reserved needs no right.",
            ASKS.sees(Named);
        StatsTube = "stats-tube", "<tube>", Some(READ), "Shows the statistics of a tube.",
            ASKS.sees(Any);
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
        PutJob = "put-job", "<pri> <delay> <ttr> <bytes> [tube=<tube>] [key=<key>] [until=reserved|deleted] [root=<root> root-ts=<time>] [group=<group>]", Some(PUT), "Puts a job with options, such as a key that prevents duplicates.",
            CHANGES.extension();
        PutMany = "put-many", "<number>", Some(PUT), "Puts several jobs in one transaction.",
            CHANGES.extension();
        Root = "root", "<tube> <root> <time>", Some(PUT), "Registers a root job, which supersedes older jobs of the same root.",
            CHANGES.extension();
        Identify = "identify", "<name>", None, "Names the connection.",
            OWN.extension();
        Limit = "limit", "<pattern>|group:<group> <number> [each|all]", Some(MANAGE), "Limits the number of jobs reserved at a time.",
            CHANGES.extension();
        Retry = "retry", "<pattern> <attempts> <first> <factor> <max>", Some(MANAGE), "Sets the attempts and delays of failed jobs.",
            CHANGES.extension();
        Fail = "fail", "<id> <pri> <delay> <bytes> [bury]", None, "Reports the failure of a reserved job, with its error.",
            CHANGES.extension();
        DeadLetter = "dead-letter", "<pattern> [<tube>]", Some(MANAGE), "Sets the tube for jobs that have failed too often.",
            CHANGES.extension();
        Clear = "clear", "<pattern> [ready|reserved|delayed|buried]", Some(ADMIN), "Deletes the jobs of some tubes.",
            CHANGES.sees(Any).extension();
        KickAll = "kick-all", "<pattern> [delayed|buried]", Some(MANAGE), "Makes the buried and delayed jobs of some tubes ready, or those in one of the states.",
            CHANGES.sees(Any).extension();
        PauseAll = "pause-all", "<pattern> <seconds>", Some(MANAGE), "Hands out no job of some tubes, and of later ones, for a while.",
            CHANGES.extension();
        ListJobs = "list-jobs", "<tube> ready|reserved|delayed|buried <number> [after=<id>]", Some(READ), "Lists jobs of a tube.",
            ASKS.sees(Any).extension();
        Summary = "summary", "[wiki|type|tube|runner]", Some(READ), "Shows sums by parts of tubes' names, by tube or by runner.",
            ASKS.sees(Any).extension();
        ReserveMany = "reserve-many", "<number> <seconds>", Some(RESERVE), "Waits for jobs, and reserves several at once.",
            ASKS.sees(Any).extension();
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

/// Options of put-job.
pub const OPTIONS: [&str; 6] = ["tube", "key", "until", "root", "root-ts", "group"];

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
    use JobCommand::{Clear, KickAll, Limit, PauseAll};
    command_of(input)
        .is_some_and(|(command, rest)| matches!(command, Clear | KickAll | Limit | PauseAll) && rest.contains(&b'*'))
}

/// Returns true if the first line can be answered only once the jobs are known; false for a line that is incomplete.
pub fn needs_jobs(input: &[u8]) -> bool {
    command_of(input).is_some_and(|(command, _)| command.traits().needs_jobs)
}

/// Returns the number of the job in the first line of a command that only the holder of a reserved job may send. The
/// job may also be in another state, which `delete` allows.
pub fn held_job(input: &[u8]) -> Option<u64> {
    use JobCommand::{Bury, Delete, Fail, Release, Touch};
    let (command, rest) = command_of(input)?;
    let word = rest.trim_ascii().split(|byte| *byte == b' ').next()?;
    let is_of_holder = matches!(command, Delete | Release | Bury | Touch | Fail);
    std::str::from_utf8(word).ok().filter(|_| is_of_holder)?.parse().ok()
}

/// Returns the jobs that the first line sees, and the number of the job that it names, if any.
pub fn sees(input: &[u8]) -> (Sees, Option<u64>) {
    let Some((command, rest)) = command_of(input) else { return (No, None) };
    let sees = command.traits().sees;
    let named = || std::str::from_utf8(rest).ok()?.trim().parse().ok();
    (sees, if sees == Named { named() } else { None })
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

    #[test]
    fn number_of_the_job_is_read_where_it_decides() {
        for (line, seen) in [
            ("peek 12\r\nx", (Named, Some(12))),
            ("delete  7\r\n", (Named, Some(7))),
            ("peek x\r\n", (Named, None)),
            ("peek\r\n", (Named, None)),
            ("kick 3\r\n", (Any, None)),
            ("reserve\r\n", (Any, None)),
            ("touch 1\r\n", (No, None)),
            ("peek 1", (No, None)),
        ] {
            assert_eq!(sees(line.as_bytes()), seen, "{line}");
        }
    }
}
