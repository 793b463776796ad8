//! Commands that go through many tubes or jobs: in slices, so that others are served between them.

use super::background::{COST, Task};
use super::ids::{GateId, GroupId, TubeId};
use super::job::JobKey;
use super::{Pattern, Reply, State, Step};
use crate::stats::Jobs as Stat;
use poolcounter_core::id::{ConnId, Id, id};
use poolcounter_core::meter::Metered as _;
use poolcounter_core::time::{Span, Time};
pub use poolcounter_protocol::jobs::request::{ALL_STATES, JobState};

id! {
    /// A command under way that goes through many tubes or jobs.
    SweepId
}

/// Work on each tube or job.
pub(super) enum Work {
    /// The tube learns of its settings; after that a gate may be none any more.
    Refresh { reply: Reply, retired: Option<GateId> },
    /// The groups up to this place learn of their limits.
    Groups { reply: Reply, end: usize },
    /// Jobs in this state, or in any but reserved, are deleted.
    Clear(Option<JobState>),
    /// Buried and delayed jobs are ready.
    KickAll,
    /// So many buried jobs are ready; if there were none, so many delayed ones.
    Kick { left: u32, buried: bool },
}

/// A command under way.
pub(super) struct Sweep {
    /// The connection that is told of its end.
    pub conn: Option<ConnId>,
    pub pattern: Box<[u8]>,
    /// Time of the request.
    since: Time,
    /// The tubes or groups before this one are done.
    next: usize,
    work: Work,
    count: u64,
}

impl State {
    /// `clear`: deletes the jobs of these tubes that are in this state, or in any but reserved.
    pub fn clear(&mut self, conn: ConnId, pattern: Pattern<'_>, state: Option<JobState>, step: &mut Step<'_, '_>) {
        self.begin_sweep(conn, pattern, Work::Clear(state), step);
    }

    /// `kick-all`: the buried and delayed jobs of these tubes are ready.
    pub fn kick_all(&mut self, conn: ConnId, pattern: Pattern<'_>, step: &mut Step<'_, '_>) {
        self.begin_sweep(conn, pattern, Work::KickAll, step);
    }

    /// `kick`: so many buried jobs of the used tube are ready; if there are none, delayed ones.
    pub fn kick(&mut self, conn: ConnId, bound: u32, step: &mut Step<'_, '_>) {
        self.figures.count(Stat::Kick);
        let tube = &self.tubes[self.conns[conn].used];
        let (name, buried) = (tube.name.clone(), tube.buried.len() > 0);
        let pattern = Pattern::parse(&name).expect("the name of a tube is a pattern");
        self.begin_sweep(conn, pattern, Work::Kick { left: bound, buried }, step);
    }

    pub(super) fn begin_sweep(&mut self, conn: ConnId, pattern: Pattern<'_>, work: Work, step: &mut Step<'_, '_>) {
        self.start(Some(conn), pattern, work, step);
    }

    /// Begins to tell the tubes of a pattern of a pause that is over, or of a limit for which nobody waits.
    pub(super) fn begin_own_sweep(&mut self, pattern: Pattern<'_>, retired: Option<GateId>, step: &mut Step<'_, '_>) {
        self.start(None, pattern, Work::Refresh { reply: Reply::Paused, retired }, step);
    }

    fn start(&mut self, conn: Option<ConnId>, pattern: Pattern<'_>, work: Work, step: &mut Step<'_, '_>) {
        let (pattern, since) = (pattern.bytes().into(), step.now);
        self.go(Sweep { conn, pattern, since, next: 0, work, count: 0 }, step);
    }

    /// Begins to tell the groups of this name, all if it is `*`, of a limit.
    pub(super) fn begin_group_sweep(
        &mut self,
        conn: Option<ConnId>,
        name: &[u8],
        reply: Reply,
        step: &mut Step<'_, '_>,
    ) {
        let own = || self.limits.find_group(name).map_or(0..0, |group| group.index()..group.index() + 1);
        let places = if name == b"*" { 0..self.limits.groups.capacity() } else { own() };
        let work = Work::Groups { reply, end: places.end };
        let (pattern, since) = (name.into(), step.now);
        let sweep = Sweep { conn, pattern, since, next: places.start, work, count: 0 };
        self.go(sweep, step);
    }

