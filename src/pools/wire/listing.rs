//! Answers that are lists: one line for each item, and an empty line at the end. Each is limited, because a connection
//! with too much unsent output is closed.
//!
//! A key has no spaces, so the rest of a line behind the first space is never part of it.

use crate::state::{BusyKey, ClaimInfo, WorkType};
use poolcounter_core::{Span, Time};
use poolcounter_protocol::pools::request::Purpose;
use poolcounter_protocol::pools::wire::FIELDS;
use std::io::Write;

/// Most lines of an answer.
pub const MOST_LINES: usize = 1_000;
/// Most bytes of an answer, without the lines that end it. Together with other unsent output this stays far below the
/// size that closes a connection.
pub const MOST_BYTES: usize = 256 * 1024;

/// Writes the answer to `STATS KEYS`, with as many of `total` keys as fit.
pub fn write_keys(bytes: &mut Vec<u8>, keys: &[BusyKey<'_>], total: usize, now: Time) {
    write_list(bytes, keys.iter(), total, |bytes, BusyKey { key, working, waiting, since }| {
        bytes.extend_from_slice(key);
        let oldest = ListedSeconds(now.since(*since));
        write!(bytes, ": {working} working, {waiting} waiting, oldest {oldest}")
    });
}

/// Writes the answer to `STATS HOLDERS`, with as many of `total` claims as fit. `peer` returns the address of a claim's
/// connection.
pub fn write_claims<'a>(
    bytes: &mut Vec<u8>,
    claims: impl Iterator<Item = ClaimInfo<'a>>,
    total: usize,
    now: Time,
    peer: impl Fn(&ClaimInfo<'a>) -> String,
) {
    write_list(bytes, claims, total, |bytes, claim| {
        let state = match claim.waits_for {
            None if claim.kept_until.is_some() => "kept",
            None => "working",
            Some(Purpose::Me) => "waiting_for_me",
            Some(Purpose::Anyone) => "waiting_for_anyone",
        };
        write!(bytes, "{} {state} {}", peer(&claim), ListedSeconds(now.since(claim.since)))?;
        if !claim.who.is_empty() {
            bytes.extend_from_slice(b" who=");
            bytes.extend_from_slice(claim.who);
        }
        match claim.kept_until {
            Some(until) => write!(bytes, " left={}", ListedSeconds(until.since(now))),
            None => Ok(()),
        }
    });
}

/// Writes the answer to `STATS TYPES`.
pub fn write_types(bytes: &mut Vec<u8>, types: &[&WorkType]) {
    write_list(bytes, types.iter(), types.len(), |bytes, one| {
        bytes.extend_from_slice(&one.name);
        write!(bytes, ": {} working, {} waiting, {} acquired, ", one.working(), one.waiting(), one.acquired)?;
        write!(bytes, "{} done, {} full, {} timeouts, ", one.done, one.full, one.timeouts)?;
        write!(bytes, "{} lost, {} expired, {} given up, ", one.lost, one.expired, one.given_up)?;
        let [waited, held] = [one.waits.sum(), one.holds.sum()].map(|us| ListedSeconds(Span::from_micros(us)));
        write!(bytes, "waited {waited}, held {held}")
    });
}

/// Writes the answer to `STATS FIELDS`.
pub fn write_fields(bytes: &mut Vec<u8>) {
    write_list(bytes, FIELDS.iter(), FIELDS.len(), |bytes, field| bytes.write_all(field.as_bytes()));
}

/// A span as `S.ffffff` in lists, of any length.
pub struct ListedSeconds(pub Span);

impl std::fmt::Display for ListedSeconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let us = self.0.as_micros();
        write!(f, "{}.{:06}s", us / 1_000_000, us % 1_000_000)
    }
}

fn write_list<T>(
    bytes: &mut Vec<u8>,
    rows: impl Iterator<Item = T>,
    total: usize,
    write_row: impl Fn(&mut Vec<u8>, T) -> std::io::Result<()>,
) {
    let start = bytes.len();
    let mut written = 0;
    for row in rows.take(MOST_LINES) {
        let before = bytes.len();
        write_row(bytes, row).expect("a vector takes every byte");
        bytes.push(b'\n');
        if bytes.len() - start > MOST_BYTES {
            bytes.truncate(before);
            break;
        }
        written += 1;
    }
    if written < total {
        writeln!(bytes, "and {} more", total - written).expect("a vector takes every byte");
    }
    bytes.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: usize, len: usize) -> String {
        let key = vec![b'k'; len];
        let busy = BusyKey { key: &key, working: 1, waiting: 0, since: Time::START };
        let mut bytes = b"before\n".to_vec();
        write_keys(&mut bytes, &vec![busy; count.min(MOST_LINES)], count, Time::from_micros(7_200_000_001));
        String::from_utf8(bytes).expect("is text")
    }

    #[test]
    fn rows_that_do_not_fit_are_counted() {
        assert_eq!(keys(1, 2), "before\nkk: 1 working, 0 waiting, oldest 7200.000001s\n\n");
        assert_eq!(keys(0, 1), "before\n\n");
        let many = keys(5_000, 1);
        assert_eq!(many.lines().count(), 1 + MOST_LINES + 2);
        assert!(many.ends_with("s\nand 4000 more\n\n"));
        let long = keys(1_000, 900);
        assert!(long.len() <= MOST_BYTES + 40, "{}", long.len());
        assert!(long.ends_with(&format!("s\nand {} more\n\n", 1_000 - (long.lines().count() - 3))));
        assert_eq!(keys(3, MOST_BYTES), "before\nand 3 more\n\n");
    }
}
