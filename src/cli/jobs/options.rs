//! Options of the requests of `jobs` that inspect and manage a queue.

use crate::servers::{Servers, has_part, json_option, server_option, tls_option};
use poolcounter_client::JobId;
use poolcounter_service::options::{Opt, assign, number, option_table};

/// Settings of the requests.
#[derive(Default)]
pub struct JobsCommandSettings {
    pub servers: Servers,
    /// True if the tables are created instead of printed.
    pub is_run: bool,
    /// True if a number is taken as a pattern, and no name stands for all tubes.
    pub is_all: bool,
    /// True if errors are printed in full.
    pub has_errors: bool,
    /// Maximum number of jobs in a list.
    pub limit: u32,
    pub after: Option<JobId>,
}

/// Description of the option for the servers of a queue.
pub const QUEUE_SERVER: &str = "A server of the queue, or tls:HOST[:PORT], or unix:PATH; \
    repeatable, the first that answers is used (default: POOLCOUNTER_SERVERS in the environment, or localhost).";

/// Options of the requests.
pub const OPTIONS: &[Opt<JobsCommandSettings>] = option_table!(JobsCommandSettings;
    "--limit N", "For list: maximum number of jobs, up to 1000 (default: 100).",
        |settings, value| assign(&mut settings.limit, number(value, 1..=1000));
    "--error", "For list: print only failed jobs, in any state if none is named, each with its whole error.",
        |settings, _| assign(&mut settings.has_errors, Ok(true));
    "--all", "For kick: kick all buried jobs of a tube or pattern, or of all tubes if none is named.",
        |settings, _| assign(&mut settings.is_all, Ok(true));
    "--after ID", "For list: print only jobs with numbers above this one.",
        |settings, value| assign(&mut settings.after, number(value, 0..=u64::MAX).map(|id| Some(JobId(id))));
    => json_option(
        "For summary, list, show, stats, pause, retry, limit and dead-letter: print JSON. The output is a list of one \
         object: server, and summary, jobs, job, stats or settings.");
    "--run", "For init-db: create the tables, instead of printing the SQL.",
        |settings, _| assign(&mut settings.is_run, Ok(true));
    => server_option(QUEUE_SERVER); => tls_option();
);

has_part!(JobsCommandSettings, servers: Servers);
