//! The client's side of the protocol: requests to lines, lines to replies. The texts of replies are the server's own.

use super::text_of;
use crate::line::WireSeconds;
use crate::pools::request::{AcquireLock, KeyLimits, Purpose, Reply};
use crate::pools::stats::PoolStat as Stat;
use poolcounter_core::decimal::parse_number;
use poolcounter_core::{Span, Stat as _, Unit};
use std::io::Write;

/// Request for every statistic. An empty line ends the answer.
pub const STATS_FULL: &[u8] = b"STATS FULL\n";

/// First bytes of every line that reports a failure.
const ERROR: &[u8] = b"ERROR ";

/// Words after `STATS` whose answers have more than one line.
pub const LISTS: [&str; 6] = ["FULL", "KEYS", "TYPES", "HOLDERS", "FIELDS", "REPORT"];

/// Refusal of a query by the C daemon, which leaves the line feed out.
pub const WRONG_STAT_UNENDED: &[u8] = b"ERROR WRONG_STAT";

/// Claim in a server's list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedClaim {
    /// Address of the client, or the server's placeholder for it.
    pub peer: String,
    /// Name that the client gave; empty without one.
    pub who: String,
    /// Purpose of a waiting claim; None for a held claim.
    pub waits_for: Option<Purpose>,
    /// Time for which it has waited or been held; of a kept lock, the time since its grant.
    pub age: Span,
    /// Time for which a lock is kept whose holder has ended; None for other claims.
    pub kept_for: Option<Span>,
}

/// Writes `ACQ4ME` or `ACQ4ANY`. The key must be a result of [`escape_key`](crate::line::escape_key).
pub fn write_acquire(bytes: &mut Vec<u8>, acquire: &AcquireLock<'_>) {
    let command: &[u8] = match acquire.purpose {
        Purpose::Me => b"ACQ4ME ",
        Purpose::Anyone => b"ACQ4ANY ",
    };
    bytes.extend_from_slice(command);
    bytes.extend_from_slice(acquire.key);
    let (workers, max_queue, timeout) = (acquire.workers, acquire.max_queue, WireSeconds(acquire.timeout));
    write!(bytes, " {workers} {max_queue} {timeout}").expect("a vector takes every byte");
    if acquire.hold != Span::FOREVER {
        write!(bytes, " hold={}", WireSeconds(acquire.hold)).expect("a vector takes every byte");
    }
    if acquire.keep > Span::ZERO {
        write!(bytes, " keep={}", WireSeconds(acquire.keep)).expect("a vector takes every byte");
    }
    if !acquire.who.is_empty() {
        bytes.extend_from_slice(b" who=");
        bytes.extend_from_slice(acquire.who);
    }
    for KeyLimits { key, workers, max_queue } in &acquire.also {
        bytes.extend_from_slice(b" also=");
        bytes.extend_from_slice(key);
        write!(bytes, ":{workers}:{max_queue}").expect("a vector takes every byte");
    }
    bytes.push(b'\n');
}

/// Writes `RELEASE` of the newest lock on a key, which must be a result of [`escape_key`](crate::line::escape_key).
pub fn write_release(bytes: &mut Vec<u8>, key: &[u8]) {
    bytes.extend_from_slice(b"RELEASE ");
    bytes.extend_from_slice(key);
    bytes.push(b'\n');
}

/// Returns the replies to an acquire or a release that clients tell from each other.
fn replies() -> impl Iterator<Item = Reply> {
    Reply::ALL.into_iter().take(Reply::Draining as usize + 1)
}

/// Returns the reply in a line without its end; None if it is no reply to an acquire or a release.
pub fn parse_reply(line: &[u8]) -> Option<Reply> {
    replies().find(|reply| text_of(*reply).strip_suffix(b"\n") == Some(line))
}

/// Returns the rest of a line that reports a failure, such as `BAD_COMMAND`; None for any other line.
pub fn parse_error(line: &[u8]) -> Option<&[u8]> {
    line.strip_prefix(ERROR)
}

/// Returns true if the answer to `STATS` with these words is a list with an empty line at its end, and not a single
/// line.
pub fn is_list(words: &[u8]) -> bool {
    let first = words.split(|byte| *byte == b' ').find(|word| !word.is_empty());
    first.is_none_or(|first| LISTS.iter().any(|list| first.eq_ignore_ascii_case(list.as_bytes())))
}

/// Returns the claim in a line of `STATS HOLDERS`; None for the lines that end the list.
pub fn parse_claim(line: &[u8]) -> Option<ListedClaim> {
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (peer, state, age) = (words.next()?, words.next()?, words.next()?);
    let words: Vec<&str> = words.collect();
    let field = |name| words.iter().find_map(|word| word.strip_prefix(name));
    let who = field("who=").unwrap_or_default();
    let kept_for = field("left=").filter(|_| state == "kept").and_then(parse_duration).map(Span::from_micros);
    let waits_for = match state {
        "working" | "kept" => None,
        "waiting_for_me" => Some(Purpose::Me),
        "waiting_for_anyone" => Some(Purpose::Anyone),
        _ => return None,
    };
    let age = Span::from_micros(parse_duration(age)?);
    Some(ListedClaim { peer: peer.into(), who: who.into(), waits_for, age, kept_for })
}

