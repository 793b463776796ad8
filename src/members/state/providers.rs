//! Providers and cleaners: what they bring, what they answer, and what is left when they are lost.

use super::members::Cause;
use super::*;

/// How many stops that were not answered in time are remembered of a provider.
const MOST_LATE_STOPS: usize = 65_536;

impl State {
    pub(super) fn work(&mut self, conn: ConnId) -> &mut Work {
        self.client(conn).work.get_or_insert_default()
    }

    /// The connection as a provider or cleaner, and its pool.
    pub(super) fn agent_of(&self, conn: ConnId) -> Option<(AgentId, PoolId)> {
        let agent = self.clients.get(conn.index())?.work.as_ref()?.agent?;
        Some((agent, self.agents[agent.index()].pool))
    }

    /// Makes the connection a provider or cleaner of a pool, if it is none of another.
    fn enlist(&mut self, conn: ConnId, name: &[u8]) -> Result<AgentId, Refusal> {
        if let Some((agent, pool)) = self.agent_of(conn) {
            let is_same = *self.pool(pool).name == *name;
            return if is_same { Ok(agent) } else { Err(Refusal::BadSyntax("the connection works for another pool")) };
        }
        let pool = self.find_pool(name)?;
        if self.pool(pool).is_leaving {
            return Err(Refusal::NoPool);
        }
        let id = AgentId::from_index(self.agents.insert(Agent::new(conn, pool)));
        self.pool_mut(pool).agents.push(id);
        self.work(conn).agent = Some(id);
        Ok(id)
    }

    /// `PROVIDE pool [capacity]`.
    pub(super) fn provide(
        &mut self,
        conn: ConnId,
        name: &[u8],
        capacity: Option<u32>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), Refusal> {
        let id = self.enlist(conn, name)?;
        let agent = &mut self.agents[id.index()];
        let pool = agent.pool;
        if self.pools[pool.index()].is_leaving {
            return Err(Refusal::NoPool);
        }
        (agent.provides, agent.capacity) = (true, capacity);
        step.tell(conn, What::Ok);
        self.welcome(pool);
        Ok(())
    }

    /// `CLEAN pool`.
    pub(super) fn clean(&mut self, conn: ConnId, name: &[u8], step: &mut Step<'_, '_>) -> Result<(), Refusal> {
        let id = self.enlist(conn, name)?;
        self.agents[id.index()].cleans = true;
        step.tell(conn, What::Ok);
        self.welcome(self.agents[id.index()].pool);
        Ok(())
    }

    /// There is somebody new who can be asked.
    fn welcome(&mut self, pool: PoolId) {
        self.pool(pool).group.into_iter().for_each(|group| self.place_wants(group));
        self.touch(pool);
    }

    pub(super) fn find_start(&self, conn: ConnId, number: u64) -> Result<StartId, Refusal> {
        let work = self.clients.get(conn.index()).and_then(|client| client.work.as_ref());
        work.and_then(|work| work.starts.get(&number)).copied().ok_or(Refusal::BadStart)
    }

    /// A member that the connection provides.
    pub(super) fn own_member(&self, conn: ConnId, name: &[u8]) -> Result<MemberId, Refusal> {
        let (agent, pool) = self.agent_of(conn).ok_or(Refusal::NoSuchMember)?;
        let id = self.pool(pool).members.get(name).copied();
        id.filter(|id| self.member(*id).owner == MemberOwner::Agent(agent)).ok_or(Refusal::NoSuchMember)
    }

    /// `OFFER pool member [attr=value ...]`.
    pub(super) fn offer(
        &mut self,
        conn: ConnId,
        named: Named<'_>,
        attributes: Attributes,
        step: &mut Step<'_, '_>,
    ) -> Result<(), Refusal> {
        let pool = self.find_pool(named.pool)?;
        if self.pool(pool).is_leaving {
            return Err(Refusal::NoPool);
        }
        let agent = self.agent_of(conn).filter(|(agent, of)| *of == pool && self.agents[agent.index()].provides);
        let (agent, _) = agent.ok_or(Refusal::NotProvider)?;
        let known = self.known_member(pool, named.member, step);
        if let Some(id) = known.filter(|id| self.is_orphan(*id)) {
            step.tell(conn, What::Ok);
            self.adopt(id, agent, attributes, step);
            return Ok(());
        }
        self.check_room(pool, known)?;
        step.tell(conn, What::Ok);
        let id = self.create_member(pool, named.member, attributes, MemberOwner::Agent(agent), step);
        self.release_member(id, Cause::Other, step);
        Ok(())
    }

