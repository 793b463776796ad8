//! Table of the pools and groups: names, settings, statistics, and the pools that a step has changed.

use super::{GroupId, Marks, PoolId, Rank, Stat, Step, Timer};
use crate::stats::Times;
use poolcounter_core::{Figures, Id as _, Queue, Span, Time, TimerId};
use poolcounter_protocol::members::pool_settings::Settings;
use poolcounter_protocol::members::request::Refusal;
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

mod check;
mod groups;

pub(super) use groups::{Group, PARTS, Part, Supply};

/// Time of a failed start, the address of the provider, and its reason.
pub type StartFailure = (Time, String, Box<[u8]>);

#[derive(Default, Serialize, Deserialize)]
pub(super) struct Pool {
    pub name: Arc<[u8]>,
    pub settings: Settings,
    #[serde(skip)]
    pub group: Option<GroupId>,
    /// Number of its entry into its group, among all entries of pools into groups.
    #[serde(skip)]
    pub joined: u64,
    /// True if it is removed as soon as its members are returned.
    pub is_leaving: bool,
    /// True if the configuration file had it at the last reading.
    pub is_from_file: bool,
    /// True if it was removed at once: it has no name and no group, and is dropped once its members are.
    pub is_removed: bool,
    /// True if a take in this step left few members free.
    #[serde(skip)]
    pub is_to_grow: bool,
    /// Name up to which its members were brought in line with a change; None once all are.
    pub walk: Option<Arc<[u8]>>,
    /// Number of waiters to refuse because its queue was too long.
    pub excess: u32,
    /// True if it is to be settled again because the budget was used up.
    pub is_behind: bool,
    /// Its rank in [`Pools::offers`]; None if it is not in it.
    #[serde(skip)]
    pub offering: Option<Rank>,
    /// Number of replacements to start.
    pub owed: u32,
    #[serde(skip)]
    pub cull: Option<TimerId>,
    #[serde(skip)]
    pub figures: Figures<Stat>,
    pub times: Box<Times>,
    /// Its last failed start.
    #[serde(skip)]
    pub failure: Option<Box<StartFailure>>,
    /// True if it is in [`Pools::touched`].
    #[serde(skip)]
    is_touched: bool,
    /// True if its free members are to be offered from the first waiter on.
    #[serde(skip)]
    pub is_to_reconsider: bool,
    /// Part of the supply of its group.
    #[serde(skip)]
    pub supply: Supply,
}

/// All pools and groups, by name.
#[derive(Default)]
pub(super) struct Pools {
    pools: Slab<Pool>,
    /// Pools that are not removed, in the order of their names.
    by_name: BTreeMap<Arc<[u8]>, PoolId>,
    groups: Slab<Group>,
    /// Number of times that a pool has joined a group.
    pub joins: u64,
    group_names: BTreeMap<Arc<[u8]>, GroupId>,
    /// Pools that have changed in this step.
    touched: Vec<PoolId>,
    /// Pools whose free members are offered again, by the first rank of waiters who may not have been offered them.
    pub offers: BTreeSet<(Rank, PoolId)>,
    /// Groups whose demand or supply has changed. A group stays touched until it is settled.
    pub touched_groups: Vec<GroupId>,
    /// Pools that could start members if there was room in the daemon, the first to wait for room first.
    pub cramped: Queue<PoolId>,
    /// Statistics of dropped pools.
    pub past: Figures<Stat>,
    /// Names of the pools that have changed.
    pub marks: Marks<Arc<[u8]>>,
}

impl Pools {
    pub fn is_empty(&self) -> bool {
        self.pools.is_empty() && self.groups.is_empty()
    }

    pub fn len(&self) -> usize {
        self.pools.len()
    }

    pub fn get(&self, id: PoolId) -> &Pool {
        &self.pools[id.index()]
    }

    /// Returns a pool, for changes of what nothing else depends on.
    pub fn get_mut(&mut self, id: PoolId) -> &mut Pool {
        &mut self.pools[id.index()]
    }

    /// # Errors
    ///
    /// Fails if there is no pool of this name.
    pub fn find(&self, name: &[u8]) -> Result<PoolId, Refusal> {
        self.by_name.get(name).copied().ok_or(Refusal::NoPool)
    }

    /// Returns whether a pool has not ended.
    pub fn has(&self, id: PoolId) -> bool {
        self.pools.contains(id.index())
    }

    pub fn iter(&self) -> impl Iterator<Item = (PoolId, &Pool)> {
        self.pools.iter().map(|(index, pool)| (PoolId::from_index(index), pool))
    }

