//! Settings for people: each with its value as in its command, and with its origin.

use super::limits::Limit;
use super::periodic::line_of;
use super::rates::Rate;
use super::record::{Progress, Setting};
use super::{Pattern, State};
use poolcounter_core::id::Id as _;
use poolcounter_core::meter::Metered as _;
use poolcounter_core::time::{Span, Time};

/// A setting of tubes or of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShownSetting {
    /// Command that sets it.
    pub command: &'static str,
    /// Its pattern, or `group:` and the name of its group.
    pub of: Vec<u8>,
    /// Its value, as behind the pattern in its command.
    pub value: Vec<u8>,
    /// Time until a pause ends, or until a rate that is reached allows the next start.
    pub left: Option<Span>,
    /// True if the configuration file has it.
    pub is_of_file: bool,
}

impl State {
    /// Returns the settings that apply to some tube of a pattern, or all of them, among the `most` from a position on,
    /// and the next position.
    pub fn settings_from(
        &self,
        of: Option<Pattern<'_>>,
        first: usize,
        most: usize,
        now: Time,
    ) -> (Vec<ShownSetting>, Option<usize>) {
        let mut seen = 0;
        let some = self.all_settings().skip(first).take(most).metered().inspect(|_| seen += 1);
        let some = some.filter(|setting| of.is_none_or(|pattern| self.applies_to(setting, pattern)));
        let shown = some.filter_map(|setting| self.shown(setting, of, now)).collect();
        (shown, (seen == most).then_some(first + most))
    }

    /// Returns the longest pauses of more than `least`, among the `most` that end last, and their ends.
    pub fn long_pauses(&self, least: Span, most: usize) -> impl Iterator<Item = (&[u8], Time)> {
        let pauses = self.settings.ends.iter().rev().take(most).metered();
        let is_long = move |pattern: &[u8]| {
            let pause = self.settings.pauses.of(pattern);
            pause.is_some_and(|pause| Span::from_secs(u64::from(pause.seconds)) > least)
        };
        pauses.map(|(until, pattern)| (&**pattern, *until)).filter(move |(pattern, _)| is_long(pattern))
    }

    /// Returns whether a setting applies to a tube, or to some tube of a pattern with `*`.
    fn applies_to(&self, setting: &Setting<'_>, of: Pattern<'_>) -> bool {
        if let Setting::Schedule(name, _) = setting {
            return self.tube_of_schedule(name).is_some_and(|tube| of.matches(tube));
        }
        let own = setting.name().1;
        let is_alike = Pattern::parse(own).is_some_and(|own| own.overlaps(of));
        let is_of_group = matches!(setting, Setting::GroupLimit(..) | Setting::GroupRate(..));
        let Some(tube) = of.plain().filter(|_| is_alike && !is_of_group) else { return is_alike && !is_of_group };
        let tube = tube.bytes();
        let first = match setting {
            Setting::Limit(..) => {
                let more_literal = self.limits.of_tubes.entries(tube).take_while(|(pattern, _)| *pattern != own);
                let limits: Vec<&Limit> = more_literal.map(|(_, limit)| limit).collect();
                let is_all = matches!(self.limits.of_tubes.of(own), Some(Limit::All(..)));
                return limits.is_empty() || is_all && !limits.iter().any(|limit| matches!(limit, Limit::Each(0)));
            }
            Setting::Rate(..) => {
                let all = self.limits.rates.of_tubes.entries(tube);
                let more_literal: Vec<&Rate> =
                    all.take_while(|(pattern, _)| *pattern != own).map(|(_, rate)| rate).collect();
                let is_all = self.limits.rates.of_tubes.of(own).is_some_and(|rate| rate.gate.is_some());
                return more_literal.is_empty() || is_all && more_literal.iter().all(|rate| rate.most > 0);
            }
            Setting::Retry(..) => self.settings.backoffs.entries(tube).next().map(|(pattern, _)| pattern),
            Setting::DeadLetter(..) => self.settings.dead_letters.entries(tube).next().map(|(pattern, _)| pattern),
            _ => self.settings.pauses.entries(tube).next().map(|(pattern, _)| pattern),
        };
        first == Some(own)
    }

    /// Returns whether the configuration file has a setting as it is.
    pub(super) fn is_of_file(&self, setting: &Setting<'_>) -> bool {
        let (kind, name) = setting.name();
        let value = match *setting {
            Setting::Schedule(name, Some((_, definition))) => {
                Setting::Schedule(name, Some((Progress::default(), definition))).value(|_| 0)
            }
            other => other.value(|_| 0),
        };
        let of_file = self.settings.from_file.get(&*[kind.as_bytes(), b" ", name].concat());
        of_file.is_some() && of_file.map(|of_file| &**of_file) == value.as_deref()
    }

    /// Returns the time until the rate of a pattern allows the next start: of all its tubes together, or of the one tube
    /// that is looked at.
    fn left_of_rate(&self, pattern: &[u8], of: Option<Pattern<'_>>, now: Time) -> Option<Span> {
        let rate = self.limits.rates.of_tubes.of(pattern)?;
        let tube = of.and_then(Pattern::plain).map_or(pattern, |tube| tube.bytes());
        let own = || self.tubes[self.tubes.find(tube)?].rate_gate;
        self.rate_left(rate.gate.or_else(own)?, now)
    }

    fn shown(&self, setting: Setting<'_>, of: Option<Pattern<'_>>, now: Time) -> Option<ShownSetting> {
        let (kind, name) = setting.name();
        let (value, left) = match setting {
            Setting::File(..) => return None,
            Setting::Pause(_, pause) | Setting::TubePause(_, pause) => {
                let (until, seconds) = pause?;
                (seconds.to_string().into_bytes(), Some(until.since(now)))
            }
            Setting::Rate(pattern, _) => (setting.value(|_| 0)?, self.left_of_rate(pattern, of, now)),
            Setting::GroupRate(name, _) => {
                let gate = self.limits.find_group(name).map(|group| self.limits.groups[group.index()].gate);
                (setting.value(|_| 0)?, gate.and_then(|gate| self.rate_left(gate, now)))
            }
            Setting::Schedule(_, schedule) => (line_of(schedule?.1).to_vec(), None),
            other => (other.value(|_| 0)?, None),
        };
        let is_of_file = self.is_of_file(&setting);
        let (command, of) = match setting {
            Setting::GroupLimit(..) | Setting::GroupRate(..) => ("limit", [b"group:", name].concat()),
            Setting::Rate(..) => ("limit", name.to_vec()),
            Setting::Schedule(..) => ("schedule-put", name.to_vec()),
            _ => (kind, name.to_vec()),
        };
        Some(ShownSetting { command, of, value, left, is_of_file })
    }
}
