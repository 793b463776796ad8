//! Queries for operators: holders and waiters, and the busiest keys and types. They change nothing, and their results
//! are bounded.

use super::parts::Several;
use super::types::SUMS;
use super::{ClaimId, ClaimPhase, List, Pool, PoolsState, Purpose, WorkType};
use memchr::memmem::Finder;
use poolcounter_core::top_keys::TopKey;
use poolcounter_core::{ConnId, Count, Figures, Id, Metered as _, Time};
use poolcounter_protocol::pools::request::AcquireLock;
use poolcounter_protocol::pools::stats::PoolStat as Stat;
use poolcounter_service::access::Holds;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A key with its claims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BusyKey<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Number of locks that are held.
    pub working: u32,
    /// Number of requests that wait.
    pub waiting: u32,
    /// Time since which the oldest of these claims is held or waits.
    pub since: Time,
}

/// A claim as operators see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClaimInfo<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Type of work of the key.
    pub type_name: &'a [u8],
    /// Connection of the claim.
    pub conn: ConnId,
    /// Name that its client gave; empty without one.
    pub who: &'a [u8],
    /// Purpose of a waiting claim; None for a held claim.
    pub waits_for: Option<Purpose>,
    /// Time since which it waits or holds.
    pub since: Time,
    /// End of a kept lock, whose connection is gone; None for other claims.
    pub kept_until: Option<Time>,
}

/// Most keys that are examined for a page, whose answer is made in one piece: about 0.4 ms. Beyond them, keys that had
/// waits or refusals lately are examined as well, so that no crowd is missed.
pub const KEYS_LOOKED_AT: usize = 32_768;
/// Most connections that are examined for a page: each needs a system call for its address, which takes about as long.
pub const CLIENTS_LOOKED_AT: usize = 4_096;
/// Most locks that are examined for a page.
const LOCKS_LOOKED_AT: usize = 16_384;

