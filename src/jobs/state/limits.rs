//! Limits of tubes and groups: gates, which count reserved jobs and close when the limit is reached.

pub(super) mod rates;
mod starts;

use super::ids::{BucketId, FeedId, GateId, GroupId, LaneId, Tickets, TubeId};
use super::setting::{SettingKind, Settings};
use super::{Limit, Scope, State};
use poolcounter_core::{Id, Names, meter};
use rates::{OF_GROUP, Rate, Rates};
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};

/// A count of reserved jobs with its limit.
#[derive(Default)]
pub(super) struct Gate {
    /// Most reserved jobs; 0 means any number.
    pub limit: u32,
    pub reserved: u32,
    /// True if it is closed, too, while jobs of its group wait to be tried again.
    pub is_ordered: bool,
    /// Number of delayed jobs that were reserved before.
    pub retrying: u32,
    /// Lanes that it closes and that have jobs for waiting connections.
    lanes: BTreeSet<LaneId>,
    /// Buckets of its group that were found held back, by priority and by the time of that.
    pub parked: BTreeSet<(u32, u64, BucketId)>,
    /// Rate that closes it, too.
    pub rate: Option<Box<Rate>>,
}

/// Tubes that the same limits hold back.
pub(super) struct Lane {
    pub gates: Box<[GateId]>,
    pub tubes: u32,
    /// Feeds with tubes in it and with waiting sets, while it is closed: by the ticket of the first set, or an earlier one.
    pub held: Tickets<FeedId>,
    /// Gate whose opening makes this lane be examined again.
    watched: Option<GateId>,
}

impl Gate {
    pub fn is_closed(&self) -> bool {
        let is_full = self.limit > 0 && self.reserved >= self.limit;
        is_full || self.is_ordered && self.retrying > 0 || self.rate.as_ref().is_some_and(|rate| rate.is_full)
    }
}

/// Group: jobs that count together.
pub(super) struct Group {
    pub name: Box<[u8]>,
    /// Number of its jobs, in any state.
    pub jobs: u32,
    pub gate: GateId,
}

/// Place of rates in [`Limits::shared`].
pub(super) const RATES: usize = 1;

/// Returns the place of the gates of such limits in [`Limits::shared`].
pub(super) fn place_of(limit: Limit) -> usize {
    if limit.per.is_some() { RATES } else { 0 }
}

/// The limits, and the groups and lanes they apply to.
#[derive(Default)]
pub(super) struct Limits {
    pub gates: Slab<Gate>,
    pub lanes: Slab<Lane>,
    pub lane_of: BTreeMap<Box<[GateId]>, LaneId>,
    pub groups: Slab<Group>,
    pub group_names: Names<GroupId>,
    /// Gates of limits that count several tubes together, and at [`RATES`] of such rates, by their patterns.
    pub shared: [BTreeMap<Box<[u8]>, GateId>; 2],
    pub rates: Rates,
    /// Gates that have opened and still hold lanes or buckets back.
    pub opened: BTreeSet<GateId>,
}

/// Limits of one tube: its own, and gates that it shares.
#[derive(Default)]
pub(super) struct TubeLimits {
    pub limit: Limit,
    pub rate: Limit,
    pub counted: Vec<GateId>,
    pub held: Vec<GateId>,
}

impl Limits {
    /// Returns the limits of a tube. A limit for each tube applies if it is the most literal of all. Limits for all
    /// tubes together apply beside it, unless a more literal one exempts the tube; they count its jobs in any case.
    pub fn of_tube(&self, name: &[u8], settings: &Settings) -> TubeLimits {
        let mut limits = TubeLimits::default();
        for kind in [SettingKind::Limit, SettingKind::Rate] {
            let mut is_exempt = false;
            let set = settings.matching(kind, name).filter_map(|(pattern, value)| Some((pattern, value.limit()?)));
            for (index, (pattern, limit)) in set.enumerate() {
                is_exempt |= limit.most == 0;
                if let Some(gate) = self.shared[place_of(limit)].get(pattern) {
                    limits.counted.push(*gate);
                    limits.held.extend((!is_exempt).then_some(*gate));
                } else if index == 0 {
                    let own = if kind == SettingKind::Rate { &mut limits.rate } else { &mut limits.limit };
                    *own = limit;
                }
            }
        }
        limits.held.sort_unstable();
        limits
    }

    /// Returns a gate for a limit or a rate, which has counted nothing.
    pub fn gate_of(&self, limit: Limit, kind: u8, name: &[u8]) -> Gate {
        let rate = self.rates.rate(kind, name, limit);
        Gate { limit: if limit.per.is_none() { limit.most } else { 0 }, rate, ..Gate::default() }
    }

