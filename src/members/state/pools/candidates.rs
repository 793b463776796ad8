//! Pools of a group in which a start may have become possible, for waiters that cause none.

use super::*;

impl Pools {
    /// Notes that a waiter of a group causes starts in no pool any more: any of its pools may be able to start now.
    pub fn reconsider_group(&mut self, id: GroupId) {
        self.groups[id.index()].is_rescanned = true;
        self.touch_group(id);
    }

    /// Notes that a pool may be able to start members for the waiters of its group.
    pub fn add_candidate(&mut self, id: GroupId, pool: PoolId) {
        self.push_candidate(id, pool);
        self.touch_group(id);
    }

    /// Puts back a candidate of a group whose waiters background work goes on to place.
    pub fn put_back_candidate(&mut self, id: GroupId, pool: PoolId) {
        self.groups[id.index()].is_touched = true;
        self.push_candidate(id, pool);
    }

    /// Puts back a candidate for which there was no time: it comes first the next time.
    pub fn postpone_candidate(&mut self, id: GroupId, pool: PoolId) {
        self.pools[pool.index()].is_overdue = true;
        self.put_back_candidate(id, pool);
    }

    fn push_candidate(&mut self, id: GroupId, pool: PoolId) {
        if !self.candidate_links.is_linked(pool) {
            self.groups[id.index()].candidates.push_back(&mut self.candidate_links, pool);
        }
    }

    fn touch_group(&mut self, id: GroupId) {
        let group = &mut self.groups[id.index()];
        if !group.is_touched {
            group.is_touched = true;
            self.touched_groups.push(id);
        }
    }

    /// Takes a group with candidates.
    pub fn next_touched_group(&mut self) -> Option<GroupId> {
        self.touched_groups.pop()
    }

    pub fn has_candidates(&self, id: GroupId) -> bool {
        let Group { candidates, is_rescanned, .. } = self.group(id);
        *is_rescanned || !candidates.is_empty()
    }

    /// Takes a candidate, with true if it was postponed. Returns None if there are no more: then the next one touches
    /// the group again.
    pub fn next_candidate(&mut self, id: GroupId) -> Option<(PoolId, bool)> {
        let (group, links) = (&mut self.groups[id.index()], &mut self.candidate_links);
        if std::mem::take(&mut group.is_rescanned) {
            let Group { pools, candidates, .. } = group;
            for pool in pools.iter() {
                if !links.is_linked(*pool) {
                    candidates.push_back(links, *pool);
                }
            }
        }
        let next = group.candidates.pop_front(links);
        group.is_touched = next.is_some();
        next.map(|pool| (pool, std::mem::take(&mut self.pools[pool.index()].is_overdue)))
    }
}
