//! Demand of a pool: the number of members it needs, the starts that bring them, and the idle ones that it ends.

use super::lifecycle::{Cause, Then};
use super::*;

/// Most starts that a provider has under way: its loss ends them all in one step.
const MOST_STARTS: u32 = 4_096;
/// Most members that are culled at once; the rest follows a millisecond later, so that others are served in between.
const MOST_CULLED: u32 = 1_000;
/// Most pools that get room for starts at once.
const MOST_CRAMPED: usize = 64;

impl State {
    /// Returns whether a waiter can use a member.
    pub(super) fn suits(&self, waiter: WaiterId, member: MemberId) -> bool {
        let filter = self.waiters.get(waiter).filter.as_ref();
        filter.is_none_or(|filter| self.members.matches(filter, member))
    }

    /// Returns whether there is nothing to settle in a pool that has changed, as after most steps of a consumer.
    #[inline]
    pub(super) fn is_at_rest(&self, id: PoolId) -> bool {
        let (pool, of_pool, starts) = (self.pool(id), self.members.in_pool(id), u64::from(self.starts.in_pool(id)));
        let Settings { init, min_free, max, .. } = pool.settings;
        let live = of_pool.live();
        pool.is_at_rest()
            && of_pool.first_unclean().is_none()
            && live <= u64::from(max)
            && live + starts >= u64::from(init)
            && u64::from(of_pool.idle()) + starts >= u64::from(min_free)
            && self.waiters.is_unused(id)
            && self.waiters.reserving(id).is_none()
    }

    /// Settles a pool that is at rest, to prove that this does nothing.
    pub(super) fn assert_at_rest(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        let of_step = |step: &Step<'_, '_>| (step.events.len(), step.notices.len());
        let of_state = |state: &State| {
            let (pools, pool) = (state.pools.len(), state.pool(id));
            (pools, pool.most_slots, state.members.in_pool(id).live(), state.starts.in_pool(id), state.background.len())
        };
        let before = (of_step(step), of_state(self));
        self.settle_pool(id, step);
        assert_eq!(before, (of_step(step), of_state(self)), "a pool at rest has nothing to settle");
    }

    /// Settles a pool that has changed: its size, waiters, cleaning and starts, and its end. This does nothing to a pool
    /// that is at rest.
    #[inline(never)]
    pub(super) fn settle_pool(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        let Pool { owed, settings, .. } = self.pool(id);
        if *owed > 0 || self.members.in_pool(id).live() > u64::from(settings.max) {
            self.trim(id, step);
        }
        if self.members.in_pool(id).first_unclean().is_some() || self.pool(id).unclean_until.is_some() {
            self.clean_next(id, step);
            self.time_unclean(id, step);
        }
        // A pool that is behind is settled again.
        if self.pools.take_reconsider(id) && !self.background.of_pool(id).is_behind {
            self.reconsider(id, step);
        }
        if !self.pool(id).retries.is_empty() {
            self.retry_all(id, step);
        }
        self.settle_reserving_waiter(id, step.now);
        self.waiters.unbind(id, self.under_way(id));
        let wanted = self.wanted(id);
        if wanted > 0 {
            self.launch(id, wanted, step);
        }
        self.unplace_waiters(id);
        self.note_cramped(id);
        if let Some(group) = self.pool(id).group
            && self.waiters.has_unplaced(group)
            && !self.pool(id).is_leaving
            && !self.background.of_pool(id).is_behind
        {
            self.pools.add_candidate(group, id);
            self.waiters.search_again(group, id);
        }
        self.pools.end_growth(id);
        self.end_no_wait_takes(id, step);
        let slots = self.slots(id);
        self.pools.limit_slots(id, slots);
        if slots == 0 && self.pool(id).is_leaving && self.waiters.is_unused(id) {
            self.drop_pool(id, step);
        }
    }

    /// Stops free members of a pool that has too many, longest idle first.
    fn trim(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        let max = u64::from(self.pool(id).settings.max);
        // Without room for them, and while there are too many, no replacements are owed.
        let room = if self.slots(id) > max { 0 } else { max - self.members.in_pool(id).live() };
        self.pools.limit_owed(id, room);
        while self.is_above_max(id) {
            let Some(member) = self.members.oldest_provided(id) else { break };
            if !step.timers.spend(background::COST) {
                return self.background.fall_behind(id);
            }
            self.stop_member(member, Stat::Reconfigured, Then::Nothing, step);
        }
    }

    /// Returns the number of starts that are wanted besides those under way, with or without room for them.
    pub(super) fn wanted(&self, id: PoolId) -> u64 {
        let pool = self.pool(id);
        if pool.is_leaving {
            return 0;
        }
        let (of_pool, starts) = (self.members.in_pool(id), u64::from(self.starts.in_pool(id)));
        let lacks = |target: u64, has: u64| target.saturating_sub(has + starts);
        let Settings { init, min_free, .. } = pool.settings;
        let waiters = lacks(self.need(id), u64::from(of_pool.count(PhaseKind::Checking)));
        let growth = if pool.is_to_grow { lacks(u64::from(init.max(1)), 0) } else { 0 };
        let floor = lacks(u64::from(init), of_pool.live());
        let reserve = lacks(u64::from(min_free), u64::from(of_pool.idle()));
        waiters.max(growth).max(floor).max(reserve).max(u64::from(pool.owed))
    }

