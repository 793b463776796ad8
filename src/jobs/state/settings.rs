//! Settings of patterns of tubes: limits, backoffs, dead-letter tubes and pauses. They outlive their tubes.

use super::background::{TICK, Work, keep_timer_at};
use super::commits::{Change, SettingKind};
use super::ids::{GateId, TubeId};
use super::limits::{Gate, Limit};
use super::record::Setting;
use super::tube::Paused;
use super::{Backoff, LimitOf, Pattern, Reply, State, Step, Timer, TubeName};
use crate::stats::Jobs as Stat;
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::{TimerId, Timers};
use poolcounter_protocol::jobs::name::PatternMap;
use std::collections::{BTreeMap, BTreeSet};

/// Most pauses that end in one step.
const MOST_ENDS: usize = 64;

/// All settings but limits.
#[derive(Default)]
pub(super) struct Settings {
    pub backoffs: PatternMap<Backoff>,
    pub dead_letters: PatternMap<Box<[u8]>>,
    pub pauses: PatternMap<Paused>,
    /// Last applied settings of the configuration file: their names and values.
    pub from_file: BTreeMap<Box<[u8]>, Box<[u8]>>,
    /// True once the present file was compared with these.
    pub has_file: bool,
    /// Pauses by their ends.
    pub ends: BTreeSet<(Time, Box<[u8]>)>,
    pub pause_timer: Option<TimerId>,
}

impl Settings {
    /// Returns the backoff that is set for a tube; None without one.
    pub fn backoff_of(&self, tube: &[u8]) -> Option<Backoff> {
        self.backoffs.matching(tube).next().copied()
    }

    pub fn dead_letter_of(&self, tube: &[u8]) -> Option<Box<[u8]>> {
        self.dead_letters.matching(tube).next().cloned()
    }

    pub fn pause_of(&self, tube: &[u8]) -> Option<Paused> {
        self.pauses.matching(tube).next().copied()
    }

    /// Compares the pauses with their ends.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self) {
        let ends = self.pauses.iter().map(|(pattern, pause)| (pause.until, pattern.into()));
        assert_eq!(self.ends, ends.collect(), "each pause is in the order of ends");
        assert_eq!(self.pause_timer.is_some(), !self.ends.is_empty(), "pauses have a timer");
    }
}

/// Divisor of the memory limit that gives the limit of settings, and the minimum of that in bytes.
const SHARE: usize = 16;
const LEAST_BYTES: usize = 1 << 20;
/// Bytes of a limit of a group, or of the end of a pause, beside its name.
const ENTRY_BYTES: usize = 128;

impl State {
    /// Returns the bytes that settings take.
    pub(super) fn settings_bytes(&self) -> usize {
        let Settings { backoffs, dead_letters, pauses, ends, .. } = &self.settings;
        let of_patterns = self.limits.of_tubes.bytes() + backoffs.bytes() + dead_letters.bytes() + pauses.bytes();
        let rates = &self.limits.rates;
        let others = self.limits.of_groups.len() + rates.of_groups.len() + ends.len();
        of_patterns + rates.of_tubes.bytes() + others * ENTRY_BYTES + self.schedules.bytes
    }

    /// Returns whether a setting of this pattern may be added, or is there.
    fn may_set<V>(&self, map: &PatternMap<V>, pattern: &[u8]) -> bool {
        map.of(pattern).is_some() || self.has_room_for_settings() && map.has_room_for(pattern)
    }

    pub(super) fn has_room_for_settings(&self) -> bool {
        self.settings_bytes() < (self.bounds.max_memory / SHARE).max(LEAST_BYTES)
    }

