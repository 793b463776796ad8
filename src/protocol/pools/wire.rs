//! The PoolCounter protocol: lines to requests, replies to lines. It does not know the pools.

use super::commands::PoolCommand;
use super::request::{AcquireLock, BadSyntax, KeyLimits, MOST_LIMITS, Purpose, Reply};
use crate::line::{LineWords, take_plain_word, take_short_number};
use crate::pools::stats::{IN_FULL, PoolStat as Stat};
use poolcounter_core::decimal::{parse_number, parse_seconds};
use poolcounter_core::{Figures, Span, Stat as _, Unit};
use std::io::Write;

pub mod client;

/// Request of a client, in one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PoolRequest<'a> {
    /// `ACQ4ME` or `ACQ4ANY`.
    Acquire(Result<AcquireLock<'a>, BadSyntax>),
    /// `RELEASE`, of the newest claim or the newest on a key.
    Release(Option<&'a [u8]>),
    /// `STATS`, but for the next two.
    Stats(StatsQuery<'a>),
    /// `STATS KEYS`: the busiest keys, at most this many.
    Keys(usize),
    /// `STATS REPORT`: the reports of all services, with at most this many rows of each table.
    Report(usize),
    /// Anything else.
    Unknown,
}

/// Parameter of `STATS`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatsQuery<'a> {
    /// Every statistic.
    Full,
    /// One statistic. Durations cannot be requested alone, because their names are several words.
    One(Stat),
    /// Holders and waiters of a key.
    Holders(&'a [u8]),
    /// Statistics by type of work.
    Types,
    /// Fields of an acquire that this server knows.
    Fields,
    /// Unknown statistic.
    Unknown,
}

/// Fields that may follow the timeout of an acquire, each as `name=value`.
pub const FIELDS: [&str; 4] = ["also", "hold", "keep", "who"];
/// Most bytes of a `who`.
pub const MAX_WHO: usize = 64;
/// Most keys in an answer to `STATS KEYS` by default.
pub const USUAL_KEYS: usize = 20;
/// Most rows of each table of `STATS REPORT` by default.
pub const USUAL_ROWS: usize = 20;

/// Usual line of a release.
pub const RELEASE_LINE: &[u8] = b"RELEASE\n";
/// Answer to `STATS` with an unknown statistic.
pub const WRONG_STAT: &[u8] = b"ERROR WRONG_STAT\n";

/// Returns the request in a line without its end.
pub fn parse(line: &[u8]) -> PoolRequest<'_> {
    if line.first() == Some(&b' ') {
        return PoolRequest::Unknown;
    }
    let mut words = LineWords(line);
    match PoolCommand::of_word(words.next().unwrap_or_default()) {
        Some(PoolCommand::Acq4Me) => PoolRequest::Acquire(parse_acquire(Purpose::Me, words)),
        Some(PoolCommand::Acq4Any) => PoolRequest::Acquire(parse_acquire(Purpose::Anyone, words)),
        Some(PoolCommand::Release) => PoolRequest::Release(words.next()),
        Some(PoolCommand::Stats) => parse_stats(words),
        None => PoolRequest::Unknown,
    }
}

/// Returns the acquire at the front of the input and what follows its line of at most `max` bytes and its end, if it is
/// written as most clients write it: single spaces, a key without control characters, three short numbers, and a line
/// feed. Returns None for every other input, which [`parse`] reads line by line. The line is read in one pass.
#[inline(always)]
pub fn parse_usual(input: &[u8], max: usize) -> Option<(AcquireLock<'_>, &[u8])> {
    let (purpose, mut rest) = if let Some(rest) = input.strip_prefix(b"ACQ4ME ") {
        (Purpose::Me, rest)
    } else {
        (Purpose::Anyone, input.strip_prefix(b"ACQ4ANY ")?)
    };
    let key = take_plain_word(&mut rest)?;
    let workers = take_short_number(&mut rest, b' ').filter(|n| *n > 0)?;
    let max_queue = take_short_number(&mut rest, b' ').filter(|n| *n > 0)?;
    let timeout = Span::from_secs(take_short_number(&mut rest, b'\n')?.into());
    let (hold, keep, who, also) = (Span::FOREVER, Span::ZERO, &b""[..], Vec::new());
    let request = AcquireLock { key, purpose, workers, max_queue, timeout, hold, keep, who, also };
    (input.len() - rest.len() <= max + 1).then_some((request, rest))
}

fn parse_acquire<'a>(purpose: Purpose, mut parameters: LineWords<'a>) -> Result<AcquireLock<'a>, BadSyntax> {
    let key = parameters.take_key().ok_or(BadSyntax)?;
    let mut positive = || parameters.take_number().filter(|n| *n > 0).ok_or(BadSyntax);
    let (workers, max_queue) = (positive()?, positive()?);
    let timeout = match parameters.take_number() {
        Some(seconds) => Span::from_secs(u64::from(seconds)),
        None => parameters.next().and_then(parse_seconds).unwrap_or(Span::ZERO),
    };
    let (hold, keep, who, also) = (Span::FOREVER, Span::ZERO, &b""[..], Vec::new());
    let request = AcquireLock { key, purpose, workers, max_queue, timeout, hold, keep, who, also };
    if parameters.0.is_empty() { Ok(request) } else { parse_fields(parameters, request) }
}