    fn go(&mut self, sweep: Sweep, step: &mut Step<'_, '_>) {
        let conn = sweep.conn;
        let id = self.background.insert(sweep);
        if let Some(conn) = conn {
            self.conns[conn].sweep = Some(id);
        }
        self.run(id, true, step);
    }

    /// Tells those whose commands were begun so long ago that nobody knows what comes of them. They go on without them.
    pub fn give_up_sweeps(&mut self, after: Span, step: &mut Step<'_, '_>) {
        for sweep in self.background.sweeps_mut() {
            if step.now.since(sweep.since) < after {
                continue;
            }
            if let Some(conn) = sweep.conn.take() {
                self.conns[conn].sweep = None;
                step.tell(conn, Reply::InternalError);
            }
        }
    }

    /// Goes on with a command as far as the budget of the tick reaches.
    pub(super) fn run(&mut self, id: SweepId, may_wait: bool, step: &mut Step<'_, '_>) {
        // What it changes is to be committed, too: it waits like those who would change more.
        let whole = if may_wait && self.is_backed_up() { 0 } else { step.timers.budget() / COST };
        let mut left = whole;
        let is_done = self.run_slice(id, &mut left, step);
        step.timers.spend((whole - left) * COST);
        if is_done {
            return self.finish(id, step);
        }
        self.go_on(Task::Sweep(id), step);
    }

    /// Returns true when every tube is done.
    fn run_slice(&mut self, id: SweepId, budget: &mut u32, step: &mut Step<'_, '_>) -> bool {
        if let Work::Groups { .. } = self.background[id].work {
            let is_done = self.refresh_groups(id, budget);
            self.serve_waiting(step);
            return is_done;
        }
        let pattern = self.background[id].pattern.clone();
        let pattern = Pattern::parse(&pattern).expect("a sweep is begun with a pattern");
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

    /// Returns true when every group is done.
    fn refresh_groups(&mut self, id: SweepId, budget: &mut u32) -> bool {
        let sweep = &self.background[id];
        let Work::Groups { end, .. } = sweep.work else { return true };
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

    /// Returns true when the tube is done.
    fn work_on(&mut self, id: SweepId, tube: TubeId, budget: &mut u32, step: &mut Step<'_, '_>) -> bool {
        if matches!(self.background[id].work, Work::Refresh { .. }) {
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
                Work::Clear(_) => {
                    self.delete_job(key, step.now, step.timers);
                    if self.tubes.get(tube).is_none() {
                        return true;
                    }
                }
                Work::Kick { left, .. } => {
                    *left -= 1;
                    self.kick_one(key, step);
                }
                Work::KickAll | Work::Refresh { .. } | Work::Groups { .. } => self.kick_one(key, step),
            }
        }
        true
    }

    /// Returns the next job of a tube to which something is done.
    fn next_of(&self, id: SweepId, tube: TubeId) -> Option<JobKey> {
        let tube = &self.tubes[tube];
        let ready = || tube.waiting.front();
        let buried = || tube.buried.front();
        let delayed = || tube.delayed.first().and_then(|(_, id)| self.jobs.find(*id));
        match &self.background[id].work {
            Work::Clear(Some(JobState::Ready)) => ready(),
            Work::Clear(None) => ready().or_else(delayed).or_else(buried),
            Work::KickAll => buried().or_else(delayed),
            Work::Kick { left: 0, .. }
            | Work::Clear(Some(JobState::Reserved))
            | Work::Refresh { .. }
            | Work::Groups { .. } => None,
            Work::Kick { buried: true, .. } | Work::Clear(Some(JobState::Buried)) => buried(),
            Work::Kick { buried: false, .. } | Work::Clear(Some(JobState::Delayed)) => delayed(),
        }
    }

    fn finish(&mut self, id: SweepId, step: &mut Step<'_, '_>) {
        let sweep = self.background.remove(id);
        let (reply, promises) = match sweep.work {
            Work::Refresh { reply, retired } => {
                if let Some(gate) = retired {
                    self.limits.gates.remove(gate.index());
                }
                (reply, true)
            }
            Work::Groups { reply, .. } => (reply, true),
            Work::Clear(_) => (Reply::Cleared(sweep.count), sweep.count > 0),
            Work::KickAll | Work::Kick { .. } => (Reply::Kicked(sweep.count), sweep.count > 0),
        };
        let Some(conn) = sweep.conn else { return };
        self.conns[conn].sweep = None;
        let after = if promises { self.this_commit() } else { None };
        step.tell_after(conn, reply, after);
    }
}
