//! How many members are wanted, and the starts that bring them.

use super::members::{Cause, Then};
use super::*;

const FIRST_BACKOFF: Span = Span::from_millis(100);
const LONGEST_BACKOFF: Span = Span::from_secs(30);

/// How many members are culled at once; the rest follows a millisecond later, so that others are served in between.
const MOST_CULLED: u32 = 1_000;

impl State {
    /// Has what changed in a pool take effect: waiters, size, cleaning, starts, and its end.
    pub(super) fn settle_pool(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        if !self.pools.contains(id.index()) {
            return;
        }
        self.trim(id, step);
        if std::mem::take(&mut self.pool_mut(id).is_to_reconsider) {
            self.reconsider(id, step);
        }
        self.clean_next(id, step);
        self.time_unclean(id, step);
        self.settle_reserving_waiter(id, step.now);
        let wanted = self.wanted(id);
        self.launch(id, wanted, step);
        self.pool_mut(id).is_to_grow = false;
        if self.pool(id).no_wait > 0 && self.pool(id).count(PhaseKind::Checking) == 0 {
            self.end_no_wait_takes(id, step);
        }
        let pool = self.pool_mut(id);
        pool.most_slots = pool.most_slots.min(pool.slots()).max(u64::from(pool.settings.max));
        self.drop_pool_if_left(id, step);
    }

    /// Stops free members of a pool that has too many, oldest idle first.
    fn trim(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        let pool = &mut self.pools[id.index()];
        let max = u64::from(pool.settings.max);
        // What there will be no room for is not owed, nor anything while there are too many.
        let room = if pool.slots() > max { 0 } else { max - pool.live() };
        pool.owed = u32::try_from(room.min(u64::from(pool.owed))).unwrap_or(u32::MAX);
        while self.pool(id).is_above_max() {
            let Some(member) = self.oldest_idle(id) else { break };
            if !self.spend() {
                return self.fall_behind(id);
            }
            self.stop_member(member, Stat::Reconfigured, Then::Nothing, step);
        }
    }

    /// The free member that is idle for longest and can be stopped.
    fn oldest_idle(&self, id: PoolId) -> Option<MemberId> {
        let pool = self.pool(id);
        let has_others = pool.members.len() as u64 > u64::from(pool.fixed);
        if !has_others {
            return None;
        }
        pool.free.iter(&self.links_free).find(|member| self.member(*member).owner != MemberOwner::Fixed)
    }

    /// How many starts are wanted now besides those under way, whether there is room for them or not.
    pub(super) fn wanted(&self, id: PoolId) -> u64 {
        let pool = self.pool(id);
        if pool.is_leaving {
            return 0;
        }
        let starts = u64::from(pool.starts);
        let lacks = |target: u64, has: u64| target.saturating_sub(has + starts);
        let Settings { init, min_free, .. } = pool.settings;
        let waiters = lacks(pool.need, u64::from(pool.count(PhaseKind::Checking)));
        let growth = if pool.is_to_grow { lacks(u64::from(init.max(1)), 0) } else { 0 };
        let floor = lacks(u64::from(init), pool.live());
        let reserve = lacks(u64::from(min_free), u64::from(pool.idle_count()));
        waiters.max(growth).max(floor).max(reserve).max(u64::from(pool.owed))
    }

    /// Asks providers for so many members, as far as there is room.
    pub(super) fn launch(&mut self, id: PoolId, wanted: u64, step: &mut Step<'_, '_>) {
        for _ in 0..wanted {
            let pool = self.pool(id);
            let is_possible = pool.backoff.is_none() && pool.slots() < u64::from(pool.settings.max) && self.has_room();
            let Some(agent) = self.roomiest(id).filter(|_| is_possible && !self.pool(id).is_leaving) else { break };
            let start = StartId::from_index(self.starts.vacant_key());
            let number = self.next_start;
            let Some(conn) = self.agents[agent.index()].conn() else { break };
            let timer = step.timers.arm(step.now + self.pool(id).settings.start_timeout, Timer::Start(start));
            let pool_name = self.pool(id).name.clone();
            step.tell(conn, What::Start { pool: pool_name.clone(), start: number });
            let progress = Progress::UnderWay { agent, timer };
            self.starts.insert(Start { number, conn, pool_name, since: step.now, progress });
            self.next_start += 1;
            self.starts_under_way += 1;
            self.agents[agent.index()].starts += 1;
            let pool = self.pool_mut(id);
            pool.starts += 1;
            pool.owed = pool.owed.saturating_sub(1);
            self.work(conn).starts.insert(number, start);
        }
    }

