//! Starts of jobs, and groups whose jobs wait to be tried again: they close gates, which open again when a period or a
//! delay is over.

use super::background::keep_timer_at;
use super::ids::{GateId, GroupId, TubeId};
use super::job::JobKey;
use super::limits::{Gate, Group, Limits, TubeLimits};
use super::rates::{GateRate, OF_GROUP, OF_PATTERN, OF_TUBE, Rate, Rates, SavedStarts};
use super::{State, Step, Timer};
use poolcounter_core::count::SmallCount;
use poolcounter_core::id::Id;
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::TimerId;

/// Most periods that end in one step.
const MOST_ENDS: usize = 64;

impl TubeLimits {
    /// Adds the gate of the tube's own rate.
    pub fn add_own(&mut self, gate: GateId) {
        self.counted = [&*self.counted, &[gate]].concat().into();
        let mut held = [&*self.held, &[gate]].concat();
        held.sort_unstable();
        self.held = held.into();
    }
}

impl Limits {
    /// Returns a new gate for a rate.
    pub fn insert_rated(&mut self, rate: GateRate) -> GateId {
        let mut gate = Gate::new(0);
        gate.rate = Some(Box::new(rate));
        GateId::from_index(self.gates.insert(gate))
    }
}

impl State {
    /// Sets a rate, of which the tubes do not know yet, and returns a gate to remove once they do. A rate that changes
    /// begins anew.
    pub(super) fn set_rate(&mut self, pattern: &[u8], (most, per): (u32, u32), is_all: bool) -> Option<GateId> {
        let old = self.limits.rates.of_tubes.of(pattern).copied();
        if old.is_some_and(|old| (old.most, old.per, old.gate.is_some()) == (most, per, is_all && most > 0)) {
            return None;
        }
        self.limits.rates.forget(&Rates::log_of(OF_PATTERN, pattern));
        let rate = self.limits.rates.gate_rate(OF_PATTERN, pattern, (most, per)).filter(|_| is_all);
        let (gate, retired) = self.change_rate(old.and_then(|old| old.gate), rate);
        self.limits.rates.of_tubes.insert(pattern, Rate { most, per, gate });
        retired
    }

    /// Removes a rate, of which the tubes do not know yet, and returns a gate to remove once they do.
    pub(super) fn remove_rate(&mut self, pattern: &[u8]) -> Option<GateId> {
        self.limits.rates.forget(&Rates::log_of(OF_PATTERN, pattern));
        self.limits.rates.of_tubes.remove(pattern).and_then(|rate| rate.gate)
    }

    /// Updates the gate of a tube's own rate, and returns a gate to remove once the tube is in no lane with it.
    pub(super) fn refresh_rate(&mut self, id: TubeId, limits: &mut TubeLimits) -> Option<GateId> {
        let (name, own) = (self.tubes[id].name.clone(), self.tubes[id].rate_gate);
        let is_same = own.is_some_and(|gate| {
            let rate = self.limits.gates[gate.index()].rate.as_ref();
            rate.map(|rate| rate.numbers()) == limits.own_rate
        });
        let (gate, retired) = if is_same {
            (own, None)
        } else {
            self.limits.rates.forget(&Rates::log_of(OF_TUBE, &name));
            let rate = limits.own_rate.and_then(|rate| self.limits.rates.gate_rate(OF_TUBE, &name, rate));
            self.change_rate(own, rate)
        };
        self.tubes[id].rate_gate = gate;
        gate.into_iter().for_each(|gate| limits.add_own(gate));
        retired
    }

    /// Returns the gate of a changed rate, which is the known gate or a new one, and the known gate if it is not needed
    /// any more.
    fn change_rate(&mut self, known: Option<GateId>, rate: Option<GateRate>) -> (Option<GateId>, Option<GateId>) {
        match (known, rate) {
            (Some(gate), Some(rate)) => {
                self.change_gate(gate, |gate| gate.rate = Some(Box::new(rate)));
                (Some(gate), None)
            }
            (None, Some(rate)) => (Some(self.limits.insert_rated(rate)), None),
            (known, None) => (None, known),
        }
    }

