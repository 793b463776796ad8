//! Invariants of the state. The checks change nothing.

use super::waiters::Place;
use super::*;

impl State {
    /// Checks each owner, and then the relations between them.
    ///
    /// # Panics
    ///
    /// Panics if tables contradict each other.
    pub fn check(&self) {
        if self.is_loading() {
            // The tables are not complete.
            return;
        }
        self.pools.check();
        self.members.check();
        self.leases.check(|member| self.member(member).pool);
        self.waiters.check();
        self.agents.check();
        self.starts.check();
        self.background.check();
        let mut members = 0;
        for (id, pool) in self.pools.iter() {
            members += self.members.in_pool(id).len();
            self.check_pool(id, pool);
            self.check_demand(id, pool);
            self.members.in_pool(id).all().for_each(|member| self.check_member(member, pool));
        }
        assert_eq!(members, self.members.len(), "each member is of a pool that exists");
        self.check_agents();
        self.check_references();
    }

    fn check_pool(&self, id: PoolId, pool: &Pool) {
        let (slots, of_pool, tasks) = (self.slots(id), self.members.in_pool(id), self.background.of_pool(id));
        let has_waiters = self.waiters.any_of_pool(id).is_some();
        assert!(
            !pool.is_leaving || slots > 0 || !self.waiters.is_unused(id),
            "a pool that leaves has something to wait for"
        );
        let is_idle = self.free_count(id) == 0 && !has_waiters;
        assert!(
            !pool.is_leaving || pool.is_removed || tasks.is_retiring || is_idle,
            "a pool that leaves hands out nothing"
        );
        let removals = self.background.count(|task| matches!(task, BackgroundTask::Remove(of) if *of == id));
        assert_eq!(removals, usize::from(pool.is_removed), "the members of a removed pool are stopped");
        assert!(slots <= pool.most_slots, "members, starts and stops never exceed max, unless it was lowered");
        let is_cleaned = !pool.is_leaving && !tasks.is_behind && !self.agents.in_pool(id).is_empty();
        let is_stuck = is_cleaned && of_pool.count(PhaseKind::Cleaning) < self.most_cleaned(id);
        assert!(!is_stuck || of_pool.first_unclean().is_none(), "agents are asked to clean");
        let is_queued = |waiter: WaiterId| {
            let place = self.waiters.find(waiter).map(Waiter::place);
            place == Some(Place::Pool(id)) || place.is_some() && place == pool.group.map(Place::Group)
        };
        assert!(self.waiters.reserving(id).is_none_or(is_queued), "members are reserved for a waiter for them");
        let until = pool.unclean_until.as_ref().map(|(until, _)| *until);
        assert_eq!(until, self.unclean_until(id), "unclean members are timed while no agent is connected");
    }

    /// Checks that wanted members are started, as far as there is room.
    fn check_demand(&self, id: PoolId, pool: &Pool) {
        let has_provider = self.roomiest_provider(id).is_some();
        let has_room = self.may_start(id) && !self.background.is_launching();
        assert!(!(has_room && has_provider && self.wanted(id) > 0), "wanted members are started");
        let checks = self.members.in_pool(id).count(PhaseKind::Checking);
        let is_waiting = self.waiters.first_no_wait(id).is_some() && !self.background.of_pool(id).is_behind;
        assert!(!is_waiting || checks > 0, "a waiter for a check has one to wait for");
        let is_stoppable = |id: MemberId| self.member(id).owner != MemberOwner::Fixed;
        let has_surplus = self.is_above_max(id) && self.members.free(id).any(is_stoppable);
        assert!(!has_surplus || self.background.of_pool(id).is_behind, "free members above max are stopped");
        let is_behind = self.background.of_pool(id).is_behind;
        let is_misplaced = self.waiters.first_misplaced(id, pool.group.filter(|_| !pool.is_leaving)).is_some();
        assert!(!is_misplaced || is_behind, "a waiter causes starts in its pool or group");
        let Some(group) = pool.group.filter(|group| !self.pools.has_candidates(*group)) else { return };
        let is_left_out = self.waiters.unplaced(group, id).take(1).any(|waiter| self.can_take_from(waiter, id));
        let is_possible = self.launchable(id) > 0 || self.has_spare_start(id);
        let is_behind = is_behind || self.background.is_launching();
        assert!(!(is_left_out && is_possible) || is_behind, "a waiter causes starts where they are possible");
    }

