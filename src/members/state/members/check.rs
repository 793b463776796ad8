//! Comparison of the tables of members with each other.

use super::{Beside, Member, MemberId, MemberTable, Phase, PoolId, PoolMembers};
use poolcounter_core::List;
use std::cmp::Reverse;
use std::sync::Arc;

impl MemberTable {
    /// Compares the queues, counts and indexes with the members.
    pub fn check(&self) {
        for (pool, of_pool) in self.by_pool.iter() {
            self.check_names(pool, of_pool);
            self.check_queues(pool, of_pool);
            let free = if of_pool.group.is_some() { of_pool.count(Phase::Free) } else { 0 };
            assert_eq!(of_pool.free_in_group, free, "a group knows the free members of its pools");
        }
        for (group, order) in self.by_group.iter() {
            let of = |pool: PoolId| (self.in_pool(pool).group, self.in_pool(pool).free_in_group);
            assert!(
                order.iter().all(|(free, Reverse(pool))| of(*pool) == (Some(group), *free)),
                "pools by their free members"
            );
        }
        let of_pools: usize = self.by_pool.iter().map(|(_, of_pool)| of_pool.len()).sum();
        assert_eq!(of_pools, self.members.len(), "each member is of one pool");
        self.attributes.check(|id| (self.get(id).pool, self.get(id).phase));
        for (id, beside @ Beside { reason, history, .. }) in &self.beside {
            assert!(!beside.is_empty(), "a member without facts beside it has no place for them");
            let Member { phase, owner, .. } = self.get(*id);
            let is_out = Phase::REASONED.contains(phase);
            assert!(reason.is_none() || is_out, "a reason is of a member that is kept out or awaited");
            assert!(history.is_empty() || owner.is_none(), "the holders of fixed members are kept");
        }
        self.check_agents();
    }

    fn check_names(&self, pool: PoolId, of_pool: &PoolMembers) {
        let mut counts = [0; Phase::COUNT];
        for id in &of_pool.by_name {
            let member = self.get(*id);
            let is_found = self.find_named(pool, &member.name) == Some(*id);
            assert!(is_found && member.pool == pool, "a member is found by its name in its pool");
            let kind = member.phase;
            counts[kind as usize] += 1;
            let is_alike = self.is_fixed(pool) == Some(member.owner.is_none());
            assert!(is_alike, "a pool has fixed members or members of providers");
            assert!(kind.may_be(member.timer.is_some()), "a phase has a timer if it ends by itself");
            let is_idle = matches!(kind, Phase::Free | Phase::Checking);
            let is_queued = is_idle || matches!(kind, Phase::Unclean | Phase::Cleaning);
            assert_eq!(self.free_links.is_linked(*id), kind == Phase::Free, "free members are in the free list");
            assert_eq!(self.phase_links.is_linked(*id), is_queued, "a member is in the queue of its phase");
            assert!(kind != Phase::Quarantined || member.owner.is_none(), "quarantine is for fixed ones");
            assert!(!member.is_leaving || kind == Phase::InUse, "a member that is to leave is in use until then");
        }
        assert_eq!(counts, of_pool.counts, "the counts of a pool");
    }

    fn check_queues(&self, pool: PoolId, of_pool: &PoolMembers) {
        let of_idle = [Phase::Free, Phase::Checking];
        for (queue, phases) in [
            (&of_pool.idle, &of_idle[..]),
            (&of_pool.unclean, &[Phase::Unclean]),
            (&of_pool.cleaning, &[Phase::Cleaning]),
        ] {
            let is_its = |id: MemberId| phases.contains(&self.get(id).phase) && self.get(id).pool == pool;
            assert!(queue.iter(&self.phase_links).all(is_its), "a queue has members in its phases");
            let count = phases.iter().map(|phase| of_pool.count(*phase)).sum::<u32>();
            assert_eq!(queue.len(), count, "a queue has all members in its phases");
        }
        let is_sorted = |queue: &List<MemberId>| queue.iter(&self.phase_links).map(|id| self.get(id).since).is_sorted();
        assert!(is_sorted(&of_pool.idle), "the longest idle comes first");
        assert!(is_sorted(&of_pool.unclean), "the longest returned is cleaned first");
        let free = of_pool.free.iter(&self.free_links);
        assert!(
            free.eq(of_pool.idle.iter(&self.phase_links).filter(|id| self.get(*id).phase == Phase::Free)),
            "the free list has the order of the idle"
        );
        let late = of_pool.cleaning.iter(&self.phase_links).filter(|id| self.get(*id).timer.is_none()).count();
        assert_eq!(of_pool.late as usize, late, "cleanings that take too long");
    }

    fn check_agents(&self) {
        let mut owned = 0;
        for (id, of_agent) in self.by_agent.iter() {
            for member in of_agent.iter(&self.agent_links) {
                assert_eq!(self.get(member).owner, Some(id), "a provider has its own members");
                owned += 1;
            }
        }
        let is_found = |(name, id): (&Arc<[u8]>, &MemberId)| {
            let member = self.get(*id);
            member.name == *name && member.owner.is_none()
        };
        assert!(self.fixed.iter().all(is_found), "a fixed member is found by its name");
        assert_eq!(owned + self.fixed.len(), self.members.len(), "each member has one owner");
    }
}
