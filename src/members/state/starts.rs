//! Table of the starts: starts under way, and late starts whose answer may still come.

use super::*;

/// Most late starts that are remembered for a connection.
const MOST_LATE: usize = 1_024;

pub(super) struct Start {
    /// Number in the protocol.
    pub number: u64,
    pub conn: ConnId,
    /// Name of the pool for a `!STOP`, which is kept for a pool that no longer exists.
    pub pool_name: Arc<[u8]>,
    pub since: Time,
    pub progress: StartProgress,
}

pub(super) enum StartProgress {
    UnderWay {
        pool: PoolId,
        agent: AgentId,
        timer: TimerId,
    },
    /// It has failed, but its answer may still come.
    Late,
}

impl Start {
    pub fn is_under_way(&self) -> bool {
        matches!(self.progress, StartProgress::UnderWay { .. })
    }
}

/// All starts, and the number of starts under way by pool and by provider.
pub(super) struct Starts {
    starts: Slab<Start>,
    next_number: u64,
    under_way: usize,
    by_pool: SideTable<PoolId, List<StartId>>,
    pool_links: Links,
    by_agent: SideTable<AgentId, u32>,
    by_conn: SideTable<ConnId, Option<Box<ConnStarts>>>,
}

#[derive(Default)]
struct ConnStarts {
    by_number: BTreeMap<u64, StartId>,
    late: usize,
}

impl Default for Starts {
    fn default() -> Self {
        Starts {
            starts: Slab::new(),
            next_number: 1 + first_before(u32::MAX.into()),
            under_way: 0,
            by_pool: SideTable::default(),
            pool_links: Links::default(),
            by_agent: SideTable::default(),
            by_conn: SideTable::default(),
        }
    }
}

impl Starts {
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Start> {
        self.starts.iter().map(|(_, start)| start)
    }

    pub fn get(&self, id: StartId) -> &Start {
        &self.starts[id.index()]
    }

    /// Returns the number of the next start.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Sets the number of the next start.
    pub fn number_from(&mut self, number: u64) {
        self.next_number = number;
    }

    /// Returns the number of starts under way.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Returns the number of starts under way in a pool.
    pub fn in_pool(&self, pool: PoolId) -> u32 {
        self.by_pool.get(pool).len()
    }

    /// Returns the oldest start under way in a pool.
    pub fn first_in_pool(&self, pool: PoolId) -> Option<StartId> {
        self.by_pool.get(pool).front()
    }

    /// Returns the number of starts that a provider has under way.
    pub fn of_agent(&self, agent: AgentId) -> u32 {
        *self.by_agent.get(agent)
    }

    /// Returns the start of a connection with this number.
    pub fn find(&self, conn: ConnId, number: u64) -> Option<StartId> {
        self.by_conn.get(conn).as_ref()?.by_number.get(&number).copied()
    }

    /// Returns the starts of a connection, oldest first.
    pub fn of_conn(&self, conn: ConnId) -> impl Iterator<Item = StartId> {
        self.by_conn.get(conn).iter().flat_map(|starts| starts.by_number.values().copied())
    }

