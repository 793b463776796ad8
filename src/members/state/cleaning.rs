//! Cleaning of members between two uses: the cleaners that are asked, failed and late cleanings, lost cleaners.
//!
//! Invariant: in a pool with `clean_timeout`, a member that was used, lost, held or in quarantine is free only after a
//! `CLEANED`, unless an operator frees it as it is.

use super::background;
use super::{
    AgentId, Answer, ConnId, DONE, Member, MemberId, Named, News, Phase, Pool, PoolId, Reason, Refusal, Span, Stat,
    State, Step, Timer, What,
};
use poolcounter_protocol::line::WireSeconds;
use serde::{Deserialize, Serialize};

/// Most members of a pool that are cleaned at once, whatever its settings say: the loss of a cleaner takes them all
/// back in one step, which looks at each a few times.
const MOST_CLEANED: u32 = 1_024;
/// Time after which a member is cleaned again whose cleaner was lost. Until then that cleaner may connect again, and say
/// that it goes on.
pub(super) const CLEANER_GRACE: Span = Span::from_secs(10);
/// Times after which a cleaning that has failed is tried again: once, twice, and more often.
const TRY_AGAIN: [Span; 3] = [Span::from_secs(10), Span::from_secs(60), Span::from_secs(300)];

/// Failed cleanings of one member since its last use.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct FailedCleanings {
    pub times: u32,
    /// Cleaner that has failed last. Other cleaners are asked before it.
    pub by: Option<ConnId>,
}

/// Request of an operator that ends the time in which a member is kept out.
pub(super) struct Release {
    /// Phases that it ends.
    ends: &'static [Phase],
    /// Its word in the log.
    word: &'static str,
    /// Whether the member is cleaned, if its pool cleans.
    is_cleaned: bool,
}

pub(super) const REPAIR: Release = Release { ends: &[Phase::Quarantined], word: "repaired", is_cleaned: true };
pub(super) const REPAIR_AS_IS: Release = Release {
    ends: &[Phase::Quarantined, Phase::Unclean, Phase::CleanLater],
    word: "repaired, and not cleaned,",
    is_cleaned: false,
};
pub(super) const FREE: Release = Release { ends: &[Phase::Held], word: "freed", is_cleaned: true };

impl State {
    /// Frees a member that was used, lost, held or in quarantine, after its cleaning if its pool cleans. A member that
    /// an operator wants to hold is held as it is.
    pub(super) fn return_member(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        let pool = self.member(id).pool;
        if self.pool(pool).settings.clean_timeout == Span::ZERO {
            self.release_member(id, step);
            return;
        }
        let Some(id) = self.check_usable(id, step) else { return };
        if let Some(hold) = self.members.take_beside(id, |beside| beside.hold.take()) {
            return self.members.keep_out(id, Phase::Held, Some(hold.span), hold.reason, step);
        }
        self.members.take_beside(id, |beside| beside.failed.take());
        self.members.get_mut(id).since = step.now;
        self.members.enter_state(id, Phase::Unclean, None);
        self.pools.touch(pool);
    }

    /// Returns the most members of a pool that are cleaned at once.
    pub(super) fn most_cleaned(&self, id: PoolId) -> u32 {
        self.pool(id).settings.clean_parallel.clamp(1, MOST_CLEANED)
    }

    /// Asks agents to clean members up to the limit, longest returned first.
    pub(super) fn clean_next(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        let Pool { is_leaving, settings, .. } = self.pool(id);
        if *is_leaving {
            return;
        }
        if settings.clean_timeout == Span::ZERO {
            return self.free_unclean(id, step);
        }
        while self.members.in_pool(id).count(Phase::Cleaning) < self.most_cleaned(id) {
            let Some(member) = self.members.in_pool(id).unclean.front() else { return };
            let provider = self.member(member).owner;
            let failed = self.members.beside(member).failed.and_then(|failed| failed.by);
            let Some(agent) = self.agents.cleaner_for(id, provider, failed) else { return };
            self.leave_state(member, step);
            self.begin_cleaning(member, agent, step);
            let (pool, member) = self.names_of(member);
            if let Some(conn) = self.agents.get(agent).conn {
                step.tell(conn, What::Clean { pool, member });
            }
        }
    }

    /// Notes that an agent cleans a member that is in no queue.
    fn begin_cleaning(&mut self, id: MemberId, agent: AgentId, step: &mut Step<'_, '_>) {
        let clean_timeout = self.pool(self.member(id).pool).settings.clean_timeout;
        let timer = step.timers.arm(step.now + clean_timeout, Timer::Phase(id));
        self.members.get_mut(id).proved = step.now;
        self.members.get_mut(id).set_of(agent);
        self.members.enter_state(id, Phase::Cleaning, Some(timer));
        self.agents.change(agent, |agent| agent.cleaning += 1);
    }

    /// Frees members that wait to be cleaned in a pool that does not clean any more.
    fn free_unclean(&mut self, id: PoolId, step: &mut Step<'_, '_>) {
        while let Some(member) = self.members.in_pool(id).unclean.front() {
            if !step.timers.spend(background::COST) {
                return self.fall_behind(id);
            }
            self.leave_state(member, step);
            self.release_member(member, step);
        }
    }

