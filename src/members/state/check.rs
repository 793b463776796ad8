//! The proof that the tables of the members agree with each other. It changes nothing.

use super::waiters::WaitSource;
use super::*;

impl State {
    /// Compares every table with every other.
    ///
    /// # Panics
    ///
    /// When they contradict each other.
    pub fn check(&self) {
        assert!(self.unsettled.is_empty(), "a step settles what it has touched");
        let named = self.pools.iter().filter(|(_, pool)| !pool.is_removed).count();
        assert_eq!(self.names.len(), named, "each pool has one name");
        assert_eq!(self.order.len(), named, "each pool stands in the order of names once");
        for (index, pool) in &self.pools {
            self.check_pool(PoolId::from_index(index), pool);
        }
        let of_pools: usize = self.pools.iter().map(|(_, pool)| pool.members.len()).sum();
        assert_eq!(of_pools, self.members.len(), "each member is of one pool");
        let with_attributes = self.attributes.iter().enumerate().filter(|(_, attributes)| attributes.is_some());
        assert!(
            with_attributes.map(|(index, _)| index).all(|index| self.members.contains(index)),
            "attributes are a member's"
        );
        assert!(self.holds.keys().all(|id| self.members.contains(id.index())), "a hold to come is of a member");
        self.check_owners();
        self.check_leases();
        self.check_waiters();
        self.check_starts();
        self.check_clients();
        self.check_background();
    }

    fn check_pool(&self, id: PoolId, pool: &Pool) {
        if !pool.is_removed {
            assert_eq!(self.find_pool(&pool.name), Ok(id), "a pool is found by its name");
            assert_eq!(self.order.get(&pool.name), Some(&id), "a pool is found in the order of names");
        }
        assert!(!pool.is_unsettled && !pool.is_to_reconsider && !pool.is_to_grow, "a step settles what it has touched");
        assert!(!pool.is_leaving || pool.slots() > 0, "a pool that leaves has something to wait for");
        assert!(
            !pool.is_leaving || pool.is_removed || pool.is_retiring || pool.free.is_empty() && pool.queue.len == 0,
            "a pool that leaves hands out nothing"
        );
        let mut counts = [0; PhaseKind::COUNT];
        let mut fixed = 0;
        for (name, id) in &pool.members {
            let member = self.member(*id);
            assert_eq!(member.name, *name, "a member is found by its name");
            counts[member.phase.kind() as usize] += 1;
            fixed += u32::from(member.owner == MemberOwner::Fixed);
            self.check_phase(*id, member);
        }
        assert_eq!((counts, fixed), (pool.counts, pool.fixed), "the counts of a pool's members");
        assert!(pool.slots() <= pool.most_slots, "members, starts and stops never exceed max, unless it was lowered");
        assert!(pool.owed <= pool.settings.max, "no more is owed than there may be");
        self.check_queues(id, pool);
        self.check_demand(id, pool);
    }

    fn check_phase(&self, id: MemberId, member: &Member) {
        let kind = member.phase.kind();
        let is_idle = matches!(kind, PhaseKind::Free | PhaseKind::Checking);
        let is_queued = is_idle || matches!(kind, PhaseKind::Unclean | PhaseKind::Cleaning);
        assert_eq!(self.links_free.is_linked(id), kind == PhaseKind::Free, "the free stand among the free");
        assert_eq!(self.links_phase.is_linked(id), is_queued, "a member stands in the queue of its stage");
        let is_orphan = self.is_orphan(id);
        let is_pending = match member.owner {
            MemberOwner::Fixed => false,
            MemberOwner::Agent(agent) => self.agents[agent.index()].is_pending || self.pool(member.pool).is_removed,
        };
        assert!(!is_orphan || is_pending || !is_idle && kind != PhaseKind::Stopping, "an orphan is kept out");
        assert!(kind != PhaseKind::Orphaned || is_orphan, "only orphans are orphaned");
        assert!(
            kind != PhaseKind::Quarantined || member.owner == MemberOwner::Fixed,
            "only fixed members are in quarantine"
        );
        assert!(!member.is_leaving || kind == PhaseKind::InUse, "what leaves is in use until then");
        let is_watched = self.end_of_life(id).is_some();
        let is_retiming = self.pool(member.pool).is_retiming;
        assert!(is_watched || is_retiming || member.life.is_none(), "a lifetime that is not limited has no timer");
        if let MemberPhase::InUse(lease) = member.phase {
            assert_eq!(self.leases[lease.index()].member, id, "a lease names its member");
        }
    }

