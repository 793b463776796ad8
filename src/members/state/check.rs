//! Invariants of the state. The checks change nothing.

use super::{HoldingId, MemberId, Phase, Place, Pool, PoolId, State, Task};
use poolcounter_core::Time;

impl State {
    /// Checks each owner, and then the relations between them.
    ///
    /// # Panics
    ///
    /// Panics if tables contradict each other.
    pub fn check(&self) {
        if self.loading.is_some() {
            // The tables are not complete.
            return;
        }
        self.pools.check();
        self.members.check();
        self.leases.check(|member| self.member(member).pool);
        self.waiters.check();
        self.agents.check(|id| {
            let starts = self.starts.of_agent(id).len();
            (self.members.of_agent(id).len() + starts, starts)
        });
        self.starts.check();
        let mut members = 0;
        for (id, pool) in self.pools.iter() {
            members += self.members.in_pool(id).len();
            self.check_pool(id, pool);
            self.check_demand(id, pool);
            self.members.in_pool(id).all().for_each(|member| self.check_member(member, pool));
        }
        assert_eq!(members, self.members.len(), "each member is of a pool that exists");
        let is_followed = self.pools.iter().any(|(_, pool)| pool.is_behind);
        let is_served = self.pools.cramped.is_empty() || !self.has_room() || is_followed;
        assert!(is_served, "pools that lacked room are settled once there is some");
        self.check_agents();
        self.check_references();
    }

    fn check_pool(&self, id: PoolId, pool: &Pool) {
        let (slots, of_pool) = (self.slots(id), self.members.in_pool(id));
        let has_waiters = self.waiters.queued(Place::Pool(id)) > 0;
        assert!(
            !pool.is_leaving || slots > 0 || has_waiters || self.agents.has_any(id),
            "a pool that leaves has something to wait for"
        );
        let is_idle = self.free_count(id) == 0 && !has_waiters;
        assert!(!pool.is_leaving || pool.walk.is_some() || is_idle, "a pool that leaves hands out nothing");
        assert!(pool.is_leaving || !pool.is_removed, "a pool is removed by and by");
        let is_busy = pool.walk.is_some() || pool.excess > 0 || pool.is_behind;
        assert!(!is_busy || self.background.has(Task::Pool(id)), "a pool has a task for its background work");
        assert!(pool.offering.is_none() || self.background.has(Task::Offers), "offers that go on have a task");
        let is_cleaned = !pool.is_leaving && !pool.is_behind && self.agents.has_any(id);
        let is_stuck = is_cleaned && of_pool.count(Phase::Cleaning) < self.most_cleaned(id);
        assert!(!is_stuck || of_pool.unclean.front().is_none(), "agents are asked to clean");
    }

    /// Checks that wanted members are started, as far as there is room.
    fn check_demand(&self, id: PoolId, pool: &Pool) {
        let is_behind = pool.is_behind;
        let is_able = self.next_provider(id).is_some() && self.has_room();
        // Pools without room follow each other, one behind another.
        let is_possible = is_able && !is_behind && self.pools.cramped.is_empty();
        assert!(!is_possible || self.wanted(id) == 0, "wanted members are started");
        let is_stoppable = |id: MemberId| self.member(id).owner.is_some();
        let has_surplus = self.is_above_max(id) && self.members.free(id).any(is_stoppable);
        assert!(!has_surplus || is_behind, "free members above max are stopped");
        let Some(group) = pool.group else { return };
        assert_eq!(self.members.in_pool(id).group, Some(group).filter(|_| !pool.is_leaving), "a pool is in its group");
        if !self.pools.group(group).is_touched {
            assert_eq!(pool.supply, self.supply_of(id), "a group knows what its pools have for it");
            assert!(!is_possible || !self.lacks_in_group(group), "members for a group are started");
        }
    }

