//! What of the members outlives the process, record by record: written by one that ends, read by the one that takes over.
//! It is independent of the tables, so that these can change. What is written here cannot, without a new version of the handover.

use super::waiters::WaitSource;
use super::*;
use serde::{Deserialize, Serialize};

/// One thing that is saved. A record stands behind those that it refers to, by the numbers that they say.
#[derive(Serialize, Deserialize)]
pub struct Record(pub(super) Saved);

#[derive(Serialize, Deserialize)]
pub(super) enum Saved {
    Numbers {
        lease: u64,
        arrival: u64,
        start: u64,
        past: Vec<(String, u64)>,
    },
    Pool(Box<SavedPool>),
    Group {
        name: Arc<[u8]>,
        pools: Vec<PoolId>,
    },
    Agent(SavedAgent),
    Holding {
        id: HoldingId,
        address: Arc<[u8]>,
        is_bye: bool,
    },
    Member(Box<SavedMember>),
    Lease(SavedLease),
    Waiter(Box<SavedWaiter>),
    Start {
        number: u64,
        conn: ConnId,
        pool_name: Arc<[u8]>,
        since: Time,
        under_way: Option<(AgentId, Time)>,
    },
    Client {
        conn: ConnId,
        name: Option<Arc<[u8]>>,
        late_stops: Vec<Arc<[u8]>>,
    },
    /// The rule for which a lease with a token counts. The version before has none of these.
    Rule {
        lease: u64,
        rule: String,
    },
}

#[derive(Serialize, Deserialize)]
pub(super) struct SavedPool {
    pub id: PoolId,
    pub name: Arc<[u8]>,
    pub settings: Settings,
    pub is_leaving: bool,
    pub is_from_file: bool,
    pub is_removed: bool,
    pub is_retiring: bool,
    pub is_retiming: bool,
    pub is_behind: bool,
    pub owed: u32,
    pub backoff: Option<Time>,
    pub next_backoff: Span,
    pub cull: Option<Time>,
    pub figures: Vec<(String, u64)>,
    pub times: Times,
}

#[derive(Serialize, Deserialize)]
pub(super) struct SavedAgent {
    pub id: AgentId,
    pub pool: PoolId,
    pub standing: SavedProviderState,
    pub provides: bool,
    pub cleans: bool,
    pub capacity: Option<u32>,
    pub is_pending: bool,
}

/// A standing with its deadline in place of its timer.
#[derive(Serialize, Deserialize)]
pub(super) enum SavedProviderState {
    Serves(ConnId),
    Dismissed(ConnId),
    Grace(Time),
    Lost,
}

#[derive(Serialize, Deserialize)]
pub(super) struct SavedMember {
    pub id: MemberId,
    pub pool: PoolId,
    pub name: Arc<[u8]>,
    pub attributes: Attributes,
    pub owner: SavedOwner,
    pub born: Time,
    pub since: Time,
    pub proved: Time,
    pub uses: u32,
    pub share: u16,
    pub is_leaving: bool,
    pub is_from_file: bool,
    pub hold: Option<Span>,
    pub phase: SavedPhase,
}

#[derive(Serialize, Deserialize)]
pub(super) enum SavedOwner {
    Fixed,
    Agent(AgentId),
}

/// A phase with its deadline in place of its timer.
#[derive(Serialize, Deserialize)]
pub(super) enum SavedPhase {
    Free(Option<Time>),
    Checking(Time),
    InUse,
    Stopping(Time),
    /// Its deadline follows from the rest.
    Unclean(Option<Time>),
    Cleaning(AgentId, Time),
    Quarantined(Option<Time>),
    Held(Time),
    Delayed(Time),
    Orphaned,
}

