//! Settings of patterns of tubes and of groups: limits, backoffs, dead-letter tubes and pauses. They outlive their
//! tubes. A setting of the configuration file is overridden by a command until the file has another value for it.

use super::background::{Answer, TICK, Work, keep_timer_at};
use super::commits::Change;
use super::ids::{GateId, TubeId};
use super::periodic::Periodic;
use super::setting::{Paused, Setting, SettingKind, Settings, Value};
use super::{Pattern, Reply, State, Step, Timer, TubeName};
use crate::stats::Jobs as Stat;
use poolcounter_core::{ConnId, Span, Time, TimerId, Timers};
use poolcounter_protocol::jobs::name::PatternMap;
use std::collections::BTreeSet;

/// Most pauses that end in one step.
const MOST_ENDS: usize = 64;

/// Divisor of the memory limit that gives the limit of settings, and the minimum of that in bytes.
const SHARE: usize = 16;
const LEAST_BYTES: usize = 1 << 20;
/// Bytes of the end of a pause, beside its name.
const ENTRY_BYTES: usize = 128;

impl State {
    /// Returns the bytes that settings take.
    pub(super) fn settings_bytes(&self) -> usize {
        let Settings { tables, ends, .. } = &self.settings;
        tables.iter().map(PatternMap::bytes).sum::<usize>() + ends.len() * ENTRY_BYTES + self.schedules.bytes
    }

    pub(super) fn has_room_for_settings(&self) -> bool {
        self.settings_bytes() < (self.bounds.max_memory / SHARE).max(LEAST_BYTES)
    }

    /// `pause-tube`: pauses this tube for a while, or until it is removed. 0 seconds end the pause.
    pub fn pause_tube(&mut self, conn: ConnId, name: TubeName<'_>, seconds: u32, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::PauseTube);
        let Some(tube) = self.tubes.find_visible(name.bytes()) else { return step.reply(conn, Reply::NotFound) };
        let rare = self.tubes[tube].rare();
        rare.pauses = rare.pauses.saturating_add(1);
        self.pause(conn, name.pattern(), (seconds, true), step);
    }

    /// `pause-all` or `pause-tube`: pauses the tubes of a pattern, including later ones.
    pub(super) fn pause(
        &mut self,
        conn: ConnId,
        pattern: Pattern<'_>,
        (seconds, ends_with_tube): (u32, bool),
        step: &mut Step<'_, '_>,
    ) {
        let until = step.now + Span::from_secs(u64::from(seconds));
        let pause = Value::Pause(Paused { until, seconds, ends_with_tube });
        let value = (seconds > 0).then_some(pause);
        self.set(conn, SettingKind::Pause, pattern.bytes(), value, Reply::Paused, step);
    }

    /// Sets or removes something for a client, if there is room for it.
    pub(super) fn set(
        &mut self,
        conn: ConnId,
        kind: SettingKind,
        of: &[u8],
        value: Option<Value>,
        reply: Reply,
        step: &mut Step<'_, '_>,
    ) {
        let table = &self.settings.tables[kind as usize];
        let has_room = || self.has_room_for_settings() && table.has_room_for(of);
        if value.is_some() && table.of(of).is_none() && !has_room() {
            return step.reply(conn, Reply::OutOfMemory);
        }
        self.apply(Some(conn), Setting { kind, of: of.into(), value }, reply, step);
    }

    /// Sets or removes something. A client gets the reply once all tubes and groups know of it.
    fn apply(&mut self, conn: Option<ConnId>, setting: Setting, reply: Reply, step: &mut Step<'_, '_>) {
        let Setting { kind, of, value } = setting;
        let retired = self.put_setting(kind, &of, value, step.timers);
        self.note_change(Change::Setting(kind, of.clone()));
        match kind {
            SettingKind::Limit | SettingKind::Rate | SettingKind::Pause => {
                let pattern = Pattern::parse(&of).expect("only patterns are set");
                self.begin_sweep(conn, pattern, Work::Refresh(retired), Answer::Fixed(reply), step);
            }
            SettingKind::GroupLimit | SettingKind::GroupRate => self.begin_group_sweep(conn, &of, reply, step),
            SettingKind::Retry | SettingKind::DeadLetter | SettingKind::Schedule | SettingKind::File => {
                if let Some(conn) = conn {
                    let after = self.this_commit();
                    step.reply_after(conn, reply, after);
                }
            }
        }
    }

    /// Sets or removes a value of which the tubes do not know yet, and returns a gate to remove once they do.
    fn put_setting(
        &mut self,
        kind: SettingKind,
        of: &[u8],
        value: Option<Value>,
        timers: &mut Timers<'_, Timer>,
    ) -> Option<GateId> {
        let new = value.as_ref().and_then(Value::limit);
        let old = self.settings.put(kind, of, value).as_ref().and_then(Value::limit);
        match kind {
            SettingKind::Limit | SettingKind::Rate => return self.change_shared_gate(of, old, new),
            SettingKind::Pause => {
                let first = self.settings.ends.first().map(|(until, _)| *until);
                keep_timer_at(&mut self.settings.pause_timer, first, Timer::Pause, timers);
            }
            _ => {}
        }
        None
    }

