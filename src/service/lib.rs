//! The contract between the loop and a service, and code shared by all services: settings and options, unsent output,
//! access rules. Reports for operators are [`poolcounter_report`].
//!
//! No module has a socket or knows a service. This crate uses `poolcounter-core`, `poolcounter-protocol` and
//! `poolcounter-report`.

pub mod access;
pub mod container;
pub mod contract;
pub mod id;
pub mod lines;
pub mod options;
pub mod output;

pub use contract::{context, effects, operations, settings};
pub use poolcounter_report::{self as report, health, loop_stats, peer, shown};
