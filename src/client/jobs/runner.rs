//! Runner of jobs: watches tubes, reserves jobs and reports their results.

use super::replies::{
    NumberAndBody, expect, expect_held, if_found, line, read_job, read_many, read_reserved, read_status,
};
use super::session::JobSession;
use super::{JobStatus, Reservation, ReservedJob, checked, pattern_of, whole_seconds};
use crate::connection::ClientConnection;
use crate::error::{Error, Stop};
use crate::{LONGEST, Said, Timeouts};
use poolcounter_protocol::jobs::request::JobId;
use poolcounter_protocol::jobs::wire::client as wire;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Longest failure reason, in bytes; longer ones are cut.
const LONGEST_REASON: usize = 4096;

/// Runner: a connection on which jobs are reserved. Connects on first use, and again after the connection was lost,
/// with the same watches. The server then gives the jobs of the lost connection to other runners; requests for them
/// fail with [`Error::Lost`]. On drop, the server releases its jobs at once.
#[derive(Debug)]
pub struct Runner {
    pub(crate) session: JobSession,
}

impl Runner {
    /// Returns a runner for the first of these servers that replies: `HOST`, `HOST:PORT` or `unix:PATH`. It watches
    /// `default`.
    pub fn new(servers: impl IntoIterator<Item = impl Into<String>>, timeouts: Timeouts) -> Runner {
        Runner { session: JobSession::new(servers, timeouts) }
    }

    /// Returns true if the server supports the extensions to beanstalkd. Asked once per connection.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`].
    pub fn is_extended(&mut self) -> Result<bool, Error> {
        self.session.is_extended()
    }

    /// Sets this runner's name, which operators see: 1 to 64 bytes without spaces.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`]; [`Error::NoExtension`]; the errors of [`Runner::reserve`].
    pub fn identify(&mut self, name: impl AsRef<[u8]>) -> Result<(), Error> {
        let name = checked("the name", name.as_ref(), wire::is_group)?;
        self.session.identify(name)
    }

    /// Watches a tube, or all tubes of a pattern including future ones, and returns the number of watches. With a
    /// pattern or a weight, tubes whose first jobs have the same priority take turns in proportion to their weights (1
    /// to 1000); without, the job with the lowest number comes first.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] for an invalid pattern; [`Error::NoExtension`] for a pattern or weight; the errors of
    /// [`Runner::reserve`].
    pub fn watch(&mut self, pattern: &str, weight: Option<u16>) -> Result<usize, Error> {
        self.check_pattern(pattern)?;
        if weight.is_some() {
            self.session.require("put-job").map_err(|_| Error::NoExtension("watch with a weight"))?;
        }
        self.session.watch(pattern, weight)
    }

    /// Removes a watch, and returns the number of watches.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `NOT_IGNORED` for the last watch; the errors of [`Runner::watch`].
    pub fn ignore(&mut self, pattern: &str) -> Result<usize, Error> {
        self.check_pattern(pattern)?;
        self.session.ignore(pattern)
    }

