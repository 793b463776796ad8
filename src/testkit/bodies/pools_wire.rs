//! Raw bytes into the parser of the pools protocol, beside a naive reading of the same words.

use poolcounter_core::decimal::{parse_number, parse_seconds};
use poolcounter_core::stats::Stat as _;
use poolcounter_core::time::Span;
use poolcounter_pools::{AcquireLock, BadSyntax, KeyLimits, Purpose};
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
    assert_eq!(request, read(line));
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
        assert_eq!(parse_number(word), number(word));
        assert_eq!(parse_seconds(word), seconds(word));
    }
}

fn read(line: &[u8]) -> PoolRequest<'_> {
    let mut pieces = line.split(|byte| *byte == b' ');
    let command = pieces.next().unwrap_or_default();
    let words: Vec<&[u8]> = pieces.filter(|word| !word.is_empty()).collect();
    match command {
        b"ACQ4ME" => PoolRequest::Acquire(read_acquire(Purpose::Me, &words)),
        b"ACQ4ANY" => PoolRequest::Acquire(read_acquire(Purpose::Anyone, &words)),
        b"RELEASE" => PoolRequest::Release(words.first().copied()),
        b"STATS" => read_list(&words).unwrap_or_else(|| PoolRequest::Stats(read_query(&words))),
        _ => PoolRequest::Unknown,
    }
}

fn read_acquire<'a>(purpose: Purpose, words: &[&'a [u8]]) -> Result<AcquireLock<'a>, BadSyntax> {
    let [key, workers, max_queue, more @ ..] = words else { return Err(BadSyntax) };
    let (workers, max_queue) = (number(workers).unwrap_or(0), number(max_queue).unwrap_or(0));
    if key.contains(&0) || workers == 0 || max_queue == 0 {
        return Err(BadSyntax);
    }
    let timeout = more.first().and_then(|word| seconds(word)).unwrap_or(Span::ZERO);
    let fields = |name: &'static [u8]| more.iter().skip(1).filter_map(move |word| word.strip_prefix(name));
    let holds: Option<Vec<Span>> = fields(b"hold=").map(seconds).collect();
    let keeps: Option<Vec<Span>> = fields(b"keep=").map(seconds).collect();
    let keep = keeps.ok_or(BadSyntax)?.last().copied().unwrap_or(Span::ZERO);
    let whos: Vec<&[u8]> = fields(b"who=").collect();
    if whos.iter().any(|who| who.len() > 64 || who.contains(&0)) {
        return Err(BadSyntax);
    }
    let hold = holds.ok_or(BadSyntax)?.last().copied().filter(|hold| *hold > Span::ZERO).unwrap_or(Span::FOREVER);
    let who = whos.last().copied().unwrap_or_default();
    let also: Option<Vec<KeyLimits<'_>>> = fields(b"also=").map(read_limits).collect();
    let also = also.ok_or(BadSyntax)?;
    let is_twice =
        also.iter().enumerate().any(|(n, one)| *key == one.key || also[..n].iter().any(|other| other.key == one.key));
    if also.len() > 4 || is_twice || keep > Span::ZERO && !also.is_empty() {
        return Err(BadSyntax);
    }
    Ok(AcquireLock { key, purpose, workers, max_queue, timeout, hold, keep, who, also })
}

fn read_limits(word: &[u8]) -> Option<KeyLimits<'_>> {
    let colons: Vec<usize> = (0..word.len()).filter(|at| word[*at] == b':').collect();
    let [.., first, second] = colons[..] else { return None };
    let (key, workers, max_queue) = (&word[..first], number(&word[first + 1..second])?, number(&word[second + 1..])?);
    let is_fine = !key.is_empty() && !key.contains(&0) && workers > 0 && max_queue > 0;
    is_fine.then_some(KeyLimits { key, workers, max_queue })
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

fn digits(word: &[u8]) -> Option<&str> {
    std::str::from_utf8(word).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
}

fn number(word: &[u8]) -> Option<u32> {
    digits(word).filter(|text| !text.is_empty()).map(|text| text.parse().unwrap_or(u32::MAX))
}

fn seconds(word: &[u8]) -> Option<Span> {
    let mut parts = word.splitn(2, |byte| *byte == b'.');
    let (whole, decimals) = (digits(parts.next()?)?, digits(parts.next().unwrap_or_default())?);
    if whole.is_empty() && decimals.is_empty() {
        return None;
    }
    let padded = format!("{decimals:0<3}");
    let (ms, finer) = padded.split_at(3);
    let round_up = u64::from(finer.contains(|digit| digit != '0'));
    let ms = ms.parse::<u64>().expect("three digits are a number") + round_up;
    Some(Span::from_secs(number(whole.as_bytes()).unwrap_or(0).into()) + Span::from_millis(ms))
}