#[inline(never)]
fn parse_fields<'a>(mut words: LineWords<'a>, mut request: AcquireLock<'a>) -> Result<AcquireLock<'a>, BadSyntax> {
    words.try_for_each(|word| parse_field(word, &mut request))?;
    if request.keep > Span::ZERO && !request.also.is_empty() { Err(BadSyntax) } else { Ok(request) }
}

/// Reads one of the fields behind the timeout. Unknown fields are ignored. Of two with one name the later one applies,
/// but `also` may be repeated.
fn parse_field<'a>(word: &'a [u8], request: &mut AcquireLock<'a>) -> Result<(), BadSyntax> {
    if let Some(hold) = word.strip_prefix(b"hold=") {
        let hold = parse_seconds(hold).ok_or(BadSyntax)?;
        request.hold = if hold == Span::ZERO { Span::FOREVER } else { hold };
    } else if let Some(keep) = word.strip_prefix(b"keep=") {
        request.keep = parse_seconds(keep).ok_or(BadSyntax)?;
    } else if let Some(who) = word.strip_prefix(b"who=") {
        let is_name = who.len() <= MAX_WHO && !who.contains(&0);
        request.who = is_name.then_some(who).ok_or(BadSyntax)?;
    } else if let Some(limits) = word.strip_prefix(b"also=") {
        let limits = parse_limits(limits).ok_or(BadSyntax)?;
        let is_known = request.key == limits.key || request.also.iter().any(|other| other.key == limits.key);
        if is_known || request.also.len() == MOST_LIMITS {
            return Err(BadSyntax);
        }
        request.also.push(limits);
    }
    Ok(())
}

/// Reads `KEY:WORKERS:MAXQUEUE`. The key may have colons, too.
fn parse_limits(word: &[u8]) -> Option<KeyLimits<'_>> {
    let mut parts = word.rsplitn(3, |byte| *byte == b':');
    let mut positive = || parts.next().and_then(parse_number).filter(|n| *n > 0);
    let (max_queue, workers) = (positive()?, positive()?);
    let key = parts.next().filter(|key| !key.is_empty() && !key.contains(&0))?;
    Some(KeyLimits { key, workers, max_queue })
}

fn parse_stats(mut words: LineWords<'_>) -> PoolRequest<'_> {
    let Some(name) = words.next() else { return PoolRequest::Stats(StatsQuery::Full) };
    let (argument, surplus) = (words.next(), words.next());
    let is = |command: &[u8]| name.eq_ignore_ascii_case(command);
    PoolRequest::Stats(match argument {
        _ if surplus.is_some() => StatsQuery::Unknown,
        None if is(b"FULL") => StatsQuery::Full,
        None if is(b"TYPES") => StatsQuery::Types,
        None if is(b"FIELDS") => StatsQuery::Fields,
        None if is(b"KEYS") => return PoolRequest::Keys(USUAL_KEYS),
        None if is(b"REPORT") => return PoolRequest::Report(USUAL_ROWS),
        None => {
            let wanted = |stat: &&Stat| is(stat.row().name.as_bytes());
            Stat::ALL.iter().find(wanted).map_or(StatsQuery::Unknown, |stat| StatsQuery::One(*stat))
        }
        Some(number) if is(b"KEYS") => match parse_number(number).filter(|number| *number > 0) {
            Some(keys) => return PoolRequest::Keys(keys as usize),
            None => StatsQuery::Unknown,
        },
        Some(key) if is(b"HOLDERS") => StatsQuery::Holders(key),
        Some(number) if is(b"REPORT") => match parse_number(number) {
            Some(rows) => return PoolRequest::Report(rows as usize),
            None => StatsQuery::Unknown,
        },
        Some(_) => StatsQuery::Unknown,
    })
}

/// Longest line of a reply, in bytes.
pub const MOST_REPLY_BYTES: usize = 24;

/// Returns the line of a reply.
pub const fn text_of(reply: Reply) -> &'static [u8] {
    reply.text().as_bytes()
}

