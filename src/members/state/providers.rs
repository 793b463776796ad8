//! Requests of providers, cleaners and operators about members, and the loss of a provider.

use super::history::{End, Ending};
use super::{
    Agent, AgentId, Answer, ComingHold, DONE, Member, MemberId, News, Phase, Pool, PoolId, Reason, Stat, State, Step,
    Task, Timer,
};
use poolcounter_core::{ConnId, Span};
use poolcounter_protocol::members::pool_settings::Settings;
use poolcounter_protocol::members::request::{Attributes, Lost, Named, Refusal, What};

impl State {
    /// Returns the agent of a connection; None if it has none.
    fn own_agent(&self, conn: ConnId, name: &[u8]) -> Result<Option<AgentId>, Refusal> {
        let Some((agent, pool)) = self.agents.serving(conn) else { return Ok(None) };
        let is_same = self.pools.find(name) == Ok(pool);
        if is_same { Ok(Some(agent)) } else { Err(Refusal::BadSyntax("the connection works for another pool")) }
    }

    /// Makes a connection an agent of a pool, unless it is one.
    fn enlist(&mut self, conn: ConnId, name: &[u8]) -> Result<AgentId, Refusal> {
        if let Some(agent) = self.own_agent(conn, name)? {
            return Ok(agent);
        }
        let pool = self.lasting_pool(name)?;
        let agent = self.agents.insert(Agent { conn: Some(conn), pool, ..Agent::default() });
        self.agents.set_last_pool(conn, name.into());
        Ok(agent.expect("the connection serves no pool"))
    }

    /// `PROVIDE pool [capacity] [session=NAME]`.
    pub(super) fn provide(
        &mut self,
        conn: ConnId,
        name: &[u8],
        capacity: Option<u32>,
        session: Option<&[u8]>,
        step: &mut Step<'_, '_>,
    ) -> Answer {
        if let Some(agent) = self.own_agent(conn, name)? {
            let Agent { provides, session: known, .. } = self.agents.get(agent);
            if *provides && session.is_some() && session != known.as_deref() {
                return Err(Refusal::BadSyntax("the connection has another session"));
            }
        }
        let pool = self.lasting_pool(name)?;
        if self.members.is_fixed(pool) == Some(true) {
            return Err(Refusal::BadSyntax("the pool has fixed members, and so no providers"));
        }
        let known = session.and_then(|session| self.agents.of_session(pool, session));
        let id = match known {
            Some(known) => {
                self.replace_conn(known, conn, step);
                known
            }
            None => self.enlist(conn, name)?,
        };
        self.agents.change(id, |agent| (agent.provides, agent.capacity) = (true, capacity));
        self.note_room(id);
        if let Some(session) = session.filter(|_| known.is_none()) {
            self.agents.set_session(id, session.into());
        }
        step.tell(conn, What::Ok);
        self.pools.touch(pool);
        Ok(None)
    }

    /// Passes a provider with its members to another connection of the same session. The previous one is closed, if it
    /// is still open.
    fn replace_conn(&mut self, id: AgentId, conn: ConnId, step: &mut Step<'_, '_>) {
        let Agent { pool, .. } = *self.agents.get(id);
        let before = self.agents.get(id).conn;
        if before == Some(conn) {
            return;
        }
        if let Some((cleaner, _)) = self.agents.serving(conn) {
            // The connection already cleans for the pool, and goes on as both.
            self.lose_cleanings(pool, cleaner, step);
            self.agents.remove(cleaner, step);
            self.agents.change(id, |agent| agent.cleans = true);
        }
        if let Some(before) = before {
            self.leave_wait(before, step);
            self.lose_consumer(before, false, step);
            self.fail_starts(id, step);
            self.replaced.push(before);
        }
        self.lose_cleanings(pool, id, step);
        self.agents.replace_conn(id, conn, step);
        self.agents.set_last_pool(conn, self.pools.get(pool).name.clone());
        self.end_lost_members(id, step);
        self.pools.reconsider(pool);
    }

    /// Repeats the pending request about a member to its new connection, and frees a suspended member.
    pub(super) fn resume_member(&mut self, id: MemberId, conn: ConnId, step: &mut Step<'_, '_>) {
        let Settings { stop_timeout, check_timeout, .. } = self.pool(self.member(id).pool).settings;
        let (pool, member) = self.names_of(id);
        match self.phase_of(id) {
            Phase::Orphaned => _ = self.release_member(id, step),
            Phase::Stopping => {
                self.members.rearm(id, stop_timeout, step);
                step.tell(conn, What::Stop { pool, member });
            }
            Phase::Checking => {
                self.members.rearm(id, check_timeout, step);
                step.tell(conn, What::Check { pool, member });
            }
            _ => {}
        }
    }

    /// Fails the starts of a provider whose connection ends, without a backoff.
    fn fail_starts(&mut self, agent: AgentId, step: &mut Step<'_, '_>) {
        while let Some(start) = self.starts.of_agent(agent).front() {
            let (pool, ..) = self.finish_start(start, step);
            self.pools.count(pool, Stat::StartsFailed);
        }
    }