/// Returns the statistic in a line of `STATS` and its value, durations in microseconds; None if it is unknown.
pub fn parse_figure(line: &[u8]) -> Option<(Stat, u64)> {
    let (name, value) = std::str::from_utf8(line).ok()?.split_once(": ")?;
    let stat = Stat::ALL.iter().find(|stat| stat.row().name == name)?;
    let value = match stat.row().unit {
        Unit::Count | Unit::Level | Unit::Bytes => value.parse().ok()?,
        Unit::Uptime | Unit::Duration | Unit::Latest => parse_duration(value)?,
    };
    Some((*stat, value))
}

/// Returns the microseconds in `2 days, 10h 42m 26s`, or with decimals in the seconds.
fn parse_duration(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 4] = [("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000)];
    let mut total = 0_u64;
    if text.is_empty() {
        return None;
    }
    for word in text.replace(" days", "d").split([' ', ',']).filter(|word| !word.is_empty()) {
        let (number, unit) = UNITS.iter().find_map(|(name, us)| Some((word.strip_suffix(name)?, us)))?;
        let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
        let decimals = parse_number(format!("{decimals:0<6}").get(..6)?.as_bytes())?;
        let us = whole.parse::<u64>().ok()?.checked_mul(*unit)?.checked_add(u64::from(decimals))?;
        total = total.checked_add(us)?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::super::{PoolRequest, parse, write_figures};
    use super::*;
    use crate::line::{Line, first_line};
    use poolcounter_core::stats::Figures;

    #[test]
    fn every_reply_is_read_as_it_was_written() {
        for reply in replies() {
            let text = text_of(reply);
            assert_eq!(first_line(text, 0, 99), Line::Whole(&text[..text.len() - 1], text.len()));
            assert_eq!(parse_reply(&text[..text.len() - 1]), Some(reply));
        }
        for garbage in ["", "LOCKE", "LOCKEDX", "locked", " LOCKED", "LOCKED "] {
            assert_eq!(parse_reply(garbage.as_bytes()), None, "{garbage}");
        }
        assert_eq!(parse_error(b"ERROR NEW_ONE because"), Some(&b"NEW_ONE because"[..]));
        assert_eq!(parse_error(b"ERRORS"), None);
    }

    #[test]
    fn acquire_is_read_as_it_was_written() {
        let also = || vec![KeyLimits { key: b"c:d", workers: 1, max_queue: 7 }];
        for (timeout, hold, keep, who, also) in [
            (Span::ZERO, Span::FOREVER, Span::ZERO, &b""[..], also()),
            (Span::from_secs(5), Span::from_millis(250), Span::from_millis(50), b"deploy@web1:77", Vec::new()),
            (Span::from_millis(1_001), Span::from_secs(u64::from(u32::MAX)), Span::ZERO, b"\xff=who=", also()),
        ] {
            let (key, purpose) = (b"a:b%20\xff", Purpose::Anyone);
            let acquire = AcquireLock { key, purpose, workers: 2, max_queue: 30, timeout, hold, keep, who, also };
            let mut bytes = Vec::new();
            write_acquire(&mut bytes, &acquire);
            let Line::Whole(line, _) = first_line(&bytes, 0, 99) else { panic!("it is a line") };
            assert_eq!(parse(line), PoolRequest::Acquire(Ok(acquire)));
        }
    }

    #[test]
    fn release_names_its_key() {
        let mut bytes = Vec::new();
        write_release(&mut bytes, b"k");
        assert_eq!((bytes.as_slice(), parse(b"RELEASE k")), (&b"RELEASE k\n"[..], PoolRequest::Release(Some(b"k"))));
    }

    #[test]
    fn statistics_are_read_as_they_were_written() {
        use crate::pools::stats::IN_FULL;
        let mut figures = Figures::default();
        for (n, stat) in (0_u32..).zip(&Stat::ALL[..IN_FULL]) {
            // The uptime is written in whole seconds.
            let precision = if stat.row().unit == Unit::Uptime { 1_000_000 } else { 1 };
            figures.set(*stat, 7_u64.pow(n).wrapping_mul(86_400_000_001) / precision * precision);
        }
        let mut bytes = Vec::new();
        write_figures(&mut bytes, &figures);
        let mut read = Figures::default();
        let lines = bytes.split(|byte| *byte == b'\n');
        lines.filter_map(parse_figure).for_each(|(stat, value)| read.set(stat, value));
        assert_eq!(read, figures);
    }

    #[test]
    fn other_lines_are_no_figures() {
        for line in [
            "",
            "uptime",
            "uptime: ",
            "uptime: 5",
            "uptime: xs",
            "uptime: 99999999999999 days",
            "total_acquired: -1",
            "waiting time: 1.s2s",
            "waiting time: 1.éééés",
            "total_acquired: 18446744073709551616",
            "new: 1",
        ] {
            assert_eq!(parse_figure(line.as_bytes()), None, "{line}");
        }
    }
}