#[derive(Serialize, Deserialize)]
pub(super) struct SavedLease {
    pub number: u64,
    pub member: MemberId,
    pub conn: Option<ConnId>,
    /// What it is a part of, when its connection is gone.
    pub left: Option<HoldingId>,
    pub holder: Holder,
    pub since: Time,
    pub is_reported: bool,
    pub token: Option<(Token, Span, Time)>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct SavedWaiter {
    pub conn: ConnId,
    /// The pool, or the group and the pool of its starts.
    pub pool: Option<PoolId>,
    pub group: Option<Arc<[u8]>>,
    pub arrival: u64,
    pub since: Time,
    pub until: Time,
    pub priority: u8,
    pub count: Option<u32>,
    pub filter: Option<Box<Filter>>,
    pub lease: Option<Span>,
    pub want: u32,
    pub starts_used: u32,
    pub no_wait: bool,
}

impl State {
    /// Returns everything, with deadlines in place of timers.
    pub fn save<'a>(&'a self, timers: &'a Timers<'_, Timer>) -> impl Iterator<Item = Record> + 'a {
        let (lease, arrival, start) = (self.next_lease, self.next_arrival, self.next_start);
        let numbers = Saved::Numbers { lease, arrival, start, past: self.past.save() };
        let all_pools = || {
            let nameless = self.pools.iter().filter(|(_, pool)| pool.is_removed);
            self.order.values().copied().chain(nameless.map(|(index, _)| PoolId::from_index(index)))
        };
        let pools = all_pools().map(|id| self.save_pool(id, timers));
        let groups =
            self.groups.iter().map(|(_, group)| Saved::Group { name: group.name.clone(), pools: group.pools.clone() });
        let agents = all_pools().flat_map(|id| &self.pool(id).agents).map(|id| self.save_agent(*id, timers));
        let ids = self.agents.iter().map(|(index, agent)| (AgentId::from_index(index), agent));
        let gone = ids.filter(|(id, agent)| !self.pool(agent.pool).agents.contains(id));
        let gone = gone.map(|(id, _)| self.save_agent(id, timers));
        let left = self.holdings.iter().filter(|(_, holding)| holding.conn.is_none());
        let left = left.map(|(index, holding)| Saved::Holding {
            id: HoldingId::from_index(index),
            address: holding.address.clone(),
            is_bye: holding.is_bye,
        });
        let members = all_pools().flat_map(|id| self.members_to_save(id)).map(|id| self.save_member(id, timers));
        let mut leases: Vec<LeaseId> = self.leases.iter().map(|(index, _)| LeaseId::from_index(index)).collect();
        leases.sort_unstable_by_key(|id| self.leases[id.index()].number);
        let rules: Vec<Saved> = leases.iter().filter_map(|id| self.save_rule(*id)).collect();
        let mut waiters: Vec<WaiterId> = self.waiters.iter().map(|(index, _)| WaiterId::from_index(index)).collect();
        waiters.sort_unstable_by_key(|id| self.waiter(*id).arrival);
        let clients = self.clients.iter().enumerate().filter_map(|(index, client)| {
            let late_stops: Vec<_> = client.work.iter().flat_map(|work| work.late_stops.iter().cloned()).collect();
            let is_known = client.name.is_some() || !late_stops.is_empty();
            is_known.then(|| Saved::Client { conn: ConnId::from_index(index), name: client.name.clone(), late_stops })
        });
        [numbers]
            .into_iter()
            .chain(pools)
            .chain(groups)
            .chain(agents)
            .chain(gone)
            .chain(left)
            .chain(members)
            .chain(leases.into_iter().map(|id| self.save_lease(id)))
            .chain(rules)
            .chain(waiters.into_iter().map(|id| self.save_waiter(id)))
            .chain(self.starts.iter().map(|(_, start)| save_start(start, timers)))
            .chain(clients)
            .map(Record)
    }

    fn save_pool(&self, id: PoolId, timers: &Timers<'_, Timer>) -> Saved {
        let pool = self.pool(id);
        let deadline = |timer: &Option<TimerId>| timer.as_ref().map(|timer| timers.deadline(timer));
        Saved::Pool(Box::new(SavedPool {
            id,
            name: pool.name.clone(),
            settings: pool.settings.clone(),
            is_leaving: pool.is_leaving,
            is_from_file: pool.is_from_file,
            is_removed: pool.is_removed,
            is_retiring: pool.is_retiring,
            is_retiming: pool.is_retiming,
            is_behind: pool.is_behind,
            owed: pool.owed,
            backoff: deadline(&pool.backoff),
            next_backoff: pool.next_backoff,
            cull: deadline(&pool.cull),
            figures: pool.figures.save(),
            times: (*pool.times).clone(),
        }))
    }

    fn save_agent(&self, id: AgentId, timers: &Timers<'_, Timer>) -> Saved {
        let Agent { pool, provides, cleans, capacity, is_pending, .. } = self.agents[id.index()];
        let standing = match &self.agents[id.index()].standing {
            ProviderState::Serves(conn) => SavedProviderState::Serves(*conn),
            ProviderState::Dismissed(conn) => SavedProviderState::Dismissed(*conn),
            ProviderState::Grace(timer) => SavedProviderState::Grace(timers.deadline(timer)),
            ProviderState::Lost => SavedProviderState::Lost,
        };
        Saved::Agent(SavedAgent { id, pool, standing, provides, cleans, capacity, is_pending })
    }

    /// The members of a pool, those in its queues in the order of these.
    fn members_to_save(&self, id: PoolId) -> impl Iterator<Item = MemberId> {
        let pool = self.pool(id);
        let queues =
            [&pool.idle, &pool.unclean, &pool.cleaning].into_iter().flat_map(|list| list.iter(&self.links_phase));
        queues.chain(pool.members.values().copied().filter(|id| !self.links_phase.is_linked(*id)))
    }

    fn save_member(&self, id: MemberId, timers: &Timers<'_, Timer>) -> Saved {
        let member = self.member(id);
        let at = |timer: &TimerId| timers.deadline(timer);
        let phase = match &member.phase {
            MemberPhase::Free(timer) => SavedPhase::Free(timer.as_ref().map(at)),
            MemberPhase::Checking(timer) => SavedPhase::Checking(at(timer)),
            MemberPhase::InUse(_) => SavedPhase::InUse,
            MemberPhase::Stopping(timer) => SavedPhase::Stopping(at(timer)),
            MemberPhase::Unclean => SavedPhase::Unclean(None),
            MemberPhase::Cleaning { agent, timer } => SavedPhase::Cleaning(*agent, at(timer)),
            MemberPhase::Quarantined(timer) => SavedPhase::Quarantined(timer.as_ref().map(at)),
            MemberPhase::Held(timer) => SavedPhase::Held(at(timer)),
            MemberPhase::Delayed(timer) => SavedPhase::Delayed(at(timer)),
            MemberPhase::Orphaned => SavedPhase::Orphaned,
        };
        let owner = match member.owner {
            MemberOwner::Fixed => SavedOwner::Fixed,
            MemberOwner::Agent(agent) => SavedOwner::Agent(agent),
        };
        Saved::Member(Box::new(SavedMember {
            id,
            pool: member.pool,
            name: member.name.clone(),
            attributes: self.attributes_of(id).map_or(Attributes::new(), |attributes| (**attributes).clone()),
            owner,
            born: member.born,
            since: member.since,
            proved: member.proved,
            uses: member.uses,
            share: member.share,
            is_leaving: member.is_leaving,
            is_from_file: member.is_from_file,
            hold: self.holds.get(&id).copied(),
            phase,
        }))
    }

    fn save_lease(&self, id: LeaseId) -> Saved {
        let lease = &self.leases[id.index()];
        Saved::Lease(SavedLease {
            number: lease.number,
            member: lease.member,
            conn: self.holder_of(id),
            left: lease.holding.filter(|holding| self.holdings[holding.index()].conn.is_none()),
            holder: lease.holder.clone(),
            since: lease.since,
            is_reported: lease.is_reported,
            token: lease.token.as_ref().map(|token| (token.token, token.span, token.until)),
        })
    }

    fn save_rule(&self, id: LeaseId) -> Option<Saved> {
        let lease = &self.leases[id.index()];
        let rule = lease.token.as_ref()?.rule.as_deref()?;
        Some(Saved::Rule { lease: lease.number, rule: rule.into() })
    }

    fn save_waiter(&self, id: WaiterId) -> Saved {
        let waiter = self.waiter(id);
        let group = match waiter.place {
            WaitSource::Pool(_) => None,
            WaitSource::Group(group, _) => Some(self.groups[group.index()].name.clone()),
        };
        Saved::Waiter(Box::new(SavedWaiter {
            conn: waiter.conn,
            pool: waiter.starts_in(),
            group,
            arrival: waiter.arrival,
            since: waiter.since,
            until: waiter.until,
            priority: waiter.priority,
            count: waiter.count,
            filter: waiter.filter.clone(),
            lease: waiter.lease,
            want: waiter.want,
            starts_used: waiter.starts_used,
            no_wait: waiter.no_wait,
        }))
    }
}

fn save_start(start: &Start, timers: &Timers<'_, Timer>) -> Saved {
    let under_way = match &start.progress {
        Progress::UnderWay { agent, timer } => Some((*agent, timers.deadline(timer))),
        Progress::Late => None,
    };
    let Start { number, conn, since, .. } = *start;
    Saved::Start { number, conn, pool_name: start.pool_name.clone(), since, under_way }
}
