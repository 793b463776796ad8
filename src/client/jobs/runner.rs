//! The runner's side of jobs: watch, reserve, and say what became of them.

use super::session::{JobSession, expect, expect_or_not_found, line};
use super::{JobStatus, Reservation, ReservedJob, checked, whole_seconds};
use crate::connection::ClientConnection;
use crate::error::Error;
use crate::{LONGEST, Said, Timeouts};
use poolcounter_protocol::jobs::request::JobId;
use poolcounter_protocol::jobs::wire::client as wire;
use std::os::fd::BorrowedFd;
use std::time::Duration;

mod replies;

use replies::{read_many, read_one, read_reserved, read_status};

/// How many jobs can be reserved at once.
const MANY: usize = 1000;
/// The longest text of a failure in bytes; more is cut off.
const LONGEST_REASON: usize = 4096;

/// A runner: a connection on which jobs are reserved. It connects when it is first used, and again after the connection was
/// lost, with the same watches; the jobs of the lost one are given to others, and whoever asks for one of them is told
/// [`Error::Lost`]. When this is dropped, the server gives its jobs to others at once.
#[derive(Debug)]
pub struct Runner {
    pub(crate) session: JobSession,
}

impl Runner {
    /// Returns a runner of the first of these servers that answers: `HOST`, `HOST:PORT` or `unix:PATH`. It watches `default`.
    pub fn new(servers: impl IntoIterator<Item = impl Into<String>>, timeouts: Timeouts) -> Runner {
        Runner { session: JobSession::new(servers.into_iter().map(Into::into).collect(), timeouts) }
    }

    /// Returns whether the server knows more than a plain beanstalkd. It was asked when the connection was made.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`].
    pub fn is_extended(&mut self) -> Result<bool, Error> {
        self.session.is_extended()
    }

    /// Tells the server this runner's name, 1 to 64 bytes without spaces, which its operators see.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`]; [`Error::NoExtension`]; those of [`Runner::reserve`].
    pub fn identify(&mut self, name: impl AsRef<[u8]>) -> Result<(), Error> {
        let name = checked(Some(name.as_ref()), wire::is_group)?;
        self.session.identify(name)
    }

    /// Watches a tube, or all tubes of a pattern, also those that come later, and returns how many watches there are. With a
    /// pattern or a weight, tubes whose first jobs have the same priority take turns, in proportion to the weights of 1 to 1000;
    /// without, the lowest number comes first.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`] for what is no pattern; [`Error::NoExtension`] for a pattern or weight; those of [`Runner::reserve`].
    pub fn watch(&mut self, pattern: &str, weight: Option<u16>) -> Result<usize, Error> {
        let session = &mut self.session;
        check_pattern(session, pattern)?;
        if weight.is_some() {
            session.require("put-job").map_err(|_| Error::NoExtension("watch with a weight"))?;
        }
        session.watch(pattern, weight)
    }

    /// Watches these tubes no more, and returns how many watches there are.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `NOT_IGNORED` for the last watch; those of [`Runner::watch`].
    pub fn ignore(&mut self, pattern: &str) -> Result<usize, Error> {
        let session = &mut self.session;
        check_pattern(session, pattern)?;
        session.ignore(pattern)
    }

    /// Reserves the next job of the tubes that are watched, and waits for one this long: in whole seconds, rounded up; None for
    /// as long as it takes.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when there is no connection and no server answers; [`Error::Lost`] when the connection is lost
    /// meanwhile; [`Error::Refused`].
    pub fn reserve(&mut self, timeout: Option<Duration>) -> Result<Reservation, Error> {
        let session = &mut self.session;
        let reply = session.ask(&reserve_line(timeout), wait_of(timeout), read_reserved)?;
        Ok(reply.map(|(id, body)| ReservedJob::new(id, body, number_of(session))))
    }

    /// Reserves up to `most` jobs, at most 1000, and waits for the first only.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; those of [`Runner::reserve`].
    pub fn reserve_many(&mut self, most: u32, timeout: Duration) -> Result<Reservation<Vec<ReservedJob>>, Error> {
        let session = &mut self.session;
        session.require("reserve-many")?;
        let request = format!("reserve-many {most} {}\r\n", timeout_of(timeout));
        let reply = session.ask(request.as_bytes(), wait_of(Some(timeout)), read_many)?;
        let number = number_of(session);
        let reserved = |(id, body)| ReservedJob::new(id, body, number);
        Ok(reply.map(|jobs| jobs.into_iter().map(reserved).collect()))
    }

    /// Reserves the job of this number, wherever it waits; None when there is none, or others have it.
    ///
    /// # Errors
    ///
    /// Those of [`Runner::reserve`].
    pub fn reserve_job(&mut self, id: JobId) -> Result<Option<ReservedJob>, Error> {
        let session = &mut self.session;
        let request = format!("reserve-job {id}\r\n");
        let reply = session.ask(request.as_bytes(), Duration::ZERO, |connection, line| match line {
            b"NOT_FOUND" => Ok(Ok(None)),
            line => Ok(read_one(connection, line)?.map(Some)),
        })?;
        Ok(reply.map(|(id, body)| ReservedJob::new(id, body, number_of(session))))
    }