    /// `CLEAN pool`.
    pub(super) fn clean(&mut self, conn: ConnId, name: &[u8]) -> Answer {
        let id = self.enlist(conn, name)?;
        self.agents.change(id, |agent| agent.cleans = true);
        self.pools.touch(self.agents.get(id).pool);
        DONE
    }

    /// Returns the pool of this name, unless it is being removed.
    pub(super) fn lasting_pool(&self, name: &[u8]) -> Result<PoolId, Refusal> {
        self.pools.find(name).ok().filter(|pool| !self.pool(*pool).is_leaving).ok_or(Refusal::NoPool)
    }

    /// Returns the member of this name.
    pub(super) fn find_member(&self, named: Named<'_>) -> Result<MemberId, Refusal> {
        let pool = self.pools.find(named.pool)?;
        self.members.find_named(pool, named.member).ok_or(Refusal::NoSuchMember)
    }

    /// Returns the member of this name that the connection provides.
    pub(super) fn own_member(&self, conn: ConnId, name: &[u8]) -> Result<MemberId, Refusal> {
        let (agent, pool) = self.agents.serving(conn).ok_or(Refusal::NoSuchMember)?;
        let id = self.members.find_named(pool, name);
        id.filter(|id| self.member(*id).owner == Some(agent)).ok_or(Refusal::NoSuchMember)
    }

    /// `OFFER pool member [attr=value ...]`.
    pub(super) fn offer(
        &mut self,
        conn: ConnId,
        named: Named<'_>,
        attributes: Attributes,
        step: &mut Step<'_, '_>,
    ) -> Answer {
        let pool = self.lasting_pool(named.pool)?;
        let agent = self.agents.serving(conn).filter(|(agent, of)| *of == pool && self.agents.get(*agent).provides);
        let (agent, _) = agent.ok_or(Refusal::NotProvider)?;
        let known = self.members.find_named(pool, named.member);
        if let Some(id) = known.filter(|id| self.is_orphan(*id)) {
            self.adopt(id, agent, attributes, step);
            return DONE;
        }
        self.check_room(pool, known)?;
        let id = self.create_member(pool, named.member, attributes, Some(agent), step);
        self.release_member(id, step);
        DONE
    }

    /// Checks that a pool has room for one more member, and that its name is new: `known` is None.
    pub(super) fn check_room(&self, pool: PoolId, known: Option<MemberId>) -> Result<(), Refusal> {
        if !self.has_slot(pool) {
            return Err(Refusal::PoolFull);
        }
        if known.is_some() {
            return Err(Refusal::MemberExists);
        }
        if self.has_room() { Ok(()) } else { Err(Refusal::TooMany) }
    }

    /// Passes a member of a lost provider to another one, with the pending request about it.
    fn adopt(&mut self, id: MemberId, agent: AgentId, attributes: Attributes, step: &mut Step<'_, '_>) {
        let Member { pool, owner, .. } = *self.member(id);
        self.members.set_owner(id, agent);
        self.note_room(agent);
        self.drop_owner_if_over(owner, step);
        if !attributes.is_empty() {
            self.members.set_attributes(id, attributes);
        }
        self.mark_lease_of(id);
        if let Some(conn) = self.conn_of(id) {
            self.resume_member(id, conn, step);
        }
        self.pools.touch(pool);
    }

    /// `WITHDRAW pool member [NOW]`.
    pub(super) fn withdraw(&mut self, conn: ConnId, named: Named<'_>, now: bool, step: &mut Step<'_, '_>) -> Answer {
        let id = self.find_member(named)?;
        let agent = self.agents.serving(conn).map(|(agent, _)| Some(agent));
        if agent != Some(self.member(id).owner) {
            return Err(Refusal::NoSuchMember);
        }
        let by = self.who(conn, step);
        self.withdraw_member(id, now, by, step);
        DONE
    }

    /// Ends a member without a replacement. A member in use leaves at its return, or at once if `now`.
    pub(super) fn withdraw_member(&mut self, id: MemberId, now: bool, by: String, step: &mut Step<'_, '_>) {
        if self.phase_of(id) == Phase::InUse && !now {
            if !self.member(id).is_leaving {
                self.members.marked(id).is_leaving = true;
                self.mark_lease_of(id);
            }
        } else {
            self.end_anywhere(id, Lost::Withdrawn, by, None, step);
        }
    }

    /// `STOPPED member`. A member that is not there was stopped before.
    pub(super) fn stopped(&mut self, conn: ConnId, name: &[u8], step: &mut Step<'_, '_>) -> Answer {
        if self.agents.last_pool(conn).is_none() {
            return Err(Refusal::NoSuchMember);
        }
        match self.own_member(conn, name) {
            Ok(id) if self.phase_of(id) == Phase::Stopping => self.drop_member(id, step),
            // It has stopped by itself.
            Ok(id) => self.end_dead_member(id, conn, b"", step),
            Err(_) => {}
        }
        DONE
    }

