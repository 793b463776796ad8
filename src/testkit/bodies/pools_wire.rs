//! Raw bytes into the parser of the pools protocol, beside a naive reading of the same words.

use crate::model::pools::{Wish, microseconds, number, read_wish};
use poolcounter_core::decimal::{parse_number, parse_seconds};
use poolcounter_core::{Span, Stat as _};
use poolcounter_pools::{AcquireLock, Purpose};
use poolcounter_protocol::line::{Line, first_line};
use poolcounter_protocol::pools::stats::PoolStat;
use poolcounter_protocol::pools::wire::{PoolRequest, StatsQuery, parse};

/// Length of the longest line that is tried, in bytes.
const MAX_LINE: usize = 100;

/// Reads everything as lines, and checks the results.
pub fn run(data: &[u8]) {
    let mut rest = data;
    loop {
        match first_line(rest, 0, MAX_LINE) {
            Line::Whole(line, len) => {
                assert!(len <= MAX_LINE + 1 && rest[len - 1] == b'\n' && !line.contains(&b'\n'));
                let bare = &rest[..len - 1];
                assert_eq!(line, bare.strip_suffix(b"\r").unwrap_or(bare), "only what ends the line is taken off");
                assert_eq!(first_line(bare, 0, MAX_LINE), Line::Partial, "no line without its end");
                assert_eq!(
                    first_line(&rest[..len], 0, MAX_LINE),
                    Line::Whole(line, len),
                    "what follows changes nothing"
                );
                look_at(line);
                rest = &rest[len..];
            }
            Line::Partial => return assert!(rest.len() <= MAX_LINE && !rest.contains(&b'\n')),
            Line::TooLong => return assert!(!rest[..=MAX_LINE].contains(&b'\n')),
        }
    }
}

fn look_at(line: &[u8]) {
    let request = parse(line);
    compare(&request, line);
    if let PoolRequest::Acquire(Ok(acquire)) = &request {
        assert!(acquire.workers > 0 && acquire.max_queue > 0 && acquire.hold > Span::ZERO);
        assert!(!acquire.key.is_empty() && !acquire.key.iter().any(|byte| matches!(byte, 0 | b' ' | b'\n')));
        assert!(acquire.timeout <= Span::from_secs(u64::from(u32::MAX) + 1));
    }
    // One space separates as well as several, and trailing spaces are ignored.
    let mut wide = line.split(|byte| *byte == b' ').collect::<Vec<_>>().join(&b"   "[..]);
    wide.push(b' ');
    assert_eq!(parse(&wide), request);
    for word in line.split(|byte| *byte == b' ') {
        assert_eq!(parse_number(word).map(u64::from), number(word));
        assert_eq!(parse_seconds(word).map(Span::as_micros), microseconds(word));
    }
}

/// Compares a request with a naive reading of its line, of which the model has a part.
fn compare(request: &PoolRequest<'_>, line: &[u8]) {
    let mut pieces = line.split(|byte| *byte == b' ');
    let command = pieces.next().unwrap_or_default();
    let words: Vec<&[u8]> = pieces.filter(|word| !word.is_empty()).collect();
    let naive = match (command, request) {
        (b"ACQ4ME" | b"ACQ4ANY", PoolRequest::Acquire(acquire)) => {
            let Ok(acquire) = acquire else { return assert_eq!(read_wish(&words), None) };
            let who = words.iter().skip(4).filter_map(|word| word.strip_prefix(b"who=")).next_back();
            assert_eq!((acquire.purpose == Purpose::Me, acquire.who), (command == b"ACQ4ME", who.unwrap_or_default()));
            return assert_eq!(read_wish(&words), Some(wish_of(acquire)));
        }
        (b"ACQ4ME" | b"ACQ4ANY", _) => panic!("{} is no acquire", line.escape_ascii()),
        (b"RELEASE", _) => PoolRequest::Release(words.first().copied()),
        (b"STATS", _) => read_list(&words).unwrap_or_else(|| PoolRequest::Stats(read_query(&words))),
        _ => PoolRequest::Unknown,
    };
    assert_eq!(*request, naive);
}

fn wish_of(acquire: &AcquireLock<'_>) -> Wish {
    let also = acquire.also.iter().map(|one| (one.key.to_vec(), one.workers.into(), one.max_queue.into()));
    Wish {
        key: acquire.key.to_vec(),
        workers: acquire.workers.into(),
        max_queue: acquire.max_queue.into(),
        timeout_us: acquire.timeout.as_micros(),
        hold_us: Some(acquire.hold).filter(|hold| *hold != Span::FOREVER).map(Span::as_micros),
        keep_us: acquire.keep.as_micros(),
        also: also.collect(),
    }
}

fn read_list(words: &[&[u8]]) -> Option<PoolRequest<'static>> {
    let is = |name: &[u8], wanted: &[u8]| name.eq_ignore_ascii_case(wanted);
    match words {
        [name] if is(name, b"keys") => Some(PoolRequest::Keys(20)),
        [name] if is(name, b"report") => Some(PoolRequest::Report(20)),
        [name, keys] if is(name, b"keys") => Some(PoolRequest::Keys(number(keys).filter(|keys| *keys > 0)? as usize)),
        [name, rows] if is(name, b"report") => Some(PoolRequest::Report(number(rows)? as usize)),
        _ => None,
    }
}

fn read_query<'a>(words: &[&'a [u8]]) -> StatsQuery<'a> {
    let names: Vec<String> = words.iter().map(|word| word.escape_ascii().to_string().to_lowercase()).collect();
    match names.as_slice() {
        [] => StatsQuery::Full,
        [name] if name == "full" => StatsQuery::Full,
        [name] if name == "types" => StatsQuery::Types,
        [name] if name == "fields" => StatsQuery::Fields,
        [name] => PoolStat::ALL
            .iter()
            .find(|stat| stat.row().name == *name)
            .map_or(StatsQuery::Unknown, |stat| StatsQuery::One(*stat)),
        [name, _] if name == "holders" => StatsQuery::Holders(words[1]),
        _ => StatsQuery::Unknown,
    }
}
