//! Progress of the reading of a store, in the log.

use log::info;
use std::time::{Duration, Instant};

/// Time between two lines of the log.
const LOG_EVERY: Duration = Duration::from_secs(2);

/// The reading of a store.
pub(super) struct Loading {
    place: String,
    begun: Instant,
    logged: Instant,
}

impl Loading {
    /// Starts the progress of the store at `place`.
    pub fn begin(place: String) -> Loading {
        let now = Instant::now();
        Loading { place, begun: now, logged: now }
    }

    /// Logs that a share of the store, 0 to 1, is read.
    pub fn note(&mut self, share: f64) {
        if self.logged.elapsed() > LOG_EVERY {
            self.logged = Instant::now();
            info!("{:.0} % of the jobs in {} are read", share * 100.0, self.place);
        }
    }

    /// Ends the progress and logs the number of jobs.
    pub fn end(self, jobs: usize) {
        let seconds = self.begun.elapsed().as_secs_f64();
        info!("the jobs are kept in {}: {jobs} were read in {seconds:.1} s", self.place);
    }
}
