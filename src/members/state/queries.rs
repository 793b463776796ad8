//! What there is, for those who ask. It changes nothing.

use super::super::stats::misses_of;
use super::*;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::ops::Bound;

/// Who holds a member, as operators see it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Holder {
    /// The connection has no name.
    Connection(ConnId),
    /// The name that the connection had, or the address of one that is gone.
    Name(Arc<[u8]>),
}

impl Holder {
    /// Returns the name, else the connection's address.
    pub fn text(&self, peer: impl Fn(ConnId) -> String) -> String {
        match self {
            Holder::Connection(conn) => peer(*conn),
            Holder::Name(name) => String::from_utf8_lossy(name).into_owned(),
        }
    }
}

/// The figures of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "they have the names that they have on the wire")]
pub struct Utilization {
    pub max: u32,
    pub in_use: u32,
    pub free: u32,
    pub starting: u32,
    pub stopping: u32,
    pub cleaning: u32,
    pub quarantined: u32,
    pub queued: u32,
    pub queue_max: u32,
}

impl Utilization {
    /// Returns the figures with their names, in the order of the protocol.
    pub fn rows(&self) -> [(&'static str, u32); 9] {
        [
            ("max", self.max),
            ("in_use", self.in_use),
            ("free", self.free),
            ("starting", self.starting),
            ("stopping", self.stopping),
            ("cleaning", self.cleaning),
            ("quarantined", self.quarantined),
            ("queued", self.queued),
            ("queue_max", self.queue_max),
        ]
    }
}

/// One pool in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolRow<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its group's name.
    pub group: Option<&'a [u8]>,
    /// Its figures.
    pub figures: Utilization,
}

/// A pool with what happened in it.
#[derive(Clone, Copy, Debug)]
pub struct PoolReport<'a> {
    /// How it stands.
    pub row: PoolRow<'a>,
    /// What was counted.
    pub figures: &'a Figures<Stat>,
    /// How long things took.
    pub times: &'a Times,
}

/// One member in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberRow<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// What it does.
    pub state: &'static str,
    /// Who holds it; `-` when nobody does.
    pub holder: String,
    /// How long there has been such a member.
    pub age: Span,
    /// How long it has not been in use.
    pub idle: Span,
    /// How often it was taken.
    pub uses: u32,
    /// Whether it is held for longer than `warn_hold`.
    pub is_long: bool,
}

impl State {
    /// Returns the figures of a pool.
    ///
    /// # Errors
    ///
    /// When there is no such pool.
    pub fn utilization(&self, pool: &[u8]) -> Result<Utilization, Refusal> {
        Ok(self.utilization_of(self.find_pool(pool)?))
    }

    fn utilization_of(&self, id: PoolId) -> Utilization {
        let pool = self.pool(id);
        let sum = |kinds: &[PhaseKind]| kinds.iter().map(|kind| pool.count(*kind)).sum();
        Utilization {
            max: pool.settings.max,
            in_use: pool.count(PhaseKind::InUse),
            free: pool.idle_count(),
            starting: pool.starts,
            stopping: pool.count(PhaseKind::Stopping),
            cleaning: sum(&[PhaseKind::Unclean, PhaseKind::Cleaning]),
            quarantined: sum(&[PhaseKind::Quarantined, PhaseKind::Held, PhaseKind::Delayed, PhaseKind::Orphaned]),
            queued: self.queued(id),
            queue_max: pool.settings.queue,
        }
    }