    fn check_queues(&self, id: PoolId, pool: &Pool) {
        let kind = |id: &MemberId| self.member(*id).phase.kind();
        let queues = [&pool.idle, &pool.unclean, &pool.cleaning].into_iter();
        let mut queued = queues.flat_map(|queue| queue.iter(&self.links_phase)).chain(pool.free.iter(&self.links_free));
        assert!(queued.all(|member| self.member(member).pool == id), "a queue holds members of its pool");
        let free: Vec<MemberId> = pool.free.iter(&self.links_free).collect();
        let idle = pool.idle.iter(&self.links_phase);
        assert!(
            idle.filter(|id| kind(id) == PhaseKind::Free).eq(free.iter().copied()),
            "the free in the order of the idle"
        );
        assert_eq!(pool.idle.len(), pool.idle_count(), "the free and the checked are idle");
        let is_sorted = pool.idle.iter(&self.links_phase).map(|id| self.member(id).since).is_sorted();
        assert!(is_sorted, "the longest idle comes first");
        assert!(pool.unclean.iter(&self.links_phase).all(|id| kind(&id) == PhaseKind::Unclean));
        assert!(pool.cleaning.iter(&self.links_phase).all(|id| kind(&id) == PhaseKind::Cleaning));
        assert_eq!(pool.unclean.len(), pool.count(PhaseKind::Unclean));
        assert_eq!(pool.cleaning.len(), pool.count(PhaseKind::Cleaning));
        let is_cleaned = !pool.is_leaving && !pool.is_behind;
        let is_stuck = is_cleaned && !pool.agents.is_empty() && pool.cleaning.len() < pool.most_cleaned();
        assert!(!is_stuck || pool.unclean.is_empty(), "who can be asked to clean is asked");
        for member in &pool.members {
            assert_eq!(self.member(*member.1).pool, id, "a member is of one pool");
        }
        let unclean = || pool.unclean.iter(&self.links_phase).map(|id| self.member(id).since);
        assert!(unclean().is_sorted(), "what is back for longest is cleaned first");
        let is_timed = pool.agents.is_empty() && !pool.is_removed && !pool.is_behind;
        let until = unclean().next().filter(|_| is_timed).map(|since| since + pool.settings.clean_timeout);
        assert_eq!(until, pool.unclean_until.as_ref().map(|(until, _)| *until), "time runs while nobody can be asked");
    }

    /// What is wanted is under way, as far as there is room.
    fn check_demand(&self, id: PoolId, pool: &Pool) {
        let is_possible = pool.backoff.is_none() && pool.slots() < u64::from(pool.settings.max) && self.has_room();
        let has_capacity = pool.agents.iter().any(|agent| {
            let agent = &self.agents[agent.index()];
            let capacity = agent.capacity.unwrap_or(pool.settings.max);
            agent.provides && agent.members.len() + agent.starts < capacity && agent.starts < MOST_STARTS
        });
        assert!(!(is_possible && has_capacity && self.wanted(id) > 0), "what is wanted is started");
        assert!(pool.no_wait == 0 || pool.count(PhaseKind::Checking) > 0, "who waits for a check has one to wait for");
        let is_alone = |id: &MemberId| self.member(*id).owner != MemberOwner::Fixed;
        let too_many = pool.is_above_max() && pool.free.iter(&self.links_free).any(|id| is_alone(&id));
        assert!(!too_many || pool.is_behind, "what is too many is stopped when it is free");
    }