    /// Reserves the next job of the watched tubes, and waits for one up to `timeout` (whole seconds, rounded up; None:
    /// no limit).
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] without a connection if no server replies; [`Error::Lost`] if the connection is lost
    /// during the wait; [`Error::Refused`].
    pub fn reserve(&mut self, timeout: Option<Duration>) -> Result<Reservation, Error> {
        let wait = timeout.map_or(LONGEST, whole_timeout);
        let reply = self.session.ask_waiting(reserve_request(timeout), wait, read_reserved)?;
        Ok(reply.map(|job| self.reserved(job)))
    }

    /// Reserves up to `most` jobs, at most 1000, and waits for the first only. The loss of a job costs an attempt only
    /// after [`Runner::begin`].
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; the errors of [`Runner::reserve`].
    pub fn reserve_many(&mut self, most: u32, timeout: Duration) -> Result<Reservation<Vec<ReservedJob>>, Error> {
        self.session.require("reserve-many")?;
        let timeout = whole_timeout(timeout);
        let reply =
            self.session.ask_waiting(format!("reserve-many {most} {}", timeout.as_secs()), timeout, read_many)?;
        Ok(reply.map(|jobs| jobs.into_iter().map(|job| self.reserved(job)).collect()))
    }

    /// Reserves the job of this number, in any tube; None if it does not exist or another runner has it.
    ///
    /// # Errors
    ///
    /// The errors of [`Runner::reserve`].
    pub fn reserve_job(&mut self, id: JobId) -> Result<Option<ReservedJob>, Error> {
        let reply = self.session.ask(format!("reserve-job {id}"), |connection, line| {
            if_found(line, |line| read_job(connection, line, "RESERVED"))
        })?;
        Ok(reply.map(|job| self.reserved(job)))
    }

    /// Starts a reserve, for a program with its own event loop: [`Runner::reserved_within`] returns the reply, once
    /// [`Runner::descriptor`] is readable. Until then no other request is possible.
    ///
    /// # Errors
    ///
    /// The errors of [`Runner::reserve`].
    pub fn begin_reserve(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        self.session.begin_reserve(reserve_request(timeout))
    }

    /// Returns the reply to the started reserve; None if it does not come within `timeout`.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] or [`Error::Refused`].
    pub fn reserved_within(&mut self, timeout: Duration) -> Result<Option<Reservation>, Error> {
        let reply = self.session.reply_within(timeout, read_reserved)?;
        Ok(reply.map(|reply| reply.map(|job| self.reserved(job))))
    }

    /// Returns the descriptor of the current connection, if any.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.session.descriptor()
    }

    /// Closes the connection; the server releases its jobs.
    pub fn close(&mut self) {
        self.session.close();
    }

    /// Restarts the job's TTR.
    ///
    /// # Errors
    ///
    /// [`Error::Expired`] if the TTR has run out, so that another runner may have the job; [`Error::Cancelled`] if it
    /// was cancelled, and the runner has a name; [`Error::Lost`] if the
    /// connection on which it was reserved is gone; [`Error::Refused`].
    pub fn touch(&mut self, job: &ReservedJob) -> Result<(), Error> {
        self.end(job, format!("touch {}", job.id), "TOUCHED")
    }

    /// Notes that the work on a job of [`Runner::reserve_many`] begins.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; the errors of [`Runner::touch`], with [`Error::Expired`] for a cancelled job.
    pub fn begin(&mut self, job: &ReservedJob) -> Result<(), Error> {
        self.check(job)?;
        self.session.require("begin")?;
        self.end(job, format!("begin {}", job.id), "BEGUN")
    }

    /// Deletes the job after success.
    ///
    /// # Errors
    ///
    /// The errors of [`Runner::touch`].
    pub fn delete(&mut self, job: &ReservedJob) -> Result<(), Error> {
        self.end(job, format!("delete {}", job.id), "DELETED")
    }

    /// Restarts the TTRs of several jobs in one request, and returns the result of each.
    ///
    /// # Errors
    ///
    /// The errors of [`Runner::touch`] that concern all of the jobs.
    pub fn touch_many(&mut self, jobs: &[&ReservedJob]) -> Result<Vec<Result<(), Error>>, Error> {
        self.ask_each(jobs, "touch", |_, line| expect_held(line, "TOUCHED"))
    }

    /// Deletes several jobs after success in one request, and returns the result of each.
    ///
    /// # Errors
    ///
    /// The errors of [`Runner::touch`] that concern all of the jobs.
    pub fn delete_many(&mut self, jobs: &[&ReservedJob]) -> Result<Vec<Result<(), Error>>, Error> {
        self.ask_each(jobs, "delete", |_, line| expect_held(line, "DELETED"))
    }

    /// Releases the job; it becomes ready after the delay. Without `pri` it keeps its priority.
    ///
    /// # Errors
    ///
    /// The errors of [`Runner::touch`].
    pub fn release(&mut self, job: &ReservedJob, pri: Option<u32>, delay: Duration) -> Result<(), Error> {
        let pri = self.pri_of(job, pri)?;
        self.end(job, format!("release {} {pri} {}", job.id, whole_seconds(delay)), "RELEASED")
    }

    /// Buries the job until it is kicked.
    ///
    /// # Errors
    ///
    /// The errors of [`Runner::touch`].
    pub fn bury(&mut self, job: &ReservedJob, pri: Option<u32>) -> Result<(), Error> {
        let pri = self.pri_of(job, pri)?;
        self.end(job, format!("bury {} {pri}", job.id), "BURIED")
    }

    /// Pauses the matching tubes for all runners, including future tubes; a server without that extension pauses only
    /// existing tubes.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] for an invalid pattern; [`Error::NoExtension`] for a pattern; the errors of [`Runner::reserve`].
    pub fn pause(&mut self, pattern: &str, time: Duration) -> Result<(), Error> {
        self.session.pause(pattern_of(pattern)?, time, false).map(drop)
    }

    /// Reports a failed attempt with its reason (cut at 4096 bytes). The job is retried after `delay`, or after the
    /// delay of the server's `retry` rule if that is longer. Returns true if it was the last attempt, so that the job
    /// was buried or moved to a dead-letter tube.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; the errors of [`Runner::touch`].
    pub fn fail(
        &mut self,
        job: &ReservedJob,
        pri: Option<u32>,
        delay: Duration,
        reason: impl AsRef<[u8]>,
    ) -> Result<bool, Error> {
        self.session.require("fail")?;
        self.tell_failure(job, pri, delay, reason.as_ref(), "")
    }

    /// Reports a failed attempt with its reason, and buries the job instead of retrying it.
    ///
    /// # Errors
    ///
    /// The errors of [`Runner::fail`].
    pub fn fail_and_bury(
        &mut self,
        job: &ReservedJob,
        pri: Option<u32>,
        reason: impl AsRef<[u8]>,
    ) -> Result<(), Error> {
        self.session.require("fail:bury")?;
        self.tell_failure(job, pri, Duration::ZERO, reason.as_ref(), " bury").map(drop)
    }

    fn tell_failure(
        &mut self,
        job: &ReservedJob,
        pri: Option<u32>,
        delay: Duration,
        reason: &[u8],
        option: &str,
    ) -> Result<bool, Error> {
        self.check(job)?;
        let pri = self.pri_of(job, pri)?;
        let reason = &reason[..reason.len().min(LONGEST_REASON)];
        let line = format!("fail {} {pri} {} {}{option}\r\n", job.id, whole_seconds(delay), reason.len());
        self.session.ask([line.as_bytes(), reason].concat(), |_, line| match line {
            b"BURIED" => Ok(true),
            b"NOT_FOUND" => Err(Error::Expired.into()),
            line => expect(line, "RELEASED").map(|()| false),
        })
    }

    /// Returns the status of the job.
    ///
    /// # Errors
    ///
    /// The errors of [`Runner::touch`].
    pub fn status(&mut self, job: &ReservedJob) -> Result<JobStatus, Error> {
        self.check(job)?;
        self.session.ask(format!("stats-job {}", job.id), read_status)
    }

    /// Returns the status of several jobs, in one request.
    ///
    /// # Errors
    ///
    /// The errors of [`Runner::touch`] that concern all of the jobs.
    pub fn status_many(&mut self, jobs: &[&ReservedJob]) -> Result<Vec<Result<JobStatus, Error>>, Error> {
        self.ask_each(jobs, "stats-job", read_status)
    }

    /// Sends the same request for several jobs at once. A refused job does not affect the rest.
    fn ask_each<T>(
        &mut self,
        jobs: &[&ReservedJob],
        word: &str,
        read: impl Fn(&mut ClientConnection, &[u8]) -> Said<T>,
    ) -> Result<Vec<Result<T, Error>>, Error> {
        jobs.iter().try_for_each(|job| self.check(job))?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let requests: Vec<String> = jobs.iter().map(|job| format!("{word} {}", job.id)).collect();
        self.session.ask(requests.join("\r\n"), |connection, first| {
            let mut told = vec![Stop::split(read(connection, first))?];
            while told.len() < jobs.len() {
                connection.next_reply();
                let next = line(connection)?;
                told.push(Stop::split(read(connection, &next))?);
            }
            Ok(told)
        })
    }

    fn pri_of(&mut self, job: &ReservedJob, pri: Option<u32>) -> Result<u32, Error> {
        pri.map_or_else(|| Ok(self.status(job)?.pri), Ok)
    }

    fn end(&mut self, job: &ReservedJob, request: String, word: &str) -> Result<(), Error> {
        self.check(job)?;
        self.session.ask(request, |_, line| {
            // A beanstalkd without memory buries a job that it cannot queue.
            if line == b"BURIED" { Ok(()) } else { expect_held(line, word) }
        })
    }

    /// Fails if the job was reserved on an earlier connection.
    fn check(&self, job: &ReservedJob) -> Result<(), Error> {
        if self.session.number() == Some(job.connection) { Ok(()) } else { Err(Error::Lost) }
    }

    /// Fails for an invalid pattern, and for a pattern with `*` if the server lacks the extension.
    fn check_pattern(&mut self, pattern: &str) -> Result<(), Error> {
        if wire::is_plain(pattern_of(pattern)?.as_bytes()) {
            return Ok(());
        }
        self.session.require("put-job").map_err(|error| match error {
            Error::NoExtension(_) => Error::NoExtension("watch with a pattern"),
            error => error,
        })
    }

    /// Returns a job that the current connection has just reserved.
    fn reserved(&self, (id, body): NumberAndBody) -> ReservedJob {
        let connection = self.session.number().expect("what it has just replied leaves the connection open");
        ReservedJob { id, body, connection }
    }
}

impl<T> Reservation<T> {
    pub(super) fn map<U>(self, with: impl FnOnce(T) -> U) -> Reservation<U> {
        match self {
            Reservation::Reserved(reserved) => Reservation::Reserved(with(reserved)),
            Reservation::TimedOut => Reservation::TimedOut,
            Reservation::DeadlineSoon => Reservation::DeadlineSoon,
        }
    }
}

/// Returns a timeout in whole seconds, capped at the longest that can be sent.
fn whole_timeout(timeout: Duration) -> Duration {
    Duration::from_secs(whole_seconds(timeout).min(i32::MAX as u32).into())
}

fn reserve_request(timeout: Option<Duration>) -> String {
    let timed = |timeout| format!("reserve-with-timeout {}", whole_timeout(timeout).as_secs());
    timeout.map_or("reserve".into(), timed)
}
