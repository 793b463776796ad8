//! Lists, figures and reports of pools and members. They change nothing.

use super::{Agent, KeptOut, MemberId, Phase, Place, Pool, PoolId, State};
use crate::stats::MemberStat as Stat;
use crate::stats::{Times, misses_of};
use poolcounter_core::{ConnId, Figures, Span, Time};
use poolcounter_protocol::members::request::{Attributes, From, Named, Refusal};
use std::cmp::Reverse;

macro_rules! figures {
    ($($name:ident)*) => {
        /// Figures of a pool.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(missing_docs, reason = "they have the names that they have on the wire")]
        pub struct Utilization {
            $(pub $name: u32,)*
            pub is_removing: bool,
        }

        impl Utilization {
            /// Returns the figures with their names, in the order of the protocol.
            pub fn rows(&self) -> [(&'static str, u32); 9] {
                [$((stringify!($name), self.$name)),*]
            }
        }
    };
}

figures! { max in_use free starting stopping cleaning quarantined queued queue_max }

/// Pool in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolRow<'a> {
    /// Name.
    pub name: &'a [u8],
    /// Name of its group.
    pub group: Option<&'a [u8]>,
    /// Figures.
    pub figures: Utilization,
}

/// Pool with its statistics.
#[derive(Clone, Copy, Debug)]
pub struct PoolReport<'a> {
    /// Name, group and figures.
    pub row: PoolRow<'a>,
    /// Statistics.
    pub figures: &'a Figures<Stat>,
    /// Durations.
    pub times: &'a Times,
    /// Time after which a member counts as held for long; zero: never.
    pub warn_hold: Span,
}

/// Member in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberRow<'a> {
    /// Name.
    pub name: &'a [u8],
    /// State, as in the protocol.
    pub state: &'static str,
    /// Holder; `-` if it is not in use.
    pub holder: String,
    /// Time since it was started or added.
    pub age: Span,
    /// Time since it was last in use.
    pub idle: Span,
    /// Number of its leases.
    pub uses: u32,
    /// True if it is held for longer than `warn_hold`.
    pub is_long: bool,
    /// Time for which its holder has had it, and the number of its lease.
    pub held: Option<(Span, u64)>,
    /// Time to the end of its lease, if that outlives its connection.
    pub expires: Option<Span>,
    /// Time for which an operator will hold it when it is returned.
    pub hold: Option<Span>,
    /// Reason why it is kept out, or will be when it is returned.
    pub kept_out: Option<KeptOut<'a>>,
    /// Attributes.
    pub attributes: Option<&'a Attributes>,
}

/// Viewer of lists: the time, and the addresses of connections.
#[derive(Clone, Copy)]
pub struct Viewer<'a> {
    /// The time.
    pub now: Time,
    /// Returns the address of a connection.
    pub peer: &'a dyn Fn(ConnId) -> String,
}

impl State {
    fn utilization_of(&self, id: PoolId) -> Utilization {
        let (of_pool, settings) = (self.members.in_pool(id), &self.pool(id).settings);
        let sum = |kinds: &[Phase]| kinds.iter().map(|kind| of_pool.count(*kind)).sum();
        Utilization {
            max: settings.max,
            in_use: of_pool.count(Phase::InUse),
            free: of_pool.idle(),
            starting: self.starts.in_pool(id).len(),
            stopping: of_pool.count(Phase::Stopping),
            cleaning: sum(&Phase::CLEANED),
            quarantined: sum(&Phase::KEPT_OUT),
            queued: self.queued(id),
            queue_max: settings.queue,
            is_removing: self.pool(id).is_leaving,
        }
    }

