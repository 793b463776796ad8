//! What the options of `jobs` say.

use crate::run_child::OnLost;
use crate::servers::Servers;
use poolcounter_client::{JobExtras, JobId, NewJob};
use std::path::PathBuf;
use std::time::Duration;

/// Settings that the options make.
pub struct JobCommandSettings {
    pub servers: Servers,
    pub(super) pri: u32,
    /// None for that of the request.
    pub(super) delay: Option<Duration>,
    pub(super) ttr: Duration,
    pub(super) extras: JobExtras,
    /// The timestamp of the root.
    pub(super) root_timestamp: Option<u64>,
    pub by_line: bool,
    /// What is watched besides the words of the command line.
    pub watches: Vec<String>,
    /// How many commands run at a time, at each server if each has its own.
    pub parallel: usize,
    /// Whether that many run for each server, instead of for the first that answers.
    pub each_server: bool,
    /// How many jobs a command gets at most.
    pub batch: u32,
    pub is_quiet: bool,
    /// Where metrics are written.
    pub textfile: Option<PathBuf>,
    pub timeout: Duration,
    pub grace: Duration,
    /// The statuses after which a job is buried.
    pub bury_on: Vec<u8>,
    pub on_lost: OnLost,
    pub name: Option<String>,
    pub is_json: bool,
    /// Whether the tables are made, and not only shown.
    pub is_run: bool,
    /// True when a name is a pattern even if it is a number, and no name stands for all tubes.
    pub is_all: bool,
    /// True when errors are printed whole.
    pub has_errors: bool,
    pub limit: u32,
    pub after: Option<JobId>,
}

/// How long a job that has failed waits at least.
const DELAY_OF_FAILED: Duration = Duration::from_secs(10);

impl JobCommandSettings {
    /// Returns whether a root job has both its signature and its timestamp, or neither.
    pub fn has_whole_root(&self) -> bool {
        self.extras.root.is_some() == self.root_timestamp.is_some()
    }

    /// Returns a job as the options describe it, without a body.
    pub fn job(&self, tube: &str) -> NewJob {
        let mut extras = self.extras.clone();
        if let (Some((_, timestamp)), Some(given)) = (&mut extras.root, self.root_timestamp) {
            *timestamp = given;
        }
        let delay = self.delay.unwrap_or_default();
        NewJob { tube: Some(tube.into()), pri: self.pri, delay, ttr: self.ttr, extras, ..NewJob::new("") }
    }

    /// How long a job that has failed waits at least.
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
