//! Replies as bytes.

use crate::command::Command;
use crate::jobs::request::JobId;
use crate::jobs::values::{Refusal, Reply};
use poolcounter_core::decimal::{MOST_DIGITS, write_number};

/// Longest word before a number.
const LONGEST_WORD: usize = 10;
/// Longest line with two numbers: the word, each number with its space, and the end of the line.
const LONGEST_LINE: usize = LONGEST_WORD + 2 * (1 + MOST_DIGITS) + 2;

/// Writes the line of a reply, without the body that may follow. `used` is the name of the tube that the connection
/// uses, `body_bytes` the length of the body.
pub fn write(bytes: &mut Vec<u8>, reply: &Reply, used: &[u8], body_bytes: usize) {
    match reply {
        Reply::Inserted(id) => with_number(bytes, "INSERTED", id.0),
        Reply::Duplicate(id, false) => with_number(bytes, "DUPLICATE", id.0),
        Reply::Duplicate(id, true) => with_name(bytes, "DUPLICATE", format!("{id} buried").as_bytes()),
        Reply::Watching(count) => with_number(bytes, "WATCHING", *count as u64),
        Reply::Kicked(count) => with_number(bytes, "KICKED", *count),
        Reply::Cleared(count) => with_number(bytes, "CLEARED", *count),
        Reply::Moved(count) => with_number(bytes, "MOVED", *count),
        Reply::Cancelled(count) => with_number(bytes, "CANCELLED", *count),
        Reply::Root(newest) => with_number(bytes, "ROOT", *newest),
        Reply::Dropped(count) => with_number(bytes, "DROPPED", *count),
        Reply::Copied(copied) => with_number(bytes, "COPIED", *copied),
        Reply::Limit(most) => with_number(bytes, "LIMIT", u64::from(*most)),
        Reply::Using => with_name(bytes, "USING", used),
        Reply::DeadLetter(name) => with_name(bytes, "DEAD_LETTER", name),
        Reply::Identified(name) => with_name(bytes, "IDENTIFIED", name),
        Reply::Reserved(id) => with_body(bytes, "RESERVED", *id, body_bytes),
        Reply::Superseded => line(bytes, "SUPERSEDED"),
        Reply::Draining => line(bytes, "DRAINING"),
        Reply::Accepting => line(bytes, "ACCEPTING"),
        Reply::InternalError => write_internal_error(bytes),
        Reply::OutOfMemory | Reply::Refused(Refusal::OutOfMemory) => line(bytes, "OUT_OF_MEMORY"),
        Reply::NotAllowed => line(bytes, "NOT_ALLOWED"),
        Reply::NotIgnored => line(bytes, "NOT_IGNORED"),
        Reply::End => line(bytes, "END"),
        Reply::DeadlineSoon => line(bytes, "DEADLINE_SOON"),
        Reply::TimedOut => line(bytes, "TIMED_OUT"),
        Reply::NotFound => line(bytes, "NOT_FOUND"),
        Reply::CancelledBy(who) => with_name(bytes, "NOT_FOUND cancelled by", who),
        Reply::JobSet => line(bytes, "SET"),
        Reply::Deleted => line(bytes, "DELETED"),
        Reply::Released => line(bytes, "RELEASED"),
        Reply::Buried => line(bytes, "BURIED"),
        Reply::Touched => line(bytes, "TOUCHED"),
        Reply::Begun => line(bytes, "BEGUN"),
        Reply::KickedJob => line(bytes, "KICKED"),
        Reply::Paused => line(bytes, "PAUSED"),
        Reply::Retry => line(bytes, "RETRY"),
        Reply::Scheduled => line(bytes, "SCHEDULED"),
        Reply::Refused(Refusal::BadFormat) => line(bytes, "BAD_FORMAT"),
        Reply::Refused(Refusal::WrongForm(command)) => {
            let Command { word, arguments, .. } = command.row();
            with_name(bytes, "BAD_FORMAT", format!("{word} {arguments}").trim_end().as_bytes());
        }
        Reply::Refused(Refusal::UnknownCommand) => line(bytes, "UNKNOWN_COMMAND"),
        Reply::Refused(Refusal::JobTooBig) => line(bytes, "JOB_TOO_BIG"),
        Reply::Refused(Refusal::ExpectedCrlf) => line(bytes, "EXPECTED_CRLF"),
    }
}

/// Writes the line before the body of a job of a peek.
pub fn write_found(bytes: &mut Vec<u8>, id: JobId, body_bytes: usize) {
    with_body(bytes, "FOUND", id, body_bytes);
}

/// Writes the line before a text of `text_bytes`.
pub fn write_ok(bytes: &mut Vec<u8>, text_bytes: usize) {
    with_number(bytes, "OK", text_bytes as u64);
}

/// Writes that it is unknown if the request was executed.
pub fn write_internal_error(bytes: &mut Vec<u8>) {
    line(bytes, "INTERNAL_ERROR");
}

fn line(bytes: &mut Vec<u8>, word: &str) {
    bytes.extend_from_slice(word.as_bytes());
    bytes.extend_from_slice(b"\r\n");
}

/// Writes a word and numbers behind spaces. The line is made from its end on, in one piece: with the standard library's
/// formatting, that of a reserve took 730 instructions.
fn with_numbers<const N: usize>(bytes: &mut Vec<u8>, word: &str, numbers: [u64; N]) {
    let (mut line, mut first) = ([b' '; LONGEST_LINE], LONGEST_LINE - 2);
    line[first..].copy_from_slice(b"\r\n");
    for number in numbers.into_iter().rev() {
        first = write_number(&mut line[..first], number) - 1;
    }
    let end = first;
    first -= word.len();
    line[first..end].copy_from_slice(word.as_bytes());
    bytes.extend_from_slice(&line[first..]);
}

fn with_number(bytes: &mut Vec<u8>, word: &str, number: u64) {
    with_numbers(bytes, word, [number]);
}

/// Writes a word and a name; an empty name is left out.
fn with_name(bytes: &mut Vec<u8>, word: &str, name: &[u8]) {
    bytes.extend_from_slice(word.as_bytes());
    if !name.is_empty() {
        bytes.push(b' ');
        bytes.extend_from_slice(name);
    }
    bytes.extend_from_slice(b"\r\n");
}

fn with_body(bytes: &mut Vec<u8>, word: &str, id: JobId, body_bytes: usize) {
    with_numbers(bytes, word, [id.0, body_bytes as u64]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_all_their_digits() {
        for number in [0, 9, 10, 65_535, 1_234_567_890, u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            with_numbers(&mut bytes, "OK", [number, number]);
            assert_eq!(String::from_utf8(bytes).expect("is text"), format!("OK {number} {number}\r\n"));
        }
    }
}
