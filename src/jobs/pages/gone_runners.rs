//! Runners whose connections have all ended, with their last sign.

use poolcounter_core::Time;
use poolcounter_service::report::{Cell, Table, table};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Number of runners that are remembered.
const MOST_GONE: usize = 20;

/// The last runners whose connections have ended, by name: the address, and the time of the end.
#[derive(Default)]
pub(crate) struct GoneRunners(BTreeMap<Box<[u8]>, (String, Time)>);

impl GoneRunners {
    /// Notes the end of a connection of a runner.
    pub fn note(&mut self, name: &[u8], address: String, now: Time) {
        self.0.insert(name.into(), (address, now));
        if self.0.len() > MOST_GONE {
            let oldest = self.0.iter().min_by_key(|(_, (_, at))| *at).map(|(name, _)| name.clone());
            oldest.into_iter().for_each(|name| drop(self.0.remove(&name)));
        }
    }

    /// Returns the table of the runners that are not in the table of the connected ones, the last first.
    pub fn table(&self, connected: &Table, now: Time) -> Table {
        let is_gone = |name: &[u8]| !connected.rows.iter().any(|row| row.first() == Some(&Cell::text(name)));
        let mut gone: Vec<_> = self.0.iter().filter(|(name, _)| is_gone(name)).collect();
        gone.sort_by_key(|(_, (_, at))| Reverse(*at));
        table!((&Box<[u8]>, &(String, Time)), "gone", "Runners that are gone", gone;
            "name", "runner", Name, "Name; empty for connections that gave none.", |(name, _)| Cell::text(name);
            "peer", "from", Address, "Address of its last connection.", |(_, (address, _))| Cell::text(address);
            "gone", "gone for", Seconds, "Time since the end of its last connection.", |(_, (_, at))| now.since(*at);
        )
        .help("The last 20 since the start or the last upgrade.")
    }
}
