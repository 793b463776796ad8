//! Comparison of the tables of waiters with each other.

use super::{Turn, Waiters};

impl Waiters {
    /// Compares the queues and counts with the waiters.
    pub fn check(&self) {
        let mut queued = 0;
        for (place, queue) in self.queues.iter() {
            let is_right = |(rank, id): &Turn| (self.get(*id).place, self.get(*id).rank) == (place, *rank);
            assert!(queue.order.iter().all(is_right), "a queue has its own waiters");
            let several = queue.order.iter().filter(|(_, id)| self.get(*id).is_several());
            assert!(several.eq(&queue.several), "waiters for several");
            let wants = queue.order.iter().map(|(_, id)| u64::from(self.get(*id).want));
            assert_eq!(queue.want, wants.clone().sum::<u64>(), "starts that are wanted");
            let wanting = queue.wanting.iter(&self.links).filter(|id| self.get(*id).place == place);
            assert_eq!(wanting.count(), wants.filter(|want| *want > 0).count(), "waiters that want starts");
            queued += queue.order.len();
        }
        assert_eq!(queued, self.waiters.len(), "each waiter is in one queue");
        self.classes.check(&self.waiters);
        for (id, waiter) in self.iter() {
            assert_eq!(self.of_conn(waiter.conn), Some(id), "a waiter is found by its connection");
            assert!(waiter.want <= waiter.most_starts(), "n members need at most n starts");
        }
        let waiting = self.by_conn.iter().filter(|(_, waiter)| waiter.is_some()).count();
        assert_eq!(waiting, self.waiters.len(), "a connection waits once");
    }
}
