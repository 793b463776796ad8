//! Lines of the administration: commands and replies. Independent of any particular command.

use std::fmt::Display;
use std::io::Write;

/// Longest line, without its end, in bytes: room for the longest key of the pools and an address.
pub const MOST_LINE_BYTES: usize = 16 * 1024;
/// First word of the last line of a successful reply.
pub const OK: &str = "OK";
/// First word of the last line of a refusal.
pub const ERROR: &str = "ERROR";
/// First word of the progress lines before the reply to `DRAIN`.
pub const LEFT: &str = "LEFT";
/// First word of the line before the reply to `RELOAD`, which takes as long as the new program needs.
pub const WAIT: &str = "WAIT";

/// Returns the words of a line.
pub fn words(line: &[u8]) -> Vec<&[u8]> {
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect()
}

/// Writes the last line of a reply.
pub fn write_answer(bytes: &mut Vec<u8>, answer: Result<&str, &str>) {
    match answer {
        Ok("") => bytes.extend_from_slice(format!("{OK}\n").as_bytes()),
        Ok(text) => write_line(bytes, OK, &text),
        Err(reason) => write_line(bytes, ERROR, &reason),
    }
}

/// Writes a word and a text as a line.
pub fn write_line(bytes: &mut Vec<u8>, word: &str, text: &dyn Display) {
    writeln!(bytes, "{word} {text}").expect("a vector takes every byte");
}
