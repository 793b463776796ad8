//! The provider's side of the members protocol: one connection, on which the server asks for members to be started and stopped.

use super::Timeouts;
use super::connection::ClientConnection;
use super::dial::Dial;
use super::error::{Error, Failure, Fault};
use super::members::DEFAULT_PORT;
use super::members::exchange::{ask_line, pool_request, read_done, read_list, sendable_attributes, sendable_text};
use super::placement::Placement;
use poolcounter_protocol::members::request::{Attributes, Named, Request};
use poolcounter_protocol::members::wire::client::{self as wire, ListedMember, Notice, Reply, Task};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// How long [`Provider::serve`] waits at a time: news end it at once.
const ROUND: Duration = Duration::from_secs(3600);

/// A provider of one pool. Its members leave the pool when this is dropped, or when the connection or the process ends.
#[derive(Debug)]
pub struct Provider {
    connection: ClientConnection,
    /// The pool's name as it goes over the wire.
    pool: Vec<u8>,
    /// What is still to be done, oldest first.
    tasks: VecDeque<Task>,
    /// Set when the server knows its session.
    has_session: bool,
}

/// What a connection does for its pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It starts and stops members, at most so many if there is a number.
    Provider(Option<u32>),
    /// It cleans those of others.
    Cleaner,
}

/// A member as its provider describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offered {
    /// Its name. The name is the same in every task; a space in it is `%20` there.
    pub name: Vec<u8>,
    /// Its attributes, as `(name, value)`: at most 16 and 1 KiB.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What came of a task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TaskResult {
    /// The member that was started.
    Started(Offered),
    /// The start failed, for this reason.
    Failed(String),
    /// The member is stopped, alive or clean, as it was asked for.
    Done,
    /// The member is dead.
    Dead,
}

impl Provider {
    /// Connects to the first server that answers, in the placement's order for this pool, and provides for it up to `capacity`
    /// members, or as many as it may have.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`]; [`Error::Unavailable`]; [`Error::Refused`], for one with `NO_POOL`.
    pub fn connect(
        placement: impl Into<Placement>,
        timeouts: Timeouts,
        pool: impl AsRef<[u8]>,
        capacity: Option<u32>,
    ) -> Result<Provider, Error> {
        Provider::connect_as(Role::Provider(capacity), &placement.into(), timeouts, pool.as_ref(), None)
    }

    /// Connects in the same way for either role. A provider that names its session, a random name that it makes once, has the
    /// members of its earlier connection, which ends if the server has it as open. Older servers know no sessions.
    ///
    /// # Errors
    ///
    /// The same as of [`Provider::connect`].
    pub fn connect_as(
        role: Role,
        placement: &Placement,
        timeouts: Timeouts,
        pool: &[u8],
        session: Option<&str>,
    ) -> Result<Provider, Error> {
        let timeouts = timeouts.cut();
        let escaped = wire::escape_name(pool).ok_or(Error::BadName)?.into_owned();
        let mut failures = Vec::new();
        for server in placement.order(pool) {
            let server = &placement.servers()[server];
            let opened = Dial::begin(server, DEFAULT_PORT, &timeouts, placement.tls()).and_then(Dial::finish);
            let provided = opened.and_then(|connection| {
                let address = connection.address().to_string();
                let mut provider =
                    Provider { connection, pool: escaped.clone(), tasks: VecDeque::new(), has_session: false };
                let begun = provider.begin(role, session).map_err(|fault| Failure { address, fault })?;
                Ok(begun.map(|()| provider))
            });
            match provided {
                Ok(answer) => return answer,
                Err(failure) => failures.push((server.clone(), failure)),
            }
        }
        Err(Error::Unavailable(failures))
    }

