//! Reservations: at once, or after a wait.

use super::conns::Wait;
use super::feeds::Feeds;
use super::ids::{FeedId, LaneId, SetId, TubeId};
use super::job::{JobId, JobKey, JobPlacement, To};
use super::limits::Limits;
use super::sets::{Choice, Later, Standings};
use super::tally::Noted;
use super::tally::Rated;
use super::tubes::Tubes;
use super::{Commit, FEW, Reply, Reserve, SLICE, State, Step, TubeName};
use crate::stats::Jobs as Stat;
use poolcounter_core::id::ConnId;
use poolcounter_core::meter::{self, Metered as _};
use poolcounter_core::time::Span;

mod waiters;

/// Cost of a dropped job while the store cannot keep up: few are dropped at once.
const COST_OF_A_LATE_DROP: u32 = 64;
/// Number of tubes that a search may pass over when the lanes have used up its budget, so that it gets further.
const LEAST_PASSED: u32 = 64;

/// Result of the search for the next job of a set of watches.
enum NextJob {
    /// A job of this tube, in this turn.
    Job(u16, Choice, JobKey),
    Nothing,
    /// None yet: the search has used up its budget, and goes on later.
    Later,
}

/// View of tubes, limits and feeds for turns.
struct View<'a> {
    tubes: &'a Tubes,
    limits: &'a Limits,
    feeds: &'a Feeds,
}

impl View<'_> {
    /// Returns a tube that is watched by its name, if it has a job to give.
    fn choice_of(&self, tube: TubeId) -> Option<Choice> {
        let lane = self.tubes[tube].lane;
        let (pri, stamp, _) = self.tubes[tube].standing(tube)?;
        self.is_open(lane).then_some(Choice { pri, stamp, tube, lane, is_served: false })
    }
}

