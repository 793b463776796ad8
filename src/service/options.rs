//! Options as rows of a table: what parsing, `--help`, the configuration file and the manual read. It knows no single option.

use poolcounter_core::address::Address;
use poolcounter_core::decimal::parse_seconds;
use poolcounter_core::time::Span;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// One option, which sets something in an `S`.
pub struct Opt<S> {
    /// Its letter, or nothing.
    pub short: &'static str,
    /// Its name.
    pub long: &'static str,
    /// Its name in a configuration file, with dots between sections, or nothing if it cannot stand there.
    pub key: &'static str,
    /// Other names that a configuration file may use for it.
    pub aliases: &'static [&'static str],
    /// What its value is, or nothing for an option without one. In a file such an option is true or false.
    pub hint: &'static str,
    /// Whether it can have several values; an array in a file.
    pub repeats: bool,
    /// What the file's template shows as its value, in TOML: the default, or an example where no value is the same as none.
    pub default: &'static str,
    /// What it does, for `--help` and the file's template: less than a sentence.
    pub doc_short: &'static str,
    /// What it does, for the manual: sentences in mdoc, where leading spaces of lines mean nothing.
    pub doc_long: &'static str,
    /// Whether it is for the program itself: users are not shown it.
    pub is_hidden: bool,
    /// Sets it. The value of an option without one is `true`. The error is what the value should have been.
    pub set: fn(&mut S, &str) -> Result<(), String>,
    /// Sets it instead, where a value on the command line need not be text.
    pub set_bytes: Option<SetBytes<S>>,
}

/// Sets something in an `S` to bytes. The error is what these should have been.
type SetBytes<S> = fn(&mut S, &[u8]) -> Result<(), String>;

/// A table that a configuration file may have any number of, such as `[[members.pool]]`; each sets something in an `S`.
pub struct TableOpt<S> {
    /// What people are told of it.
    pub about: TableDoc,
    /// Sets what one such table says.
    pub add: fn(&mut S, &Table) -> Result<(), Misplaced>,
}

/// What people are told of a table of the configuration file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableDoc {
    /// Its name, with dots between sections.
    pub key: &'static str,
    /// What it is for, for the file's template: a sentence.
    pub doc_short: &'static str,
    /// The lines of one, for the template.
    pub example: &'static str,
}

/// A table of a configuration file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// Where it begins, in bytes.
    pub at: usize,
    /// What stands in it, in order.
    pub entries: Vec<TableEntry>,
}

/// A key of a table with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableEntry {
    /// Where the key stands, in bytes.
    pub at: usize,
    /// The key.
    pub key: String,
    /// Its value.
    pub value: TableValue,
}

/// A value in a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TableValue {
    /// A string as it is meant, or something else as it is written.
    Text(String),
    /// An array, each value with its place.
    List(Vec<(usize, TableValue)>),
    /// A table within.
    Table(Table),
}

/// What is wrong in a table, and where, in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misplaced {
    /// Where it stands.
    pub at: usize,
    /// What is wrong with it, with its key.
    pub what: String,
}

impl Misplaced {
    /// Returns what is wrong at a place.
    pub fn new(at: usize, what: impl Into<String>) -> Self {
        Misplaced { at, what: what.into() }
    }
}

/// Where a service listens, and for how many: what its listening rows set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Whether it listens at all.
    pub is_enabled: bool,
    /// Addresses to listen on; none means on those of the machine itself.
    pub listen: Vec<String>,
    /// The port of addresses that name none.
    pub port: u16,
    /// How many connections it has at a time.
    pub max_connections: u64,
}

/// The addresses of the machine itself, on which the daemon listens unless it is told otherwise.
const LOCALHOST: [&str; 2] = ["127.0.0.1", "::1"];

