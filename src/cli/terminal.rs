//! Output of commands to the terminal.

use super::command::{Exit, Failure};
use super::logger;
use log::Level;
use poolcounter_core::text::{is_visible, plain};
use poolcounter_service::shown;
use serde_json::Value;
use std::io::{Error, ErrorKind, Read, Write};
use std::process::ExitCode;
use std::time::Duration;

/// Prints a warning on the standard error.
pub fn warn(sentence: &str) {
    say(Level::Warn, sentence);
}

/// Prints a line on the standard error, which may be closed. Escapes text of servers.
pub fn say(level: Level, sentence: &str) {
    let prefix = logger::prefix(level);
    let _ = writeln!(std::io::stderr(), "{prefix}poolcounter: {}", printable(plain(sentence).as_bytes()));
}

/// Prints to the standard output.
///
/// # Errors
///
/// Fails if it cannot be written.
pub fn print(text: &str) -> Exit {
    print_bytes(text.as_bytes())
}

/// Prints bytes to the standard output, like [`print`].
///
/// # Errors
///
/// Fails if they cannot be written.
pub fn print_bytes(bytes: &[u8]) -> Exit {
    match try_print(bytes)? {
        true => Ok(ExitCode::SUCCESS),
        // The reader is gone, which is no error.
        false => std::process::exit(0),
    }
}

/// Prints bytes to the standard output. Returns false if its reader is gone.
///
/// # Errors
///
/// Fails if they cannot be written.
pub fn try_print(bytes: &[u8]) -> Result<bool, Failure> {
    let mut stdout = std::io::stdout().lock();
    // Text without a line end would be written at the end of the process, where a failure has no effect.
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        printed => Ok(printed.map(|()| true).map_err(|error| format!("cannot print: {error}"))?),
    }
}

/// Reads the standard input to its end.
///
/// # Errors
///
/// Fails if it cannot be read.
pub fn input() -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).map_err(|error| cannot_read(&error))?;
    Ok(bytes)
}

/// Returns the failure of a read of the standard input.
pub fn cannot_read(error: &Error) -> Failure {
    format!("cannot read the standard input: {error}").into()
}

/// Prints JSON in a line, like [`print`].
///
/// # Errors
///
/// Fails if it cannot be written.
pub fn print_json(value: &Value) -> Exit {
    print(&format!("{}\n", ascii_where_invisible(&value.to_string())))
}

/// Returns the JSON with invisible characters escaped, which could harm a terminal. Outside of strings there are none.
pub fn ascii_where_invisible(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if is_visible(c) {
            text.push(c);
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text += &format!("\\u{unit:04x}"));
        }
    }
    text
}

/// Returns a time for people, in the form of the pages: `2.5 s`, `12 min 3 s`.
pub fn in_words(time: Duration) -> String {
    shown::duration(time.as_secs_f64())
}

/// Returns the addresses or names as an enumeration.
pub fn enumerate(all: &[impl ToString]) -> String {
    let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
    match texts.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Returns lines with columns as wide as their widest cell. All rows have as many cells as the first.
pub fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let line = |cells: &Vec<String>| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_string()
    };
    rows.iter().map(line).collect()
}

/// Returns text of peers for a terminal, with invisible characters escaped, because they could do harm.
pub fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if is_visible(c) { c.to_string() } else { c.escape_unicode().to_string() }).collect()
}
