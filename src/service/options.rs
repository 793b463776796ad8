//! Options as rows of a table, which parsing, `--help`, the configuration file and the manual read. Independent of any
//! particular option.

mod rows;

pub use crate::option_table;

use poolcounter_core::decimal::parse_seconds;
use poolcounter_core::{Address, Span};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Option that sets a field of an `S`.
pub struct Opt<S> {
    /// Letter; empty for none.
    pub short: &'static str,
    /// Name.
    pub long: &'static str,
    /// Key in the configuration file, with dots between sections; empty if it cannot be set there.
    pub key: &'static str,
    /// Other keys accepted in a configuration file.
    pub aliases: &'static [&'static str],
    /// Placeholder of the value; empty for an option without one, which is true or false in a file.
    pub hint: &'static str,
    /// True if it can have several values; an array in a file.
    pub repeats: bool,
    /// Default, in TOML, for the file's template.
    pub default: &'static str,
    /// Description: sentences in plain text. The first sentence is the summary, with `(default: VALUE)` at its end.
    pub doc: &'static str,
    /// True if it is for the program itself, and hidden from help and manual.
    pub is_hidden: bool,
    /// Sets the value; that of an option without one is `true`. The error describes valid values.
    pub set: SetText<S>,
    /// Sets the value instead of `set`, if a value on the command line may be other than UTF-8 text.
    pub set_bytes: Option<SetBytes<S>>,
    /// Returns why the option has no effect beside the other settings, as the end of a sentence: `max_hold is not
    /// longer`.
    pub idle: fn(&S) -> Option<&'static str>,
}

/// Sets a field of an `S` to a text. The error describes valid values.
type SetText<S> = fn(&mut S, &str) -> Result<(), String>;
/// Sets a field of an `S` to bytes. The error describes valid values.
type SetBytes<S> = fn(&mut S, &[u8]) -> Result<(), String>;

/// Table that a configuration file may contain any number of times, such as `[[members.pool]]`; each sets fields of an
/// `S`.
pub struct TableOpt<S> {
    /// Documentation of the table.
    pub about: TableDoc,
    /// Applies one such table.
    pub add: fn(&mut S, &Table) -> Result<(), Misplaced>,
}

/// Documentation of a table of the configuration file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableDoc {
    /// Name, with dots between sections.
    pub key: &'static str,
    /// Purpose, one sentence for the file's template.
    pub doc_short: &'static str,
    /// Settings in the language of manual pages, to follow that sentence. Lines may be indented.
    pub doc_long: &'static str,
    /// Lines of an example, for the template.
    pub example: &'static str,
}

/// Table of a configuration file, parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// Position of its start, in bytes.
    pub at: usize,
    /// Entries in the order of the file.
    pub entries: Vec<TableEntry>,
}

/// Key of a table with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableEntry {
    /// Position of the key, in bytes.
    pub at: usize,
    /// Key.
    pub key: String,
    /// Value.
    pub value: TableValue,
}

/// Value in a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TableValue {
    /// Contents of a string, or the source text of any other scalar.
    Text(String),
    /// Array, each value with its position.
    List(Vec<(usize, TableValue)>),
    /// Inner table.
    Table(Table),
}

/// Fault in a table, with its position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misplaced {
    /// Position in bytes.
    pub at: usize,
    /// Description of the fault, with its key.
    pub what: String,
    /// Position of the first, if it is the second of two that may not be there together.
    pub first: Option<usize>,
}

impl Misplaced {
    /// Returns a fault at a position.
    pub fn new(at: usize, what: impl Into<String>) -> Self {
        Misplaced { at, what: what.into(), first: None }
    }
}

/// Addresses and connection limit of a service, as set by its listening options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// True if the service listens.
    pub is_enabled: bool,
    /// Addresses to listen on; empty for the default, 127.0.0.1 and ::1.
    pub listen: Vec<String>,
    /// Port of addresses without one.
    pub port: u16,
    /// Limit of open connections.
    pub max_connections: u64,
}

/// Default addresses, reachable only from the machine itself.
const LOCALHOST: [&str; 2] = ["127.0.0.1", "::1"];

