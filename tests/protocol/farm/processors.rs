//! The processors of one web server: all that runs there shares them equally, and nothing runs faster than one processor allows.

use std::collections::BTreeSet;

/// So many steps of progress are one microsecond of a processor.
const STEPS: u64 = 1_000;

/// What runs on a server, by number. Times are in microseconds.
#[derive(Default)]
pub struct Processors {
    /// How much processor time each job has had that runs since the start, in steps: all get the same.
    served: u64,
    /// Until when that is counted.
    counted_until: u64,
    /// When `served` has come so far, the job is done.
    jobs: BTreeSet<(u64, u64)>,
}

/// How many processors a server has.
pub const PROCESSORS: u64 = 16;

/// A job that runs, to be taken off before its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Running(u64, u64);

impl Processors {
    /// The processors of a server that is up since then.
    pub fn new(now: u64) -> Processors {
        Processors { counted_until: now, ..Processors::default() }
    }

    /// Begins a job that needs so much of a processor.
    pub fn begin(&mut self, job: u64, work_us: u64, now: u64) -> Running {
        self.count_until(now);
        let done_at = self.served + work_us * STEPS;
        self.jobs.insert((done_at, job));
        Running(done_at, job)
    }

    /// Takes a job off before it is done.
    pub fn stop(&mut self, Running(done_at, job): Running, now: u64) {
        self.count_until(now);
        assert!(self.jobs.remove(&(done_at, job)), "it runs");
    }

    /// When the next job is done, unless something begins before.
    pub fn next_end(&self) -> Option<u64> {
        let (done_at, _) = self.jobs.first()?;
        let sharing = self.sharing();
        let left = done_at.saturating_sub(self.served);
        Some(self.counted_until + (left * sharing).div_ceil(PROCESSORS * STEPS))
    }

    /// Takes off the job that is done now.
    pub fn take_ended(&mut self, now: u64) -> Option<u64> {
        self.count_until(now);
        let (done_at, job) = *self.jobs.first()?;
        (done_at <= self.served).then(|| self.jobs.remove(&(done_at, job)))?;
        Some(job)
    }

    /// What of a job's work is left undone, in microseconds.
    pub fn left_us(&mut self, Running(done_at, _): Running, now: u64) -> u64 {
        self.count_until(now);
        done_at.saturating_sub(self.served) / STEPS
    }

    fn count_until(&mut self, now: u64) {
        let passed = now - self.counted_until;
        self.served += passed * STEPS * PROCESSORS / self.sharing();
        self.counted_until = now;
    }

    /// Among how many the processors are shared: fewer jobs than processors have one each.
    fn sharing(&self) -> u64 {
        PROCESSORS.max(self.jobs.len() as u64)
    }
}
