//! The client's side of the protocol: names that can be sent, the line of a put, replies, and the YAML of statistics
//! and lists, in the form in which beanstalkd and its extensions write it.

use crate::jobs::name::{Pattern, TubeName};
use crate::jobs::request::{JobId, Until};
use std::io::Write;

/// Longest key, and longest signature of a root job, in bytes.
const MAX_KEY: usize = 200;
/// Longest name of a group or runner, in bytes.
const MAX_GROUP: usize = 64;
/// Words with which a server refuses a request.
const REFUSALS: [&str; 9] = [
    "OUT_OF_MEMORY",
    "INTERNAL_ERROR",
    "BAD_FORMAT",
    "UNKNOWN_COMMAND",
    "EXPECTED_CRLF",
    "JOB_TOO_BIG",
    "DRAINING",
    "NOT_IGNORED",
    "NOT_ALLOWED",
];

/// Map of names to values, in the order of the text.
pub type YamlMap = Vec<(String, String)>;

/// Values in the line of a put or put-job; times in whole seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PutLine<'a> {
    /// Priority; lower is reserved first.
    pub pri: u32,
    /// Delay in seconds, before which it cannot be reserved.
    pub delay: u32,
    /// Seconds for which a runner may hold it.
    pub ttr: u32,
    /// Length of its body in bytes.
    pub body_bytes: usize,
    /// Options of put-job.
    pub options: Option<PutWords<'a>>,
}

/// Options of put-job, which must be valid; an empty one is a missing one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PutWords<'a> {
    /// Tube.
    pub tube: &'a [u8],
    /// Key.
    pub key: &'a [u8],
    /// End of the time in which it keeps other jobs with its key out.
    pub until: Until,
    /// Seconds from its put on in which it does so in any case.
    pub keep: Option<u32>,
    /// Signature and timestamp of its root job.
    pub root: Option<(&'a [u8], u64)>,
    /// Group.
    pub group: &'a [u8],
}

/// Returns whether this is the name of a tube.
pub fn is_tube(name: &[u8]) -> bool {
    TubeName::parse(name).is_some()
}

/// Returns whether this is the name of a tube, or a pattern.
pub fn is_pattern(name: &[u8]) -> bool {
    Pattern::parse(name).is_some()
}

/// Returns whether this pattern is the name of one tube.
pub fn is_plain(name: &[u8]) -> bool {
    Pattern::parse(name).is_some_and(|pattern| pattern.plain().is_some())
}

/// Returns whether this is a key or a signature.
pub fn is_key(key: &[u8]) -> bool {
    is_text(key, MAX_KEY)
}

/// Returns whether this is the name of a group or a runner.
pub fn is_group(name: &[u8]) -> bool {
    is_text(name, MAX_GROUP)
}

fn is_text(bytes: &[u8], most: usize) -> bool {
    (1..=most).contains(&bytes.len()) && !bytes.iter().any(|byte| *byte == b' ' || byte.is_ascii_control())
}

/// Writes the line of a put, or of a put-job if there are options.
pub fn write_put(bytes: &mut Vec<u8>, put: &PutLine<'_>) {
    let word = if put.options.is_some() { "put-job" } else { "put" };
    let PutLine { pri, delay, ttr, body_bytes, options } = put;
    write!(bytes, "{word} {pri} {delay} {ttr} {body_bytes}").expect("a vector takes every byte");
    if let Some(PutWords { tube, key, until, keep, root, group }) = options {
        let mut option = |name: &str, value: &[u8]| {
            if !value.is_empty() {
                bytes.extend_from_slice(&[b" ", name.as_bytes(), b"=", value].concat());
            }
        };
        option("tube", tube);
        option("key", key);
        if *until == Until::Deleted {
            option("until", b"deleted");
        }
        if let Some(seconds) = keep {
            option("for", seconds.to_string().as_bytes());
        }
        if let Some((signature, timestamp)) = root {
            option("root", signature);
            option("root-ts", timestamp.to_string().as_bytes());
        }
        option("group", group);
    }
    bytes.extend_from_slice(b"\r\n");
}

/// Returns the word of a reply and the text behind it.
pub fn split(line: &[u8]) -> (&str, &[u8]) {
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    let rest = line.get(end + 1..).unwrap_or_default();
    // A word that is no text is an unknown one.
    (std::str::from_utf8(&line[..end]).unwrap_or_default(), rest)
}

/// Returns whether a server refuses a request with this line.
pub fn is_refusal(line: &[u8]) -> bool {
    REFUSALS.contains(&split(line).0)
}

/// Returns a number that consists of digits alone; None for other text.
pub fn number(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(digits).ok()?.parse().ok()).flatten()
}