    /// Whether a pool has room for one more member, where `known` has its name already.
    pub(super) fn check_room(&self, pool: PoolId, known: Option<MemberId>) -> Result<(), Refusal> {
        let pool = self.pool(pool);
        if pool.slots() >= u64::from(pool.settings.max) {
            return Err(Refusal::PoolFull);
        }
        if known.is_some() {
            return Err(Refusal::MemberExists);
        }
        if self.has_room() { Ok(()) } else { Err(Refusal::TooMany) }
    }

    fn adopt(&mut self, id: MemberId, agent: AgentId, attributes: Attributes, step: &mut Step<'_, '_>) {
        self.unlink_owner(id, step);
        self.link_owner(id, MemberOwner::Agent(agent));
        let member = &mut self.members[id.index()];
        member.owner = MemberOwner::Agent(agent);
        if !attributes.is_empty() {
            self.set_attributes(id, attributes);
        }
        let member = self.member(id);
        let pool = member.pool;
        if member.phase.kind() == PhaseKind::Orphaned {
            self.release_member(id, Cause::Other, step);
        }
        self.touch(pool);
    }

    /// `WITHDRAW pool member [NOW]`.
    pub(super) fn withdraw(
        &mut self,
        conn: ConnId,
        named: Named<'_>,
        now: bool,
        step: &mut Step<'_, '_>,
    ) -> Result<(), Refusal> {
        let id = self.find_member(named, step)?;
        let agent = self.agent_of(conn).map(|(agent, _)| MemberOwner::Agent(agent));
        if agent != Some(self.member(id).owner) {
            return Err(Refusal::NoSuchMember);
        }
        step.tell(conn, What::Ok);
        self.let_go(id, now, step);
        Ok(())
    }

    /// A member leaves: at once unless it is in use, and then too if it is to be now. It is not replaced.
    pub(super) fn let_go(&mut self, id: MemberId, now: bool, step: &mut Step<'_, '_>) {
        let member = &mut self.members[id.index()];
        if matches!(member.phase, MemberPhase::InUse(_)) && !now {
            member.is_leaving = true;
        } else {
            self.end_anywhere(id, Lost::Withdrawn, None, step);
        }
    }

    /// `STOPPED member`.
    pub(super) fn stopped(&mut self, conn: ConnId, name: &[u8], step: &mut Step<'_, '_>) -> Result<(), Refusal> {
        let own = self.own_member(conn, name);
        let is_stopping = |id: &MemberId| self.member(*id).phase.kind() == PhaseKind::Stopping;
        if let Some(id) = own.ok().filter(is_stopping) {
            step.tell(conn, What::Ok);
            self.drop_member(id, step);
            return Ok(());
        }
        let work = self.clients.get_mut(conn.index()).and_then(|client| client.work.as_mut());
        if work.is_some_and(|work| work.late_stops.remove(name)) {
            step.tell(conn, What::Ok);
            return Ok(());
        }
        // It has stopped by itself.
        let id = own?;
        step.tell(conn, What::Ok);
        self.member_is_dead(id, step);
        Ok(())
    }

    /// `DEAD member`.
    pub(super) fn dead(&mut self, conn: ConnId, name: &[u8], step: &mut Step<'_, '_>) -> Result<(), Refusal> {
        let (agent, pool) = self.agent_of(conn).ok_or(Refusal::NoSuchMember)?;
        let id = self.known_member(pool, name, step).ok_or(Refusal::NoSuchMember)?;
        let member = self.member(id);
        let is_cleaner = self.agents[agent.index()].cleans
            || matches!(member.phase, MemberPhase::Cleaning { agent: asked, .. } if asked == agent);
        if member.owner != MemberOwner::Agent(agent) && !is_cleaner {
            return Err(Refusal::NoSuchMember);
        }
        step.tell(conn, What::Ok);
        self.member_is_dead(id, step);
        Ok(())
    }

