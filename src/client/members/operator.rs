//! Operators' requests of the members service: declare, change and remove pools and fixed members.

use super::Members;
use super::exchange::{
    Offered, line_of, pool_request, sendable_attributes, sendable_member, sendable_name, sendable_text,
};
use crate::error::Error;
use poolcounter_protocol::members::request::{Named, Request};
use poolcounter_protocol::members::wire::client::{self as wire, ListedMember, Reply};
use std::time::Duration;

/// Operators' requests, each sent to the server of the pool. By default a server allows them from its own machine and
/// on local sockets (`members.admin`); elsewhere they fail with [`Error::Refused`] and `NOT_ADMIN`.
///
/// All can also fail with [`Error::BadName`] for an invalid name or value, with [`Error::BadArgument`] for attributes
/// that no member can have, with [`Error::Unavailable`], and with [`Error::Refused`] and `NO_POOL` or `NO_SUCH_MEMBER`.
#[derive(Clone, Copy, Debug)]
pub struct Operator<'a> {
    members: &'a Members,
}

impl<'a> Operator<'a> {
    pub(super) fn of(members: &'a Members) -> Self {
        Operator { members }
    }
}

impl Operator<'_> {
    /// Declares a pool with `init` members at the start and at most `max`; succeeds if it already exists with the same
    /// settings. Settings are keys and values as in poolcounter.toml(5), times in seconds: `("max_hold", "600")`.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], with `POOL_DIFFERS` if the pool has other settings and with `BAD_SYNTAX` for unknown
    /// settings.
    pub fn declare(&self, pool: impl AsRef<[u8]>, init: u32, max: u32, settings: &[(&str, &str)]) -> Result<(), Error> {
        let settings = wire::escape_settings(settings).ok_or(Error::BadName)?;
        self.ask(pool.as_ref(), |name| {
            let mut request = Vec::new();
            wire::write_declaration(&mut request, name, init, max, &settings);
            request
        })
    }

    /// Changes these settings of a pool, all or none; `init` and `max` are settings, too.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], with `BAD_SYNTAX` for unknown or contradictory settings.
    pub fn reconfigure(&self, pool: impl AsRef<[u8]>, settings: &[(&str, &str)]) -> Result<(), Error> {
        let settings = wire::escape_settings(settings).ok_or(Error::BadName)?;
        self.ask(pool.as_ref(), |name| {
            let mut request = Vec::new();
            wire::write_reconfiguration(&mut request, name, &settings);
            request
        })
    }

    /// Removes a pool: at once, so that holders lose their members, or gracefully, once all members have been returned.
    ///
    /// # Errors
    ///
    /// See [`Operator`].
    pub fn remove(&self, pool: impl AsRef<[u8]>, is_graceful: bool) -> Result<(), Error> {
        self.ask(pool.as_ref(), |name| line_of(&Request::RemovePool { name, graceful: is_graceful }))
    }

    /// Removes the pools of a group at the server of the group's name: at once, or gracefully.
    ///
    /// # Errors
    ///
    /// See [`Operator`].
    pub fn remove_group(&self, group: impl AsRef<[u8]>, is_graceful: bool) -> Result<(), Error> {
        self.ask(group.as_ref(), |name| line_of(&Request::RemoveGroup { name, graceful: is_graceful }))
    }

    /// Adds a fixed member, which has no provider.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], with `POOL_FULL` or `MEMBER_EXISTS`.
    pub fn add(&self, pool: impl AsRef<[u8]>, member: &Offered) -> Result<(), Error> {
        let attributes = sendable_attributes(&member.attributes)?;
        self.ask_about(pool.as_ref(), &member.name, |named| Request::Add { named, attributes })
    }

    /// Removes a fixed member from its pool: when it is returned, or `now`, so that its holder loses it.
    ///
    /// # Errors
    ///
    /// See [`Operator`].
    pub fn delete(&self, pool: impl AsRef<[u8]>, member: impl AsRef<[u8]>, now: bool) -> Result<(), Error> {
        self.ask_about(pool.as_ref(), member.as_ref(), |named| Request::Delete { named, now })
    }

    /// Returns the members of a pool at the server of the pool, to which the other requests go, too.
    ///
    /// # Errors
    ///
    /// See [`Operator`].
    pub fn members(&self, pool: impl AsRef<[u8]>) -> Result<Vec<ListedMember>, Error> {
        let request = pool_request("MEMBERS", &sendable_name(pool.as_ref())?);
        self.members.list_at_server_of(pool.as_ref(), &request, wire::parse_member)
    }

    /// Takes a fixed member out of quarantine. In a pool that cleans, the member is cleaned first, unless it is good
    /// `as_is`; then the wait for a cleaning ends, too. Has no effect on other members.
    ///
    /// # Errors
    ///
    /// See [`Operator`].
    pub fn repair(&self, pool: impl AsRef<[u8]>, member: impl AsRef<[u8]>, as_is: bool) -> Result<(), Error> {
        self.ask_about(pool.as_ref(), member.as_ref(), |named| Request::Repair { named, as_is })
    }

    /// Suspends a member for `span`; a member in use is suspended from its return on, as it is. The note goes to the
    /// server's log and list.
    ///
    /// # Errors
    ///
    /// See [`Operator`].
    pub fn hold(
        &self,
        pool: impl AsRef<[u8]>,
        member: impl AsRef<[u8]>,
        span: Duration,
        note: &str,
    ) -> Result<(), Error> {
        let (member, note) = (sendable_member(member.as_ref())?, sendable_text(note));
        self.ask(pool.as_ref(), |pool| {
            let named = Named { pool, member: &member };
            line_of(&Request::Hold { named, span: span.into(), note: note.as_bytes() })
        })
    }

    /// Ends the suspension by [`Operator::hold`]. Has no effect on other members.
    ///
    /// # Errors
    ///
    /// See [`Operator`].
    pub fn free(&self, pool: impl AsRef<[u8]>, member: impl AsRef<[u8]>) -> Result<(), Error> {
        let member = sendable_member(member.as_ref())?;
        self.ask(pool.as_ref(), |pool| line_of(&Request::Free(Named { pool, member: &member })))
    }

    /// Revokes a lease, and notifies its holder. `pool` selects the server. The note goes to the server's log and to the
    /// holder.
    ///
    /// # Errors
    ///
    /// [`Error::NotTaken`] if the lease does not exist.
    pub fn take_back(&self, pool: impl AsRef<[u8]>, lease: u64, note: &str) -> Result<(), Error> {
        let note = sendable_text(note);
        self.ask(pool.as_ref(), |_| line_of(&Request::TakeBack { lease, note: note.as_bytes() }))
    }

    /// Sends the request to the server of a pool, whose name it gets in its escaped form.
    fn ask(&self, pool: &[u8], request: impl FnOnce(&[u8]) -> Vec<u8>) -> Result<(), Error> {
        self.members.ask_once(pool, &request(&sendable_name(pool)?), &Reply::Ok)
    }

    /// Sends the request about a member of a pool.
    fn ask_about(
        &self,
        pool: &[u8],
        member: &[u8],
        request: impl FnOnce(Named<'_>) -> Request<'_>,
    ) -> Result<(), Error> {
        let member = sendable_member(member)?;
        self.ask(pool, |pool| line_of(&request(Named { pool, member: &member })))
    }
}
