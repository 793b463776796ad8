//! Producer of jobs, with the requests of an operator.

use super::replies::{count_of, expect, expect_or_not_found, if_found, put_outcome, put_outcomes, read_job, read_text};
use super::session::{DEFAULT_TUBE, JobSession};
use super::{
    JobStatus, LimitScope, ListedJob, NewJob, PutOutcome, Retry, SummaryRow, checked, pattern_of, tube_of,
    whole_seconds,
};
use crate::connection::ClientConnection;
use crate::error::Error;
use crate::{Said, Timeouts};
use poolcounter_protocol::jobs::request::{JobId, JobState, SummaryBy};
use poolcounter_protocol::jobs::wire::client::{self as wire, YamlMap};
use std::cell::RefCell;
use std::time::Duration;

/// Limits of one [`Producer::put_many`]: number of jobs, and bytes of their bodies together.
const MANY: usize = 1000;
const MANY_BYTES: usize = 16 << 20;

/// Time limit of a copy of the store.
const LONGEST_COPY: Duration = Duration::from_secs(3600);

/// Producer or operator: a connection without reserved jobs. Connects on first use, and again after the connection was
/// lost. A request in progress at that time is not repeated; the server may or may not have executed it.
#[derive(Debug)]
pub struct Producer {
    pub(crate) session: RefCell<JobSession>,
    /// Tube of jobs without a tube of their own.
    tube: RefCell<String>,
}

impl Producer {
    /// Returns a producer for the first of these servers that replies: `HOST`, `HOST:PORT` or `unix:PATH`. It uses
    /// `default`.
    pub fn new(servers: impl IntoIterator<Item = impl Into<String>>, timeouts: Timeouts) -> Producer {
        Producer { session: RefCell::new(JobSession::new(servers, timeouts)), tube: RefCell::new(DEFAULT_TUBE.into()) }
    }

    /// Returns true if the server supports the extensions to beanstalkd. Asked once per connection.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`].
    pub fn is_extended(&self) -> Result<bool, Error> {
        self.session.borrow_mut().is_extended()
    }

    /// Sets the tube of jobs without a tube of their own.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`]; the errors of [`Producer::put`].
    pub fn use_tube(&self, tube: &str) -> Result<(), Error> {
        self.session.borrow_mut().use_tube(tube_of(tube)?)?;
        *self.tube.borrow_mut() = tube.into();
        Ok(())
    }

    /// Puts a job.
    ///
    /// # Errors
    ///
    /// [`Error::BadArgument`] for an invalid tube, key, signature or group; [`Error::Unavailable`]; [`Error::Lost`] if the
    /// connection is lost before the reply or the server replies INTERNAL_ERROR: the job may or may not have been put.
    /// The next put goes to the next server, so without a key a repeated put may duplicate the job;
    /// [`Error::NoExtension`] for a job with extras on a plain beanstalkd; [`Error::Refused`], for example with
    /// `JOB_TOO_BIG` or `OUT_OF_MEMORY`, and with `DRAINING` if all servers drain.
    pub fn put(&self, job: &NewJob) -> Result<PutOutcome, Error> {
        self.session.borrow_mut().put(|session| {
            let is_extended = session.is_extended()?;
            let mut request = Vec::new();
            job.write(&mut request, is_extended)?;
            match &job.tube {
                // The request carries the tube.
                Some(_) if is_extended => {}
                Some(tube) => session.use_tube(tube)?,
                None => session.use_tube(&self.tube.borrow())?,
            }
            session.ask(request, |_, line| put_outcome(line))
        })
    }

    /// Puts 1 to 1000 jobs of at most 16 MiB together in one transaction, and returns the result of each. A refused job
    /// does not affect the rest.
    ///
    /// # Errors
    ///
    /// The errors of [`Producer::put`]. After [`Error::Lost`], which INTERNAL_ERROR for all jobs is too, each may or may
    /// not have been put; after another, none was. [`Error::Refused`] with `BAD_FORMAT` for too many jobs and
    /// `JOB_TOO_BIG` for too many bytes; nothing is sent then.
    pub fn put_many(&self, jobs: &[NewJob]) -> Result<Vec<Result<PutOutcome, Error>>, Error> {
        if !(1..=MANY).contains(&jobs.len()) {
            return Err(Error::Refused("BAD_FORMAT".into()));
        }
        if jobs.iter().map(|job| job.body.len()).sum::<usize>() > MANY_BYTES {
            return Err(Error::Refused("JOB_TOO_BIG".into()));
        }
        self.session.borrow_mut().put(|session| {
            session.require("put-many")?;
            session.use_tube(&self.tube.borrow())?;
            let mut request = format!("put-many {}", jobs.len()).into_bytes();
            for job in jobs {
                request.extend_from_slice(b"\r\n");
                job.write(&mut request, true)?;
            }
            session.ask(request, |connection, first| put_outcomes(connection, first, jobs.len()))
        })
    }