    /// The provider with the most room left in proportion to its capacity; the first of several.
    fn roomiest(&self, id: PoolId) -> Option<AgentId> {
        let pool = self.pool(id);
        let mut best: Option<(AgentId, u64, u64)> = None;
        for agent in &pool.agents {
            let Agent { provides, capacity, members, starts, .. } = &self.agents[agent.index()];
            let capacity = u64::from(capacity.unwrap_or(pool.settings.max));
            let room = capacity.saturating_sub(u64::from(members.len()) + u64::from(*starts));
            let room = if *starts < MOST_STARTS { room } else { 0 };
            let is_better = best.is_none_or(|(_, best, of)| room * of > best * capacity);
            if *provides && room > 0 && is_better {
                best = Some((*agent, room, capacity));
            }
        }
        best.map(|(agent, ..)| agent)
    }

    /// `STARTED id member [attr=value ...]`.
    pub(super) fn started(
        &mut self,
        conn: ConnId,
        number: u64,
        name: &[u8],
        attributes: Attributes,
        step: &mut Step<'_, '_>,
    ) -> Result<(), Refusal> {
        let id = self.find_start(conn, number)?;
        let Progress::UnderWay { agent, .. } = self.starts[id.index()].progress else {
            let start = self.drop_start(id);
            let member: Arc<[u8]> = name.into();
            self.remember_late_stop(conn, member.clone());
            step.tell(conn, What::Error(Refusal::TooLate));
            step.tell(conn, What::Stop { pool: start.pool_name, member });
            return Ok(());
        };
        let pool = self.agents[agent.index()].pool;
        let had_surplus = self.has_surplus(pool);
        let start = self.end_start(id, step);
        self.drop_start(id);
        if self.known_member(pool, name, step).is_some() {
            self.note_failure(pool, step);
            return Err(Refusal::MemberExists);
        }
        let entry = self.pool_mut(pool);
        entry.times.start.record(step.now.since(start));
        if std::mem::replace(&mut entry.next_backoff, FIRST_BACKOFF) != FIRST_BACKOFF {
            step.notices.push(Notice::StartsAgain { pool: entry.name.clone() });
        }
        entry.backoff.take().into_iter().for_each(|timer| step.timers.cancel(timer));
        step.tell(conn, What::Ok);
        let member = self.create_member(pool, name, attributes, MemberOwner::Agent(agent), step);
        let cause = if had_surplus { Cause::Other } else { Cause::Start };
        self.release_member(member, cause, step);
        Ok(())
    }

    /// `FAILED id [text]`.
    pub(super) fn start_failed(
        &mut self,
        conn: ConnId,
        number: u64,
        text: &[u8],
        step: &mut Step<'_, '_>,
    ) -> Result<(), Refusal> {
        let id = self.find_start(conn, number)?;
        if let Progress::UnderWay { agent, .. } = self.starts[id.index()].progress {
            let pool = self.agents[agent.index()].pool;
            self.end_start(id, step);
            self.note_failure(pool, step);
            step.notices.push(Notice::StartFailed { pool: self.pool(pool).name.clone(), text: text.into() });
        }
        self.drop_start(id);
        step.tell(conn, What::Ok);
        Ok(())
    }

    /// A start was not answered in time.
    pub(super) fn start_is_late(&mut self, id: StartId, step: &mut Step<'_, '_>) {
        let start = &mut self.starts[id.index()];
        let Progress::UnderWay { agent, timer } = std::mem::replace(&mut start.progress, Progress::Late) else {
            unreachable!("only a start under way has a timer");
        };
        timer.fired();
        let pool = self.forget_start(agent);
        self.pool_mut(pool).figures.count(Stat::StartsLate);
        self.note_failure(pool, step);
        self.note_late_start(id);
    }

    /// Has a start under way become late; returns since when it was under way.
    pub(super) fn end_start(&mut self, id: StartId, step: &mut Step<'_, '_>) -> Time {
        let start = &mut self.starts[id.index()];
        let since = start.since;
        if let Progress::UnderWay { agent, timer } = std::mem::replace(&mut start.progress, Progress::Late) {
            step.timers.cancel(timer);
            self.forget_start(agent);
            self.note_late_start(id);
        }
        since
    }

