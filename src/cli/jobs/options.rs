//! Options of `jobs`.

use super::FOREVER;
use super::settings::JobCommandSettings;
use crate::run_child::OnLost;
use crate::servers::ServerOptions;
use poolcounter_client::{JobId, Until};
use poolcounter_service::options::{Opt, assign, number, seconds};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

/// Limit of commands that run at a time: each has connections, a thread, a process and pipes.
const MOST_PARALLEL: usize = 1000;
/// Limit of jobs per command: that of one `reserve-many`.
const MOST_BATCH: u32 = 1000;

/// Options of the command.
pub const OPTIONS: &[Opt<JobCommandSettings>] = &[
    Opt {
        long: "watch",
        hint: "PATTERN[:WEIGHT]",
        doc: "For run: also run jobs of these tubes, like the tubes in the arguments; repeatable.",
        repeats: true,
        set: |settings, value| {
            settings.watches.push(value.into());
            Ok(())
        },
        ..Opt::BLANK
    },
    Opt {
        short: "n",
        long: "parallel",
        hint: "N",
        doc: "For run: number of commands at a time (default: 1). Each command has a connection of its own, and a \
              second one if it takes batches.",
        set: |settings, value| assign(&mut settings.parallel, number(value, 1..=MOST_PARALLEL)),
        ..Opt::BLANK
    },
    Opt {
        long: "batch",
        hint: "N",
        doc: "For run: give each command up to N jobs of one tube, one after the other, which it answers (default: 1). \
              The answers are described above. With 1 the command gets the body of one job.",
        set: |settings, value| assign(&mut settings.batch, number(value, 1..=MOST_BATCH)),
        ..Opt::BLANK
    },
    Opt {
        long: "each-server",
        doc: "For run: serve every server, not only the first that answers. For each server, which has queues of its \
              own, as many commands run as --parallel says.",
        set: |settings, _| assign(&mut settings.each_server, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        short: "q",
        long: "quiet",
        doc: "For run: print nothing about jobs that are done or given back.",
        set: |settings, _| assign(&mut settings.is_quiet, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "textfile",
        hint: "PATH",
        doc: "For run: write metrics to this file, for the textfile collector of Prometheus' node exporter. The file \
              is written every 10 seconds and at the end. The collector requires a name that ends in .prom.",
        set_bytes: Some(|settings, value| {
            assign(&mut settings.textfile, Ok(Some(PathBuf::from(OsStr::from_bytes(value)))))
        }),
        ..Opt::BLANK
    },
    Opt {
        long: "timeout",
        hint: "SECONDS",
        doc: "For run: time limit of a command, or of each answer of a command with --batch, after which the job \
              fails; 0: never (default: 3600). The process group of the command is terminated, and killed 5 seconds \
              later. The TTR of the job does not end a command that hangs, as the job is touched while the command \
              runs.",
        set: |settings, value| assign(&mut settings.timeout, seconds(value).map(or_forever)),
        ..Opt::BLANK
    },
    Opt {
        long: "delay",
        hint: "SECONDS",
        doc: "For put: time until the job can be reserved (default: 0); for run: minimum time until a failed job is \
              tried again (default: 10). The time is rounded up to whole seconds, like all times of jobs.",
        set: |settings, value| assign(&mut settings.delay, seconds(value).map(Some)),
        ..Opt::BLANK
    },
    Opt {
        long: "bury-on",
        hint: "STATUS",
        doc: "For run: bury the job when its command ends with this status, instead of trying it again; repeatable. It \
              counts as a failure, and its error is kept; a server without that extension buries the job without an \
              error.",
        repeats: true,
        set: |settings, value| number(value, 1..=u8::MAX).map(|status| settings.bury_on.push(status)),
        ..Opt::BLANK
    },
    Opt {
        long: "on-lost",
        hint: "warn|term|kill",
        doc: "For run: action when the connection is lost and the job was given to another runner: only warn, or \
              terminate or kill the command (default: term).",
        set: |settings, value| assign(&mut settings.on_lost, OnLost::parse(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "grace",
        hint: "SECONDS",
        doc: "For run: time for commands to finish after SIGTERM, before they are terminated and their jobs given back \
              (default: 60).",
        set: |settings, value| assign(&mut settings.grace, seconds(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "name",
        hint: "NAME",
        doc: "For run: name of the runner for operators, in summary runner and on the status page (default: \
              USER@HOST:PID). It is 1 to 64 bytes without spaces.",
        set: |settings, value| match (1..=64).contains(&value.len()) && !value.contains([' ', '\r', '\n', '\0']) {
            true => assign(&mut settings.name, Ok(Some(value.into()))),
            false => Err("a name: 1 to 64 bytes without spaces and line ends".into()),
        },
        ..Opt::BLANK
    },
    Opt {
        long: "pri",
        hint: "N",
        doc: "For put: priority of the job; jobs with a lower number are reserved first (default: 65536).",
        set: |settings, value| assign(&mut settings.pri, number(value, 0..=u32::MAX)),
        ..Opt::BLANK
    },
    Opt {
        long: "ttr",
        hint: "SECONDS",
        doc: "For put: time to run (TTR): time for which a runner may be silent before the job is given to another \
              (default: 60).",
        set: |settings, value| assign(&mut settings.ttr, seconds(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "key",
        hint: "KEY",
        doc: "For put: do nothing if a job with this key waits in the tube already. The key has no spaces. The reply \
              for such a duplicate is DUPLICATE.",
        set_bytes: Some(|settings, value| assign(&mut settings.extras.key, Ok(Some(value.into())))),
        ..Opt::BLANK
    },
    Opt {
        long: "until-deleted",
        doc: "For put: the key prevents duplicates until the job is deleted, not only while it waits.",
        set: |settings, _| assign(&mut settings.extras.until, Ok(Until::Deleted)),
        ..Opt::BLANK
    },
    Opt {
        long: "group",
        hint: "NAME",
        doc: "For put: group of the job, for limits.",
        set_bytes: Some(|settings, value| assign(&mut settings.extras.group, Ok(Some(value.into())))),
        ..Opt::BLANK
    },
    Opt {
        long: "root",
        hint: "SIGNATURE",
        doc: "For put: signature of the root job of the job, with --root-ts; a newer root job with this signature \
              drops the job.",
        set_bytes: Some(|settings, value| {
            // The timestamp is another option, which may come before or after it.
            assign(&mut settings.extras.root, Ok(Some((value.into(), 0))))
        }),
        ..Opt::BLANK
    },
    Opt {
        long: "root-ts",
        hint: "N",
        doc: "For put: timestamp of the root job, a number.",
        set: |settings, value| assign(&mut settings.root_timestamp, number(value, 0..=u64::MAX).map(Some)),
        ..Opt::BLANK
    },
    Opt {
        long: "lines",
        doc: "For put: put each line of the standard input as a job, without its line end. The command ends with the \
              first job that is refused; jobs that were read together with it are put, too. It goes on if the reader \
              of its output is gone.",
        set: |settings, _| assign(&mut settings.by_line, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "limit",
        hint: "N",
        doc: "For list: maximum number of jobs, up to 1000 (default: 100).",
        set: |settings, value| assign(&mut settings.limit, number(value, 1..=1000)),
        ..Opt::BLANK
    },
    Opt {
        long: "error",
        doc: "For list: print only failed jobs, in any state if none is named, each with its whole error.",
        set: |settings, _| assign(&mut settings.has_errors, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "all",
        doc: "For kick: kick all buried jobs of a tube or pattern, or of all tubes if none is named.",
        set: |settings, _| assign(&mut settings.is_all, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "after",
        hint: "ID",
        doc: "For list: print only jobs with numbers above this one.",
        set: |settings, value| assign(&mut settings.after, number(value, 0..=u64::MAX).map(|id| Some(JobId(id)))),
        ..Opt::BLANK
    },
    Opt {
        short: "j",
        long: "json",
        doc: "For summary, list, show and stats: print JSON. The output is a list of one object: server, and summary, \
              jobs, job or stats.",
        set: |settings, _| assign(&mut settings.is_json, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "run",
        doc: "For init-db: create the tables, instead of printing the SQL.",
        set: |settings, _| assign(&mut settings.is_run, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        doc: "A server of the queue, or tls:HOST[:PORT], or unix:PATH; repeatable, the first that answers is used \
              (default: localhost).",
        ..Opt::SERVER
    },
    Opt::TLS,
];

fn or_forever(time: Duration) -> Duration {
    if time.is_zero() { FOREVER } else { time }
}
