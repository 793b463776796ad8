//! Settings that have no effect, because their service is off or other settings leave them nothing to do.

use super::DaemonSettings;
use crate::services::SERVICES;
use crate::terminal::enumerate;
use poolcounter_service::container::ServiceId;
use poolcounter_service::contract::settings::idle_options;

impl DaemonSettings {
    /// Returns a sentence for each reason for which settings have no effect. `is_on` tells which services have
    /// addresses beside the settings, such as sockets of a supervisor.
    pub fn idle(&self, is_on: impl Fn(ServiceId) -> bool) -> Vec<String> {
        let idle = |id: ServiceId| match self.endpoints[id].is_enabled || is_on(id) {
            true => self.idle_beside_others(id),
            false => self.idle_while_off(id).into_iter().collect(),
        };
        ServiceId::all(SERVICES).flat_map(idle).collect()
    }

    fn idle_beside_others(&self, id: ServiceId) -> Vec<String> {
        let is_set = |key: &str| self.set_keys.contains(key);
        let listening = idle_options(id.info(SERVICES).listening, &self.endpoints[id], is_set);
        listening.chain(self.services[id].idle(&is_set)).collect()
    }

    /// Returns the sentence about a service that is off; None if that was set, or nothing of it was set.
    fn idle_while_off(&self, id: ServiceId) -> Option<String> {
        let (listening, settings) = (id.info(SERVICES).listening, &self.services[id]);
        let switch = listening.first()?.key;
        let (rows, tables) = (settings.rows(), settings.tables());
        let keys = listening.iter().map(|option| option.key).chain(rows.iter().map(|option| option.key));
        let keys = keys.chain(tables.iter().map(|table| table.key));
        let set: Vec<&str> = keys.filter(|key| self.set_keys.contains(key)).collect();
        if set.is_empty() || set.contains(&switch) {
            return None;
        }
        let are = if set.len() == 1 { "is" } else { "are" };
        Some(format!("{} {are} set, but {switch} is not: that service is off", enumerate(&set)))
    }
}
