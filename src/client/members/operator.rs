//! What operators ask of the members service: pools and fixed members are declared, changed and taken back.

use super::Members;
use super::exchange::{sendable_attributes, sendable_text};
use crate::error::Error;
use crate::provider::Offered;
use poolcounter_protocol::members::request::{Named, Request};
use poolcounter_protocol::members::wire::client::{self as wire, Reply};
use std::borrow::Cow;
use std::time::Duration;

/// The requests of operators, each to the server of the pool that it names. A server allows them on its own machine and on local
/// sockets, unless its operator has chosen otherwise (`members.admin`); elsewhere they end with [`Error::Refused`] and `NOT_ADMIN`.
///
/// Besides, each may end with [`Error::BadName`] for what cannot be sent, with [`Error::Unavailable`], and with [`Error::Refused`] and
/// `NO_POOL` or `NO_SUCH_MEMBER`.
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
    /// Declares a pool that has `init` members from the start and may have `max`, or confirms that it is declared so. The settings are
    /// keys and values as poolcounter(8) has them, times in seconds: `("max_hold", "600")`.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], with `POOL_DIFFERS` if the pool has other settings and with `BAD_SYNTAX` for settings that there are not.
    pub fn declare(&self, pool: impl AsRef<[u8]>, init: u32, max: u32, settings: &[(&str, &str)]) -> Result<(), Error> {
        let (name, settings) = (sendable_pool(pool.as_ref())?, sendable_settings(settings)?);
        let mut request = Vec::new();
        wire::write_declaration(&mut request, &name, init, max, &settings);
        self.send(pool.as_ref(), &request)
    }

    /// Changes these settings of a pool, all or none; `init` and `max` are settings, too.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], with `BAD_SYNTAX` for settings that there are not or that contradict each other.
    pub fn reconfigure(&self, pool: impl AsRef<[u8]>, settings: &[(&str, &str)]) -> Result<(), Error> {
        let (name, settings) = (sendable_pool(pool.as_ref())?, sendable_settings(settings)?);
        let mut request = Vec::new();
        wire::write_reconfiguration(&mut request, &name, &settings);
        self.send(pool.as_ref(), &request)
    }

    /// Removes a pool: at once, so that holders lose their members, or gracefully, when all have been returned.
    ///
    /// # Errors
    ///
    /// See [`Operator`].
    pub fn remove(&self, pool: impl AsRef<[u8]>, is_graceful: bool) -> Result<(), Error> {
        let name = sendable_pool(pool.as_ref())?;
        self.ask(pool.as_ref(), &Request::RemovePool { name: &name, graceful: is_graceful })
    }

    /// Removes the pools of a group, at the server that is asked for the group: at once, or gracefully.
    ///
    /// # Errors
    ///
    /// See [`Operator`].
    pub fn remove_group(&self, group: impl AsRef<[u8]>, is_graceful: bool) -> Result<(), Error> {
        let name = sendable_pool(group.as_ref())?;
        self.ask(group.as_ref(), &Request::RemoveGroup { name: &name, graceful: is_graceful })
    }

    /// Adds a fixed member, which no provider starts or stops.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], with `POOL_FULL` or `MEMBER_EXISTS`.
    pub fn add(&self, pool: impl AsRef<[u8]>, member: &Offered) -> Result<(), Error> {
        let attributes = sendable_attributes(&member.attributes)?;
        let names = SendableNames::of(pool.as_ref(), &member.name)?;
        self.ask(pool.as_ref(), &Request::Add { named: names.named(), attributes })
    }

    /// Takes a fixed member out of its pool: when it is returned, or `now`, so that its holder loses it.
    ///
    /// # Errors
    ///
    /// See [`Operator`].
    pub fn delete(&self, pool: impl AsRef<[u8]>, member: impl AsRef<[u8]>, now: bool) -> Result<(), Error> {
        let names = SendableNames::of(pool.as_ref(), member.as_ref())?;
        self.ask(pool.as_ref(), &Request::Delete { named: names.named(), now })
    }

    /// Takes a fixed member out of quarantine. Without effect if it is not there.
    ///
    /// # Errors
    ///
    /// See [`Operator`].
    pub fn repair(&self, pool: impl AsRef<[u8]>, member: impl AsRef<[u8]>) -> Result<(), Error> {
        let names = SendableNames::of(pool.as_ref(), member.as_ref())?;
        self.ask(pool.as_ref(), &Request::Repair(names.named()))
    }

    /// Keeps a member from being handed out for so long, from its return on if it is in use. The note is for the server's log.
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
        let (names, note) = (SendableNames::of(pool.as_ref(), member.as_ref())?, sendable_text(note));
        let request = Request::Hold { named: names.named(), span: span.into(), note: note.as_bytes() };
        self.ask(pool.as_ref(), &request)
    }

    /// Ends what [`Operator::hold`] has begun. Without effect if the member is not held.
    ///
    /// # Errors
    ///
    /// See [`Operator`].
    pub fn free(&self, pool: impl AsRef<[u8]>, member: impl AsRef<[u8]>) -> Result<(), Error> {
        let names = SendableNames::of(pool.as_ref(), member.as_ref())?;
        self.ask(pool.as_ref(), &Request::Free(names.named()))
    }

    /// Takes the member of a lease back from its holder, which is told so. The pool says which server has the lease. The note is
    /// for the server's log.
    ///
    /// # Errors
    ///
    /// [`Error::NotTaken`] when there is no such lease.
    pub fn take_back(&self, pool: impl AsRef<[u8]>, lease: u64, note: &str) -> Result<(), Error> {
        let note = sendable_text(note);
        self.ask(pool.as_ref(), &Request::TakeBack { lease, note: note.as_bytes() })
    }

    fn ask(&self, pool: &[u8], request: &Request<'_>) -> Result<(), Error> {
        let mut bytes = Vec::new();
        wire::write_request(&mut bytes, request);
        self.send(pool, &bytes)
    }

    fn send(&self, pool: &[u8], request: &[u8]) -> Result<(), Error> {
        self.members.ask_server_of(pool, request, &Reply::Ok)
    }
}

fn sendable_pool(pool: &[u8]) -> Result<Vec<u8>, Error> {
    wire::escape_name(pool).map(Cow::into_owned).ok_or(Error::BadName)
}

/// The names of a pool and of a member of it, as they go over the wire.
struct SendableNames {
    pool: Vec<u8>,
    member: Vec<u8>,
}

impl SendableNames {
    fn of(pool: &[u8], member: &[u8]) -> Result<SendableNames, Error> {
        let member = wire::escape_member(member).map(Cow::into_owned).ok_or(Error::BadName)?;
        Ok(SendableNames { pool: sendable_pool(pool)?, member })
    }

    fn named(&self) -> Named<'_> {
        Named { pool: &self.pool, member: &self.member }
    }
}

fn sendable_settings(settings: &[(&str, &str)]) -> Result<Vec<u8>, Error> {
    wire::escape_settings(settings).ok_or(Error::BadName)
}
