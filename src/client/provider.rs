//! Provider of the members protocol: one connection, on which the server requests that members be started, stopped or
//! cleaned.

use super::connection::ClientConnection;
use super::dial::Dial;
use super::error::{Error, Stop};
use super::members::exchange::{
    Offered, ask, line_of, pool_request, read_done, read_list, sendable_attributes, sendable_member, sendable_name,
    sendable_text,
};
use super::placement::Placement;
use super::{Said, Timeouts};
use poolcounter_protocol::members::DEFAULT_PORT;
use poolcounter_protocol::members::request::{Attributes, Named, Request};
use poolcounter_protocol::members::wire::client::{self as wire, ListedMember, Notice, Reply, Task};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Time that [`Provider::serve`] waits at once; input ends the wait.
const ROUND: Duration = Duration::from_secs(3600);

/// Provider or cleaner of one pool. The members of a provider leave the pool when it is dropped, or when the connection
/// or the process ends. If a cleaner is dropped during a cleaning, the server asks another one 10 seconds later.
#[derive(Debug)]
pub struct Provider {
    connection: ClientConnection,
    /// Name of the pool in its escaped form.
    pool: Vec<u8>,
    /// Tasks received but not yet handed out, oldest first.
    tasks: VecDeque<Task>,
}

/// Role of a connection for its pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Starts and stops members; the number limits how many it has, None is no own limit.
    Provider(Option<u32>),
    /// Cleans members between two uses (`clean_timeout`), usually fixed members, which have no provider. Each cleaner
    /// cleans one member at a time. A cleaning that has failed is requested again later, up to `clean_attempts` times.
    Cleaner,
}

/// Result of a task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TaskResult {
    /// The start succeeded, with this member.
    Started(Offered),
    /// The start failed for this reason.
    Failed(String),
    /// The member is stopped, alive or clean, according to the task.
    Done,
    /// The member is dead, or its cleaning has failed, for this reason, which may be empty.
    Dead(String),
}

impl Provider {
    /// Connects to the first server that replies, in the placement's order for this pool.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`]; [`Error::Unavailable`]; [`Error::Refused`], for example with `NO_POOL`.
    pub fn connect(
        placement: impl Into<Placement>,
        timeouts: Timeouts,
        pool: impl AsRef<[u8]>,
        role: Role,
    ) -> Result<Provider, Error> {
        Provider::connect_as(role, &placement.into(), timeouts, pool.as_ref(), None)
    }

    /// Connects like [`Provider::connect`]. A provider with a session (a random name that it chooses once) takes over
    /// the members of its earlier connection, which the server closes if it is still open.
    ///
    /// # Errors
    ///
    /// The errors of [`Provider::connect`].
    pub fn connect_as(
        role: Role,
        placement: &Placement,
        timeouts: Timeouts,
        pool: &[u8],
        session: Option<&str>,
    ) -> Result<Provider, Error> {
        let name = sendable_name(pool)?.into_owned();
        let request = match role {
            Role::Cleaner => Request::Clean { pool: &name },
            Role::Provider(capacity) => Request::Provide { pool: &name, capacity, session: session.map(str::as_bytes) },
        };
        let order = placement.order(pool);
        let servers = order.iter().map(|server| &placement.servers()[*server]);
        let dial = Dial::new(DEFAULT_PORT, timeouts, placement.tls());
        let (_, connection, ()) = dial.first(servers, |connection| tell(connection, &request))?;
        Ok(Provider { connection, pool: name, tasks: VecDeque::new() })
    }

    /// Handles tasks until the connection ends: calls `work` with each task, one at a time, and sends the result. A
    /// late result is no error: the server then requests a stop of the started member, or has gone on without the
    /// member to be checked, cleaned or stopped.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`], and the errors of [`Provider::answer`] except for late results.
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

    /// Returns the next task; None if there is none within `timeout`.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`].
    pub fn next_task(&mut self, timeout: Duration) -> Result<Option<Task>, Error> {
        if self.tasks.is_empty() {
            let (lines, received) = self.connection.pending_lines();
            received.map_err(|_| Error::Lost)?;
            self.queue(&lines)?;
        }
        if self.tasks.is_empty() && !timeout.is_zero() {
            let line = self.connection.line_within(timeout).map_err(|_| Error::Lost)?;
            self.queue(line.as_slice())?;
        }
        Ok(self.tasks.pop_front())
    }

