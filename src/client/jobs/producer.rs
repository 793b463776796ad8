//! The producer's side of jobs, and what an operator asks.

use super::session::{DEFAULT_TUBE, JobSession, body, count_of, expect, expect_or_not_found, line, refused, text};
use super::{JobStatus, LimitScope, ListedJob, NewJob, PutOutcome, Retry, SummaryRow, checked, put_outcome};
use crate::connection::ClientConnection;
use crate::error::{Error, Fault};
use crate::{Said, Timeouts};
use poolcounter_protocol::jobs::request::{JobId, JobState, SummaryBy};
use poolcounter_protocol::jobs::wire::client::{self as wire, YamlMap};
use std::cell::RefCell;
use std::time::Duration;

/// The most puts of one [`Producer::put_many`], and the bytes of their bodies together.
const MANY: usize = 1000;
const MANY_BYTES: usize = 16 << 20;

/// A producer, or an operator: a connection on which no job is reserved. It connects when it is first used, and again after the
/// connection was lost. A request that was under way then is not repeated: whether the server has done it is not known.
#[derive(Debug)]
pub struct Producer {
    pub(crate) session: RefCell<JobSession>,
    /// The tube of jobs that name none.
    tube: RefCell<String>,
}

impl Producer {
    /// Returns a producer for the first of these servers that answers: `HOST`, `HOST:PORT` or `unix:PATH`. It uses `default`.
    pub fn new(servers: impl IntoIterator<Item = impl Into<String>>, timeouts: Timeouts) -> Producer {
        let session = JobSession::new(servers.into_iter().map(Into::into).collect(), timeouts);
        Producer { session: RefCell::new(session), tube: RefCell::new(DEFAULT_TUBE.into()) }
    }

    /// Returns whether the server knows more than a plain beanstalkd. It was asked when the connection was made.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`].
    pub fn is_extended(&self) -> Result<bool, Error> {
        self.session.borrow_mut().is_extended()
    }

    /// Has jobs that name no tube go to this one.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`]; those of [`Producer::put`].
    pub fn use_tube(&self, tube: &str) -> Result<(), Error> {
        checked(Some(tube.as_bytes()), wire::is_tube)?;
        self.session.borrow_mut().use_tube(tube)?;
        *self.tube.borrow_mut() = tube.into();
        Ok(())
    }

    /// Puts a job.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`] for a tube, key, signature or group that cannot be sent; [`Error::Unavailable`]; [`Error::Lost`] when the
    /// connection is lost before the reply, or the server says INTERNAL_ERROR, so that it may have been put or not. Another put goes
    /// to the next server, and without a key the job may be there twice then; [`Error::NoExtension`] for a plain beanstalkd when
    /// the job has extras; [`Error::Refused`], for one with `JOB_TOO_BIG`, `DRAINING` or `OUT_OF_MEMORY`.
    pub fn put(&self, job: &NewJob) -> Result<PutOutcome, Error> {
        let mut session = self.session.borrow_mut();
        let is_extended = session.is_extended()?;
        let mut request = Vec::new();
        job.write(&mut request, is_extended)?;
        match &job.tube {
            // It stands in the request.
            Some(_) if is_extended => {}
            Some(tube) => session.use_tube(tube)?,
            None => session.use_tube(&self.tube.borrow())?,
        }
        session.ask(&request, Duration::ZERO, |_, line| put_outcome(line))
    }

