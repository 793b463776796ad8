//! One request of a connection: parsed, checked and executed.

use super::JobQueue;
use super::commands;
use super::sessions::session_of;
use super::state::{Body, Refusal, Reply, Reserve, State, Step};
use super::stats::Jobs as Stat;
use super::wire::Request;
use super::wire::schedule::is_schedule;
use super::wire::stream::{Cut, Item, Stream, Usual, usual};
use poolcounter_core::ConnId;
use poolcounter_service::contract::{Context, Effect, Then};

impl JobQueue {
    /// Serves the request at the front if it is usual, and returns its length. The connection must be plain.
    #[inline]
    pub(super) fn serve_usual(
        &mut self,
        conn: ConnId,
        input: &[u8],
        is_first: bool,
        context: &mut Context<'_>,
    ) -> Option<usize> {
        let (request, len) = usual(input, self.state.bounds.max_size)?;
        match request {
            Usual::Put(put, body) => {
                let body = Body::Own(body.into());
                self.step_in_turn(is_first, context, |state, step| state.put(conn, &put, body, step));
            }
            Usual::Reserve(timeout) => {
                let reserve = Reserve { timeout: Some(timeout), many: None };
                self.step_in_turn(is_first, context, |state, step| state.reserve(conn, reserve, step));
            }
            Usual::Delete(id) => self.step_in_turn(is_first, context, |state, step| state.delete(conn, id, step)),
        }
        Some(len)
    }

    /// Serves the request at the front. Returns the consumed bytes, and the next action if the connection's turn ends.
    pub(super) fn serve_any(
        &mut self,
        conn: ConnId,
        input: &[u8],
        may_hold: bool,
        context: &mut Context<'_>,
    ) -> (usize, Option<Then>) {
        let was_held = may_hold && session_of(&mut self.sessions, conn).held_since.is_some();
        let may_change = was_held && commands::may_change(input);
        let Cut { consumed, item } = self.cut(conn, input, self.state.bounds.max_size);
        let then = match item {
            Some(item) if was_held && self.is_given_up(conn, may_change, &item, context.time.now) => {
                self.reply(conn, Reply::InternalError, context);
                None
            }
            Some(item) => self.handle(conn, item, context),
            None if consumed == 0 => Some(Then::Read),
            None => None,
        };
        (consumed, then)
    }

    /// Reads the next request of a connection. Bytes of incomplete requests count towards the memory limit.
    pub(super) fn cut<'a>(&mut self, conn: ConnId, input: &'a [u8], max_size: u32) -> Cut<'a> {
        if input.is_empty() {
            return Cut { consumed: 0, item: None };
        }
        let session = session_of(&mut self.sessions, conn);
        let mut fresh = Stream::default();
        let stream = session.begun().map_or(&mut fresh, |session| &mut session.stream);
        let cut = stream.cut(input, max_size);
        if !fresh.is_between() {
            session.stream = fresh;
        }
        if cut.item.is_none() && cut.consumed > 0 || session.charged > 0 {
            session.note_kept(&mut self.state.kept_bytes);
            if session.stream.kept_bytes() > 0 && !self.state.has_memory_for(0) {
                session.stream.give_up();
                session.note_kept(&mut self.state.kept_bytes);
            }
        }
        cut
    }

    /// Serves one item. Returns the next action if the connection's turn ends with it.
    fn handle(&mut self, conn: ConnId, mut item: Item<'_>, context: &mut Context<'_>) -> Option<Then> {
        if self.refuses(conn, &mut item, context) {
            return None;
        }
        let act = self.act_of(conn, &item, context);
        match item {
            Item::Put(..) | Item::PutMany(_) if self.is_store_failing(context.time.now) => {
                self.reply(conn, Reply::OutOfMemory, context);
            }
            Item::Put(put, body) if is_schedule(&put) => {
                self.manage(act, context, |state, step| state.schedule_put(conn, &put, &body, step));
            }
            Item::Put(put, body) => self.step(context, |state, step| state.put(conn, &put, body, step)),
            Item::PutMany(entries) => self.step(context, |state, step| state.put_many(conn, entries, step)),
            Item::Fail(failure, text) => {
                self.step(context, |state, step| state.fail(conn, failure, &text, step));
            }
            Item::Refused(refusal) => {
                if let Refusal::JobTooBig | Refusal::ExpectedCrlf | Refusal::OutOfMemory = refusal {
                    self.state.count(Stat::Put);
                }
                self.reply(conn, Reply::Refused(refusal), context);
            }
            Item::Request(_, Request::Quit) => return Some(Then::Close),
            Item::Request(command, request) if command.only_asks() => return self.ask(conn, request, context),
            Item::Request(_, request) => self.manage(act, context, |state, step| state.serve(conn, request, step)),
        }
        None
    }

    /// Takes one step of the state machine, and notes the act of an operator, if it is one and succeeds.
    fn manage(
        &mut self,
        act: Option<String>,
        context: &mut Context<'_>,
        take: impl FnOnce(&mut State, &mut Step<'_, '_>),
    ) {
        let is_done = self.step(context, |state, step| {
            take(state, step);
            !step.events.iter().any(|event| changes_nothing(&event.reply))
        });
        context.effects.extend(act.filter(|_| is_done).map(Effect::Acted));
    }
}

/// Returns whether the request with this reply has changed nothing.
fn changes_nothing(reply: &Reply) -> bool {
    use Reply::{Cancelled, CancelledBy, Cleared, InternalError, Kicked, Moved, NotAllowed, NotFound, OutOfMemory};
    matches!(reply, Reply::Refused(_) | NotFound | NotAllowed | OutOfMemory | InternalError | CancelledBy(_))
        || matches!(reply, Kicked(0) | Moved(0) | Cancelled(0) | Cleared(0))
}