impl Endpoint {
    /// Adds an address to listen on. The error describes valid values.
    ///
    /// # Errors
    ///
    /// Fails if it is not an address, or is longer than the system allows.
    pub fn listen_on(&mut self, address: &str) -> Result<(), String> {
        // The port may be set later; this checks only that it is an address.
        let parsed = Address::parse(address, 0).ok_or_else(|| {
            Address::wanted(address, "an address (IP, IP:PORT, [IP6]:PORT or unix:PATH, with proxy: before it or not)")
        })?;
        if !parsed.fits() {
            return Err("a path of at most 107 bytes".into());
        }
        self.listen.push(address.into());
        Ok(())
    }

    /// Returns the addresses to listen on; none unless it is enabled.
    pub fn addresses(&self) -> Vec<Address> {
        if !self.is_enabled {
            return Vec::new();
        }
        let texts: Vec<&str> = self.listen.iter().map(String::as_str).collect();
        let texts = if self.is_default() { &LOCALHOST[..] } else { &texts };
        let read = |text: &&str| Address::parse(text, self.port).expect("only addresses get into the list");
        texts.iter().map(read).collect()
    }

    /// Returns true if no address was set.
    pub fn is_default(&self) -> bool {
        self.listen.is_empty()
    }

    /// Returns why the port has no effect.
    pub fn idle_port(&self) -> Option<&'static str> {
        let has_port = |text: &String| Address::parse(text, 1) == Address::parse(text, 2);
        (!self.is_default() && self.listen.iter().all(has_port)).then_some("no address needs it")
    }
}

/// Listening options of a service, with a prefix that is also the name of its section in the file: whether it is
/// enabled, its addresses, its port, and its connection limit.
#[macro_export]
macro_rules! listening {
    ($prefix:literal, $plural:literal, port $port:literal, $doc:literal) => {
        &[
            $crate::options::Opt::<$crate::options::Endpoint>::new(concat!("--", $prefix), $doc, |endpoint, value| {
                $crate::options::assign(&mut endpoint.is_enabled, $crate::options::flag(value))
            })
            .in_file(concat!($prefix, ".enable"), "false"),
            $crate::options::Opt::new(
                concat!("--", $prefix, "-listen ADDRESS"),
                concat!(
                    "Listen on this address for ",
                    $plural,
                    ", as with --listen; repeatable (default: 127.0.0.1 and [::1])."
                ),
                $crate::options::Endpoint::listen_on,
            )
            .in_file(concat!($prefix, ".listen"), r#"["127.0.0.1", "::1"]"#)
            .repeated(),
            $crate::options::Opt::new(
                concat!("--", $prefix, "-port PORT"),
                concat!("Port of ", $prefix, " addresses without one (default: ", $port, ")."),
                $crate::options::set_port,
            )
            .in_file(concat!($prefix, ".port"), stringify!($port))
            .idle_if($crate::options::Endpoint::idle_port),
            $crate::options::Opt::new(
                concat!("--", $prefix, "-max-connections N"),
                concat!(
                    "Maximum number of ",
                    $prefix,
                    " connections; further ones are closed at once; 0: as many as the system allows (default: 0)."
                ),
                $crate::options::set_max_connections,
            )
            .in_file(concat!($prefix, ".max_connections"), "0"),
        ]
    };
}

pub use listening;

/// Sets the port of an endpoint.
///
/// # Errors
///
/// Fails if it is not a port.
pub fn set_port(endpoint: &mut Endpoint, value: &str) -> Result<(), String> {
    assign(&mut endpoint.port, number(value, 0..=u16::MAX))
}

/// Sets the connection limit of an endpoint; 0 for no limit.
///
/// # Errors
///
/// Fails if it is not a number.
pub fn set_max_connections(endpoint: &mut Endpoint, value: &str) -> Result<(), String> {
    let most = number(value, 0..=u64::MAX);
    assign(&mut endpoint.max_connections, most.map(|most| if most == 0 { u64::MAX } else { most }))
}

/// Returns the name with the least edit distance, if that is at most 1, 2 from 5 letters on, and 3 from 8 on. Letters of
/// sections do not count: those of `jobs.port` are four.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = match name.rsplit('.').next().unwrap_or(name).chars().count() {
        0..=1 => 0,
        2..=4 => 1,
        5..=7 => 2,
        _ => 3,
    };
    let name: Vec<char> = name.chars().take(LONGEST_NAME).collect();
    let distances = known.into_iter().map(|other| (distance(&name, other), other));
    distances.filter(|(distance, _)| *distance <= most).min_by_key(|(distance, _)| *distance).map(|(_, other)| other)
}

