//! Requests and replies while the store fails, or is slow: their waits, the limits of these, and the answers after
//! them.

use super::{HeldUntil, LOOK, Unseen};
use crate::JobQueue;
use crate::sessions::{Slot, session_of};
use crate::state::{Commit, JobId, Reply, State};
use crate::store::Ownership;
use poolcounter_core::{ConnId, Id, Span, Time, TimerId};
use poolcounter_protocol::jobs::commands;
use poolcounter_protocol::jobs::wire::replies;
use poolcounter_protocol::jobs::wire::stream::Item;
use poolcounter_service::contract::Context;

impl JobQueue {
    /// Ends the wait of replies that have waited too long for a failing store.
    pub(crate) fn look_after_store(&mut self, context: &mut Context<'_>) {
        self.driver.timer.take().into_iter().for_each(TimerId::fired);
        let now = context.time.now;
        let timeout = self.settings.store_timeout;
        if !self.is_stuck(now) || timeout == Span::FOREVER {
            return self.driver.marks.clear();
        }
        if self.is_store_failing(now) || self.driver.held_back.iter().any(|(_, conn)| self.is_overdue(*conn, now)) {
            // Their puts are refused now, and requests that have waited too long are answered.
            self.driver.let_go(context);
        }
        self.give_up_copy(context);
        self.step(context, |state, step| state.give_up_sweeps(timeout, step));
        let last = self.state.last_uncommitted().unwrap_or(self.state.last_committed());
        if self.driver.marks.back().is_none_or(|(mark, _)| *mark < last) {
            self.driver.marks.push_back((last, now));
            self.state.split_batch();
        }
        if matches!(self.store.ownership(), Ownership::GoesOn | Ownership::Lapsed) {
            // Another daemon may own the jobs by now, which is known within a second or two.
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

    /// Returns whether the next request of a connection has waited for `timeout`, while the store fails or is slow.
    fn is_overdue(&self, conn: ConnId, now: Time) -> bool {
        let since = self.sessions.get(conn.index()).and_then(|session| session.held_since);
        since.is_some_and(|since| now.since(since) >= self.settings.store_timeout) && self.is_stuck(now)
    }

    /// Returns whether a request is answered with an error and not executed: it would change something, and has waited
    /// for too long before it could be read.
    pub(crate) fn is_given_up(&self, conn: ConnId, may_change: bool, item: &Item<'_>, now: Time) -> bool {
        let would_change = match item {
            Item::Request(..) => may_change,
            Item::Fail(..) => true,
            // These have answers of their own.
            Item::Put(..) | Item::PutMany(_) | Item::Refused(_) => false,
        };
        would_change && self.is_overdue(conn, now)
    }

    /// Returns whether the store fails, or a commit takes so long that it counts as failing.
    pub(crate) fn is_store_failing(&self, now: Time) -> bool {
        let takes = self.driver.under_way.map_or(Span::ZERO, |(_, since)| now.since(since));
        self.store.is_failing() || takes > self.settings.store_timeout + LOOK
    }

    /// Returns whether [`JobQueue::hold_back`] may hold a connection back: always with a store.
    pub(crate) fn may_hold_back(&self) -> bool {
        let is_ready = self.state.keeps_no_changes() && self.store.ownership() == Ownership::Owns;
        !is_ready || self.driver.is_settling || self.state.is_crowded()
    }

    /// Holds a connection back: during an upgrade, if its request needs jobs which are not read yet, if it would change
    /// something while too much waits for its commit, if it is about jobs behind a put that is not committed, or if it
    /// would go through tubes while too many commands do whose clients have gone. Returns whether it does.
    pub(crate) fn hold_back(&mut self, conn: ConnId, input: &[u8], now: Time) -> bool {
        let reads = self.store.ownership() == Ownership::Reads && self.needs_jobs(conn, input);
        if reads || self.driver.is_settling && !input.is_empty() {
            self.driver.held_back.push((HeldUntil::Room, conn));
            return true;
        }
        let is_backed_up = self.state.is_backed_up();
        let done = self.state.last_committed();
        let session = session_of(&mut self.sessions, conn);
        let is_between = session.stream.is_between();
        let is_put = !is_between || input.starts_with(b"put");
        let put = Some(session.put).filter(|put| *put > done && !is_put && commands::needs_jobs(input));
        let is_crowded = is_between && self.state.is_crowded() && commands::goes_through_tubes(input);
        if input.is_empty() || !is_backed_up && !is_crowded && put.is_none() {
            session.begun().into_iter().for_each(|session| session.held_since = None);
            return false;
        }
        if put.is_none() && is_between && !commands::may_change(input) {
            return false;
        }
        // A put changes nothing while the store fails, and a request that has waited too long is not executed.
        if is_put && self.is_store_failing(now) || self.is_overdue(conn, now) {
            return false;
        }
        session_of(&mut self.sessions, conn).held_since.get_or_insert(now);
        let until = match put {
            Some(commit) => HeldUntil::Committed(commit),
            None if is_backed_up => HeldUntil::Room,
            None => HeldUntil::Uncrowded,
        };
        self.driver.held_back.push((until, conn));
        true
    }

    /// Returns whether the next request of a connection cannot be answered before all jobs are read. A request about a
    /// job that it holds can be.
    fn needs_jobs(&mut self, conn: ConnId, input: &[u8]) -> bool {
        let is_between = session_of(&mut self.sessions, conn).stream.is_between();
        let is_own = || commands::held_job(input).is_some_and(|id| self.state.is_holder(conn, JobId(id)));
        let needs_none = is_between && self.driver.has_settings && (!commands::needs_jobs(input) || is_own());
        !input.is_empty() && !needs_none
    }

    /// Answers all puts that are not committed, as the store has no room for them, and begins to remove their jobs.
    pub(super) fn refuse_pending(&mut self, context: &mut Context<'_>) {
        let state = &self.state;
        let is_pending = |_, about| about != 0 && state.is_pending(JobId(about));
        let write = |out: &mut Vec<u8>| replies::write(out, &Reply::OutOfMemory, b"", 0);
        context.reword(is_pending, true, write);
        for session in self.sessions.iter_mut().filter_map(Slot::begun) {
            session.reword(is_pending, write);
            session.put = Commit::default();
        }
        self.driver.let_go(context);
        self.take_back_some(context);
    }

    /// Removes some of the jobs whose puts were refused.
    pub(super) fn take_back_some(&mut self, context: &mut Context<'_>) {
        let are_more = self.step(context, State::take_back_some);
        self.driver.unseen = are_more.then_some(Unseen::TakeBack);
    }
}