/// Appends the line of a reply.
#[inline]
pub fn write_reply(bytes: &mut Vec<u8>, reply: Reply) {
    // Most replies are these, and a copy whose length is known takes no call.
    if reply == Reply::Released {
        bytes.extend_from_slice(text_of(Reply::Released));
    } else if reply == Reply::Locked {
        bytes.extend_from_slice(text_of(Reply::Locked));
    } else {
        bytes.extend_from_slice(text_of(reply));
    }
}

/// Writes the answer to `STATS FULL`.
pub fn write_figures(bytes: &mut Vec<u8>, figures: &Figures<Stat>) {
    for (row, value) in figures.rows().take(IN_FULL) {
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
        Unit::Count | Unit::Level | Unit::Bytes => writeln!(bytes, "{name}: {value}"),
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
    use crate::line::{Line, first_line};

    fn acquire(line: &str) -> Option<AcquireLock<'_>> {
        match parse(line.as_bytes()) {
            PoolRequest::Acquire(acquire) => acquire.ok(),
            other => panic!("{line} is no acquire but {other:?}"),
        }
    }

    #[test]
    fn acquire_has_its_fields() {
        let got = acquire("ACQ4ANY  ArticleView:x  2 30   5.5 junk hold=0.25").expect("is well-formed");
        assert_eq!(got.key, b"ArticleView:x");
        assert_eq!((got.purpose, got.workers, got.max_queue), (Purpose::Anyone, 2, 30));
        assert_eq!((got.timeout, got.hold), (Span::from_millis(5_500), Span::from_millis(250)));
    }

    /// A usual acquire is the same request if it is read line by line.
    #[test]
    fn usual_acquire_is_an_acquire() {
        let parts: [&[&str]; 9] = [
            &["ACQ4ME", "ACQ4ANY", "ACQ4", "RELEASE", ""],
            &[" ", "  ", "\t"],
            &[
                "k",
                "",
                "Article:1",
                "seven77",
                "eight888",
                "nine99999",
                "a\rb",
                "a\0b",
                "a\nb",
                "\u{e9}\u{ff}\u{7f}",
                "\x1f",
            ],
            &[" ", "  "],
            &["1", "0", "999999999", "1000000000", "x", "", "+1"],
            &[" "],
            &["1", "100", "0"],
            &[" ", "", " 5 "],
            &["5\n", "5\r\n", "5 \n", "5.5\n", "\n", "5", "15 who=x\nRELEASE\n", "07\nRELEASE\n"],
        ];
        let mut usual = 0;
        let all: usize = parts.iter().map(|choices| choices.len()).product();
        for mut number in 0..all {
            let mut input = String::new();
            for choices in parts {
                input.push_str(choices[number % choices.len()]);
                number /= choices.len();
            }
            for max in [10, 1_000] {
                let Some((acquire, rest)) = parse_usual(input.as_bytes(), max) else { continue };
                let len = input.len() - rest.len();
                let line = first_line(input.as_bytes(), 0, max);
                assert_eq!(line, Line::Whole(&input.as_bytes()[..len - 1], len), "{input:?}");
                let request = parse(&input.as_bytes()[..len - 1]);
                assert_eq!(request, PoolRequest::Acquire(Ok(acquire)), "{input:?}");
                usual += 1;
            }
        }
        assert!(usual > 90, "{usual} are usual");
    }

    #[test]
    fn acquire_without_its_fields_is_bad_syntax() {
        for line in
            ["", " k", " k 1", " k 0 1 1", " k 1 0 1", " k x 1 1", " k 1 1x 1", " k -1 1 1", " k +1 1 1", " a\0b 1 1 1"]
        {
            assert_eq!(acquire(&format!("ACQ4ME{line}")), None, "{line}");
        }
    }

    #[test]
    fn timeout_that_is_no_number_is_zero() {
        for word in ["", "b'0'", "-1", ".", "1.x", "1e3", "hold=3"] {
            assert_eq!(acquire(&format!("ACQ4ME k 1 1 {word}")).map(|a| a.timeout), Some(Span::ZERO), "{word}");
        }
    }

    #[test]
    fn hold_of_zero_is_no_limit() {
        for word in ["", "hold=0", "HOLD=1", "hold", "hold=3 hold=0"] {
            assert_eq!(acquire(&format!("ACQ4ME k 1 1 1 {word}")).map(|a| a.hold), Some(Span::FOREVER), "{word}");
        }
    }

    #[test]
    fn known_field_has_a_valid_value() {
        let name = "n".repeat(MAX_WHO);
        for (fields, who) in [("", ""), ("who=", ""), ("x who=a=b@c:1 y=2", "a=b@c:1"), (&format!("who={name}"), &name)]
        {
            let line = format!("ACQ4ME k 1 1 1 {fields}");
            assert_eq!(acquire(&line).map(|a| a.who), Some(who.as_bytes()), "{fields}");
        }
        assert_eq!(acquire("ACQ4ME k 1 1 1 keep=9 keep=0.5").map(|a| a.keep), Some(Span::from_millis(500)));
        let name = format!("who={name}n");
        for fields in ["hold=", "hold=x", "hold=-1", "hold=1 hold=x", "keep=", "keep=1 also=l:1:1", "who=a\0", &name] {
            assert_eq!(acquire(&format!("ACQ4ME k 1 1 1 {fields}")), None, "{fields}");
        }
    }

    #[test]
    fn command_is_a_whole_word() {
        for line in ["", " ", "RELEASEXYZ", "release", " RELEASE", "ACQ4MEk 1 1 1", "ACQ4ME\tk", "STATSFULL", "\0"] {
            assert_eq!(parse(line.as_bytes()), PoolRequest::Unknown, "{line}");
        }
        assert_eq!(parse(b"RELEASE  k x"), PoolRequest::Release(Some(b"k")));
        assert_eq!(parse(b"RELEASE "), PoolRequest::Release(None));
    }

    #[test]
    fn no_reply_is_longer_than_the_longest() {
        assert_eq!(Reply::ALL.map(|reply| text_of(reply).len()).into_iter().max(), Some(MOST_REPLY_BYTES));
    }

    #[test]
    fn every_count_can_be_asked_for_alone() {
        for row in Stat::ALL.iter().map(|stat| stat.row()) {
            let asked = parse(format!("STATS {}", row.name.to_uppercase()).as_bytes())
                != PoolRequest::Stats(StatsQuery::Unknown);
            assert_eq!(asked, !matches!(row.unit, Unit::Duration | Unit::Latest), "{}", row.name);
        }
        assert_eq!(parse(b"STATS  full "), PoolRequest::Stats(StatsQuery::Full));
        assert_eq!(parse(b"STATS"), PoolRequest::Stats(StatsQuery::Full));
    }

    #[test]
    fn listings_have_their_parameters() {
        for (line, query) in [
            (" HOLDERS  Key", StatsQuery::Holders(b"Key")),
            (" Types", StatsQuery::Types),
            (" REPORT x", StatsQuery::Unknown),
            (" REPORT 1 2", StatsQuery::Unknown),
            (" KEYS 0", StatsQuery::Unknown),
            (" KEYS x", StatsQuery::Unknown),
            (" KEYS 1 2", StatsQuery::Unknown),
            (" HOLDERS", StatsQuery::Unknown),
            (" HOLDERS a b", StatsQuery::Unknown),
            (" TYPES x", StatsQuery::Unknown),
        ] {
            assert_eq!(parse(format!("STATS{line}").as_bytes()), PoolRequest::Stats(query), "{line}");
        }
        for (line, keys) in [(" KEYS", 20), (" keys  7 ", 7), (" KEYS 99999999999", 4_294_967_295)] {
            assert_eq!(parse(format!("STATS{line}").as_bytes()), PoolRequest::Keys(keys), "{line}");
        }
        for (line, rows) in [(" report", 20), (" REPORT 0", 0), (" REPORT  7", 7)] {
            assert_eq!(parse(format!("STATS{line}").as_bytes()), PoolRequest::Report(rows), "{line}");
        }
    }

    #[test]
    fn leading_zero_parts_of_a_duration_are_omitted() {
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