    /// Returns the pools whose names come after `after`, by name.
    pub fn pools_after(&self, after: Option<&[u8]>) -> impl Iterator<Item = PoolRow<'_>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.order.range::<[u8], _>((from, Bound::Unbounded)).map(|(_, id)| self.pool_row(*id))
    }

    /// Returns the members of a pool whose names come after `after`, by name; `peer` tells the address of a connection.
    ///
    /// # Errors
    ///
    /// When there is no such pool.
    pub fn members_after(
        &self,
        pool: &[u8],
        after: Option<&[u8]>,
        now: Time,
        peer: impl Fn(ConnId) -> String,
    ) -> Result<impl Iterator<Item = MemberRow<'_>>, Refusal> {
        let id = self.find_pool(pool)?;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let members = self.pool(id).members.range::<[u8], _>((from, Bound::Unbounded));
        Ok(members.map(move |(_, id)| self.row(*id, now, &peer)))
    }

    fn row(&self, id: MemberId, now: Time, peer: impl Fn(ConnId) -> String) -> MemberRow<'_> {
        let member = self.member(id);
        let warn_hold = self.pool(member.pool).settings.warn_hold;
        let state = match member.phase.kind() {
            PhaseKind::Free => "free",
            PhaseKind::Checking => "checking",
            PhaseKind::InUse => "in_use",
            PhaseKind::Stopping => "stopping",
            PhaseKind::Unclean | PhaseKind::Cleaning => "cleaning",
            PhaseKind::Quarantined => "quarantined",
            PhaseKind::Held => "held",
            PhaseKind::Delayed => "delayed",
            PhaseKind::Orphaned => "orphaned",
        };
        let held = match member.phase {
            MemberPhase::InUse(lease) => Some(lease),
            _ => None,
        };
        let lease = held.map(|held| &self.leases[held.index()]);
        MemberRow {
            name: &member.name,
            state,
            holder: held.map_or_else(|| "-".into(), |held| self.holder_text(held, peer)),
            age: now.since(member.born),
            idle: if lease.is_some() { Span::ZERO } else { now.since(member.since) },
            uses: member.uses,
            is_long: warn_hold > Span::ZERO && lease.is_some_and(|lease| now.since(lease.since) > warn_hold),
        }
    }

    /// Returns at most `most` pools: those from which most was asked, the busiest first, and by name where that is equal.
    pub fn busiest(&self, most: usize) -> Vec<PoolReport<'_>> {
        let asked = |id: PoolId| self.pool(id).figures.of(Stat::Takes) + misses_of(&self.pool(id).figures);
        let mut order: Vec<(Reverse<u64>, usize, PoolId)> =
            self.order.values().enumerate().map(|(n, id)| (Reverse(asked(*id)), n, *id)).collect();
        if order.len() > most {
            order.select_nth_unstable(most);
            order.truncate(most);
        }
        order.sort_unstable();
        order.into_iter().map(|(_, _, id)| self.report_of(id)).collect()
    }

    /// Returns what there is to tell of a pool.
    ///
    /// # Errors
    ///
    /// When there is no such pool.
    pub fn report_of_name(&self, pool: &[u8]) -> Result<PoolReport<'_>, Refusal> {
        Ok(self.report_of(self.find_pool(pool)?))
    }

    fn report_of(&self, id: PoolId) -> PoolReport<'_> {
        let pool = self.pool(id);
        PoolReport { row: self.pool_row(id), figures: &pool.figures, times: &pool.times }
    }

    fn pool_row(&self, id: PoolId) -> PoolRow<'_> {
        let pool = self.pool(id);
        PoolRow {
            name: &pool.name,
            group: pool.group.map(|group| &*self.groups[group.index()].name),
            figures: self.utilization_of(id),
        }
    }

    /// Returns what was counted of all pools together, those that are gone among them.
    pub fn counted_in_all(&self) -> Figures<Stat> {
        let mut all = self.past.clone();
        self.pools.iter().for_each(|(_, pool)| all.merge(&pool.figures));
        all
    }

    /// Returns how many takes wait.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Returns how many timers are armed.
    pub fn armed_timers(&self) -> usize {
        let of_pools = self.pools.iter().map(|(_, pool)| {
            [pool.cull.is_some(), pool.backoff.is_some(), pool.unclean_until.is_some()].map(usize::from).iter().sum()
        });
        let of_members = self
            .members
            .iter()
            .map(|(_, member)| usize::from(member.phase.timer().is_some()) + usize::from(member.life.is_some()));
        let of_leases = self.leases.iter().filter(|(_, lease)| lease.timer.is_some()).count();
        let is_under_way = |start: &Start| matches!(start.progress, Progress::UnderWay { .. });
        let of_starts = self.starts.iter().filter(|(_, start)| is_under_way(start)).count();
        let of_agents =
            self.agents.iter().filter(|(_, agent)| matches!(agent.standing, ProviderState::Grace(_))).count();
        let of_chores = usize::from(self.background_timer.is_some());
        of_pools.chain(of_members).sum::<usize>() + of_leases + of_starts + of_agents + self.waiters.len() + of_chores
    }

    /// Returns whether nothing is held, waited for or remembered of any connection. Pools stay, with fixed members, leases
    /// that have a token, and the members of lost providers for their grace.
    pub fn knows_nobody(&self) -> bool {
        self.waiters.is_empty()
            && self.starts.is_empty()
            && self.agents.iter().all(|(_, agent)| agent.conn().is_none())
            && self.holdings.is_empty()
            && self.background.is_empty()
            && (0..self.clients.len()).all(|index| !self.knows(ConnId::from_index(index)))
    }

    /// Returns how many members there are, and how many pools.
    pub fn len(&self) -> (usize, usize) {
        (self.members.len(), self.pools.len())
    }
}
