//! Handover format of the state, one record each: written by a process that ends, read by the one that takes over. It is independent of
//! the tables, so that these can change. It cannot itself, without a new version of the handover.

use super::starts::Start;
use super::*;
use crate::stats::Times;
use serde::{Deserialize, Serialize};

/// One saved entry. A record is behind those that it refers to by their saved ids.
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
    /// The rule for which a lease with a token counts. Version 1 has none of these.
    Rule {
        lease: u64,
        rule: String,
    },
    /// The backoff of a provider, behind the provider. Versions 1 and 2 have none of these and of those that follow.
    Backoff {
        agent: AgentId,
        until: Option<Time>,
        next: Span,
        failed: Option<Time>,
    },
    /// The session of a provider, behind the provider.
    Session {
        agent: AgentId,
        name: Arc<[u8]>,
    },
    /// A young member that was returned in good state.
    Proven {
        member: MemberId,
    },
    /// Reason why a member is kept out, behind the member. Versions 1 to 3 have none of these and of those that follow.
    Reason {
        member: MemberId,
        since: Time,
        reason: Reason,
    },
    /// Reason why a member is held when it comes free, behind the member.
    Hold {
        member: MemberId,
        reason: Reason,
    },
    /// A member that is held until another one comes back, behind the leases.
    Awaiting {
        held: MemberId,
        used: MemberId,
    },
    /// The first pools of a group are being removed.
    RemoveGroup {
        name: Arc<[u8]>,
        graceful: bool,
        left: usize,
    },
    /// When and where a provider was lost, behind the provider.
    Lost {
        agent: AgentId,
        at: Time,
        address: String,
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
    /// The backoff of the pool, which versions 1 and 2 have.
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
    pub state: SavedProviderState,
    pub provides: bool,
    pub cleans: bool,
    pub capacity: Option<u32>,
    pub is_pending: bool,
}

/// The state of a provider, with a deadline in place of its timer.
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

/// A phase with a deadline in place of its timer.
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
    /// Held until another member comes back. Versions 1 to 3 have none of these.
    Awaiting,
}

