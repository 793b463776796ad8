//! Replies as bytes.

use crate::jobs::state::{JobId, Refusal, Reply};
use std::io::Write;

/// Writes a reply of one line; of one with a body, the line and not the body. `used` is the name of the tube that the
/// connection uses, `body_bytes` how long the body of a job is.
pub fn write(bytes: &mut Vec<u8>, reply: &Reply, used: &[u8], body_bytes: impl FnOnce(JobId) -> usize) {
    match reply {
        Reply::Inserted(id) => with_number(bytes, "INSERTED", id.0),
        Reply::Duplicate(id) => with_number(bytes, "DUPLICATE", id.0),
        Reply::Watching(count) => with_number(bytes, "WATCHING", *count as u64),
        Reply::Kicked(count) => with_number(bytes, "KICKED", *count),
        Reply::Cleared(count) => with_number(bytes, "CLEARED", *count),
        Reply::Root(newest) => with_number(bytes, "ROOT", *newest),
        Reply::Limit(most) => with_number(bytes, "LIMIT", u64::from(*most)),
        Reply::Using => with_name(bytes, "USING", used),
        Reply::DeadLetter(name) => with_name(bytes, "DEAD_LETTER", name),
        Reply::Identified(name) => with_name(bytes, "IDENTIFIED", name),
        Reply::Reserved(id) => with_body(bytes, "RESERVED", *id, body_bytes(*id)),
        Reply::Superseded => line(bytes, "SUPERSEDED"),
        Reply::Draining => line(bytes, "DRAINING"),
        Reply::Accepting => line(bytes, "ACCEPTING"),
        Reply::OutOfMemory => line(bytes, "OUT_OF_MEMORY"),
        Reply::NotIgnored => line(bytes, "NOT_IGNORED"),
        Reply::End => line(bytes, "END"),
        Reply::DeadlineSoon => line(bytes, "DEADLINE_SOON"),
        Reply::TimedOut => line(bytes, "TIMED_OUT"),
        Reply::NotFound => line(bytes, "NOT_FOUND"),
        Reply::Deleted => line(bytes, "DELETED"),
        Reply::Released => line(bytes, "RELEASED"),
        Reply::Buried => line(bytes, "BURIED"),
        Reply::Touched => line(bytes, "TOUCHED"),
        Reply::KickedJob => line(bytes, "KICKED"),
        Reply::Paused => line(bytes, "PAUSED"),
        Reply::Retry => line(bytes, "RETRY"),
        Reply::Refused(Refusal::BadFormat) => line(bytes, "BAD_FORMAT"),
        Reply::Refused(Refusal::UnknownCommand) => line(bytes, "UNKNOWN_COMMAND"),
        Reply::Refused(Refusal::JobTooBig) => line(bytes, "JOB_TOO_BIG"),
        Reply::Refused(Refusal::ExpectedCrlf) => line(bytes, "EXPECTED_CRLF"),
    }
}

/// Writes the line before the body of a job that was looked at.
pub fn write_found(bytes: &mut Vec<u8>, id: JobId, body_bytes: usize) {
    with_body(bytes, "FOUND", id, body_bytes);
}

/// Writes `OK` and what it is about, which `write` appends.
pub fn write_ok(bytes: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut yaml = b"---\n".to_vec();
    write(&mut yaml);
    with_number(bytes, "OK", yaml.len() as u64);
    bytes.extend_from_slice(&yaml);
    bytes.extend_from_slice(b"\r\n");
}

fn line(bytes: &mut Vec<u8>, word: &str) {
    bytes.extend_from_slice(word.as_bytes());
    bytes.extend_from_slice(b"\r\n");
}

fn with_number(bytes: &mut Vec<u8>, word: &str, number: u64) {
    write!(bytes, "{word} {number}\r\n").expect("a vector takes every byte");
}

/// A name that is empty is left out.
fn with_name(bytes: &mut Vec<u8>, word: &str, name: &[u8]) {
    bytes.extend_from_slice(word.as_bytes());
    if !name.is_empty() {
        bytes.push(b' ');
        bytes.extend_from_slice(name);
    }
    bytes.extend_from_slice(b"\r\n");
}

fn with_body(bytes: &mut Vec<u8>, word: &str, id: JobId, body_bytes: usize) {
    write!(bytes, "{word} {} {body_bytes}\r\n", id.0).expect("a vector takes every byte");
}
