//! Settings for people: each with its value as in its command, and with its origin.

use super::limits::RATES;
use super::periodic::line_of;
use super::setting::{Progress, SettingKind, Value};
use super::{Pattern, Scope, State};
use poolcounter_core::{Id as _, Metered as _, Span, Time};

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
        let some = self.setting_names().skip(first).take(most).metered().inspect(|_| seen += 1);
        let some = some.filter(|(kind, name)| of.is_none_or(|pattern| self.applies_to(*kind, name, pattern)));
        let shown = some.filter_map(|(kind, name)| self.shown(kind, name, of, now)).collect();
        (shown, (seen == most).then_some(first + most))
    }

    /// Returns the longest pauses of more than `least`, among the `most` that end last, and their ends.
    pub fn long_pauses(&self, least: Span, most: usize) -> impl Iterator<Item = (&[u8], Time)> {
        let pauses = self.settings.ends.iter().rev().take(most).metered();
        let is_long = move |pattern: &[u8]| match self.settings.of(SettingKind::Pause, pattern) {
            Some(Value::Pause(pause)) => Span::from_secs(u64::from(pause.seconds)) > least,
            _ => false,
        };
        pauses.map(|(until, pattern)| (&**pattern, *until)).filter(move |(pattern, _)| is_long(pattern))
    }

    /// Returns whether a setting applies to a tube, or to some tube of a pattern with `*`.
    fn applies_to(&self, kind: SettingKind, own: &[u8], of: Pattern<'_>) -> bool {
        if kind == SettingKind::Schedule {
            return self.tube_of_schedule(own).is_some_and(|tube| of.matches(tube));
        }
        let is_alike = !kind.is_of_group() && Pattern::parse(own).is_some_and(|own| own.overlaps(of));
        let Some(tube) = of.plain().filter(|_| is_alike) else { return is_alike };
        let values = self.settings.matching(kind, tube.bytes());
        let mut more_literal = values.take_while(|(pattern, _)| *pattern != own).map(|(_, value)| value).peekable();
        // A limit of all tubes applies beside more literal ones, unless one of these exempts the tube.
        let own = self.settings.of(kind, own).and_then(Value::limit);
        let is_beside = own.is_some_and(|limit| limit.scope == Scope::All);
        more_literal.peek().is_none()
            || is_beside && more_literal.all(|value| value.limit().is_some_and(|limit| limit.most > 0))
    }

    /// Returns whether the configuration file has this text for a setting.
    pub(super) fn is_of_file(&self, kind: SettingKind, of: &[u8], text: &[u8]) -> bool {
        let of_file = self.settings.of(SettingKind::File, &[kind.word().as_bytes(), b" ", of].concat());
        matches!(of_file, Some(Value::Text(of_file)) if **of_file == *text)
    }

    /// Returns the time until a rate allows the next start: of all tubes of a pattern together, of the one tube that is
    /// looked at, or of a group.
    fn left_of_rate(&self, kind: SettingKind, own: &[u8], of: Option<Pattern<'_>>, now: Time) -> Option<Span> {
        let limits = &self.limits;
        let gate = match kind {
            SettingKind::Rate => limits.shared[RATES].get(own).copied(),
            SettingKind::GroupRate => Some(limits.groups[limits.find_group(own)?.index()].gate),
            _ => return None,
        };
        let tube = || self.tubes.find(of.and_then(Pattern::plain).map_or(own, |tube| tube.bytes()));
        let rate = match gate {
            Some(gate) => &limits.gates[gate.index()].rate,
            None => &self.tubes[tube()?].rate,
        };
        limits.rates.left(rate.as_ref()?, now)
    }

    fn shown(&self, kind: SettingKind, name: &[u8], of: Option<Pattern<'_>>, now: Time) -> Option<ShownSetting> {
        let (text, left) = match self.setting(kind, name).value.filter(|_| kind != SettingKind::File)? {
            Value::Pause(pause) => (pause.seconds.to_string().into_bytes(), Some(pause.until.since(now))),
            Value::Text(text) if kind == SettingKind::Schedule => (Progress::split(&text)?.1.to_vec(), None),
            value => (value.text(|_| 0), self.left_of_rate(kind, name, of, now)),
        };
        let is_of_file = self.is_of_file(kind, name, &text);
        let value = if kind == SettingKind::Schedule { line_of(&text).to_vec() } else { text };
        let of = if kind.is_of_group() { [b"group:", name].concat() } else { name.to_vec() };
        Some(ShownSetting { command: kind.command(), of, value, left, is_of_file })
    }
}
