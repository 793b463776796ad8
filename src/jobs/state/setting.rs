//! A setting, as commands, the configuration file, stores and handovers have it, and the tables of settings.

use poolcounter_core::{Time, TimerId, words};
use poolcounter_protocol::jobs::name::{Pattern, PatternMap};
use poolcounter_protocol::jobs::values::{Backoff, Limit, Scope};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

words! {
    /// Kind of a setting: the table that it is in. Its words are stored.
    #[derive(PartialOrd, Ord, Serialize, Deserialize)]
    pub enum SettingKind, word {
        /// Limit of the reserved jobs of tubes.
        Limit = "limit",
        /// The same of a group.
        GroupLimit = "group-limit",
        /// Limit of the jobs of tubes that start in a period.
        Rate = "rate",
        /// The same of a group.
        GroupRate = "group-rate",
        /// Attempts and delays of failed jobs.
        Retry = "retry",
        /// Tube of jobs after their last attempt.
        DeadLetter = "dead-letter",
        /// Pause.
        Pause = "pause",
        /// Periodic job.
        Schedule = "schedule",
        /// Last applied setting of the configuration file, by its name.
        File = "file",
    }
}

impl SettingKind {
    /// Returns whether a setting of this kind can have this name.
    pub fn can_be_of(self, name: &[u8]) -> bool {
        use SettingKind::{DeadLetter, Limit, Pause, Rate, Retry};
        !matches!(self, Limit | Rate | Retry | DeadLetter | Pause) || Pattern::parse(name).is_some()
    }

    /// Returns the kind of this word.
    pub fn of_word(word: &str) -> Option<SettingKind> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// Returns the kind of a limit.
    pub fn of_limit(limit: Limit) -> SettingKind {
        match (limit.scope, limit.per) {
            (Scope::Each | Scope::All, None) => SettingKind::Limit,
            (Scope::Each | Scope::All, Some(_)) => SettingKind::Rate,
            (Scope::Group | Scope::Ordered, None) => SettingKind::GroupLimit,
            (Scope::Group | Scope::Ordered, Some(_)) => SettingKind::GroupRate,
        }
    }

    /// Returns whether it is of groups, not of tubes.
    pub fn is_of_group(self) -> bool {
        matches!(self, SettingKind::GroupLimit | SettingKind::GroupRate)
    }

    /// Returns the command that sets it.
    pub fn command(self) -> &'static str {
        match self {
            SettingKind::GroupLimit | SettingKind::Rate | SettingKind::GroupRate => SettingKind::Limit.word(),
            SettingKind::Schedule => "schedule-put",
            kind => kind.word(),
        }
    }
}

/// A setting, or its removal.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Setting {
    /// Kind.
    pub kind: SettingKind,
    /// Its pattern, its group, or its name.
    pub of: Box<[u8]>,
    /// Its value; None if it is removed.
    pub value: Option<Value>,
}

/// Value of a setting.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Value {
    /// Limit or rate.
    Limit(Limit),
    /// Attempts and delays.
    Retry(Backoff),
    /// Pause.
    Pause(Paused),
    /// Tube of dead letters, or a text of the configuration file. Of a periodic job, its line behind the name, a line
    /// feed and its body; before that its [`Progress`], unless it is one of the configuration file.
    Text(Box<[u8]>),
}

/// Pause of a tube, by the setting that applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Paused {
    /// End.
    pub until: Time,
    /// Length.
    pub seconds: u32,
    /// True if it is of one tube, and ends with that.
    pub ends_with_tube: bool,
}

impl Setting {
    /// Returns its name, which is unique in a configuration file.
    pub fn name(&self) -> Box<[u8]> {
        [self.kind.word().as_bytes(), b" ", &self.of].concat().into()
    }

    /// Returns the removal of the setting with this name.
    pub(super) fn absence(name: &[u8]) -> Option<Setting> {
        let space = name.iter().position(|byte| *byte == b' ')?;
        let kind = SettingKind::of_word(std::str::from_utf8(&name[..space]).ok()?)?;
        let of = &name[space + 1..];
        kind.can_be_of(of).then(|| Setting { kind, of: of.into(), value: None })
    }
}

impl Value {
    /// Returns the limit.
    pub fn limit(&self) -> Option<Limit> {
        if let Value::Limit(limit) = self { Some(*limit) } else { None }
    }

    /// Returns the value as text. `wall` returns the time of day of a moment.
    pub fn text(&self, wall: impl Fn(Time) -> i64) -> Vec<u8> {
        match self {
            Value::Limit(limit) => limit.to_string().into(),
            Value::Retry(Backoff { attempts, first, factor, max }) => {
                format!("{attempts} {first} {factor} {max}").into()
            }
            Value::Pause(Paused { until, seconds, ends_with_tube }) => {
                format!("{} {seconds}{}", wall(*until), if *ends_with_tube { " tube" } else { "" }).into()
            }
            Value::Text(text) => text.to_vec(),
        }
    }