    /// A member is dead, wherever it is; a fixed one is put into quarantine.
    fn member_is_dead(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        if let MemberPhase::InUse(lease) = self.member(id).phase {
            self.lose_lease(lease, Lost::Died, step);
        }
        match self.member(id).phase.kind() {
            PhaseKind::Stopping => self.drop_member(id, step),
            PhaseKind::Quarantined => {}
            _ if self.member(id).owner == MemberOwner::Fixed => self.fail_member(id, Stat::Died, step),
            _ => self.member_died(id, step),
        }
    }

    /// A member was not stopped in time: its provider may still say that it is.
    pub(super) fn remember_stop(&mut self, id: MemberId) {
        if let Some(conn) = self.conn_of(id) {
            self.remember_late_stop(conn, self.member(id).name.clone());
        }
    }

    pub(super) fn remember_late_stop(&mut self, conn: ConnId, name: Arc<[u8]>) {
        let stops = &mut self.work(conn).late_stops;
        if stops.len() < MOST_LATE_STOPS {
            stops.insert(name);
        }
    }

    /// The connection is gone: its starts have failed, and its members are gone or orphans.
    pub(super) fn lose_agent(&mut self, conn: ConnId, step: &mut Step<'_, '_>) {
        let agent = self.agent_of(conn);
        let starts: Option<Vec<StartId>> =
            self.clients[conn.index()].work.as_ref().map(|work| work.starts.values().copied().collect());
        for start in starts.unwrap_or_default() {
            let is_under_way = matches!(self.starts[start.index()].progress, Progress::UnderWay { .. });
            if let Some((_, pool)) = agent.filter(|_| is_under_way) {
                self.note_failure(pool, step);
            }
            self.end_start(start, step);
            if self.starts.contains(start.index()) {
                self.drop_start(start);
            }
        }
        let dismissed = self.clients[conn.index()].work.as_mut().map(|work| std::mem::take(&mut work.dismissed));
        for agent in dismissed.unwrap_or_default() {
            self.agents[agent.index()].standing = ProviderState::Lost;
        }
        let Some((agent, pool)) = agent else { return };
        self.dismiss(agent, pool, step);
        let grace = self.pool(pool).settings.provider_grace;
        let has_grace = grace > Span::ZERO && !self.pool(pool).is_leaving;
        let entry = &mut self.agents[agent.index()];
        entry.standing = match has_grace {
            true => ProviderState::Grace(step.timers.arm(step.now + grace, Timer::Grace(agent))),
            false => ProviderState::Lost,
        };
        self.forsake(agent, step);
        self.pool_mut(pool).is_to_reconsider = true;
        self.pool(pool).group.into_iter().for_each(|group| self.place_wants(group));
        self.touch(pool);
    }

    /// Takes a provider or cleaner out of its pool; its members are left.
    pub(super) fn dismiss(&mut self, agent: AgentId, pool: PoolId, step: &mut Step<'_, '_>) {
        self.pool_mut(pool).agents.retain(|other| *other != agent);
        self.lose_cleaner(pool, agent, step);
        if let Some(conn) = self.agents[agent.index()].conn() {
            self.work(conn).agent = None;
        }
    }

    /// The members of a provider that is gone are gone, or out of use for its grace.
    fn forsake(&mut self, id: AgentId, step: &mut Step<'_, '_>) {
        let agent = &mut self.agents[id.index()];
        (agent.is_pending, agent.to_orphan) = (true, agent.members.len());
        let pool = agent.pool;
        self.pool_mut(pool).orphaned_free += 1;
        self.begin(BackgroundTask::Agent(id), step);
    }

    /// The grace of a lost provider is over: the members that were not adopted are gone.
    pub(super) fn grace_is_over(&mut self, id: AgentId, step: &mut Step<'_, '_>) {
        let agent = &mut self.agents[id.index()];
        if let ProviderState::Grace(timer) = std::mem::replace(&mut agent.standing, ProviderState::Lost) {
            timer.fired();
        }
        // A chore that is about to put them out of use ends them instead.
        if !agent.is_pending {
            self.forsake(id, step);
        }
    }
}
