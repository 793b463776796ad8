//! Limits of tubes and groups: gates, which count reserved jobs and close when there are as many as may be.

use super::State;
use super::sets::{Lane, LaneId};
use super::sweeps::JobState;
use super::tube::{Bucket, BucketId, GroupId, TubeId};
use poolcounter_core::id::{Id, id};
use poolcounter_core::names::Names;
use poolcounter_protocol::jobs::name::PatternMap;
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

id! {
    /// A limit of several tubes together, or of a group.
    GateId
}

/// A limit, as it was set for a pattern of tubes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Limit {
    /// Each tube may have so many reserved; 0 means any number.
    Each(u32),
    /// All tubes together.
    All(u32, GateId),
}

/// A count of reserved jobs with its bound.
pub(super) struct Gate {
    /// 0 means any number.
    pub limit: u32,
    pub reserved: u32,
    pub lanes: BTreeSet<LaneId>,
}

impl Gate {
    pub fn is_closed(&self) -> bool {
        self.limit > 0 && self.reserved >= self.limit
    }
}

/// Jobs that count together.
pub(super) struct Group {
    pub name: Box<[u8]>,
    /// Number of its jobs, wherever they are.
    pub jobs: u32,
    pub gate: GateId,
    pub buckets: BTreeSet<BucketId>,
}

/// The limits, and what they are limits of.
#[derive(Default)]
pub(super) struct Limits {
    pub gates: Slab<Gate>,
    pub lanes: Slab<Lane>,
    pub lane_of: BTreeMap<Box<[GateId]>, LaneId>,
    pub groups: Slab<Group>,
    pub group_names: Names<GroupId>,
    /// Limits that were set, by pattern and by the name of a group, `*` for each.
    pub of_tubes: PatternMap<Limit>,
    pub of_groups: BTreeMap<Box<[u8]>, u32>,
}

/// Limits of one tube.
pub(super) struct TubeLimits {
    pub each: u32,
    pub counted: Box<[GateId]>,
    pub held: Box<[GateId]>,
}

impl Limits {
    /// Returns the limits of a tube. A limit for each tube holds if it is the most literal of all. Those for all tubes
    /// together hold beside it, as far as no more literal one exempts the tube; they count it in any case.
    pub fn of_tube(&self, name: &[u8]) -> TubeLimits {
        let mut each = 0;
        let (mut counted, mut held) = (Vec::new(), Vec::new());
        let mut is_exempt = false;
        for (index, limit) in self.of_tubes.matching(name).enumerate() {
            match *limit {
                Limit::Each(0) => is_exempt = true,
                Limit::Each(most) if index == 0 => each = most,
                Limit::Each(_) => {}
                Limit::All(_, gate) => {
                    counted.push(gate);
                    if !is_exempt {
                        held.push(gate);
                    }
                }
            }
        }
        held.sort_unstable();
        TubeLimits { each, counted: counted.into(), held: held.into() }
    }

    /// Returns the group with this name.
    pub fn find_group(&self, name: &[u8]) -> Option<GroupId> {
        let hash = self.group_names.hash(name);
        self.group_names.find(hash, |group| &*self.groups[group.index()].name == name)
    }

