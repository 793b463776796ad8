//! Command line: parses it, runs the command, and turns a failure into one sentence and an exit status.

mod access;
mod admin;
mod command;
mod commands;
mod completions;
mod config;
mod config_command;
mod counter;
mod demo;
mod doctor;
mod endpoint;
mod exec;
mod failure;
mod holders;
mod jobs;
mod logger;
mod members;
mod options;
mod page;
mod process;
mod provide;
mod relisten;
mod report;
mod run_child;
mod serve;
mod servers;
mod services;
mod spawn;
mod stats;
mod status;
mod table;
mod take;
mod terminal;
mod tls;
#[cfg(feature = "top")]
mod top;
mod wait;
mod watchdog;

pub use command::{Command, Failure};
pub use commands::COMMANDS;
pub use members::REQUESTS as MEMBER_REQUESTS;
pub use options::{DaemonSettings, groups as daemon_options, tables};
pub use poolcounter_service::options::Opt;
pub use table::{Given, WordsAllowed};

use log::Level;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the program with its arguments, the first of which is its name.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.skip(1).collect();
    commands::run(&arguments).unwrap_or_else(|Failure { status, sentence }| {
        sentence.lines().for_each(|line| terminal::say(Level::Error, line));
        ExitCode::from(status)
    })
}