    /// `limit` with a period in seconds: sets the most jobs that may start in it.
    pub fn rate(&mut self, conn: ConnId, of: LimitOf<'_>, (most, per): (u32, u32), step: &mut Step<'_, '_>) {
        let may_set = match of {
            LimitOf::Group(name) | LimitOf::Ordered(name) => {
                self.limits.rates.of_groups.contains_key(name) || self.has_room_for_settings()
            }
            LimitOf::Each(pattern) | LimitOf::All(pattern) => {
                self.may_set(&self.limits.rates.of_tubes, pattern.bytes())
            }
        };
        if !may_set {
            return step.reply(conn, Reply::OutOfMemory);
        }
        match of {
            LimitOf::Group(name) | LimitOf::Ordered(name) => {
                self.limits.rates.of_groups.insert(name.into(), (most, per));
                self.note_change(Change::Setting(SettingKind::GroupRate, name.into()));
                self.begin_group_sweep(Some(conn), name, Reply::Limit(most), step);
            }
            LimitOf::Each(pattern) | LimitOf::All(pattern) => {
                let retired = self.set_rate(pattern.bytes(), (most, per), matches!(of, LimitOf::All(_)));
                self.note_change(Change::Setting(SettingKind::Rate, pattern.bytes().into()));
                self.begin_sweep(conn, pattern, Work::Refresh { reply: Reply::Limit(most), retired }, step);
            }
        }
    }

    /// `limit`: sets the most jobs that may be reserved at once. Reserved jobs stay so.
    pub fn limit(&mut self, conn: ConnId, of: LimitOf<'_>, most: u32, step: &mut Step<'_, '_>) {
        let may_set = match of {
            LimitOf::Group(name) | LimitOf::Ordered(name) => {
                self.limits.of_groups.contains_key(name) || self.has_room_for_settings()
            }
            LimitOf::Each(pattern) | LimitOf::All(pattern) => self.may_set(&self.limits.of_tubes, pattern.bytes()),
        };
        if !may_set {
            return step.reply(conn, Reply::OutOfMemory);
        }
        match of {
            LimitOf::Group(name) | LimitOf::Ordered(name) => {
                self.limits.of_groups.insert(name.into(), (most, matches!(of, LimitOf::Ordered(_))));
                self.note_change(Change::Setting(SettingKind::GroupLimit, name.into()));
                self.begin_group_sweep(Some(conn), name, Reply::Limit(most), step);
            }
            LimitOf::Each(pattern) | LimitOf::All(pattern) => {
                let retired = self.set_limit(pattern.bytes(), most, matches!(of, LimitOf::All(_)));
                self.note_change(Change::Setting(SettingKind::Limit, pattern.bytes().into()));
                self.begin_sweep(conn, pattern, Work::Refresh { reply: Reply::Limit(most), retired }, step);
            }
        }
    }

    /// Sets a limit, of which the tubes do not know yet, and returns a gate to remove once they do.
    pub(super) fn set_limit(&mut self, pattern: &[u8], most: u32, is_all: bool) -> Option<GateId> {
        let old = self.limits.of_tubes.of(pattern).copied();
        let (new, retired) = match (old, is_all && most > 0) {
            (Some(Limit::All(_, gate)), true) => {
                self.change_gate(gate, |gate| gate.limit = most);
                (Limit::All(most, gate), None)
            }
            (old, true) => {
                let gate = GateId::from_index(self.limits.gates.insert(Gate::new(most)));
                debug_assert!(!matches!(old, Some(Limit::All(..))), "the arm above has these");
                (Limit::All(most, gate), None)
            }
            (Some(Limit::All(_, gate)), false) => (Limit::Each(most), Some(gate)),
            (_, false) => (Limit::Each(most), None),
        };
        self.limits.of_tubes.insert(pattern, new);
        retired
    }

    /// Removes a limit, of which the tubes do not know yet, and returns a gate to remove once they do.
    pub(super) fn remove_limit(&mut self, pattern: &[u8]) -> Option<GateId> {
        match self.limits.of_tubes.remove(pattern) {
            Some(Limit::All(_, gate)) => Some(gate),
            Some(Limit::Each(_)) | None => None,
        }
    }

    /// `retry`: sets the backoff of jobs whose reservations end badly.
    pub fn retry(&mut self, conn: ConnId, pattern: Pattern<'_>, backoff: Backoff, step: &mut Step<'_, '_>) {
        if !self.may_set(&self.settings.backoffs, pattern.bytes()) {
            return step.reply(conn, Reply::OutOfMemory);
        }
        self.settings.backoffs.insert(pattern.bytes(), backoff);
        self.note_change(Change::Setting(SettingKind::Retry, pattern.bytes().into()));
        let after = self.this_commit();
        step.reply_after(conn, Reply::Retry, after);
    }

