//! Requests and results of the counters, as values for both sides of the protocol.

/// A request for units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AcquireUnits<'a> {
    /// Name of the counter; not empty.
    pub name: &'a [u8],
    /// Number of units; at least one.
    pub resources: u32,
    /// Most units that all connections together may hold afterwards; not less than `resources`.
    pub maximum: u32,
}

/// A request to release units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReleaseUnits<'a> {
    /// Name of the counter; not empty.
    pub name: &'a [u8],
    /// Number of units. Zero succeeds for a connection that holds some.
    pub resources: u32,
}

/// Reason for which a request fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CounterRefusal {
    /// The counter does not exist.
    NotFound,
    /// The maximum would be exceeded.
    NotAvailable,
    /// The connection holds fewer units than it would release.
    NotAcquired,
    /// The counters have reached their memory limit.
    OutOfMemory,
    /// No rule of access allows the request.
    Denied,
    /// A rule of access allows the request, but its limit is reached.
    Limited,
}

/// Present values of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterRecord<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Number of held units.
    pub consumption: u32,
    /// Most units that were held at a time in this interval.
    pub peak: u32,
}