impl<S> Opt<S> {
    /// What most rows leave out: no letter, no file name, no value, nothing set.
    pub const BLANK: Opt<S> = Opt {
        short: "",
        long: "",
        key: "",
        aliases: &[],
        hint: "",
        repeats: false,
        default: "",
        doc_short: "",
        doc_long: "",
        is_hidden: false,
        set: |_, _| Ok(()),
        set_bytes: None,
    };
    /// The option that every command has. Whoever reads the command line obeys it.
    pub const HELP: Opt<S> = Opt {
        short: "h",
        long: "help",
        doc_short: "print this help and exit",
        doc_long: "Print a summary of the options and exit.",
        ..Opt::BLANK
    };
    /// The other one.
    pub const VERSION: Opt<S> = Opt {
        short: "V",
        long: "version",
        doc_short: "print the version and exit",
        doc_long: "Print the version and exit.",
        ..Opt::BLANK
    };

    /// Returns the same option, without what it sets.
    pub fn describe(&self) -> Opt<()> {
        let Opt { short, long, key, aliases, hint, repeats, default, doc_short, doc_long, is_hidden, .. } = *self;
        Opt { short, long, key, aliases, hint, repeats, default, doc_short, doc_long, is_hidden, ..Opt::BLANK }
    }

    /// Returns whether a configuration file may call it so.
    pub fn is_called(&self, key: &str) -> bool {
        !key.is_empty() && (self.key == key || self.aliases.contains(&key))
    }
}

impl Endpoint {
    /// Has it listen on one more address. The error is what this should have been.
    ///
    /// # Errors
    ///
    /// When it is no address, or longer than the system takes.
    pub fn listen_on(&mut self, address: &str) -> Result<(), String> {
        // Without a port, as that may come later; this only tells whether it is an address at all.
        let parsed = Address::parse(address, 0).ok_or_else(|| {
            Address::wanted(address, "an address (IP, IP:PORT, [IP6]:PORT or unix:PATH, with proxy: before it or not)")
        })?;
        if !parsed.fits() {
            return Err("a path of at most 107 bytes".into());
        }
        self.listen.push(address.into());
        Ok(())
    }

    /// Returns where to listen; nowhere, unless it is enabled.
    pub fn addresses(&self) -> Vec<Address> {
        if !self.is_enabled {
            return Vec::new();
        }
        let texts: Vec<&str> = self.listen.iter().map(String::as_str).collect();
        let texts = if self.is_default() { &LOCALHOST[..] } else { &texts };
        let read = |text: &&str| Address::parse(text, self.port).expect("only addresses get into the list");
        texts.iter().map(read).collect()
    }

    /// Returns whether nothing said where to listen.
    pub fn is_default(&self) -> bool {
        self.listen.is_empty()
    }
}

/// The listening rows of a service whose options have a prefix, and whose settings a section of that name: whether it is
/// served, its addresses, its port, and how many connections it has.
#[macro_export]
macro_rules! listening {
    ($prefix:literal, $plural:literal, port $port:literal, $doc_short:literal, $doc_long:literal) => {
        &[
            $crate::options::Opt {
                long: $prefix,
                key: concat!($prefix, ".enable"),
                default: "false",
                doc_short: $doc_short,
                doc_long: $doc_long,
                set: |endpoint, value| $crate::options::assign(&mut endpoint.is_enabled, $crate::options::flag(value)),
                ..$crate::options::Opt::BLANK
            },
            $crate::options::Opt {
                long: concat!($prefix, "-listen"),
                key: concat!($prefix, ".listen"),
                hint: "ADDRESS",
                doc_short: concat!("listen there for ", $plural, "; repeatable (default: 127.0.0.1 and [::1])"),
                default: r#"["127.0.0.1", "::1"]"#,
                doc_long: concat!(
                    "Listen there for ",
                    $plural,
                    ", as with\n.Fl -listen .\nMay be given several times.\nThe default is the same as there."
                ),
                repeats: true,
                set: $crate::options::Endpoint::listen_on,
                ..$crate::options::Opt::BLANK
            },
            $crate::options::Opt {
                long: concat!($prefix, "-port"),
                key: concat!($prefix, ".port"),
                hint: "PORT",
                doc_short: concat!("the port of ", $prefix, " addresses that name none (default: ", $port, ")"),
                default: stringify!($port),
                doc_long: concat!(
                    "The port of ",
                    $prefix,
                    " addresses that name none.\nThe default is ",
                    $port,
                    "."
                ),
                set: $crate::options::set_port,
                ..$crate::options::Opt::BLANK
            },
            $crate::options::Opt {
                long: concat!($prefix, "-max-connections"),
                key: concat!($prefix, ".max_connections"),
                hint: "N",
                doc_short: concat!($prefix, " connections at a time; 0: as many as the system allows (default: 0)"),
                default: "0",
                doc_long: concat!(
                    "Keep at most\n.Ar n\n",
                    $prefix,
                    " connections and close those beyond that at once.\nWith 0, which is the default, only the system sets a limit."
                ),
                set: $crate::options::set_max_connections,
                ..$crate::options::Opt::BLANK
            },
        ]
    };
}