    fn check_member(&self, id: MemberId, pool: &Pool) {
        let member = self.member(id);
        let (kind, is_orphan) = (member.phase.kind(), self.is_orphan(id));
        let is_pending = match member.owner {
            MemberOwner::Fixed => false,
            MemberOwner::Agent(agent) => self.agents.get(agent).is_pending || pool.is_removed,
        };
        let is_out = !matches!(kind, PhaseKind::Free | PhaseKind::Checking | PhaseKind::Stopping);
        assert!(!is_orphan || is_pending || is_out, "an orphan is kept out");
        assert!(kind != PhaseKind::Orphaned || is_orphan || is_pending, "only orphans are orphaned");
        let is_limited = self.members.end_of_life(id, &pool.settings).is_some();
        let is_retiming = self.background.of_pool(member.pool).is_retiming;
        assert!(is_limited || is_retiming || !self.members.has_life_timer(id), "no limit, no timer of a lifetime");
        if let MemberPhase::InUse(lease) = member.phase {
            assert_eq!(self.leases.get(lease).member, id, "a lease names its member");
        }
    }

    fn check_agents(&self) {
        for (id, agent) in self.agents.iter() {
            let (pool, members) = (self.pool(agent.pool), self.members.of_agent(id));
            match agent.state {
                ProviderState::Serves(_) => assert!(!pool.is_removed, "an agent serves a pool that exists"),
                ProviderState::Dismissed(_) => assert!(pool.is_removed, "an agent is dismissed with its pool"),
                ProviderState::Grace(_) => assert!(members > 0 || agent.is_pending, "a grace is for members"),
                ProviderState::Lost => assert!(agent.is_pending || pool.is_removed, "a lost agent is removed"),
            }
            let tasks = self.background.count(|task| matches!(task, BackgroundTask::Agent(of) if *of == id));
            assert_eq!(tasks, usize::from(agent.is_pending), "the members of a lost provider are ended");
            let born_of = |member: MemberId| {
                let of_agent = self.members.find(member).filter(|member| member.owner == MemberOwner::Agent(id));
                of_agent.map(|member| member.born)
            };
            agent.backoff.check(born_of);
            let owned = self.members.in_pool(agent.pool).all().filter(|member| self.is_of(*member, id)).count();
            assert_eq!(owned, members as usize, "a provider has members of its pool");
        }
    }

    fn is_of(&self, member: MemberId, agent: AgentId) -> bool {
        self.member(member).owner == MemberOwner::Agent(agent)
    }

    /// Checks ids that one owner keeps of another.
    fn check_references(&self) {
        let mut leases = 0;
        for (id, lease) in self.leases.iter() {
            let is_in_use = matches!(self.member(lease.member).phase, MemberPhase::InUse(of) if of == id);
            assert!(is_in_use, "a leased member is in use");
            leases += 1;
        }
        let in_use: u32 = self.pools.iter().map(|(id, _)| self.members.in_pool(id).count(PhaseKind::InUse)).sum();
        assert_eq!(in_use, leases, "each member in use has one lease");
        for start in self.starts.iter() {
            if let StartProgress::UnderWay { pool, agent, .. } = start.progress {
                let Agent { pool: of, .. } = self.agents.get(agent);
                assert!(self.agents.get(agent).conn() == Some(start.conn) && *of == pool, "a start is of its provider");
            }
        }
        let left = self.leases.left_holdings().count();
        let tasks = self.background.count(|task| matches!(task, BackgroundTask::Holding(_)));
        assert_eq!(tasks, left, "the leases of connections that are gone are ended");
    }

    /// Checks that no waiter could be served.
    ///
    /// # Panics
    ///
    /// Panics if a member is free that a waiter could have.
    pub fn check_waits(&self, now: Time) {
        for (pool, _) in self.pools.iter() {
            // A check under way is for a waiter.
            let has_checks = self.members.in_pool(pool).count(PhaseKind::Checking) > 0;
            let tasks = self.background.of_pool(pool);
            if has_checks || tasks.is_offering || tasks.is_behind || self.agents.has_orphaned_free(pool) {
                continue;
            }
            let first = self.reserving_waiter(pool, now);
            for id in self.in_order(pool, now) {
                let waiter = self.waiters.get(id);
                let reserving = first.filter(|(rank, _)| *rank < waiter.rank(now)).map(|(_, first)| first);
                let members = self.pick(pool, waiter.filter.as_deref(), waiter.members(), reserving);
                let is_ready = members.is_some_and(|members| self.unproved(&members, waiter.since, now).is_empty());
                assert!(!is_ready, "{} waits for a free member", waiter.conn);
            }
        }
    }
}
