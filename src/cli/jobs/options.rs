//! The options of `jobs`.

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

/// How many commands run at a time at most: each has connections, a thread, a process and pipes.
const MOST_PARALLEL: usize = 1000;
/// How many jobs a command gets at most: the first and those that one `reserve-many` may take.
const MOST_BATCH: u32 = 1000;

/// The options.
pub const OPTIONS: &[Opt<JobCommandSettings>] = &[
    Opt {
        long: "watch",
        hint: "PATTERN[:WEIGHT]",
        doc_short: "run: run jobs of these tubes, too; repeatable",
        doc_long: "
            For
            .Cm run :
            run jobs of these tubes, too, as if they stood among the words.
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
        doc_short: "run: so many commands at a time (default: 1)",
        doc_long: "
            For
            .Cm run :
            how many commands run at a time, each with a connection of its own, and with another if it takes batches.
            The default is 1.",
        set: |settings, value| assign(&mut settings.parallel, number(value, 1..=MOST_PARALLEL)),
        ..Opt::BLANK
    },
    Opt {
        long: "batch",
        hint: "N",
        doc_short: "run: give a command up to N jobs of a tube in its life, one at a time, which it answers (default: 1)",
        doc_long: "
            For
            .Cm run :
            give a command up to so many jobs of one tube in its life, one at a time, as described above.
            The default, 1, gives it the body of one.",
        set: |settings, value| assign(&mut settings.batch, number(value, 1..=MOST_BATCH)),
        ..Opt::BLANK
    },
    Opt {
        long: "each-server",
        doc_short: "run: serve each of the servers, not the first that answers",
        doc_long: "
            For
            .Cm run :
            run as many commands as
            .Fl -parallel
            says for each server, where each has queues of its own.
            Otherwise all are for the first that answers.",
        set: |settings, _| assign(&mut settings.each_server, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        short: "q",
        long: "quiet",
        doc_short: "run: say nothing of jobs that are done or given back",
        doc_long: "
            For
            .Cm run :
            say nothing of jobs that are done or given back.",
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
            which wants a name that ends in
            .Pa .prom .",
        set_bytes: Some(|settings, value| {
            assign(&mut settings.textfile, Ok(Some(PathBuf::from(OsStr::from_bytes(value)))))
        }),
        ..Opt::BLANK
    },
    Opt {
        long: "timeout",
        hint: "SECONDS",
        doc_short: "run: end a command that takes longer, so that its job fails; 0 for never (default: 3600)",
        doc_long: "
            For
            .Cm run :
            how long a command may take; with
            .Fl -batch ,
            how long until its first or next answer.
            The job's TTR is touched as long as it runs, so nothing else ends one that hangs.
            Its process group is terminated then, and killed 5 seconds later, and the job has failed.
            0 means never; the default is 3600.",
        set: |settings, value| assign(&mut settings.timeout, seconds(value).map(or_forever)),
        ..Opt::BLANK
    },
    Opt {
        long: "delay",
        hint: "SECONDS",
        doc_short: "put: until it can be reserved (default: 0); run: until a job that failed is tried again (default: 10)",
        doc_long: "
            For
            .Cm put :
            how long nobody can reserve the job; the default is 0.
            For
            .Cm run :
            how long a job that has failed waits at least until it is tried again; the default is 10.
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
            It counts as a failure, and its text is kept; a server that does not know that buries it without.
            May be given several times.",
        repeats: true,
        set: |settings, value| number(value, 1..=u8::MAX).map(|status| settings.bury_on.push(status)),
        ..Opt::BLANK
    },
    Opt {
        long: "on-lost",
        hint: "warn|term|kill",
        doc_short: "run: when others have been given the job, only say so, or terminate or kill its command (default: term)",
        doc_long: "
            For
            .Cm run :
            what becomes of a command whose connection is lost, so that its job is given to others.
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
        doc_short: "run: after SIGTERM, let commands finish for so long, then give their jobs back (default: 60)",
        doc_long: "
            For
            .Cm run :
            how long commands may go on after a
            .Dv SIGTERM
            until they are terminated and their jobs given back.
            The default is 60.",
        set: |settings, value| assign(&mut settings.grace, seconds(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "name",
        hint: "NAME",
        doc_short: "run: the runner's name for operators (default: USER@HOST:PID)",
        doc_long: "
            For
            .Cm run :
            the runner's name in
            .Ql summary runner
            and on the status page: 1 to 64 bytes without spaces.
            The default is
            .Ql user@host:pid .",
        set: |settings, value| assign(&mut settings.name, Ok(Some(value.into()))),
        ..Opt::BLANK
    },
    Opt {
        long: "pri",
        hint: "N",
        doc_short: "put: jobs with a lower number are reserved first (default: 65536)",
        doc_long: "
            For
            .Cm put :
            the job's priority.
            Jobs with a lower number are reserved first; the default is 65536.",
        set: |settings, value| assign(&mut settings.pri, number(value, 0..=u32::MAX)),
        ..Opt::BLANK
    },
    Opt {
        long: "ttr",
        hint: "SECONDS",
        doc_short: "put: how long a runner may be silent until others are given the job (default: 60)",
        doc_long: "
            For
            .Cm put :
            how long a runner may be silent until the job is given to others.
            The default is 60.",
        set: |settings, value| assign(&mut settings.ttr, seconds(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "key",
        hint: "KEY",
        doc_short: "put: not if a job with this key waits in the tube already",
        doc_long: "
            For
            .Cm put :
            a key without spaces.
            While a job with the same key waits in the tube, no other is put, and the answer is
            .Li DUPLICATE .",
        set_bytes: Some(|settings, value| assign(&mut settings.extras.key, Ok(Some(value.into())))),
        ..Opt::BLANK
    },
    Opt {
        long: "until-deleted",
        doc_short: "put: the key counts until the job is deleted, not only while it waits",
        doc_long: "
            For
            .Cm put :
            the key keeps others out until the job is deleted, not only while it waits.",
        set: |settings, _| assign(&mut settings.extras.until, Ok(Until::Deleted)),
        ..Opt::BLANK
    },
    Opt {
        long: "group",
        hint: "NAME",
        doc_short: "put: the group whose jobs a limit counts",
        doc_long: "
            For
            .Cm put :
            the group whose jobs a limit counts.",
        set_bytes: Some(|settings, value| assign(&mut settings.extras.group, Ok(Some(value.into())))),
        ..Opt::BLANK
    },
    Opt {
        long: "root",
        hint: "SIGNATURE",
        doc_short: "put: the root job that it belongs to; a newer root drops it",
        doc_long: "
            For
            .Cm put ,
            with
            .Fl -root-ts :
            the signature of the root job that it belongs to.
            It is dropped when a newer root job is known.",
        set_bytes: Some(|settings, value| {
            // The timestamp is another option, which may stand before or after it.
            assign(&mut settings.extras.root, Ok(Some((value.into(), 0))))
        }),
        ..Opt::BLANK
    },
    Opt {
        long: "root-ts",
        hint: "N",
        doc_short: "put: the timestamp of that root job",
        doc_long: "
            For
            .Cm put :
            the timestamp of that root job, a number.",
        set: |settings, value| assign(&mut settings.root_timestamp, number(value, 0..=u64::MAX).map(Some)),
        ..Opt::BLANK
    },
    Opt {
        long: "lines",
        doc_short: "put: each line of the standard input is a job",
        doc_long: "
            For
            .Cm put :
            each line of the standard input is a job, without its end.",
        set: |settings, _| assign(&mut settings.by_line, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "limit",
        hint: "N",
        doc_short: "list: so many jobs at most (default: 100)",
        doc_long: "
            For
            .Cm list :
            how many jobs are printed at most, up to 1000; the default is 100.",
        set: |settings, value| assign(&mut settings.limit, number(value, 1..=1000)),
        ..Opt::BLANK
    },
    Opt {
        long: "error",
        doc_short: "list: print why jobs failed in full, and only of those that have",
        doc_long: "
            For
            .Cm list :
            print only jobs that have failed, each with its whole error.",
        set: |settings, _| assign(&mut settings.has_errors, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "all",
        doc_short: "kick: all jobs of a tube or pattern, or of all tubes",
        doc_long: "
            For
            .Cm kick :
            kick all jobs of a tube or pattern, or of all tubes if none is named.",
        set: |settings, _| assign(&mut settings.is_all, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "after",
        hint: "ID",
        doc_short: "list: only jobs with higher numbers",
        doc_long: "
            For
            .Cm list :
            only jobs with numbers above this one.",
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
            print JSON.",
        set: |settings, _| assign(&mut settings.is_json, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        long: "run",
        doc_short: "init-db: make the tables, instead of printing what makes them",
        doc_long: "
            For
            .Cm init-db :
            make the tables, instead of printing what makes them.",
        set: |settings, _| assign(&mut settings.is_run, Ok(true)),
        ..Opt::BLANK
    },
    Opt {
        doc_short: "a server of the queue, or unix:PATH; of several, the first that answers (default: localhost)",
        doc_long: "
            A server of the queue.
            May be given several times; the first that answers is asked.",
        ..Opt::SERVER
    },
    Opt::TLS,
    Opt::VERSION,
    Opt::HELP,
];

/// The table's rows, without what they set.
pub fn described() -> Vec<Opt<()>> {
    OPTIONS.iter().map(Opt::describe).collect()
}

fn or_forever(time: Duration) -> Duration {
    if time.is_zero() { FOREVER } else { time }
}
