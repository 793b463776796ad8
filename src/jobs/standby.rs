//! What the service does while another daemon has its jobs: tells clients to go elsewhere; and how it comes to have them, and
//! loses them.

use super::JobQueue;
use super::loading::Loading;
use super::replies::ReplyBody;
use super::sessions::{Session, session_of};
use super::state::{Commit, Step, Timer};
use super::store::{Ownership, PageOrder};
use log::error;
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::time::Span;
use poolcounter_core::wheel::TimerId;
use poolcounter_protocol::jobs::wire::stream::Item;
use poolcounter_protocol::jobs::wire::{Request, replies};
use poolcounter_service::contract::{Context, Served, Then};

/// Least time between two looks at the lease, whose clock may be slower than the loop's.
const LEAST_WAIT: Span = Span::from_millis(1);

impl JobQueue {
    /// Answers a client that is at the wrong daemon, and ends its connection: another has the jobs. Only what the daemon itself
    /// is asked about has an answer.
    pub(super) fn turn_away(&mut self, conn: ConnId, input: &[u8], context: &mut Context<'_>) -> Served {
        let Session { is_lost, unsent, .. } = session_of(&mut self.sessions, conn);
        let is_lost = *is_lost;
        if is_lost && !unsent.is_empty() {
            // Nothing can be said in the middle of a body.
            return Served { consumed: input.len(), then: Then::Close };
        }
        let max_size = self.state.bounds().max_size;
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
                Item::Request(Request::Quit) => {}
                Item::Request(Request::Stats) if !is_lost => {
                    self.ask(conn, Request::Stats, context);
                    return Served { consumed, then: Then::Serve };
                }
                _ => self.say(conn, ReplyBody::None, None, context, |_, bytes, _| replies::write_internal_error(bytes)),
            }
            return Served { consumed: input.len(), then: Then::Close };
        }
        Served { consumed, then: if is_lost { Then::Close } else { Then::Read } }
    }

    /// Another daemon has the jobs now: forgets them, tells those who wait, and ends all connections.
    pub(super) fn lose_all(&mut self, context: &mut Context<'_>) {
        for index in 0..self.sessions.len() {
            let (conn, session) = (ConnId::from_index(index), &self.sessions[index]);
            if !session.is_open {
                continue;
            }
            if !session.is_lost {
                self.tell_lost(conn, context);
            }
            self.end_session(conn, context);
        }
        // What is there may be at an earlier commit than the last that a reply has waited for: numbers come again.
        context.release_up_to(u64::MAX);
        self.awaited = Commit(0);
        self.hung_up.clear();
        self.driver.give_up_operations(Commit(u64::MAX), context);
        self.driver.lose();
        let state = self.state.begin_anew(&mut context.timers.typed());
        self.store.discard(Box::new(std::mem::replace(&mut self.state, state)));
    }

    /// Ends all connections once the lease has run out: another daemon may give the jobs out, and commit. What is there is kept. If
    /// the lease holds, looks again when it has run out.
    pub(super) fn look_after_lease(&mut self, context: &mut Context<'_>) {
        self.driver.lease_timer.take().into_iter().for_each(TimerId::fired);
        self.await_end_of_lease(context);
        if self.store.ownership() == Ownership::Expired {
            self.driver.give_up_operations(Commit(u64::MAX), context);
            (0..self.sessions.len()).for_each(|index| self.send_away(ConnId::from_index(index), context));
        }
    }

    /// Sees to it that the end of the lease is noticed when nothing else happens.
    pub(super) fn await_end_of_lease(&mut self, context: &mut Context<'_>) {
        if self.driver.lease_timer.is_none()
            && let Some(left) = self.store.expires_in()
        {
            let at = context.time.now + left.max(LEAST_WAIT);
            self.driver.lease_timer = Some(context.timers.typed().arm(at, Timer::Lease));
        }
    }

    /// Answers what a connection waits for with INTERNAL_ERROR, and has it closed in its next turn, which gives back what it holds.
    pub(super) fn send_away(&mut self, conn: ConnId, context: &mut Context<'_>) {
        let session = session_of(&mut self.sessions, conn);
        if !session.is_open || std::mem::replace(&mut session.is_lost, true) {
            return;
        }
        self.tell_lost(conn, context);
        context.resume(conn);
    }

    /// Answers what a connection waits for with INTERNAL_ERROR.
    fn tell_lost(&mut self, conn: ConnId, context: &mut Context<'_>) {
        let session = &self.sessions[conn.index()];
        let is_owed = self.state.is_waiting(conn) || session.query.is_some() || self.driver.is_awaiting(conn);
        // Behind what waits for a commit there may be jobs that were given out and that another gives out by now.
        let is_told = context.output.cut_held(conn, replies::write_internal_error);
        if is_owed && !is_told && session.unsent.is_empty() {
            context.output.reply(conn, replies::write_internal_error);
        }
    }

    /// Returns whether another process may go on: all is committed, or it is of no use to wait for that. One that must have all jobs
    /// goes on when they are read.
    pub(super) fn is_kept(&self) -> bool {
        let (is_committed, may_be_left) = (self.state.last_uncommitted().is_none(), self.store.may_be_left());
        let is_idle = is_committed && !self.store.is_busy() && self.store.is_sound();
        match self.store.ownership() {
            Ownership::Reads => {
                self.driver.has_settings && self.left_in().is_some() && (is_idle || is_committed && may_be_left)
            }
            _ => is_idle || may_be_left,
        }
    }

    /// Ends all waits for commits if another process may go on that knows nothing of them: nobody is promised anything.
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

    /// Has a connection closed in its next turn.
    fn end_session(&mut self, conn: ConnId, context: &mut Context<'_>) {
        let session = session_of(&mut self.sessions, conn);
        self.state.kept_bytes -= session.charged;
        *session = Session::default();
        session.is_lost = true;
        context.resume(conn);
    }

    /// Takes in the next slice of a page of what there is in the store, and serves once it was the last.
    pub(super) fn take_slice(&mut self, page: PageOrder, context: &mut Context<'_>) {
        let JobQueue { state, store, driver, .. } = self;
        let mut events = Vec::new();
        let Context { time, timers, random, .. } = context;
        let mut step = Step { now: time.now, timers: &mut timers.typed(), random, events: &mut events };
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
            driver.loading.take().into_iter().for_each(|loading| loading.end(state.len()));
        }
    }

    /// Closes the jobs: what the store has cannot be read, and is left as it is.
    pub(super) fn lose_damaged(&mut self, sentence: &str, context: &mut Context<'_>) {
        error!("the jobs in {} cannot be read, and are not served: {sentence}", self.store.place());
        self.lose_all(context);
    }
}
