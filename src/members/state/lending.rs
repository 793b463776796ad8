//! Begin and end of leases: takes, returns, losses, and connections that end.

use super::history::{End, Ending};
use super::{
    Answer, DONE, HoldingId, Lease, LeaseId, Member, MemberId, News, Phase, Reason, Stat, State, Step, Task, Waiter,
    background,
};
use poolcounter_core::{ConnId, Id as _, Span};
use poolcounter_protocol::members::pool_settings::{OnLoss, Settings};
use poolcounter_protocol::members::request::Condition;
use poolcounter_protocol::members::request::{LeaseName, Lost, LostBy, Taken, Token, What};
use poolcounter_service::access::Holds;
use std::sync::Arc;

impl State {
    /// Hands out free members for a take.
    pub(super) fn hand_out(&mut self, take: &Waiter, members: &[MemberId], step: &mut Step<'_, '_>) {
        let what = match (take.count, members) {
            (None, [only]) => What::Member(self.begin_lease(take, *only, step)),
            _ => What::Members(members.iter().map(|member| self.begin_lease(take, *member, step)).collect()),
        };
        step.tell(take.conn, what);
    }

    fn begin_lease(&mut self, take: &Waiter, member: MemberId, step: &mut Step<'_, '_>) -> Taken {
        let pool = self.member(member).pool;
        let timer = self.members.leave_state(member);
        timer.into_iter().for_each(|timer| step.timers.cancel(timer));
        let id = self.leases.begin(take.conn, member, pool, take.lease, step);
        let taken = self.members.get_mut(member);
        taken.uses = taken.uses.saturating_add(1);
        taken.set_of(id);
        self.members.enter_state(member, Phase::InUse, None);
        self.note_holder(id, take.conn, step);
        self.arm_lease(id, step);
        self.pools.count(pool, Stat::Takes);
        self.pools.note_free(pool, self.members.in_pool(pool).idle());
        self.note_idle(pool);
        let lease = self.leases.get(id);
        Taken {
            lease: lease.number,
            pool: self.pool(pool).name.clone(),
            member: self.member(member).name.clone(),
            attributes: self.members.attributes(member).cloned(),
            token: lease.token.as_ref().map(|token| token.token),
        }
    }

    /// Arms the timer of a lease anew.
    pub(super) fn arm_lease(&mut self, id: LeaseId, step: &mut Step<'_, '_>) {
        let pool = self.members.get(self.leases.get(id).member).pool;
        self.leases.arm(id, &self.pools.get(pool).settings, step);
    }

    /// Notes that a member in use has changed: the row of its lease, if it has one, is written anew.
    pub(super) fn mark_lease_of(&mut self, id: MemberId) {
        if let Some(lease) = self.member(id).lease() {
            self.leases.mark(lease);
        }
    }

    /// Detaches a lease from its connection.
    fn detach_lease(&mut self, id: LeaseId) {
        let pool = self.member(self.leases.get(id).member).pool;
        self.leases.detach(id, pool);
    }

    /// Ends a lease, with a message to its holder if that has lost it, and returns its member, which is in no queue.
    pub(super) fn end_lease(&mut self, id: LeaseId, end: End<'_>, step: &mut Step<'_, '_>) -> MemberId {
        let is_return = matches!(end.ending, Ending::Returned | Ending::Failed);
        let holder = if is_return { String::new() } else { self.leases.holder_text(id, step.peer) };
        if let (Ending::Lost(reason), Some(conn)) = (end.ending, self.leases.conn_of(id)) {
            let is_told = reason == Lost::TakenBack;
            let by = is_told.then(|| Box::new(LostBy { name: end.by.as_bytes().into(), note: end.note.into() }));
            step.tell(conn, What::Lost { lease: self.leases.get(id).number, reason, by });
        }
        self.detach_lease(id);
        let lease = self.leases.remove(id, step);
        if let Some(token) = lease.token.as_ref().filter(|_| self.member(lease.member).owner.is_none()) {
            // The row of a fixed member has its lease.
            self.leases.marks.forget(&token.token);
        }
        self.note_end(&lease, holder, end, step);
        let Lease { member, since, .. } = lease;
        // Its pool is settled once it has its next phase.
        self.members.leave_state(member);
        self.members.get_mut(member).since = step.now;
        self.pools.times(self.members.get(member).pool).hold.record(step.now.since(since));
        member
    }

