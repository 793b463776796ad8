//! Begin and end of leases: takes, returns, losses, and connections that end.

use super::history::{End, Ending};
use super::lifecycle::{FailedBy, Then};
use super::takes::Asker;
use super::{
    HoldingId, Lease, LeaseId, Member, MemberId, MemberOwner, MemberPhase, Notice, Stat, State, Step, Task, Timer,
    background,
};
use poolcounter_core::id::{ConnId, Id as _};
use poolcounter_core::time::Span;
use poolcounter_protocol::members::pool_settings::{OnLoss, Settings};
use poolcounter_protocol::members::request::Condition;
use poolcounter_protocol::members::request::{LeaseName, Lost, LostBy, Taken, Token, What};
use poolcounter_service::access::Holds;
use std::sync::Arc;

/// Condition in which a consumer leaves a member.
pub(super) enum Outcome {
    Good,
    Failed(Stat, FailedBy),
    /// Lost with its consumer: what follows is a setting of its pool.
    Lost(FailedBy),
}

impl State {
    /// Hands out free members.
    pub(super) fn hand_out(&mut self, asker: &Asker, members: &[MemberId], step: &mut Step<'_, '_>) {
        let what = match (asker.count, members) {
            (None, [only]) => What::Member(self.begin_lease(asker, *only, step)),
            _ => What::Members(members.iter().map(|member| self.begin_lease(asker, *member, step)).collect()),
        };
        step.tell(asker.conn, what);
    }