    /// Puts 1 to 1000 jobs of at most 16 MiB together, all in one transaction, and returns what came of each. One that is refused
    /// does not hinder the others.
    ///
    /// # Errors
    ///
    /// Those of [`Producer::put`]; with any of them, none of the jobs was put. [`Error::Refused`] with `BAD_FORMAT` for too many and
    /// with `JOB_TOO_BIG` for too long ones, of which nothing is sent.
    pub fn put_many(&self, jobs: &[NewJob]) -> Result<Vec<Result<PutOutcome, Error>>, Error> {
        if !(1..=MANY).contains(&jobs.len()) {
            return Err(Error::Refused("BAD_FORMAT".into()));
        }
        if jobs.iter().map(|job| job.body.len()).sum::<usize>() > MANY_BYTES {
            return Err(Error::Refused("JOB_TOO_BIG".into()));
        }
        let mut session = self.session.borrow_mut();
        session.require("put-many")?;
        session.use_tube(&self.tube.borrow())?;
        let mut request = format!("put-many {}\r\n", jobs.len()).into_bytes();
        jobs.iter().try_for_each(|job| job.write(&mut request, true))?;
        session.ask(&request, Duration::ZERO, |connection, first| {
            // That is the answer to all of them.
            if first == b"OUT_OF_MEMORY" || first == b"INTERNAL_ERROR" {
                return Ok(Err(refused(first)));
            }
            let mut outcomes = vec![put_outcome(first)?];
            while outcomes.len() < jobs.len() {
                connection.renew();
                outcomes.push(put_outcome(&line(connection)?)?);
            }
            Ok(Ok(outcomes))
        })
    }

    /// Registers a root job by its signature, and returns the newest timestamp that the server knows of it: leaves of older ones
    /// are dropped.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; those of [`Producer::put`].
    pub fn root(&self, tube: &str, signature: impl AsRef<[u8]>, timestamp: u64) -> Result<u64, Error> {
        checked(Some(tube.as_bytes()), wire::is_tube)?;
        let signature = checked(Some(signature.as_ref()), wire::is_key)?;
        let request = [b"root ", tube.as_bytes(), b" ", signature, format!(" {timestamp}\r\n").as_bytes()].concat();
        self.ask_extension("root", &request, |line| count_of(line, "ROOT"))
    }

    /// Has at most so many jobs of the matching tubes run at a time; 0 for no limit.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; those of [`Producer::put`].
    pub fn limit(&self, pattern: &str, most: u32, scope: LimitScope) -> Result<(), Error> {
        let scope = if scope == LimitScope::All { "all" } else { "each" };
        self.set("limit", pattern, &format!(" {most} {scope}"), "LIMIT")
    }

    /// Has at most so many jobs of a group run at a time; 0 for no limit, `*` for each group.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; those of [`Producer::put`].
    pub fn limit_group(&self, group: impl AsRef<[u8]>, most: u32) -> Result<(), Error> {
        let group = checked(Some(group.as_ref()), wire::is_group)?;
        let request = [b"limit group:", group, format!(" {most}\r\n").as_bytes()].concat();
        self.ask_extension("limit", &request, |line| expect(line, "LIMIT"))
    }

    /// Says how the jobs of the matching tubes are tried again.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; those of [`Producer::put`].
    pub fn retry(&self, pattern: &str, retry: &Retry) -> Result<(), Error> {
        let Retry { attempts, first, factor, max } = retry;
        let (first, max) = (first.as_secs_f64(), max.as_secs_f64());
        self.set("retry", pattern, &format!(" {attempts} {first} {factor} {max}"), "RETRY")
    }

    /// Moves the jobs of the matching tubes to another tube after their last attempt, instead of burying them; None buries them.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; those of [`Producer::put`].
    pub fn dead_letter(&self, pattern: &str, tube: Option<&str>) -> Result<(), Error> {
        checked(tube.map(str::as_bytes), wire::is_tube)?;
        let tube = tube.map(|tube| format!(" {tube}")).unwrap_or_default();
        self.set("dead-letter", pattern, &tube, "DEAD_LETTER")
    }

    /// Has no job of the matching tubes be reserved for this long; zero ends that. Returns false when there is no such tube.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`] for a pattern; those of [`Producer::put`].
    pub fn pause(&self, pattern: &str, time: Duration) -> Result<bool, Error> {
        checked(Some(pattern.as_bytes()), wire::is_pattern)?;
        self.session.borrow_mut().pause(pattern, time, wire::is_plain(pattern.as_bytes()))
    }

    /// Deletes the jobs of the matching tubes that are in this state, or in any but reserved, and returns how many.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; [`Error::Refused`] with `NOT_ALLOWED` for one who may not; those of [`Producer::put`].
    pub fn clear(&self, pattern: &str, state: Option<JobState>) -> Result<u64, Error> {
        checked(Some(pattern.as_bytes()), wire::is_pattern)?;
        let state = state.map(|state| format!(" {}", state.word())).unwrap_or_default();
        let request = format!("clear {pattern}{state}\r\n");
        self.ask_extension("clear", request.as_bytes(), |line| count_of(line, "CLEARED"))
    }

