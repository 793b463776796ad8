//! The connections of a slot: one waits for jobs of all that is watched, the other takes more of the same tube.

use super::plan::Plan;
use poolcounter_client::{Error, JobStatus, Reservation, ReservedJob, Runner};
use std::hash::{DefaultHasher, Hasher};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The tube that a new connection watches.
const DEFAULT_TUBE: &str = "default";

/// A job that is reserved.
pub struct HeldJob {
    pub job: ReservedJob,
    pub status: JobStatus,
    /// True when it was taken for a command that runs, on the connection for that.
    pub is_fetched: bool,
    /// Hash of its body, by which it is known again.
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

/// A slot's connections.
pub struct SlotConnections<'a> {
    plan: &'a Plan<'a>,
    servers: Vec<String>,
    /// It waits for the first job.
    pub waiting: Runner,
    /// It takes more of the tube of the first. Its watches are plain names only: to change those of `waiting` for each batch
    /// would cost the server as much as there are tubes.
    fetching: Runner,
    /// What that one watches.
    fetched: String,
    /// Whether `waiting` has its name and its watches.
    is_set_up: bool,
}

impl<'a> SlotConnections<'a> {
    /// Nothing is connected yet.
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

    /// Has the first connection watch what the runner is about.
    pub fn set_up(&mut self) -> Result<(), Error> {
        // What it was told once, it tells each new connection.
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

    /// Reserves up to so many more jobs of a tube, without waiting. If something fails there are none, and it is tried again for
    /// the next.
    pub fn fetch(&mut self, tube: &str, most: u32) -> Vec<HeldJob> {
        let fetched = self.try_fetch(tube, most).unwrap_or_else(|_| {
            // What it watches now is not known.
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
            Err(error) => return Err(error),
        };
        let told = runner.status_many(&jobs.iter().collect::<Vec<_>>())?;
        // Of one that is unknown the TTR is over already.
        Ok(jobs.into_iter().zip(told).filter_map(|(job, status)| Some((job, status.ok()?))).collect())
    }

    /// The connection on which a job is reserved.
    pub fn of(&mut self, held: &HeldJob) -> &mut Runner {
        if held.is_fetched { &mut self.fetching } else { &mut self.waiting }
    }

    /// Both connections, and whether jobs of the first or of the second are reserved on it.
    pub fn both(&mut self) -> [(bool, &mut Runner); 2] {
        [(false, &mut self.waiting), (true, &mut self.fetching)]
    }

    /// Reserves a job again, which was held by a connection that is lost, and returns whether that went well: it may be done, others
    /// may have it, and a server that has lost all may have given its number to another.
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

    /// The descriptors of the first if `is_waiting`, and of the second if `is_fetching`. One on which nothing is reserved may be closed
    /// for long, and is not to be polled.
    pub fn descriptors(&self, is_waiting: bool, is_fetching: bool) -> Vec<BorrowedFd<'_>> {
        let polled = [(is_waiting, &self.waiting), (is_fetching, &self.fetching)];
        polled.into_iter().filter(|(is_polled, _)| *is_polled).filter_map(|(_, runner)| runner.descriptor()).collect()
    }

    /// Gives up both connections.
    pub fn close(&mut self) {
        self.waiting.close();
        self.fetching.close();
    }
}

/// The same from a beanstalkd, which gives one at a time.
fn one_by_one(runner: &mut Runner, most: u32) -> Result<Vec<ReservedJob>, Error> {
    let mut jobs = Vec::new();
    while jobs.len() < most as usize
        && let Reservation::Reserved(job) = runner.reserve(Some(Duration::ZERO))?
    {
        jobs.push(job);
    }
    Ok(jobs)
}