    fn check_member(&self, id: MemberId, pool: &Pool) {
        let member = self.member(id);
        let (kind, is_orphan) = (member.phase, self.is_orphan(id));
        let is_pending = member.owner.is_some_and(|agent| self.agents.get(agent).is_pending());
        let is_out = !matches!(kind, Phase::Free | Phase::Checking | Phase::Stopping);
        assert!(!is_orphan || is_pending || is_out, "an orphan is kept out");
        assert!(kind != Phase::Orphaned || is_orphan || is_pending, "only orphans are orphaned");
        let is_limited = self.members.end_of_life(id, &pool.settings).is_some();
        assert!(is_limited || pool.walk.is_some() || member.life.is_none(), "no limit, no timer of a lifetime");
        if let Some(lease) = member.lease() {
            assert_eq!(self.leases.get(lease).member, id, "a lease names its member");
        }
    }

    fn check_agents(&self) {
        for (id, agent) in self.agents.iter() {
            let members = self.members.of_agent(id).len();
            assert!(agent.conn.is_some() || members > 0, "a lost provider is removed with its last member");
            let has_task = self.background.has(Task::Agent(id));
            assert!(!agent.is_pending() || has_task, "the members of a lost provider are ended");
            let cleans = |member: &MemberId| self.is_cleaned_by(*member, id);
            let cleaned = self.members.in_pool(agent.pool).all().filter(cleans).count();
            assert_eq!(agent.cleaning as usize, cleaned, "members that an agent cleans");
            let owned =
                self.members.in_pool(agent.pool).all().filter(|member| self.member(*member).owner == Some(id)).count();
            assert_eq!(owned, members as usize, "a provider has members of its pool");
        }
    }

    /// Checks ids that one owner keeps of another.
    fn check_references(&self) {
        let mut leases = 0;
        for (id, lease) in self.leases.iter() {
            assert_eq!(self.member(lease.member).lease(), Some(id), "a leased member is in use");
            leases += 1;
        }
        let in_use: u32 = self.pools.iter().map(|(id, _)| self.members.in_pool(id).count(Phase::InUse)).sum();
        assert_eq!(in_use, leases, "each member in use has one lease");
        for start in self.starts.iter() {
            let agent = self.agents.get(start.agent);
            assert!(agent.conn.is_some() && agent.pool == start.pool, "a start is of a connected provider");
        }
        let mut left = self.leases.holdings().filter(|(_, holding)| holding.conn.is_none());
        let has_task = |(id, _): (HoldingId, &_)| self.background.has(Task::Holding(id));
        assert!(left.all(has_task), "the leases of connections that are gone are ended");
    }

    /// Returns whether changes are being applied in slices.
    pub fn has_background_work(&self) -> bool {
        !self.background.is_empty()
    }

    /// Checks that no waiter could be served. A waiter for several is not served past the first with the same attributes.
    ///
    /// # Panics
    ///
    /// Panics if a member is free that a waiter could have.
    pub fn check_waits(&self, now: Time) {
        let is_settled = |pool: PoolId| {
            // A check under way is for a waiter.
            let has_checks = self.members.in_pool(pool).count(Phase::Checking) > 0;
            let Pool { offering, is_behind, .. } = self.pool(pool);
            !has_checks && offering.is_none() && !is_behind
        };
        for waiter in self.waiters.classes.firsts().map(|(_, id)| self.waiters.get(id)) {
            let is_ready = match waiter.place {
                Place::Pool(pool) => is_settled(pool),
                Place::Group(group) => {
                    self.pools.group(group).pools.values().all(|pool| is_settled(*pool))
                        && !self.pools.group(group).is_touched
                }
            };
            let found = self.find(waiter.place, waiter.filter.as_deref(), waiter.members(), waiter.rank);
            let found = found.filter(|members| is_ready && self.unproved(members, waiter.since, now).is_empty());
            let names: Vec<_> = found.iter().flat_map(|members| members.iter()).map(|id| self.names_of(*id)).collect();
            assert!(names.is_empty(), "{} waits for members that are free: {names:?}", waiter.conn);
        }
    }
}