    /// A start is not under way any more.
    fn forget_start(&mut self, agent: AgentId) -> PoolId {
        let agent = &mut self.agents[agent.index()];
        agent.starts -= 1;
        let pool = agent.pool;
        self.pool_mut(pool).starts -= 1;
        self.starts_under_way -= 1;
        self.touch(pool);
        pool
    }

    /// Bounds how many late starts a connection has: the oldest is forgotten.
    fn note_late_start(&mut self, id: StartId) {
        let conn = self.starts[id.index()].conn;
        let work = self.work(conn);
        work.late_starts += 1;
        if work.late_starts > MOST_LATE_STARTS {
            let starts: Vec<StartId> = work.starts.values().copied().collect();
            let is_late = |id: &StartId| matches!(self.starts[id.index()].progress, Progress::Late);
            let oldest = starts.into_iter().find(is_late).expect("one of them is late, since they are counted");
            self.drop_start(oldest);
        }
    }

    /// Forgets a start that is late.
    pub(super) fn drop_start(&mut self, id: StartId) -> Start {
        let start = self.starts.remove(id.index());
        debug_assert!(matches!(start.progress, Progress::Late), "a start under way is ended first");
        let work = self.work(start.conn);
        work.starts.remove(&start.number);
        work.late_starts -= 1;
        start
    }

    /// A start of the pool has failed: nothing is started for a while. Failures in the meantime change nothing.
    pub(super) fn note_failure(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        let pool = &mut self.pools[id.index()];
        pool.figures.count(Stat::StartsFailed);
        if pool.backoff.is_none() {
            let span = step.random.jitter(pool.next_backoff, 75, 125);
            pool.next_backoff = (pool.next_backoff + pool.next_backoff).min(LONGEST_BACKOFF);
            pool.backoff = Some(step.timers.arm(step.now + span, Timer::Backoff(id)));
        }
        self.touch(id);
    }

    pub(super) fn backoff_is_over(&mut self, id: PoolId) {
        self.pool_mut(id).backoff.take().into_iter().for_each(TimerId::fired);
        self.touch(id);
    }

    /// Stops members that are idle for too long, longest idle first, a bounded number at once.
    pub(super) fn cull(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        self.pool_mut(id).cull.take().into_iter().for_each(TimerId::fired);
        let mut culled = 0;
        while culled < MOST_CULLED && self.is_too_idle(id, step.now) {
            let Some(member) = self.oldest_idle(id) else { break };
            self.stop_member(member, Stat::MaxAge, Then::Nothing, step);
            culled += 1;
        }
        let interval = if culled < MOST_CULLED { self.pool(id).settings.cull_interval } else { Span::from_millis(1) };
        self.pool_mut(id).cull = Some(step.timers.arm(step.now + interval, Timer::Cull(id)));
    }

    fn is_too_idle(&self, id: PoolId, now: Time) -> bool {
        let pool = self.pool(id);
        let Settings { init, min_free, max_age, .. } = pool.settings;
        let is_spare = pool.live() > u64::from(init) && pool.idle_count() > min_free;
        is_spare && self.oldest_idle(id).is_some_and(|member| now.since(self.member(member).since) > max_age)
    }

    /// The first backoff of a pool.
    pub(super) fn first_backoff() -> Span {
        FIRST_BACKOFF
    }

    /// Whether a start or a check is under way that no waiter needs.
    pub(super) fn has_surplus(&self, id: PoolId) -> bool {
        let pool = self.pool(id);
        u64::from(pool.starts) + u64::from(pool.count(PhaseKind::Checking)) > pool.need
    }

    /// Why a take has no member of the pool.
    pub(super) fn reason(&self, id: PoolId) -> NoMembers {
        let pool = self.pool(id);
        let has_room = pool.slots() < u64::from(pool.settings.max);
        let is_checking = pool.count(PhaseKind::Checking) > 0;
        let is_provided = self.is_provided(id);
        if pool.starts > 0 || is_checking || pool.backoff.is_some() && is_provided && has_room && self.wanted(id) > 0 {
            NoMembers::Starting
        } else if has_room && !is_provided && pool.fixed == 0 {
            NoMembers::NoProvider
        } else {
            NoMembers::AtCapacity
        }
    }

    /// Whether a provider of the pool is connected.
    pub(super) fn is_provided(&self, id: PoolId) -> bool {
        self.pool(id).agents.iter().any(|agent| self.agents[agent.index()].provides)
    }
}
