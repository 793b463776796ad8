//! The processors of one web server: all running jobs share them equally, and none runs faster than one processor
//! allows.

use std::collections::BTreeSet;

/// Number of steps of progress in one microsecond of a processor.
const STEPS: u64 = 1_000;

/// Running jobs of a server, by number. Times are in microseconds.
#[derive(Default)]
pub struct Processors {
    /// Processor time of each job that has run since the start, in steps: all get the same.
    served: u64,
    /// Time up to which that is counted.
    counted_until: u64,
    /// Jobs, by the value of `served` at which each is done.
    jobs: BTreeSet<(u64, u64)>,
}

/// Number of processors of a server.
pub const PROCESSORS: u64 = 16;

/// Running job, for its removal before the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Running(u64, u64);

impl Processors {
    /// Returns the processors of a server that has been up since `now`.
    pub fn new(now: u64) -> Processors {
        Processors { counted_until: now, ..Processors::default() }
    }

    /// Starts a job that needs `work_us` microseconds of a processor.
    pub fn begin(&mut self, job: u64, work_us: u64, now: u64) -> Running {
        self.count_until(now);
        let done_at = self.served + work_us * STEPS;
        self.jobs.insert((done_at, job));
        Running(done_at, job)
    }

    /// Removes a job before it is done.
    pub fn stop(&mut self, Running(done_at, job): Running, now: u64) {
        self.count_until(now);
        assert!(self.jobs.remove(&(done_at, job)), "it runs");
    }

    /// Returns the time at which the next job is done, unless another starts before.
    pub fn next_end(&self) -> Option<u64> {
        let (done_at, _) = self.jobs.first()?;
        let sharing = self.sharing();
        let left = done_at.saturating_sub(self.served);
        Some(self.counted_until + (left * sharing).div_ceil(PROCESSORS * STEPS))
    }

    /// Removes the job that is done now.
    pub fn take_ended(&mut self, now: u64) -> Option<u64> {
        self.count_until(now);
        let (done_at, job) = *self.jobs.first()?;
        (done_at <= self.served).then(|| self.jobs.remove(&(done_at, job)))?;
        Some(job)
    }

    /// Returns the remaining work of a job, in microseconds.
    pub fn left_us(&mut self, Running(done_at, _): Running, now: u64) -> u64 {
        self.count_until(now);
        done_at.saturating_sub(self.served) / STEPS
    }

    fn count_until(&mut self, now: u64) {
        let passed = now - self.counted_until;
        self.served += passed * STEPS * PROCESSORS / self.sharing();
        self.counted_until = now;
    }

    /// Returns the number of shares of the processors: fewer jobs than processors have one each.
    fn sharing(&self) -> u64 {
        PROCESSORS.max(self.jobs.len() as u64)
    }
}
