//! What clients of the pools ask for, and what they are told: values that both sides of the protocol have.

use crate::time::Span;

/// What `ACQ4ME` and `ACQ4ANY` ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acquire<'a> {
    /// The pool's name: opaque bytes, at least one.
    pub key: &'a [u8],
    /// For whom the work is done.
    pub purpose: Purpose,
    /// A place is free while fewer hold one. At least 1.
    pub workers: u32,
    /// Nobody is let in once so many hold or wait. At least 1.
    pub max_queue: u32,
    /// How long to wait for a place; zero means not at all.
    pub timeout: Span,
    /// How long to hold it at most.
    pub hold: Span,
}

/// For whom a client does the work that it wants a place for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "daemon", derive(serde::Serialize, serde::Deserialize))]
pub enum Purpose {
    /// For itself alone: it needs a place of its own.
    Me,
    /// For everybody who asked: once somebody has finished, the waiters need not work.
    Anyone,
}

/// A request whose key, workers or maxqueue is missing, zero or not a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadSyntax;

/// What a connection is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The connection has a place and is to do the work.
    Locked,
    /// Somebody finished the work; no place is held.
    Done,
    /// A place was given back, or a wait withdrawn.
    Released,
    /// Too many hold or wait already.
    QueueFull,
    /// No place came free in time.
    Timeout,
    /// The connection has as many places as it may have.
    LockHeld,
    /// The connection holds no such place.
    NotLocked,
    /// The connection still waits for its last request.
    WaitForResponse,
    /// See [`BadSyntax`].
    BadSyntax,
}
