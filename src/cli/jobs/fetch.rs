//! Connections of a slot: one waits for jobs of all watched tubes, the other fetches more jobs of the same tube, at
//! most as many as the command does in a second.

use super::plan::Plan;
use poolcounter_client::{Error, JobStatus, Reservation, ReservedJob, Runner};
use std::hash::{DefaultHasher, Hasher};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Tube that a new connection watches.
const DEFAULT_TUBE: &str = "default";

/// Reserved job.
pub struct HeldJob {
    pub job: ReservedJob,
    pub status: JobStatus,
    /// True if it was reserved for a running command, on the connection `fetching`.
    pub is_fetched: bool,
    /// Hash of its body, to recognise the job later.
    fingerprint: u64,
}

impl HeldJob {
    pub fn new(job: ReservedJob, status: JobStatus, is_fetched: bool) -> HeldJob {
        let fingerprint = fingerprint(&job.body);
        HeldJob { job, status, is_fetched, fingerprint }
    }
}

fn fingerprint(body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(body);
    hasher.finish()
}

/// Connections of a slot.
pub struct SlotConnections<'a> {
    plan: &'a Plan<'a>,
    servers: Vec<String>,
    /// Connection that waits for the first job.
    pub waiting: Runner,
    /// Connection that fetches more jobs of the same tube. It watches only plain names: to change the watches of
    /// `waiting` for each batch would cost the server time proportional to the number of tubes.
    fetching: Runner,
    /// Tube that `fetching` watches.
    fetched: String,
    /// True if `waiting` has its name and its watches.
    is_set_up: bool,
}

impl<'a> SlotConnections<'a> {
    /// Returns both connections, not connected yet.
    pub fn new(plan: &'a Plan<'a>, servers: &[String]) -> SlotConnections<'a> {
        let runner = || plan.settings.servers.runner_of(servers);
        SlotConnections {
            plan,
            servers: servers.into(),
            waiting: runner(),
            fetching: runner(),
            fetched: DEFAULT_TUBE.into(),
            is_set_up: false,
        }
    }

    /// Sets the name and the watches of the first connection.
    pub fn set_up(&mut self) -> Result<(), Error> {
        // The runner itself restores them on each new connection.
        if self.is_set_up {
            return Ok(());
        }
        let runner = &mut self.waiting;
        if runner.is_extended()? {
            runner.identify(&self.plan.name)?;
        }
        for (pattern, weight) in &self.plan.watches {
            runner.watch(pattern, *weight)?;
        }
        if !self.plan.watches.iter().any(|(pattern, _)| *pattern == DEFAULT_TUBE) {
            runner.ignore(DEFAULT_TUBE)?;
        }
        self.is_set_up = true;
        Ok(())
    }

    /// Reserves up to `most` more jobs of a tube, without waiting. Returns none after a failure.
    pub fn fetch(&mut self, tube: &str, most: u32) -> Vec<HeldJob> {
        let fetched = self.try_fetch(tube, most).unwrap_or_else(|_| {
            // Its watches are unknown after the failure.
            self.fetching = self.plan.settings.servers.runner_of(&self.servers);
            self.fetched = DEFAULT_TUBE.into();
            Vec::new()
        });
        fetched.into_iter().map(|(job, status)| HeldJob::new(job, status, true)).collect()
    }

    fn try_fetch(&mut self, tube: &str, most: u32) -> Result<Vec<(ReservedJob, JobStatus)>, Error> {
        let runner = &mut self.fetching;
        if self.fetched != tube {
            if runner.is_extended()? {
                runner.identify(&self.plan.name)?;
            }
            runner.watch(tube, None)?;
            runner.ignore(&self.fetched)?;
            self.fetched = tube.into();
        }
        let jobs = match runner.reserve_many(most, Duration::ZERO) {
            Ok(Reservation::Reserved(jobs)) => jobs,
            Ok(Reservation::TimedOut | Reservation::DeadlineSoon) => return Ok(Vec::new()),
            Err(Error::NoExtension(_)) => one_by_one(runner, most)?,
            Err(error) if is_limit(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let told = runner.status_many(&jobs.iter().collect::<Vec<_>>())?;
        let known = |(job, status)| match status {
            // Its TTR is over.
            Err(Error::Expired) => None,
            status => Some(status.map(|status| (job, status))),
        };
        jobs.into_iter().zip(told).filter_map(known).collect()
    }

    /// Returns the connection on which a job is reserved.
    pub fn of(&mut self, held: &HeldJob) -> &mut Runner {
        if held.is_fetched { &mut self.fetching } else { &mut self.waiting }
    }

    /// Returns both connections, each with the `is_fetched` of the jobs reserved on it.
    pub fn both(&mut self) -> [(bool, &mut Runner); 2] {
        [(false, &mut self.waiting), (true, &mut self.fetching)]
    }

    /// Reserves a job again after its connection was lost. Returns false if it is done or taken, or if its number now
    /// belongs to another job, because the server has lost its state.
    pub fn take_back(&mut self, held: &mut HeldJob) -> Result<bool, Error> {
        let runner = &mut self.waiting;
        let Some(mut job) = runner.reserve_job(held.job.id)? else { return Ok(false) };
        let status = runner.status(&job)?;
        if status.tube != held.status.tube || fingerprint(&job.body) != held.fingerprint {
            runner.release(&job, Some(status.pri), Duration::ZERO)?;
            return Ok(false);
        }
        job.body = Vec::new();
        (held.job, held.is_fetched) = (job, false);
        Ok(true)
    }

    /// Returns the descriptors of the first connection if `is_waiting`, and of the second if `is_fetching`. A
    /// connection without reserved jobs may have been closed long ago, and must not be polled.
    pub fn descriptors(&self, is_waiting: bool, is_fetching: bool) -> Vec<BorrowedFd<'_>> {
        let polled = [(is_waiting, &self.waiting), (is_fetching, &self.fetching)];
        polled.into_iter().filter(|(is_polled, _)| *is_polled).filter_map(|(_, runner)| runner.descriptor()).collect()
    }

    /// Closes both connections.
    pub fn close(&mut self) {
        self.waiting.close();
        self.fetching.close();
    }
}

