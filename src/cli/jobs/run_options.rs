//! Options of `jobs run`.

use super::options::QUEUE_SERVER;
use crate::run_child::OnLost;
use crate::servers::{Servers, has_part, server_option, tls_option};
use poolcounter_service::options::{Opt, assign, number, option_table, seconds};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

/// Limit of commands that run at a time: each has connections, a thread, a process and pipes.
const MOST_PARALLEL: usize = 1000;
/// Limit of jobs per command: that of one `reserve-many`.
const MOST_BATCH: u32 = 1000;
/// Longest `--timeout`, which counts as no limit.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// Settings of the command.
#[derive(Default)]
pub struct RunSettings {
    pub servers: Servers,
    /// Watches in addition to the words of the command line.
    pub watches: Vec<String>,
    /// Number of commands that run at a time; per server with `each_server`.
    pub parallel: usize,
    /// True if that many run for each server, instead of for the first that replies.
    pub each_server: bool,
    /// Limit of jobs per command.
    pub batch: u32,
    pub is_quiet: bool,
    /// Path of the metrics file.
    pub textfile: Option<PathBuf>,
    pub timeout: Duration,
    /// Minimum delay after a failure.
    pub delay: Duration,
    pub grace: Duration,
    /// Exit statuses after which a job is buried.
    pub bury_on: Vec<u8>,
    pub on_lost: OnLost,
    pub name: Option<String>,
}

/// Options of the command.
pub const OPTIONS: &[Opt<RunSettings>] = option_table!(RunSettings;
    "--watch PATTERN[:WEIGHT]", "Also run jobs of these tubes, like the tubes in the arguments; repeatable.",
        |settings, value| { settings.watches.push(value.into()); Ok(()) }, repeated();
    "-n, --parallel N",
        "Number of commands at a time (default: 1). Each command has a connection of its own, and a second one if it \
         takes batches.",
        |settings, value| assign(&mut settings.parallel, number(value, 1..=MOST_PARALLEL));
    "--batch N",
        "Give each command up to N jobs of one tube, one after the other, which it answers (default: 1). The answers \
         are described above. With 1 the command gets the body of one job.",
        |settings, value| assign(&mut settings.batch, number(value, 1..=MOST_BATCH));
    "--each-server",
        "Serve every server, not only the first that answers. For each server, which has queues of its own, as many \
         commands run as --parallel says.",
        |settings, _| assign(&mut settings.each_server, Ok(true));
    "-q, --quiet", "Print nothing about jobs that are done or given back.",
        |settings, _| assign(&mut settings.is_quiet, Ok(true));
    => Opt::of_bytes("--textfile PATH",
        "Write metrics to this file, for the textfile collector of Prometheus' node exporter. The file is written \
         every 10 seconds and at the end. The collector requires a name that ends in .prom.",
        |settings, value| assign(&mut settings.textfile, Ok(Some(PathBuf::from(OsStr::from_bytes(value))))));
    "--timeout SECONDS",
        "Time limit of a command, or of each answer of a command with --batch, after which the job fails; 0: never \
         (default: 3600). The process group of the command is terminated, and killed 5 seconds later. The TTR of the \
         job does not end a command that hangs, as the job is touched while the command runs.",
        |settings, value| assign(&mut settings.timeout, seconds(value).map(or_forever));
    "--delay SECONDS",
        "Minimum time until a failed job is tried again (default: 10). The time is rounded up to whole seconds, like \
         all times of jobs.",
        |settings, value| assign(&mut settings.delay, seconds(value));
    "--bury-on STATUS",
        "Bury the job when its command ends with this status, instead of trying it again; repeatable. It counts as a \
         failure, and its error is kept; a server without that extension buries the job without an error.",
        |settings, value| number(value, 1..=u8::MAX).map(|status| settings.bury_on.push(status)), repeated();
    "--on-lost warn|term|kill",
        "Action when the connection is lost and the job was given to another runner: only warn, or terminate or kill \
         the command (default: term).",
        |settings, value| assign(&mut settings.on_lost, OnLost::parse(value));
    "--grace SECONDS",
        "Time for commands to finish after SIGTERM, before they are terminated and their jobs given back (default: \
         60). The command of a cancelled job is killed that long after it was terminated.",
        |settings, value| assign(&mut settings.grace, seconds(value));
    "--name NAME",
        "Name of the runner for operators, in summary runner and on the status page (default: USER@HOST:PID). It is 1 \
         to 64 bytes without spaces.",
        |settings, value| match (1..=64).contains(&value.len()) && !value.contains([' ', '\r', '\n', '\0']) {
            true => assign(&mut settings.name, Ok(Some(value.into()))),
            false => Err("a name: 1 to 64 bytes without spaces and line ends".into()),
        };
    => server_option(QUEUE_SERVER); => tls_option();
);

fn or_forever(time: Duration) -> Duration {
    if time.is_zero() { FOREVER } else { time }
}

impl RunSettings {
    /// Returns the defaults.
    pub fn usual() -> RunSettings {
        let [timeout, delay, grace] = [3600, 10, 60].map(Duration::from_secs);
        RunSettings { parallel: 1, batch: 1, timeout, delay, grace, on_lost: OnLost::Term, ..RunSettings::default() }
    }
}

has_part!(RunSettings, servers: Servers);
