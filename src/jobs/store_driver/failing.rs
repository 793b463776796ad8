//! Requests and replies while the store fails, or is slow: who waits, for how long, and what is answered then.

use super::LOOK;
use crate::JobQueue;
use crate::sessions::session_of;
use crate::state::{Commit, JobId};
use crate::store::Ownership;
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::TimerId;
use poolcounter_protocol::jobs::commands::{self, Sees};
use poolcounter_protocol::jobs::wire::replies;
use poolcounter_protocol::jobs::wire::stream::Item;
use poolcounter_service::contract::Context;

impl JobQueue {
    /// Ends the wait of replies to which the store has not come for too long, while it fails.
    pub(crate) fn look_after_store(&mut self, context: &mut Context<'_>) {
        self.driver.timer.take().into_iter().for_each(TimerId::fired);
        let now = context.time.now;
        let timeout = self.driver.timeout;
        if !self.is_stuck(now) {
            return self.driver.marks.clear();
        }
        if self.is_store_failing(now) || self.driver.held_back.iter().any(|(_, conn)| self.is_overdue(*conn, now)) {
            // Their puts are refused now, and what has waited too long is answered.
            self.driver.let_go(context);
        }
        self.step(context, |state, step| state.give_up_sweeps(timeout, step));
        let last = self.state.last_uncommitted().unwrap_or(self.state.last_committed());
        if self.driver.marks.back().is_none_or(|(mark, _)| *mark < last) {
            self.driver.marks.push_back((last, now));
            self.state.split_batch();
        }
        if matches!(self.store.ownership(), Ownership::GoesOn | Ownership::Lapsed) {
            // Whether another has the jobs by now is known within a second or two.
            return;
        }
        while let Some((mark, until)) = self.driver.marks.front().copied()
            && now.since(until) >= timeout
        {
            self.driver.marks.pop_front();
            if mark <= self.state.last_committed() {
                continue;
            }
            if self.driver.late.begin("late") {
                log::warn!("the jobs are not committed: replies that wait for that are INTERNAL_ERROR");
            }
            self.driver.give_up_operations(mark, context);
            context.replace_up_to(mark.0, replies::write_internal_error);
        }
    }

    /// Returns whether the store fails, or is slow with the batch that is under way.
    fn is_stuck(&self, now: Time) -> bool {
        self.store.is_failing() || self.driver.under_way.is_some_and(|(_, since)| now.since(since) >= LOOK)
    }

    /// Returns whether the next request of a connection has waited for as long as replies wait for a commit that fails.
    fn is_overdue(&self, conn: ConnId, now: Time) -> bool {
        let since = self.sessions.get(conn.index()).and_then(|session| session.held_since);
        since.is_some_and(|since| now.since(since) >= self.driver.timeout) && self.is_stuck(now)
    }

    /// Returns whether a request is answered without being done: it would change something, and has waited for too long, though it
    /// could not even be read.
    pub(crate) fn is_given_up(&self, conn: ConnId, may_change: bool, item: &Item<'_>, now: Time) -> bool {
        let would_change = match item {
            Item::Request(_) => may_change,
            Item::Fail(..) => true,
            // These have answers of their own.
            Item::Put(..) | Item::PutMany(_) | Item::Refused(_) => false,
        };
        would_change && self.is_overdue(conn, now)
    }

    /// Returns whether a commit takes so long that the store counts as failing, or it says so itself.
    pub(crate) fn is_store_failing(&self, now: Time) -> bool {
        let takes = self.driver.under_way.map_or(Span::ZERO, |(_, since)| now.since(since));
        self.store.is_failing() || takes > self.driver.timeout + LOOK
    }

    /// Holds a connection back while an upgrade waits, and one that needs jobs which are not read yet, that is about to change something
    /// while too much waits for its commit, or that may see a job of its own which is not committed. Returns whether it does.
    pub(crate) fn hold_back(&mut self, conn: ConnId, input: &[u8], now: Time) -> bool {
        let reads = self.store.ownership() == Ownership::Reads && self.needs_jobs(conn, input);
        if reads || self.driver.is_settling && !input.is_empty() {
            self.driver.held_back.push((None, conn));
            return true;
        }
        let is_backed_up = self.state.is_backed_up();
        let put = self.own_put_seen(conn, input);
        let session = session_of(&mut self.sessions, conn);
        if input.is_empty() || !is_backed_up && put.is_none() {
            session.held_since = None;
            return false;
        }
        let is_between = session.stream.is_between();
        let is_put = !is_between || input.starts_with(b"put");
        if put.is_none() && is_between && !commands::may_change(input) {
            return false;
        }
        // A put changes nothing while the store fails, and what has waited too long is not done.
        if is_put && self.is_store_failing(now) || self.is_overdue(conn, now) {
            return false;
        }
        session_of(&mut self.sessions, conn).held_since.get_or_insert(now);
        self.driver.held_back.push((put, conn));
        true
    }

    /// Returns whether the next request of a connection cannot be answered before all jobs are read. What it does with a job that it
    /// holds can be.
    fn needs_jobs(&mut self, conn: ConnId, input: &[u8]) -> bool {
        let is_between = session_of(&mut self.sessions, conn).stream.is_between();
        let is_own = || commands::held_job(input).is_some_and(|id| self.state.is_holder(conn, JobId(id)));
        let needs_none = is_between && self.driver.has_settings && (!commands::needs_jobs(input) || is_own());
        !input.is_empty() && !needs_none
    }

    /// Returns the commit without which the next request of a connection would not see a job that the connection has put.
    fn own_put_seen(&mut self, conn: ConnId, input: &[u8]) -> Option<Commit> {
        let session = session_of(&mut self.sessions, conn);
        let put = session.put;
        if put <= self.state.last_committed() || !session.stream.is_between() {
            return None;
        }
        let is_seen = match commands::sees(input) {
            (Sees::No, _) => false,
            (Sees::Named, id) => id.is_some_and(|id| self.state.is_pending(JobId(id))),
            (Sees::Any, _) => true,
        };
        is_seen.then_some(put)
    }
}