    /// Ends the pause of a tube that is removed, unless the pause is of a pattern.
    pub(super) fn end_pause_of(&mut self, tube: TubeId, timers: &mut Timers<'_, Timer>) {
        let own = self.settings.of(SettingKind::Pause, &self.tubes[tube].name);
        if matches!(own, Some(Value::Pause(Paused { ends_with_tube: true, .. }))) {
            let name = self.tubes[tube].name.clone();
            self.put_setting(SettingKind::Pause, &name, None, timers);
            self.tubes[tube].rare().paused = self.settings.pause_of(&name);
            self.note_change(Change::Setting(SettingKind::Pause, name));
        }
    }

    /// Removes expired pauses, some of them if they are many: the rest follows in the next tick.
    pub(super) fn end_pauses(&mut self, step: &mut Step<'_, '_>) {
        self.settings.pause_timer.take().into_iter().for_each(TimerId::fired);
        for _ in 0..MOST_ENDS {
            let over = self.settings.ends.first().filter(|(until, _)| *until <= step.now).cloned();
            let Some((_, of)) = over else { break };
            self.settings.put(SettingKind::Pause, &of, None);
            let pattern = Pattern::parse(&of).expect("only patterns are set");
            self.begin_sweep(None, pattern, Work::Refresh(None), Answer::Fixed(Reply::Paused), step);
            self.note_change(Change::Setting(SettingKind::Pause, of));
        }
        let next = self.settings.ends.first().map(|(until, _)| (*until).max(step.now + TICK));
        keep_timer_at(&mut self.settings.pause_timer, next, Timer::Pause, step.timers);
    }

    /// Updates the limits and the pause of a tube from the settings.
    pub(super) fn refresh(&mut self, tube: TubeId) {
        let entry = &self.tubes[tube];
        let paused = self.settings.pause_of(&entry.name);
        self.tubes[tube].rare().paused = paused;
        self.refresh_limits(tube);
        self.tubes[tube].tidy();
    }

    /// Returns the present value of a setting, for the store.
    pub(super) fn setting(&self, kind: SettingKind, of: &[u8]) -> Setting {
        let value = match kind {
            SettingKind::Schedule => self.schedules.by_name.get(of).map(Periodic::value),
            kind => self.settings.of(kind, of).cloned(),
        };
        Setting { kind, of: of.into(), value }
    }

    /// Returns every setting by its kind and its pattern, group or name.
    pub(super) fn setting_names(&self) -> impl Iterator<Item = (SettingKind, &[u8])> {
        let schedules = self.schedules.by_name.keys().map(|name| (SettingKind::Schedule, &**name));
        self.settings.names().chain(schedules)
    }

    /// Returns every setting.
    pub(super) fn all_settings(&self) -> impl Iterator<Item = Setting> {
        self.setting_names().map(|(kind, of)| self.setting(kind, of))
    }

    /// Restores a setting, before there are tubes.
    pub(super) fn restore_setting(&mut self, setting: Setting, now: Time, timers: &mut Timers<'_, Timer>) {
        let Setting { kind, of, value } = setting;
        match value {
            Some(Value::Text(value)) if kind == SettingKind::Schedule => {
                self.restore_schedule(&of, &value, now, timers);
            }
            value => _ = self.put_setting(kind, &of, value, timers),
        }
    }

    /// Returns whether the configuration file was compared with the settings.
    pub fn has_file(&self) -> bool {
        self.settings.has_file
    }

    /// Applies the settings that are new or changed in the configuration file, and removes the settings that it does
    /// not have any more.
    pub fn set_from_file(&mut self, file: &[Setting], step: &mut Step<'_, '_>) {
        self.settings.has_file = true;
        let names: BTreeSet<Box<[u8]>> = file.iter().map(Setting::name).collect();
        for setting in file {
            let text = setting.value.as_ref().map(|value| Value::Text(value.text(|_| 0).into()));
            self.note_in_file(setting.name(), text.as_ref(), setting.clone(), step);
        }
        let old = self.settings.tables[SettingKind::File as usize].iter().map(|(name, _)| name);
        let gone: Vec<Box<[u8]>> = old.filter(|name| !names.contains(*name)).map(Into::into).collect();
        for name in gone {
            let Some(absence) = Setting::absence(&name) else { continue };
            self.note_in_file(name, None, absence, step);
        }
    }

    /// Applies or removes a setting without a reply, if the configuration file has had another value of this name.
    fn note_in_file(&mut self, name: Box<[u8]>, text: Option<&Value>, setting: Setting, step: &mut Step<'_, '_>) {
        if self.settings.put(SettingKind::File, &name, text.cloned()).as_ref() == text {
            return;
        }
        self.note_change(Change::Setting(SettingKind::File, name));
        match (setting.kind, &setting.value) {
            (SettingKind::Schedule, Some(Value::Text(definition))) => {
                self.set_schedule(&setting.of, definition, step);
            }
            (SettingKind::Schedule, _) => _ = self.remove_schedule(&setting.of),
            _ => self.apply(None, setting, Reply::Paused, step),
        }
    }
}
