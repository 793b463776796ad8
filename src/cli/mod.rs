//! The command line: reads it, does what it says, and turns what went wrong into one sentence and an exit status.

mod options;
mod serve;

pub use options::{OPTIONS, Opt};

use crate::net;
use crate::services::Services;
use options::{Action, Settings};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// Runs the program with its arguments, the first of which is its name.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<String> = arguments.skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
    let result = Settings::parse(&arguments).and_then(|settings| match settings.action {
        Action::Help => print(&options::help()),
        Action::Version => print(concat!("poolcounter ", env!("CARGO_PKG_VERSION"), "\n")),
        Action::CheckHandover => net::check(Services::new(settings.limits)),
        Action::Serve => serve::serve(&settings),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("poolcounter: {sentence}");
            ExitCode::FAILURE
        }
    }
}

/// Prints to the standard output, whose reader may have gone.
fn print(text: &str) -> Result<(), String> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| format!("cannot print: {error}"))
}
