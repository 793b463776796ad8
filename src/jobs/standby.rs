//! Service while another daemon owns the jobs: it sends clients elsewhere. Also the change from standby to owner, and
//! back.

use super::JobQueue;
use super::loading::Loading;
use super::sessions::{Slot, session_of};
use super::state::{Commit, Reply, Step, Timer};
use super::store::page::SLICE_ROWS;
use super::store::{Ownership, PageOrder};
use super::store_driver::ROW_COST;
use log::error;
use poolcounter_core::{ConnId, Id, Span, TimerId};
use poolcounter_protocol::jobs::wire::stream::Item;
use poolcounter_protocol::jobs::wire::{Request, replies};
use poolcounter_service::contract::{Context, Served, Then};

/// Least time between two looks at the lease, whose clock may be slower than the loop's.
const LEAST_WAIT: Span = Span::from_millis(1);

impl JobQueue {
    /// Answers a client that is at the wrong daemon, and ends its connection: another daemon owns the jobs, or they
    /// cannot be read.
    pub(super) fn turn_away(&mut self, conn: ConnId, input: &[u8], context: &mut Context<'_>) -> Served {
        let session = session_of(&mut self.sessions, conn);
        let is_lost = session.is_lost;
        if is_lost && (session.is_torn || !session.unsent.is_empty()) {
            // In the middle of a body, no other reply can be sent.
            return Served { consumed: input.len(), then: Then::Close };
        }
        let max_size = self.state.bounds.max_size;
        let mut consumed = 0;
        while consumed < input.len() {
            let cut = self.cut(conn, &input[consumed..], max_size);
            consumed += cut.consumed;
            let Some(item) = cut.item else {
                if cut.consumed == 0 {
                    break;
                }
                continue;
            };
            match item {
                Item::Request(_, Request::Quit) => {}
                _ => self.reply(conn, Reply::InternalError, context),
            }
            return Served { consumed: input.len(), then: Then::Close };
        }
        Served { consumed, then: if is_lost { Then::Close } else { Then::Read } }
    }

    /// Discards the jobs, because another daemon owns them now: answers waiting clients, and ends all connections.
    pub(super) fn lose_all(&mut self, context: &mut Context<'_>) {
        for index in 0..self.sessions.len() {
            let (conn, session) = (ConnId::from_index(index), &self.sessions[index]);
            if !session.is_open {
                continue;
            }
            if !session.is_lost {
                self.report_lost(conn, context);
            }
            self.end_session(conn, context);
        }
        // The next jobs may be at an earlier commit than the last that a reply has waited for: numbers come again.
        context.release_up_to(u64::MAX);
        self.awaited = Commit(0);
        self.hung_up.clear();
        self.driver.give_up_operations(Commit(u64::MAX), context);
        self.driver.lose();
        let state = self.state.begin_anew(&mut context.timers.typed());
        self.store.discard(Box::new(std::mem::replace(&mut self.state, state)));
    }

    /// Ends all connections once the lease has run out: another daemon may give the jobs out, and commit. The jobs are
    /// kept. If the lease still holds, the next look is when it runs out.
    pub(super) fn look_after_lease(&mut self, context: &mut Context<'_>) {
        self.driver.lease_timer.take().into_iter().for_each(TimerId::fired);
        self.await_end_of_lease(context);
        if self.store.ownership() == Ownership::Expired {
            self.driver.give_up_operations(Commit(u64::MAX), context);
            (0..self.sessions.len()).for_each(|index| self.send_away(ConnId::from_index(index), context));
        }
    }

    /// Arms the timer for the end of the lease, so that it is noticed without other events.
    pub(super) fn await_end_of_lease(&mut self, context: &mut Context<'_>) {
        if self.driver.lease_timer.is_none()
            && let Some(left) = self.store.expires_in()
        {
            let at = context.time.now + left.max(LEAST_WAIT);
            self.driver.lease_timer = Some(context.timers.typed().arm(at, Timer::Lease));
        }
    }

