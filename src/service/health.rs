//! Health: conditions under which an operator should act. Each service notes those that hold, about once a second. The [`Board`] turns a
//! condition on when it has held for a while, and ends it when it has not; log, metrics, pages and commands show the board.
//!
//! A service describes each of its conditions once, in a static [`ConditionInfo`], and notes it in [`Observe::look`].
//!
//! [`Observe::look`]: crate::contract::Observe::look

mod board;
mod growth;
mod sweep;

pub use crate::report::shown::grouped;
pub use board::{Board, ConditionOn, ConditionOver, HealthLine};
pub use growth::Growth;
pub use sweep::Sweep;

use crate::peer::{Peers, Traffic};
use crate::report::shown::{duration, path_to, seconds};
use poolcounter_core::text::visible;
use poolcounter_core::time::{Span, Time};
use poolcounter_core::top_keys;
use serde::{Deserialize, Serialize};

/// Most conditions of a service that are kept; others are counted.
pub const MOST_CONDITIONS: usize = 256;
/// Longest name in a sentence, in bytes.
const NAME_BYTES: usize = 80;
/// Longest name in a command, in bytes.
const MOST_TYPED: usize = 255;

/// Settings of conditions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HealthSettings {
    /// Time for which a condition holds before it is on.
    pub after: Span,
    /// Time for which a condition does not hold before it is over.
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

/// Severity of a condition, or of the worst condition of a service.
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
    /// Severity.
    pub level: Level,
    /// The threshold, in one sentence: it holds while the condition is on.
    pub meaning: &'static str,
    /// True when its subject is in a set that operators choose, such as a pool of members: metrics have it as a label. Names that clients
    /// make without bound are no labels.
    pub has_label: bool,
}

impl ConditionInfo {
    /// Returns the description of a critical condition.
    pub const fn critical(name: &'static str, meaning: &'static str) -> Self {
        ConditionInfo { name, level: Level::Critical, meaning, has_label: false }
    }

    /// Returns the description of a condition that warns.
    pub const fn warning(name: &'static str, meaning: &'static str) -> Self {
        ConditionInfo { name, level: Level::Warning, meaning, has_label: false }
    }

    /// Returns the same with a label for its subject.
    pub const fn labelled(self) -> Self {
        ConditionInfo { has_label: true, ..self }
    }
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

impl Condition {
    /// Returns a condition of a whole service.
    pub fn of_service(info: &'static ConditionInfo, sentence: String) -> Self {
        let (subject, command) = (Vec::new(), String::new());
        Condition { info, subject, sentence, link: "/".into(), command, waiting: 0 }
    }

    /// Returns a condition of a thing, which has a page below `path`.
    pub fn about(info: &'static ConditionInfo, path: &str, subject: &[u8], sentence: String) -> Self {
        let subject = top_keys::truncated(subject);
        let link = path_to(path, &visible(subject, usize::MAX));
        Condition { subject: subject.into(), link, ..Condition::of_service(info, sentence) }
    }

    /// Returns the same with a command that helps, if it can be typed.
    pub fn helped_by(self, command: Option<String>) -> Self {
        Condition { command: command.unwrap_or_default(), ..self }
    }
}

/// One look at a service.
pub struct Look<'a> {
    /// The time of it.
    pub now: Time,
    /// Addresses of clients.
    pub peers: &'a dyn Peers,
    /// Traffic of the connections of the service.
    pub traffic: &'a Traffic,
    /// The sentence where no condition is on.
    pub standing: String,
    /// Set when time alone may bring a condition: the service is looked at again, although nobody calls it.
    pub is_moving: bool,
    conditions: Vec<Condition>,
    /// Number of conditions beyond those.
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

    /// Notes so many conditions that were not kept.
    fn note_more(&mut self, more: usize) {
        self.more += more;
    }
}

/// Returns a name of clients as it stands in a sentence.
pub fn name_of(name: &[u8]) -> String {
    visible(name, NAME_BYTES)
}

/// Returns a name as a shell takes it for one word; `None` if it cannot be typed.
pub fn quoted(name: &[u8]) -> Option<String> {
    let text = str::from_utf8(name).ok().filter(|text| visible(name, MOST_TYPED) == *text && !text.starts_with('-'))?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '/' | '_' | '-' | '.' | ',' | '@' | '+');
    let is_word = !text.is_empty() && text.chars().all(is_plain);
    Some(if is_word { text.into() } else { format!("'{}'", text.replace('\'', r"'\''")) })
}

/// Returns a span in words: `2.5 s`, `12 min 3 s`.
pub fn in_words(span: Span) -> String {
    duration(seconds(span))
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
    fn rates_are_in_words() {
        let minute = Span::from_secs(60);
        assert_eq!([0, 12, 600, 1_200_000].map(|n| per_second(n, minute)), ["0/s", "0.2/s", "10/s", "20,000/s"]);
    }

    #[test]
    fn commands_have_names_that_can_be_typed() {
        let words = [&b"a:b/c"[..], b"it's *", b"\xff", b"a\nb", b"-x", &[b'x'; 300]].map(quoted);
        assert_eq!(words, [Some("a:b/c".into()), Some(r"'it'\''s *'".into()), None, None, None, None]);
    }

    #[test]
    fn a_condition_leads_to_its_page() {
        static FULL: ConditionInfo = ConditionInfo::critical("full", "It is full.");
        let condition = Condition::about(&FULL, "/pools/key/", b"a:b c\n\xff.j", String::new());
        assert_eq!(condition.link, "/pools/key/a%3Ab%20c%5Cu%7Ba%7D%5Cxff%2Ej");
    }
}
