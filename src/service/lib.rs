//! The contract between the loop and a service, and what all services share: settings and options, unsent output, rules of access,
//! reports for operators, the loop's own figures.
//!
//! No module has a socket or knows a service. This crate uses `poolcounter-core` and `poolcounter-protocol`.

pub mod access;
pub mod container;
pub mod contract;
pub mod health;
pub mod id;
pub mod lines;
pub mod loop_stats;
pub mod options;
pub mod output;
pub mod peer;
pub mod report;

pub use contract::{context, effects, operations, settings};