    /// Makes the buried and delayed jobs of the matching tubes ready, and returns how many.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; those of [`Producer::put`].
    pub fn kick_all(&self, pattern: &str) -> Result<u64, Error> {
        checked(Some(pattern.as_bytes()), wire::is_pattern)?;
        let request = format!("kick-all {pattern}\r\n");
        self.ask_extension("kick-all", request.as_bytes(), |line| count_of(line, "KICKED"))
    }

    /// Makes so many buried jobs of the tube in use ready, or delayed ones if none is buried, and returns how many.
    ///
    /// # Errors
    ///
    /// Those of [`Producer::put`].
    pub fn kick(&self, most: u32) -> Result<u64, Error> {
        let mut session = self.session.borrow_mut();
        session.use_tube(&self.tube.borrow())?;
        session.ask(format!("kick {most}\r\n").as_bytes(), Duration::ZERO, |_, line| count_of(line, "KICKED"))
    }

    /// Makes a buried or delayed job ready; false when there is none of this number.
    ///
    /// # Errors
    ///
    /// Those of [`Producer::put`].
    pub fn kick_job(&self, id: JobId) -> Result<bool, Error> {
        self.ask_of_job("kick-job", id, "KICKED")
    }

    /// Deletes a job that nobody has reserved; false when there is none of this number.
    ///
    /// # Errors
    ///
    /// Those of [`Producer::put`].
    pub fn delete(&self, id: JobId) -> Result<bool, Error> {
        self.ask_of_job("delete", id, "DELETED")
    }

    /// Returns the body of a job; None when there is none of this number.
    ///
    /// # Errors
    ///
    /// Those of [`Producer::put`].
    pub fn peek(&self, id: JobId) -> Result<Option<Vec<u8>>, Error> {
        let found = self.session.borrow_mut().ask(format!("peek {id}\r\n").as_bytes(), Duration::ZERO, read_found)?;
        Ok(found.map(|(_, body)| body))
    }

    /// Returns the number and the body of that job of the tube in use which is next: to be reserved, to be ready, or to be kicked.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for reserved jobs, none of which is next; those of [`Producer::put`].
    pub fn peek_next(&self, state: JobState) -> Result<Option<(JobId, Vec<u8>)>, Error> {
        if state == JobState::Reserved {
            return Err(Error::Refused("no reserved job is next".into()));
        }
        let mut session = self.session.borrow_mut();
        session.use_tube(&self.tube.borrow())?;
        session.ask(format!("peek-{}\r\n", state.word()).as_bytes(), Duration::ZERO, read_found)
    }

    /// Returns the statistics of a job as the server tells them; None when there is none of this number.
    ///
    /// # Errors
    ///
    /// Those of [`Producer::put`].
    pub fn stats_job(&self, id: JobId) -> Result<Option<YamlMap>, Error> {
        self.ask_map(&format!("stats-job {id}\r\n"), Some)
    }

    /// Returns what the server tells of a job; None when there is none of this number.
    ///
    /// # Errors
    ///
    /// Those of [`Producer::put`].
    pub fn status(&self, id: JobId) -> Result<Option<JobStatus>, Error> {
        self.ask_map(&format!("stats-job {id}\r\n"), |map| JobStatus::of(&map))
    }

    /// Returns the server's statistics, in its order.
    ///
    /// # Errors
    ///
    /// Those of [`Producer::put`].
    pub fn stats(&self) -> Result<YamlMap, Error> {
        Ok(self.ask_map("stats\r\n", Some)?.unwrap_or_default())
    }

    /// Returns the statistics of a tube; None when there is none of this name.
    ///
    /// # Errors
    ///
    /// Those of [`Producer::put`].
    pub fn stats_tube(&self, tube: &str) -> Result<Option<YamlMap>, Error> {
        checked(Some(tube.as_bytes()), wire::is_tube)?;
        self.ask_map(&format!("stats-tube {tube}\r\n"), Some)
    }