/// Returns the number of the job and the length of its body in `RESERVED` and `FOUND`.
pub fn job_and_bytes(rest: &[u8]) -> Option<(JobId, usize)> {
    let space = rest.iter().position(|byte| *byte == b' ')?;
    let (id, bytes) = (number(&rest[..space])?, number(&rest[space + 1..])?);
    Some((JobId(id), usize::try_from(bytes).ok()?))
}

/// Returns the items of a list in YAML.
pub fn parse_list(text: &[u8]) -> Option<Vec<String>> {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines();
    (lines.next() == Some("---")).then_some(())?;
    lines.map(|line| line.strip_prefix("- ").map(value_of)).collect()
}

/// Returns a map in YAML.
pub fn parse_map(text: &[u8]) -> Option<YamlMap> {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines();
    (lines.next() == Some("---")).then_some(())?;
    lines.map(pair_of).collect()
}

/// Returns a list of maps in YAML.
pub fn parse_maps(text: &[u8]) -> Option<Vec<YamlMap>> {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines();
    (lines.next() == Some("---")).then_some(())?;
    let mut maps: Vec<YamlMap> = Vec::new();
    for line in lines {
        match (line.strip_prefix("- "), line.strip_prefix("  ")) {
            (Some(first), _) => maps.push(vec![pair_of(first)?]),
            (None, Some(further)) => maps.last_mut()?.push(pair_of(further)?),
            (None, None) => return None,
        }
    }
    Some(maps)
}

fn pair_of(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once(':')?;
    Some((name.into(), value_of(value.trim_start_matches(' '))))
}

/// Returns the value of a scalar: the text between double quotes without its escapes, or the text as it is.
fn value_of(scalar: &str) -> String {
    let Some(quoted) = scalar.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return scalar.into() };
    let (mut value, mut characters) = (String::with_capacity(quoted.len()), quoted.chars());
    while let Some(character) = characters.next() {
        match (character, if character == '\\' { characters.next() } else { None }) {
            (_, Some('n')) => value.push('\n'),
            (_, Some('r')) => value.push('\r'),
            (_, Some('t')) => value.push('\t'),
            (_, Some('x')) => {
                let digits: String = characters.by_ref().take(2).collect();
                value.extend(u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32));
            }
            (_, Some(escaped)) => value.push(escaped),
            (plain, None) => value.push(plain),
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_has_the_options_that_it_needs() {
        let written = |options| {
            let mut bytes = Vec::new();
            write_put(&mut bytes, &PutLine { pri: 1, delay: 2, ttr: 3, body_bytes: 4, options });
            String::from_utf8(bytes).expect("is text")
        };
        assert_eq!(written(None), "put 1 2 3 4\r\n");
        assert_eq!(written(Some(PutWords::default())), "put-job 1 2 3 4\r\n");
        let all = PutWords {
            tube: b"a/b",
            key: b"k",
            until: Until::Deleted,
            keep: Some(9),
            root: Some((b"s", 20_260_101)),
            group: b"g",
        };
        let line = "put-job 1 2 3 4 tube=a/b key=k until=deleted for=9 root=s root-ts=20260101 group=g\r\n";
        assert_eq!(written(Some(all)), line);
    }

    #[test]
    fn yaml_is_read_as_it_is_written() {
        assert_eq!(parse_list(b"---\n- default\n- \"a b\"\n"), Some(vec!["default".into(), "a b".into()]));
        assert_eq!(parse_list(b"- default\n"), None);
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        let map = parse_map(b"---\nname: \"a\"\npause: 0\nempty:\n").expect("is a map");
        assert_eq!(map, [pair("name", "a"), pair("pause", "0"), pair("empty", "")]);
        let maps = parse_maps(b"---\n- id: 1\n  error: \"a\\n\\\"b\\\\\\x1b\"\n- id: 2\n").expect("is a list");
        assert_eq!(maps, [vec![pair("id", "1"), pair("error", "a\n\"b\\\u{1b}")], vec![pair("id", "2")]]);
        assert_eq!((parse_maps(b"---\n"), parse_maps(b"---\n  a: 1\n")), (Some(vec![]), None));
    }

    #[test]
    fn replies_are_taken_apart() {
        assert_eq!(split(b"RESERVED 5 6"), ("RESERVED", &b"5 6"[..]));
        assert_eq!(split(b"DELETED"), ("DELETED", &b""[..]));
        assert_eq!(job_and_bytes(b"5 6"), Some((JobId(5), 6)));
        for wrong in [&b"5"[..], b"5 ", b" 6", b"5 6 7", b"+5 6", b"5 99999999999999999999"] {
            assert_eq!(job_and_bytes(wrong), None, "{}", wrong.escape_ascii());
        }
        assert!(is_refusal(b"DRAINING") && !is_refusal(b"NOT_FOUND"));
        assert!(is_refusal(b"BAD_FORMAT put-many <number>"));
    }
}
