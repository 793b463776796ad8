//! What clients of the counters ask for, and what they are told: values that both sides of the protocol have.

/// A request for units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AcquireUnits<'a> {
    /// The name of the counter; not empty.
    pub name: &'a [u8],
    /// How many units; at least one.
    pub resources: u32,
    /// How many units all connections together may hold afterwards; not less than `resources`.
    pub maximum: u32,
}

/// A request to give units back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReleaseUnits<'a> {
    /// The name of the counter; not empty.
    pub name: &'a [u8],
    /// How many units. With zero it succeeds for a connection that holds some.
    pub resources: u32,
}

/// Why a request does not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CounterRefusal {
    /// There is no such counter.
    NotFound,
    /// More than the maximum would be held.
    NotAvailable,
    /// The connection holds fewer units than it would give back.
    NotAcquired,
    /// The counters use as much memory as they may.
    OutOfMemory,
    /// No rule of access allows that.
    Denied,
    /// A rule of access allows that, but not as often.
    Limited,
}

/// A counter as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterRecord<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// How many units are held.
    pub consumption: u32,
    /// The most units that were held at a time in this interval.
    pub peak: u32,
}
