//! The cleaner's side of the members protocol: a connection that is asked to clean the members of others.

use super::Timeouts;
use super::error::Error;
use super::placement::Placement;
use super::provider::{Provider, Role, TaskResult};
use poolcounter_protocol::members::wire::client::Task;
use std::convert::Infallible;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// A cleaner of one pool whose members are cleaned between two uses (`clean_timeout`), above all of fixed ones, which have no provider.
/// What it is cleaning when this is dropped, another cleaner or provider is asked to clean, or else it has failed in the end.
#[derive(Debug)]
pub struct Cleaner {
    provider: Provider,
}

impl Cleaner {
    /// Connects to the first server that answers, in the placement's order for this pool.
    ///
    /// # Errors
    ///
    /// [`Error::BadName`]; [`Error::Unavailable`]; [`Error::Refused`], for one with `NO_POOL`.
    pub fn connect(
        placement: impl Into<Placement>,
        timeouts: Timeouts,
        pool: impl AsRef<[u8]>,
    ) -> Result<Cleaner, Error> {
        let provider = Provider::connect_as(Role::Cleaner, &placement.into(), timeouts, pool.as_ref(), None)?;
        Ok(Cleaner { provider })
    }

    /// Cleans what the server asks for, until the connection ends: calls `clean` with the name of each member, which returns whether
    /// the member is clean. One that is not, is dead. While `clean` takes its time, nothing else is cleaned: for several at a time
    /// there are several cleaners.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`].
    pub fn serve(&mut self, mut clean: impl FnMut(&[u8]) -> bool) -> Result<Infallible, Error> {
        self.provider.serve(|task| match task {
            Task::Clean(member) if clean(member) => TaskResult::Done,
            _ => TaskResult::Dead,
        })
    }

    /// Returns the name of the next member to be cleaned; None when there is none within the time.
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

    /// Tells the server whether a member is clean now; if not, it is dead.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`]; [`Error::BadName`]; [`Error::Refused`] with `NO_SUCH_MEMBER` when the server has waited too long for this.
    pub fn answer(&mut self, member: &[u8], is_clean: bool) -> Result<(), Error> {
        let result = if is_clean { TaskResult::Done } else { TaskResult::Dead };
        self.provider.answer(&Task::Clean(member.into()), &result)
    }

    /// Where the server was found.
    pub fn address(&self) -> &str {
        self.provider.address()
    }
}

/// When it is readable, there may be a member to clean.
impl AsFd for Cleaner {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.provider.as_fd()
    }
}