    /// `dead-letter`: sets the tube of jobs after their last attempt; without one they are buried again.
    pub fn dead_letter(
        &mut self,
        conn: ConnId,
        pattern: Pattern<'_>,
        tube: Option<TubeName<'_>>,
        step: &mut Step<'_, '_>,
    ) {
        let name = tube.map_or(&b""[..], TubeName::bytes);
        if tube.is_some() && !self.may_set(&self.settings.dead_letters, pattern.bytes()) {
            return step.reply(conn, Reply::OutOfMemory);
        }
        match tube {
            Some(tube) => drop(self.settings.dead_letters.insert(pattern.bytes(), tube.bytes().into())),
            None => drop(self.settings.dead_letters.remove(pattern.bytes())),
        }
        self.note_change(Change::Setting(SettingKind::DeadLetter, pattern.bytes().into()));
        let after = self.this_commit();
        step.reply_after(conn, Reply::DeadLetter(name.into()), after);
    }

    /// `pause-tube`: pauses this tube for a while, or until it is removed. 0 seconds end the pause.
    pub fn pause_tube(&mut self, conn: ConnId, name: TubeName<'_>, seconds: u32, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::PauseTube);
        let Some(tube) = self.tubes.find_visible(name.bytes()) else { return step.reply(conn, Reply::NotFound) };
        self.tubes[tube].pauses.bump();
        self.pause(conn, name.pattern(), (seconds, true), step);
    }

    /// `pause-all`: pauses all tubes of a pattern, including later ones.
    pub fn pause_all(&mut self, conn: ConnId, pattern: Pattern<'_>, seconds: u32, step: &mut Step<'_, '_>) {
        self.pause(conn, pattern, (seconds, false), step);
    }

    fn pause(
        &mut self,
        conn: ConnId,
        pattern: Pattern<'_>,
        (seconds, ends_with_tube): (u32, bool),
        step: &mut Step<'_, '_>,
    ) {
        let until = step.now + Span::from_secs(u64::from(seconds));
        let pause = (seconds > 0).then_some(Paused { until, seconds, ends_with_tube });
        if pause.is_some() && !self.may_set(&self.settings.pauses, pattern.bytes()) {
            return step.reply(conn, Reply::OutOfMemory);
        }
        self.set_pause(pattern.bytes(), pause, step.timers);
        self.note_change(Change::Setting(SettingKind::Pause, pattern.bytes().into()));
        self.begin_sweep(conn, pattern, Work::Refresh { reply: Reply::Paused, retired: None }, step);
    }

    /// Sets or ends a pause, of which the tubes do not know yet.
    pub(super) fn set_pause(&mut self, pattern: &[u8], pause: Option<Paused>, timers: &mut Timers<'_, Timer>) {
        let old = match pause {
            Some(pause) => {
                self.settings.ends.insert((pause.until, pattern.into()));
                self.settings.pauses.insert(pattern, pause)
            }
            None => self.settings.pauses.remove(pattern),
        };
        if let Some(old) = old
            && pause != Some(old)
        {
            let is_other = pause.is_none_or(|pause| pause.until != old.until);
            if is_other {
                self.settings.ends.remove(&(old.until, pattern.into()));
            }
        }
        self.arm_pause(timers);
    }

    /// Ends the pause of a tube that is removed, unless the pause is of a pattern.
    pub(super) fn end_pause_of(&mut self, tube: TubeId, timers: &mut Timers<'_, Timer>) {
        let name = &self.tubes[tube].name;
        if self.settings.pauses.of(name).is_some_and(|pause| pause.ends_with_tube) {
            let name = name.clone();
            self.set_pause(&name, None, timers);
            self.tubes[tube].paused = self.settings.pause_of(&name);
            self.note_change(Change::Setting(SettingKind::Pause, name));
        }
    }

