//! Settings of patterns of tubes in the configuration file. A command overrides one until the file has another value
//! for it.

use super::commits::{Change, SettingKind};
use super::record::{Progress, Setting};
use super::{Backoff, Pattern, State, Step};

/// A setting of the configuration file.
#[derive(Clone, PartialEq, Debug)]
pub enum FileSetting {
    /// Limit of tubes: the pattern, the number, and true if it is of all together.
    Limit(Box<[u8]>, u32, bool),
    /// Limit of a group: its name, the number, and true if its jobs run in order.
    GroupLimit(Box<[u8]>, u32, bool),
    /// Rate of tubes: the pattern, starts, seconds, and true if it is of all together.
    Rate(Box<[u8]>, u32, u32, bool),
    /// Rate of a group.
    GroupRate(Box<[u8]>, u32, u32),
    /// Backoff.
    Retry(Box<[u8]>, Backoff),
    /// Tube of jobs after their last attempt.
    DeadLetter(Box<[u8]>, Box<[u8]>),
    /// Periodic job: its name and its definition.
    Schedule(Box<[u8]>, Box<[u8]>),
}

impl FileSetting {
    fn setting(&self) -> Setting<'_> {
        match self {
            FileSetting::Limit(pattern, most, is_all) => Setting::Limit(pattern, Some((*most, *is_all))),
            FileSetting::GroupLimit(name, most, is_ordered) => Setting::GroupLimit(name, Some((*most, *is_ordered))),
            FileSetting::Rate(pattern, most, per, is_all) => Setting::Rate(pattern, Some((*most, *per, *is_all))),
            FileSetting::GroupRate(name, most, per) => Setting::GroupRate(name, Some((*most, *per))),
            FileSetting::Retry(pattern, backoff) => Setting::Retry(pattern, Some(*backoff)),
            FileSetting::DeadLetter(pattern, tube) => Setting::DeadLetter(pattern, Some(tube)),
            FileSetting::Schedule(name, definition) => Setting::Schedule(name, Some((Progress::default(), definition))),
        }
    }

    /// Returns the kind of the setting and its pattern or group, a name that is unique in the file.
    pub fn name(&self) -> Box<[u8]> {
        let (kind, of) = self.setting().name();
        [kind.as_bytes(), b" ", of].concat().into()
    }

    fn value(&self) -> Box<[u8]> {
        self.setting().value(|at| at.as_micros().cast_signed()).unwrap_or_default().into()
    }
}

/// Returns the removal of the setting with this name.
fn absence(name: &[u8]) -> Option<Setting<'_>> {
    let space = name.iter().position(|byte| *byte == b' ')?;
    let of = &name[space + 1..];
    Some(match &name[..space] {
        b"limit" => Setting::Limit(of, None),
        b"group-limit" => Setting::GroupLimit(of, None),
        b"retry" => Setting::Retry(of, None),
        b"dead-letter" => Setting::DeadLetter(of, None),
        b"schedule" => Setting::Schedule(of, None),
        b"rate" => Setting::Rate(of, None),
        b"group-rate" => Setting::GroupRate(of, None),
        _ => return None,
    })
}

impl State {
    /// Returns whether the configuration file was compared with the settings.
    pub fn has_file(&self) -> bool {
        self.settings.has_file
    }

    /// Applies the settings that are new or changed in the configuration file, and removes the settings that it does
    /// not have any more.
    pub fn set_from_file(&mut self, file: &[FileSetting], step: &mut Step<'_, '_>) {
        self.settings.has_file = true;
        let old = std::mem::take(&mut self.settings.from_file);
        for setting in file {
            let (name, value) = (setting.name(), setting.value());
            if old.get(&name) != Some(&value) {
                self.note_change(Change::Setting(SettingKind::File, name.clone()));
                self.set_for_itself(setting.setting(), step);
            }
            self.settings.from_file.insert(name, value);
        }
        for name in old.into_keys() {
            if !self.settings.from_file.contains_key(&name) {
                absence(&name).into_iter().for_each(|setting| self.set_for_itself(setting, step));
                self.note_change(Change::Setting(SettingKind::File, name));
            }
        }
    }

    /// Applies or removes a setting without a reply.
    fn set_for_itself(&mut self, setting: Setting<'_>, step: &mut Step<'_, '_>) {
        let (kind, of) = match setting {
            Setting::Limit(pattern, limit) => {
                let retired = match limit {
                    Some((most, is_all)) => self.set_limit(pattern, most, is_all),
                    None => self.remove_limit(pattern),
                };
                Pattern::parse(pattern).into_iter().for_each(|pattern| self.begin_own_sweep(pattern, retired, step));
                (SettingKind::Limit, pattern)
            }
            Setting::GroupLimit(name, limit) => {
                match limit {
                    Some(limit) => drop(self.limits.of_groups.insert(name.into(), limit)),
                    None => drop(self.limits.of_groups.remove(name)),
                }
                self.begin_group_sweep(None, name, super::Reply::Limit(0), step);
                (SettingKind::GroupLimit, name)
            }
            Setting::Rate(pattern, rate) => {
                let retired = match rate {
                    Some((most, per, is_all)) => self.set_rate(pattern, (most, per), is_all),
                    None => self.remove_rate(pattern),
                };
                Pattern::parse(pattern).into_iter().for_each(|pattern| self.begin_own_sweep(pattern, retired, step));
                (SettingKind::Rate, pattern)
            }
            Setting::GroupRate(name, rate) => {
                match rate {
                    Some(rate) => drop(self.limits.rates.of_groups.insert(name.into(), rate)),
                    None => drop(self.limits.rates.of_groups.remove(name)),
                }
                self.begin_group_sweep(None, name, super::Reply::Limit(0), step);
                (SettingKind::GroupRate, name)
            }
            Setting::Retry(pattern, backoff) => {
                match backoff {
                    Some(backoff) => drop(self.settings.backoffs.insert(pattern, backoff)),
                    None => drop(self.settings.backoffs.remove(pattern)),
                }
                (SettingKind::Retry, pattern)
            }
            Setting::DeadLetter(pattern, tube) => {
                match tube {
                    Some(tube) => drop(self.settings.dead_letters.insert(pattern, tube.into())),
                    None => drop(self.settings.dead_letters.remove(pattern)),
                }
                (SettingKind::DeadLetter, pattern)
            }
            Setting::Schedule(name, schedule) => {
                match schedule {
                    Some((_, definition)) => _ = self.set_schedule(name, definition, step),
                    None => _ = self.remove_schedule(name),
                }
                return;
            }
            Setting::Pause(..) | Setting::TubePause(..) | Setting::File(..) => return,
        };
        self.note_change(Change::Setting(kind, of.into()));
    }
}