    /// Begins a reserve, for a program with a loop of its own: [`Runner::reserved_within`] has its reply, once
    /// [`Runner::descriptor`] is readable. Until then nothing else can be asked.
    ///
    /// # Errors
    ///
    /// Those of [`Runner::reserve`].
    pub fn begin_reserve(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        self.session.begin_reserve(&reserve_line(timeout))
    }

    /// Returns the reply to the reserve that was begun; None when there is none within this time.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] or [`Error::Refused`].
    pub fn reserved_within(&mut self, timeout: Duration) -> Result<Option<Reservation>, Error> {
        let session = &mut self.session;
        let reply = session.reply_within(timeout, read_reserved)?;
        Ok(reply.map(|reply| reply.map(|(id, body)| ReservedJob::new(id, body, number_of(session)))))
    }

    /// Returns the descriptor of the present connection, if there is one.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.session.descriptor()
    }

    /// Gives up the connection; the server gives its jobs to others.
    pub fn close(&mut self) {
        self.session.close();
    }

    /// Has the job's TTR start anew.
    ///
    /// # Errors
    ///
    /// [`Error::Expired`] when the TTR has run out, so that others may have the job; [`Error::Lost`], if that is so because the
    /// connection on which it was reserved is gone; [`Error::Refused`].
    pub fn touch(&mut self, job: &ReservedJob) -> Result<(), Error> {
        self.end(job, &format!("touch {}\r\n", job.id), "TOUCHED")
    }

    /// Deletes the job, which is done.
    ///
    /// # Errors
    ///
    /// Those of [`Runner::touch`].
    pub fn delete(&mut self, job: &ReservedJob) -> Result<(), Error> {
        self.end(job, &format!("delete {}\r\n", job.id), "DELETED")
    }

    /// Has the TTRs of several jobs start anew, in one request, and returns for each whether that went well.
    ///
    /// # Errors
    ///
    /// Those of [`Runner::touch`], which concern all of them.
    pub fn touch_many(&mut self, jobs: &[&ReservedJob]) -> Result<Vec<Result<(), Error>>, Error> {
        self.end_each(jobs, "touch", "TOUCHED")
    }

    /// Deletes several jobs that are done, in one request, and returns for each whether that went well.
    ///
    /// # Errors
    ///
    /// Those of [`Runner::touch`], which concern all of them.
    pub fn delete_many(&mut self, jobs: &[&ReservedJob]) -> Result<Vec<Result<(), Error>>, Error> {
        self.end_each(jobs, "delete", "DELETED")
    }

    /// Gives the job back, to be reserved again after the delay. Without a priority it keeps the one that it has.
    ///
    /// # Errors
    ///
    /// Those of [`Runner::touch`].
    pub fn release(&mut self, job: &ReservedJob, pri: Option<u32>, delay: Duration) -> Result<(), Error> {
        let pri = self.pri_of(job, pri)?;
        let line = format!("release {} {pri} {}\r\n", job.id, whole_seconds(delay));
        self.end(job, &line, "RELEASED")
    }

    /// Buries the job, so that it waits until it is kicked.
    ///
    /// # Errors
    ///
    /// Those of [`Runner::touch`].
    pub fn bury(&mut self, job: &ReservedJob, pri: Option<u32>) -> Result<(), Error> {
        let pri = self.pri_of(job, pri)?;
        self.end(job, &format!("bury {} {pri}\r\n", job.id), "BURIED")
    }

    /// Pauses these tubes for this long, for all runners, and those that come later; a server that
    /// does not know that pauses the tubes that are there.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`] for what is no pattern; [`Error::NoExtension`] for a pattern; those of [`Runner::reserve`].
    pub fn pause(&mut self, pattern: &str, time: Duration) -> Result<(), Error> {
        checked(Some(pattern.as_bytes()), wire::is_pattern)?;
        self.session.pause(pattern, time, false).map(drop)
    }

    /// Tells that an attempt at the job has failed, and why; what is beyond 4096 bytes is left out. It is tried again after the
    /// delay, or what the server's `retry` says if that is longer. Returns true if it was the last attempt, so that the job was
    /// buried, or moved to a dead-letter tube.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; those of [`Runner::touch`].
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

    /// Tells that an attempt at the job has failed, and why, and that another would be in vain: the job is buried now.
    ///
    /// # Errors
    ///
    /// Those of [`Runner::fail`].
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
        let request = [line.as_bytes(), reason, b"\r\n"].concat();
        self.session.ask(&request, Duration::ZERO, |_, line| match line {
            b"BURIED" => Ok(Ok(true)),
            b"NOT_FOUND" => Ok(Err(Error::Expired)),
            line => Ok(expect(line, "RELEASED")?.map(|()| false)),
        })
    }

    /// Returns what the server tells of the job.
    ///
    /// # Errors
    ///
    /// Those of [`Runner::touch`].
    pub fn status(&mut self, job: &ReservedJob) -> Result<JobStatus, Error> {
        self.check(job)?;
        self.session.ask(format!("stats-job {}\r\n", job.id).as_bytes(), Duration::ZERO, read_status)
    }

    /// Returns what the server tells of several jobs, asked for in one request.
    ///
    /// # Errors
    ///
    /// Those of [`Runner::touch`], which concern all of them.
    pub fn status_many(&mut self, jobs: &[&ReservedJob]) -> Result<Vec<Result<JobStatus, Error>>, Error> {
        self.ask_each(jobs, |id| format!("stats-job {id}\r\n"), read_status)
    }

    fn end_each(&mut self, jobs: &[&ReservedJob], verb: &str, word: &str) -> Result<Vec<Result<(), Error>>, Error> {
        let read = |_: &mut ClientConnection, line: &[u8]| {
            let is_ours = expect_or_not_found(line, word)?;
            Ok(is_ours.and_then(|is_ours| if is_ours { Ok(()) } else { Err(Error::Expired) }))
        };
        self.ask_each(jobs, |id| format!("{verb} {id}\r\n"), read)
    }

    /// Asks the same about several jobs at once. What refuses one does not hinder the others.
    fn ask_each<T>(
        &mut self,
        jobs: &[&ReservedJob],
        request: impl Fn(JobId) -> String,
        read: impl Fn(&mut ClientConnection, &[u8]) -> Said<T>,
    ) -> Result<Vec<Result<T, Error>>, Error> {
        jobs.iter().try_for_each(|job| self.check(job))?;
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let request: String = jobs.iter().map(|job| request(job.id)).collect();
        self.session.ask(request.as_bytes(), Duration::ZERO, |connection, first| {
            let mut told = vec![read(connection, first)?];
            while told.len() < jobs.len() {
                connection.renew();
                let next = line(connection)?;
                told.push(read(connection, &next)?);
            }
            Ok(Ok(told))
        })
    }

    fn pri_of(&mut self, job: &ReservedJob, pri: Option<u32>) -> Result<u32, Error> {
        pri.map_or_else(|| Ok(self.status(job)?.pri), Ok)
    }

    fn end(&mut self, job: &ReservedJob, request: &str, word: &str) -> Result<(), Error> {
        self.check(job)?;
        let is_ours = self.session.ask(request.as_bytes(), Duration::ZERO, |_, line| {
            // A beanstalkd without memory buries what it cannot queue.
            if line == b"BURIED" { Ok(Ok(true)) } else { expect_or_not_found(line, word) }
        })?;
        if is_ours { Ok(()) } else { Err(Error::Expired) }
    }

    /// Fails if the job was reserved on an earlier connection.
    fn check(&self, job: &ReservedJob) -> Result<(), Error> {
        if self.session.number() == Some(job.connection) { Ok(()) } else { Err(Error::Lost) }
    }
}

