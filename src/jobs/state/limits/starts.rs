//! Starts of jobs, and groups whose jobs wait to be tried again: they hold tubes back, and close gates, until a period
//! or a delay is over.

use crate::state::background::keep_timer_at;
use crate::state::ids::{GateId, GroupId, TubeId};
use crate::state::job::JobKey;
use crate::state::limits::{Gate, Group, Limits, RATES, place_of};
use crate::state::rates::{OF_GROUP, OF_PATTERN, OF_TUBE, Rate, Rates, Starts};
use crate::state::setting::SettingKind;
use crate::state::{Limit, Scope, State, Step, Timer};
use poolcounter_core::{Id, SmallCount, Time, TimerId};

/// Most periods that end in one step.
const MOST_ENDS: usize = 64;

impl State {
    /// Updates the gate of the tubes of a limit after a change of which they do not know yet, and returns the gate to
    /// remove once they do. A rate that changes begins anew.
    pub(in crate::state) fn change_shared_gate(
        &mut self,
        pattern: &[u8],
        old: Option<Limit>,
        new: Option<Limit>,
    ) -> Option<GateId> {
        let limit = new.or(old).filter(|_| new != old)?;
        if limit.per.is_some() {
            self.limits.rates.forget(&Rates::log_of(OF_PATTERN, pattern));
        }
        let place = place_of(limit);
        let shared = &mut self.limits.shared[place];
        let known = shared.get(pattern).copied();
        let Some(new) = new.filter(|limit| limit.scope == Scope::All) else {
            shared.remove(pattern);
            return known;
        };
        let gate = self.limits.gate_of(new, OF_PATTERN, pattern);
        match known {
            Some(known) => self.change_gate(known, |known| (known.limit, known.rate) = (gate.limit, gate.rate)),
            None => {
                let gate = GateId::from_index(self.limits.gates.insert(gate));
                self.limits.shared[place].insert(pattern.into(), gate);
            }
        }
        None
    }

    /// Updates the rate of a tube.
    pub(in crate::state) fn refresh_rate(&mut self, id: TubeId, limit: Limit) {
        let tube = &mut self.tubes[id];
        if tube.rate.as_ref().map_or(Limit::default(), |rate| rate.limit) != limit {
            self.limits.rates.forget(&Rates::log_of(OF_TUBE, &tube.name));
            tube.rare().rate = self.limits.rates.rate(OF_TUBE, &tube.name, limit);
        }
    }

    /// Updates the limits of a group from the settings.
    pub(in crate::state) fn refresh_group(&mut self, group: GroupId) {
        let Group { name, gate, .. } = &self.limits.groups[group.index()];
        let (name, id) = (name.clone(), *gate);
        let known = self.limits.gates[id.index()].rate.as_ref().map(|rate| rate.limit);
        if known != Some(self.settings.limit_of_group(SettingKind::GroupRate, &name)) {
            self.limits.rates.forget(&Rates::log_of(OF_GROUP, &name));
        }
        let Gate { limit, is_ordered, rate, .. } = self.limits.gate_of_group(&name, &self.settings);
        self.change_gate(id, |gate| (gate.limit, gate.is_ordered, gate.rate) = (limit, is_ordered, rate));
    }

    /// Counts a delayed job that waits to be tried again, and in its group one that was reserved before, or one less.
    pub(in crate::state) fn count_retrying(&mut self, key: JobKey, is_more: bool) {
        if self.jobs.is_retried(key) {
            self.tubes.count_retrying(self.jobs[key].tube, is_more);
        }
        let group = self.jobs.group_of(key).filter(|_| self.jobs[key].reserves > SmallCount::ZERO);
        if let Some(group) = group {
            let change = |gate: &mut Gate| if is_more { gate.retrying += 1 } else { gate.retrying -= 1 };
            self.change_gate(self.limits.groups[group.index()].gate, change);
        }
    }

    /// Counts the start of a job.
    pub(in crate::state) fn note_start(&mut self, id: TubeId, group: Option<GroupId>, step: &mut Step<'_, '_>) {
        let Limits { gates, groups, rates, .. } = &mut self.limits;
        let group = group.map(|group| groups[group.index()].gate);
        let rare = self.tubes[id].some_rare();
        let counted = rare.iter().flat_map(|rare| rare.counted.iter().copied());
        for gate in counted.chain(group) {
            if let Some(rate) = &mut gates[gate.index()].rate {
                rates.start(rate, step.now);
            }
        }
        if let Some(rate) = rare.and_then(|rare| rare.rate.as_mut()) {
            rates.start(rate, step.now);
            self.place(id);
        }
        self.arm_rates(None, step);
    }

    /// Keeps the timer at the first end of a log, or earlier, but not before `least`.
    fn arm_rates(&mut self, least: Option<Time>, step: &mut Step<'_, '_>) {
        let rates = &mut self.limits.rates;
        let first = rates.first_end().map(|end| end.max(least.unwrap_or(Time::START)));
        keep_timer_at(&mut rates.timer, first, Timer::Rate, step.timers);
    }

    /// Ends periods that are over.
    pub(in crate::state) fn end_rates(&mut self, step: &mut Step<'_, '_>) {
        self.limits.rates.timer.take().into_iter().for_each(TimerId::fired);
        for _ in 0..MOST_ENDS {
            let Some((log, sum)) = self.limits.rates.end_first(step.now) else { break };
            self.note_starts(&log, sum);
        }
        self.serve_waiting(step);
        self.arm_rates(Some(step.now), step);
    }

    /// Notes the number of starts of a log that count, and shows what its rate has held back.
    fn note_starts(&mut self, log: &[u8], sum: u64) {
        let Some((kind, name)) = log.split_first() else { return };
        let gate = match *kind {
            OF_TUBE => {
                if let Some(tube) = self.tubes.find(name) {
                    self.tubes[tube].rare().rate.iter_mut().for_each(|rate| rate.note(sum));
                    self.place(tube);
                }
                None
            }
            OF_PATTERN => self.limits.shared[RATES].get(name).copied(),
            _ => self.limits.find_group(name).map(|group| self.limits.groups[group.index()].gate),
        };
        if let Some(gate) = gate {
            self.change_gate(gate, |gate| gate.rate.iter_mut().for_each(|rate| rate.note(sum)));
        }
    }

    /// Restores the starts of a log, as [`Rates::saved`] has returned them.
    pub(in crate::state) fn restore_starts(&mut self, log: &[u8], starts: Vec<Starts>, step: &mut Step<'_, '_>) {
        self.limits.rates.restore(log, starts);
        self.note_starts(log, self.limits.rates.sum(log));
        self.arm_rates(None, step);
    }

    /// Compares the tables with each other.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub(in crate::state) fn check_rates(&self) {
        self.limits.rates.check();
        let of_gates = self.limits.gates.iter().filter_map(|(_, gate)| gate.rate.as_deref());
        let of_tubes = self.tubes.iter().filter_map(|(_, tube)| tube.rate.as_deref());
        for Rate { log, limit, is_full } in of_gates.chain(of_tubes) {
            assert_eq!(*is_full, self.limits.rates.sum(log) >= u64::from(limit.most), "a rate knows its log");
        }
    }
}