    /// Ends a lease, and returns, fails or loses its member, as the end says.
    fn conclude(&mut self, id: LeaseId, end: End<'_>, step: &mut Step<'_, '_>) {
        let (ending, lease) = (end.ending, self.leases.get(id));
        let (why, failure) = match ending {
            Ending::Returned => {
                let member = self.end_lease(id, end, step);
                return self.return_member(member, step);
            }
            Ending::Failed => ("returned as failed", Some(Stat::Failed)),
            Ending::Gone => ("lost", None),
            Ending::Lost(Lost::TakenBack) => ("an operator took it back", None),
            Ending::Lost(Lost::HeldTooLong) => ("held for longer than max_hold", Some(Stat::HeldTooLong)),
            Ending::Lost(_) if lease.token.as_ref().is_some_and(|token| token.span > Span::ZERO) => {
                ("its lease ran out", None)
            }
            Ending::Lost(_) => ("lost in a restart", None),
        };
        let Member { owner, pool, .. } = *self.member(lease.member);
        let is_kept_out = owner.is_none() || self.pool(pool).settings.loss_delay > Span::ZERO;
        let by = match ending {
            Ending::Lost(Lost::TakenBack) => end.by.clone(),
            _ if is_kept_out => self.leases.holder_text(id, step.peer),
            _ => String::new(),
        };
        let member = self.end_lease(id, end, step);
        match failure {
            Some(stat) => self.fail_member(member, stat, Reason::new(why, by), step),
            None => self.lose_member(member, Reason::new(why, by), step),
        }
    }

    /// Ends, suspends or frees a member that its consumer has lost, as the settings say.
    fn lose_member(&mut self, id: MemberId, reason: Reason, step: &mut Step<'_, '_>) {
        let Settings { on_loss, loss_delay, .. } = self.pool(self.member(id).pool).settings;
        if on_loss == OnLoss::Fail || self.is_orphan(id) {
            return self.fail_member(id, Stat::Failed, reason, step);
        }
        if loss_delay == Span::ZERO {
            return self.return_member(id, step);
        }
        let Some(id) = self.check_usable(id, step) else { return };
        self.members.keep_out(id, Phase::Delayed, Some(loss_delay), reason, step);
    }

    /// `RETURN lease [OK|FAIL]`.
    pub(super) fn give_back(
        &mut self,
        conn: ConnId,
        name: LeaseName,
        condition: Condition,
        step: &mut Step<'_, '_>,
    ) -> Answer {
        let found = match name {
            LeaseName::Number(number) => self.leases.find(number).filter(|id| self.leases.conn_of(*id) == Some(conn)),
            LeaseName::Token(token) => self.leases.find_token(&token),
        };
        let Some(id) = found else { return Ok(Some(What::NotTaken)) };
        let ending = if condition == Condition::Ok { Ending::Returned } else { Ending::Failed };
        self.conclude(id, End::plain(ending), step);
        Ok(Some(What::Returned))
    }

    /// `RENEW token [seconds]`.
    pub(super) fn renew(&mut self, conn: ConnId, token: &Token, span: Option<Span>, step: &mut Step<'_, '_>) -> Answer {
        let Some(id) = self.leases.find_token(token) else { return Ok(Some(What::NotTaken)) };
        self.leases.renew(id, span, step.now);
        self.members.take_beside(self.leases.get(id).member, |beside| beside.reason.take());
        if self.leases.conn_of(id) != Some(conn) {
            self.detach_lease(id);
            let pool = self.member(self.leases.get(id).member).pool;
            self.leases.attach(id, conn, pool);
        }
        self.arm_lease(id, step);
        Ok(Some(What::Renewed))
    }

