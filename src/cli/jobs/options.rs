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
        doc_short: "run: also run jobs of these tubes; repeatable",
        doc_long: "
            For
            .Cm run :
            also run jobs of these tubes, like those in the arguments.
            May be given several times.",
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
        doc_short: "run: number of commands at a time (default: 1)",
        doc_long: "
            For
            .Cm run :
            number of commands at a time, each with a connection of its own, and with another if it takes batches.
            The default is 1.",
        set: |settings, value| assign(&mut settings.parallel, number(value, 1..=MOST_PARALLEL)),
        ..Opt::BLANK
    },
    Opt {
        long: "batch",
        hint: "N",
        doc_short: "run: give each command up to N jobs of a tube, one after the other, which it answers (default: 1)",
        doc_long: "
            For
            .Cm run :
            give each command up to this number of jobs of one tube, one after the other, as described above.
            With 1, the default, it gets the body of one job.",
        set: |settings, value| assign(&mut settings.batch, number(value, 1..=MOST_BATCH)),
        ..Opt::BLANK
    },
    Opt {
        long: "each-server",
        doc_short: "run: serve every server, not only the first that answers",
        doc_long: "
            For
            .Cm run :
            run as many commands as
            .Fl -parallel
            says for each server, where each has queues of its own.
            Without it, all commands are for the first server that answers.",
        set: |settings, _| assign(&mut settings.each_server, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        short: "q",
        long: "quiet",
        doc_short: "run: print nothing about jobs that are done or given back",
        doc_long: "
            For
            .Cm run :
            print nothing about jobs that are done or given back.",
        set: |settings, _| assign(&mut settings.is_quiet, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "textfile",
        hint: "PATH",
        doc_short: "run: write metrics to this file, for Prometheus' node exporter",
        doc_long: "
            For
            .Cm run :
            write metrics to this file every 10 seconds and at the end, for the textfile collector of Prometheus' node exporter,
            which requires a name that ends in
            .Pa .prom .",
        set_bytes: Some(|settings, value| {
            assign(&mut settings.textfile, Ok(Some(PathBuf::from(OsStr::from_bytes(value)))))
        }),
        ..Opt::BLANK
    },
    Opt {
        long: "timeout",
        hint: "SECONDS",
        doc_short: "run: end a command that takes longer, so that its job fails; 0: never (default: 3600)",
        doc_long: "
            For
            .Cm run :
            time limit of a command; with
            .Fl -batch ,
            of each of its answers.
            After that its process group is terminated, and killed 5 seconds later, and the job has failed.
            The TTR of the job does not end a command that hangs, as the job is touched while the command runs.
            0 means never; the default is 3600.",
        set: |settings, value| assign(&mut settings.timeout, seconds(value).map(or_forever)),
        ..Opt::BLANK
    },
    Opt {
        long: "delay",
        hint: "SECONDS",
        doc_short: "put: time until the job can be reserved (default: 0); run: minimum time until a failed job is tried again (default: 10)",
        doc_long: "
            For
            .Cm put :
            time until the job can be reserved; the default is 0.
            For
            .Cm run :
            minimum time until a failed job is tried again; the default is 10.
            Like all times of jobs it is rounded up to whole seconds.",
        set: |settings, value| assign(&mut settings.delay, seconds(value).map(Some)),
        ..Opt::BLANK
    },
    Opt {
        long: "bury-on",
        hint: "STATUS",
        doc_short: "run: bury the job when its command ends with this status; repeatable",
        doc_long: "
            For
            .Cm run :
            bury the job, instead of trying it again, when its command ends with this status.
            It counts as a failure, and its error is kept; a server without that extension buries it without an error.
            May be given several times.",
        repeats: true,
        set: |settings, value| number(value, 1..=u8::MAX).map(|status| settings.bury_on.push(status)),
        ..Opt::BLANK
    },
    Opt {
        long: "on-lost",
        hint: "warn|term|kill",
        doc_short: "run: when the job was given to another runner, only warn, or terminate or kill the command (default: term)",
        doc_long: "
            For
            .Cm run :
            action for a command whose connection is lost and whose job was given to another runner.
            With
            .Cm warn
            it runs on, with
            .Cm term ,
            the default, it is terminated, and with
            .Cm kill
            it is killed.",
        set: |settings, value| assign(&mut settings.on_lost, OnLost::parse(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "grace",
        hint: "SECONDS",
        doc_short: "run: time for commands to finish after SIGTERM, before their jobs are given back (default: 60)",
        doc_long: "
            For
            .Cm run :
            time for commands to finish after a
            .Dv SIGTERM ,
            before they are terminated and their jobs given back.
            The default is 60.",
        set: |settings, value| assign(&mut settings.grace, seconds(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "name",
        hint: "NAME",
        doc_short: "run: name of the runner for operators (default: USER@HOST:PID)",
        doc_long: "
            For
            .Cm run :
            name of the runner in
            .Ql summary runner
            and on the status page: 1 to 64 bytes without spaces.
            The default is
            .Ql user@host:pid .",
        set: |settings, value| match (1..=64).contains(&value.len()) && !value.contains([' ', '\r', '\n', '\0']) {
            true => assign(&mut settings.name, Ok(Some(value.into()))),
            false => Err("a name: 1 to 64 bytes without spaces and line ends".into()),
        },
        ..Opt::BLANK
    },
    Opt {
        long: "pri",
        hint: "N",
        doc_short: "put: jobs with a lower number are reserved first (default: 65536)",
        doc_long: "
            For
            .Cm put :
            priority of the job.
            Jobs with a lower number are reserved first; the default is 65536.",
        set: |settings, value| assign(&mut settings.pri, number(value, 0..=u32::MAX)),
        ..Opt::BLANK
    },
    Opt {
        long: "ttr",
        hint: "SECONDS",
        doc_short: "put: time to run: how long a runner may be silent before the job is given to another (default: 60)",
        doc_long: "
            For
            .Cm put :
            time to run (TTR): time for which a runner may be silent before the job is given to another.
            The default is 60.",
        set: |settings, value| assign(&mut settings.ttr, seconds(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "key",
        hint: "KEY",
        doc_short: "put: do nothing if a job with this key waits in the tube already",
        doc_long: "
            For
            .Cm put :
            key against duplicates, without spaces.
            While a job with the same key waits in the tube, no other is put, and the reply is
            .Li DUPLICATE .",
        set_bytes: Some(|settings, value| assign(&mut settings.extras.key, Ok(Some(value.into())))),
        ..Opt::BLANK
    },
    Opt {
        long: "until-deleted",
        doc_short: "put: the key prevents duplicates until the job is deleted, not only while it waits",
        doc_long: "
            For
            .Cm put :
            the key prevents duplicates until the job is deleted, not only while it waits.",
        set: |settings, _| assign(&mut settings.extras.until, Ok(Until::Deleted)),
        ..Opt::BLANK
    },
    Opt {
        long: "group",
        hint: "NAME",
        doc_short: "put: group of the job, for limits",
        doc_long: "
            For
            .Cm put :
            group of the job, for limits.",
        set_bytes: Some(|settings, value| assign(&mut settings.extras.group, Ok(Some(value.into())))),
        ..Opt::BLANK
    },
    Opt {
        long: "root",
        hint: "SIGNATURE",
        doc_short: "put: root job of the job; a newer root job drops it",
        doc_long: "
            For
            .Cm put ,
            with
            .Fl -root-ts :
            signature of the root job of the job.
            A newer root job with this signature drops the job.",
        set_bytes: Some(|settings, value| {
            // The timestamp is another option, which may come before or after it.
            assign(&mut settings.extras.root, Ok(Some((value.into(), 0))))
        }),
        ..Opt::BLANK
    },
    Opt {
        long: "root-ts",
        hint: "N",
        doc_short: "put: timestamp of that root job",
        doc_long: "
            For
            .Cm put :
            timestamp of that root job, a number.",
        set: |settings, value| assign(&mut settings.root_timestamp, number(value, 0..=u64::MAX).map(Some)),
        ..Opt::BLANK
    },
    Opt {
        long: "lines",
        doc_short: "put: each line of the standard input is a job",
        doc_long: "
            For
            .Cm put :
            each line of the standard input is a job, without its end.
            It ends with the first that is refused, when those read with it are put, too, and goes on if the reader of its output is gone.",
        set: |settings, _| assign(&mut settings.by_line, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "limit",
        hint: "N",
        doc_short: "list: maximum number of jobs (default: 100)",
        doc_long: "
            For
            .Cm list :
            maximum number of jobs, up to 1000; the default is 100.",
        set: |settings, value| assign(&mut settings.limit, number(value, 1..=1000)),
        ..Opt::BLANK
    },
    Opt {
        long: "error",
        doc_short: "list: print only failed jobs, in any state if none is named, each with its whole error",
        doc_long: "
            For
            .Cm list :
            print only jobs that have failed, in any state if none is named, each with its whole error.",
        set: |settings, _| assign(&mut settings.has_errors, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "all",
        doc_short: "kick: all buried jobs of a tube or pattern, or of all tubes",
        doc_long: "
            For
            .Cm kick :
            kick all buried jobs of a tube or pattern, or of all tubes if none is named.",
        set: |settings, _| assign(&mut settings.is_all, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "after",
        hint: "ID",
        doc_short: "list: print only jobs with numbers above this one",
        doc_long: "
            For
            .Cm list :
            print only jobs with numbers above this one.",
        set: |settings, value| assign(&mut settings.after, number(value, 0..=u64::MAX).map(|id| Some(JobId(id)))),
        ..Opt::BLANK
    },
    Opt {
        short: "j",
        long: "json",
        doc_short: "summary, list, show, stats: print JSON",
        doc_long: "
            For
            .Cm summary , list , show
            and
            .Cm stats :
            print a list of one JSON object:
            .Va server ,
            and
            .Va summary , jobs , job
            or
            .Va stats .",
        set: |settings, _| assign(&mut settings.is_json, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "run",
        doc_short: "init-db: create the tables, instead of printing the SQL",
        doc_long: "
            For
            .Cm init-db :
            create the tables, instead of printing the SQL.",
        set: |settings, _| assign(&mut settings.is_run, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        doc_short: "server of the queue, or unix:PATH; the first of several that answers is used (default: localhost)",
        doc_long: "
            A server of the queue.
            May be given several times; the first that answers is used.",
        ..Opt::SERVER
    },
    Opt::TLS,
    Opt::VERSION,
    Opt::HELP,
];

/// Returns the options without their setters.
pub fn described() -> Vec<Opt<()>> {
    OPTIONS.iter().map(Opt::describe).collect()
}

fn or_forever(time: Duration) -> Duration {
    if time.is_zero() { FOREVER } else { time }
}
