//! Connections that wait for a job. The connection that has waited longest is served first.

use super::reserve::NextJob;
use crate::state::ids::{FeedId, SetId};
use crate::state::{FEW, SLICE, State, Step, Task};
use poolcounter_core::{Id, meter};

/// Number of buckets and feeds that one request examines after a limit has opened. The rest follows in slices.
const FREED_AT_ONCE: u32 = 64;

impl State {
    /// Gives jobs to waiting connections, the connection that has waited longest first, as long as there are any.
    pub(in crate::state) fn serve_waiting(&mut self, step: &mut Step<'_, '_>) {
        if self.has_news() {
            self.serve_more(&mut SLICE.clone(), FREED_AT_ONCE, step);
        }
    }

    /// Serves waiting connections in a slice of background work.
    pub(in crate::state) fn go_on_serving(&mut self, step: &mut Step<'_, '_>) {
        let whole = step.timers.budget().min(SLICE);
        let mut left = whole;
        self.serve_more(&mut left, whole, step);
        step.timers.spend(whole - left);
    }

    /// Serves waiting connections within the budget, and examines at most `freed` buckets and feeds that limits held
    /// back.
    fn serve_more(&mut self, budget: &mut u32, mut freed: u32, step: &mut Step<'_, '_>) {
        if self.is_shut {
            return;
        }
        let mut may_go_on = true;
        while may_go_on && *budget > 0 {
            self.free(&mut freed);
            may_go_on = match (self.feeds.fresh.first(), self.sets.awake.first()) {
                (Some(feed), _) => self.serve_feed(feed, budget, step),
                (None, Some(set)) => self.serve_awake(set, budget, step),
                (None, None) => self.wake_more(budget),
            };
        }
        if self.has_news() {
            self.go_on(Task::Serve, step);
        }
    }

    /// Examines the buckets and feeds of opened limits.
    fn free(&mut self, budget: &mut u32) {
        while *budget > 0
            && let Some(id) = self.limits.opened.first().copied()
        {
            let gate = self.limits.gates.get(id.index()).filter(|gate| !gate.is_closed());
            let parked = gate.and_then(|gate| gate.parked.first().copied());
            let is_open = gate.is_some();
            *budget -= 1;
            meter::visit();
            if let Some(bucket) = parked {
                self.limits.gates[id.index()].parked.remove(&bucket);
                self.unpark(bucket.2);
            } else if is_open && let Some(feed) = self.limits.next_freed(id) {
                self.feeds.freshen_if_there(feed);
            } else {
                self.limits.opened.remove(&id);
            }
        }
    }

    /// Serves the connection that has waited longest for a feed, if the feed has a job. Returns false if the rest must
    /// wait.
    fn serve_feed(&mut self, id: FeedId, budget: &mut u32, step: &mut Step<'_, '_>) -> bool {
        let lanes = self.feeds[id].lanes.len() / FEW;
        meter::visit_many(lanes);
        // Lossless: a feed has fewer.
        *budget = budget.saturating_sub(lanes as u32).max(1);
        let Some((ticket, set)) = self.feeds[id].waiters.first().copied().filter(|_| self.first_of(id).is_some())
        else {
            self.feeds.fresh.remove(id);
            self.hold(id);
            return true;
        };
        *budget -= 1;
        meter::visit();
        let conn = self.sets[set].waiting.front();
        let first = conn.and_then(|conn| self.conns[conn].wait).map(|wait| wait.ticket);
        if first != Some(ticket) {
            self.move_waiter(id, (ticket, set), first);
            return true;
        }
        let Some(conn) = conn.filter(|_| self.feeds.is_first(id, ticket)) else { return true };
        match self.next_job(set, budget, step) {
            NextJob::Job(turn, key) => {
                let wait = self.stop_waiting(conn).expect("it stood among those who wait");
                self.give(conn, set, (turn, key), wait.many, step);
            }
            NextJob::Nothing => {
                self.feeds.fresh.remove(id);
                self.hold(id);
            }
            NextJob::Later => return false,
        }
        true
    }

    /// Moves a set to its position among the waiters of a feed, or removes it.
    fn move_waiter(&mut self, id: FeedId, old: (u64, SetId), ticket: Option<u64>) {
        let set = old.1;
        let waiters = &mut self.feeds[id].waiters;
        waiters.remove(&old);
        waiters.extend(ticket.map(|ticket| (ticket, set)));
        self.sets[set].set_ticket(id, ticket.unwrap_or(0));
    }

    /// Serves the waiting connections of a set whose search was unfinished. Returns false if the rest must wait.
    fn serve_awake(&mut self, set: SetId, budget: &mut u32, step: &mut Step<'_, '_>) -> bool {
        *budget -= 1;
        meter::visit();
        let Some(conn) = self.sets[set].waiting.front() else {
            self.sets.awake.remove(set);
            return true;
        };
        match self.next_job(set, budget, step) {
            NextJob::Job(turn, key) => {
                let wait = self.stop_waiting(conn).expect("it is the first of those who wait");
                self.give(conn, set, (turn, key), wait.many, step);
                let next = self.sets[set].waiting.front().and_then(|conn| self.conns[conn].wait);
                self.sets.awake.remove(set);
                next.into_iter().for_each(|wait| self.sets.awake.set(set, wait.ticket));
            }
            NextJob::Nothing => {
                self.sets.awake.remove(set);
                let ticket = self.conns[conn].wait.expect("it waits").ticket;
                self.register(set, ticket);
                *budget = budget.saturating_sub(self.sets[set].turns.len() as u32);
            }
            NextJob::Later => return false,
        }
        true
    }

    /// Wakes the next set with waiting connections, while all are to be woken. Returns false if there is none.
    fn wake_more(&mut self, budget: &mut u32) -> bool {
        let Some(place) = self.sets.waking else { return false };
        *budget -= 1;
        meter::visit();
        let (set, has_more) = self.sets.at(place);
        self.sets.waking = has_more.then_some(place + 1);
        if let Some(set) = set
            && let Some(conn) = self.sets[set].waiting.front()
            && let Some(wait) = self.conns[conn].wait
        {
            self.sets.awake.set(set, wait.ticket);
        }
        true
    }
}