    /// Returns the pools with a name behind `after`, by name.
    pub fn after(&self, after: Option<&[u8]>) -> impl Iterator<Item = PoolId> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_name.range::<[u8], _>((from, Bound::Unbounded)).map(|(_, id)| *id)
    }

    /// Adds a pool without members and without a group.
    pub fn create(&mut self, name: Arc<[u8]>, settings: Settings) -> PoolId {
        self.insert(Pool::new(name, settings))
    }

    /// Adds a pool of a handover, with the time of its next cull and its statistics. Returns None if there is one of its
    /// name, its settings contradict each other, or it is removed without leaving: nothing would end it.
    pub fn restore(
        &mut self,
        mut pool: Pool,
        cull: Option<Time>,
        figures: &[(String, u64)],
        step: &mut Step<'_, '_>,
    ) -> Option<PoolId> {
        pool.settings.check().ok()?;
        let is_sound = if pool.is_removed { pool.is_leaving } else { self.find(&pool.name).is_err() };
        is_sound.then_some(())?;
        let id = PoolId::from_index(self.pools.vacant_key());
        pool.cull = cull.map(|at| step.timers.arm(at, Timer::Cull(id)));
        if pool.is_removed {
            pool.walk = Some(Arc::default());
        }
        pool.figures.restore(figures);
        Some(self.insert(pool))
    }

    fn insert(&mut self, pool: Pool) -> PoolId {
        let (name, is_removed) = (pool.name.clone(), pool.is_removed);
        let id = PoolId::from_index(self.pools.insert(pool));
        if !is_removed {
            self.by_name.insert(name, id);
            self.mark(id);
        }
        id
    }

    /// Removes the name of a pool that is removed at once.
    pub fn unname(&mut self, id: PoolId) {
        self.mark(id);
        let pool = &mut self.pools[id.index()];
        pool.is_removed = true;
        self.by_name.remove(&pool.name);
    }

    /// Removes a pool without a group, with its timers. Its statistics stay in the sum.
    pub fn remove(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        if !self.get(id).is_removed {
            self.unname(id);
        }
        self.cramped.remove(id);
        let pool = self.pools.remove(id.index());
        self.past.merge(&pool.figures);
        pool.cull.into_iter().for_each(|timer| step.timers.cancel(timer));
        // The next pool with this id is touched, and offers its members, for itself.
        self.touched.retain(|other| *other != id);
        pool.offering.map(|from| self.offers.remove(&(from, id)));
    }

    /// Returns a pool, for changes of what is kept.
    pub fn marked(&mut self, id: PoolId) -> &mut Pool {
        self.mark(id);
        self.get_mut(id)
    }

    /// Notes that a pool has changed.
    pub fn mark(&mut self, id: PoolId) {
        self.marks.add(&self.pools[id.index()].name);
    }

    /// Notes that the demand of a pool may have changed, so that it is settled at the end of the step.
    pub fn touch(&mut self, id: PoolId) {
        let pool = &mut self.pools[id.index()];
        if !pool.is_touched {
            pool.is_touched = true;
            self.touched.push(id);
        }
    }

    /// Touches a pool, and notes that its waiters may want members that are free. Offers that go on come to their end
    /// first, whatever happens meanwhile.
    pub fn reconsider(&mut self, id: PoolId) {
        let pool = &mut self.pools[id.index()];
        pool.is_to_reconsider = true;
        if pool.offering.is_none() {
            self.offer_on(id, Rank::default());
        }
        self.touch(id);
    }

    /// Notes that the free members of a pool are to be offered to its waiters from this rank on.
    pub fn offer_on(&mut self, id: PoolId, from: Rank) {
        self.pools[id.index()].offering = Some(from);
        self.offers.insert((from, id));
    }

    /// Touches a pool whose free members were offered to all its waiters.
    pub fn end_offers(&mut self, id: PoolId) {
        let pool = &mut self.pools[id.index()];
        pool.offering = None;
        match pool.is_to_reconsider {
            true => self.reconsider(id),
            false => self.touch(id),
        }
    }

    /// Takes a touched pool.
    pub fn next_touched(&mut self) -> Option<PoolId> {
        let id = self.touched.pop()?;
        self.pools[id.index()].is_touched = false;
        Some(id)
    }

    /// Counts one event of a pool.
    pub fn count(&mut self, id: PoolId, stat: Stat) {
        self.pools[id.index()].figures.count(stat);
    }

    /// Returns the durations of a pool, to record one.
    pub fn times(&mut self, id: PoolId) -> &mut Times {
        &mut self.pools[id.index()].times
    }

    /// Notes that a take has left `free` members free: if they are few, more are started.
    pub fn note_free(&mut self, id: PoolId, free: u32) {
        let pool = &mut self.pools[id.index()];
        if pool.settings.grow_at.is_some_and(|grow_at| free <= grow_at) {
            pool.is_to_grow = true;
            self.touch(id);
        }
    }

    /// Arms the timer of the next cull anew; none with zero.
    pub fn arm_cull(&mut self, id: PoolId, after: Span, step: &mut Step<'_, '_>) {
        let cull = &mut self.pools[id.index()].cull;
        cull.take().into_iter().for_each(|timer| step.timers.cancel(timer));
        *cull = (after > Span::ZERO).then(|| step.timers.arm(step.now + after, Timer::Cull(id)));
    }
}

impl Pool {
    /// Returns a copy without its timer, its group and its statistics, for a record.
    pub fn to_save(&self) -> Self {
        Pool {
            walk: self.walk.clone(),
            // A pool that is settled offers its free members again.
            is_behind: self.is_behind || self.offering.is_some(),
            is_leaving: self.is_leaving,
            is_from_file: self.is_from_file,
            is_removed: self.is_removed,
            excess: self.excess,
            owed: self.owed,
            times: self.times.clone(),
            ..Pool::new(self.name.clone(), self.settings.clone())
        }
    }

    fn new(name: Arc<[u8]>, settings: Settings) -> Self {
        Pool { name, settings, ..Pool::default() }
    }
}
