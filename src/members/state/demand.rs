//! Demand: the number of members that a pool or a group needs, the starts that bring them, and the idle ones that end.

use super::pools::{PARTS, Part, Supply};
use super::reasons::LONGEST_NOTE;
use super::{
    Agent, AgentId, Answer, DONE, GroupId, MemberId, News, Notice, Phase, Place, Pool, PoolId, Start, StartId, State,
    Step, background,
};
use crate::stats::MemberStat as Stat;
use poolcounter_core::{ConnId, Span, Time, TimerId};
use poolcounter_protocol::members::pool_settings::Settings;
use poolcounter_protocol::members::request::{Attributes, NoMembers, Refusal, What};

/// Most members that are culled at once; the rest follows a millisecond later, so that others are served in between.
const MOST_CULLED: usize = 1_000;

impl State {
    /// Settles a pool that has changed: its size, waiters, cleaning and starts, its part in its group, and its end.
    #[inline(never)]
    pub(super) fn settle_pool(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        let Pool { owed, settings, .. } = self.pool(id);
        if *owed > 0 || self.members.in_pool(id).live() > u64::from(settings.max) {
            self.trim(id, step);
        }
        if self.members.in_pool(id).unclean.front().is_some() {
            self.clean_next(id, step);
        }
        self.offer_again(step);
        let wanted = self.wanted(id);
        if wanted > 0 {
            if !self.launch(id, wanted, step) {
                self.fall_behind(id);
            }
            if !self.has_room() && self.has_slot(id) {
                self.pools.cramped.push_back(id);
            }
        }
        let slots = self.slots(id);
        let pool = self.pools.get_mut(id);
        pool.is_to_grow = false;
        if let Some(group) = self.pool(id).group {
            self.pools.set_supply(id, self.supply_of(id));
            // Waiters of the group are settled if there are some.
            if self.waiters.want(Place::Group(group)) > 0 {
                self.pools.touch_group(group);
            }
        }
        if slots == 0 && self.pool(id).is_leaving && self.waiters.queued(Place::Pool(id)) == 0 {
            match self.drop_agents(id, step) {
                true => self.fall_behind(id),
                false => self.drop_pool(id, step),
            }
        }
    }

    /// Returns what a pool has for the waiters of its group.
    pub(super) fn supply_of(&self, id: PoolId) -> Supply {
        let Pool { group, settings, is_leaving, .. } = self.pool(id);
        let limit = settings.per_client;
        if *is_leaving {
            return Supply { limit, ..Supply::default() };
        }
        let roomiest = self.agents.roomiest(id, settings.max).filter(|_| self.has_slot(id));
        let (reason, queued) = (self.miss_reason(id), self.waiters.queued(Place::Pool(id)));
        let mut parts = [0; PARTS];
        for (part, number) in [
            (Part::Spare, self.under_way(id).saturating_sub(self.need(id))),
            (Part::Kept, group.map_or(0, |group| self.kept(id, Place::Group(group)))),
            (Part::Most, settings.max.into()),
            (Part::Lasting, 1),
            (Part::Fixed, (self.members.is_fixed(id) == Some(true)).into()),
            (Part::Provided, self.agents.is_provided(id).into()),
            (Part::Starting, (reason == NoMembers::Starting).into()),
            (Part::AtCapacity, (reason == NoMembers::AtCapacity).into()),
        ] {
            parts[part as usize] = number;
        }
        Supply { parts, room: roomiest.map(|(share, _)| share), places: settings.queue.saturating_sub(queued), limit }
    }