    /// Keeps the timer at the end of the first pause, or earlier.
    fn arm_pause(&mut self, timers: &mut Timers<'_, Timer>) {
        let first = self.settings.ends.first().map(|(until, _)| *until);
        keep_timer_at(&mut self.settings.pause_timer, first, Timer::Pause, timers);
    }

    /// Removes expired pauses, some of them if they are many: the rest follows in the next tick.
    pub(super) fn end_pauses(&mut self, step: &mut Step<'_, '_>) {
        self.settings.pause_timer.take().into_iter().for_each(TimerId::fired);
        for _ in 0..MOST_ENDS {
            let over = self.settings.ends.first().filter(|(until, _)| *until <= step.now).cloned();
            let Some((until, pattern)) = over else { break };
            self.settings.ends.remove(&(until, pattern.clone()));
            self.settings.pauses.remove(&pattern);
            self.note_change(Change::Setting(SettingKind::Pause, pattern.clone()));
            let pattern = Pattern::parse(&pattern).expect("only patterns are set");
            self.begin_own_sweep(pattern, None, step);
        }
        let next = self.settings.ends.first().map(|(until, _)| (*until).max(step.now + TICK));
        keep_timer_at(&mut self.settings.pause_timer, next, Timer::Pause, step.timers);
    }

    /// Updates the limits and the pause of a tube from the settings.
    pub(super) fn refresh(&mut self, tube: TubeId) {
        let entry = &self.tubes[tube];
        let paused = self.settings.pause_of(&entry.name);
        self.tubes[tube].paused = paused;
        self.refresh_limits(tube);
    }

    /// Returns the present value of a setting, for the store.
    pub(super) fn setting<'a>(&'a self, kind: SettingKind, pattern: &'a [u8]) -> Setting<'a> {
        match kind {
            SettingKind::Limit => Setting::Limit(
                pattern,
                self.limits.of_tubes.of(pattern).map(|limit| match limit {
                    Limit::Each(most) => (*most, false),
                    Limit::All(most, _) => (*most, true),
                }),
            ),
            SettingKind::GroupLimit => Setting::GroupLimit(pattern, self.limits.of_groups.get(pattern).copied()),
            SettingKind::Retry => Setting::Retry(pattern, self.settings.backoffs.of(pattern).copied()),
            SettingKind::DeadLetter => {
                Setting::DeadLetter(pattern, self.settings.dead_letters.of(pattern).map(|name| &**name))
            }
            SettingKind::Pause => {
                let pause = self.settings.pauses.of(pattern);
                let times = pause.map(|pause| (pause.until, pause.seconds));
                match pause.is_some_and(|pause| pause.ends_with_tube) {
                    true => Setting::TubePause(pattern, times),
                    false => Setting::Pause(pattern, times),
                }
            }
            SettingKind::File => Setting::File(pattern, self.settings.from_file.get(pattern).map(|value| &**value)),
            SettingKind::Rate => {
                let rate = self.limits.rates.of_tubes.of(pattern);
                Setting::Rate(pattern, rate.map(|rate| (rate.most, rate.per, rate.gate.is_some())))
            }
            SettingKind::GroupRate => Setting::GroupRate(pattern, self.limits.rates.of_groups.get(pattern).copied()),
            SettingKind::Schedule => {
                let periodic = self.schedules.by_name.get(pattern);
                Setting::Schedule(pattern, periodic.map(|periodic| (periodic.progress, &*periodic.definition)))
            }
        }
    }

