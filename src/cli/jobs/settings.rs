//! Settings of `jobs`, from its options.

use crate::run_child::OnLost;
use crate::servers::Servers;
use poolcounter_client::{JobExtras, JobId, NewJob};
use std::path::PathBuf;
use std::time::Duration;

/// Settings of the command.
pub struct JobCommandSettings {
    pub servers: Servers,
    pub(super) pri: u32,
    /// Delay; None for the default of the request.
    pub(super) delay: Option<Duration>,
    pub(super) ttr: Duration,
    pub(super) extras: JobExtras,
    /// Timestamp of the root job.
    pub(super) root_timestamp: Option<u64>,
    pub by_line: bool,
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
    pub grace: Duration,
    /// Exit statuses after which a job is buried.
    pub bury_on: Vec<u8>,
    pub on_lost: OnLost,
    pub name: Option<String>,
    pub is_json: bool,
    /// True if the tables are created instead of printed.
    pub is_run: bool,
    /// True if a number is taken as a pattern, and no name stands for all tubes.
    pub is_all: bool,
    /// True if errors are printed in full.
    pub has_errors: bool,
    pub limit: u32,
    pub after: Option<JobId>,
}

/// Default of the shortest delay after a failure.
const DELAY_OF_FAILED: Duration = Duration::from_secs(10);

impl JobCommandSettings {
    /// Returns true if signature and timestamp of a root job are both given, or neither.
    pub fn has_whole_root(&self) -> bool {
        self.extras.root.is_some() == self.root_timestamp.is_some()
    }

    /// Returns a job with the properties given by options, without a body.
    pub fn job(&self, tube: &str) -> NewJob {
        let mut extras = self.extras.clone();
        if let (Some((_, timestamp)), Some(given)) = (&mut extras.root, self.root_timestamp) {
            *timestamp = given;
        }
        let delay = self.delay.unwrap_or_default();
        NewJob { tube: Some(tube.into()), pri: self.pri, delay, ttr: self.ttr, extras, ..NewJob::new("") }
    }

    /// Returns the shortest delay after a failure.
    pub fn delay_of_failed(&self) -> Duration {
        self.delay.unwrap_or(DELAY_OF_FAILED)
    }
}

impl Default for JobCommandSettings {
    fn default() -> Self {
        let NewJob { pri, ttr, extras, .. } = NewJob::new("");
        JobCommandSettings {
            servers: Servers::default(),
            pri,
            delay: None,
            ttr,
            extras,
            root_timestamp: None,
            by_line: false,
            watches: Vec::new(),
            parallel: 1,
            each_server: false,
            batch: 1,
            is_quiet: false,
            textfile: None,
            timeout: Duration::from_secs(3600),
            grace: Duration::from_secs(60),
            bury_on: Vec::new(),
            on_lost: OnLost::Term,
            name: None,
            is_json: false,
            is_run: false,
            is_all: false,
            has_errors: false,
            limit: 100,
            after: None,
        }
    }
}

impl AsMut<Servers> for JobCommandSettings {
    fn as_mut(&mut self) -> &mut Servers {
        &mut self.servers
    }
}