    /// `CLEANED member`.
    pub(super) fn cleaned(&mut self, conn: ConnId, name: &[u8], step: &mut Step<'_, '_>) -> Answer {
        let (agent, pool) = self.agents.serving(conn).ok_or(Refusal::NotProvider)?;
        let id = self.members.find_named(pool, name).ok_or(Refusal::NoSuchMember)?;
        if self.is_cleaned_by(id, agent) {
            let took = step.now.since(self.member(id).proved);
            self.pools.times(pool).clean.record(took);
            self.members.take_beside(id, |beside| beside.failed.take());
            self.leave_state(id, step);
            self.release_member(id, step);
        }
        DONE
    }

    /// `CLEANING member`: a cleaner that has connected again goes on. `NOT_TAKEN` tells it to stop, because the member is
    /// in use, kept out or cleaned by another.
    pub(super) fn cleaning(&mut self, conn: ConnId, name: &[u8], step: &mut Step<'_, '_>) -> Answer {
        let (agent, pool) = self.agents.serving(conn).ok_or(Refusal::NotProvider)?;
        let id = self.members.find_named(pool, name).ok_or(Refusal::NoSuchMember)?;
        let is_open = matches!(self.phase_of(id), Phase::Free | Phase::Unclean | Phase::CleanLater)
            && self.pool(pool).settings.clean_timeout > Span::ZERO;
        if is_open {
            self.leave_state(id, step);
            self.begin_cleaning(id, agent, step);
        }
        Ok(Some(if self.is_cleaned_by(id, agent) { What::Ok } else { What::NotTaken }))
    }

    /// Returns whether an agent was asked to clean a member, and has not answered.
    pub(super) fn is_cleaned_by(&self, id: MemberId, agent: AgentId) -> bool {
        self.member(id).cleaner() == Some(agent)
    }

    /// `DEAD member [text]` of a cleaner. The cleaning is tried again later, up to `clean_attempts` times.
    pub(super) fn cleaning_failed(&mut self, id: MemberId, agent: AgentId, text: &[u8], step: &mut Step<'_, '_>) {
        let Member { pool, .. } = *self.member(id);
        let limit = self.pool(pool).settings.clean_attempts;
        let times = self.members.beside(id).failed.map_or(0, |failed| failed.times).saturating_add(1);
        let by = self.who_is(agent, step);
        self.pools.count(pool, Stat::CleaningsFailed);
        self.leave_state(id, step);
        if limit > 0 && times >= limit {
            self.members.take_beside(id, |beside| beside.failed.take());
            let why = Reason::said("cleaning failed", text);
            return self.fail_member(id, Stat::Failed, Reason::new(why, by), step);
        }
        let of = if limit > 0 { format!(" of {limit}") } else { String::new() };
        let why = Reason::said(&format!("cleaning failed ({times}{of})"), text);
        self.note(id, by.clone(), News::Unclean(why.clone()), step);
        self.members.beside_mut(id).failed = Some(FailedCleanings { times, by: self.agents.get(agent).conn });
        let after = TRY_AGAIN[TRY_AGAIN.len().min(times as usize) - 1];
        self.members.keep_out(id, Phase::CleanLater, Some(after), Reason::new(why, by), step);
    }

    /// Cleans a member that is in no queue, after it was put off.
    pub(super) fn clean_again(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        let Some(id) = self.check_usable(id, step) else { return };
        self.members.enter_unclean(id);
        self.pools.touch(self.members.get(id).pool);
    }

    /// Keeps out a member whose cleaning takes too long, until its cleaner has answered or is lost.
    pub(super) fn cleaning_is_late(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        self.members.cleaning_fired(id);
        let pool = self.member(id).pool;
        let by = self.member(id).cleaner().map_or_else(String::new, |agent| self.who_is(agent, step));
        let span = WireSeconds(self.pool(pool).settings.clean_timeout);
        let why = format!("cleaning takes longer than {span} s; {by} is still at it");
        self.note(id, String::new(), News::Unclean(why.clone()), step);
        self.members.beside_mut(id).reason = Some((step.now, Reason::new(why, by)));
    }

    /// Puts off the cleanings of an agent that is lost.
    pub(super) fn lose_cleanings(&mut self, pool: PoolId, agent: AgentId, step: &mut Step<'_, '_>) {
        let lost = self.members.in_pool(pool).count(Phase::Cleaning) > 0;
        let lost = if lost { self.members.cleaned_in_pool(pool, agent) } else { Vec::new() };
        for id in lost {
            let by = self.who_is(agent, step);
            self.leave_state(id, step);
            let reason = Reason::new("its cleaner is lost; it is cleaned again", by);
            self.members.keep_out(id, Phase::CleanLater, Some(CLEANER_GRACE), reason, step);
        }
    }

    /// `REPAIR pool member [as_is]` and `FREE pool member`.
    pub(super) fn release_from(
        &mut self,
        conn: ConnId,
        named: Named<'_>,
        Release { ends, word, is_cleaned }: Release,
        step: &mut Step<'_, '_>,
    ) -> Answer {
        let id = self.find_member(named)?;
        if ends.contains(&self.phase_of(id)) {
            self.note(id, self.who(conn, step), News::Released(word), step);
            self.leave_state(id, step);
            match is_cleaned {
                true => self.return_member(id, step),
                false => _ = self.release_member(id, step),
            }
        }
        DONE
    }

    fn who_is(&self, agent: AgentId, step: &Step<'_, '_>) -> String {
        self.agents.get(agent).conn.map_or_else(String::new, |conn| self.who(conn, step))
    }

    /// Returns the name of a connection, else its address.
    pub fn who(&self, conn: ConnId, step: &Step<'_, '_>) -> String {
        let name = self.leases.name(conn).map(|name| String::from_utf8_lossy(name).into_owned());
        name.unwrap_or_else(|| (step.peer)(conn))
    }
}