/// Returns true for the refusal of a request beyond a limit of the rule, or of the server's memory, which may pass.
pub fn is_limit(error: &Error) -> bool {
    matches!(error, Error::Refused(words) if words == "OUT_OF_MEMORY")
}

/// Reserves up to `most` jobs from a plain beanstalkd, one at a time.
fn one_by_one(runner: &mut Runner, most: u32) -> Result<Vec<ReservedJob>, Error> {
    let mut jobs = Vec::new();
    while jobs.len() < most as usize
        && let Reservation::Reserved(job) = runner.reserve(Some(Duration::ZERO))?
    {
        jobs.push(job);
    }
    Ok(jobs)
}

/// Limit of jobs that can be reserved at once.
const MOST_AHEAD: u32 = 1000;

/// Number of jobs given to a command, and the mean time of the last jobs.
pub struct Pace {
    pub given: u32,
    /// Mean time; None before the first answer.
    mean: Option<Duration>,
}

impl Pace {
    /// Returns the pace after the first job was given.
    pub fn begin() -> Pace {
        Pace { given: 1, mean: None }
    }

    /// Updates the mean with the time of a job.
    pub fn note(&mut self, took: Duration) {
        self.mean = Some(self.mean.map_or(took, |mean| (mean * 3 + took) / 4));
    }

    /// Returns the number of jobs that the command may have, including the one in progress: the jobs of one second, at
    /// least one.
    pub fn window(&self) -> u32 {
        let in_a_second = self.mean.map_or(1, |mean| 1_000_000 / mean.as_micros().max(1));
        u32::try_from(in_a_second).unwrap_or(u32::MAX).clamp(1, MOST_AHEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_jobs_are_reserved_one_at_a_time() {
        let mut pace = Pace::begin();
        assert_eq!(pace.window(), 1);
        for (ms, window) in [(10, 100), (10, 100), (1000, 3), (3000, 1), (0, 1), (0, 1), (0, 2)] {
            pace.note(Duration::from_millis(ms));
            assert_eq!(pace.window(), window, "{ms} ms");
        }
        let mut fast = Pace::begin();
        fast.note(Duration::ZERO);
        assert_eq!(fast.window(), MOST_AHEAD);
    }
}