    /// `DEAD member [text]`.
    pub(super) fn dead(&mut self, conn: ConnId, name: &[u8], text: &[u8], step: &mut Step<'_, '_>) -> Answer {
        let (agent, pool) = self.agents.serving(conn).ok_or(Refusal::NoSuchMember)?;
        let id = self.members.find_named(pool, name).ok_or(Refusal::NoSuchMember)?;
        let (is_own, is_asked) = (self.member(id).owner == Some(agent), self.is_cleaned_by(id, agent));
        if !is_own && !is_asked && !self.agents.get(agent).cleans {
            return Err(Refusal::NoSuchMember);
        }
        match is_asked && !is_own {
            true => self.cleaning_failed(id, agent, text, step),
            false => self.end_dead_member(id, conn, text, step),
        }
        DONE
    }

    /// Ends a dead member in any phase, or puts a fixed one into quarantine.
    fn end_dead_member(&mut self, id: MemberId, conn: ConnId, text: &[u8], step: &mut Step<'_, '_>) {
        let why = Reason::said("dead", text);
        let by = self.who(conn, step);
        let reason = Reason::new(why, by.clone());
        if let Some(lease) = self.member(id).lease() {
            self.end_lease(lease, End { ending: Ending::Lost(Lost::Died), by, note: b"" }, step);
        }
        match self.phase_of(id) {
            Phase::Stopping => self.drop_member(id, step),
            Phase::Quarantined => {}
            _ if self.member(id).owner.is_none() => {
                self.put_off_hold(id, step);
                self.fail_member(id, Stat::Died, reason, step);
            }
            _ => self.member_died(id, step),
        }
    }

    /// Notes that a held member is held for the rest of that time after its repair.
    fn put_off_hold(&mut self, id: MemberId, step: &Step<'_, '_>) {
        let Member { phase, timer, .. } = self.member(id);
        if let (Phase::Held, Some(timer)) = (phase, timer)
            && let Some((since, reason)) = self.members.beside(id).reason.clone()
        {
            let span = step.timers.deadline(timer).since(step.now);
            self.members.beside_mut(id).hold = Some(ComingHold { span, since, reason });
        }
    }

    /// Fails the starts of a connection that ends, and ends its members or suspends them for `provider_grace`.
    pub(super) fn lose_agent(&mut self, conn: ConnId, step: &mut Step<'_, '_>) {
        let Some((agent, pool)) = self.agents.serving(conn) else { return };
        self.fail_starts(agent, step);
        self.lose_cleanings(pool, agent, step);
        let Pool { is_leaving, settings, .. } = self.pools.get(pool);
        let grace = Some(settings.provider_grace).filter(|grace| *grace > Span::ZERO && !is_leaving);
        let timer = grace.map(|grace| step.timers.arm(step.now + grace, Timer::Grace(agent)));
        self.agents.set_lost(agent, (step.peer)(conn), timer, step.now);
        self.end_lost_members(agent, step);
        self.pools.reconsider(pool);
    }

    /// Ends the members of a lost provider, suspends them for its grace, or passes them to its new connection, in the
    /// background.
    fn end_lost_members(&mut self, id: AgentId, step: &mut Step<'_, '_>) {
        self.agents.get_mut(id).to_pass = self.members.of_agent(id).len();
        self.begin(Task::Agent(id), step);
    }

    /// Ends the members of a lost provider that were not adopted in its grace.
    pub(super) fn grace_is_over(&mut self, id: AgentId, step: &mut Step<'_, '_>) {
        self.agents.end_grace(id);
        self.end_lost_members(id, step);
    }

    /// Ends the work of a connection as a provider and cleaner, as if it were lost.
    pub fn stop_providing(&mut self, conn: ConnId, step: &mut Step<'_, '_>) {
        self.lose_agent(conn, step);
        self.settle(step);
    }

    /// `HOLD pool member seconds [note]`. A member that is in use, or cleaned, is held after that.
    pub(super) fn hold(
        &mut self,
        conn: ConnId,
        named: Named<'_>,
        span: Span,
        note: &[u8],
        step: &mut Step<'_, '_>,
    ) -> Answer {
        let id = self.find_member(named)?;
        let by = self.who(conn, step);
        self.note(id, by.clone(), News::Held { span, note: note.into() }, step);
        let reason = Reason::of_hold(note, by);
        match self.phase_of(id) {
            Phase::Free | Phase::Held | Phase::Unclean | Phase::CleanLater => {
                self.leave_state(id, step);
                self.members.keep_out(id, Phase::Held, Some(span), reason, step);
            }
            Phase::Stopping => {}
            _ => {
                self.members.beside_mut(id).hold = Some(ComingHold { span, since: step.now, reason });
                self.mark_lease_of(id);
            }
        }
        DONE
    }
}
