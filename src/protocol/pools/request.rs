//! What clients of the pools ask for, and what they are told: values that both sides of the protocol have.

use poolcounter_core::time::Span;

/// What `ACQ4ME` and `ACQ4ANY` ask for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcquireLock<'a> {
    /// The pool's name: opaque bytes, at least one.
    pub key: &'a [u8],
    /// For whom the work is done.
    pub purpose: Purpose,
    /// How many may hold a lock at a time. At least 1.
    pub workers: u32,
    /// How many may hold or wait; further requests are refused. At least 1.
    pub max_queue: u32,
    /// How long to wait for a lock; zero means not at all.
    pub timeout: Span,
    /// The longest time to hold it.
    pub hold: Span,
    /// Who asks, for people who look; empty if the client does not say.
    pub who: &'a [u8],
    /// The further keys under which it needs a place: [`MOST_LIMITS`] at most, and no key twice.
    pub also: Vec<KeyLimits<'a>>,
}

/// How many further keys a request may name.
pub const MOST_LIMITS: usize = 4;

/// A further key under which a request needs a place: all of them or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyLimits<'a> {
    /// The pool's name: opaque bytes, at least one.
    pub key: &'a [u8],
    /// How many may hold a lock at a time. At least 1.
    pub workers: u32,
    /// How many may hold or wait. At least 1.
    pub max_queue: u32,
}

/// For whom a client does the work that it wants a lock for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "daemon", derive(serde::Serialize, serde::Deserialize))]
pub enum Purpose {
    /// For itself alone: it needs a lock of its own.
    Me,
    /// For all that ask with this purpose: once one client has finished, the waiters need not work.
    Anyone,
}

/// A request whose key, workers or maxqueue is missing, zero or not a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadSyntax;

/// A reply to a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The connection holds a lock and is to do the work.
    Locked,
    /// Another client has finished the work; no lock is held.
    Done,
    /// A lock was released, or a wait withdrawn.
    Released,
    /// Too many hold or wait already.
    QueueFull,
    /// No lock came free in time.
    Timeout,
    /// The connection has as many claims as it may.
    LockHeld,
    /// The connection has no such claim.
    NotLocked,
    /// The connection still waits for its last request.
    WaitForResponse,
    /// See [`BadSyntax`].
    BadSyntax,
    /// The server is to end, and grants nothing new.
    Draining,
    /// No rule of access allows that.
    Denied,
    /// A rule of access allows that, but not as often.
    Limited,
    /// The request is none that is known.
    BadCommand,
    /// The request is too long, and so is all that comes behind it lost.
    LineTooLong,
}
