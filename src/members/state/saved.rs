//! Handover format of the state: written by a process that ends, read by its successor. It is independent of the
//! tables, so that these can change. The format cannot change without a new version of the handover.
//!
//! First come records without members and leases, then all [`members`] and all [`leases`] in packed form, then the
//! records that refer to these. A record follows those that it refers to by their saved ids.

mod leases;
mod members;

pub(super) use leases::{LeaseUnpacker, SavedLease};
pub(super) use members::{MemberUnpacker, SavedMember, SavedPhase, index_of};

use super::starts::Start;
use super::*;
use crate::stats::Times;
use members::MemberNumbers;
use poolcounter_core::record::Writer;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io;

/// Saved entry.
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
    /// Backoff of a provider, behind the provider.
    Backoff {
        agent: AgentId,
        until: Option<Time>,
        next: Span,
        failed: Option<Time>,
    },
    /// Session of a provider, behind the provider.
    Session {
        agent: AgentId,
        name: Arc<[u8]>,
    },
    /// Reason why a member is kept out, behind the member.
    Reason {
        member: MemberId,
        since: Time,
        reason: Reason,
    },
    /// Reason why a member will be held when it becomes free, behind the member.
    Hold {
        member: MemberId,
        since: Time,
        reason: Reason,
    },
    /// Number of failed cleanings since the last use of a member, and the cleaner of the last one, behind the member.
    FailedCleanings {
        member: MemberId,
        times: u32,
        by: Option<AgentId>,
    },
    /// The last leases of a fixed member, the last one last, behind the member.
    History {
        member: MemberId,
        leases: VecDeque<PastLease>,
    },
    /// Group whose first pools are being removed.
    RemoveGroup {
        name: Arc<[u8]>,
        graceful: bool,
        left: usize,
    },
    /// Time of a provider's loss, and its address, behind the provider.
    Lost {
        agent: AgentId,
        at: Time,
        address: String,
    },
    /// Fixed member that no pool has.
    Unknown(Box<KeptMember>),
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

/// State of a provider, with a deadline in place of its timer.
#[derive(Serialize, Deserialize)]
pub(super) enum SavedProviderState {
    Serves(ConnId),
    Dismissed(ConnId),
    Grace(Time),
    Lost,
}

#[derive(Serialize, Deserialize)]
pub(super) struct SavedWaiter {
    pub conn: ConnId,
    pub place: SavedPlace,
    pub arrival: u64,
    pub since: Time,
    pub until: Time,
    pub priority: u8,
    pub count: Option<u32>,
    pub filter: Option<Box<Filter>>,
    pub lease: Option<Span>,
    pub want: u32,
}

/// Pool or group of a waiter.
#[derive(Serialize, Deserialize)]
pub(super) enum SavedPlace {
    Pool(PoolId),
    Group(Arc<[u8]>),
}

impl State {
    /// Writes the whole state, with deadlines in place of timers.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be written.
    pub fn save(&self, out: &mut Writer<'_>, now: Time, timers: &Timers<'_, Timer>) -> io::Result<()> {
        self.save_pools(out, timers)?;
        let numbers = self.save_members(out, now, timers)?;
        self.save_leases(out, &numbers)?;
        self.save_rest(out, &numbers, timers)
    }

    fn save_pools(&self, out: &mut Writer<'_>, timers: &Timers<'_, Timer>) -> io::Result<()> {
        let numbers = Saved::Numbers {
            lease: self.leases.next_number(),
            arrival: self.waiters.next_arrival(),
            start: self.starts.next_number(),
            past: self.pools.save_past(),
        };
        let pools = self.all_pools().map(|id| self.save_pool(id, timers));
        let groups = self.pools.groups();
        let groups = groups.map(|(_, group)| Saved::Group { name: group.name.clone(), pools: group.pools.clone() });
        let agents = self.all_pools().flat_map(|id| self.agents.in_pool(id)).copied();
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
        let records = [numbers].into_iter().chain(pools).chain(groups).chain(agents).chain(backoffs);
        put_all(out, records.chain(sessions).chain(lost).chain(left))
    }