    /// Offers the free members of a group's pools again if they are to be, and starts the members that its waiters
    /// lack. Returns whether there is more to do.
    pub(super) fn settle_group(&mut self, id: GroupId, step: &mut Step<'_, '_>) -> bool {
        if self.pools.group(id).to_reconsider > 0 {
            // The pools are settled first, so that it is known what they have for the group.
            let is_more = self.reconsider_pools(id, step);
            if !is_more {
                self.pools.group_mut(id).is_touched = false;
                self.pools.touch_group(id);
            }
            return is_more;
        }
        while self.lacks_in_group(id)
            && let Some(pool) = self.pools.roomiest(id)
        {
            if !self.has_room() {
                self.pools.cramped.push_back(pool);
                break;
            }
            if !step.timers.spend(background::COST) {
                return true;
            }
            self.launch(pool, 1, step);
            self.pools.set_supply(pool, self.supply_of(pool));
        }
        self.pools.group_mut(id).is_touched = false;
        false
    }

    /// Returns whether the waiters of a group want more starts and checks than are under way for them.
    pub(super) fn lacks_in_group(&self, id: GroupId) -> bool {
        let (place, group) = (Place::Group(id), self.pools.group(id));
        let of_first = self.waiters.first_for_several(place).map_or(0, |(_, first)| self.waiters.get(first).want);
        self.waiters.want(place) > group.sum(Part::Spare) + group.sum(Part::Kept).min(u64::from(of_first))
    }

    /// Returns the number of free members of a pool that are kept for the first waiter for several, if it waits in this
    /// queue: at most as many as it wants.
    fn kept(&self, pool: PoolId, place: Place) -> u64 {
        let Some((_, first)) = self.reserving_waiter(pool) else { return 0 };
        let waiter = self.waiters.get(first);
        if waiter.place != place { 0 } else { u64::from(self.free_for(pool, waiter.filter.as_deref(), waiter.want)) }
    }

    /// Returns the number of starts and checks under way in a pool.
    pub(super) fn under_way(&self, id: PoolId) -> u64 {
        let checks = self.members.in_pool(id).count(Phase::Checking);
        u64::from(self.starts.in_pool(id).len()) + u64::from(checks)
    }

    /// Returns the number of starts and checks that the waiters for a pool alone need.
    fn need(&self, id: PoolId) -> u64 {
        let want = self.waiters.want(Place::Pool(id));
        if want == 0 { 0 } else { want.saturating_sub(self.kept(id, Place::Pool(id))) }
    }

    /// Returns the waiters that need the starts and checks under way in a pool; None if they do not need all.
    pub(super) fn needed_by(&self, id: PoolId) -> Option<Place> {
        let is_needed =
            |group: &GroupId| self.pools.group(*group).sum(Part::Spare) <= self.waiters.want(Place::Group(*group));
        match self.under_way(id) > self.need(id) {
            false => Some(Place::Pool(id)),
            true => self.pool(id).group.filter(is_needed).map(Place::Group),
        }
    }

    /// Removes a start that was answered, or is not wanted any more.
    pub(super) fn finish_start(&mut self, id: StartId, step: &mut Step<'_, '_>) -> (PoolId, AgentId, Time) {
        let Start { pool, agent, since, timer, .. } = self.starts.remove(id);
        step.timers.cancel(timer);
        self.note_room(agent);
        self.pools.touch(pool);
        (pool, agent, since)
    }

    /// Stops free members of a pool that has too many, longest idle first.
    fn trim(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        let max = u64::from(self.pool(id).settings.max);
        // Without room for them, and while there are too many, no replacements are owed.
        let room = if self.slots(id) > max { 0 } else { max - self.members.in_pool(id).live() };
        let owed = &mut self.pools.get_mut(id).owed;
        // Lossless: it is not above the number that is owed.
        *owed = room.min(u64::from(*owed)) as u32;
        let (surplus, budget) = (self.members.in_pool(id).live().saturating_sub(max), step.timers.budget());
        let slice = surplus.min(u64::from(budget / background::COST));
        // Lossless: it is at most the budget.
        let oldest: Vec<MemberId> = self.members.free_provided(id).take(slice as usize).collect();
        for member in oldest {
            step.timers.charge(background::COST);
            self.stop_member(member, Stat::Reconfigured, step);
        }
        if self.is_above_max(id) && self.members.free_provided(id).next().is_some() {
            self.fall_behind(id);
        }
    }