    fn check_owners(&self) {
        let mut owned = 0;
        for (index, agent) in &self.agents {
            let id = AgentId::from_index(index);
            self.check_provider_state(id, agent);
            for member in agent.members.iter(&self.links_owner) {
                assert_eq!(self.member(member).owner, MemberOwner::Agent(id), "a provider's members are its own");
                assert_eq!(self.member(member).pool, agent.pool);
                owned += 1;
            }
            let asks = |member: &Member| matches!(member.phase, MemberPhase::Cleaning { agent, .. } if agent == id);
            let cleaning = self.members.iter().filter(|(_, member)| asks(member)).count();
            assert_eq!(agent.cleaning as usize, cleaning, "the count of members that are cleaned");
        }
        let fixed: usize = self.pools.iter().map(|(_, pool)| pool.fixed as usize).sum();
        assert_eq!(owned + fixed, self.members.len(), "each member has one owner");
    }

    fn check_provider_state(&self, id: AgentId, agent: &Agent) {
        let pool = self.pool(agent.pool);
        let is_listed = pool.agents.contains(&id);
        assert!(agent.provides || agent.cleans, "a provider or cleaner does something");
        assert_eq!(is_listed, agent.is_listed(), "and stands in its pool as long as it should");
        match agent.standing {
            ProviderState::Serves(conn) => {
                assert_eq!(self.agent_of(conn), Some((id, agent.pool)), "it is found by its connection");
                assert!(!pool.is_removed && !agent.is_pending, "it serves a pool that is there");
            }
            ProviderState::Dismissed(conn) => {
                let work = self.clients[conn.index()].work.as_ref().expect("it was a provider");
                assert!(
                    pool.is_removed && work.dismissed.contains(&id),
                    "it was a provider of a pool that was removed"
                );
            }
            ProviderState::Grace(_) => assert!(!agent.members.is_empty() || agent.is_pending, "a grace is for members"),
            ProviderState::Lost => assert!(agent.is_pending || pool.is_removed, "what is lost goes on"),
        }
    }

    /// What is to go on does, once each, and there is a moment for it.
    fn check_background(&self) {
        assert_eq!(self.background.is_empty(), self.background_timer.is_none(), "chores go on some time");
        let count =
            |is_it: &dyn Fn(&BackgroundTask) -> bool| self.background.iter().filter(|chore| is_it(chore)).count();
        for (index, pool) in &self.pools {
            let id = PoolId::from_index(index);
            let counts = [
                count(&|chore| matches!(chore, BackgroundTask::Remove(of) if *of == id)),
                count(&|chore| matches!(chore, BackgroundTask::Retire(of, _) if *of == id)),
                count(&|chore| matches!(chore, BackgroundTask::Retime(of, _) if *of == id)),
                count(&|chore| matches!(chore, BackgroundTask::Settle(of) if *of == id)),
            ];
            let flags = [pool.is_removed, pool.is_retiring, pool.is_retiming, pool.is_behind];
            assert_eq!(counts, flags.map(usize::from), "what is to be done in a pool");
            let of_pool = self.agents.iter().filter(|(_, agent)| agent.pool == id);
            let pending = of_pool.filter(|(_, agent)| agent.is_pending).count();
            assert_eq!(pool.orphaned_free as usize, pending, "the count of lost providers with members");
        }
        let agents = self.agents.iter().filter(|(_, agent)| agent.is_pending).count();
        assert_eq!(
            count(&|chore| matches!(chore, BackgroundTask::Agent(_))),
            agents,
            "each lost provider's members go on"
        );
        let left = self.holdings.iter().filter(|(_, holding)| holding.conn.is_none()).count();
        assert_eq!(
            count(&|chore| matches!(chore, BackgroundTask::Holding(_))),
            left,
            "what was left behind comes back"
        );
    }

