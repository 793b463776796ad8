//! Leaves of a root job that are in the queue, for its page.

use super::job::{JobId, JobKey, micros};
use super::{JobState, State};
use poolcounter_core::meter::Metered as _;
use poolcounter_core::time::{Span, Time};
use std::collections::BTreeMap;

/// Most jobs of each state, and most connections, that are examined for leaves.
pub const MOST_EXAMINED: usize = 700;

/// A root job with its leaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RootWithLeaves {
    /// Its newest timestamp.
    pub newest: u64,
    /// Time since its last change.
    pub changed: Span,
    /// Leaves by their timestamp.
    pub leaves: BTreeMap<u64, Leaves>,
    /// True if every job of the tube was examined.
    pub is_whole: bool,
}

/// Leaves with the same timestamp.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leaves {
    /// Number of leaves by state, in the order of [`ALL_STATES`](super::ALL_STATES).
    pub counts: [u64; 4],
    /// One of them.
    pub example: JobId,
}

impl State {
    /// Returns a root job and its leaves among the first [`MOST_EXAMINED`] jobs of each state; `None` if it is not
    /// known.
    pub fn root_with_leaves(&self, name: &[u8], signature: &[u8], now: Time) -> Option<RootWithLeaves> {
        let (newest, changed) = self.roots.newest_and_change(name, signature)?;
        let changed = Span::from_micros(u64::try_from(micros(now).saturating_sub(changed)).unwrap_or(0));
        let mut leaves = BTreeMap::new();
        let mut is_whole = true;
        if let Some(id) = self.tubes.find_visible(name) {
            let tube = &self.tubes[id];
            let mut add = |state: JobState, keys: &mut dyn Iterator<Item = JobKey>| {
                let mut found = 0;
                for key in keys.take(MOST_EXAMINED).metered() {
                    let job = &self.jobs[key];
                    if job.tube != id {
                        continue;
                    }
                    found += 1;
                    if let Some((_, timestamp)) = self.jobs.root_of(key).filter(|(other, _)| *other == signature) {
                        let same = leaves.entry(timestamp).or_insert(Leaves { counts: [0; 4], example: job.id });
                        same.counts[state as usize] += 1;
                    }
                }
                is_whole &= found == tube.counts()[state as usize];
            };
            add(JobState::Ready, &mut tube.waiting.iter(&self.jobs));
            add(JobState::Delayed, &mut tube.delayed.iter().filter_map(|(_, job)| self.jobs.find(*job)));
            add(JobState::Buried, &mut tube.buried.iter_back(&self.jobs));
            let conns = self.conns.slice(0, MOST_EXAMINED).0.metered();
            let held = conns.flat_map(|(_, conn)| &conn.held);
            add(JobState::Reserved, &mut held.filter_map(|held| self.jobs.find(held.id)));
        }
        Some(RootWithLeaves { newest, changed, leaves, is_whole })
    }
}