    fn begin(&mut self, role: Role, session: Option<&str>) -> Result<Result<(), Error>, Fault> {
        let pool = self.pool.clone();
        let Role::Provider(capacity) = role else { return self.try_ask(&Request::Clean { pool: &pool }) };
        if let Some(session) = session {
            let mut line = Vec::new();
            wire::write_provide(&mut line, &pool, capacity, session);
            let begun = self.try_ask_line(&line)?;
            self.has_session = begun.is_ok();
            // It is the session that an older server cannot read.
            if !matches!(&begun, Err(Error::Refused(words)) if words.starts_with("BAD_SYNTAX")) {
                return Ok(begun);
            }
        }
        self.try_ask(&Request::Provide { pool: &pool, capacity, session: None })
    }

    /// Returns whether the server knows the session that it was connected with.
    pub fn has_session(&self) -> bool {
        self.has_session
    }

    /// Does what the server asks for, until the connection ends: calls `work` with each task, and answers with what came of it.
    /// While `work` takes its time, nothing else is done. An answer that comes too late is no error: the server has the member
    /// stopped that was started after all, and has gone on without one that was to be checked, cleaned or stopped.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`], and those of [`Provider::answer`] but for late answers.
    pub fn serve(&mut self, mut work: impl FnMut(&Task) -> TaskResult) -> Result<Infallible, Error> {
        loop {
            if let Some(task) = self.next_task(ROUND)? {
                let result = work(&task);
                match self.answer(&task, &result) {
                    Ok(()) => {}
                    Err(Error::Refused(words)) if is_late(&words) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Returns the next task; None when there is none within the time.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`].
    pub fn next_task(&mut self, timeout: Duration) -> Result<Option<Task>, Error> {
        if self.tasks.is_empty() {
            let lines = self.connection.pending_lines().map_err(|_| Error::Lost)?;
            lines.iter().try_for_each(|line| self.note(line)).map_err(|_| Error::Lost)?;
        }
        if self.tasks.is_empty() && !timeout.is_zero() {
            let line = self.connection.line_within(timeout).map_err(|_| Error::Lost)?;
            line.iter().try_for_each(|line| self.note(line)).map_err(|_| Error::Lost)?;
        }
        Ok(self.tasks.pop_front())
    }

    /// Tells the server what came of a task. A result that the task cannot have counts as its failure.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`] for a member that cannot be sent, of which the server is not told; [`Error::Lost`];
    /// [`Error::Refused`], with `TOO_LATE` if the server has given a start up, which then asks for the member to be stopped; with
    /// `NO_SUCH_MEMBER` if it has not waited for the member; with `MEMBER_EXISTS` if the pool has one of that name, so that the
    /// start has failed.
    pub fn answer(&mut self, task: &Task, result: &TaskResult) -> Result<(), Error> {
        match (task, result) {
            (Task::Start(start), TaskResult::Started(Offered { name, attributes })) => {
                let (name, attributes) = sendable(name, attributes)?;
                self.ask(&Request::Started { start: *start, named: Ok((&name, attributes)) })
            }
            (Task::Start(start), TaskResult::Failed(reason)) => self.fail(*start, reason),
            (Task::Start(start), _) => self.fail(*start, ""),
            (Task::Stop(member), _) => self.ask(&Request::Stopped { member }),
            (Task::Check(member), TaskResult::Done) => self.ask(&Request::Alive { member }),
            (Task::Clean(member), TaskResult::Done) => self.ask(&Request::Cleaned { member }),
            (Task::Check(member) | Task::Clean(member), _) => self.ask(&Request::Dead { member }),
        }
    }

    fn fail(&mut self, start: u64, reason: &str) -> Result<(), Error> {
        self.ask(&Request::Failed { start, text: sendable_text(reason).as_bytes() })
    }

    /// Tells the server that a member has died.
    ///
    /// # Errors
    ///
    /// As [`Provider::answer`]; [`Error::Refused`] with `NO_SUCH_MEMBER`.
    pub fn died(&mut self, member: impl AsRef<[u8]>) -> Result<(), Error> {
        let member = wire::escape_member(member.as_ref()).ok_or(Error::BadName)?;
        self.ask(&Request::Dead { member: &member })
    }

    /// Changes how many members it can have, None for as many as the pool. With 0 it is asked for no more, and keeps those that it has.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]; [`Error::Refused`] with `NO_POOL` when the pool is being removed.
    pub fn set_capacity(&mut self, capacity: Option<u32>) -> Result<(), Error> {
        let pool = self.pool.clone();
        self.ask(&Request::Provide { pool: &pool, capacity, session: None })
    }

    /// Adds a member that runs already.
    ///
    /// # Errors
    ///
    /// As [`Provider::answer`]; [`Error::Refused`] with `POOL_FULL` or `MEMBER_EXISTS`.
    pub fn offer(&mut self, member: &Offered) -> Result<(), Error> {
        let (name, attributes) = sendable(&member.name, &member.attributes)?;
        let pool = self.pool.clone();
        self.ask(&Request::Offer { named: Named { pool: &pool, member: &name }, attributes })
    }

    /// Takes a member out of the pool: when it is returned, or `now`, so that its holder loses it. The server does not ask for it
    /// to be stopped.
    ///
    /// # Errors
    ///
    /// As [`Provider::died`].
    pub fn withdraw(&mut self, member: impl AsRef<[u8]>, now: bool) -> Result<(), Error> {
        let (pool, member) = (self.pool.clone(), wire::escape_member(member.as_ref()).ok_or(Error::BadName)?);
        self.ask(&Request::Withdraw { named: Named { pool: &pool, member: &member }, now })
    }

    /// Returns the members of the pool, those of other providers too.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] or [`Error::Refused`].
    pub fn members(&mut self) -> Result<Vec<ListedMember>, Error> {
        let mut notices = Vec::new();
        let rows =
            read_list(&mut self.connection, &pool_request("MEMBERS", &self.pool), wire::parse_member, &mut notices);
        self.queue(notices);
        rows.map_err(|_| Error::Lost)?
    }

    /// Where the server was found.
    pub fn address(&self) -> &str {
        self.connection.address()
    }

    fn ask(&mut self, request: &Request<'_>) -> Result<(), Error> {
        self.try_ask(request).map_err(|_| Error::Lost)?
    }

    fn try_ask(&mut self, request: &Request<'_>) -> Result<Result<(), Error>, Fault> {
        let mut bytes = Vec::new();
        wire::write_request(&mut bytes, request);
        self.try_ask_line(&bytes)
    }

    fn try_ask_line(&mut self, request: &[u8]) -> Result<Result<(), Error>, Fault> {
        let mut notices = Vec::new();
        let line = ask_line(&mut self.connection, request, Duration::ZERO, &mut || {}, &mut notices)?;
        self.queue(notices);
        read_done(&line, &Reply::Ok)
    }

    fn queue(&mut self, notices: Vec<Notice>) {
        self.tasks.extend(notices.into_iter().filter_map(|notice| match notice {
            Notice::Task(task) => Some(task),
            Notice::Lost(..) => None,
        }));
    }

    fn note(&mut self, line: &[u8]) -> Result<(), Fault> {
        if !wire::is_notice(line) {
            return Err(Fault::Garbled);
        }
        self.queue(wire::parse_notice(line).into_iter().collect());
        Ok(())
    }
}

/// When it is readable, there may be a task.
impl AsFd for Provider {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

/// Whether an answer is refused because the server has not waited for it.
fn is_late(words: &str) -> bool {
    words.starts_with("TOO_LATE") || words.starts_with("NO_SUCH_MEMBER")
}

fn sendable(name: &[u8], attributes: &[(Vec<u8>, Vec<u8>)]) -> Result<(Vec<u8>, Attributes), Error> {
    let name = wire::escape_member(name).ok_or(Error::BadName)?.into_owned();
    Ok((name, sendable_attributes(attributes)?))
}