    /// Returns a gate with the limits of a group, which has counted nothing.
    pub fn gate_of_group(&self, name: &[u8], settings: &Settings) -> Gate {
        let [limit, rate] =
            [SettingKind::GroupLimit, SettingKind::GroupRate].map(|kind| settings.limit_of_group(kind, name));
        let rate = self.rates.rate(OF_GROUP, name, rate);
        Gate { limit: limit.most, is_ordered: limit.scope == Scope::Ordered, rate, ..Gate::default() }
    }

    /// Returns the group with this name.
    pub fn find_group(&self, name: &[u8]) -> Option<GroupId> {
        let hash = self.group_names.hash(name);
        self.group_names.find(hash, |group| &*self.groups[group.index()].name == name)
    }

    /// Returns the group with this name, and counts one job more in it. A new group is created.
    pub fn join_group(&mut self, name: &[u8], settings: &Settings) -> GroupId {
        let group = self.find_group(name).unwrap_or_else(|| {
            let gate = self.gate_of_group(name, settings);
            let gate = GateId::from_index(self.gates.insert(gate));
            let group = Group { name: name.into(), jobs: 0, gate };
            let group = GroupId::from_index(self.groups.insert(group));
            let hashing = self.group_names.hashing();
            let groups = &self.groups;
            let hash_of = |group: GroupId| hashing.hash(&groups[group.index()].name);
            self.group_names.insert(hash_of(group), group, hash_of);
            group
        });
        self.groups[group.index()].jobs += 1;
        group
    }

    /// Counts one job less in a group. The last one removes the group.
    pub fn leave_group(&mut self, group: GroupId) {
        self.groups[group.index()].jobs -= 1;
        if self.groups[group.index()].jobs == 0 {
            let Group { name, gate, .. } = self.groups.remove(group.index());
            self.gates.remove(gate.index());
            self.group_names.remove(self.group_names.hash(&name), group);
        }
    }

    /// Returns whether a group has reached its limit of reserved jobs.
    pub fn is_at_limit(&self, group: GroupId) -> bool {
        self.gates[self.groups[group.index()].gate.index()].is_closed()
    }

    /// Returns the lane with these gates, and counts one tube more in it. A new lane is created.
    pub fn enter_lane(&mut self, gates: &[GateId]) -> LaneId {
        let lane = self.lane_of.get(gates).copied().unwrap_or_else(|| {
            let lane = Lane { gates: gates.into(), tubes: 0, held: Tickets::default(), watched: None };
            let lane = LaneId::from_index(self.lanes.insert(lane));
            self.lane_of.insert(gates.into(), lane);
            lane
        });
        self.lanes[lane.index()].tubes += 1;
        lane
    }

    /// Counts one tube less in a lane. The last one removes the lane.
    pub fn leave_lane(&mut self, id: LaneId) {
        let lane = &mut self.lanes[id.index()];
        lane.tubes -= 1;
        if lane.tubes == 0 {
            let Lane { gates, watched, .. } = self.lanes.remove(id.index());
            self.lane_of.remove(&gates);
            if let Some(gate) = watched {
                self.gates[gate.index()].lanes.remove(&id);
            }
        }
    }

    /// Returns a closed gate of a lane, if there is one.
    fn closed_gate(&self, lane: LaneId) -> Option<GateId> {
        let mut gates = self.lanes[lane.index()].gates.iter();
        gates.find(|gate| self.gates[gate.index()].is_closed()).copied()
    }

    /// Returns whether all gates of a lane are open.
    pub fn is_open(&self, lane: LaneId) -> bool {
        self.closed_gate(lane).is_none()
    }

    /// Notes that a closed lane has jobs for a feed with waiting sets, by the ticket of the first or an earlier one.
    pub fn hold(&mut self, id: LaneId, ticket: u64, feed: FeedId) {
        let Some(gate) = self.closed_gate(id) else { return };
        let lane = &mut self.lanes[id.index()];
        if lane.held.of(feed).is_none_or(|known| ticket < known) {
            lane.held.set(feed, ticket);
        }
        if lane.watched.is_none() {
            self.watch_at(id, Some(gate));
        }
    }