    fn check_leases(&self) {
        assert_eq!(self.numbers.len(), self.leases.len(), "each lease has one number");
        let in_use: u32 = self.pools.iter().map(|(_, pool)| pool.count(PhaseKind::InUse)).sum();
        assert_eq!(in_use as usize, self.leases.len(), "each lease names one member, and no member has two");
        for (index, lease) in &self.leases {
            let id = LeaseId::from_index(index);
            assert!(lease.number < self.next_lease, "a number is never used again");
            assert_eq!(self.find_lease(lease.number), Some(id), "a lease is found by its number");
            let is_in_use = matches!(self.member(lease.member).phase, MemberPhase::InUse(of) if of == id);
            assert!(is_in_use, "what is leased is in use");
            assert!(
                lease.holding.is_some() || lease.token.is_some(),
                "without a token, a lease ends with its connection"
            );
            if let Some(token) = &lease.token {
                assert_eq!(self.find_token(&token.token), Some(id), "a lease is found by its token");
            }
        }
        let tokens = self.leases.iter().filter(|(_, lease)| lease.token.is_some()).count();
        assert_eq!(self.tokens.len(), tokens, "each token is of a lease");
    }

    fn check_waiters(&self) {
        let mut queued = 0;
        let most = |waiter: &Waiter| {
            if waiter.filter.as_ref().is_some_and(|filter| filter.member.is_some()) { 0 } else { waiter.members() }
        };
        let asks_for_too_many = |waiter: &Waiter| waiter.want > most(waiter);
        assert!(!self.waiters.iter().any(|(_, waiter)| asks_for_too_many(waiter)), "n waiters cause at most n starts");
        for (index, pool) in &self.pools {
            let id = PoolId::from_index(index);
            let mine = || self.waiters.iter().map(|(_, waiter)| waiter).filter(|waiter| waiter.starts_in() == Some(id));
            assert_eq!(pool.need, mine().map(|waiter| u64::from(waiter.want)).sum::<u64>(), "what waiters need");
            assert_eq!(pool.no_wait as usize, mine().filter(|waiter| waiter.no_wait).count(), "who waits for a check");
            let own = self.own_waiters(id);
            assert!(
                own.iter().all(|waiter| self.waiter(*waiter).place == WaitSource::Pool(id)),
                "each in its own queue"
            );
            assert_eq!(own.len(), pool.queue.len as usize, "the length of a queue");
            queued += own.len();
            if let Some(group) = pool.group {
                assert!(self.groups[group.index()].pools.contains(&id), "a pool stands in its group");
            }
        }
        for (index, group) in &self.groups {
            let id = GroupId::from_index(index);
            assert!(!group.pools.is_empty(), "a group has pools");
            assert!(group.pools.iter().all(|pool| self.pool(*pool).group == Some(id)), "a group's pools know it");
            let waiting = self.group_waiters(id);
            assert_eq!(waiting.len(), group.queue.len as usize, "the length of a queue");
            queued += waiting.len();
        }
        assert_eq!(queued, self.waiters.len(), "each waiter stands in one queue");
        assert_eq!(self.group_names.len(), self.groups.len(), "each group has one name");
    }

    fn check_starts(&self) {
        let mut under_way = 0;
        for (index, start) in &self.starts {
            let work = self.clients[start.conn.index()].work.as_ref().expect("a start was given to a provider");
            assert_eq!(
                work.starts.get(&start.number),
                Some(&StartId::from_index(index)),
                "a start is found by its number"
            );
            if let Progress::UnderWay { agent, .. } = start.progress {
                assert_eq!(self.agents[agent.index()].conn(), Some(start.conn), "a start is its provider's");
                under_way += 1;
            }
        }
        assert_eq!(self.starts_under_way, under_way, "the count of starts under way");
        let of_pools: u32 = self.pools.iter().map(|(_, pool)| pool.starts).sum();
        let of_agents: u32 = self.agents.iter().map(|(_, agent)| agent.starts).sum();
        assert_eq!((of_pools as usize, of_agents as usize), (under_way, under_way), "and those of pools and providers");
    }