    /// Registers a root job by its signature, and returns the newest timestamp that the server has for it: older leaves
    /// are dropped.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; the errors of [`Producer::put`].
    pub fn root(&self, tube: &str, signature: impl AsRef<[u8]>, timestamp: u64) -> Result<u64, Error> {
        let signature = checked("the root", signature.as_ref(), wire::is_key)?;
        let request = [tube_of(tube)?.as_bytes(), b" ", signature, format!(" {timestamp}").as_bytes()].concat();
        self.ask_extension("root", request, |_, line| count_of(line, "ROOT"))
    }

    /// Sets the retry rule of the matching tubes.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; the errors of [`Producer::put`].
    pub fn retry(&self, pattern: &str, retry: &Retry) -> Result<(), Error> {
        let Retry { attempts, first, factor, max } = retry;
        let (first, max) = (first.as_secs_f64(), max.as_secs_f64());
        let request = format!("{} {attempts} {first} {factor} {max}", pattern_of(pattern)?);
        self.ask_extension("retry", request, |_, line| expect(line, "RETRY"))
    }

    /// Moves the jobs of the matching tubes to another tube after their last attempt; None buries them instead.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; the errors of [`Producer::put`].
    pub fn dead_letter(&self, pattern: &str, tube: Option<&str>) -> Result<(), Error> {
        let tube = tube.map(tube_of).transpose()?.map(|tube| format!(" {tube}")).unwrap_or_default();
        let request = format!("{}{tube}", pattern_of(pattern)?);
        self.ask_extension("dead-letter", request, |_, line| expect(line, "DEAD_LETTER"))
    }

    /// Limits the number of jobs that run at a time, or with a period, in whole seconds, the number of jobs that start in
    /// any period; 0 for no limit. The limit is of the matching tubes, or of the group in `group:NAME`; `group:*` stands
    /// for each group.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; [`Error::Refused`] with `BAD_FORMAT` for a scope that the tubes or the group cannot have;
    /// the errors of [`Producer::put`].
    pub fn limit(
        &self,
        what: impl AsRef<[u8]>,
        most: u32,
        period: Option<Duration>,
        scope: LimitScope,
    ) -> Result<(), Error> {
        let what = match what.as_ref().strip_prefix(b"group:") {
            Some(group) => [b"group:", checked("the group", group, wire::is_group)?].concat(),
            None => checked("the pattern", what.as_ref(), wire::is_pattern)?.to_vec(),
        };
        let period = period.map(|period| format!(" per {}", whole_seconds(period))).unwrap_or_default();
        let request = [&*what, format!(" {most}{period}{}", scope.word()).as_bytes()].concat();
        self.ask_extension("limit", request, |_, line| expect(line, "LIMIT"))
    }

    /// Lets the server refuse new jobs, or accept them again.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; [`Error::Refused`] with `NOT_ALLOWED` without permission; the errors of [`Producer::put`].
    pub fn drain(&self, is_on: bool) -> Result<(), Error> {
        let (word, done) = if is_on { ("drain", "DRAINING") } else { ("undrain", "ACCEPTING") };
        self.ask_extension(word, "", |_, line| expect(line, done))
    }

    /// Copies the server's file of jobs to a file of this name beside it, and returns the size of the copy in bytes; None
    /// if the server has no such file.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] with `INTERNAL_ERROR` if the name exists, another copy is being made, or there is no room; the
    /// errors of [`Producer::drain`].
    pub fn store_copy(&self, name: &str) -> Result<Option<u64>, Error> {
        checked("the name", name.as_bytes(), wire::is_tube)?;
        let mut session = self.session.borrow_mut();
        session.require("store-copy")?;
        session.ask_waiting(format!("store-copy {name}"), LONGEST_COPY, |_, line| count_or_not_found(line, "COPIED"))
    }

    /// Pauses the reserves of the matching tubes for `time`; zero ends a pause. Returns false if the tube does not
    /// exist.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`] for a pattern; the errors of [`Producer::put`].
    pub fn pause(&self, pattern: &str, time: Duration) -> Result<bool, Error> {
        self.session.borrow_mut().pause(pattern_of(pattern)?, time, wire::is_plain(pattern.as_bytes()))
    }

    /// Deletes the jobs of the matching tubes in this state (None: in any but reserved), and returns their number.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; [`Error::Refused`] with `NOT_ALLOWED` without permission; the errors of [`Producer::put`].
    pub fn clear(&self, pattern: &str, state: Option<JobState>) -> Result<u64, Error> {
        let request = format!("{}{}", pattern_of(pattern)?, in_state(state));
        self.ask_extension("clear", request, |_, line| count_of(line, "CLEARED"))
    }

