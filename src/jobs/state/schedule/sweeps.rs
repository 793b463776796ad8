//! Commands that go through many tubes or jobs, in slices, so that connections are served between them.

use crate::state::background::{Answer, COST, Queue, Sweep, Task, Work};
use crate::state::ids::{GroupId, SweepId, TubeId};
use crate::state::job::{Job, JobKey, JobPlacement};
use crate::state::{JobState, Pattern, Reply, SLICE, State, Step};
use crate::stats::Jobs as Stat;
use poolcounter_core::{ConnId, Id, Metered as _, Span};
use std::sync::Arc;

/// Queues of the jobs that nobody has reserved, of the buried ones with dead letters, and of both these and delayed ones.
const WAITING: &[Queue] = &[Queue::Ready, Queue::Delayed, Queue::Buried];
const GIVEN_UP: &[Queue] = &[Queue::Buried, Queue::Dead];
const KICKED: &[Queue] = &[Queue::Buried, Queue::Dead, Queue::Delayed];

/// Returns the queues of the waiting jobs in this state, or of all.
pub(in crate::state) fn queues_of(state: Option<JobState>) -> &'static [Queue] {
    match state {
        None => WAITING,
        Some(JobState::Ready) => &[Queue::Ready],
        Some(JobState::Delayed) => &[Queue::Delayed],
        Some(JobState::Buried) => &[Queue::Buried],
        Some(JobState::Reserved) => &[],
    }
}

impl State {
    /// `clear`: deletes the jobs of these tubes that are in this state, or in any but reserved. Later requests of the
    /// holder of such a job get NOT_FOUND.
    pub fn clear(&mut self, conn: ConnId, pattern: Pattern<'_>, state: Option<JobState>, step: &mut Step<'_, '_>) {
        let work = match state {
            Some(JobState::Reserved) => Work::Cancel(self.who(conn, step)),
            waiting => Work::Clear(queues_of(waiting)),
        };
        self.begin_sweep(Some(conn), pattern, work, Answer::Count(Reply::Cleared), step);
    }

    /// `kick-all`: makes the buried and delayed jobs of these tubes ready, or only the jobs in one of the states. Dead
    /// letters count as buried.
    pub fn kick_all(&mut self, conn: ConnId, pattern: Pattern<'_>, state: Option<JobState>, step: &mut Step<'_, '_>) {
        let queues = match state {
            None => KICKED,
            Some(JobState::Buried) => GIVEN_UP,
            other => queues_of(other),
        };
        self.begin_sweep(Some(conn), pattern, Work::Kick(queues, u32::MAX), Answer::Count(Reply::Kicked), step);
    }