    /// Ends a lease that has run out or was held for too long, or reports one that is held for long.
    pub(super) fn lease_is_due(&mut self, id: LeaseId, step: &mut Step<'_, '_>) {
        self.leases.fired(id);
        let Lease { number: lease, since, ref token, member, .. } = *self.leases.get(id);
        let (held, pool) = (step.now.since(since), self.member(member).pool);
        let has_run_out = token.as_ref().is_some_and(|token| token.until <= step.now);
        let Settings { max_hold, warn_hold, .. } = self.pool(pool).settings;
        if has_run_out || max_hold > Span::ZERO && held >= max_hold {
            let reason = if has_run_out { Lost::Expired } else { Lost::HeldTooLong };
            return self.conclude(id, End::plain(Ending::Lost(reason)), step);
        }
        if warn_hold > Span::ZERO && held >= warn_hold {
            self.leases.get_mut(id).is_reported = true;
            self.pools.count(pool, Stat::LongHolds);
            self.note(member, self.leases.holder_text(id, step.peer), News::LongHold { lease, held }, step);
        }
        self.arm_lease(id, step);
    }

    /// `TAKEBACK lease [note]`.
    pub(super) fn take_back(&mut self, conn: ConnId, number: u64, note: &[u8], step: &mut Step<'_, '_>) -> Answer {
        let Some(id) = self.leases.find(number) else { return Ok(Some(What::NotTaken)) };
        let by = self.who(conn, step);
        self.conclude(id, End { ending: Ending::Lost(Lost::TakenBack), by, note }, step);
        DONE
    }

    /// `BYE`: members without a token are returned in good state.
    pub(super) fn leave(&mut self, conn: ConnId, step: &mut Step<'_, '_>) -> Answer {
        self.leave_wait(conn, step);
        self.lose_consumer(conn, true, step);
        step.tell(conn, What::Bye);
        Ok(None)
    }

    /// Ends the leases without a token of a connection that ends. Its members are lost, or returned after `BYE`.
    pub(super) fn lose_consumer(&mut self, conn: ConnId, is_bye: bool, step: &mut Step<'_, '_>) {
        let Some(id) = self.leases.leave_holding(conn, is_bye, step.peer) else { return };
        if self.drain_holding(id, step) {
            self.background.push(Task::Holding(id));
        }
    }

    /// Ends the leases of a connection that has ended, as far as the budget lasts. Returns whether there are more.
    pub(super) fn drain_holding(&mut self, id: HoldingId, step: &mut Step<'_, '_>) -> bool {
        while let Some(lease) = self.leases.holding(id).leases.front() {
            if !step.timers.spend(background::COST) {
                return true;
            }
            self.let_lease_go(lease, step);
        }
        self.leases.holdings.remove(id.index());
        false
    }

    /// Ends a lease whose connection has ended. A lease with a token stays.
    fn let_lease_go(&mut self, id: LeaseId, step: &mut Step<'_, '_>) {
        let lease = self.leases.get(id);
        if lease.token.as_ref().is_some_and(|token| token.span > Span::ZERO) {
            let name = self.leases.holder_text(id, step.peer);
            self.leases.set_holder_address(id, name);
            return self.detach_lease(id);
        }
        let is_bye = lease.holding.is_some_and(|holding| self.leases.holding(holding).is_bye);
        self.conclude(id, End::plain(if is_bye { Ending::Returned } else { Ending::Gone }), step);
    }

    /// Ends a member in any phase, and its lease with it: `by` is the peer that has caused it, if there is one. It is not
    /// replaced.
    pub(super) fn end_anywhere(
        &mut self,
        id: MemberId,
        reason: Lost,
        by: String,
        stat: Option<Stat>,
        step: &mut Step<'_, '_>,
    ) {
        if let Some(lease) = self.member(id).lease() {
            self.end_lease(lease, End { ending: Ending::Lost(reason), by, note: b"" }, step);
        }
        self.end_member(id, stat, step);
    }

    /// Returns the number of members that a connection holds, without leases that count for a rule, and the number of
    /// its waits.
    pub fn holds(&self, conn: ConnId) -> Holds {
        let waits = u32::from(self.waiters.of_conn(conn).is_some());
        Holds { locks: self.leases.held_without_rule(conn), waits }
    }

    /// Sets the rule of access that a connection matches: its later leases with a token count for that rule.
    pub fn note_rule(&mut self, conn: ConnId, rule: Option<Arc<str>>) {
        self.leases.consumers.get_mut(conn).rule = rule;
    }
}
