//! Reservations: at once, or after a wait.

use crate::state::conns::Wait;
use crate::state::ids::{SetId, TubeId};
use crate::state::job::{Job, JobId, JobKey, JobPlacement, To};
use crate::state::tally::Counted;
use crate::state::{Commit, FEW, Reply, Reserve, SLICE, State, Step, Task, TubeName};
use crate::stats::Jobs as Stat;
use poolcounter_core::{ConnId, Metered as _, Span, meter};

/// Cost of a dropped job while the store cannot keep up: few are dropped at once.
const COST_OF_A_LATE_DROP: u32 = 64;

/// Result of the search for the next job of a set of watches.
pub(super) enum NextJob {
    /// This job, in this turn of the set.
    Job(usize, JobKey),
    Nothing,
    /// None yet: the search has used up its budget, and goes on later.
    Later,
}

impl State {
    /// `reserve`, `reserve-with-timeout`, `reserve-many`: reserves a job at once, or waits for one.
    pub fn reserve(&mut self, id: ConnId, request: Reserve, step: &mut Step<'_, '_>) {
        self.figures.count(match request {
            Reserve { many: Some(_), .. } => Stat::ReserveMany,
            Reserve { timeout: Some(_), .. } => Stat::ReserveWithTimeout,
            Reserve { .. } => Stat::Reserve,
        });
        self.conns.note_worker(id);
        let set = self.enter_set(id);
        if !self.sets[set].is_built && !self.has_room_for_clients(0) {
            return step.reply(id, Reply::OutOfMemory);
        }
        let next = if self.is_later(set) { NextJob::Later } else { self.next_job(set, &mut SLICE.clone(), step) };
        let is_known = match next {
            NextJob::Job(turn, key) => return self.give(id, set, (turn, key), request.many, step),
            // An opened limit may still hold back jobs that were not examined.
            NextJob::Nothing => self.is_shut || self.limits.opened.is_empty(),
            NextJob::Later => false,
        };
        if is_known && self.is_deadline_soon(id, step.now) {
            return step.reply(id, Reply::DeadlineSoon);
        }
        if is_known && request.timeout == Some(0) {
            return step.reply(id, Reply::TimedOut);
        }
        let until = request.timeout.map(|seconds| step.now + Span::from_secs(u64::from(seconds)));
        let wait = Wait { ticket: self.sets.tickets.draw(), until, many: request.many };
        self.begin_wait(id, set, wait, is_known);
        self.arm_conn(id, step.timers);
        if !is_known {
            self.go_on(Task::Serve, step);
        }
    }

    /// Makes a connection wait. `is_known` is true if there is certainly no job for it; otherwise the search goes on.
    pub(in crate::state) fn begin_wait(&mut self, id: ConnId, set: SetId, wait: Wait, is_known: bool) {
        let first = self.sets[set].waiting.front().and_then(|conn| self.conns[conn].wait);
        self.conns[id].wait = Some(wait);
        self.sets.begin_wait(set, id);
        if !is_known {
            self.sets.awake.set(set, first.unwrap_or(wait).ticket);
        } else if first.is_none() {
            self.register(set, wait.ticket);
        }
    }

    /// Returns whether the search for jobs for the waiting connections of a set is unfinished.
    pub(in crate::state) fn is_later(&self, set: SetId) -> bool {
        let (is_awake, set) = (self.sets.awake.of(set).is_some(), &self.sets[set]);
        let is_every_set_woken = self.sets.waking.is_some() || !self.limits.opened.is_empty();
        let has_fresh = || {
            self.feeds.fresh.first().is_some()
                && set.turns.iter().metered().any(|turn| self.feeds.fresh.of(turn.feed).is_some())
        };
        let is_woken = || !set.waiting.is_empty() && (is_every_set_woken || has_fresh());
        !self.is_shut && (is_awake || is_woken())
    }

    /// Returns whether there is news for waiting connections: jobs, opened limits, or unfinished searches.
    pub(in crate::state) fn has_news(&self) -> bool {
        self.feeds.fresh.first().is_some()
            || !self.limits.opened.is_empty()
            || self.sets.awake.first().is_some()
            || self.sets.waking.is_some()
    }

