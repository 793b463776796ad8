//! Reservations: at once, or after a wait.

use super::background::Task;
use super::conns::Wait;
use super::job::{JobId, JobKey, JobPlacement};
use super::placement::To;
use super::sets::{Entry, SetId};
use super::tally::Noted;
use super::tally::Rated;
use super::tube::TubeId;
use super::{Commit, Reply, Reserve, SLICE, State, Step};
use crate::stats::Jobs as Stat;
use poolcounter_core::id::ConnId;
use poolcounter_core::time::Span;

/// Next job of a set of watches.
enum NextJob {
    Job(u16, JobKey),
    Nothing,
    /// So many tubes had to be told of the set, or jobs to be dropped, that the rest must wait.
    Later,
}

impl State {
    /// `reserve`, `reserve-with-timeout`, `reserve-many`: a job at once, or a wait for one.
    pub fn reserve(&mut self, id: ConnId, request: Reserve, step: &mut Step<'_, '_>) {
        self.figures.count(match request {
            Reserve { many: Some(_), .. } => Stat::ReserveMany,
            Reserve { timeout: Some(_), .. } => Stat::ReserveWithTimeout,
            Reserve { .. } => Stat::Reserve,
        });
        self.conns[id].is_worker = true;
        let set = self.enter_set(id);
        let mut drops = SLICE;
        let next = if self.sets.awake().contains(&set) { NextJob::Later } else { self.next_job(set, &mut drops, step) };
        let is_known = match next {
            NextJob::Job(turn, key) => return self.give(id, set, turn, key, request.many, step),
            NextJob::Nothing => true,
            NextJob::Later => false,
        };
        if is_known && self.is_deadline_soon(id, step.now) {
            return step.tell(id, Reply::DeadlineSoon);
        }
        if is_known && request.timeout == Some(0) {
            return step.tell(id, Reply::TimedOut);
        }
        let until = request.timeout.map(|seconds| step.now + Span::from_secs(u64::from(seconds)));
        let wait = Wait { ticket: self.sets.next_ticket(), until, many: request.many };
        self.begin_wait(id, set, wait);
        self.arm_conn(id, step.timers);
        if !is_known {
            self.serve_later(set, step);
        }
    }

    pub(super) fn begin_wait(&mut self, id: ConnId, set: SetId, wait: Wait) {
        self.conns[id].wait = Some(wait);
        self.sets.begin_wait(set, id);
    }