    /// Moves the job with this number, or the jobs of the matching tubes, to another tube: all that are not reserved, or
    /// the jobs in this state. Returns the number of moved jobs; None if no such job exists.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; the errors of [`Producer::put`].
    pub fn move_jobs(&self, what: &str, tube: &str, state: Option<JobState>) -> Result<Option<u64>, Error> {
        let request = format!("{} {}{}", pattern_of(what)?, tube_of(tube)?, in_state(state));
        self.ask_extension("move", request, |_, line| count_or_not_found(line, "MOVED"))
    }

    /// Changes a job that is not reserved: its priority, the time until it is ready, and its TTR. Returns false if no
    /// such job exists.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; the errors of [`Producer::put`].
    pub fn set_job(
        &self,
        id: JobId,
        pri: Option<u32>,
        delay: Option<Duration>,
        ttr: Option<Duration>,
    ) -> Result<bool, Error> {
        let values = [("pri", pri), ("delay", delay.map(whole_seconds)), ("ttr", ttr.map(whole_seconds))];
        let values = values.into_iter().filter_map(|(name, value)| Some(format!(" {name}={}", value?)));
        let request = format!("{id}{}", values.collect::<String>());
        self.ask_extension("set-job", request, |_, line| expect_or_not_found(line, "SET"))
    }

    /// Deletes the job with this number, or the jobs of the matching tubes, while they are reserved; their runners are
    /// told `who` has done so. Returns the number of deleted jobs; None if no such job is reserved.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; the errors of [`Producer::put`].
    pub fn cancel(&self, what: &str, who: &str) -> Result<Option<u64>, Error> {
        pattern_of(what)?;
        self.session.borrow_mut().identify(who.as_bytes())?;
        self.ask_extension("cancel", what, |_, line| count_or_not_found(line, "CANCELLED"))
    }

    /// Makes the buried and delayed jobs of the matching tubes ready, or the jobs in one of these states, and returns
    /// their number.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; the errors of [`Producer::put`].
    pub fn kick_all(&self, pattern: &str, state: Option<JobState>) -> Result<u64, Error> {
        let request = format!("{}{}", pattern_of(pattern)?, in_state(state));
        self.ask_extension("kick-all", request, |_, line| count_of(line, "KICKED"))
    }

    /// Makes up to `most` buried jobs of the tube in use ready, or delayed jobs if none is buried, and returns their
    /// number.
    ///
    /// # Errors
    ///
    /// The errors of [`Producer::put`].
    pub fn kick(&self, most: u32) -> Result<u64, Error> {
        let mut session = self.session.borrow_mut();
        session.use_tube(&self.tube.borrow())?;
        session.ask(format!("kick {most}"), |_, line| count_of(line, "KICKED"))
    }

    /// Makes a buried or delayed job ready; false if no such job exists.
    ///
    /// # Errors
    ///
    /// The errors of [`Producer::put`].
    pub fn kick_job(&self, id: JobId) -> Result<bool, Error> {
        self.ask_of_job("kick-job", id, "KICKED")
    }

    /// Deletes a job that is not reserved; false if no such job exists.
    ///
    /// # Errors
    ///
    /// The errors of [`Producer::put`].
    pub fn delete(&self, id: JobId) -> Result<bool, Error> {
        self.ask_of_job("delete", id, "DELETED")
    }

    /// Returns the body of a job; None if it does not exist.
    ///
    /// # Errors
    ///
    /// The errors of [`Producer::put`].
    pub fn peek(&self, id: JobId) -> Result<Option<Vec<u8>>, Error> {
        let found = self.session.borrow_mut().ask(format!("peek {id}"), read_found)?;
        Ok(found.map(|(_, body)| body))
    }

    /// Returns number and body of the next job of the tube in use: the next to be reserved, to become ready or to be
    /// kicked.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for the state `Reserved`, which has no order; the errors of [`Producer::put`].
    pub fn peek_next(&self, state: JobState) -> Result<Option<(JobId, Vec<u8>)>, Error> {
        if state == JobState::Reserved {
            return Err(Error::Refused("no reserved job is next".into()));
        }
        let mut session = self.session.borrow_mut();
        session.use_tube(&self.tube.borrow())?;
        session.ask(format!("peek-{}", state.word()), read_found)
    }

    /// Returns the statistics of a job as sent by the server; None if it does not exist.
    ///
    /// # Errors
    ///
    /// The errors of [`Producer::put`].
    pub fn stats_job(&self, id: JobId) -> Result<Option<YamlMap>, Error> {
        self.ask_map(format!("stats-job {id}"), Some)
    }

