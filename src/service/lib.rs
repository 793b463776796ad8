//! The contract between the loop and a service, and code shared by all services: settings and options, unsent output,
//! access rules, reports for operators, figures of the loop.
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
pub mod shown;

pub use contract::{context, effects, operations, settings};