    /// Replies INTERNAL_ERROR to the pending request of a connection, and closes it in its next turn, which releases
    /// its jobs.
    pub(super) fn send_away(&mut self, conn: ConnId, context: &mut Context<'_>) {
        let session = session_of(&mut self.sessions, conn);
        if !session.is_open || std::mem::replace(&mut session.is_lost, true) {
            return;
        }
        self.report_lost(conn, context);
        context.resume(conn);
    }

    /// Replies INTERNAL_ERROR to the pending request of a connection.
    fn report_lost(&mut self, conn: ConnId, context: &mut Context<'_>) {
        let session = &self.sessions[conn.index()];
        let is_owed = self.state.is_waiting(conn) || session.query.is_some() || self.driver.copy == Some(Some(conn));
        // Replies that wait for a commit may contain reserved jobs, which another daemon gives out by now.
        let is_told = context.output.cut_held(conn, replies::write_internal_error);
        if is_owed && !is_told && session.unsent.is_empty() {
            context.output.reply(conn, replies::write_internal_error);
        }
    }

    /// Returns whether another process may go on: all is committed, or waiting for that is useless. A process that
    /// needs all jobs goes on once they are read.
    pub(super) fn is_kept(&self) -> bool {
        let (is_committed, may_be_left) = (self.state.last_uncommitted().is_none(), self.store.may_be_left());
        let is_idle = is_committed && !self.store.is_busy() && self.store.is_sound();
        match self.store.ownership() {
            Ownership::Reads => {
                self.driver.has_settings && self.leaves_jobs() && (is_idle || is_committed && may_be_left)
            }
            _ => is_idle || may_be_left,
        }
    }

    /// Ends all waits for commits if another process may go on without them: clients get an error and no promise.
    pub(super) fn give_up_waiting(&mut self, context: &mut Context<'_>) {
        if !self.store.may_be_left() {
            return;
        }
        context.replace_up_to(u64::MAX, replies::write_internal_error);
        self.driver.let_go(context);
        for (_, conn) in std::mem::take(&mut self.hung_up) {
            self.step(context, |state, step| state.hang_up(conn, step));
        }
    }

    /// Closes a connection in its next turn.
    fn end_session(&mut self, conn: ConnId, context: &mut Context<'_>) {
        let session = session_of(&mut self.sessions, conn);
        self.state.kept_bytes -= session.charged;
        let is_torn = session.is_torn || !session.unsent.is_empty();
        *session = Slot::default();
        (session.is_lost, session.is_torn) = (true, is_torn);
        context.resume(conn);
    }

    /// Takes in the next slice of a page of the store, and starts to serve after the last one.
    pub(super) fn take_slice(&mut self, page: PageOrder, context: &mut Context<'_>) {
        let JobQueue { state, store, driver, watcher, .. } = self;
        let mut events = Vec::new();
        let Context { time, timers, random, conns, .. } = context;
        let (now, timers, peer) = (time.now, &mut timers.typed(), &|conn| conns.peers.peer(conn));
        let mut step = Step { now, timers, random, events: &mut events, peer };
        // Lossless: a constant.
        step.timers.charge(SLICE_ROWS as u32 * ROW_COST);
        let loading = driver.loading.get_or_insert_with(|| Loading::begin(store.place()));
        match store.visit_page(&mut |saved| state.read(saved, &mut step)) {
            Ok(false) => return,
            Ok(true) => {}
            Err(sentence) => return self.lose_damaged(&sentence, context),
        }
        if page.is_last {
            let (is_over, missing) = state.end_reading(&mut step);
            if missing > 0 {
                error!("{missing} jobs that were reserved before the upgrade are not in {}", store.place());
            }
            if !is_over {
                return;
            }
        }
        loading.note(f64::from(page.share) / 100.0);
        driver.page = None;
        if page.is_first {
            // Requests that need no job are answered from now on.
            driver.has_settings = true;
            driver.let_go(context);
        }
        if page.is_last {
            watcher.begin(state, now);
            driver.loading.take().into_iter().for_each(|loading| loading.end(state.len()));
        }
    }

    /// Stops the jobs service: the store cannot be read, and is left as it is.
    pub(super) fn lose_damaged(&mut self, sentence: &str, context: &mut Context<'_>) {
        error!("the jobs in {} cannot be read, and are not served: {sentence}", self.store.place());
        self.lose_all(context);
    }
}
