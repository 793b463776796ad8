//! What clients of the counters ask for, and what they are told: values that both sides of the protocol have.

/// A request for units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acquire<'a> {
    /// Of the counter with this name; not empty.
    pub name: &'a [u8],
    /// How many; at least one.
    pub resources: u32,
    /// How many all may hold together afterwards; not less than `resources`.
    pub maximum: u32,
}

/// Units that come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Release<'a> {
    /// To the counter with this name; not empty.
    pub name: &'a [u8],
    /// How many. To give back nothing succeeds for whoever holds something.
    pub resources: u32,
}

/// Why a request does not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// There is no such counter.
    NotFound,
    /// The others hold too much.
    NotAvailable,
    /// The connection holds less than it would give back.
    NotAcquired,
    /// The counters take as much memory as they may.
    OutOfMemory,
}

/// A counter as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// How much of it is held.
    pub consumption: u32,
    /// The most that was held at a time in this interval.
    pub peak: u32,
}