pub use listening;

/// Sets the port of an endpoint.
///
/// # Errors
///
/// When it is no port.
pub fn set_port(endpoint: &mut Endpoint, value: &str) -> Result<(), String> {
    assign(&mut endpoint.port, number(value, 0..=u16::MAX))
}

/// Sets how many connections an endpoint has; 0 is without limit.
///
/// # Errors
///
/// When it is no number.
pub fn set_max_connections(endpoint: &mut Endpoint, value: &str) -> Result<(), String> {
    let most = number(value, 0..=u64::MAX);
    assign(&mut endpoint.max_connections, most.map(|most| if most == 0 { u64::MAX } else { most }))
}

/// Returns the name at the least edit distance, if that is at most 2, or 3 from 8 letters on, and less than half of the letters.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (name.chars().count() / 2).min(if name.chars().count() < 8 { 2 } else { 3 });
    let name: Vec<char> = name.chars().take(LONGEST_NAME).collect();
    let distances = known.into_iter().map(|other| (distance(&name, other), other));
    distances.filter(|(distance, _)| *distance <= most).min_by_key(|(distance, _)| *distance).map(|(_, other)| other)
}

/// More letters than any known name has.
const LONGEST_NAME: usize = 64;

/// Returns how many letters are to be added, removed or replaced to make one name of the other.
fn distance(one: &[char], other: &str) -> usize {
    let mut row: Vec<usize> = (0..=one.len()).collect();
    for (n, letter) in other.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], n + 1);
        for (at, own) in one.iter().enumerate() {
            let changed = diagonal + usize::from(*own != letter);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[one.len()]
}

/// Returns what is said behind a sentence about an unknown name: which known one is near, if one is.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map_or(String::new(), |near| format!("; did you mean {near}?"))
}

/// Puts a value where it belongs, if it is one.
///
/// # Errors
///
/// When it is none.
pub fn assign<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

/// Returns the value of an option that has none on the command line.
///
/// # Errors
///
/// When the text is not `true` or `false`.
pub fn flag(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "true or false".into())
}

/// Returns a number in a range.
///
/// # Errors
///
/// When the text is none.
pub fn number<T: FromStr + PartialOrd + Display>(text: &str, range: RangeInclusive<T>) -> Result<T, String> {
    let in_range = text.parse().ok().filter(|n| range.contains(n));
    in_range.ok_or_else(|| format!("a number from {} to {}", range.start(), range.end()))
}

/// Returns a length of time, in seconds that may have decimals.
///
/// # Errors
///
/// When the text is none.
pub fn seconds(text: &str) -> Result<Duration, String> {
    parse_seconds(text.as_bytes()).map(Duration::from).ok_or_else(|| "a number of seconds".into())
}

/// Returns a span, in seconds that may have decimals; 0 is without limit.
///
/// # Errors
///
/// When the text is none.
pub fn seconds_or_forever(text: &str) -> Result<Span, String> {
    seconds(text).map(|time| if time.is_zero() { Span::FOREVER } else { time.into() })
}