/// Length at which names are cut for the comparison, more than any known name has.
const LONGEST_NAME: usize = 64;

/// Returns the edit distance: the number of letters to add, remove or replace, and of neighbours to swap, to turn one
/// name into the other.
fn distance(one: &[char], other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut above: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=one.len()).collect();
    for (n, letter) in other.iter().enumerate() {
        let mut next = vec![n + 1];
        for (at, own) in one.iter().enumerate() {
            let changed = row[at] + usize::from(own != letter);
            let mut least = changed.min(row[at + 1] + 1).min(next[at] + 1);
            if n > 0 && at > 0 && one[at - 1] == *letter && *own == other[n - 1] {
                least = least.min(above[at - 1] + 1);
            }
            next.push(least);
        }
        above = std::mem::replace(&mut row, next);
    }
    row[one.len()]
}

/// Returns the suffix of a sentence about an unknown name: a suggestion of the nearest known one, if any.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map_or(String::new(), |near| format!("; did you mean {near}?"))
}

/// Assigns a value if it is valid.
///
/// # Errors
///
/// The error in `value`.
pub fn assign<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

/// Parses the value of an option that has none on the command line.
///
/// # Errors
///
/// Fails if the text is not `true` or `false`.
pub fn flag(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "true or false".into())
}

/// Parses a number in a range.
///
/// # Errors
///
/// Fails if the text is not such a number.
pub fn number<T: FromStr + PartialOrd + Display>(text: &str, range: RangeInclusive<T>) -> Result<T, String> {
    let in_range = text.parse().ok().filter(|n| range.contains(n));
    in_range.ok_or_else(|| format!("a number from {} to {}", range.start(), range.end()))
}

/// Parses a duration in seconds with optional decimals.
///
/// # Errors
///
/// Fails if the text is not a number of seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    parse_seconds(text.as_bytes()).map(Duration::from).ok_or_else(|| {
        let units = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)];
        let meant = units.into_iter().find_map(|(unit, seconds)| {
            text.strip_suffix(unit)?.trim_end().parse::<u32>().ok().map(|number| u64::from(number) * seconds)
        });
        meant.map_or("a number of seconds".into(), |seconds| format!("a number of seconds; use {seconds}"))
    })
}

/// Parses a duration in seconds like [`seconds`], from `least` on; above 0 if that is zero.
///
/// # Errors
///
/// Fails if the text is not such a number of seconds.
pub fn seconds_from(least: Duration, text: &str) -> Result<Duration, String> {
    let time = seconds(text).ok().filter(|time| *time >= least && !time.is_zero());
    time.ok_or_else(|| match least.is_zero() {
        true => "a number of seconds above 0".into(),
        false => format!("a number of seconds from {}", least.as_secs_f64()),
    })
}

/// Parses a span in seconds with optional decimals; 0 for no limit.
///
/// # Errors
///
/// Fails if the text is not a number of seconds.
pub fn seconds_or_forever(text: &str) -> Result<Span, String> {
    seconds(text).map(|time| if time.is_zero() { Span::FOREVER } else { time.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_suggest_only_close_ones() {
        let known = ["name", "jobs", "jobs.name", "jobs.enable", "jobs.port", "counter.port", "kick"];
        assert_eq!(["oops", "jobs.nope", "x"].map(|name| nearest(name, known)), [None; 3]);
        let near = ["nmae", "kcik", "jobs.prot", "conter.port"].map(|name| nearest(name, known));
        assert_eq!(near, ["name", "kick", "jobs.port", "counter.port"].map(Some));
    }
}
