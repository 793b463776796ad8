//! The command line: reads it, does what it says, and turns what went wrong into one sentence and an exit status.

mod commands;
mod completions;
mod config;
mod counter;
mod endpoint;
mod exec;
mod logger;
mod options;
mod relisten;
mod run_child;
mod serve;
mod servers;
mod stats;
mod table;
mod top;

pub use commands::{COMMANDS, Command, Failure};
pub use options::{OPTIONS, Settings};
pub use table::{Given, Opt, Words};

use crate::text::is_visible;
use log::Level;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Runs the program with its arguments, the first of which is its name.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.skip(1).collect();
    commands::run(&arguments).unwrap_or_else(|Failure { status, sentence }| {
        say(Level::Error, &sentence);
        ExitCode::from(status)
    })
}

/// Says on the standard error what is wrong, though all goes on.
fn warn(sentence: &str) {
    say(Level::Warn, sentence);
}

/// Says something on the standard error, which may be closed. Some of it may be the words of servers.
fn say(level: Level, sentence: &str) {
    let prefix = logger::prefix(level);
    let _ = writeln!(std::io::stderr(), "{prefix}poolcounter: {}", printable(sentence.as_bytes()));
}

/// Prints to the standard output, whose reader may have gone.
fn print(text: &str) -> Result<ExitCode, Failure> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| format!("cannot print: {error}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Text of peers for a terminal, where characters that are not visible could do harm.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if is_visible(c) { c.to_string() } else { c.escape_unicode().to_string() }).collect()
}
