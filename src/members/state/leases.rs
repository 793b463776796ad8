//! Table of the leases: the member of each, its holder, its token, and the rule of access that it counts for.

use super::{HoldingId, LeaseId, Marks, MemberId, PoolId, Step, Timer};
use poolcounter_core::names::Hash;
use poolcounter_core::{ConnId, Id as _, Links, List, Metered as _, Names, SideTable, Span, Time, TimerId};
use poolcounter_protocol::members::pool_settings::Settings;
use poolcounter_protocol::members::request::Token;
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::collections::BTreeMap;
use std::sync::Arc;

mod check;
mod rules;

/// End of a lease without a limit.
const FAR: Time = Time::from_micros(u64::MAX);

#[derive(Serialize, Deserialize)]
pub(super) struct Lease {
    pub number: u64,
    pub member: MemberId,
    /// None once it has outlived its connection.
    pub holding: Option<HoldingId>,
    /// Name of its holder, or the address of a connection that it has outlived. None: the connection says it.
    pub holder: Option<Arc<[u8]>>,
    pub is_named: bool,
    pub since: Time,
    pub is_reported: bool,
    pub token: Option<Box<LeaseToken>>,
    #[serde(skip)]
    pub timer: Option<TimerId>,
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct LeaseToken {
    pub token: Token,
    /// Span for which the lease was taken; zero if it ends with its connection.
    pub span: Span,
    pub until: Time,
    /// Rule of access under which it was taken, if there was one.
    pub rule: Option<Arc<str>>,
}

/// Leases that a connection holds, or held at its end.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Holding {
    /// Connection; None after its end.
    pub conn: Option<ConnId>,
    /// Address of the connection, once it was needed.
    pub address: Arc<[u8]>,
    /// True after a `BYE`, which returns the members in good state.
    pub is_bye: bool,
    #[serde(skip)]
    pub leases: List<LeaseId>,
    /// Number of members by pool, in the order of these.
    #[serde(skip)]
    by_pool: Vec<(PoolId, u32)>,
    /// Number of leases that count for rules, and not for the connection.
    #[serde(skip)]
    of_rules: u32,
}

/// Connection that takes members.
#[derive(Default)]
pub(super) struct Consumer {
    name: Option<Arc<[u8]>>,
    /// Rule of access that it matches.
    pub rule: Option<Arc<str>>,
    /// Holding of the connection; None before its first take.
    holding: Option<HoldingId>,
}

/// All leases, by number and token, by connection and by rule.
#[derive(Default)]
pub(super) struct Leases {
    leases: Slab<Lease>,
    /// Number of the next lease.
    pub next_number: u64,
    by_number: Names<LeaseId>,
    by_token: BTreeMap<Token, LeaseId>,
    pub holdings: Slab<Holding>,
    links: Links,
    pub consumers: SideTable<ConnId, Consumer>,
    /// Numbers of leases with a token, by rule.
    pub by_rule: BTreeMap<Arc<str>, u64>,
    /// Rules whose numbers have changed since the last query.
    pub changed_rules: Vec<Arc<str>>,
    /// Tokens of the leases that have changed.
    pub marks: Marks<Token>,
}