    fn begin_lease(&mut self, asker: &Asker, member: MemberId, step: &mut Step<'_, '_>) -> Taken {
        let pool = self.member(member).pool;
        let timer = self.members.leave_state(member).into_timer();
        timer.into_iter().for_each(|timer| step.timers.cancel(timer));
        let id = self.leases.begin(asker.conn, member, pool, asker.lease, step);
        self.members.enter_state(member, MemberPhase::InUse(id));
        let uses = &mut self.members.get_mut(member).uses;
        *uses = uses.saturating_add(1);
        self.note_holder(id, asker.conn, step);
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

    /// Returns the reason of a member's failure, with its holder if that is remembered: `conn` in the step in which the
    /// connection ends.
    fn failed_by(
        &self,
        (why, link): (&'static str, &'static str),
        id: LeaseId,
        conn: Option<ConnId>,
        step: &Step<'_, '_>,
    ) -> FailedBy {
        let lease = self.leases.get(id);
        let Member { owner, pool, .. } = *self.member(lease.member);
        let is_kept_out = owner == MemberOwner::Fixed || self.pool(pool).settings.loss_delay > Span::ZERO;
        FailedBy(why.into(), link, if is_kept_out { self.holder_at_end(id, conn, step) } else { String::new() })
    }

    /// Returns the name or address of a holder: `conn` in the step in which the connection ends.
    fn holder_at_end(&self, id: LeaseId, conn: Option<ConnId>, step: &Step<'_, '_>) -> String {
        match conn {
            Some(_) => self.leases.get(id).holder.text(step.peer),
            None => self.leases.holder_text(id, step.peer),
        }
    }

    /// Notes that a member in use has changed: the row of its lease, if it has one, is written anew.
    pub(super) fn mark_lease_of(&mut self, id: MemberId) {
        if let MemberPhase::InUse(lease) = self.member(id).phase {
            self.leases.mark(lease);
        }
    }

    /// Detaches a lease from its connection.
    fn detach_lease(&mut self, id: LeaseId) {
        let pool = self.member(self.leases.get(id).member).pool;
        self.leases.detach(id, pool);
    }

    /// Ends a lease without a message to its connection, and returns its member, which is in no queue: `conn` in the
    /// step in which the connection ends.
    pub(super) fn end_lease(
        &mut self,
        id: LeaseId,
        conn: Option<ConnId>,
        end: End<'_>,
        step: &mut Step<'_, '_>,
    ) -> MemberId {
        let is_return = matches!(end.ending, Ending::Returned | Ending::Failed);
        let holder = if is_return { String::new() } else { self.holder_at_end(id, conn, step) };
        self.detach_lease(id);
        let lease = self.leases.remove(id, step);
        self.note_end(&lease, holder, end, step);
        let Lease { member, since, .. } = lease;
        // Its pool is settled once it has its next phase.
        self.members.leave_state(member);
        self.members.get_mut(member).since = step.now;
        self.pools.times(self.members.get(member).pool).hold.record(step.now.since(since));
        member
    }

    /// Ends a lease with a notice to its holder, and returns its member, which is in no queue. `by` is the peer that has
    /// caused it, if there is one, and `note` its text for the holder.
    pub(super) fn lose_lease(
        &mut self,
        id: LeaseId,
        reason: Lost,
        by: String,
        note: &[u8],
        step: &mut Step<'_, '_>,
    ) -> MemberId {
        if let Some(conn) = self.leases.conn_of(id) {
            let is_told = reason == Lost::TakenBack;
            let by = is_told.then(|| Box::new(LostBy { name: by.as_bytes().into(), note: note.into() }));
            step.tell(conn, What::Lost { lease: self.leases.get(id).number, reason, by });
        }
        self.end_lease(id, None, End { ending: Ending::Lost(reason), by, note }, step)
    }

    /// Returns, fails or loses a member that is in no queue.
    pub(super) fn conclude(&mut self, id: MemberId, outcome: Outcome, step: &mut Step<'_, '_>) {
        match outcome {
            Outcome::Good => self.return_member(id, step),
            Outcome::Failed(stat, by) => self.fail_member(id, stat, by, step),
            Outcome::Lost(by) => self.lose_member(id, by, step),
        }
    }

    /// Ends, suspends or frees a member that its consumer has lost, as the settings say.
    fn lose_member(&mut self, id: MemberId, by: FailedBy, step: &mut Step<'_, '_>) {
        let Settings { on_loss, loss_delay, .. } = self.pool(self.member(id).pool).settings;
        if on_loss == OnLoss::Fail || self.is_orphan(id) {
            return self.fail_member(id, Stat::Failed, by, step);
        }
        if loss_delay == Span::ZERO {
            return self.return_member(id, step);
        }
        let Some(id) = self.check_usable(id, step) else { return };
        let timer = step.timers.arm(step.now + loss_delay, Timer::Phase(id));
        self.members.keep_out(id, MemberPhase::Delayed(timer), step.now, by.reason());
    }

    /// `RETURN lease [OK|FAIL]`.
    pub(super) fn give_back(&mut self, conn: ConnId, name: LeaseName, condition: Condition, step: &mut Step<'_, '_>) {
        let found = match name {
            LeaseName::Number(number) => self.leases.find(number).filter(|id| self.leases.conn_of(*id) == Some(conn)),
            LeaseName::Token(token) => self.leases.find_token(&token),
        };
        let Some(id) = found else { return step.tell(conn, What::NotTaken) };
        step.tell(conn, What::Returned);
        let (outcome, ending) = match condition {
            Condition::Fail => {
                let by = self.failed_by(("returned as failed", " by "), id, None, step);
                (Outcome::Failed(Stat::Failed, by), Ending::Failed)
            }
            Condition::Ok => (Outcome::Good, Ending::Returned),
        };
        let member = self.end_lease(id, None, End::plain(ending), step);
        self.conclude(member, outcome, step);
    }

    /// `RENEW token [seconds]`.
    pub(super) fn renew(&mut self, conn: ConnId, token: &Token, span: Option<Span>, step: &mut Step<'_, '_>) {
        let Some(id) = self.leases.find_token(token) else { return step.tell(conn, What::NotTaken) };
        self.leases.renew(id, span, step.now);
        self.members.clear_reason(self.leases.get(id).member);
        if self.leases.conn_of(id) != Some(conn) {
            self.detach_lease(id);
            let pool = self.member(self.leases.get(id).member).pool;
            self.leases.attach(id, conn, pool);
        }
        self.arm_lease(id, step);
        step.tell(conn, What::Renewed);
    }

    /// Ends a lease that has run out or was held for too long, or reports one that is held for long.
    pub(super) fn lease_is_due(&mut self, id: LeaseId, step: &mut Step<'_, '_>) {
        self.leases.fired(id);
        let Lease { since, token, member, .. } = self.leases.get(id);
        let held = step.now.since(*since);
        let has_run_out = token.as_ref().is_some_and(|token| token.until <= step.now);
        let Settings { max_hold, warn_hold, .. } = self.pool(self.member(*member).pool).settings;
        if has_run_out {
            let is_awaited = token.as_ref().is_some_and(|token| token.span == Span::ZERO);
            let why = if is_awaited { ("lost in a restart", " by ") } else { ("its lease ran out", ", of ") };
            let outcome = Outcome::Lost(self.failed_by(why, id, None, step));
            let member = self.lose_lease(id, Lost::Expired, String::new(), b"", step);
            self.conclude(member, outcome, step);
        } else if max_hold > Span::ZERO && held >= max_hold {
            let by = self.failed_by(("held for longer than max_hold", " by "), id, None, step);
            let outcome = Outcome::Failed(Stat::HeldTooLong, by);
            let member = self.lose_lease(id, Lost::HeldTooLong, String::new(), b"", step);
            self.conclude(member, outcome, step);
        } else {
            if warn_hold > Span::ZERO && held >= warn_hold {
                self.report_long_hold(id, held, step);
            }
            self.arm_lease(id, step);
        }
    }

    fn report_long_hold(&mut self, id: LeaseId, held: Span, step: &mut Step<'_, '_>) {
        self.leases.get_mut(id).is_reported = true;
        let Lease { number: lease, member, .. } = *self.leases.get(id);
        self.pools.count(self.members.get(member).pool, Stat::LongHolds);
        let ((pool, member), holder) = (self.names_of(member), self.leases.holder_text(id, step.peer));
        step.notices.push(Notice::LongHold { pool, member, lease, held, holder });
    }

    /// `TAKEBACK lease [note]`.
    pub(super) fn take_back(&mut self, conn: ConnId, number: u64, note: &[u8], step: &mut Step<'_, '_>) {
        let Some(id) = self.leases.find(number) else { return step.tell(conn, What::NotTaken) };
        step.tell(conn, What::Ok);
        let outcome = Outcome::Lost(self.failed_by(("an operator took it back", " from "), id, None, step));
        let by = self.who(conn, step);
        let id = self.lose_lease(id, Lost::TakenBack, by, note, step);
        self.conclude(id, outcome, step);
    }

    /// `BYE`: members without a token are returned in good state.
    pub(super) fn leave(&mut self, conn: ConnId, step: &mut Step<'_, '_>) {
        self.leave_wait(conn, step);
        self.lose_consumer(conn, true, step);
        step.tell(conn, What::Bye);
    }

    /// Ends the leases without a token of a connection that ends. Its members are lost, or returned after `BYE`.
    pub(super) fn lose_consumer(&mut self, conn: ConnId, is_bye: bool, step: &mut Step<'_, '_>) {
        let Some(id) = self.leases.leave_holding(conn, is_bye) else { return };
        if self.drain_holding(id, Some(conn), step) {
            self.leases.holdings[id.index()].address = (step.peer)(conn).into_bytes().into();
            self.background.push(Task::Holding(id));
        }
    }

    /// Ends the leases of a connection that has ended, as far as the budget lasts: `conn` in the step in which it ends.
    /// Returns whether there are more.
    pub(super) fn drain_holding(&mut self, id: HoldingId, conn: Option<ConnId>, step: &mut Step<'_, '_>) -> bool {
        while let Some(lease) = self.leases.holding(id).leases.front() {
            if !step.timers.spend(background::COST) {
                return true;
            }
            self.let_lease_go(lease, conn, step);
        }
        self.leases.holdings.remove(id.index());
        false
    }

    /// Ends a lease whose connection has ended: `conn` in the step in which it ends. A lease with a token stays.
    fn let_lease_go(&mut self, id: LeaseId, conn: Option<ConnId>, step: &mut Step<'_, '_>) {
        let lease = self.leases.get(id);
        if lease.token.as_ref().is_some_and(|token| token.span > Span::ZERO) {
            let name = self.holder_at_end(id, conn, step);
            self.leases.set_holder_address(id, name);
            return self.detach_lease(id);
        }
        let is_bye = lease.holding.is_some_and(|holding| self.leases.holding(holding).is_bye);
        let (outcome, ending) = match is_bye {
            true => (Outcome::Good, Ending::Returned),
            false => (Outcome::Lost(self.failed_by(("lost", " with "), id, conn, step)), Ending::Gone),
        };
        let member = self.end_lease(id, conn, End::plain(ending), step);
        self.conclude(member, outcome, step);
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
        if let MemberPhase::InUse(lease) = self.member(id).phase {
            self.lose_lease(lease, reason, by, b"", step);
        }
        self.end_member(id, stat, Then::Nothing, step);
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