    /// Writes the records that refer to members and leases, and those that may come behind them.
    fn save_rest(&self, out: &mut Writer<'_>, numbers: &MemberNumbers, timers: &Timers<'_, Timer>) -> io::Result<()> {
        let reasons = self.members.reasons().map(|(member, (since, reason))| Saved::Reason {
            member: numbers.of(*member),
            since: *since,
            reason: reason.clone(),
        });
        let holds = self.members.holds();
        let holds = holds.map(|(member, hold)| Saved::Hold {
            member: numbers.of(*member),
            since: hold.since,
            reason: hold.reason.clone(),
        });
        let history = self.history.iter();
        let history =
            history.map(|(member, leases)| Saved::History { member: numbers.of(*member), leases: leases.clone() });
        let failed = self.cleanings.failed();
        let failed = failed.map(|(member, failed)| Saved::FailedCleanings {
            member: numbers.of(*member),
            times: failed.times,
            by: failed.by.filter(|by| self.agents.in_pool(self.member(*member).pool).contains(by)),
        });
        let mut waiters: Vec<&Waiter> = self.waiters.iter().map(|(_, waiter)| waiter).collect();
        waiters.sort_unstable_by_key(|waiter| waiter.rank.1);
        let waiters = waiters.into_iter().map(|waiter| self.save_waiter(waiter));
        let starts = self.starts.iter().map(|start| save_start(start, timers));
        let tasks = self.background.tasks().filter_map(|task| self.save_task(task));
        let unknown = self.unknown_members().map(|kept| Saved::Unknown(kept.clone().into()));
        let records = reasons.chain(holds).chain(failed).chain(history).chain(unknown).chain(waiters).chain(starts);
        put_all(out, records.chain(self.save_clients()).chain(tasks))
    }

    fn all_pools(&self) -> impl Iterator<Item = PoolId> {
        let nameless = self.pools.iter().filter(|(_, pool)| pool.is_removed);
        self.pools.after(None).chain(nameless.map(|(id, _)| id))
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
            cull: deadline(&pool.cull),
            figures: pool.figures.save(),
            times: (*pool.times).clone(),
        }))
    }

    fn save_waiter(&self, waiter: &Waiter) -> Saved {
        let place = match waiter.place {
            Place::Pool(pool) => SavedPlace::Pool(pool),
            Place::Group(group) => SavedPlace::Group(self.pools.group(group).name.clone()),
        };
        Saved::Waiter(Box::new(SavedWaiter {
            conn: waiter.conn,
            place,
            arrival: waiter.rank.1,
            since: waiter.since,
            until: waiter.until,
            priority: waiter.priority,
            count: waiter.count,
            filter: waiter.filter.clone(),
            lease: waiter.lease,
            want: waiter.want,
        }))
    }

    fn save_task(&self, task: &BackgroundTask) -> Option<Saved> {
        let BackgroundTask::RemoveGroup(group, graceful, before) = *task else { return None };
        let left = self.pools.count_joined(group, before);
        Some(Saved::RemoveGroup { name: self.pools.group(group).name.clone(), graceful, left })
    }

    /// Returns the names of connections, and the stops that they may still report.
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

fn put_all(out: &mut Writer<'_>, records: impl Iterator<Item = Saved>) -> io::Result<()> {
    for record in records {
        out.put(&Some(record))?;
    }
    out.put(&None::<Saved>)
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

fn save_start(start: &Start, timers: &Timers<'_, Timer>) -> Saved {
    let under_way = match &start.progress {
        StartProgress::UnderWay { agent, timer, .. } => Some((*agent, timers.deadline(timer))),
        StartProgress::Late => None,
    };
    let Start { number, conn, since, .. } = *start;
    Saved::Start { number, conn, pool_name: start.pool_name.clone(), since, under_way }
}