/// Selection of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhichKeys<'a> {
    /// All keys.
    All,
    /// Keys of a type of work.
    OfType(&'a [u8]),
    /// Keys that contain these bytes.
    With(&'a [u8]),
}

/// Search for the keys with most claims, in slices. Keys that change meanwhile may be found as they were before.
pub struct BusiestSearch {
    most: usize,
    /// Index of the next pool to examine.
    next: usize,
    /// Busiest keys so far, with their numbers of claims.
    found: BinaryHeap<(Reverse<u32>, Box<[u8]>)>,
}

impl BusiestSearch {
    /// Returns a search for at most `most` keys.
    pub fn new(most: usize) -> Self {
        BusiestSearch { most, next: 0, found: BinaryHeap::new() }
    }

    /// Notes a pool if it is among the busiest.
    fn offer(&mut self, pool: &Pool) {
        if pool.is_unused() {
            return;
        }
        let claims = Reverse(pool.occupancy().1);
        let own = || (claims, pool.key[..].into());
        if self.found.len() < self.most {
            self.found.push(own());
        } else if let Some(mut last) = self.found.peek_mut()
            && (claims, &pool.key[..]) < (last.0, &last.1[..])
        {
            *last = own();
        }
    }
}

impl PoolsState {
    /// Returns the count of a statistic that only counting changes.
    pub fn count_of(&self, stat: Stat) -> u64 {
        self.figures.of(stat).saturating_add(self.types.total(stat))
    }

    /// Returns the figures, with the levels as they are now. Figures of the server and of the connections' traffic are
    /// missing.
    pub fn figures(&self) -> Figures<Stat> {
        let mut figures = self.figures.clone();
        SUMS.iter().for_each(|(stat, _)| figures.set(*stat, self.count_of(*stat)));
        let locks_back = figures.of(Stat::ProcessedCount).max(1);
        figures.set(Stat::AverageProcessingTime, figures.of(Stat::ProcessingTime) / locks_back);
        figures.set(
            Stat::WaitingTime,
            figures.of(Stat::WaitingTimeForMe).saturating_add(figures.of(Stat::WaitingTimeForAnyone)),
        );
        figures.set(Stat::HashtableEntries, self.keys() as u64);
        figures.set(Stat::ProcessingWorkers, self.working());
        figures.set(Stat::WaitingWorkers, self.waiting());
        figures.set(Stat::KeptLocks, self.kept.len());
        figures
    }

    /// Returns the number of locks that are held.
    pub fn working(&self) -> u64 {
        self.held.len().into()
    }

    /// Returns the number of requests that wait.
    pub fn waiting(&self) -> u64 {
        self.claims.len() as u64 - self.parts.count - self.working() - self.kept.len()
    }

    /// Returns the number of waits that have ended with TIMEOUT.
    pub fn timeouts(&self) -> u64 {
        self.types_in_use().map(|one| one.timeouts).sum::<Count>().get()
    }

    /// Returns the number of keys with claims.
    pub fn keys(&self) -> usize {
        self.emptied.in_use
    }

    /// Returns the selected keys with the most claims, busiest first; among equals in the order of the keys. Beyond
    /// `KEYS_LOOKED_AT` keys, not all are examined.
    pub fn busiest(&self, most: usize, which: WhichKeys<'_>) -> Vec<BusyKey<'_>> {
        let mut search = BusiestSearch::new(most);
        let (of_type, finder) = match which {
            WhichKeys::All => (None, None),
            WhichKeys::OfType(name) => (Some(self.types.named(name)), None),
            WhichKeys::With(bytes) => (None, Some(Finder::new(bytes))),
        };
        let include = |pool: &&Pool| {
            of_type.is_none_or(|wanted| pool.type_id == wanted)
                && finder.as_ref().is_none_or(|finder| finder.find(&pool.key).is_some())
        };
        let first = (0..self.pools.capacity().min(KEYS_LOOKED_AT)).filter_map(|index| self.pools.get(index));
        first.filter(include).for_each(|pool| search.offer(pool));
        if self.pools.capacity() > KEYS_LOOKED_AT {
            for pool in self.top_keys.keys().filter_map(|key| self.pool(key)).filter(include) {
                if !search.found.iter().any(|(_, key)| **key == pool.key) {
                    search.offer(pool);
                }
            }
        }
        self.found_busiest(search)
    }

    /// Notes the limits of a request that waits or is refused, for the page of its key.
    #[cold]
    pub(super) fn note_limits(&mut self, request: &AcquireLock<'_>) {
        let AcquireLock { workers, max_queue, timeout, .. } = request;
        if let Some(details) = self.top_keys.details_mut(request.key) {
            details.limits = [(*workers).into(), (*max_queue).into(), timeout.as_micros()];
        }
    }

    /// Returns the busiest examined key with this prefix.
    pub fn key_beginning(&self, beginning: &[u8]) -> Option<&[u8]> {
        let pools = self.pools.iter().map(|(_, pool)| pool).take(KEYS_LOOKED_AT);
        let pools = pools.chain(self.top_keys.keys().filter_map(|key| self.pool(key)));
        let pools = pools.filter(|pool| !pool.is_unused() && pool.key.starts_with(beginning));
        let found = pools.max_by_key(|pool| pool.occupancy().1);
        found.map(|pool| &pool.key[..])
    }

    /// Returns the number of keys whose locks a connection holds, one for each key of each lock, and the number of its
    /// waiting requests.
    #[inline(always)]
    pub fn holds(&self, conn: ConnId) -> Holds {
        if self.parts.count == 0 {
            let claims = self.clients.get(conn);
            let newest = claims.back().map(|id| &self.claims[id.index()].phase);
            let waits = u32::from(matches!(newest, Some(ClaimPhase::Waiting { .. })));
            return Holds { locks: claims.len() - waits, waits };
        }
        let claims = self.clients.get(conn).len() + self.parts.of_conn(conn);
        let awaited = self.waiting_claim(conn).map(|whole| 1 + self.parts.of(whole).map_or(0, Several::len));
        Holds { locks: claims - awaited.unwrap_or(0), waits: u32::from(awaited.is_some()) }
    }

    /// Returns the keys of the lock that a connection waits for; none without a wait.
    pub fn awaited_keys(&self, conn: ConnId) -> Vec<&[u8]> {
        let Some(whole) = self.waiting_claim(conn) else { return Vec::new() };
        let parts = self.parts.of(whole).into_iter().flat_map(|several| &several.parts);
        std::iter::once(whole).chain(parts.map(|part| part.id)).map(|claim| self.key_of(claim)).collect()
    }

    /// Returns the claims of a connection, oldest first.
    pub fn claims_with(&self, conn: ConnId) -> impl Iterator<Item = ClaimInfo<'_>> {
        self.claims_of(conn).map(|id| self.claim_info(id))
    }

    /// Returns the connections with claims, at most the first `CLIENTS_LOOKED_AT`, in no particular order.
    pub fn clients(&self) -> impl Iterator<Item = ConnId> {
        let clients = self.clients.iter().filter(|(_, claims)| !claims.is_empty());
        clients.map(|(conn, _)| conn).take(CLIENTS_LOOKED_AT)
    }

    /// Returns the claims of a type of work that are held for longest, oldest first, of the first `LOCKS_LOOKED_AT`.
    pub fn longest_holders_of(&self, of_type: &[u8], most: usize) -> Vec<ClaimInfo<'_>> {
        let wanted = self.types.named(of_type);
        let is_of_type = |id: &ClaimId| self.pools[self.claims[id.index()].pool.index()].type_id == wanted;
        let held = self.held.iter().take(LOCKS_LOOKED_AT).filter(is_of_type).take(most);
        held.map(|id| self.claim_info(id)).collect()
    }

    /// Examines some more keys, and returns whether these were the last.
    pub fn search_busiest(&self, search: &mut BusiestSearch, keys: usize) -> bool {
        let all = self.pools.capacity();
        let end = search.next.saturating_add(keys).min(all);
        (search.next..end).metered().filter_map(|index| self.pools.get(index)).for_each(|pool| search.offer(pool));
        search.next = end;
        end == all
    }

    /// Returns the keys that a search has found, with their present claims and in the order of [`PoolsState::busiest`].
    pub fn found_busiest(&self, search: BusiestSearch) -> Vec<BusyKey<'_>> {
        let pools = search.found.into_iter().filter_map(|(_, key)| self.pool(&key));
        let mut keys: Vec<BusyKey<'_>> = pools.map(|pool| self.busy(pool)).collect();
        keys.sort_by_key(|busy| (Reverse(busy.working + busy.waiting), busy.key));
        // A key that was released and taken again meanwhile can be found twice.
        keys.dedup();
        keys
    }

    /// Returns the number of claims on a key.
    pub fn occupancy(&self, key: &[u8]) -> usize {
        self.pool(key).map_or(0, |pool| pool.occupancy().1 as usize)
    }

    /// Returns the claims on a key: the holders, oldest first, and then the waiters, in the order of service.
    pub fn claims_on(&self, key: &[u8]) -> impl Iterator<Item = ClaimInfo<'_>> {
        let claims = self.pool(key).into_iter().flat_map(|pool| self.claims_in(pool));
        claims.map(|id| self.claim_info(id))
    }

    /// Returns the claims that are held for longest, oldest first.
    pub fn longest_holders(&self, most: usize) -> Vec<ClaimInfo<'_>> {
        self.held.iter().take(most).map(|id| self.claim_info(id)).collect()
    }

    /// Returns the types of work with any counts, in no particular order.
    pub fn types_in_use(&self) -> impl Iterator<Item = &WorkType> {
        self.types.iter()
    }

    /// Returns the types of work, most acquired locks first; among equals in the order of the names.
    pub fn types(&self) -> Vec<&WorkType> {
        let mut types: Vec<&WorkType> = self.types_in_use().collect();
        types.sort_by_key(|one| (Reverse(one.acquired), &one.name[..]));
        types
    }

    /// Returns the keys with the most refusals and waits lately, worst first, with or without claims. Keys that refuse
    /// now come first.
    pub fn hottest(&self, most: usize, now: Time) -> Vec<TopKey<'_>> {
        let is_open = self.window_begun(now).is_some();
        let of_now = |top: TopKey<'_>| if is_open { top.refusing } else { 0 };
        let mut keys: Vec<TopKey<'_>> =
            self.top_keys.top(now).map(|top| TopKey { refusing: of_now(top), ..top }).collect();
        keys.sort_by_key(|top| (Reverse(top.refusing), Reverse(top.refusals + top.waits), top.key));
        keys.truncate(most);
        keys
    }

    pub(super) fn pool(&self, key: &[u8]) -> Option<&Pool> {
        let pool = self.find(self.names.hash(key), key).map(|pool| &self.pools[pool.index()]);
        pool.filter(|pool| !pool.is_unused())
    }

    pub(super) fn busy<'a>(&'a self, pool: &'a Pool) -> BusyKey<'a> {
        let (working, occupied) = pool.occupancy();
        let oldest = pool.queues().filter_map(List::front).map(|claim| self.claims[claim.index()].since).min();
        let since = oldest.expect("a pool exists while it has claims");
        BusyKey { key: &pool.key, working, waiting: occupied - working, since }
    }

    pub(super) fn claim_info(&self, id: ClaimId) -> ClaimInfo<'_> {
        let claim = &self.claims[id.index()];
        let whole = self.whole_of(id);
        let waits_for = match self.claims[whole.index()].phase {
            ClaimPhase::Waiting { purpose, .. } => Some(purpose),
            _ => None,
        };
        let kept_until = self.kept.until(id);
        let pool = self.pool_at(claim.pool);
        let (type_name, who) = (&*self.types[pool.type_id].name, &**self.whos.get(whole));
        ClaimInfo { key: &pool.key, type_name, conn: claim.conn, who, waits_for, since: claim.since, kept_until }
    }

    /// Returns the claims of a pool, in the order of its queues.
    pub(super) fn claims_in(&self, pool: &Pool) -> impl Iterator<Item = ClaimId> {
        pool.queues().flat_map(|queue| queue.iter(&self.links_by_pool))
    }
}

impl Pool {
    /// Returns the queue of the holders, and the queues of the waiters in the order of service.
    pub(super) fn queues(&self) -> impl Iterator<Item = &List<ClaimId>> {
        [&self.holders, &self.waiting_for_me, &self.waiting_for_anyone].into_iter()
    }
}