    /// Returns the names of the tubes.
    ///
    /// # Errors
    ///
    /// Those of [`Producer::put`].
    pub fn tubes(&self) -> Result<Vec<String>, Error> {
        self.session
            .borrow_mut()
            .ask(b"list-tubes\r\n", Duration::ZERO, |connection, line| read_text(connection, line, wire::parse_list))
    }

    /// Returns up to `most` jobs of a tube in this state, at most 1000, with numbers above `after`, ascending; None when there is no
    /// such tube.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; those of [`Producer::put`].
    pub fn list_jobs(
        &self,
        tube: &str,
        state: JobState,
        most: u32,
        after: Option<JobId>,
    ) -> Result<Option<Vec<ListedJob>>, Error> {
        checked(Some(tube.as_bytes()), wire::is_tube)?;
        let after = after.map(|id| format!(" after={id}")).unwrap_or_default();
        let request = format!("list-jobs {tube} {} {most}{after}\r\n", state.word());
        let mut session = self.session.borrow_mut();
        session.require("list-jobs")?;
        session.ask(request.as_bytes(), Duration::ZERO, |connection, line| match line {
            b"NOT_FOUND" => Ok(Ok(None)),
            line => {
                let listed = |text: &[u8]| wire::parse_maps(text)?.iter().map(ListedJob::of).collect();
                Ok(read_text(connection, line, listed)?.map(Some))
            }
        })
    }

    /// Returns figures added up by wiki, type, tube or runner.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; those of [`Producer::put`].
    pub fn summary(&self, by: SummaryBy) -> Result<Vec<SummaryRow>, Error> {
        let mut session = self.session.borrow_mut();
        session.require("summary")?;
        let request = format!("summary {}\r\n", by.word());
        session.ask(request.as_bytes(), Duration::ZERO, |connection, line| {
            read_text(connection, line, |text| wire::parse_maps(text)?.iter().map(SummaryRow::of).collect())
        })
    }

    /// Makes a setting of a pattern.
    fn set(&self, word: &'static str, pattern: &str, rest: &str, done: &str) -> Result<(), Error> {
        checked(Some(pattern.as_bytes()), wire::is_pattern)?;
        let request = format!("{word} {pattern}{rest}\r\n");
        self.ask_extension(word, request.as_bytes(), |line| expect(line, done))
    }

    fn ask_extension<T>(
        &self,
        word: &'static str,
        request: &[u8],
        read: impl FnOnce(&[u8]) -> Said<T>,
    ) -> Result<T, Error> {
        let mut session = self.session.borrow_mut();
        session.require(word)?;
        session.ask(request, Duration::ZERO, |_, line| read(line))
    }

    fn ask_of_job(&self, word: &str, id: JobId, done: &str) -> Result<bool, Error> {
        let request = format!("{word} {id}\r\n");
        self.session.borrow_mut().ask(request.as_bytes(), Duration::ZERO, |_, line| expect_or_not_found(line, done))
    }

    fn ask_map<T>(&self, request: &str, of: impl FnOnce(YamlMap) -> Option<T>) -> Result<Option<T>, Error> {
        self.session.borrow_mut().ask(request.as_bytes(), Duration::ZERO, |connection, line| match line {
            b"NOT_FOUND" => Ok(Ok(None)),
            line => Ok(read_text(connection, line, |text| of(wire::parse_map(text)?))?.map(Some)),
        })
    }
}

fn read_text<T>(connection: &mut ClientConnection, line: &[u8], parse: impl FnOnce(&[u8]) -> Option<T>) -> Said<T> {
    if wire::is_refusal(line) {
        return Ok(Err(refused(line)));
    }
    Ok(Ok(parse(&text(connection, line)?).ok_or(Fault::Garbled)?))
}

fn read_found(connection: &mut ClientConnection, line: &[u8]) -> Said<Option<(JobId, Vec<u8>)>> {
    match wire::split(line) {
        ("NOT_FOUND", b"") => Ok(Ok(None)),
        ("FOUND", rest) => {
            let (id, len) = wire::job_and_bytes(rest).ok_or(Fault::Garbled)?;
            Ok(Ok(Some((id, body(connection, len)?))))
        }
        _ if wire::is_refusal(line) => Ok(Err(refused(line))),
        _ => Err(Fault::Garbled),
    }
}
