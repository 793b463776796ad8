//! The PoolCounter protocol: lines to requests, replies to lines. It knows nothing of who holds what.

pub mod listing;

pub use crate::decimal::{parse_number, parse_seconds};

use super::state::{Acquire, BadSyntax, Purpose, Reply};
use crate::stats::{Figures, Pools as Stat, Stat as _, Unit};
use crate::time::Span;
use std::io::Write;

pub mod asking;

/// One line of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// `ACQ4ME` or `ACQ4ANY`.
    Acquire(Result<Acquire<'a>, BadSyntax>),
    /// `RELEASE`, of the newest place or the newest on a key.
    Release(Option<&'a [u8]>),
    /// `STATS`.
    Stats(Query<'a>),
    /// Anything else.
    Unknown,
}

/// What `STATS` asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Query<'a> {
    /// Every statistic.
    Full,
    /// One of them. The durations cannot be asked for alone: their names are several words.
    One(Stat),
    /// So many of the busiest keys alive.
    Keys(usize),
    /// Who holds a key, and who waits for it.
    Holders(&'a [u8]),
    /// What happened by type of work.
    Types,
    /// No statistic at all.
    Unknown,
}

/// How many keys `STATS KEYS` tells when it is not said how many.
pub const USUAL_KEYS: usize = 20;

/// What stands at the front of a connection's input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line<'a> {
    /// A line without its end, and how many bytes it takes with it.
    Whole(&'a [u8], usize),
    /// No end of line yet.
    Partial,
    /// More bytes than a line may have.
    TooLong,
}

/// The answer to a line that is no request.
pub const BAD_COMMAND: &[u8] = b"ERROR BAD_COMMAND\n";
/// The answer to a line that is too long; the connection ends after it.
pub const LINE_TOO_LONG: &[u8] = b"ERROR LINE_TOO_LONG\n";
/// The answer to `STATS` of something that is no statistic.
pub const WRONG_STAT: &[u8] = b"ERROR WRONG_STAT\n";

/// Finds the end of the first line, LF or CR LF. It is not among the first `seen` bytes. A line may have `max` bytes before its LF.
pub fn first_line(input: &[u8], seen: usize, max: usize) -> Line<'_> {
    let searched = input.len().min(max + 1);
    let seen = seen.min(searched);
    match input[seen..searched].iter().position(|byte| *byte == b'\n').map(|at| seen + at) {
        Some(end) => Line::Whole(input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]), end + 1),
        None if input.len() > max => Line::TooLong,
        None => Line::Partial,
    }
}

/// Returns true when a line begins like an HTTP request or is the header that all of them have: a browser or a proxy was led here, and
/// what follows in its request are not its own words.
pub fn is_http(line: &[u8]) -> bool {
    const METHODS: [&[u8]; 9] =
        [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH"];
    let first = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    METHODS.contains(&first) || line.get(..5).is_some_and(|name| name.eq_ignore_ascii_case(b"Host:"))
}

/// Reads a line without its end.
pub fn parse(line: &[u8]) -> Request<'_> {
    if line.first() == Some(&b' ') {
        return Request::Unknown;
    }
    let mut parameters = Words(line);
    match parameters.next().unwrap_or_default() {
        b"ACQ4ME" => Request::Acquire(parse_acquire(Purpose::Me, parameters)),
        b"ACQ4ANY" => Request::Acquire(parse_acquire(Purpose::Anyone, parameters)),
        b"RELEASE" => Request::Release(parameters.next()),
        b"STATS" => Request::Stats(parse_query(parameters)),
        _ => Request::Unknown,
    }
}

/// The words of a line, which are separated by one or more spaces.
struct Words<'a>(&'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.0.iter().position(|byte| *byte != b' ')?;
        let rest = &self.0[start..];
        let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let (word, rest) = rest.split_at(end);
        self.0 = rest;
        Some(word)
    }
}

fn parse_acquire<'a>(purpose: Purpose, mut parameters: Words<'a>) -> Result<Acquire<'a>, BadSyntax> {
    let key = parameters.next().filter(|key| !key.contains(&0)).ok_or(BadSyntax)?;
    let mut positive = || parameters.next().and_then(parse_number).filter(|n| *n > 0).ok_or(BadSyntax);
    let (workers, max_queue) = (positive()?, positive()?);
    let timeout = parameters.next().and_then(parse_seconds).unwrap_or(Span::ZERO);
    let hold = parameters.filter_map(|word| parse_seconds(word.strip_prefix(b"hold=")?)).next();
    let hold = hold.filter(|hold| *hold != Span::ZERO).unwrap_or(Span::FOREVER);
    Ok(Acquire { key, purpose, workers, max_queue, timeout, hold })
}

