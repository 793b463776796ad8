//! Comparison of the tables of waiters with each other.

use super::*;

impl Waiters {
    /// Compares the queues and counts with the waiters.
    pub fn check(&self) {
        let mut queued = 0;
        let groups = self.by_group.iter().map(|(group, of_group)| (None, Some(group), &of_group.queue));
        let pools = self.by_pool.iter().map(|(pool, of_pool)| (Some(pool), None, &of_pool.queue));
        for (pool, group, queue) in pools.chain(groups) {
            let is_here = |id: WaiterId| match self.get(id).source {
                WaitSource::Pool(of) => Some(of) == pool,
                WaitSource::Group(of, _) => Some(of) == group,
            };
            assert!(self.all_in(queue).all(is_here), "a queue has its own waiters");
            assert_eq!(self.all_in(queue).count(), queue.len as usize, "the length of a queue");
            queued += queue.len as usize;
        }
        assert_eq!(queued, self.waiters.len(), "each waiter is in one queue");
        for (pool, of_pool) in self.by_pool.iter() {
            let here = || self.iter().map(|(_, waiter)| waiter).filter(|waiter| waiter.starts_in() == Some(pool));
            assert_eq!(of_pool.need, here().map(|waiter| u64::from(waiter.want)).sum::<u64>(), "starts needed");
            let needy = of_pool.needy.iter(&self.need_links).filter(|id| self.get(*id).want > 0);
            assert_eq!(needy.count(), here().filter(|waiter| waiter.want > 0).count(), "waiters that need starts");
            let placed = of_pool.placed.waiters.iter(&self.place_links);
            let is_here = |id: &WaiterId| matches!(self.get(*id).source, WaitSource::Group(_, of) if of == Some(pool));
            let wants: u64 = placed.filter(is_here).map(|id| u64::from(self.get(id).want)).sum();
            let is_placed = |waiter: &&Waiter| matches!(waiter.place(), Place::Group(_)) && !waiter.no_wait;
            assert_eq!(
                wants,
                here().filter(is_placed).map(|waiter| u64::from(waiter.want)).sum::<u64>(),
                "placed here"
            );
            assert_eq!(of_pool.placed.need, wants, "starts that waiters for groups need");
            let content = of_pool.placed.content.iter(&self.place_links).filter(is_here);
            let is_content = |waiter: &&Waiter| is_placed(waiter) && waiter.want == 0;
            assert_eq!(content.count(), here().filter(is_content).count(), "waiters for groups that need no starts");
            let no_wait = of_pool.no_wait.iter(&self.check_links).filter(|id| self.get(*id).no_wait);
            assert_eq!(no_wait.count(), here().filter(|waiter| waiter.no_wait).count(), "waiters for a check");
            let is_several = |id: WaiterId| self.find(id).is_some_and(|waiter| waiter.demand() == Demand::Several);
            assert!(of_pool.reserving.is_none_or(is_several), "members are reserved for a waiter for several");
        }
        for (group, of_group) in self.by_group.iter() {
            let is_unplaced = |waiter: &Waiter| waiter.source == WaitSource::Group(group, None) && waiter.want > 0;
            let expected = self.iter().filter(|(_, waiter)| is_unplaced(waiter) && !waiter.no_wait).count();
            let is_searched = |passed: WaiterId| self.find(passed).is_some_and(is_unplaced);
            assert!(of_group.searches.values().all(|search| is_searched(search.passed)), "a search is among them");
            assert_eq!(of_group.unplaced.iter(&self.place_links).count(), expected, "waiters in no pool of a group");
        }
        self.classes.check(&self.waiters);
        for (id, waiter) in self.iter() {
            assert_eq!(self.of_conn(waiter.conn), Some(id), "a waiter is found by its connection");
            let is_named = waiter.filter.as_ref().is_some_and(|filter| filter.member.is_some());
            assert!(waiter.want <= if is_named { 0 } else { waiter.members() }, "n members need at most n starts");
        }
        let waiting = self.by_conn.iter().filter(|(_, waiter)| waiter.is_some()).count();
        assert_eq!(waiting, self.waiters.len(), "a connection waits once");
    }
}
