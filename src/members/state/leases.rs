//! Leases: who has which member, and how it comes back.

use super::members::Then;
use super::*;
use poolcounter_service::access::Holds;

/// Spreads lease numbers, which are consecutive, over a table: they come from no peer.
pub(super) fn hash_number(number: u64) -> Hash {
    Hash(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Tokens are random: any part of one is a hash.
pub(super) fn hash_token(token: &Token) -> Hash {
    let (half, _) = token.split_first_chunk().expect("a token has 16 bytes");
    Hash(u64::from_le_bytes(*half))
}

/// When what lasts for ever ends.
const FAR: Time = Time::from_micros(u64::MAX);

impl State {
    /// Hands out members that are free, and tells who has them.
    pub(super) fn hand_out(&mut self, asker: &Asker, pool: PoolId, members: &[MemberId], step: &mut Step<'_, '_>) {
        let what = match (asker.count, members) {
            (None, [only]) => What::Member(self.begin_lease(asker, pool, *only, step)),
            _ => What::Members(members.iter().map(|member| self.begin_lease(asker, pool, *member, step)).collect()),
        };
        step.tell(asker.conn, what);
        let entry = self.pool_mut(pool);
        let free = entry.idle_count();
        entry.is_to_grow |= entry.settings.grow_at.is_some_and(|grow_at| free <= grow_at);
        self.touch(pool);
    }

    fn begin_lease(&mut self, asker: &Asker, pool: PoolId, member: MemberId, step: &mut Step<'_, '_>) -> Taken {
        self.leave_state(member, step);
        let number = self.next_lease;
        self.next_lease += 1;
        let token =
            asker.lease.map(|span| TokenLease { token: step.random.bytes(), span, until: step.now + span, rule: None });
        let token = token.map(Box::new);
        let known = token.as_ref().map(|token| token.token);
        let holding = self.holding_of(asker.conn);
        let holder = self.client(asker.conn).name.clone().map_or(Holder::Connection(asker.conn), Holder::Name);
        let (since, is_reported) = (step.now, false);
        let lease = Lease { number, member, holding: Some(holding), holder, since, is_reported, timer: None, token };
        let id = LeaseId::from_index(self.leases.insert(lease));
        self.index_lease(id);
        self.attach_lease(id, holding, pool);
        if known.is_some()
            && let Some(rule) = self.client(asker.conn).rule.clone()
        {
            self.count_for_rule(id, rule);
        }
        self.enter_state(member, MemberPhase::InUse(id));
        self.arm_lease(id, step);
        let entry = &mut self.members[member.index()];
        entry.uses = entry.uses.saturating_add(1);
        let name = entry.name.clone();
        let attributes = self.attributes_of(member).cloned();
        let pool = self.pool_mut(pool);
        pool.figures.count(Stat::Takes);
        Taken { lease: number, pool: pool.name.clone(), member: name, attributes, token: known }
    }

    /// Makes a lease known by its number and its token.
    pub(super) fn index_lease(&mut self, id: LeaseId) {
        let leases = &self.leases;
        let lease = &leases[id.index()];
        self.numbers.insert(hash_number(lease.number), id, |id| hash_number(leases[id.index()].number));
        if let Some(token) = &lease.token {
            let hash_of = |id: LeaseId| {
                leases[id.index()].token.as_ref().map_or(Hash::default(), |token| hash_token(&token.token))
            };
            self.tokens.insert(hash_token(&token.token), id, hash_of);
        }
    }

    /// What a connection holds.
    pub(super) fn holding_of(&mut self, conn: ConnId) -> HoldingId {
        if let Some(known) = self.client(conn).holding {
            return known;
        }
        let holding = Holding { conn: Some(conn), ..Holding::default() };
        let id = HoldingId::from_index(self.holdings.insert(holding));
        self.client(conn).holding = Some(id);
        id
    }

    /// Returns how many members a connection holds that count for no rule without it, and whether it waits for some.
    pub fn holds(&self, conn: ConnId) -> Holds {
        let Some(client) = self.clients.get(conn.index()) else { return Holds::default() };
        let locks = client.holding.map_or(0, |holding| {
            let Holding { held, of_rules, .. } = &self.holdings[holding.index()];
            held.iter().map(|(_, members)| *members).sum::<u32>() - of_rules
        });
        Holds { locks, waits: u32::from(client.waiter.is_some()) }
    }

    /// The connection that holds a lease, if it is still there.
    pub(super) fn holder_of(&self, id: LeaseId) -> Option<ConnId> {
        self.holdings[self.leases[id.index()].holding?.index()].conn
    }

    /// The name of who holds a lease, else the address of the connection.
    pub(super) fn holder_text(&self, id: LeaseId, peer: impl Fn(ConnId) -> String) -> String {
        let lease = &self.leases[id.index()];
        let gone =
            lease.holding.map(|holding| &self.holdings[holding.index()]).filter(|holding| holding.conn.is_none());
        lease.holder.text(|conn| match gone {
            Some(gone) => String::from_utf8_lossy(&gone.address).into_owned(),
            None => peer(conn),
        })
    }

    /// Counts a lease among what a connection holds.
    pub(super) fn attach_lease(&mut self, id: LeaseId, holding: HoldingId, pool: PoolId) {
        let holding = &mut self.holdings[holding.index()];
        holding.leases.push_back(&mut self.links_lease, id);
        match holding.held.iter_mut().find(|(of, _)| *of == pool) {
            Some((_, held)) => *held += 1,
            None => holding.held.push((pool, 1)),
        }
    }

    /// Has a lease outlive its connection.
    fn detach_lease(&mut self, id: LeaseId) {
        let lease = &mut self.leases[id.index()];
        let pool = self.members[lease.member.index()].pool;
        let Some(holding) = lease.holding.take() else { return };
        let holding = &mut self.holdings[holding.index()];
        holding.leases.remove(&mut self.links_lease, id);
        holding.of_rules -= u32::from(lease.token.as_ref().is_some_and(|token| token.rule.is_some()));
        if let Some(at) = holding.held.iter().position(|(of, _)| *of == pool) {
            holding.held[at].1 -= 1;
            if holding.held[at].1 == 0 {
                holding.held.swap_remove(at);
            }
        }
        // It may have another one of the pool now, if it waits for its group.
        if holding.conn.is_some_and(|conn| self.clients[conn.index()].waiter.is_some()) {
            self.pool_mut(pool).is_to_reconsider = true;
            self.touch(pool);
        }
    }

    /// Ends a lease. Its member is in no place until it is put into one; the connection is told nothing.
    pub(super) fn end_lease(&mut self, id: LeaseId, step: &mut Step<'_, '_>) -> MemberId {
        self.detach_lease(id);
        let lease = self.leases.remove(id.index());
        lease.timer.into_iter().for_each(|timer| step.timers.cancel(timer));
        self.numbers.remove(hash_number(lease.number), id);
        if let Some(token) = lease.token {
            self.tokens.remove(hash_token(&token.token), id);
            token.rule.into_iter().for_each(|rule| self.uncount_for_rule(rule));
        }
        self.leave_state(lease.member, step);
        let member = &mut self.members[lease.member.index()];
        member.since = step.now;
        self.pools[member.pool.index()].times.hold.record(step.now.since(lease.since));
        lease.member
    }

    /// Ends a lease against the will of its holder, who is told.
    pub(super) fn lose_lease(&mut self, id: LeaseId, reason: Lost, step: &mut Step<'_, '_>) -> MemberId {
        let Lease { number, .. } = self.leases[id.index()];
        if let Some(conn) = self.holder_of(id) {
            step.tell(conn, What::Lost { lease: number, reason });
        }
        self.end_lease(id, step)
    }

    /// A member was lost by its consumer.
    fn lose_member(&mut self, id: MemberId, step: &mut Step<'_, '_>) {
        let Settings { on_loss, loss_delay, .. } = self.pool(self.member(id).pool).settings;
        let is_orphan = self.is_orphan(id);
        if on_loss == OnLoss::Fail || is_orphan {
            return self.fail_member(id, Stat::Failed, step);
        }
        if loss_delay == Span::ZERO {
            return self.come_back(id, step);
        }
        let Some(id) = self.check_usable(id, step) else { return };
        let timer = step.timers.arm(step.now + loss_delay, Timer::Phase(id));
        self.enter_state(id, MemberPhase::Delayed(timer));
    }

    /// `RETURN lease [OK|FAIL]`.
    pub(super) fn give_back(&mut self, conn: ConnId, name: LeaseName, condition: Condition, step: &mut Step<'_, '_>) {
        let found = match name {
            LeaseName::Number(number) => self.find_lease(number).filter(|id| self.holder_of(*id) == Some(conn)),
            LeaseName::Token(token) => self.find_token(&token),
        };
        let found = found.filter(|id| self.catch_up(self.leases[id.index()].member, step));
        let Some(id) = found else { return step.tell(conn, What::NotTaken) };
        step.tell(conn, What::Returned);
        let member = self.end_lease(id, step);
        match condition {
            Condition::Ok => self.come_back(member, step),
            Condition::Fail => self.fail_member(member, Stat::Failed, step),
        }
    }

    pub(super) fn find_lease(&self, number: u64) -> Option<LeaseId> {
        self.numbers.find(hash_number(number), |id| self.leases[id.index()].number == number)
    }

    pub(super) fn find_token(&self, token: &Token) -> Option<LeaseId> {
        let is_named = |id: LeaseId| self.leases[id.index()].token.as_ref().is_some_and(|lease| lease.token == *token);
        self.tokens.find(hash_token(token), is_named)
    }

    /// `RENEW token [seconds]`.
    pub(super) fn renew(&mut self, conn: ConnId, token: &Token, span: Option<Span>, step: &mut Step<'_, '_>) {
        let found = self.find_token(token).filter(|id| self.catch_up(self.leases[id.index()].member, step));
        let Some(id) = found else { return step.tell(conn, What::NotTaken) };
        if let Some(lease) = &mut self.leases[id.index()].token {
            lease.until = step.now + span.unwrap_or(lease.span);
        }
        self.arm_lease(id, step);
        step.tell(conn, What::Renewed);
    }

    /// When a lease is looked at next; None when it may last for ever.
    fn next_look(&self, id: LeaseId) -> Option<Time> {
        let lease = &self.leases[id.index()];
        let Settings { max_hold, warn_hold, .. } = self.pool(self.member(lease.member).pool).settings;
        let after = |span: Span| if span == Span::ZERO { FAR } else { lease.since + span };
        let warning = if lease.is_reported { FAR } else { after(warn_hold) };
        let end = lease.token.as_ref().map_or(FAR, |token| token.until);
        Some(after(max_hold).min(warning).min(end)).filter(|at| *at < FAR)
    }

    /// Arms the timer of a lease anew.
    pub(super) fn arm_lease(&mut self, id: LeaseId, step: &mut Step<'_, '_>) {
        let next = self.next_look(id);
        let timer = &mut self.leases[id.index()].timer;
        timer.take().into_iter().for_each(|timer| step.timers.cancel(timer));
        *timer = next.map(|at| step.timers.arm(at, Timer::Lease(id)));
    }

    /// A lease has run out, or was held for too long, or for long.
    pub(super) fn lease_is_due(&mut self, id: LeaseId, step: &mut Step<'_, '_>) {
        let lease = &mut self.leases[id.index()];
        lease.timer.take().into_iter().for_each(TimerId::fired);
        let member = lease.member;
        if !self.catch_up(member, step) || !self.catch_up_with_holder(id, step) {
            return;
        }
        let lease = &mut self.leases[id.index()];
        let held = step.now.since(lease.since);
        let has_run_out = lease.token.as_ref().is_some_and(|token| token.until <= step.now);
        let Settings { max_hold, warn_hold, .. } = self.pool(self.member(self.leases[id.index()].member).pool).settings;
        if has_run_out {
            let member = self.lose_lease(id, Lost::Expired, step);
            self.lose_member(member, step);
        } else if max_hold > Span::ZERO && held >= max_hold {
            let member = self.lose_lease(id, Lost::HeldTooLong, step);
            self.fail_member(member, Stat::HeldTooLong, step);
        } else {
            if warn_hold > Span::ZERO && held >= warn_hold {
                self.report_long_hold(id, held, step);
            }
            self.arm_lease(id, step);
        }
    }

    fn report_long_hold(&mut self, id: LeaseId, held: Span, step: &mut Step<'_, '_>) {
        let holder = self.holder_text(id, step.peer);
        let lease = &mut self.leases[id.index()];
        lease.is_reported = true;
        let member = &self.members[lease.member.index()];
        let pool = &mut self.pools[member.pool.index()];
        pool.figures.count(Stat::LongHolds);
        let (pool, member, lease) = (pool.name.clone(), member.name.clone(), lease.number);
        step.notices.push(Notice::LongHold { pool, member, lease, held, holder });
    }

    /// `TAKEBACK lease [note]`.
    pub(super) fn take_back(&mut self, conn: ConnId, number: u64, note: &[u8], step: &mut Step<'_, '_>) {
        let found = self.find_lease(number).filter(|id| self.catch_up(self.leases[id.index()].member, step));
        let found = found.filter(|id| self.catch_up_with_holder(*id, step));
        let Some(id) = found else { return step.tell(conn, What::NotTaken) };
        step.tell(conn, What::Ok);
        let member = self.lose_lease(id, Lost::TakenBack, step);
        let (name, pool) = (self.member(member).name.clone(), self.pool(self.member(member).pool).name.clone());
        step.notices.push(Notice::TakenBack { pool, member: name, lease: number, note: note.into() });
        self.lose_member(member, step);
    }

    /// `BYE`: everything without a token is returned in good state.
    pub(super) fn leave(&mut self, conn: ConnId, step: &mut Step<'_, '_>) {
        self.leave_wait(conn, step);
        self.lose_consumer(conn, true, step);
        step.tell(conn, What::Bye);
    }

    /// A consumer is gone: what has a token stays taken, the rest is lost, or returned if it said `BYE`.
    pub(super) fn lose_consumer(&mut self, conn: ConnId, is_bye: bool, step: &mut Step<'_, '_>) {
        let Some(id) = self.client(conn).holding.take() else { return };
        let holding = &mut self.holdings[id.index()];
        (holding.conn, holding.is_bye) = (None, is_bye);
        if self.drain_holding(id, Some(conn), step) {
            self.holdings[id.index()].address = (step.peer)(conn).into_bytes().into();
            self.background.push_back(BackgroundTask::Holding(id));
        }
    }

    /// Ends a lease whose connection is gone: `conn`, if it is only just. One with a token stays.
    pub(super) fn let_lease_go(&mut self, id: LeaseId, conn: Option<ConnId>, step: &mut Step<'_, '_>) {
        let lease = &self.leases[id.index()];
        if lease.token.is_some() {
            let name = match conn {
                Some(_) => lease.holder.text(step.peer),
                None => self.holder_text(id, step.peer),
            };
            self.leases[id.index()].holder = Holder::Name(name.into_bytes().into());
            return self.detach_lease(id);
        }
        let is_bye = lease.holding.is_some_and(|holding| self.holdings[holding.index()].is_bye);
        let member = self.end_lease(id, step);
        match is_bye {
            true => self.come_back(member, step),
            false => self.lose_member(member, step),
        }
    }

    /// Does to a lease at once what a chore is about to do to it, because its connection is gone. Returns whether it is still there.
    fn catch_up_with_holder(&mut self, id: LeaseId, step: &mut Step<'_, '_>) -> bool {
        let lease = &self.leases[id.index()];
        let (has_token, number) = (lease.token.is_some(), lease.number);
        if lease.holding.is_some() && self.holder_of(id).is_none() {
            self.let_lease_go(id, None, step);
            return has_token && self.find_lease(number).is_some();
        }
        true
    }

    /// A member is gone in the hands of its holder, or out of them. It is not replaced.
    pub(super) fn end_anywhere(&mut self, id: MemberId, reason: Lost, stat: Option<Stat>, step: &mut Step<'_, '_>) {
        if let MemberPhase::InUse(lease) = self.member(id).phase {
            self.lose_lease(lease, reason, step);
        }
        self.end_member(id, stat, Then::Nothing, step);
    }
}