    /// Adds a start of a provider, and returns its number.
    pub fn begin(
        &mut self,
        conn: ConnId,
        agent: AgentId,
        (pool, pool_name): (PoolId, Arc<[u8]>),
        timeout: Span,
        step: &mut Step<'_, '_>,
    ) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        let since = step.now;
        self.insert(number, conn, pool_name, since, Some((pool, agent, since + timeout)), step);
        number
    }

    /// Adds a start: with its pool, provider and deadline if it is under way, late otherwise. Returns false if the
    /// connection has one of this number.
    pub fn insert(
        &mut self,
        number: u64,
        conn: ConnId,
        pool_name: Arc<[u8]>,
        since: Time,
        under_way: Option<(PoolId, AgentId, Time)>,
        step: &mut Step<'_, '_>,
    ) -> bool {
        let id = StartId::from_index(self.starts.vacant_key());
        let of_conn = self.by_conn.get_mut(conn).get_or_insert_default();
        let progress = match under_way {
            Some((pool, agent, until)) => {
                self.by_pool.get_mut(pool).push_back(&mut self.pool_links, id);
                *self.by_agent.get_mut(agent) += 1;
                self.under_way += 1;
                StartProgress::UnderWay { pool, agent, timer: step.timers.arm(until, Timer::Start(id)) }
            }
            None => {
                of_conn.late += 1;
                StartProgress::Late
            }
        };
        self.starts.insert(Start { number, conn, pool_name, since, progress });
        of_conn.by_number.insert(number, id).is_none()
    }

    /// Marks a start under way as late, and returns its pool and provider.
    pub fn end(&mut self, id: StartId, step: &mut Step<'_, '_>) -> Option<(PoolId, AgentId)> {
        let (pool, agent, timer) = self.stop(id)?;
        step.timers.cancel(timer);
        self.count_late(id);
        Some((pool, agent))
    }

    /// Marks a start whose timer has fired as late, and returns its pool and provider.
    pub fn time_out(&mut self, id: StartId) -> (PoolId, AgentId) {
        let (pool, agent, timer) = self.stop(id).expect("only a start under way has a timer");
        timer.fired();
        self.count_late(id);
        (pool, agent)
    }

    /// Removes a start that was answered. If it was under way, its timer is cancelled.
    pub fn finish(&mut self, id: StartId, step: &mut Step<'_, '_>) -> Start {
        let timer = self.stop(id).map(|(.., timer)| timer);
        let start = self.remove(id, timer.is_none());
        timer.into_iter().for_each(|timer| step.timers.cancel(timer));
        start
    }

    /// Removes a start under way from the counts of its pool and provider; returns these and its timer.
    fn stop(&mut self, id: StartId) -> Option<(PoolId, AgentId, TimerId)> {
        let progress = std::mem::replace(&mut self.starts[id.index()].progress, StartProgress::Late);
        let StartProgress::UnderWay { pool, agent, timer } = progress else { return None };
        self.by_pool.get_mut(pool).remove(&mut self.pool_links, id);
        *self.by_agent.get_mut(agent) -= 1;
        self.under_way -= 1;
        Some((pool, agent, timer))
    }

    /// Counts a start that has become late. Beyond [`MOST_LATE`] the oldest of its connection is removed.
    fn count_late(&mut self, id: StartId) {
        let of_conn = self.by_conn.get_mut(self.starts[id.index()].conn).get_or_insert_default();
        of_conn.late += 1;
        if of_conn.late > MOST_LATE {
            let oldest = of_conn.by_number.values().copied().find(|id| !self.starts[id.index()].is_under_way());
            self.remove(oldest.expect("one of them is late, since they are counted"), true);
        }
    }

    fn remove(&mut self, id: StartId, is_late: bool) -> Start {
        let start = self.starts.remove(id.index());
        let of_conn = self.by_conn.get_mut(start.conn).get_or_insert_default();
        of_conn.by_number.remove(&start.number);
        of_conn.late -= usize::from(is_late);
        start
    }

    /// Removes every start of a connection that has ended; none is under way.
    pub fn forget(&mut self, conn: ConnId) {
        for id in self.of_conn(conn).collect::<Vec<_>>() {
            self.remove(id, true);
        }
        self.by_conn.clear(conn);
    }

    /// Compares the indexes and counts with the starts.
    pub fn check(&self) {
        let (mut pools, mut agents, mut numbers) = (BTreeMap::new(), BTreeMap::new(), 0);
        for (index, start) in &self.starts {
            let id = StartId::from_index(index);
            assert_eq!(self.find(start.conn, start.number), Some(id), "a start is found by its number");
            if let StartProgress::UnderWay { pool, agent, .. } = start.progress {
                *pools.entry(pool).or_insert(0) += 1;
                *agents.entry(agent).or_insert(0) += 1;
            }
        }
        let of_pools = self.by_pool.iter().filter(|(_, starts)| !starts.is_empty());
        assert!(of_pools.map(|(pool, starts)| (pool, starts.len())).eq(pools), "starts under way by pool");
        let of_agents = self.by_agent.iter().filter(|(_, starts)| **starts > 0);
        assert!(of_agents.map(|(agent, starts)| (agent, *starts)).eq(agents), "starts under way by provider");
        assert_eq!(self.under_way, self.iter().filter(|start| start.is_under_way()).count(), "starts under way");
        for (_, of_conn) in self.by_conn.iter().filter_map(|(conn, starts)| Some((conn, starts.as_ref()?))) {
            let late = of_conn.by_number.values().filter(|id| !self.get(**id).is_under_way()).count();
            assert_eq!(of_conn.late, late, "late starts of a connection");
            numbers += of_conn.by_number.len();
        }
        assert_eq!(numbers, self.starts.len(), "each start is of a connection");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_core::wheel::{Owner, Wheel};

    #[test]
    fn an_answered_start_is_finished_though_as_many_as_may_be_are_late() {
        let (mut wheel, mut random, mut starts) = (Wheel::default(), Random::from_seed(1), Starts::default());
        let step = &mut Step {
            now: Time::START,
            timers: &mut wheel.of(Owner(0)),
            random: &mut random,
            events: &mut Vec::new(),
            notices: &mut Vec::new(),
            is_admin: false,
            peer: &|_| String::new(),
        };
        let (conn, agent, pool) = (ConnId::from_index(0), AgentId::from_index(0), PoolId::from_index(0));
        let mut ids = Vec::new();
        for _ in 0..=MOST_LATE {
            let number = starts.begin(conn, agent, (pool, b"p"[..].into()), Span::from_secs(1), step);
            ids.push(starts.find(conn, number).expect("it was just begun"));
        }
        ids[1..].iter().for_each(|id| _ = starts.end(*id, step));
        starts.finish(ids[0], step);
        starts.check();
        assert_eq!((starts.under_way(), starts.iter().count()), (0, MOST_LATE));
    }
}