    /// `reserve-job`: reserves this job in any state, unless a limit holds it back.
    pub fn reserve_this(&mut self, conn: ConnId, id: JobId, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::ReserveJob);
        self.conns.note_worker(conn);
        if self.is_shut {
            return step.reply(conn, Reply::InternalError);
        }
        let Some(key) = self.visible(id).filter(|key| self.jobs[*key].place != JobPlacement::Reserved) else {
            return step.reply(conn, Reply::NotFound);
        };
        let (tube, group, place) = (self.jobs[key].tube, self.jobs.group_of(key), self.jobs[key].place);
        if place != JobPlacement::Buried && self.is_superseded(key) {
            self.drop_superseded(key, step);
            step.reply(conn, Reply::NotFound);
            return self.serve_waiting(step);
        }
        if self.is_held_back(tube, group) {
            return step.reply(conn, Reply::NotFound);
        }
        self.reserve_job((conn, true), key, step);
        if place != JobPlacement::Ready {
            // The store has it as ready from now on.
            self.note_job(key);
        }
        step.reply(conn, Reply::Reserved(id));
        self.arm_conn(conn, step.timers);
    }

    /// Returns the next job of a set. Drops leaves of superseded root jobs on the way.
    pub(super) fn next_job(&mut self, set: SetId, budget: &mut u32, step: &mut Step<'_, '_>) -> NextJob {
        if self.is_shut {
            return NextJob::Nothing;
        }
        if !self.build(set, budget) {
            return NextJob::Later;
        }
        loop {
            let Some((turn, tube)) = self.choose(set, budget) else { return NextJob::Nothing };
            let first = self.tubes[tube].first.expect("a tube that is chosen has a job to give");
            let key = self.jobs.find(first.id()).expect("a tube knows only jobs that there are");
            if !self.jobs[key].has_extra {
                return NextJob::Job(turn, key);
            }
            let is_superseded = self.is_superseded(key);
            let is_held_back = self.jobs.group_of(key).is_some_and(|group| self.limits.is_at_limit(group));
            if !is_superseded && !is_held_back {
                return NextJob::Job(turn, key);
            }
            // Guarantees progress: passes one job even when the budget is exhausted.
            if is_held_back {
                self.place(tube);
            } else {
                self.drop_superseded(key, step);
            }
            if *budget == 0 {
                return NextJob::Later;
            }
            *budget = budget.saturating_sub(if self.is_backed_up() { COST_OF_A_LATE_DROP } else { 1 });
        }
    }

    /// Returns the next tube of a set, and its turn.
    fn choose(&mut self, set: SetId, budget: &mut u32) -> Option<(usize, TubeId)> {
        let set = &self.sets[set];
        if let Some(giving) = &set.giving {
            let mut passed = 0;
            let open = giving.iter().inspect(|_| passed += 1);
            let open = open.map(|(_, tube)| *tube).find(|tube| self.limits.is_open(self.tubes[*tube].lane));
            self.spend_on_entries(passed, budget);
            return open.map(|tube| (0, tube));
        }
        let mut entries = set.turns.len();
        let mut best: Option<((u32, u128), usize, TubeId)> = None;
        for (place, turn) in set.turns.iter().enumerate() {
            entries += self.feeds[turn.feed].lanes.len();
            let Some((pri, _, tube)) = self.first_of(turn.feed) else { continue };
            let order =
                if set.is_fair { turn.pass } else { self.tubes[tube].first.map_or(0, |first| first.id().0.into()) };
            if best.is_none_or(|(least, ..)| (pri, order) < least) {
                best = Some(((pri, order), place, tube));
            }
        }
        self.spend_on_entries(entries, budget);
        best.map(|(_, place, tube)| (place, tube))
    }

    /// Counts entries of a set that were looked at.
    fn spend_on_entries(&mut self, entries: usize, budget: &mut u32) {
        meter::visit_many(entries / FEW);
        self.visited += entries / FEW;
        // Lossless: there are fewer.
        *budget = budget.saturating_sub((entries / FEW) as u32);
    }

    /// Reserves the next job of its set for a connection, and as many more as it has asked for and there are.
    pub(super) fn give(
        &mut self,
        conn: ConnId,
        set: SetId,
        (mut turn, mut key): (usize, JobKey),
        many: Option<u32>,
        step: &mut Step<'_, '_>,
    ) {
        let mut budget = SLICE;
        for left in (0..many.unwrap_or(1)).rev() {
            if self.sets[set].is_fair {
                self.sets[set].advance(turn);
            }
            // The jobs of a `reserve-many` have not begun.
            self.reserve_job((conn, many.is_none()), key, step);
            let Job { tube, pri, id, .. } = self.jobs[key];
            self.rotate(tube, pri);
            step.reply(conn, Reply::Reserved(id));
            if left == 0 || budget == 0 {
                break;
            }
            match self.next_job(set, &mut budget, step) {
                NextJob::Job(next_turn, next) => (turn, key) = (next_turn, next),
                NextJob::Nothing | NextJob::Later => break,
            }
        }
        if many.is_some() {
            step.reply(conn, Reply::End);
        }
        self.arm_conn(conn, step.timers);
    }

    fn reserve_job(&mut self, (conn, is_begun): (ConnId, bool), key: JobKey, step: &mut Step<'_, '_>) {
        let job = &self.jobs[key];
        let waited = (job.place == JobPlacement::Ready).then(|| step.now.since(job.at));
        let tube = job.tube;
        self.conns[conn].rates.count(Counted::Reserve, step.now);
        let noted = Some((Counted::Reserve, waited));
        self.move_noted(key, To::Reserved(conn, is_begun), noted, step);
        // Delayed jobs are counted by it.
        self.jobs[key].reserves.bump();
        self.note_start(tube, self.jobs.group_of(key), step);
    }

    /// Returns true if the job is the leaf of a root job for which there is a newer timestamp.
    pub(in crate::state) fn is_superseded(&self, key: JobKey) -> bool {
        let Some((signature, timestamp)) = self.jobs.root_of(key) else { return false };
        let tube = &self.tubes[self.jobs[key].tube];
        self.roots.newest(&tube.name, signature).is_some_and(|(newest, _)| newest > timestamp)
    }

    pub(in crate::state) fn drop_superseded(&mut self, key: JobKey, step: &mut Step<'_, '_>) {
        let tube = self.jobs[key].tube;
        self.tubes[tube].rare().dropped += 1;
        self.figures.count(Stat::Superseded);
        self.delete_job(key, Some((Counted::Superseded, None)), step);
    }

    /// `dropped`: takes the number of superseded jobs that were dropped in a tube, which may be hidden.
    pub fn take_dropped(&mut self, conn: ConnId, tube: TubeName<'_>, step: &mut Step<'_, '_>) {
        let tube = self.tubes.find(tube.bytes());
        let dropped =
            tube.and_then(|tube| Some(std::mem::take(&mut self.tubes[tube].some_rare()?.dropped))).unwrap_or_default();
        step.reply(conn, Reply::Dropped(dropped));
    }

    /// Sets whether jobs are given out; waiting connections go on to wait.
    pub fn set_shut(&mut self, is_shut: bool, step: &mut Step<'_, '_>) {
        if std::mem::replace(&mut self.is_shut, is_shut) == is_shut || is_shut {
            return;
        }
        self.sets.waking = Some(0);
        self.serve_waiting(step);
    }

    /// Returns the job with this number, if its put is committed.
    pub(in crate::state) fn visible(&self, id: JobId) -> Option<JobKey> {
        self.jobs.find(id).filter(|key| self.jobs[*key].place != JobPlacement::Pending)
    }

    /// Returns the commit that put a job, if it is not committed yet.
    pub(in crate::state) fn put_commit(&self, key: JobKey) -> Option<Commit> {
        let job = &self.jobs[key];
        (job.place == JobPlacement::Pending).then(|| Commit(job.commit()))
    }
}