    /// Returns the number of starts that are wanted besides the starts under way, with or without room for them.
    pub(super) fn wanted(&self, id: PoolId) -> u64 {
        let pool = self.pool(id);
        if pool.is_leaving {
            return 0;
        }
        let (of_pool, starts) = (self.members.in_pool(id), u64::from(self.starts.in_pool(id).len()));
        let lacks = |target: u64, has: u64| target.saturating_sub(has + starts);
        let Settings { init, min_free, .. } = pool.settings;
        let waiters = self.need(id).saturating_sub(self.under_way(id));
        let growth = if pool.is_to_grow { lacks(u64::from(init.max(1)), 0) } else { 0 };
        let floor = lacks(u64::from(init), of_pool.live());
        let reserve = lacks(u64::from(min_free), u64::from(of_pool.idle()));
        waiters.max(growth).max(floor).max(reserve).max(u64::from(pool.owed))
    }

    /// Asks providers for members, as far as there is room. Returns false if the budget was used up: the first start needs
    /// none, unless the pool is to be settled later anyway.
    pub(super) fn launch(&mut self, id: PoolId, wanted: u64, step: &mut Step<'_, '_>) -> bool {
        let is_behind = self.pool(id).is_behind;
        for start in 0..wanted {
            if (start > 0 || is_behind) && !step.timers.spend(background::COST) {
                return false;
            }
            let Some(agent) = self.next_provider(id).filter(|_| self.has_room()) else { break };
            let Some(conn) = self.agents.get(agent).conn else { break };
            let Pool { name, settings, .. } = self.pools.get(id);
            let pool = name.clone();
            let start = self.starts.begin(id, agent, settings.start_timeout, step);
            self.note_room(agent);
            step.tell(conn, What::Start { pool, start });
            let owed = &mut self.pools.get_mut(id).owed;
            *owed = owed.saturating_sub(1);
        }
        true
    }

    /// Returns the provider that is asked for the next start of a pool: that with most room in proportion to its
    /// capacity. None if the pool may start nothing.
    pub(super) fn next_provider(&self, id: PoolId) -> Option<AgentId> {
        let Pool { settings, is_leaving, .. } = self.pool(id);
        let is_possible = !is_leaving && self.has_slot(id);
        self.agents.roomiest(id, settings.max).filter(|_| is_possible).map(|(_, agent)| agent)
    }

    /// Returns a start of a connection that is under way; None if it has ended, so that its answer is late.
    fn find_start(&self, conn: ConnId, number: u64) -> Result<Option<StartId>, Refusal> {
        let agent = self.agents.serving(conn).map(|(agent, _)| agent);
        match self.starts.find(number) {
            Some(id) if Some(self.starts.get(id).agent) == agent => Ok(Some(id)),
            None if (1..self.starts.next_number).contains(&number) && self.agents.last_pool(conn).is_some() => Ok(None),
            _ => Err(Refusal::BadStart),
        }
    }

    /// `STARTED id member [attr=value ...]`.
    pub(super) fn started(
        &mut self,
        conn: ConnId,
        number: u64,
        named: Result<(&[u8], Attributes), Refusal>,
        step: &mut Step<'_, '_>,
    ) -> Answer {
        let found = match self.find_start(conn, number) {
            Ok(found) => found,
            Err(refusal) => return Err(named.err().unwrap_or(refusal)),
        };
        let Some(id) = found.filter(|id| !self.pool(self.starts.get(*id).pool).is_leaving) else {
            found.into_iter().for_each(|id| _ = self.finish_start(id, step));
            return self.refuse_late(conn, named?.0, step);
        };
        let place = self.needed_by(self.starts.get(id).pool);
        let (pool, agent, since) = self.finish_start(id, step);
        let (name, attributes) = match named {
            Ok((name, _)) if self.members.find_named(pool, name).is_some() => {
                self.note_failure(agent, b"the pool has a member of this name", step);
                return Err(Refusal::MemberExists);
            }
            Ok(named) => named,
            Err(refusal) => {
                self.note_failure(agent, b"STARTED cannot be read", step);
                return Err(refusal);
            }
        };
        self.pools.times(pool).start.record(step.now.since(since));
        let member = self.create_member(pool, name, attributes, Some(agent), step);
        if self.release_member(member, step) {
            place.into_iter().for_each(|place| self.waiters.spend_start(place));
        }
        DONE
    }