    /// `kick`: makes at most `bound` buried jobs of the used tube ready; if there are none, delayed ones.
    pub fn kick(&mut self, conn: ConnId, bound: u32, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::Kick);
        let tube = &self.tubes[self.conns[conn].used];
        let (name, has_given_up) = (tube.name.clone(), tube.buried.len > 0 || !tube.dead.is_empty());
        let queues = if has_given_up { GIVEN_UP } else { queues_of(Some(JobState::Delayed)) };
        let pattern = Pattern::parse(&name).expect("the name of a tube is a pattern");
        self.begin_sweep(Some(conn), pattern, Work::Kick(queues, bound), Answer::Count(Reply::Kicked), step);
    }

    /// Starts a command, for a client or without a request.
    pub(in crate::state) fn begin_sweep(
        &mut self,
        conn: Option<ConnId>,
        pattern: Pattern<'_>,
        work: Work,
        answer: Answer,
        step: &mut Step<'_, '_>,
    ) {
        let (pattern, since) = (pattern.bytes().into(), step.now);
        self.go(Sweep { conn, pattern, since, next: 0, work, answer, count: 0 }, step);
    }

    /// Starts the update of the groups of this name, all if it is `*`, after a limit has changed.
    pub(in crate::state) fn begin_group_sweep(
        &mut self,
        conn: Option<ConnId>,
        name: &[u8],
        reply: Reply,
        step: &mut Step<'_, '_>,
    ) {
        let own = || self.limits.find_group(name).map_or(0..0, |group| group.index()..group.index() + 1);
        let places = if name == b"*" { 0..self.limits.groups.capacity() } else { own() };
        let (work, answer, since) = (Work::Groups(places.end), Answer::Fixed(reply), step.now);
        self.go(Sweep { conn, pattern: name.into(), since, next: places.start, work, answer, count: 0 }, step);
    }

    fn go(&mut self, sweep: Sweep, step: &mut Step<'_, '_>) {
        let conn = sweep.conn;
        let id = self.background.insert(sweep);
        if let Some(conn) = conn {
            self.conns[conn].sweep = Some(id);
        }
        self.run(id, true, step);
    }

    /// Answers the clients of commands that were begun longer ago than `after`: the outcome is unknown. The commands go
    /// on.
    pub fn give_up_sweeps(&mut self, after: Span, step: &mut Step<'_, '_>) {
        let is_late = |(_, sweep): &(SweepId, &Sweep)| step.now.since(sweep.since) >= after;
        let late: Vec<SweepId> = self.background.sweeps().filter(is_late).map(|(id, _)| id).collect();
        for conn in late.into_iter().filter_map(|id| self.background.abandon(id)) {
            self.conns[conn].sweep = None;
            step.reply(conn, Reply::InternalError);
        }
    }

    /// Returns true while too many commands go on whose clients have gone: more commands that go through tubes must
    /// wait.
    pub fn is_crowded(&self) -> bool {
        self.background.is_crowded()
    }

    /// Runs commands in turn within the slice, this number at most. Each costs something, even if it has to wait.
    pub(in crate::state) fn run_some(&mut self, most: usize, may_wait: bool, step: &mut Step<'_, '_>) {
        for _ in 0..most {
            if !step.timers.spend(COST) {
                return;
            }
            let Some(id) = self.background.queued_sweeps.pop_front() else { return };
            self.run(id, may_wait, step);
        }
    }

    /// Runs a command as far as the budget of the tick reaches.
    pub(in crate::state) fn run(&mut self, id: SweepId, may_wait: bool, step: &mut Step<'_, '_>) {
        // Its changes must be committed, too: it waits like connections that would change more.
        let whole = if may_wait && self.is_backed_up() { 0 } else { step.timers.budget() / COST };
        let mut left = whole;
        let is_done = self.run_slice(id, &mut left, step);
        step.timers.spend((whole - left) * COST);
        if is_done {
            return self.finish(id, step);
        }
        self.go_on(Task::Sweep(id), step);
    }

    /// Runs a slice, and returns true once every tube is done.
    fn run_slice(&mut self, id: SweepId, budget: &mut u32, step: &mut Step<'_, '_>) -> bool {
        if let Work::Groups(_) = self.background[id].work {
            let is_done = self.refresh_groups(id, budget);
            self.serve_waiting(step);
            return is_done;
        }
        let pattern = self.background[id].pattern.clone();
        let pattern = Pattern::parse(&pattern).expect("a sweep is begun with a pattern");
        if let Work::Cancel(who) = &self.background[id].work {
            return self.cancel_all(id, pattern, &who.clone(), budget, step);
        }
        if let Some(name) = pattern.plain() {
            return self.tubes.find(name.bytes()).is_none_or(|tube| self.work_on(id, tube, budget, step));
        }
        while self.background[id].next < self.tubes.capacity() {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            let index = self.background[id].next;
            let own = self.tubes.at(index).filter(|(_, tube)| pattern.matches(&tube.name));
            if let Some((tube, _)) = own
                && !self.work_on(id, tube, budget, step)
            {
                return false;
            }
            self.background[id].next += 1;
        }
        true
    }

    /// Deletes reserved jobs, which no tube lists. Returns true when every place of the table of jobs is done.
    fn cancel_all(
        &mut self,
        id: SweepId,
        pattern: Pattern<'_>,
        who: &Arc<[u8]>,
        budget: &mut u32,
        step: &mut Step<'_, '_>,
    ) -> bool {
        while *budget > 0 {
            let is_meant =
                |job: &Job| job.place == JobPlacement::Reserved && pattern.matches(&self.tubes[job.tube].name);
            let (jobs, next) = self.jobs.iter_from(self.background[id].next, SLICE as usize);
            let (mut seen, mut meant) = (0, Vec::new());
            for (key, job) in jobs.metered() {
                seen += 1;
                meant.extend(is_meant(job).then_some(key));
            }
            *budget = budget.saturating_sub(seen);
            self.background[id].count += meant.len() as u64;
            meant.into_iter().for_each(|key| self.cancel_one(key, who, step));
            self.serve_waiting(step);
            let Some(next) = next else { return true };
            self.background[id].next = next;
        }
        false
    }

    /// Updates groups, and returns true once every group is done.
    fn refresh_groups(&mut self, id: SweepId, budget: &mut u32) -> bool {
        let sweep = &self.background[id];
        let Work::Groups(end) = sweep.work else { return true };
        for place in (sweep.next..end).metered() {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            self.background[id].next = place + 1;
            if self.limits.groups.contains(place) {
                self.refresh_group(GroupId::from_index(place));
            }
        }
        true
    }

    /// Works on one tube, and returns true once the tube is done.
    fn work_on(&mut self, id: SweepId, tube: TubeId, budget: &mut u32, step: &mut Step<'_, '_>) -> bool {
        if let Work::Refresh(_) = self.background[id].work {
            // Settings of five kinds are looked up.
            *budget = budget.saturating_sub(1);
            self.refresh(tube);
            self.serve_waiting(step);
            return true;
        }
        while let Some(key) = self.next_of(id, tube) {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            self.background[id].count += 1;
            match &mut self.background[id].work {
                Work::Move(_, target) => {
                    let target = target.clone();
                    let is_moved = self.move_one(key, &target, step);
                    self.background[id].count -= u64::from(!is_moved);
                }
                Work::Kick(_, left) => {
                    *left -= 1;
                    self.kick_one(key, step);
                }
                _ => self.delete_job(key, None, step),
            }
            if self.tubes.get(tube).is_none() {
                return true;
            }
        }
        true
    }

    /// Returns the next job of a tube to work on.
    fn next_of(&self, id: SweepId, tube: TubeId) -> Option<JobKey> {
        let tube = &self.tubes[tube];
        let queues = match &self.background[id].work {
            Work::Kick(_, 0) | Work::Cancel(_) | Work::Refresh(_) | Work::Groups(_) => return None,
            Work::Move(_, target) if **target == *tube.name => return None,
            Work::Clear(queues) | Work::Move(queues, _) | Work::Kick(queues, _) => queues,
        };
        queues.iter().find_map(|queue| match queue {
            Queue::Ready => tube.waiting.front(),
            Queue::Delayed => self.jobs.find(tube.delayed.first()?.1),
            Queue::Buried => tube.buried.front(),
            Queue::Dead => self.jobs.find(*tube.dead.first()?),
        })
    }

    fn finish(&mut self, id: SweepId, step: &mut Step<'_, '_>) {
        let Sweep { conn, work, answer, count, .. } = self.background.remove(id);
        // Successors of a cleared job may go on.
        self.serve_waiting(step);
        if let Work::Refresh(Some(gate)) = work {
            self.limits.gates.remove(gate.index());
        }
        let Some(conn) = conn else { return };
        self.conns[conn].sweep = None;
        let (reply, promises) = match answer {
            Answer::Fixed(reply) => (reply, true),
            Answer::Count(reply) => (reply(count), count > 0),
        };
        let after = if promises { self.this_commit() } else { None };
        step.reply_after(conn, reply, after);
    }
}
