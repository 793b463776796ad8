//! Health: conditions under which an operator should act. Each service reports its present conditions about once a
//! second. The [`Board`] turns a condition on after it has held for a while, and off after it has not; log, metrics,
//! pages and commands show the board.
//!
//! A service describes each condition once, in a static [`ConditionInfo`], and reports it in `Observe::look`.

mod board;
mod growth;
mod sweep;

pub use crate::shown::grouped;
pub use board::{Board, ConditionOn, ConditionOver, HealthLine};
pub use growth::Growth;
pub use sweep::Sweep;

use crate::peer::{Peers, Traffic};
use crate::shown::{duration, path_to, seconds};
use poolcounter_core::text::{shell_word, visible};
use poolcounter_core::{Span, Time, top_keys, words};
use serde::{Deserialize, Serialize};

/// Limit of the conditions of a service that are kept; further conditions are only counted.
pub const MOST_CONDITIONS: usize = 256;
/// Badness of a condition that stops a whole service.
pub const TOTAL: f64 = 1e9;
/// Longest name in a sentence, in bytes.
const NAME_BYTES: usize = 80;
/// Longest name in a command, in bytes.
const MOST_TYPED: usize = 255;

/// Settings of conditions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HealthSettings {
    /// Time for which a condition must hold before it is on.
    pub after: Span,
    /// Time for which a condition must not hold before it is over.
    pub over: Span,
    /// Minimum time between two looks. [`Span::FOREVER`]: no looks.
    pub interval: Span,
    /// Limit of the busy time of the daemon's thread, in percent.
    pub busy: u64,
}

impl Default for HealthSettings {
    fn default() -> Self {
        let [after, over, interval] = [5, 60, 1].map(Span::from_secs);
        HealthSettings { after, over, interval, busy: 80 }
    }
}

words! {
    /// Severity of a condition, or of the worst condition of a service. The words are those in the log and in JSON.
    #[derive(PartialOrd, Ord, Default, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Level, word {
        /// No condition is on.
        #[default]
        Ok = "ok",
        /// Something needs attention today.
        Warning = "warning",
        /// Something is blocked or refused.
        Critical = "critical",
    }
}

/// Declares the conditions of a service, and the list of all.
#[macro_export]
macro_rules! conditions {
    ($(#[$about:meta])* $vis:vis static $all:ident; $($name:ident = $level:ident $word:literal $($labelled:ident)?, $meaning:literal;)*) => {
        $(static $name: $crate::ConditionInfo = $crate::ConditionInfo::$level($word, $meaning)$(.$labelled())?;)*
        $(#[$about])*
        $vis static $all: &[&$crate::ConditionInfo] = &[$(&$name),*];
    };
}

/// Static description of a condition.
#[derive(Debug)]
pub struct ConditionInfo {
    /// Name in metrics and alert rules, such as `no runner`.
    pub name: &'static str,
    /// Severity.
    pub level: Level,
    /// Threshold, as a sentence that is true while the condition is on.
    pub meaning: &'static str,
    /// True if its subjects are chosen by operators, such as pools of members: metrics have them as labels. Names made
    /// by clients are unbounded, and so not used as labels.
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

/// Condition that holds.
#[derive(Clone, Debug)]
pub struct Condition {
    /// Its description.
    pub info: &'static ConditionInfo,
    /// Subject, such as a key or a pool; empty if it concerns the whole service.
    pub subject: Vec<u8>,
    /// The cause in one sentence, without a full stop.
    pub sentence: String,
    /// Path of the page about it.
    pub link: String,
    /// Command that helps, without the name of the program; empty if there is none.
    pub command: String,
    /// Measured value as a multiple of its limit, for the order within a level; 1 without a limit.
    pub badness: f64,
}

impl Condition {
    /// Returns a condition of a whole service, whose tab of the status page is at `path`.
    pub fn of_service(info: &'static ConditionInfo, path: &str, sentence: String) -> Self {
        let (subject, command) = (Vec::new(), String::new());
        Condition { info, subject, sentence, link: path.into(), command, badness: 1.0 }
    }

    /// Returns a condition about a thing with a page below `path`.
    pub fn about(info: &'static ConditionInfo, path: &str, subject: &[u8], sentence: String) -> Self {
        let subject = top_keys::truncated(subject);
        let link = path_to(path, &visible(subject, usize::MAX));
        Condition { subject: subject.into(), link, ..Condition::of_service(info, "", sentence) }
    }

    /// Returns the same with a command that helps, if it can be typed.
    pub fn helped_by(self, command: Option<String>) -> Self {
        Condition { command: command.unwrap_or_default(), ..self }
    }

    /// Returns the same with its badness, for a value and its limit. A limit of zero is none.
    pub fn measured(self, value: f64, limit: f64) -> Self {
        Condition { badness: if limit > 0.0 { value / limit } else { 1.0 }, ..self }
    }

    /// Returns the same with its badness, for a time and its limit.
    pub fn lasting(self, time: Span, limit: Span) -> Self {
        self.measured(time.as_micros() as f64, limit.as_micros() as f64)
    }
}

/// Look at a service: collects its conditions.
pub struct Look<'a> {
    /// Time of the look.
    pub now: Time,
    /// Addresses of clients.
    pub peers: &'a dyn Peers,
    /// Traffic of the service's connections.
    pub traffic: &'a Traffic,
    /// Sentence about the service if no condition is on.
    pub standing: String,
    /// Set if time alone may cause a condition: the service is looked at again even without calls.
    pub is_moving: bool,
    conditions: Vec<Condition>,
    /// Number of conditions beyond the limit.
    more: usize,
}

impl<'a> Look<'a> {
    /// Returns a look without conditions.
    pub fn new(now: Time, peers: &'a dyn Peers, traffic: &'a Traffic) -> Self {
        let (conditions, standing) = (Vec::new(), String::new());
        Look { now, peers, traffic, standing, is_moving: false, conditions, more: 0 }
    }

    /// Reports a condition that holds.
    pub fn note(&mut self, condition: Condition) {
        if self.conditions.len() < MOST_CONDITIONS {
            self.conditions.push(condition);
        } else {
            self.more += 1;
        }
    }
}

/// Returns a name given by clients in visible form, for a sentence.
pub fn name_of(name: &[u8]) -> String {
    visible(name, NAME_BYTES)
}

/// Returns a name quoted as one word of a shell; `None` if it cannot be typed.
pub fn quoted(name: &[u8]) -> Option<String> {
    let can_be_typed = visible(name, MOST_TYPED).as_bytes() == name && !name.starts_with(b"-");
    can_be_typed.then(|| String::from_utf8(shell_word(name)).ok())?
}

/// Returns a span as text: `2.5 s`, `12 min 3 s`.
pub fn in_words(span: Span) -> String {
    duration(seconds(span))
}

/// Returns a rate per second as text, as pages show it: `284/s`, `0.2/s`.
pub fn per_second(growth: u64, within: Span) -> String {
    let rate = rate(growth, within);
    match rate {
        0.0 => "0/s".into(),
        ..10.0 => format!("{rate:.1}/s"),
        _ => format!("{}/s", grouped(rate.round() as u64)),
    }
}

/// Returns a rate per second; a time below one second counts as one.
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
    fn condition_leads_to_its_page() {
        static FULL: ConditionInfo = ConditionInfo::critical("full", "It is full.");
        let condition = Condition::about(&FULL, "/pools/key/", b"a:b c\n\xff.j", String::new());
        assert_eq!(condition.link, "/pools/key/a%3Ab%20c%5Cu%7Ba%7D%5Cxff%2Ej");
    }
}