    /// Requests a stop of a member whose start has ended. A member that the connection provides was answered before.
    fn refuse_late(&self, conn: ConnId, name: &[u8], step: &mut Step<'_, '_>) -> Answer {
        let pool = self.agents.last_pool(conn).filter(|_| self.own_member(conn, name).is_err());
        let pool = pool.ok_or(Refusal::BadStart)?.clone();
        step.tell(conn, What::Stop { pool, member: name.into() });
        Err(Refusal::TooLate)
    }

    /// `FAILED id [text]`.
    pub(super) fn start_failed(&mut self, conn: ConnId, number: u64, text: &[u8], step: &mut Step<'_, '_>) -> Answer {
        if let Some(id) = self.find_start(conn, number)? {
            let (pool, agent, _) = self.finish_start(id, step);
            if !self.pool(pool).is_leaving {
                self.note_failure(agent, text, step);
            }
        }
        DONE
    }

    /// Fails a start that was not answered in time.
    pub(super) fn start_is_late(&mut self, id: StartId, step: &mut Step<'_, '_>) {
        let Start { pool, agent, timer, .. } = self.starts.remove(id);
        timer.fired();
        self.pools.touch(pool);
        self.note_room(agent);
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
        self.agents.change(id, |agent| agent.begin_backoff(id, step));
        let Agent { conn, pool: id, .. } = *self.agents.get(id);
        let provider = conn.map(|conn| (step.peer)(conn)).unwrap_or_default();
        let pool = self.pools.get_mut(id);
        pool.failure = Some(Box::new((step.now, provider.clone(), text[..text.len().min(LONGEST_NOTE)].into())));
        let (pool, news) = (pool.name.clone(), News::StartFailed(text.into()));
        step.notices.push(Notice { pool, member: None, by: provider, news });
        self.pools.touch(id);
    }

    /// Asks a provider for starts again after its backoff.
    pub(super) fn backoff_is_over(&mut self, id: AgentId) {
        self.agents.change(id, |agent| agent.backoff.take().into_iter().for_each(TimerId::fired));
        self.pools.touch(self.agents.get(id).pool);
    }

    /// Stops members that are idle for longer than `max_age`, longest idle first.
    pub(super) fn cull(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        self.pools.get_mut(id).cull.take().into_iter().for_each(TimerId::fired);
        let Settings { init, min_free, max_age, cull_interval, .. } = self.pool(id).settings;
        let is_old = |id: &MemberId| step.now.since(self.member(*id).since) > max_age;
        let old: Vec<MemberId> = self.members.free_provided(id).take_while(is_old).take(MOST_CULLED).collect();
        let mut interval = if old.len() < MOST_CULLED { cull_interval } else { Span::from_millis(1) };
        for member in old {
            let of_pool = self.members.in_pool(id);
            if of_pool.live() <= u64::from(init) || of_pool.idle() <= min_free {
                interval = cull_interval;
                break;
            }
            self.stop_member(member, Stat::MaxAge, step);
        }
        self.pools.arm_cull(id, interval, step);
    }

    /// Returns why a take has no member of the pool.
    pub(super) fn miss_reason(&self, id: PoolId) -> NoMembers {
        let has_slot = self.has_slot(id);
        let waits_to_start = has_slot && self.agents.waits_to_start(id, self.pool(id).settings.max);
        if self.under_way(id) > 0 || waits_to_start {
            NoMembers::Starting
        } else if has_slot && !self.agents.is_provided(id) && self.members.is_fixed(id) != Some(true) {
            NoMembers::NoProvider
        } else {
            NoMembers::AtCapacity
        }
    }
}