    /// Returns the next feed of a lane that a gate held back and that is open now.
    pub fn next_freed(&mut self, id: GateId) -> Option<FeedId> {
        while let Some(lane) = self.gates[id.index()].lanes.first().copied() {
            meter::visit();
            if let Some(other) = self.closed_gate(lane) {
                self.watch_at(lane, Some(other));
                continue;
            }
            let held = &mut self.lanes[lane.index()].held;
            let next = held.first();
            next.into_iter().for_each(|feed| held.remove(feed));
            if held.len() == 0 {
                self.watch_at(lane, None);
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }

    /// Lets a lane be examined when this gate opens, and when no other does.
    fn watch_at(&mut self, id: LaneId, gate: Option<GateId>) {
        let old = std::mem::replace(&mut self.lanes[id.index()].watched, gate);
        if let Some(gate) = old {
            self.gates[gate.index()].lanes.remove(&id);
        }
        if let Some(gate) = gate {
            self.gates[gate.index()].lanes.insert(id);
        }
    }

    /// Compares the tables with each other.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self) {
        assert_eq!(self.lanes.len(), self.lane_of.len(), "each lane is found by its gates");
        assert_eq!(self.groups.len(), self.group_names.len(), "each group has a name");
        for (index, lane) in &self.lanes {
            assert_eq!(
                self.lane_of.get(&lane.gates).map(|lane| lane.index()),
                Some(index),
                "a lane is found by its gates"
            );
            assert_eq!(lane.watched.is_none(), lane.held.len() == 0, "a lane with held feeds is at its gate");
            let is_found = |gate: GateId| self.gates[gate.index()].lanes.contains(&LaneId::from_index(index));
            assert!(lane.watched.is_none_or(is_found), "a lane is looked at when its gate opens");
        }
    }
}

impl State {
    /// Changes a gate. If it opens, the next round of serving examines what it held back.
    pub(super) fn change_gate(&mut self, id: GateId, change: impl FnOnce(&mut Gate)) {
        let gate = &mut self.limits.gates[id.index()];
        let was_closed = gate.is_closed();
        change(gate);
        if was_closed && !gate.is_closed() && !(gate.lanes.is_empty() && gate.parked.is_empty()) {
            self.limits.opened.insert(id);
        }
    }

    /// Counts a newly reserved job, or one that is not reserved any more, and hides or shows its tube if that reaches its
    /// limit or falls below it.
    pub(super) fn count_reserved(&mut self, tube: TubeId, group: Option<GroupId>, is_more: bool) {
        let change = |count: &mut u32| if is_more { *count += 1 } else { *count -= 1 };
        let was_blocked = self.tubes[tube].is_blocked();
        change(&mut self.tubes[tube].reserved);
        self.change_gates(tube, group, |gate| change(&mut gate.reserved));
        if self.tubes[tube].is_blocked() != was_blocked {
            self.place(tube);
        }
    }

    fn change_gates(&mut self, tube: TubeId, group: Option<GroupId>, change: impl Fn(&mut Gate) + Copy) {
        for index in 0..self.tubes[tube].counted.len() {
            let gate = self.tubes[tube].counted[index];
            self.change_gate(gate, change);
        }
        if let Some(group) = group {
            let gate = self.limits.groups[group.index()].gate;
            self.change_gate(gate, change);
        }
    }

    /// Returns true if a limit keeps all jobs of this tube and group from being reserved.
    pub(super) fn is_held_back(&self, tube: TubeId, group: Option<GroupId>) -> bool {
        let is_closed = |gate: &GateId| self.limits.gates[gate.index()].is_closed();
        let tube = &self.tubes[tube];
        let group = group.map(|group| self.limits.groups[group.index()].gate);
        tube.is_at_limit() || tube.held.iter().chain(&group).any(is_closed)
    }

    /// Updates the limits of a tube from the settings.
    pub(super) fn refresh_limits(&mut self, id: TubeId) {
        let TubeLimits { limit, rate, counted, held } = self.limits.of_tube(&self.tubes[id].name, &self.settings);
        self.refresh_rate(id, rate);
        let tube = &mut self.tubes[id];
        let reserved = tube.reserved;
        let rare = tube.rare();
        rare.limit = limit.most;
        let old = std::mem::replace(&mut rare.counted, counted.clone());
        let holds_differ = rare.held != held;
        rare.held = held;
        for gate in old.iter().filter(|gate| !counted.contains(gate)) {
            self.change_gate(*gate, |gate| gate.reserved -= reserved);
        }
        for gate in counted.iter().filter(|gate| !old.contains(gate)) {
            self.change_gate(*gate, |gate| gate.reserved += reserved);
        }
        if holds_differ {
            self.change_lane(id);
        }
        self.place(id);
    }
}
