//! Helpers shared by tests, benchmarks and fuzz targets: the daemon as a process, services in virtual time, models,
//! histories.

#![allow(
    missing_docs,
    clippy::len_without_is_empty,
    clippy::new_without_default,
    clippy::should_implement_trait,
    reason = "only the tests of this workspace use it"
)]

pub mod beanstalkd;
pub mod bodies;
pub mod chatter;
pub mod counter;
pub mod counting;
pub mod crash;
pub mod cut;
pub mod daemon;
pub mod embedded;
pub mod frames;
pub mod histories;
pub mod jobs;
pub mod jobs_client;
pub mod jobs_command;
pub mod jobs_text;
pub mod jobs_twin;
pub mod lately;
pub mod leases;
pub mod lines;
pub mod members_twin;
pub mod model;
pub mod original;
pub mod pattern;
pub mod player;
pub mod postgres;
pub mod protocol;
pub mod random;
pub mod rules;
pub mod running;
pub mod scratch;
pub mod script;
pub mod seeds;
pub mod small_disk;
pub mod sockets;
pub mod speech;
pub mod strange;
pub mod tls;
pub mod twin;
pub mod virtual_target;
pub mod web;
pub mod world;
pub mod yrmcds;

use std::fs::OpenOptions;
use std::io::Write;

/// Environment variable with the path of the file in which `make test` collects skipped tests.
const SKIPPED: &str = "TESTS_SKIPPED";

/// Reports that something is not tested, and why: on the standard error, and to `make test`, which prints it at its
/// end.
pub fn skipped(what: &str) {
    // Not with a macro, whose output would be captured.
    writeln!(std::io::stderr(), "skipped: {what}").expect("the standard error is open");
    if let Some(path) = std::env::var_os(SKIPPED) {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| writeln!(file, "{what}")).expect("the list of what was skipped can be written");
    }
}