    /// Returns every setting.
    pub(super) fn all_settings(&self) -> impl Iterator<Item = Setting<'_>> {
        let of = |kind: SettingKind| move |pattern| self.setting(kind, pattern);
        let limits = self.limits.of_tubes.iter().map(|(pattern, _)| pattern).map(of(SettingKind::Limit));
        let groups = self.limits.of_groups.keys().map(|name| &**name).map(of(SettingKind::GroupLimit));
        let backoffs = self.settings.backoffs.iter().map(|(pattern, _)| pattern).map(of(SettingKind::Retry));
        let dead = self.settings.dead_letters.iter().map(|(pattern, _)| pattern).map(of(SettingKind::DeadLetter));
        let pauses = self.settings.pauses.iter().map(|(pattern, _)| pattern).map(of(SettingKind::Pause));
        let from_file = self.settings.from_file.keys().map(|name| &**name).map(of(SettingKind::File));
        let schedules = self.schedules.by_name.keys().map(|name| &**name).map(of(SettingKind::Schedule));
        let rates = self.limits.rates.of_tubes.iter().map(|(pattern, _)| pattern).map(of(SettingKind::Rate));
        let group_rates = self.limits.rates.of_groups.keys().map(|name| &**name).map(of(SettingKind::GroupRate));
        let limits = limits.chain(groups).chain(rates).chain(group_rates);
        limits.chain(backoffs).chain(dead).chain(pauses).chain(schedules).chain(from_file)
    }

    /// Restores a setting, before there are tubes.
    pub(super) fn restore_setting(&mut self, setting: Setting<'_>, now: Time, timers: &mut Timers<'_, Timer>) {
        match setting {
            Setting::Limit(pattern, Some((most, is_all))) => drop(self.set_limit(pattern, most, is_all)),
            Setting::GroupLimit(name, Some(limit)) => drop(self.limits.of_groups.insert(name.into(), limit)),
            Setting::Retry(pattern, Some(backoff)) => drop(self.settings.backoffs.insert(pattern, backoff)),
            Setting::DeadLetter(pattern, Some(tube)) => {
                drop(self.settings.dead_letters.insert(pattern, tube.into()));
            }
            Setting::Pause(pattern, Some((until, seconds))) => {
                self.set_pause(pattern, Some(Paused { until, seconds, ends_with_tube: false }), timers);
            }
            Setting::TubePause(name, Some((until, seconds))) => {
                self.set_pause(name, Some(Paused { until, seconds, ends_with_tube: true }), timers);
            }
            Setting::File(name, Some(value)) => drop(self.settings.from_file.insert(name.into(), value.into())),
            Setting::Schedule(name, Some(schedule)) => self.restore_schedule(name, schedule, now, timers),
            Setting::Rate(pattern, Some((most, per, is_all))) => {
                self.set_rate(pattern, (most, per), is_all);
            }
            Setting::GroupRate(name, Some(rate)) => {
                self.limits.rates.of_groups.insert(name.into(), rate);
            }
            Setting::Schedule(_, None)
            | Setting::Rate(_, None)
            | Setting::GroupRate(_, None)
            | Setting::Limit(_, None)
            | Setting::File(_, None)
            | Setting::GroupLimit(_, None)
            | Setting::Retry(_, None)
            | Setting::DeadLetter(_, None)
            | Setting::Pause(_, None)
            | Setting::TubePause(_, None) => {}
        }
    }
}

/// Returns the patterns of limits with their gates, for comparison with the counts.
pub(super) fn gates_of(limits: &PatternMap<Limit>) -> BTreeMap<GateId, &[u8]> {
    let gates = limits.iter().filter_map(|(pattern, limit)| match *limit {
        Limit::All(_, gate) => Some((gate, pattern)),
        Limit::Each(_) => None,
    });
    gates.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoffs_grow_up_to_their_maximum() {
        let backoff = Backoff { attempts: 5, first: 1.5, factor: 2.0, max: 10.0 };
        let seconds: Vec<f64> = (1..=5).map(|k| backoff.delay(k).as_micros() as f64 / 1e6).collect();
        assert_eq!(seconds, [1.5, 3.0, 6.0, 10.0, 10.0]);
        assert_eq!(Backoff::NONE.delay(7), Span::ZERO);
        let endless = Backoff { attempts: 0, first: 1.0, factor: 9e9, max: 1e300 };
        assert_eq!(endless.delay(u32::MAX), Span::from_secs(u64::from(u32::MAX)));
        let nothing = Backoff { first: 0.0, ..endless };
        assert_eq!(nothing.delay(u32::MAX), Span::ZERO);
    }
}