    /// Returns the pools with a name behind `after`, by name.
    pub fn pools_after(&self, after: Option<&[u8]>) -> impl Iterator<Item = PoolRow<'_>> {
        self.pools.after(after).map(|id| self.pool_row(id))
    }

    /// Returns the members of a pool with a name behind `after`, by name.
    ///
    /// # Errors
    ///
    /// Fails if there is no such pool.
    pub fn members_after(
        &self,
        pool: &[u8],
        after: Option<&[u8]>,
        viewer: Viewer<'_>,
    ) -> Result<impl Iterator<Item = MemberRow<'_>>, Refusal> {
        let members = self.members.named_after(self.pools.find(pool)?, after);
        Ok(members.map(move |(_, id)| self.member_row(id, viewer)))
    }

    /// Returns a member of a pool.
    ///
    /// # Errors
    ///
    /// Fails if there is no such pool or member.
    pub fn member_named(&self, named: Named<'_>, viewer: Viewer<'_>) -> Result<MemberRow<'_>, Refusal> {
        Ok(self.member_row(self.find_member(named)?, viewer))
    }

    pub(super) fn member_row(&self, id: MemberId, Viewer { now, peer }: Viewer<'_>) -> MemberRow<'_> {
        let member = self.member(id);
        let warn_hold = self.pool(member.pool).settings.warn_hold;
        let lease_id = member.lease();
        let lease = lease_id.map(|lease| self.leases.get(lease));
        MemberRow {
            name: &member.name,
            state: member.phase.name(),
            holder: lease_id.map_or_else(|| "-".into(), |lease| self.leases.holder_text(lease, peer)),
            age: now.since(member.born),
            idle: if lease.is_some() { Span::ZERO } else { now.since(member.since) },
            uses: member.uses,
            is_long: warn_hold > Span::ZERO && lease.is_some_and(|lease| now.since(lease.since) > warn_hold),
            held: lease.map(|lease| (now.since(lease.since), lease.number)),
            expires: lease
                .and_then(|lease| lease.token.as_ref())
                .filter(|token| token.until < Time::NEVER)
                .map(|token| token.until.since(now)),
            hold: self.members.beside(id).hold.as_ref().map(|hold| hold.span),
            kept_out: self.kept_out(id, now),
            attributes: self.members.attributes(id).map(|attributes| &**attributes),
        }
    }

    /// Returns at most `most` pools with such names: those with the most takes, including refused ones, first, and by
    /// name among equals.
    pub fn busiest(&self, has: &dyn Fn(&[u8]) -> bool, most: usize) -> Vec<PoolReport<'_>> {
        let asked =
            |id: PoolId| self.pool(id).figures.of(Stat::Takes).saturating_add(misses_of(&self.pool(id).figures));
        let by_name = self.pools.after(None).filter(|id| has(&self.pool(*id).name)).enumerate();
        let mut order: Vec<(Reverse<u64>, usize, PoolId)> =
            by_name.map(|(n, id)| (Reverse(asked(id)), n, id)).collect();
        if order.len() > most {
            order.select_nth_unstable(most);
            order.truncate(most);
        }
        order.sort_unstable();
        order.into_iter().map(|(_, _, id)| self.report_of(id)).collect()
    }

    /// Returns the report of a pool.
    ///
    /// # Errors
    ///
    /// Fails if there is no such pool.
    pub fn report_of_name(&self, pool: &[u8]) -> Result<PoolReport<'_>, Refusal> {
        Ok(self.report_of(self.pools.find(pool)?))
    }

    fn report_of(&self, id: PoolId) -> PoolReport<'_> {
        let Pool { figures, times, settings, .. } = self.pool(id);
        PoolReport { row: self.pool_row(id), figures, times, warn_hold: settings.warn_hold }
    }

    pub(super) fn pool_row(&self, id: PoolId) -> PoolRow<'_> {
        let Pool { name, group, .. } = self.pool(id);
        let group = group.map(|group| &*self.pools.group(group).name);
        PoolRow { name, group, figures: self.utilization_of(id) }
    }

    /// Returns the statistics of all pools together, including dropped ones.
    pub fn counted_in_all(&self) -> Figures<Stat> {
        let mut all = self.pools.past.clone();
        self.pools.iter().for_each(|(_, pool)| all.merge(&pool.figures));
        all
    }

    /// Returns the numbers of pools, of members, of members in use, and of waiters.
    pub fn totals(&self) -> [u64; 4] {
        [self.pools.len(), self.members.len(), self.leases.len(), self.waiters.len()].map(|number| number as u64)
    }

    /// Returns the number of armed timers.
    pub fn armed_timers(&self) -> usize {
        let armed = |agent: &Agent| [agent.grace.is_some(), agent.backoff.is_some()];
        let of_agents = self.agents.iter().flat_map(|(_, agent)| armed(agent)).filter(|is_armed| *is_armed).count();
        let of_pools = self.pools.iter().filter(|(_, pool)| pool.cull.is_some()).count();
        let of_leases = self.leases.iter().filter(|(_, lease)| lease.timer.is_some()).count();
        let of_tables = of_pools + of_leases + of_agents + self.members.armed_timers();
        of_tables + self.starts.len() + self.waiters.len() + usize::from(self.refused_timer.is_some())
    }

    /// Returns the pool for which a connection provides or cleans.
    pub fn provides_for(&self, conn: ConnId) -> Option<&[u8]> {
        self.agents.serving(conn).map(|(_, pool)| &*self.pool(pool).name)
    }

    /// Returns the pool or group whose members a connection waits for.
    pub fn waits_for(&self, conn: ConnId) -> Option<From<'_>> {
        let waiter = self.waiters.get(self.waiters.of_conn(conn)?);
        Some(match waiter.place {
            Place::Pool(pool) => From::Pool(&self.pool(pool).name),
            Place::Group(group) => From::Group(&self.pools.group(group).name),
        })
    }

    /// Returns whether there is any trace of a connection.
    pub fn knows(&self, conn: ConnId) -> bool {
        self.leases.knows(conn) || self.waiters.of_conn(conn).is_some() || self.agents.last_pool(conn).is_some()
    }

    /// Returns true if there is no trace of any connection. Pools stay, with fixed members, leases that have a token,
    /// and the members of lost providers for their grace.
    pub fn knows_nobody(&self) -> bool {
        self.waiters.is_empty()
            && self.starts.len() == 0
            && !self.leases.knows_any()
            && !self.agents.knows_any()
            && self.background.is_empty()
    }
}