impl Standings for View<'_> {
    fn is_open(&self, lane: LaneId) -> bool {
        self.limits.is_open(lane)
    }

    fn stamp_at(&self, id: TubeId, lane: LaneId, pri: u32) -> Option<u64> {
        let tube = self.tubes.get(id).filter(|tube| tube.lane == lane)?;
        tube.stamps.iter().find(|(own, _)| *own == pri).map(|(_, stamp)| *stamp)
    }

    fn first_feed<T>(&self, id: TubeId, test: impl Fn(FeedId) -> Option<T>) -> Option<T> {
        let tube = &self.tubes[id];
        if tube.epoch == self.feeds.epoch {
            tube.feeds.iter().copied().find_map(test)
        } else {
            self.feeds.covering(&tube.name).find_map(test)
        }
    }
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
            NextJob::Job(turn, choice, key) => return self.give(id, set, (turn, choice, key), request.many, step),
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
        let wait = Wait { ticket: self.sets.next_ticket(), until, many: request.many };
        self.begin_wait(id, set, wait, is_known);
        self.arm_conn(id, step.timers);
        if !is_known {
            self.arm_serve(step);
        }
    }

    /// Makes a connection wait. `is_known` is true if there is certainly no job for it; otherwise the search goes on.
    pub(super) fn begin_wait(&mut self, id: ConnId, set: SetId, wait: Wait, is_known: bool) {
        let first = self.sets[set].waiting.front().and_then(|conn| self.conns[conn].wait);
        self.conns[id].wait = Some(wait);
        self.sets.begin_wait(set, id);
        if !is_known {
            self.sets.keep_awake(set, first.unwrap_or(wait).ticket);
        } else if first.is_none() {
            self.register(set, wait.ticket);
        }
    }

    /// Returns whether the search for jobs for the waiting connections of a set is unfinished.
    pub(super) fn is_later(&self, set: SetId) -> bool {
        let set = &self.sets[set];
        let is_every_set_woken = self.sets.waking.is_some() || !self.limits.opened.is_empty();
        let has_fresh = || set.feeds.iter().metered().any(|(feed, _)| self.feeds[*feed].is_fresh());
        let is_woken = || !set.waiting.is_empty() && (is_every_set_woken || has_fresh());
        !self.is_shut && (set.awake.is_some() || is_woken())
    }

    /// Returns whether there is news for waiting connections: jobs, opened limits, or unfinished searches.
    pub(super) fn has_news(&self) -> bool {
        self.feeds.first_fresh().is_some()
            || !self.limits.opened.is_empty()
            || self.sets.first_awake().is_some()
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
            return step.reply(conn, Reply::NotFound);
        }
        if self.is_held_back(tube, group) {
            return step.reply(conn, Reply::NotFound);
        }
        self.reserve_job(conn, key, step);
        if place != JobPlacement::Ready {
            // The store has it as ready from now on.
            self.note_job(key);
        }
        step.reply(conn, Reply::Reserved(id));
        self.arm_conn(conn, step.timers);
    }

    /// Returns the next job of a set. Drops leaves of superseded root jobs on the way.
    fn next_job(&mut self, set: SetId, budget: &mut u32, step: &mut Step<'_, '_>) -> NextJob {
        if self.is_shut {
            return NextJob::Nothing;
        }
        if !self.build(set, budget) {
            return NextJob::Later;
        }
        loop {
            let (turn, choice) = match self.choose(set, budget) {
                Ok(Some(next)) => next,
                Ok(None) => return NextJob::Nothing,
                Err(Later) => return NextJob::Later,
            };
            let first = self.tubes[choice.tube].first.expect("a tube that is chosen has a job to give");
            let key = self.jobs.find(first.id()).expect("a tube knows only jobs that there are");
            let is_superseded = self.is_superseded(key);
            let is_held_back = self.jobs.group_of(key).is_some_and(|group| self.limits.is_at_limit(group));
            if !is_superseded && !is_held_back {
                return NextJob::Job(turn, choice, key);
            }
            // A search gets further whatever it costs, so that it comes to its end.
            if is_held_back {
                self.place(choice.tube);
            } else {
                self.drop_superseded(key, step);
            }
            if *budget == 0 {
                return NextJob::Later;
            }
            *budget = budget.saturating_sub(if self.is_backed_up() { COST_OF_A_LATE_DROP } else { 1 });
        }
    }

    /// Panics if a turn of a set does not see a tube.
    pub(super) fn check_turns(&self) {
        let view = View { tubes: &self.tubes, limits: &self.limits, feeds: &self.feeds };
        self.sets.iter().for_each(|(_, set)| set.check_turns(&self.feeds, &view));
    }

    /// Returns the next tube of a set, and its turn.
    fn choose(&mut self, set: SetId, budget: &mut u32) -> Result<Option<(u16, Choice)>, Later> {
        let State { sets, feeds, tubes, limits, visited, .. } = self;
        let view = View { tubes, limits, feeds };
        sets.change(set, |set| {
            let mut best: Option<((u32, u64), u16, Choice)> = None;
            let mut least = LEAST_PASSED;
            let mut spend = |entries: usize, budget: &mut u32| {
                meter::visit_many(entries);
                *visited += entries;
                // Lossless: there are fewer.
                *budget = budget.saturating_sub(entries as u32);
            };
            spend(set.feeds.len() / FEW, budget);
            // Lossless: a connection has at most 1024 watches.
            for place in 0..set.feeds.len() as u16 {
                let feed = &feeds[set.feeds[usize::from(place)].0];
                spend(feed.lanes.len() / FEW, budget);
                let choice = match feed.is_plain {
                    true => feed.tube.and_then(|tube| view.choice_of(tube)),
                    false => {
                        let whole = (*budget).max(least);
                        let mut left = whole;
                        let front = set.front(place, feed, &view, &mut left);
                        let passed = whole - left;
                        (*budget, least) = (budget.saturating_sub(passed), least.saturating_sub(passed));
                        front?
                    }
                };
                let Some(choice) = choice else { continue };
                let rank = if set.is_fair {
                    (choice.pri, set.turns[usize::from(place)].pass)
                } else {
                    (choice.pri, tubes[choice.tube].first.map_or(0, |first| first.id().0))
                };
                if best.is_none_or(|(lowest, ..)| rank < lowest) {
                    best = Some((rank, place, choice));
                }
            }
            Ok(best.map(|(_, place, choice)| (place, choice)))
        })
    }

    /// Reserves the next job of its set for a connection, and as many more as it has asked for and there are.
    fn give(
        &mut self,
        conn: ConnId,
        set: SetId,
        (mut turn, mut choice, mut key): (u16, Choice, JobKey),
        many: Option<u32>,
        step: &mut Step<'_, '_>,
    ) {
        let mut budget = SLICE;
        for left in (0..many.unwrap_or(1)).rev() {
            self.sets[set].advance(turn);
            let stamp = self.feeds.next_stamp();
            self.reserve_job(conn, key, step);
            self.note_served(set, turn, choice, stamp);
            step.reply(conn, Reply::Reserved(self.jobs[key].id));
            if left == 0 || budget == 0 {
                break;
            }
            match self.next_job(set, &mut budget, step) {
                NextJob::Job(next_turn, next_choice, next) => (turn, choice, key) = (next_turn, next_choice, next),
                NextJob::Nothing | NextJob::Later => break,
            }
        }
        if many.is_some() {
            step.reply(conn, Reply::End);
        }
        self.arm_conn(conn, step.timers);
    }

    /// Notes that this tube was served last in the turn of a pattern. Without memory for that, the turns of the set
    /// begin anew.
    fn note_served(&mut self, id: SetId, turn: u16, choice: Choice, stamp: u64) {
        let feed = self.sets[id].feeds[usize::from(turn)].0;
        if self.feeds[feed].is_plain {
            return;
        }
        let has_room = self.used_memory() < self.bounds.max_memory;
        let State { sets, feeds, tubes, limits, .. } = self;
        let view = View { tubes, limits, feeds };
        sets.change(id, |set| {
            set.note_served(turn, choice, stamp, &feeds[feed], &view);
            if !has_room {
                set.forget();
            }
        });
    }

    fn reserve_job(&mut self, conn: ConnId, key: JobKey, step: &mut Step<'_, '_>) {
        let job = &mut self.jobs[key];
        job.reserves.bump();
        let waited = (job.place == JobPlacement::Ready).then(|| step.now.since(job.at));
        let tube = job.tube;
        self.tubes.note(tube, Noted::Reserve(waited), step.now);
        self.conns[conn].rates.count(Rated::Reserve, step.now);
        self.move_job(key, To::Reserved(conn), step.now, step.timers);
    }

    /// Returns true if the job is the leaf of a root job for which there is a newer timestamp.
    pub(super) fn is_superseded(&self, key: JobKey) -> bool {
        let Some((signature, timestamp)) = self.jobs.root_of(key) else { return false };
        let tube = &self.tubes[self.jobs[key].tube];
        self.roots.newest(&tube.name, signature).is_some_and(|(newest, _)| newest > timestamp)
    }

    pub(super) fn drop_superseded(&mut self, key: JobKey, step: &mut Step<'_, '_>) {
        let tube = self.jobs[key].tube;
        self.tubes.note(tube, Noted::Superseded, step.now);
        self.tubes[tube].dropped.bump();
        self.figures.count(Stat::Superseded);
        self.delete_job(key, step.now, step.timers);
    }

    /// `dropped`: takes the number of superseded jobs that were dropped in a tube, which may be hidden.
    pub fn take_dropped(&mut self, conn: ConnId, tube: TubeName<'_>, step: &mut Step<'_, '_>) {
        let tube = self.tubes.find(tube.bytes());
        let dropped = tube.map(|tube| std::mem::take(&mut self.tubes[tube].dropped)).unwrap_or_default();
        step.reply(conn, Reply::Dropped(dropped.get()));
    }

    /// Reserves no jobs until the first [`State::set_shut`]: the restored state may contain jobs that could not be
    /// given out.
    pub fn begin_shut(&mut self) {
        self.is_shut = true;
    }

    /// Sets whether jobs of connections that end count no attempt.
    pub fn set_ending(&mut self, ends_connections: bool) {
        self.ends_connections = ends_connections;
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
    pub(super) fn visible(&self, id: JobId) -> Option<JobKey> {
        self.jobs.find(id).filter(|key| self.jobs[*key].place != JobPlacement::Pending)
    }

    /// Returns the commit that put a job, if it is not committed yet.
    pub(super) fn put_commit(&self, key: JobKey) -> Option<Commit> {
        let job = &self.jobs[key];
        (job.place == JobPlacement::Pending).then(|| Commit(job.commit()))
    }
}