    /// Updates the limit of a group from the settings.
    pub(super) fn refresh_group(&mut self, group: GroupId) {
        let Group { name, gate, .. } = &self.limits.groups[group.index()];
        let ((limit, is_ordered), gate) = (self.limits.limit_of_group(name), *gate);
        let mut rate = self.limits.rates.of_group(name);
        let old = self.limits.gates[gate.index()].rate.as_ref();
        if old.is_none() || old.map(|old| old.numbers()) != rate.as_ref().map(GateRate::numbers) {
            let name = Rates::log_of(OF_GROUP, name);
            self.limits.rates.forget(&name);
            rate.iter_mut().for_each(|rate| rate.is_full = false);
        }
        let rate = rate.map(Box::new);
        self.change_gate(gate, |gate| (gate.limit, gate.is_ordered, gate.rate) = (limit, is_ordered, rate));
    }

    /// Counts a delayed job of a group that was reserved before, or one less.
    pub(super) fn count_retrying(&mut self, key: JobKey, change: impl FnOnce(&mut u32)) {
        let group = self.jobs.group_of(key).filter(|_| self.jobs[key].reserves > SmallCount::ZERO);
        if let Some(group) = group {
            self.change_gate(self.limits.groups[group.index()].gate, |gate| change(&mut gate.retrying));
        }
    }

    /// Counts the start of a job.
    pub(super) fn note_start(&mut self, tube: TubeId, group: Option<GroupId>, step: &mut Step<'_, '_>) {
        let Limits { gates, groups, rates, .. } = &mut self.limits;
        let group = group.map(|group| groups[group.index()].gate);
        for gate in self.tubes[tube].counted.iter().copied().chain(group) {
            if let Some(rate) = &mut gates[gate.index()].rate {
                rates.start(rate, step.now);
            }
        }
        self.arm_rates(None, step);
    }

    /// Keeps the timer at the first end of a log, or earlier, but not before `least`.
    fn arm_rates(&mut self, least: Option<Time>, step: &mut Step<'_, '_>) {
        let rates = &mut self.limits.rates;
        let first = rates.first_end().map(|end| end.max(least.unwrap_or(Time::START)));
        keep_timer_at(&mut rates.timer, first, Timer::Rate, step.timers);
    }

    /// Opens the gates whose periods are over.
    pub(super) fn end_rates(&mut self, step: &mut Step<'_, '_>) {
        self.limits.rates.timer.take().into_iter().for_each(TimerId::fired);
        for _ in 0..MOST_ENDS {
            let Some((log, sum)) = self.limits.rates.end_first(step.now) else { break };
            if let Some(gate) = self.gate_of(&log) {
                self.change_gate(gate, |gate| {
                    gate.rate.iter_mut().for_each(|rate| rate.is_full = sum >= u64::from(rate.most));
                });
            }
        }
        self.serve_waiting(step);
        self.arm_rates(Some(step.now), step);
    }

    /// Returns the gate with this log.
    fn gate_of(&self, log: &[u8]) -> Option<GateId> {
        let (kind, name) = log.split_first()?;
        match *kind {
            OF_TUBE => self.tubes[self.tubes.find(name)?].rate_gate,
            OF_PATTERN => self.limits.rates.of_tubes.of(name)?.gate,
            _ => Some(self.limits.groups[self.limits.find_group(name)?.index()].gate),
        }
    }

    /// Returns the time until a gate opens whose rate is reached.
    pub(super) fn rate_left(&self, gate: GateId, now: Time) -> Option<Span> {
        let rate = self.limits.gates[gate.index()].rate.as_ref().filter(|rate| rate.is_full)?;
        Some(self.limits.rates.opens(rate)?.since(now))
    }

    /// Restores starts that [`Rates::save`] has visited.
    pub(super) fn restore_starts(&mut self, log: &[u8], starts: SavedStarts, step: &mut Step<'_, '_>) {
        self.limits.rates.restore(log, starts);
        let sum = self.limits.rates.sum(log);
        if let Some(gate) = self.gate_of(log) {
            self.change_gate(gate, |gate| {
                gate.rate.iter_mut().for_each(|rate| rate.is_full = sum >= u64::from(rate.most));
            });
        }
        self.arm_rates(None, step);
    }

    /// Compares the tables with each other.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub(super) fn check_rates(&self) {
        self.limits.rates.check();
        for (_, gate) in &self.limits.gates {
            let Some(rate) = &gate.rate else { continue };
            assert_eq!(rate.is_full, self.limits.rates.sum(&rate.log) >= u64::from(rate.most), "a gate knows its log");
        }
    }
}
