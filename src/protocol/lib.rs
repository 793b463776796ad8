//! The protocols of the services, for both sides of a connection: requests and replies as values, how they are read and written.
//!
//! No module has a socket or knows who holds what. This crate uses `poolcounter-core` alone. Without the feature `daemon` it has
//! what clients need.

pub mod command;
pub mod line;

/// The protocol of poolcounterd, and its extensions.
pub mod pools {
    pub mod commands;
    pub mod request;
    pub mod stats;
    pub mod wire;
}

/// The protocol of yrmcds, and its extensions.
pub mod counters {
    pub mod commands;
    pub mod request;
    pub mod stats;
    pub mod wire;
}

/// The protocol of members.
pub mod members {
    pub mod commands;
    pub mod pool_settings;
    pub mod request;
    pub mod wire;
}

/// The protocol of beanstalkd, and its extensions.
pub mod jobs {
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