    fn check_clients(&self) {
        let (mut holdings, mut starts) = (0, 0);
        for (index, client) in self.clients.iter().enumerate() {
            let conn = ConnId::from_index(index);
            if let Some(holding) = client.holding {
                assert_eq!(self.holdings[holding.index()].conn, Some(conn), "what a connection holds is its own");
                holdings += 1;
            }
            assert!(client.waiter.is_none_or(|id| self.waiter(id).conn == conn), "a connection's wait is its own");
            if let Some(work) = &client.work {
                let is_late = |id: &&StartId| matches!(self.starts[id.index()].progress, Progress::Late);
                assert_eq!(work.late_starts, work.starts.values().filter(is_late).count(), "the count of late starts");
                starts += work.starts.len();
            }
        }
        assert_eq!(starts, self.starts.len(), "what connections have is all there is");
        let held = self.holdings.iter().filter(|(_, holding)| holding.conn.is_some()).count();
        assert_eq!(holdings, held, "what is held is found by its connection");
        self.check_holdings();
        self.check_rules();
        let waiting = self.clients.iter().filter(|client| client.waiter.is_some()).count();
        assert_eq!(waiting, self.waiters.len(), "a connection waits once at most");
    }

    fn check_holdings(&self) {
        let mut leases = 0;
        for (index, holding) in &self.holdings {
            let id = HoldingId::from_index(index);
            let mut held: Vec<(PoolId, u32)> = Vec::new();
            for lease in holding.leases.iter(&self.links_lease).map(|lease| &self.leases[lease.index()]) {
                assert_eq!(lease.holding, Some(id), "what is held together is held so");
                let pool = self.member(lease.member).pool;
                match held.iter_mut().find(|(of, _)| *of == pool) {
                    Some((_, count)) => *count += 1,
                    None => held.push((pool, 1)),
                }
                leases += 1;
            }
            let mut counted = holding.held.clone();
            counted.sort_unstable();
            held.sort_unstable();
            assert_eq!(counted, held, "how many a connection holds");
        }
        let attached = self.leases.iter().filter(|(_, lease)| lease.holding.is_some()).count();
        assert_eq!(leases, attached, "each lease is held once");
    }

    /// Looks whether everybody who waits has to.
    ///
    /// # Panics
    ///
    /// When a member is free that a waiter could have.
    pub fn check_waits(&self, now: Time) {
        // Where a check is under way, somebody waits for it.
        let is_settled = |pool: &Pool| pool.count(PhaseKind::Checking) == 0 && pool.orphaned_free == 0;
        let unchecked = self.pools.iter().filter(|(_, pool)| is_settled(pool));
        for (index, _) in unchecked {
            let pool = PoolId::from_index(index);
            let first = self.reserving_waiter(pool, now);
            for id in self.in_order(pool, now) {
                let waiter = self.waiter(id);
                let reserving_waiter =
                    first.filter(|(rank, _)| *rank < waiter.rank(now)).map(|(_, reserving_waiter)| reserving_waiter);
                let members = self.pick(pool, waiter.filter.as_deref(), waiter.members(), reserving_waiter);
                let is_ready = members.is_some_and(|members| self.unproved(&members, waiter.since, now).is_empty());
                assert!(!is_ready, "{} waits for what is free", waiter.conn);
            }
        }
    }

    /// Whether a connection is mentioned anywhere.
    pub fn knows(&self, conn: ConnId) -> bool {
        let client = self.clients.get(conn.index());
        client.is_some_and(|client| {
            let holds = client.holding.is_some_and(|holding| !self.holdings[holding.index()].leases.is_empty());
            holds || client.waiter.is_some() || client.work.is_some() || client.name.is_some()
        })
    }
}
