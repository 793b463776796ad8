//! Cleaner of the members protocol: a connection on which the server requests that members be cleaned.

use super::Timeouts;
use super::error::Error;
use super::placement::Placement;
use super::provider::{Provider, Role, TaskResult};
use poolcounter_protocol::members::wire::client::Task;
use std::convert::Infallible;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Cleaner of one pool whose members are cleaned between two uses (`clean_timeout`), usually one of fixed members,
/// which have no provider. If it is dropped during a cleaning, the server asks another cleaner or provider 10 seconds
/// later; without one, the member waits.
#[derive(Debug)]
pub struct Cleaner {
    provider: Provider,
}

impl Cleaner {
    /// Connects to the first server that answers, in the placement's order for this pool.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`]; [`Error::Unavailable`]; [`Error::Refused`], for a server with `NO_POOL`.
    pub fn connect(
        placement: impl Into<Placement>,
        timeouts: Timeouts,
        pool: impl AsRef<[u8]>,
    ) -> Result<Cleaner, Error> {
        let provider = Provider::connect_as(Role::Cleaner, &placement.into(), timeouts, pool.as_ref(), None)?;
        Ok(Cleaner { provider })
    }

    /// Handles clean requests until the connection ends: calls `clean` with the name of each member. If `clean` returns
    /// false, the server asks again later, and puts the member into quarantine after `clean_attempts`. Members are cleaned one at a time; several cleaners clean several at a time.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`].
    pub fn serve(&mut self, mut clean: impl FnMut(&[u8]) -> bool) -> Result<Infallible, Error> {
        self.provider.serve(|task| match task {
            Task::Clean(member) if clean(member) => TaskResult::Done,
            _ => TaskResult::Dead(String::new()),
        })
    }

    /// Returns the name of the next member to clean; None if the server requests none within `timeout`.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`].
    pub fn next_member(&mut self, timeout: Duration) -> Result<Option<Vec<u8>>, Error> {
        Ok(match self.provider.next_task(timeout)? {
            Some(Task::Clean(member)) => Some(member.into()),
            _ => None,
        })
    }

    /// Reports the result of a cleaning: the member is clean or not.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]; [`Error::BadName`]; [`Error::Refused`] with `NO_SUCH_MEMBER` if the pool no longer
    /// has the member.
    pub fn answer(&mut self, member: &[u8], is_clean: bool) -> Result<(), Error> {
        let result = if is_clean { TaskResult::Done } else { TaskResult::Dead(String::new()) };
        self.provider.answer(&Task::Clean(member.into()), &result)
    }

    /// Returns the address of the connected server.
    pub fn address(&self) -> &str {
        self.provider.address()
    }
}

/// Becomes readable when there may be a member to clean.
impl AsFd for Cleaner {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.provider.as_fd()
    }
}
