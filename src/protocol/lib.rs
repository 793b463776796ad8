//! Protocols of the services, for both sides of a connection: requests and replies as values, their parsers and
//! writers.
//!
//! No module has a socket or knows the state. This crate uses `poolcounter-core` alone. Without the feature `daemon` it
//! has only the parts for clients.

pub mod command;
pub mod line;

/// The protocol of poolcounterd, and its extensions.
pub mod pools {
    /// Port of servers of which none is named.
    pub const DEFAULT_PORT: u16 = 7531;

    pub mod commands;
    pub mod request;
    pub mod stats;
    pub mod wire;
}

/// The protocol of yrmcds, and its extensions.
pub mod counters {
    /// Port of servers of which none is named.
    pub const DEFAULT_PORT: u16 = 11215;

    pub mod commands;
    pub mod request;
    pub mod stats;
    pub mod wire;
}

/// The protocol of members.
pub mod members {
    /// Port of servers of which none is named.
    pub const DEFAULT_PORT: u16 = 7532;

    pub mod commands;
    pub mod pool_settings;
    pub mod request;
    pub mod wire;
}

/// The protocol of beanstalkd, and its extensions.
pub mod jobs {
    /// Port of servers of which none is named.
    pub const DEFAULT_PORT: u16 = 11300;

    #[cfg(feature = "daemon")]
    pub mod commands;
    pub mod name;
    pub mod request;
    #[cfg(feature = "daemon")]
    pub mod values;
    #[cfg(feature = "daemon")]
    pub mod wire;
    /// Bytes of requests and replies.
    #[cfg(not(feature = "daemon"))]
    pub mod wire {
        pub mod client;
    }
}
