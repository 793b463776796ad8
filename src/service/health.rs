//! Health: conditions under which an operator should act. Each service notes those that hold, about once a second. The [`Board`] turns a
//! condition on when it has held for a while, and ends it when it has not; log, metrics, pages and commands show the board.
//!
//! A service describes each of its conditions once, in a static [`ConditionInfo`], and notes it in [`Observe::look`].
//!
//! [`Observe::look`]: crate::contract::Observe::look

mod board;
mod growth;
mod sweep;

pub use board::{Board, ConditionOn, HealthLine};
pub use growth::Growth;
pub use sweep::Sweep;

use crate::peer::{Peers, Traffic};
use poolcounter_core::text::visible;
use poolcounter_core::time::{Span, Time};
use serde::{Deserialize, Serialize};

/// Most conditions of a service that are kept; others are counted.
pub const MOST_CONDITIONS: usize = 256;
/// Longest name in a sentence, in bytes.
const NAME_BYTES: usize = 80;

/// Settings of conditions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HealthSettings {
    /// How long a condition holds before it is on.
    pub after: Span,
    /// How long a condition does not hold before it is over.
    pub over: Span,
    /// Time from one look to the next, at least. [`Span::FOREVER`]: none is taken.
    pub interval: Span,
    /// Share of the time, in percent, for which the daemon's thread may be busy.
    pub busy: u64,
}

impl Default for HealthSettings {
    fn default() -> Self {
        let [after, over, interval] = [10, 60, 1].map(Span::from_secs);
        HealthSettings { after, over, interval, busy: 80 }
    }
}

/// How bad a condition is, or the worst condition of a service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// No condition is on.
    #[default]
    Ok,
    /// Something should be looked at today.
    Warning,
    /// Something stands still, or is refused.
    Critical,
}

impl Level {
    /// Returns the word for it.
    pub fn word(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Critical => "critical",
        }
    }
}

/// Static description of a condition.
#[derive(Debug)]
pub struct ConditionInfo {
    /// Name in metrics and alert rules, such as `no runner`.
    pub name: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What holds while it is on, with its threshold: one sentence.
    pub meaning: &'static str,
    /// True when its subject is in a set that operators choose, such as a pool of members: metrics have it as a label. Names that clients
    /// make without bound are no labels.
    pub has_label: bool,
}

/// A condition that holds.
#[derive(Clone, Debug)]
pub struct Condition {
    /// Its description.
    pub info: &'static ConditionInfo,
    /// The thing that it is about: a key, a pool; empty if it is about the service.
    pub subject: Vec<u8>,
    /// The cause in one sentence, without a full stop.
    pub sentence: String,
    /// Path of the page about it.
    pub link: String,
    /// Command that helps, without the name of the program; empty if there is none.
    pub command: String,
    /// Number of requests that wait because of it: the worst of several has the most.
    pub waiting: u64,
}

/// One look at a service.
pub struct Look<'a> {
    /// The time of it.
    pub now: Time,
    /// Addresses of clients.
    pub peers: &'a dyn Peers,
    /// What happened to the connections of the service.
    pub traffic: &'a Traffic,
    /// The sentence where no condition is on.
    pub standing: String,
    /// Set when time alone may bring a condition: the service is looked at again, although nobody calls it.
    pub is_moving: bool,
    conditions: Vec<Condition>,
    more: usize,
}

impl<'a> Look<'a> {
    /// Returns a look that has found nothing yet.
    pub fn new(now: Time, peers: &'a dyn Peers, traffic: &'a Traffic) -> Self {
        let (conditions, standing) = (Vec::new(), String::new());
        Look { now, peers, traffic, standing, is_moving: false, conditions, more: 0 }
    }

    /// Notes a condition that holds.
    pub fn note(&mut self, condition: Condition) {
        if self.conditions.len() < MOST_CONDITIONS {
            self.conditions.push(condition);
        } else {
            self.more += 1;
        }
    }
}

/// Returns a name of clients as it stands in a sentence.
pub fn name_of(name: &[u8]) -> String {
    visible(name, NAME_BYTES)
}

/// Returns a name of clients as a part of a link: what is no letter, digit, `-` or `_` is escaped.
pub fn path_of(below: &str, name: &[u8]) -> String {
    let mut path = String::from(below);
    for byte in visible(name, usize::MAX).bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'_' => path.push(char::from(byte)),
            byte => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

/// Returns a text as a shell takes it for one word.
pub fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '/' | '_' | '-' | '.' | ',' | '@' | '+');
    if text.chars().all(is_plain) { text.into() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Returns a span in words, as pages have it: `4 s`, `12 min 3 s`, `2 h 5 min`.
pub fn in_words(span: Span) -> String {
    let seconds = span.as_micros() / 1_000_000;
    let pair = |large: u64, name: &str, small: u64, smaller: &str| match small {
        0 => format!("{large} {name}"),
        small => format!("{large} {name} {small} {smaller}"),
    };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => pair(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => pair(seconds / 3_600, "h", seconds / 60 % 60, "min"),
        _ => pair(seconds / 86_400, "d", seconds / 3_600 % 24, "h"),
    }
}

/// Returns a number with commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns how much of something there is in a second, as pages have it: `284/s`, `0.2/s`.
pub fn per_second(growth: u64, within: Span) -> String {
    let rate = rate(growth, within);
    match rate {
        0.0 => "0/s".into(),
        ..10.0 => format!("{rate:.1}/s"),
        _ => format!("{}/s", grouped(rate.round() as u64)),
    }
}

/// Returns how much of something there is in a second; in the first second as much as there is.
pub fn rate(growth: u64, within: Span) -> f64 {
    growth as f64 / (within.as_micros() as f64 / 1e6).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_in_words() {
        let spans = [0, 4_900_000, 60_000_000, 723_000_000, 7_500_000_000, 180_000_000_000].map(Span::from_micros);
        assert_eq!(spans.map(in_words), ["0 s", "4 s", "1 min", "12 min 3 s", "2 h 5 min", "2 d 2 h"]);
    }

    #[test]
    fn rates_are_in_words() {
        let minute = Span::from_secs(60);
        assert_eq!([0, 12, 600, 1_200_000].map(|n| per_second(n, minute)), ["0/s", "0.2/s", "10/s", "20,000/s"]);
    }

    #[test]
    fn names_are_safe_in_links() {
        assert_eq!(path_of("/pools/key/", b"a:b c\n\xff.j"), "/pools/key/a%3Ab%20c%5Cu%7Ba%7D%5Cxff%2Ej");
    }
}
