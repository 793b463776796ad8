//! Requests and replies of the pools, as values for both sides of the protocol.

use poolcounter_core::{Span, words};

/// Parameters of `ACQ4ME` and `ACQ4ANY`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AcquireLock<'a> {
    /// Name of the pool: opaque bytes, at least one.
    pub key: &'a [u8],
    /// Purpose of the work.
    pub purpose: Purpose,
    /// Most holders of a lock at a time; at least 1.
    pub workers: u32,
    /// Most holders and waiters together; further requests are refused. At least 1.
    pub max_queue: u32,
    /// Longest wait for a lock; zero means none.
    pub timeout: Span,
    /// Longest time to hold it.
    pub hold: Span,
    /// Least time for which the lock occupies its key from the grant on, also after its holder has ended; zero without
    /// one.
    pub keep: Span,
    /// Name that the client gives, for people; empty without one.
    pub who: &'a [u8],
    /// Further keys under which it needs a place: at most [`MOST_LIMITS`], and no key twice.
    pub also: Vec<KeyLimits<'a>>,
}

/// Most further keys of a request.
pub const MOST_LIMITS: usize = 4;

/// Further key under which a request needs a place: all of them or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyLimits<'a> {
    /// Name of the pool: opaque bytes, at least one.
    pub key: &'a [u8],
    /// Most holders of a lock at a time; at least 1.
    pub workers: u32,
    /// Most holders and waiters together; at least 1.
    pub max_queue: u32,
}

/// Purpose of the work that needs a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "daemon", derive(serde::Serialize, serde::Deserialize))]
pub enum Purpose {
    /// Work for the client alone: it needs a lock of its own.
    Me,
    /// Work for all clients that ask with this purpose: once one has finished, the waiters need not work.
    Anyone,
}

/// Error of a request whose key, workers or maxqueue is missing, zero or not a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadSyntax;

words! {
    /// Reply to a connection. Clients tell the replies up to `Draining` from each other by this order.
    pub enum Reply, text {
        /// The connection holds a lock and should do the work.
        Locked = "LOCKED\n",
        /// Another client has finished the work; no lock is held.
        Done = "DONE\n",
        /// A lock was released, or a wait withdrawn.
        Released = "RELEASED\n",
        /// The limit of holders and waiters is reached.
        QueueFull = "QUEUE_FULL\n",
        /// No lock became free in time.
        Timeout = "TIMEOUT\n",
        /// The connection has reached its limit of claims.
        LockHeld = "LOCK_HELD\n",
        /// The connection does not have the claim.
        NotLocked = "NOT_LOCKED\n",
        /// The connection still waits for its last request.
        WaitForResponse = "ERROR WAIT_FOR_RESPONSE\n",
        /// The request is malformed: see [`BadSyntax`].
        BadSyntax = "ERROR BAD_SYNTAX\n",
        /// The server is ending, and grants no new locks.
        Draining = "ERROR DRAINING\n",
        /// The least time of the lock is longer than its longest hold.
        KeepOverHold = "ERROR KEEP_OVER_HOLD\n",
        /// No rule of access allows the request.
        Denied = "ERROR DENIED\n",
        /// A rule of access allows the request, but its limit is reached.
        Limited = "ERROR LIMITED\n",
        /// The request is unknown.
        BadCommand = "ERROR BAD_COMMAND\n",
        /// The request is too long, so that all bytes behind it are lost.
        LineTooLong = "ERROR LINE_TOO_LONG\n",
    }
}