fn parse_query(mut words: Words<'_>) -> Query<'_> {
    let Some(name) = words.next() else { return Query::Full };
    let (argument, surplus) = (words.next(), words.next());
    let is = |command: &[u8]| name.eq_ignore_ascii_case(command);
    match argument {
        _ if surplus.is_some() => Query::Unknown,
        None if is(b"FULL") => Query::Full,
        None if is(b"TYPES") => Query::Types,
        None if is(b"KEYS") => Query::Keys(USUAL_KEYS),
        None => {
            let wanted = |stat: &&Stat| is(stat.row().name.as_bytes());
            Stat::ALL.iter().find(wanted).map_or(Query::Unknown, |stat| Query::One(*stat))
        }
        Some(number) if is(b"KEYS") => {
            let number = parse_number(number).filter(|number| *number > 0);
            number.map_or(Query::Unknown, |number| Query::Keys(number as usize))
        }
        Some(key) if is(b"HOLDERS") => Query::Holders(key),
        Some(_) => Query::Unknown,
    }
}

/// The line that tells a connection of `reply`.
pub fn text_of(reply: Reply) -> &'static [u8] {
    match reply {
        Reply::Locked => b"LOCKED\n",
        Reply::Done => b"DONE\n",
        Reply::Released => b"RELEASED\n",
        Reply::QueueFull => b"QUEUE_FULL\n",
        Reply::Timeout => b"TIMEOUT\n",
        Reply::LockHeld => b"LOCK_HELD\n",
        Reply::NotLocked => b"NOT_LOCKED\n",
        Reply::WaitForResponse => b"ERROR WAIT_FOR_RESPONSE\n",
        Reply::BadSyntax => b"ERROR BAD_SYNTAX\n",
    }
}

/// Writes the answer to `STATS FULL`.
pub fn write_figures(bytes: &mut Vec<u8>, figures: &Figures<Stat>) {
    for (row, value) in figures.rows() {
        write_figure(bytes, row.name, row.unit, value);
    }
    bytes.push(b'\n');
}

/// Writes the answer to `STATS` with a name.
pub fn write_one(bytes: &mut Vec<u8>, stat: Stat, figures: &Figures<Stat>) {
    let row = stat.row();
    write_figure(bytes, row.name, row.unit, figures.of(stat));
}

