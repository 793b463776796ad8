//! Offers of the free members of a pool to its waiters, in the background: class after class, and then, behind many that
//! may not take, to the first that a search through all lists finds.

use super::waiters::{Demand, Next};
use super::*;

impl State {
    /// Offers the free members of a pool to its waiters again, in the background.
    pub(super) fn reconsider(&mut self, pool: PoolId, step: &mut Step<'_, '_>) {
        match self.background.of_pool(pool).is_offering {
            // The offers that go on come to their end, whatever happens meanwhile.
            true => self.waiters.offer_again(pool),
            false => self.begin(BackgroundTask::Offer(pool), step),
        }
    }

    /// Offers the free members of a pool to one waiter of each class, until the budget is used up, and then to those
    /// behind many that may not take from it. A class whose waiter gets some is served again. Returns whether there are
    /// more.
    pub(super) fn offer_free(&mut self, pool: PoolId, step: &mut Step<'_, '_>) -> bool {
        // This is called again once the free members of lost providers are ended.
        while self.free_count(pool) > 0 && self.queued(pool) > 0 && !self.agents.has_orphaned_free(pool) {
            if !step.timers.spend(background::COST) {
                return true;
            }
            let is_more = match self.waiters.is_deep(pool) {
                true => self.offer_to_next_deep(pool, step),
                false => self.offer_to_next_class(pool, step),
            };
            if !is_more && !self.waiters.begin_deep(pool) && !self.waiters.end_offers(pool) {
                break;
            }
        }
        self.waiters.end_offers(pool);
        for _ in 0..self.waiters.take_started(pool).min(self.free_count(pool)) {
            self.use_start(pool);
        }
        false
    }

    /// Offers free members to the first waiter for any, or to one of the next class. Returns false behind the last class.
    fn offer_to_next_class(&mut self, pool: PoolId, step: &mut Step<'_, '_>) -> bool {
        let any = self.first(pool, Demand::Any, step.now).filter(|_| self.waiters.cursor(pool).is_none());
        if any.is_some_and(|any| self.serve_if_known(any, pool, step)) {
            return true;
        }
        let next = self.waiters.class_after(pool, self.pool(pool).group, self.waiters.cursor(pool));
        let Some((_, class)) = next else { return false };
        let first = self.first_of_class(class, pool, step.now);
        // A class whose waiters get members comes again.
        if !first.is_some_and(|first| self.serve_if_known(first, pool, step)) {
            self.waiters.set_cursor(pool, next);
        }
        true
    }

    /// Hands out a free member to a waiter if it was examined; otherwise a search is wanted.
    fn serve_if_known(&mut self, next: Next, pool: PoolId, step: &mut Step<'_, '_>) -> bool {
        if !next.is_known {
            self.waiters.want_deep(pool);
        }
        next.is_known && self.serve_or_check(next.waiter, pool, None, step)
    }

    /// Looks at the next waiter of a search, and offers free members to the first that can be served once all lists are
    /// searched. Returns false if there is none.
    fn offer_to_next_deep(&mut self, pool: PoolId, step: &mut Step<'_, '_>) -> bool {
        if let Some(id) = self.waiters.next_deep(pool, self.pool(pool).group) {
            let rank = self.waiters.get(id).rank(step.now);
            let is_meant = self.waiters.is_behind(pool, rank) && self.can_take_from(id, pool);
            match is_meant && self.can_be_served(id, rank, pool, step.now) {
                true => self.waiters.note_servable(pool, id, rank),
                false => self.waiters.pass(pool, id),
            }
            return true;
        }
        let Some(found) = self.waiters.found_deep(pool) else { return false };
        if found.is_some_and(|id| self.serve_or_check(id, pool, Some(id), step)) {
            self.waiters.restart_deep(pool);
        }
        true
    }
}