impl<T> Reservation<T> {
    fn map<U>(self, with: impl FnOnce(T) -> U) -> Reservation<U> {
        match self {
            Reservation::Reserved(reserved) => Reservation::Reserved(with(reserved)),
            Reservation::TimedOut => Reservation::TimedOut,
            Reservation::DeadlineSoon => Reservation::DeadlineSoon,
        }
    }
}

/// What a server says of a job that is reserved.
type Told = (JobId, Vec<u8>);

/// Fails for what is no pattern, and for one with `*` if the server knows none.
fn check_pattern(session: &mut JobSession, pattern: &str) -> Result<(), Error> {
    checked(Some(pattern.as_bytes()), wire::is_pattern)?;
    if wire::is_plain(pattern.as_bytes()) {
        return Ok(());
    }
    session.require("put-job").map_err(|error| match error {
        Error::NoExtension(_) => Error::NoExtension("watch with a pattern"),
        error => error,
    })
}

fn number_of(session: &JobSession) -> u64 {
    session.number().expect("what it has just replied leaves the connection open")
}

/// The longest wait that can be sent, in seconds.
fn timeout_of(timeout: Duration) -> u32 {
    whole_seconds(timeout).min(i32::MAX as u32)
}

fn wait_of(timeout: Option<Duration>) -> Duration {
    timeout.map_or(LONGEST, |timeout| Duration::from_secs(u64::from(timeout_of(timeout))))
}

fn reserve_line(timeout: Option<Duration>) -> Vec<u8> {
    match timeout {
        None => b"reserve\r\n".to_vec(),
        Some(timeout) => format!("reserve-with-timeout {}\r\n", timeout_of(timeout)).into_bytes(),
    }
}
