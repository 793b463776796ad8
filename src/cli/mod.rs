//! The command line: reads it, does what it says, and turns what went wrong into one sentence and an exit status.

mod commands;
mod config;
mod options;
mod serve;
mod table;

pub use commands::{COMMANDS, Command, Failure};
pub use options::{OPTIONS, Settings};
pub use table::{Given, Opt, Words};

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Runs the program with its arguments, the first of which is its name.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.skip(1).collect();
    commands::run(&arguments).unwrap_or_else(|Failure { status, sentence }| {
        eprintln!("poolcounter: {sentence}");
        ExitCode::from(status)
    })
}

/// Prints to the standard output, whose reader may have gone.
fn print(text: &str) -> Result<ExitCode, Failure> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| format!("cannot print: {error}"))?;
    Ok(ExitCode::SUCCESS)
}