    /// Returns whether a pool and the daemon have room for a start.
    pub(super) fn may_start(&self, id: PoolId) -> bool {
        self.has_slot(id) && self.has_room()
    }

    /// Asks providers for members, as far as there is room.
    pub(super) fn launch(&mut self, id: PoolId, wanted: u64, step: &mut Step<'_, '_>) {
        for _ in 0..wanted {
            let agent = self.roomiest_provider(id).filter(|_| self.may_start(id) && !self.pool(id).is_leaving);
            let Some(agent) = agent else { break };
            let Some(conn) = self.agents.get(agent).conn() else { break };
            let Pool { name, settings, .. } = self.pools.get(id);
            let pool = name.clone();
            let start = self.starts.begin(conn, agent, (id, pool.clone()), settings.start_timeout, step);
            step.tell(conn, What::Start { pool, start });
            self.pools.note_start(id);
        }
    }

    /// Notes a pool that could start members if the daemon had room for them.
    pub(super) fn note_cramped(&mut self, id: PoolId) {
        if !self.has_room() && self.lacks_starts(id) {
            self.pools.cramped.push_back(id);
        }
    }

    /// Returns whether a pool wants members, or has waiters of its group that cause starts in no pool.
    pub(super) fn lacks_starts(&self, id: PoolId) -> bool {
        let Pool { group, is_leaving, .. } = *self.pool(id);
        let has_unplaced = || group.is_some_and(|group| self.waiters.has_unplaced(group));
        !is_leaving && self.has_slot(id) && (self.wanted(id) > 0 || has_unplaced())
    }

    /// Settles pools that lacked room for starts, as long as there is some. Returns whether there are more.
    pub(super) fn launch_cramped(&mut self, step: &mut Step<'_, '_>) -> bool {
        for _ in 0..MOST_CRAMPED {
            let next = if self.has_room() { self.pools.cramped.pop_front() } else { None };
            let Some(id) = next else { return false };
            self.settle_pool(id, step);
        }
        self.has_room() && !self.pools.cramped.is_empty()
    }

    /// Returns the provider with the most room left in proportion to its capacity, of those in no backoff; the first of
    /// several.
    pub(super) fn roomiest_provider(&self, id: PoolId) -> Option<AgentId> {
        let mut best: Option<(AgentId, u64, u64)> = None;
        for agent in self.agents.in_pool(id) {
            let (room, capacity) = self.room_of(*agent);
            if room > 0 && self.is_able(*agent) && best.is_none_or(|(_, best, of)| room * of > best * capacity) {
                best = Some((*agent, room, capacity));
            }
        }
        best.map(|(agent, ..)| agent)
    }

    /// Returns whether a provider may be asked for starts: it is in no backoff.
    pub(super) fn is_able(&self, id: AgentId) -> bool {
        !self.agents.get(id).backoff.is_running()
    }

    /// Returns the number of members that a provider may be asked to start, and its capacity.
    pub(super) fn room_of(&self, id: AgentId) -> (u64, u64) {
        let Agent { provides, capacity, pool, .. } = self.agents.get(id);
        let capacity = u64::from(capacity.unwrap_or(self.pool(*pool).settings.max));
        let (members, starts) = (self.members.of_agent(id), self.starts.of_agent(id));
        let room = capacity.saturating_sub(u64::from(members) + u64::from(starts));
        (if *provides && starts < MOST_STARTS { room } else { 0 }, capacity)
    }

    /// Returns a start of a connection that ends, with its provider and pool; without these if it is late, as each is in
    /// a pool that is being removed.
    fn find_start(&mut self, conn: ConnId, number: u64) -> Option<(StartId, Option<(AgentId, PoolId)>)> {
        let id = self.starts.find(conn, number)?;
        let StartProgress::UnderWay { agent, pool, .. } = self.starts.get(id).progress else { return Some((id, None)) };
        self.pools.touch(pool);
        Some((id, (!self.pool(pool).is_leaving).then_some((agent, pool))))
    }

