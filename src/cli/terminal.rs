//! What commands say to the person who started them.

use super::command::Failure;
use super::logger;
use log::Level;
use poolcounter_core::text::is_visible;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Says on the standard error what is wrong, though all goes on.
pub fn warn(sentence: &str) {
    say(Level::Warn, sentence);
}

/// Says something on the standard error, which may be closed. Some of it may be the words of servers.
pub fn say(level: Level, sentence: &str) {
    let prefix = logger::prefix(level);
    let _ = writeln!(std::io::stderr(), "{prefix}poolcounter: {}", printable(sentence.as_bytes()));
}

/// Prints to the standard output, whose reader may have gone.
///
/// # Errors
///
/// When it cannot be written.
pub fn print(text: &str) -> Result<ExitCode, Failure> {
    print_bytes(text.as_bytes())
}

/// Prints bytes that need not be text to the standard output.
///
/// # Errors
///
/// When they cannot be written.
pub fn print_bytes(bytes: &[u8]) -> Result<ExitCode, Failure> {
    match std::io::stdout().write_all(bytes) {
        // Its reader wants no more.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        printed => printed.map_err(|error| format!("cannot print: {error}"))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The same JSON with escapes for what could do harm on a terminal. Outside of strings there is nothing of that kind.
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

/// Returns text of peers for a terminal, where characters that are not visible could do harm.
pub fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if is_visible(c) { c.to_string() } else { c.escape_unicode().to_string() }).collect()
}