    /// `reserve-job`: this job, wherever it is, if no limit holds it back.
    pub fn reserve_this(&mut self, conn: ConnId, id: JobId, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::ReserveJob);
        self.conns[conn].is_worker = true;
        if self.is_shut {
            return step.tell(conn, Reply::InternalError);
        }
        let Some(key) = self.visible(id).filter(|key| self.jobs[*key].place != JobPlacement::Reserved) else {
            return step.tell(conn, Reply::NotFound);
        };
        let (tube, group, place) = (self.jobs[key].tube, self.jobs[key].group(), self.jobs[key].place);
        if place != JobPlacement::Buried && self.is_superseded(key) {
            self.drop_superseded(key, step);
            return step.tell(conn, Reply::NotFound);
        }
        if self.is_held_back(tube, group) {
            return step.tell(conn, Reply::NotFound);
        }
        self.reserve_job(conn, key, step);
        if place != JobPlacement::Ready {
            // For the store it is ready from now on.
            self.note_job(key);
        }
        step.tell(conn, Reply::Reserved(id));
        self.arm_conn(conn, step.timers);
    }

    /// Gives jobs to those who wait, who has waited longest first, as long as there are any for them.
    pub(super) fn serve_waiting(&mut self, step: &mut Step<'_, '_>) {
        let mut drops = SLICE;
        // Those of which it is not known yet what they have do not hold up the others.
        let mut later: Vec<SetId> = Vec::new();
        while self.sets.awake().len() > later.len() {
            let first = |set: &SetId| {
                if later.contains(set) {
                    return None;
                }
                let conn = self.sets[*set].waiting.front()?;
                Some((self.conns[conn].wait?.ticket, conn, *set))
            };
            let Some((_, conn, set)) = self.sets.awake().iter().filter_map(first).min() else {
                self.sets.stay_awake(|set| later.contains(&set));
                break;
            };
            match self.next_job(set, &mut drops, step) {
                NextJob::Job(turn, key) => {
                    let wait = self.stop_waiting(conn).expect("it stood among those who wait");
                    self.give(conn, set, turn, key, wait.many, step);
                }
                NextJob::Nothing => self.sets.stay_awake(|awake| awake != set),
                NextJob::Later => later.push(set),
            }
        }
        if !later.is_empty() {
            self.arm_serve(step);
        }
    }

    /// Goes on to serve those who wait with this set in the next round of timers.
    fn serve_later(&mut self, set: SetId, step: &mut Step<'_, '_>) {
        self.sets.keep_awake(set);
        self.arm_serve(step);
    }

    /// Goes on in the next round of timers.
    pub(super) fn arm_serve(&mut self, step: &mut Step<'_, '_>) {
        self.go_on(Task::Serve, step);
    }

    /// Returns the next job of a set, of which its tubes are told first. Leaves of superseded root jobs that are met on the way are dropped.
    fn next_job(&mut self, set: SetId, drops: &mut u32, step: &mut Step<'_, '_>) -> NextJob {
        if self.is_shut {
            return NextJob::Nothing;
        }
        if !self.build(set, drops) {
            return NextJob::Later;
        }
        loop {
            let Some((turn, entry)) = self.sets[set].front() else { return NextJob::Nothing };
            let key = self.jobs.find(entry.id).expect("a set sees only jobs that there are");
            if !self.is_superseded(key) {
                return NextJob::Job(turn, key);
            }
            if *drops == 0 {
                return NextJob::Later;
            }
            *drops -= 1;
            self.drop_superseded(key, step);
        }
    }

    /// Gives a connection the next job of its set, and as many more as it wants and there are.
    fn give(
        &mut self,
        conn: ConnId,
        set: SetId,
        mut turn: u16,
        mut key: JobKey,
        many: Option<u32>,
        step: &mut Step<'_, '_>,
    ) {
        let mut drops = SLICE;
        for left in (0..many.unwrap_or(1)).rev() {
            self.sets[set].advance(turn);
            self.go_to_end(set, self.jobs[key].tube);
            self.reserve_job(conn, key, step);
            step.tell(conn, Reply::Reserved(self.jobs[key].id));
            if left == 0 {
                break;
            }
            match self.next_job(set, &mut drops, step) {
                NextJob::Job(next_turn, next) => (turn, key) = (next_turn, next),
                NextJob::Nothing | NextJob::Later => break,
            }
        }
        if many.is_some() {
            step.tell(conn, Reply::End);
        }
        self.arm_conn(conn, step.timers);
    }

    /// In a set whose tubes take turns, this tube is the last from now on.
    fn go_to_end(&mut self, id: SetId, tube: TubeId) {
        let State { sets, tubes, limits, .. } = self;
        let set = &mut sets[id];
        if !set.is_fair {
            return;
        }
        let covers = &mut tubes[tube].covers;
        let cover = covers.iter_mut().find(|cover| cover.set == id).expect("a set sees only tubes that it covers");
        let old = std::mem::replace(&mut cover.stamp, set.next_stamp());
        let cover = *cover;
        for bucket in tubes[tube].buckets() {
            let Some(shown) = tubes[bucket].shown else { continue };
            let lane = tubes[bucket].lane;
            let (old, new) = (Entry::new(shown, old, bucket), Entry::new(shown, cover.stamp, bucket));
            set.replace(cover.turn, lane, limits.is_open(lane), Some(old), Some(new));
        }
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

    /// Returns true when the job is the leaf of a root job of which there is a newer one.
    pub(super) fn is_superseded(&self, key: JobKey) -> bool {
        let Some((signature, timestamp)) = self.jobs[key].root() else { return false };
        let tube = &self.tubes[self.jobs[key].tube];
        self.roots.newest(&tube.name, signature).is_some_and(|(newest, _)| newest > timestamp)
    }

    pub(super) fn drop_superseded(&mut self, key: JobKey, step: &mut Step<'_, '_>) {
        self.tubes.note(self.jobs[key].tube, Noted::Superseded, step.now);
        self.figures.count(Stat::Superseded);
        self.delete_job(key, step.now, step.timers);
    }

    /// Gives out no jobs until the first [`State::set_shut`]: what is restored may hold some that could not be given out.
    pub fn begin_shut(&mut self) {
        self.is_shut = true;
    }

    /// Gives out no jobs from now on, or gives them out again; those who wait for one go on to wait.
    pub fn set_shut(&mut self, is_shut: bool, step: &mut Step<'_, '_>) {
        if std::mem::replace(&mut self.is_shut, is_shut) == is_shut || is_shut {
            return;
        }
        self.sets.wake_all();
        self.serve_waiting(step);
    }

    /// Returns the job with this number once it is committed.
    pub(super) fn visible(&self, id: JobId) -> Option<JobKey> {
        self.jobs.find(id).filter(|key| self.jobs[*key].place != JobPlacement::Pending)
    }

    /// Returns the commit that put a job, if it is not committed yet.
    pub(super) fn put_commit(&self, key: JobKey) -> Option<Commit> {
        let job = &self.jobs[key];
        (job.place == JobPlacement::Pending).then(|| Commit(job.commit()))
    }
}