    /// Returns the group with this name, which is made if it is new. One job more belongs to it.
    pub fn join_group(&mut self, name: &[u8]) -> GroupId {
        let group = self.find_group(name).unwrap_or_else(|| {
            let gate = Gate { limit: self.limit_of_group(name), reserved: 0, lanes: BTreeSet::new() };
            let gate = GateId::from_index(self.gates.insert(gate));
            let group = Group { name: name.into(), jobs: 0, gate, buckets: BTreeSet::new() };
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

    /// A job of the group is gone; with the last one, so is the group.
    pub fn leave_group(&mut self, group: GroupId) {
        self.groups[group.index()].jobs -= 1;
        if self.groups[group.index()].jobs == 0 {
            let Group { name, gate, .. } = self.groups.remove(group.index());
            self.gates.remove(gate.index());
            self.group_names.remove(self.group_names.hash(&name), group);
        }
    }

    /// Returns how many jobs of a group may be reserved at once; 0 for any number.
    pub fn limit_of_group(&self, name: &[u8]) -> u32 {
        self.of_groups.get(name).or_else(|| self.of_groups.get(&b"*"[..])).copied().unwrap_or(0)
    }

    /// Returns the lane with these gates, for one bucket more.
    fn enter_lane(&mut self, gates: &[GateId]) -> LaneId {
        let lane = self.lane_of.get(gates).copied().unwrap_or_else(|| {
            let closed = gates.iter().filter(|gate| self.gates[gate.index()].is_closed()).count() as u32;
            let lane = Lane { gates: gates.into(), closed, buckets: 0, sets: BTreeSet::new() };
            let lane = LaneId::from_index(self.lanes.insert(lane));
            for gate in gates {
                self.gates[gate.index()].lanes.insert(lane);
            }
            self.lane_of.insert(gates.into(), lane);
            lane
        });
        self.lanes[lane.index()].buckets += 1;
        lane
    }

    /// Compares the tables with each other.
    ///
    /// # Panics
    ///
    /// When they contradict each other.
    pub fn check(&self) {
        assert_eq!(self.lanes.len(), self.lane_of.len(), "each lane is found by its gates");
        assert_eq!(self.groups.len(), self.group_names.len(), "each group has a name");
        for (index, lane) in &self.lanes {
            assert_eq!(
                self.lane_of.get(&lane.gates).map(|lane| lane.index()),
                Some(index),
                "a lane is found by its gates"
            );
            let closed = lane.gates.iter().filter(|gate| self.gates[gate.index()].is_closed()).count();
            assert_eq!(lane.closed as usize, closed, "closed gates of a lane");
        }
    }

    /// Returns whether no limit holds the buckets of a lane back.
    pub fn is_open(&self, lane: LaneId) -> bool {
        self.lanes[lane.index()].closed == 0
    }
}

impl State {
    /// Returns the lane of a bucket, by what holds its tube and its group back.
    pub(super) fn enter_lane_for(&mut self, held: &[GateId], group: Option<GroupId>) -> LaneId {
        let group = group.map(|group| self.limits.groups[group.index()].gate);
        let group = group.filter(|gate| self.limits.gates[gate.index()].limit > 0);
        if group.is_none() {
            return self.limits.enter_lane(held);
        }
        let mut gates: Vec<GateId> = held.iter().copied().chain(group).collect();
        gates.sort_unstable();
        self.limits.enter_lane(&gates)
    }

    /// A bucket leaves its lane. The last one takes the lane with it.
    pub(super) fn leave_lane(&mut self, id: LaneId) {
        let lane = &mut self.limits.lanes[id.index()];
        lane.buckets -= 1;
        if lane.buckets > 0 {
            return;
        }
        let Lane { gates, sets, .. } = self.limits.lanes.remove(id.index());
        self.limits.lane_of.remove(&gates);
        for gate in &gates {
            self.limits.gates[gate.index()].lanes.remove(&id);
        }
        for (set, turn) in sets {
            self.sets[set].lanes.remove(&(turn, id));
        }
    }

    /// Moves a bucket to the lane that the limits of its tube and group say.
    pub(super) fn change_lane(&mut self, id: BucketId) {
        let Bucket { tube, group, .. } = self.tubes[id];
        self.hide(id);
        let held = self.tubes[tube].held.clone();
        let lane = self.enter_lane_for(&held, group);
        let old = std::mem::replace(&mut self.tubes[id].lane, lane);
        self.leave_lane(old);
        self.show(id);
    }

    /// Changes a gate, and tells the sets when it was closed or opened by that.
    pub(super) fn change_gate(&mut self, id: GateId, change: impl FnOnce(&mut Gate)) {
        let gate = &mut self.limits.gates[id.index()];
        let was_closed = gate.is_closed();
        change(gate);
        let is_closed = gate.is_closed();
        if is_closed == was_closed {
            return;
        }
        let State { limits, sets, .. } = self;
        for id in &limits.gates[id.index()].lanes {
            let lane = &mut limits.lanes[id.index()];
            let was_open = lane.closed == 0;
            if is_closed {
                lane.closed += 1;
            } else {
                lane.closed -= 1;
            }
            let is_open = lane.closed == 0;
            if is_open != was_open {
                for (set, turn) in &lane.sets {
                    sets[*set].set_open(*turn, *id, is_open);
                    if is_open {
                        sets.wake(*set);
                    }
                }
            }
        }
    }

    /// Counts a job that is reserved from now on, and hides its tube when that is at its limit.
    pub(super) fn count_reserved(&mut self, tube: TubeId, group: Option<GroupId>) {
        let was_blocked = self.tubes[tube].is_blocked();
        self.tubes[tube].reserved += 1;
        self.tubes.gain(tube, JobState::Reserved);
        self.change_gates(tube, group, |gate| gate.reserved += 1);
        if self.tubes[tube].is_blocked() != was_blocked {
            self.show_all(tube);
        }
    }

    /// Counts a job that is not reserved any more, and shows its tube when that is below its limit again.
    pub(super) fn count_unreserved(&mut self, tube: TubeId, group: Option<GroupId>) {
        let was_blocked = self.tubes[tube].is_blocked();
        self.tubes[tube].reserved -= 1;
        self.tubes.lose(tube, JobState::Reserved);
        self.change_gates(tube, group, |gate| gate.reserved -= 1);
        if self.tubes[tube].is_blocked() != was_blocked {
            self.show_all(tube);
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

    /// Returns true when no job of this tube and group may be reserved because of a limit.
    pub(super) fn is_held_back(&self, tube: TubeId, group: Option<GroupId>) -> bool {
        let is_closed = |gate: &GateId| self.limits.gates[gate.index()].is_closed();
        let tube = &self.tubes[tube];
        let group = group.map(|group| self.limits.groups[group.index()].gate);
        tube.is_at_limit() || tube.held.iter().chain(&group).any(is_closed)
    }

    /// Brings what a tube knows of its limits up to what is set.
    pub(super) fn refresh_limits(&mut self, id: TubeId) {
        let limits = self.limits.of_tube(&self.tubes[id].name);
        let tube = &mut self.tubes[id];
        let reserved = tube.reserved;
        tube.limit = limits.each;
        let old = std::mem::replace(&mut tube.counted, limits.counted.clone());
        let holds_differ = tube.held != limits.held;
        tube.held = limits.held;
        for gate in old.iter().filter(|gate| !limits.counted.contains(gate)) {
            self.change_gate(*gate, |gate| gate.reserved -= reserved);
        }
        for gate in limits.counted.iter().filter(|gate| !old.contains(gate)) {
            self.change_gate(*gate, |gate| gate.reserved += reserved);
        }
        if holds_differ {
            let tube = &self.tubes[id];
            let buckets: Vec<BucketId> = tube.buckets().collect();
            buckets.into_iter().for_each(|bucket| self.change_lane(bucket));
        }
        self.show_all(id);
    }

    /// The limit of a group was set: its jobs are held back by it, or not any more. Goes through the buckets behind `last`, which
    /// it moves, as far as the budget lasts, and returns whether these were all.
    pub(super) fn refresh_group(&mut self, group: GroupId, last: &mut Option<BucketId>, budget: &mut u32) -> bool {
        let Group { name, gate, .. } = &self.limits.groups[group.index()];
        let (limit, gate) = (self.limits.limit_of_group(name), *gate);
        self.change_gate(gate, |gate| gate.limit = limit);
        loop {
            let rest = (last.map_or(Unbounded, Excluded), Unbounded);
            let next = self.limits.groups[group.index()].buckets.range(rest).next().copied();
            let Some(bucket) = next else { return true };
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            self.change_lane(bucket);
            *last = next;
        }
    }
}