    /// `STARTED id member [attr=value ...]`.
    pub(super) fn started(
        &mut self,
        conn: ConnId,
        number: u64,
        named: Result<(&[u8], Attributes), Refusal>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), Refusal> {
        let Some((id, under_way)) = self.find_start(conn, number) else {
            return Err(named.err().unwrap_or(Refusal::BadStart));
        };
        let Some((agent, pool)) = under_way else {
            let start = self.starts.finish(id, step);
            let member: Arc<[u8]> = named?.0.into();
            self.agents.remember_late_stop(conn, member.clone());
            step.tell(conn, What::Error(Refusal::TooLate));
            step.tell(conn, What::Stop { pool: start.pool_name, member });
            return Ok(());
        };
        let cause = if self.has_spare_start(pool) { Cause::Other } else { Cause::Start };
        let start = self.starts.finish(id, step);
        let (name, attributes) = match named {
            Ok((name, _)) if self.known_member(pool, name, step).is_some() => {
                self.note_failure(agent, b"the pool has a member of this name", step);
                return Err(Refusal::MemberExists);
            }
            Ok(named) => named,
            Err(refusal) => {
                self.note_failure(agent, b"STARTED cannot be read", step);
                return Err(refusal);
            }
        };
        self.pools.times(pool).start.record(step.now.since(start.since));
        step.tell(conn, What::Ok);
        let member = self.create_member(pool, name, attributes, MemberOwner::Agent(agent), step);
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
        let (id, under_way) = self.find_start(conn, number).ok_or(Refusal::BadStart)?;
        if let Some((agent, _)) = under_way {
            self.note_failure(agent, text, step);
        }
        self.starts.finish(id, step);
        step.tell(conn, What::Ok);
        Ok(())
    }

    /// Fails a start that was not answered in time.
    pub(super) fn start_is_late(&mut self, id: StartId, step: &mut Step<'_, '_>) {
        let (pool, agent) = self.starts.time_out(id);
        self.pools.touch(pool);
        if self.pool(pool).is_leaving {
            return;
        }
        self.pools.count(pool, Stat::StartsLate);
        self.note_failure(agent, b"no answer in time", step);
    }

    /// Counts a failed start, and begins a backoff of its provider.
    fn note_failure(&mut self, id: AgentId, text: &[u8], step: &mut Step<'_, '_>) {
        self.pools.count(self.agents.get(id).pool, Stat::StartsFailed);
        self.begin_backoff(id, text, step);
    }

    /// Starts a backoff of a provider at which a start has failed, or whose member has died young.
    pub(super) fn begin_backoff(&mut self, id: AgentId, text: &[u8], step: &mut Step<'_, '_>) {
        self.agents.backoff(id).begin(id, step);
        let agent = self.agents.get(id);
        let provider = agent.conn().map(|conn| (step.peer)(conn)).unwrap_or_default();
        step.notices.push(Notice::StartFailed {
            pool: self.pool(agent.pool).name.clone(),
            provider,
            text: text.into(),
        });
        self.pools.touch(self.agents.get(id).pool);
    }

    /// Asks a provider for starts again after its backoff.
    pub(super) fn backoff_is_over(&mut self, id: AgentId) {
        self.agents.backoff(id).fired();
        self.pools.touch(self.agents.get(id).pool);
    }

    /// Notes, if `has`, that a member has proved that starts of its provider succeed again.
    pub(super) fn note_success(&mut self, pool: PoolId, has: bool, step: &mut Step<'_, '_>) {
        if has {
            step.notices.push(Notice::StartsAgain { pool: self.pool(pool).name.clone() });
        }
    }

    /// Stops members that are idle for longer than `max_age`, longest idle first.
    pub(super) fn cull(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        let mut culled = 0;
        while culled < MOST_CULLED && self.is_too_idle(id, step.now) {
            let Some(member) = self.members.oldest_provided(id) else { break };
            self.stop_member(member, Stat::MaxAge, Then::Nothing, step);
            culled += 1;
        }
        let interval = if culled < MOST_CULLED { self.pool(id).settings.cull_interval } else { Span::from_millis(1) };
        self.pools.rearm_cull(id, interval, step);
    }

    fn is_too_idle(&self, id: PoolId, now: Time) -> bool {
        let (of_pool, Settings { init, min_free, max_age, .. }) = (self.members.in_pool(id), &self.pool(id).settings);
        let is_spare = of_pool.live() > u64::from(*init) && of_pool.idle() > *min_free;
        is_spare
            && self.members.oldest_provided(id).is_some_and(|member| now.since(self.member(member).since) > *max_age)
    }

    /// Returns whether a start or a check is under way that no waiter needs.
    pub(super) fn has_spare_start(&self, id: PoolId) -> bool {
        self.under_way(id) > self.need(id)
    }

    /// Returns why a take has no member of the pool. `asks` is true if it asks for a start.
    pub(super) fn miss_reason(&self, id: PoolId, asks: bool) -> NoMembers {
        let (of_pool, starts) = (self.members.in_pool(id), self.starts.in_pool(id));
        let (has_slot, is_provided) = (self.has_slot(id), self.agents.is_provided(id));
        let is_in_backoff = || {
            let waits = |id: &AgentId| !self.is_able(*id) && self.room_of(*id).0 > 0;
            has_slot && (asks || self.wanted(id) > 0) && self.agents.in_pool(id).iter().any(waits)
        };
        if starts > 0 || of_pool.count(PhaseKind::Checking) > 0 || is_in_backoff() {
            NoMembers::Starting
        } else if has_slot && !is_provided && !of_pool.is_fixed() {
            NoMembers::NoProvider
        } else {
            NoMembers::AtCapacity
        }
    }
}