/// Spreads lease numbers, which are consecutive and come from no peer, over a table.
fn hash_number(number: u64) -> Hash {
    Hash(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

impl Lease {
    /// Returns a copy without its timer, for a record.
    pub fn to_save(&self) -> Self {
        Lease { holder: self.holder.clone(), token: self.token.clone(), timer: None, ..*self }
    }
}

impl Holding {
    /// Returns a copy without its leases, for a record.
    pub fn to_save(&self) -> Self {
        Holding { conn: self.conn, address: self.address.clone(), is_bye: self.is_bye, ..Holding::default() }
    }

    /// Returns the index of a pool among those whose members are held, or the index where it would be.
    fn place_of(&self, pool: PoolId) -> Result<usize, usize> {
        self.by_pool.binary_search_by_key(&pool, |(of, _)| *of)
    }
}

impl Leases {
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty() && self.holdings.is_empty()
    }

    pub fn get(&self, id: LeaseId) -> &Lease {
        &self.leases[id.index()]
    }

    /// Returns a lease, for changes of what nothing else depends on.
    pub fn get_mut(&mut self, id: LeaseId) -> &mut Lease {
        &mut self.leases[id.index()]
    }

    pub fn iter(&self) -> impl Iterator<Item = (LeaseId, &Lease)> {
        self.leases.iter().map(|(index, lease)| (LeaseId::from_index(index), lease))
    }

    pub fn holding(&self, id: HoldingId) -> &Holding {
        &self.holdings[id.index()]
    }

    pub fn holdings(&self) -> impl Iterator<Item = (HoldingId, &Holding)> {
        self.holdings.iter().map(|(index, holding)| (HoldingId::from_index(index), holding))
    }

    /// Returns whether there is any trace of a connection besides leases with a token that have outlived theirs.
    pub fn knows_any(&self) -> bool {
        !self.holdings.is_empty() || self.consumers.iter().any(|(conn, _)| self.knows(conn))
    }

    /// Numbers leases from `number` on, unless they have come further.
    pub fn number_from(&mut self, number: u64) {
        self.next_number = self.next_number.max(number);
    }

    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// Returns whether some lease has a token.
    pub fn has_tokens(&self) -> bool {
        !self.by_token.is_empty()
    }

    pub fn find(&self, number: u64) -> Option<LeaseId> {
        self.by_number.find(hash_number(number), |id| self.get(id).number == number)
    }

    pub fn find_token(&self, token: &Token) -> Option<LeaseId> {
        self.by_token.get(token).copied()
    }

    /// Returns the connection that holds a lease, if it has not ended.
    pub fn conn_of(&self, id: LeaseId) -> Option<ConnId> {
        self.holding(self.get(id).holding?).conn
    }

    /// Returns the name of the holder of a lease, else the address of its connection.
    pub fn holder_text(&self, id: LeaseId, peer: &dyn Fn(ConnId) -> String) -> String {
        let Lease { holder, holding, .. } = self.get(id);
        let holding = holding.map(|holding| self.holding(holding));
        match (holder, holding.and_then(|holding| holding.conn)) {
            (None, Some(conn)) => peer(conn),
            (holder, _) => {
                let text = holder.as_ref().or(holding.map(|holding| &holding.address));
                text.map_or_else(String::new, |text| String::from_utf8_lossy(text).into_owned())
            }
        }
    }

    /// Adds a lease of a member that a connection takes, with a token if it may outlive the connection for `span`.
    pub fn begin(
        &mut self,
        conn: ConnId,
        member: MemberId,
        pool: PoolId,
        span: Option<Span>,
        step: &mut Step<'_, '_>,
    ) -> LeaseId {
        let number = self.next_number;
        self.next_number += 1;
        let until = |span| if span == Span::ZERO { FAR } else { step.now + span };
        let token =
            span.map(|span| Box::new(LeaseToken { token: step.random.bytes(), span, until: until(span), rule: None }));
        let holding = Some(self.holding_of(conn));
        let consumer = self.consumers.get(conn);
        let holder = consumer.name.clone();
        let rule = consumer.rule.clone().filter(|_| span.is_some_and(|span| span > Span::ZERO));
        let (is_named, since, is_reported, timer) = (holder.is_some(), step.now, false, None);
        let lease = Lease { number, member, holding, holder, is_named, since, is_reported, token, timer };
        let id = self.insert(lease, pool);
        rule.into_iter().for_each(|rule| self.count_for_rule(id, rule));
        id
    }

    /// Adds a lease.
    fn insert(&mut self, lease: Lease, pool: PoolId) -> LeaseId {
        let id = LeaseId::from_index(self.leases.insert(lease));
        self.link(id, pool);
        let (leases, lease) = (&self.leases, &self.leases[id.index()]);
        self.by_number.insert(hash_number(lease.number), id, |id| hash_number(leases[id.index()].number));
        self.by_token.extend(lease.token.iter().map(|token| (token.token, id)));
        self.mark(id);
        id
    }

    /// Adds a lease of a record, and numbers later ones behind it.
    pub fn restore(&mut self, mut lease: Lease, pool: PoolId) -> LeaseId {
        self.number_from(lease.number.saturating_add(1));
        let rule = lease.token.as_mut().and_then(|token| token.rule.take());
        let id = self.insert(lease, pool);
        rule.into_iter().for_each(|rule| self.count_for_rule(id, rule));
        id
    }

    /// Notes that a lease has changed, if it has a token.
    pub fn mark(&mut self, id: LeaseId) {
        if let Some(token) = &self.leases[id.index()].token {
            self.marks.add(&token.token);
        }
    }

    /// Notes that all leases with a token have changed.
    pub fn mark_all(&mut self) {
        let tokens = self.leases.iter().filter_map(|(_, lease)| lease.token.as_ref());
        tokens.for_each(|token| self.marks.add(&token.token));
    }

    /// Detaches a lease from its connection.
    pub fn detach(&mut self, id: LeaseId, pool: PoolId) {
        let lease = &mut self.leases[id.index()];
        let Some(holding) = lease.holding.take() else { return };
        lease.token.iter().for_each(|token| self.marks.add(&token.token));
        let holding = &mut self.holdings[holding.index()];
        holding.leases.remove(&mut self.links, id);
        holding.of_rules -= u32::from(lease.token.as_ref().is_some_and(|token| token.rule.is_some()));
        if let Ok(at) = holding.place_of(pool) {
            holding.by_pool[at].1 -= 1;
            if holding.by_pool[at].1 == 0 {
                holding.by_pool.remove(at);
            }
        }
    }

    /// Removes a detached lease with its timer.
    pub fn remove(&mut self, id: LeaseId, step: &mut Step<'_, '_>) -> Lease {
        let mut lease = self.leases.remove(id.index());
        lease.timer.take().into_iter().for_each(|timer| step.timers.cancel(timer));
        self.by_number.remove(hash_number(lease.number), id);
        if let Some(token) = &mut lease.token {
            self.by_token.remove(&token.token);
            self.marks.add(&token.token);
            token.rule.take().into_iter().for_each(|rule| self.uncount_for_rule(rule));
        }
        lease
    }

    /// Sets the end of a lease with a token to `span` from now, or to the span for which it was taken. One that ends with
    /// its connection has no other end.
    pub fn renew(&mut self, id: LeaseId, span: Option<Span>, now: Time) {
        if let Some(token) = &mut self.leases[id.index()].token {
            token.until = if token.span == Span::ZERO { FAR } else { now + span.unwrap_or(token.span) };
        }
        self.mark(id);
    }

    /// Sets the address of a lease's holder in place of the connection, unless the holder has a name.
    pub fn set_holder_address(&mut self, id: LeaseId, address: String) {
        let lease = &mut self.leases[id.index()];
        if !lease.is_named {
            lease.holder = Some(address.into_bytes().into());
        }
    }

    /// Attaches a lease that has outlived its connection to another one.
    pub fn attach(&mut self, id: LeaseId, conn: ConnId, pool: PoolId) {
        let holding = self.holding_of(conn);
        let lease = &mut self.leases[id.index()];
        lease.holding = Some(holding);
        if !lease.is_named {
            lease.holder = None;
        }
        self.link(id, pool);
        self.mark(id);
    }

    /// Adds a lease to its holding.
    fn link(&mut self, id: LeaseId, pool: PoolId) {
        let Lease { holding, token, .. } = &self.leases[id.index()];
        let Some(holding) = *holding else { return };
        let holding = &mut self.holdings[holding.index()];
        holding.leases.push_back(&mut self.links, id);
        holding.of_rules += u32::from(token.as_ref().is_some_and(|token| token.rule.is_some()));
        match holding.place_of(pool) {
            Ok(at) => holding.by_pool[at].1 += 1,
            Err(at) => holding.by_pool.insert(at, (pool, 1)),
        }
    }

    /// Arms the timer of a lease for the next time at which it is due; none if it may last for ever.
    pub fn arm(&mut self, id: LeaseId, settings: &Settings, step: &mut Step<'_, '_>) {
        let lease = &mut self.leases[id.index()];
        let after = |span: Span| if span == Span::ZERO { FAR } else { lease.since + span };
        let warning = if lease.is_reported { FAR } else { after(settings.warn_hold) };
        let end = lease.token.as_ref().map_or(FAR, |token| token.until);
        let next = after(settings.max_hold).min(warning).min(end);
        lease.timer.take().into_iter().for_each(|timer| step.timers.cancel(timer));
        lease.timer = (next < FAR).then(|| step.timers.arm(next, Timer::Lease(id)));
    }

    /// Takes the timer of a lease, which has fired.
    pub fn fired(&mut self, id: LeaseId) {
        self.leases[id.index()].timer.take().into_iter().for_each(TimerId::fired);
    }

    /// Returns the number of members of a pool that a connection holds.
    pub fn held(&self, conn: ConnId, pool: PoolId) -> u32 {
        let holding = self.consumers.get(conn).holding.map(|holding| self.holding(holding));
        holding.map_or(0, |holding| holding.place_of(pool).map_or(0, |at| holding.by_pool[at].1))
    }

    /// Returns the number of members that a connection holds, for each pool that is meant.
    pub fn held_of(&self, conn: ConnId, is_meant: impl Fn(PoolId) -> bool) -> impl Iterator<Item = u32> {
        let holding = self.consumers.get(conn).holding.map(|holding| self.holding(holding));
        let by_pool = holding.into_iter().flat_map(|holding| &holding.by_pool).metered();
        by_pool.filter(move |(pool, _)| is_meant(*pool)).map(|(_, held)| *held)
    }

    /// Returns the number of members that a connection holds, without leases with a token that count for a rule.
    pub fn held_without_rule(&self, conn: ConnId) -> u32 {
        self.consumers.get(conn).holding.map_or(0, |holding| {
            let Holding { leases, of_rules, .. } = self.holding(holding);
            leases.len() - of_rules
        })
    }

    /// Returns whether a connection has a name or holds a lease.
    pub fn knows(&self, conn: ConnId) -> bool {
        let Consumer { name, holding, .. } = self.consumers.get(conn);
        name.is_some() || holding.is_some_and(|holding| !self.holding(holding).leases.is_empty())
    }

    /// Returns a number above every connection that has a name.
    pub fn conns(&self) -> usize {
        self.consumers.slots()
    }

    pub fn name(&self, conn: ConnId) -> Option<&Arc<[u8]>> {
        self.consumers.get(conn).name.as_ref()
    }

    pub fn set_name(&mut self, conn: ConnId, name: Option<Arc<[u8]>>) {
        self.consumers.get_mut(conn).name = name;
    }

    fn holding_of(&mut self, conn: ConnId) -> HoldingId {
        let holdings = &mut self.holdings;
        let insert = || HoldingId::from_index(holdings.insert(Holding { conn: Some(conn), ..Holding::default() }));
        *self.consumers.get_mut(conn).holding.get_or_insert_with(insert)
    }

    /// Returns the address of a connection that holds members. Its text is made once.
    pub fn address_of(&mut self, conn: ConnId, peer: &dyn Fn(ConnId) -> String) -> Arc<[u8]> {
        let id = self.holding_of(conn);
        let address = &mut self.holdings[id.index()].address;
        if address.is_empty() {
            *address = peer(conn).into_bytes().into();
        }
        address.clone()
    }

    /// Separates a holding from its connection, which has ended. Returns None if the connection has taken nothing.
    pub fn leave_holding(&mut self, conn: ConnId, is_bye: bool, peer: &dyn Fn(ConnId) -> String) -> Option<HoldingId> {
        let id = self.consumers.get_mut(conn).holding?;
        if !self.holding(id).leases.is_empty() {
            self.address_of(conn, peer);
        }
        self.consumers.get_mut(conn).holding = None;
        let holding = &mut self.holdings[id.index()];
        (holding.conn, holding.is_bye) = (None, is_bye);
        Some(id)
    }

    /// Adds a holding of a record, without leases. Returns None if its connection has one.
    pub fn restore_holding(&mut self, holding: Holding) -> Option<HoldingId> {
        let conn = holding.conn;
        let id = HoldingId::from_index(self.holdings.insert(holding));
        conn.is_none_or(|conn| self.consumers.get_mut(conn).holding.replace(id).is_none()).then_some(id)
    }

    /// Removes a connection without leases.
    pub fn forget(&mut self, conn: ConnId) {
        self.consumers.clear(conn);
    }
}
