//! Turns of a connection: the input and the answer of its service.

/// Received bytes of a connection that are not served yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Input<'a> {
    /// All bytes received and not consumed.
    pub bytes: &'a [u8],
    /// Number of leading bytes in which the service found no complete request before: the search for the end of a
    /// request can start behind them.
    pub seen: usize,
    /// True in a turn for snapshots: only then does a service ask for a snapshot with reports
    /// ([`Effect::Show`](super::Effect::Show)).
    pub may_show: bool,
}

/// Result of [`Service::serve`](super::Service::serve).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// Number of input bytes consumed.
    pub consumed: usize,
    /// The next step.
    pub then: Then,
}

/// Next step for a connection that was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// The rest of the input is not a complete request: wait for more bytes.
    Read,
    /// The rest may hold complete requests: serve again in the next tick.
    Serve,
    /// The rest may hold complete requests, but nothing is served or read before
    /// [`Context::resume`](super::Context::resume).
    Wait,
    /// The rest begins with a request that needs a snapshot with reports: serve it in a turn for snapshots. These come
    /// last in their tick, and within its time but for one, so that no lock waits for many of them.
    Show,
    /// Send the unsent output, then close.
    Close,
}