#[derive(Serialize, Deserialize)]
pub(super) struct SavedLease {
    pub number: u64,
    pub member: MemberId,
    pub conn: Option<ConnId>,
    /// The holding of a connection that is gone.
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
    pub fn save<'a>(&'a self, now: Time, timers: &'a Timers<'_, Timer>) -> impl Iterator<Item = Record> + 'a {
        let numbers = Saved::Numbers {
            lease: self.leases.next_number(),
            arrival: self.waiters.next_arrival(),
            start: self.starts.next_number(),
            past: self.pools.save_past(),
        };
        let all_pools = || {
            let nameless = self.pools.iter().filter(|(_, pool)| pool.is_removed);
            self.pools.after(None).chain(nameless.map(|(id, _)| id))
        };
        let pools = all_pools().map(|id| self.save_pool(id, timers));
        let groups = self.pools.groups();
        let groups = groups.map(|(_, group)| Saved::Group { name: group.name.clone(), pools: group.pools.clone() });
        let agents = all_pools().flat_map(|id| self.agents.in_pool(id)).copied();
        let gone = self.agents.iter().filter(|(id, agent)| !self.agents.in_pool(agent.pool).contains(id));
        let agents = agents.chain(gone.map(|(id, _)| id)).map(|id| save_agent(id, self.agents.get(id), timers));
        let backoffs = self.agents.iter().filter_map(|(id, agent)| save_backoff(id, agent, timers));
        let sessions = self.agents.iter().filter_map(|(agent, of)| Some((agent, of.session.clone()?)));
        let sessions = sessions.map(|(agent, name)| Saved::Session { agent, name });
        let lost = self.agents.iter().filter_map(|(agent, of)| Some((agent, of.lost.as_deref()?)));
        let lost = lost.map(|(agent, (at, address))| Saved::Lost { agent, at: *at, address: address.clone() });
        let left = self.leases.left_holdings().map(|(id, holding)| Saved::Holding {
            id,
            address: holding.address.clone(),
            is_bye: holding.is_bye,
        });
        let members = all_pools().flat_map(|id| self.members.in_order_of_queues(id));
        let members = members.map(|id| self.save_member(id, timers));
        let is_proven = move |member: &Member| member.is_proven() && now.since(member.born) < PROVEN_AGE;
        let proven = self.members.iter().filter(move |(_, member)| is_proven(member)).map(|(id, _)| id);
        let mut leases: Vec<LeaseId> = self.leases.iter().map(|(id, _)| id).collect();
        leases.sort_unstable_by_key(|id| self.leases.get(*id).number);
        let rules: Vec<Saved> = leases.iter().filter_map(|id| save_rule(self.leases.get(*id))).collect();
        let mut waiters: Vec<&Waiter> = self.waiters.iter().map(|(_, waiter)| waiter).collect();
        waiters.sort_unstable_by_key(|waiter| waiter.arrival);
        [numbers]
            .into_iter()
            .chain(pools)
            .chain(groups)
            .chain(agents)
            .chain(backoffs)
            .chain(sessions)
            .chain(lost)
            .chain(left)
            .chain(members)
            .chain(proven.map(|member| Saved::Proven { member }))
            .chain(self.members.save_reasons())
            .chain(leases.into_iter().map(|id| self.save_lease(id)))
            .chain(rules)
            .chain(self.members.awaiting().map(|(held, used)| Saved::Awaiting { held, used }))
            .chain(waiters.into_iter().map(|waiter| self.save_waiter(waiter)))
            .chain(self.starts.iter().map(|start| save_start(start, timers)))
            .chain(self.save_clients())
            .chain(self.background.tasks().filter_map(|task| self.save_task(task)))
            .map(Record)
    }

    fn save_pool(&self, id: PoolId, timers: &Timers<'_, Timer>) -> Saved {
        let (pool, tasks) = (self.pool(id), self.background.of_pool(id));
        let deadline = |timer: &Option<TimerId>| timer.as_ref().map(|timer| timers.deadline(timer));
        Saved::Pool(Box::new(SavedPool {
            id,
            name: pool.name.clone(),
            settings: pool.settings.clone(),
            is_leaving: pool.is_leaving,
            is_from_file: pool.is_from_file,
            is_removed: pool.is_removed,
            is_retiring: tasks.is_retiring,
            is_retiming: tasks.is_retiming,
            // A pool that is settled offers its free members again.
            is_behind: tasks.is_behind || tasks.is_offering,
            owed: pool.owed,
            backoff: None,
            next_backoff: Span::ZERO,
            cull: deadline(&pool.cull),
            figures: pool.figures.save(),
            times: (*pool.times).clone(),
        }))
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
            MemberPhase::Held(timer) => {
                timer.as_ref().map_or(SavedPhase::Awaiting, |timer| SavedPhase::Held(at(timer)))
            }
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
            attributes: self.members.attributes(id).map_or(Attributes::new(), |attributes| (**attributes).clone()),
            owner,
            born: member.born,
            since: member.since,
            proved: member.proved,
            uses: member.uses,
            share: member.share,
            is_leaving: member.is_leaving,
            is_from_file: member.is_from_file(),
            hold: self.members.hold(id).map(|(span, _)| *span),
            phase,
        }))
    }

    fn save_lease(&self, id: LeaseId) -> Saved {
        let lease = self.leases.get(id);
        Saved::Lease(SavedLease {
            number: lease.number,
            member: lease.member,
            conn: self.leases.conn_of(id),
            left: lease.holding.filter(|_| self.leases.is_left(id)),
            holder: lease.holder.clone(),
            since: lease.since,
            is_reported: lease.is_reported,
            token: lease.token.as_ref().map(|token| (token.token, token.span, token.until)),
        })
    }

    fn save_waiter(&self, waiter: &Waiter) -> Saved {
        let group = match waiter.source {
            WaitSource::Pool(_) => None,
            WaitSource::Group(group, _) => Some(self.pools.group(group).name.clone()),
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

    fn save_task(&self, task: &BackgroundTask) -> Option<Saved> {
        let BackgroundTask::RemoveGroup(group, graceful, left) = *task else { return None };
        Some(Saved::RemoveGroup { name: self.pools.group(group).name.clone(), graceful, left })
    }

    /// Returns the names of connections, and the stops that they may still answer.
    fn save_clients(&self) -> impl Iterator<Item = Saved> {
        let conns = self.leases.conns().max(self.agents.conns());
        (0..conns).map(ConnId::from_index).filter_map(|conn| {
            let name = self.leases.name(conn).cloned();
            let late_stops: Vec<_> = self.agents.late_stops(conn).cloned().collect();
            let is_known = name.is_some() || !late_stops.is_empty();
            is_known.then_some(Saved::Client { conn, name, late_stops })
        })
    }
}

impl MemberTable {
    /// Returns why members are kept out, and why they will be.
    fn save_reasons(&self) -> impl Iterator<Item = Saved> {
        let reasons = self.reasons().map(|(member, (since, reason))| Saved::Reason {
            member: *member,
            since: *since,
            reason: reason.clone(),
        });
        let holds = self.holds().map(|(member, (_, reason))| Saved::Hold { member: *member, reason: reason.clone() });
        reasons.chain(holds)
    }
}

fn save_agent(id: AgentId, agent: &Agent, timers: &Timers<'_, Timer>) -> Saved {
    let Agent { pool, provides, cleans, capacity, is_pending, .. } = *agent;
    let state = match &agent.state {
        ProviderState::Serves(conn) => SavedProviderState::Serves(*conn),
        ProviderState::Dismissed(conn) => SavedProviderState::Dismissed(*conn),
        ProviderState::Grace(timer) => SavedProviderState::Grace(timers.deadline(timer)),
        ProviderState::Lost => SavedProviderState::Lost,
    };
    Saved::Agent(SavedAgent { id, pool, state, provides, cleans, capacity, is_pending })
}

fn save_backoff(agent: AgentId, of: &Agent, timers: &Timers<'_, Timer>) -> Option<Saved> {
    let (until, next, failed) = of.backoff.to_save(timers)?;
    Some(Saved::Backoff { agent, until, next, failed })
}

fn save_rule(lease: &Lease) -> Option<Saved> {
    let rule = lease.token.as_ref()?.rule.as_deref()?;
    Some(Saved::Rule { lease: lease.number, rule: rule.into() })
}

fn save_start(start: &Start, timers: &Timers<'_, Timer>) -> Saved {
    let under_way = match &start.progress {
        StartProgress::UnderWay { agent, timer, .. } => Some((*agent, timers.deadline(timer))),
        StartProgress::Late => None,
    };
    let Start { number, conn, since, .. } = *start;
    Saved::Start { number, conn, pool_name: start.pool_name.clone(), since, under_way }
}