    /// Sends the result of a task. A result that does not fit the task is sent as a failure.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`] or [`Error::BadArgument`] for an invalid member, about which nothing is sent;
    /// [`Error::Lost`]; [`Error::Refused`], with `TOO_LATE` if the server has given up the start (it then requests a
    /// stop of the member); with `NO_SUCH_MEMBER` if the server does not wait for this member; with `MEMBER_EXISTS` if
    /// the pool has a member of that name, which makes the start fail.
    pub fn answer(&mut self, task: &Task, result: &TaskResult) -> Result<(), Error> {
        let text = match result {
            TaskResult::Failed(reason) | TaskResult::Dead(reason) => sendable_text(reason),
            TaskResult::Started(_) | TaskResult::Done => String::new(),
        };
        let text = text.as_bytes();
        match (task, result) {
            (Task::Start(start), TaskResult::Started(Offered { name, attributes })) => {
                let (name, attributes) = sendable(name, attributes)?;
                self.ask(&Request::Started { start: *start, named: Ok((&name, attributes)) })
            }
            (Task::Start(start), _) => self.ask(&Request::Failed { start: *start, text }),
            (Task::Stop(member), _) => self.ask(&Request::Stopped { member }),
            (Task::Check(member), TaskResult::Done) => self.ask(&Request::Alive { member }),
            (Task::Clean(member), TaskResult::Done) => self.ask(&Request::Cleaned { member }),
            (Task::Check(member) | Task::Clean(member), _) => self.ask(&Request::Dead { member, text }),
        }
    }

    /// Reports the death of a member.
    ///
    /// # Errors
    ///
    /// As [`Provider::answer`]; [`Error::Refused`] with `NO_SUCH_MEMBER`.
    pub fn died(&mut self, member: impl AsRef<[u8]>) -> Result<(), Error> {
        let member = sendable_member(member.as_ref())?;
        self.ask(&Request::Dead { member: &member, text: b"" })
    }

    /// Reports on a new connection that a cleaning goes on, which was requested on an earlier one.
    ///
    /// # Errors
    ///
    /// As [`Provider::answer`]; [`Error::NotTaken`] if the cleaning must end, because the member is in use, kept out or
    /// cleaned by another cleaner.
    pub fn cleaning(&mut self, member: impl AsRef<[u8]>) -> Result<(), Error> {
        let member = sendable_member(member.as_ref())?;
        self.ask(&Request::Cleaning { member: &member })
    }

    /// Changes the limit of its members (None: no own limit). With 0 it gets no more start requests, but keeps its
    /// members.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]; [`Error::Refused`] with `NO_POOL` during the removal of the pool.
    pub fn set_capacity(&mut self, capacity: Option<u32>) -> Result<(), Error> {
        tell(&mut self.connection, &Request::Provide { pool: &self.pool, capacity, session: None })
            .map_err(Stop::or_lost)
    }

    /// Adds a running member.
    ///
    /// # Errors
    ///
    /// As [`Provider::answer`]; [`Error::Refused`] with `POOL_FULL` or `MEMBER_EXISTS`.
    pub fn offer(&mut self, member: &Offered) -> Result<(), Error> {
        let (name, attributes) = sendable(&member.name, &member.attributes)?;
        let named = Named { pool: &self.pool, member: &name };
        tell(&mut self.connection, &Request::Offer { named, attributes }).map_err(Stop::or_lost)
    }

    /// Removes a member from the pool: when it is returned, or `now`, so that its holder loses it. The server does not
    /// request its stop.
    ///
    /// # Errors
    ///
    /// As [`Provider::died`].
    pub fn withdraw(&mut self, member: impl AsRef<[u8]>, now: bool) -> Result<(), Error> {
        let named = Named { pool: &self.pool, member: &sendable_member(member.as_ref())? };
        tell(&mut self.connection, &Request::Withdraw { named, now }).map_err(Stop::or_lost)
    }

    /// Returns the members of the pool, including members of other providers.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] or [`Error::Refused`].
    pub fn members(&mut self) -> Result<Vec<ListedMember>, Error> {
        let request = pool_request("MEMBERS", &self.pool);
        read_list(&mut self.connection, &request, wire::parse_member).map_err(Stop::or_lost)
    }

    /// Returns the address of the connected server.
    pub fn address(&self) -> &str {
        &self.connection.address
    }

    fn ask(&mut self, request: &Request<'_>) -> Result<(), Error> {
        tell(&mut self.connection, request).map_err(Stop::or_lost)
    }

    /// Queues the tasks in lines that were sent unasked. Another line is a fault of the server, and ends the connection.
    fn queue(&mut self, lines: &[Vec<u8>]) -> Result<(), Error> {
        if !lines.iter().all(|line| wire::is_notice(line)) {
            return Err(Error::Lost);
        }
        let notices = lines.iter().filter_map(|line| wire::parse_notice(line));
        self.tasks.extend(notices.filter_map(|notice| if let Notice::Task(task) = notice { Some(task) } else { None }));
        Ok(())
    }
}

/// Sends a request, and reads its reply.
fn tell(connection: &mut ClientConnection, request: &Request<'_>) -> Said<()> {
    read_done(&ask(connection, &line_of(request))?, &Reply::Ok)
}

/// Becomes readable when there may be a task.
impl AsFd for Provider {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

/// Returns true if a result was refused because the server no longer waits for it.
fn is_late(words: &str) -> bool {
    words.starts_with("TOO_LATE") || words.starts_with("NO_SUCH_MEMBER")
}

fn sendable(name: &[u8], attributes: &[(Vec<u8>, Vec<u8>)]) -> Result<(Vec<u8>, Attributes), Error> {
    Ok((sendable_member(name)?.into_owned(), sendable_attributes(attributes)?))
}