    /// Returns the status of a job; None if it does not exist.
    ///
    /// # Errors
    ///
    /// The errors of [`Producer::put`].
    pub fn status(&self, id: JobId) -> Result<Option<JobStatus>, Error> {
        self.ask_map(format!("stats-job {id}"), |map| JobStatus::of(&map))
    }

    /// Returns the server's statistics, in its order.
    ///
    /// # Errors
    ///
    /// The errors of [`Producer::put`].
    pub fn stats(&self) -> Result<YamlMap, Error> {
        Ok(self.ask_map("stats".into(), Some)?.unwrap_or_default())
    }

    /// Returns the statistics of a tube; None if it does not exist.
    ///
    /// # Errors
    ///
    /// The errors of [`Producer::put`].
    pub fn stats_tube(&self, tube: &str) -> Result<Option<YamlMap>, Error> {
        self.ask_map(format!("stats-tube {}", tube_of(tube)?), Some)
    }

    /// Returns the names of the tubes.
    ///
    /// # Errors
    ///
    /// The errors of [`Producer::put`].
    pub fn tubes(&self) -> Result<Vec<String>, Error> {
        let read = |connection: &mut _, line: &[u8]| read_text(connection, line, wire::parse_list);
        self.session.borrow_mut().ask("list-tubes", read)
    }

    /// Returns up to `most` (at most 1000) jobs of a tube in this state, with numbers above `after`, ascending; None if
    /// the tube does not exist.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; the errors of [`Producer::put`].
    pub fn list_jobs(
        &self,
        tube: &str,
        state: JobState,
        most: u32,
        after: Option<JobId>,
    ) -> Result<Option<Vec<ListedJob>>, Error> {
        let after = after.map(|id| format!(" after={id}")).unwrap_or_default();
        let request = format!("{} {} {most}{after}", tube_of(tube)?, state.word());
        let listed = |text: &[u8]| wire::parse_maps(text)?.iter().map(ListedJob::of).collect();
        self.ask_extension("list-jobs", request, |connection, line| {
            if_found(line, |line| read_text(connection, line, listed))
        })
    }

    /// Returns the totals by wiki, type, tube or runner.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; the errors of [`Producer::put`].
    pub fn summary(&self, by: SummaryBy) -> Result<Vec<SummaryRow>, Error> {
        let rows = |text: &[u8]| wire::parse_maps(text)?.iter().map(SummaryRow::of).collect();
        self.ask_extension("summary", by.word(), |connection, line| read_text(connection, line, rows))
    }

    /// Returns the settings of tubes and groups, or the settings that apply to some tubes: maps with the
    /// command as `setting`, its pattern as `of`, its `value`, the seconds that are `left` of a pause, and its
    /// `origin`.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; the errors of [`Producer::put`].
    pub fn settings(&self, pattern: Option<&str>) -> Result<Vec<YamlMap>, Error> {
        let pattern = pattern.map(pattern_of).transpose()?.unwrap_or_default();
        self.ask_extension("list-settings", pattern, |connection, line| read_text(connection, line, wire::parse_maps))
    }

    /// Returns the name of the server of the current connection; None before the first request.
    pub fn server(&self) -> Option<String> {
        self.session.borrow().server().map(String::from)
    }

    /// Sends a request of an extension: its word, and its parameters.
    pub(super) fn ask_extension<T>(
        &self,
        word: &'static str,
        rest: impl AsRef<[u8]>,
        read: impl FnOnce(&mut ClientConnection, &[u8]) -> Said<T>,
    ) -> Result<T, Error> {
        let (mut session, rest) = (self.session.borrow_mut(), rest.as_ref());
        session.require(word)?;
        let space: &[u8] = if rest.is_empty() { b"" } else { b" " };
        session.ask([word.as_bytes(), space, rest].concat(), read)
    }

    fn ask_of_job(&self, word: &str, id: JobId, done: &str) -> Result<bool, Error> {
        self.session.borrow_mut().ask(format!("{word} {id}"), |_, line| expect_or_not_found(line, done))
    }

    fn ask_map<T>(&self, request: String, of: impl FnOnce(YamlMap) -> Option<T>) -> Result<Option<T>, Error> {
        self.session.borrow_mut().ask(request, |connection, line| {
            if_found(line, |line| read_text(connection, line, |text| of(wire::parse_map(text)?)))
        })
    }
}

fn in_state(state: Option<JobState>) -> String {
    state.map(|state| format!(" {}", state.word())).unwrap_or_default()
}

fn count_or_not_found(line: &[u8], word: &str) -> Said<Option<u64>> {
    if_found(line, |line| count_of(line, word))
}

fn read_found(connection: &mut ClientConnection, line: &[u8]) -> Said<Option<(JobId, Vec<u8>)>> {
    if_found(line, |line| read_job(connection, line, "FOUND"))
}
