//! The parts of the daemon that know no service: ids, time, timers, queues, counts, numbers and text.
//!
//! No module reads a clock or has a socket. This crate uses no other crate of the workspace.

#[cfg(feature = "daemon")]
pub mod address;
pub mod browser;
pub mod count;
pub mod decimal;
pub mod file;
#[cfg(feature = "daemon")]
pub mod glob;
#[cfg(feature = "daemon")]
pub mod histogram;
#[cfg(feature = "daemon")]
pub mod id;
#[cfg(feature = "daemon")]
pub mod list;
#[cfg(feature = "daemon")]
pub mod log_limit;
pub mod meter;
#[cfg(feature = "daemon")]
pub mod names;
#[cfg(feature = "tls")]
pub mod pem;
#[cfg(feature = "daemon")]
pub mod proxy;
#[cfg(feature = "daemon")]
pub mod random;
#[cfg(feature = "daemon")]
pub mod record;
#[cfg(feature = "daemon")]
pub mod side_table;
#[cfg(feature = "daemon")]
pub mod sorted;
pub mod stats;
pub mod text;
pub mod time;
#[cfg(feature = "daemon")]
pub mod top_keys;
#[cfg(feature = "daemon")]
pub mod wheel;
mod words;
#[cfg(feature = "daemon")]
pub use wheel::slices;

#[cfg(feature = "daemon")]
pub use self::{
    address::Address,
    histogram::Histogram,
    id::{ConnId, Id},
    list::{Links, List, Queue},
    log_limit::LogLimit,
    names::Names,
    random::Random,
    record::{Reader, Unreadable, Writer},
    side_table::SideTable,
    sorted::Sorted,
    wheel::{Due, OwnTimers, Owner, TimerId, Timers, Wheel},
};
pub use self::{
    count::{Count, SmallCount},
    meter::Metered,
    stats::{Figures, Row, Stat, Unit},
    time::{Span, Time},
};