    /// Reads a text that [`Value::text`] has written; None if it is malformed. `moment` returns the moment of a time of
    /// day.
    pub fn read(kind: SettingKind, text: &[u8], moment: impl Fn(i64) -> Time) -> Option<Value> {
        let words = || std::str::from_utf8(text).ok().map(|text| text.split(' ').collect::<Vec<_>>());
        Some(match kind {
            SettingKind::Limit | SettingKind::GroupLimit | SettingKind::Rate | SettingKind::GroupRate => {
                let limit = Limit::read(&words()?).filter(|limit| SettingKind::of_limit(*limit) == kind);
                Value::Limit(limit?)
            }
            SettingKind::Retry => match words()?[..] {
                [attempts, first, factor, max] => {
                    let (attempts, first) = (attempts.parse().ok()?, first.parse().ok()?);
                    let backoff = Backoff { attempts, first, factor: factor.parse().ok()?, max: max.parse().ok()? };
                    Value::Retry(backoff)
                }
                _ => return None,
            },
            SettingKind::Pause => match words()?[..] {
                [until, seconds, ref rest @ ..] if matches!(rest, [] | ["tube"]) => {
                    let (until, seconds) = (moment(until.parse().ok()?), seconds.parse().ok()?);
                    Value::Pause(Paused { until, seconds, ends_with_tube: !rest.is_empty() })
                }
                _ => return None,
            },
            SettingKind::Schedule => {
                let (_, definition) = Progress::split(text)?;
                definition.contains(&b'\n').then(|| Value::Text(text.into()))?
            }
            SettingKind::DeadLetter | SettingKind::File => Value::Text(text.into()),
        })
    }
}

/// Progress of a periodic job, by the time of day in microseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Times up to this one are over.
    pub from: i64,
    /// Time for which a job was put last.
    pub last: Option<i64>,
    /// Number of times at which none was put.
    pub skipped: u64,
}

impl Progress {
    /// Returns the value of a setting: this progress, and the definition behind it.
    pub fn with(&self, definition: &[u8]) -> Value {
        let last = self.last.map_or("-".into(), |last| last.to_string());
        let progress = format!("{} {last} {} ", self.from, self.skipped);
        Value::Text([progress.as_bytes(), definition].concat().into())
    }

    /// Returns the progress in the value of a setting, and the definition behind it.
    pub fn split(value: &[u8]) -> Option<(Progress, &[u8])> {
        let mut words = value.splitn(4, |byte| *byte == b' ');
        let mut word = || std::str::from_utf8(words.next()?).ok();
        let (from, last, skipped) = (word()?.parse().ok()?, word()?, word()?.parse().ok()?);
        let last = if last == "-" { None } else { Some(last.parse().ok()?) };
        Some((Progress { from, last, skipped }, words.next()?))
    }
}

/// All settings but periodic jobs.
#[derive(Default)]
pub(super) struct Settings {
    pub tables: [PatternMap<Value>; SettingKind::ALL.len()],
    /// True once the present configuration file was compared with these.
    pub has_file: bool,
    /// Pauses by their ends.
    pub ends: BTreeSet<(Time, Box<[u8]>)>,
    pub pause_timer: Option<TimerId>,
}

impl Settings {
    /// Returns the value of exactly this pattern, group or name.
    pub fn of(&self, kind: SettingKind, of: &[u8]) -> Option<&Value> {
        self.tables[kind as usize].of(of)
    }

    /// Returns the patterns that match a tube with their values, the most literal first.
    pub fn matching<'s>(&'s self, kind: SettingKind, tube: &'s [u8]) -> impl Iterator<Item = (&'s [u8], &'s Value)> {
        self.tables[kind as usize].entries(tube)
    }

    /// Returns the backoff that is set for a tube; None without one.
    pub fn backoff_of(&self, tube: &[u8]) -> Option<Backoff> {
        let (_, Value::Retry(backoff)) = self.matching(SettingKind::Retry, tube).next()? else { return None };
        Some(*backoff)
    }

    pub fn dead_letter_of(&self, tube: &[u8]) -> Option<Box<[u8]>> {
        let (_, Value::Text(name)) = self.matching(SettingKind::DeadLetter, tube).next()? else { return None };
        Some(name.clone())
    }

    pub fn pause_of(&self, tube: &[u8]) -> Option<Paused> {
        let (_, Value::Pause(pause)) = self.matching(SettingKind::Pause, tube).next()? else { return None };
        Some(*pause)
    }

    /// Returns a limit of a group: its own, or that of each group.
    pub fn limit_of_group(&self, kind: SettingKind, name: &[u8]) -> Limit {
        let value = self.of(kind, name).or_else(|| self.of(kind, b"*"));
        value.and_then(Value::limit).unwrap_or_default()
    }

    /// Sets or removes a value.
    pub fn put(&mut self, kind: SettingKind, of: &[u8], value: Option<Value>) -> Option<Value> {
        if let Some(Value::Pause(old)) = self.of(kind, of) {
            let until = old.until;
            self.ends.remove(&(until, of.into()));
        }
        if let Some(Value::Pause(new)) = &value {
            self.ends.insert((new.until, of.into()));
        }
        match value {
            Some(value) => self.tables[kind as usize].insert(of, value),
            None => self.tables[kind as usize].remove(of),
        }
    }

    /// Returns every setting by its kind and its pattern, group or name.
    pub fn names(&self) -> impl Iterator<Item = (SettingKind, &[u8])> {
        let tables = SettingKind::ALL.into_iter().zip(&self.tables);
        tables.flat_map(|(kind, table)| table.iter().map(move |(of, _)| (kind, of)))
    }

    /// Compares the pauses with their ends.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self) {
        let pauses = self.tables[SettingKind::Pause as usize].iter();
        let ends = pauses.filter_map(|(pattern, pause)| match pause {
            Value::Pause(pause) => Some((pause.until, pattern.into())),
            _ => None,
        });
        assert_eq!(self.ends, ends.collect(), "each pause is in the order of ends");
        assert_eq!(self.pause_timer.is_some(), !self.ends.is_empty(), "pauses have a timer");
    }
}