fn write_figure(bytes: &mut Vec<u8>, name: &str, unit: Unit, value: u64) {
    let (days, hours, minutes) = (value / 86_400_000_000, value / 3_600_000_000 % 24, value / 60_000_000 % 60);
    let (seconds, us) = (value / 1_000_000 % 60, value % 1_000_000);
    let written = match unit {
        Unit::Count | Unit::Level => writeln!(bytes, "{name}: {value}"),
        Unit::Uptime => writeln!(bytes, "{name}: {days} days, {hours}h {minutes}m {seconds}s"),
        Unit::Duration | Unit::Latest if days > 0 => {
            writeln!(bytes, "{name}: {days} days {hours}h {minutes}m {seconds}.{us:06}s")
        }
        Unit::Duration | Unit::Latest if hours > 0 => writeln!(bytes, "{name}: {hours}h {minutes}m {seconds}.{us:06}s"),
        Unit::Duration | Unit::Latest if minutes > 0 => writeln!(bytes, "{name}: {minutes}m {seconds}.{us:06}s"),
        Unit::Duration | Unit::Latest => writeln!(bytes, "{name}: {seconds}.{us:06}s"),
    };
    written.expect("a vector takes every byte");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acquire(line: &str) -> Option<Acquire<'_>> {
        match parse(line.as_bytes()) {
            Request::Acquire(acquire) => acquire.ok(),
            other => panic!("{line} is no acquire but {other:?}"),
        }
    }

    #[test]
    fn an_acquire_has_its_fields() {
        let got = acquire("ACQ4ANY  ArticleView:x  2 30   5.5 junk hold=0.25").expect("is well-formed");
        assert_eq!(got.key, b"ArticleView:x");
        assert_eq!((got.purpose, got.workers, got.max_queue), (Purpose::Anyone, 2, 30));
        assert_eq!((got.timeout, got.hold), (Span::from_millis(5_500), Span::from_millis(250)));
    }

    #[test]
    fn an_acquire_without_its_fields_is_bad_syntax() {
        for line in
            ["", " k", " k 1", " k 0 1 1", " k 1 0 1", " k x 1 1", " k 1 1x 1", " k -1 1 1", " k +1 1 1", " a\0b 1 1 1"]
        {
            assert_eq!(acquire(&format!("ACQ4ME{line}")), None, "{line}");
        }
    }

    #[test]
    fn what_is_no_number_is_no_timeout() {
        for word in ["", "b'0'", "-1", ".", "1.x", "1e3", "hold=3"] {
            assert_eq!(acquire(&format!("ACQ4ME k 1 1 {word}")).map(|a| a.timeout), Some(Span::ZERO), "{word}");
        }
    }

    #[test]
    fn a_hold_of_zero_is_no_limit() {
        for word in ["", "hold=0", "hold=", "hold=x", "HOLD=1"] {
            assert_eq!(acquire(&format!("ACQ4ME k 1 1 1 {word}")).map(|a| a.hold), Some(Span::FOREVER), "{word}");
        }
    }

    #[test]
    fn a_command_is_a_whole_word() {
        for line in ["", " ", "RELEASEXYZ", "release", " RELEASE", "ACQ4MEk 1 1 1", "ACQ4ME\tk", "STATSFULL", "\0"] {
            assert_eq!(parse(line.as_bytes()), Request::Unknown, "{line}");
        }
        assert_eq!(parse(b"RELEASE  k x"), Request::Release(Some(b"k")));
        assert_eq!(parse(b"RELEASE "), Request::Release(None));
    }

    #[test]
    fn every_count_can_be_asked_for_alone() {
        for row in Stat::ALL.iter().map(|stat| stat.row()) {
            let asked =
                parse(format!("STATS {}", row.name.to_uppercase()).as_bytes()) != Request::Stats(Query::Unknown);
            assert_eq!(asked, !matches!(row.unit, Unit::Duration | Unit::Latest), "{}", row.name);
        }
        assert_eq!(parse(b"STATS  full "), Request::Stats(Query::Full));
        assert_eq!(parse(b"STATS"), Request::Stats(Query::Full));
    }

    #[test]
    fn listings_have_their_parameters() {
        for (line, query) in [
            (" KEYS", Query::Keys(20)),
            (" keys  7 ", Query::Keys(7)),
            (" KEYS 99999999999", Query::Keys(4_294_967_295)),
            (" HOLDERS  Key", Query::Holders(b"Key")),
            (" Types", Query::Types),
            (" KEYS 0", Query::Unknown),
            (" KEYS x", Query::Unknown),
            (" KEYS 1 2", Query::Unknown),
            (" HOLDERS", Query::Unknown),
            (" HOLDERS a b", Query::Unknown),
            (" TYPES x", Query::Unknown),
        ] {
            assert_eq!(parse(format!("STATS{line}").as_bytes()), Request::Stats(query), "{line}");
        }
    }

    #[test]
    fn http_is_known_by_its_first_words() {
        for line in ["POST / HTTP/1.1", "GET /metrics HTTP/1.0", "PUT", "Host: a", "host:a"] {
            assert!(is_http(line.as_bytes()), "{line}");
        }
        for line in ["", "POSTER", "post / HTTP/1.1", "ACQ4ME Host: 1 1 1", "RELEASE POST", "Host", " GET"] {
            assert!(!is_http(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn lines_end_in_lf_or_cr_lf() {
        assert_eq!(first_line(b"a\r\nb\n", 0, 9), Line::Whole(b"a", 3));
        assert_eq!(first_line(b"a\rb\r\r\n", 0, 9), Line::Whole(b"a\rb\r", 6));
        assert_eq!(first_line(b"abc\n", 0, 3), Line::Whole(b"abc", 4));
        assert_eq!(first_line(b"abc", 0, 3), Line::Partial);
        assert_eq!(first_line(b"abcd", 0, 3), Line::TooLong);
        assert_eq!(first_line(b"abcd\n", 0, 3), Line::TooLong);
        assert_eq!(first_line(b"abc\n", 3, 3), Line::Whole(b"abc", 4));
        assert_eq!(first_line(b"abcd", 4, 3), Line::TooLong);
        assert_eq!(first_line(b"abc", 3, 9), Line::Partial);
    }

    #[test]
    fn leading_parts_of_a_duration_that_are_zero_are_left_out() {
        let text = |us| {
            let mut bytes = Vec::new();
            write_figure(&mut bytes, "t", Unit::Duration, us);
            String::from_utf8(bytes).expect("is text")
        };
        assert_eq!(text(957_994), "t: 0.957994s\n");
        assert_eq!(text(61_000_001), "t: 1m 1.000001s\n");
        assert_eq!(text(3_600_000_000), "t: 1h 0m 0.000000s\n");
        assert_eq!(
            text(85_809 * 86_400_000_000 + 14 * 3_600_000_000 + 24_000_000),
            "t: 85809 days 14h 0m 24.000000s\n"
        );
    }
}
