//! One request of a connection: parsed, checked and executed.

use super::JobQueue;
use super::sessions::session_of;
use super::state::{Event, Refusal, Reply, State, Step};
use super::stats::Jobs as Stat;
use super::wire::Request;
use super::wire::schedule::is_schedule;
use super::wire::stream::{Cut, Item};
use poolcounter_core::id::ConnId;
use poolcounter_service::contract::{Context, Then};

impl JobQueue {
    /// Reads the next request of a connection. Bytes of incomplete requests count towards the memory limit.
    pub(super) fn cut<'a>(&mut self, conn: ConnId, input: &'a [u8], max_size: u32) -> Cut<'a> {
        let session = session_of(&mut self.sessions, conn);
        if input.is_empty() {
            return Cut { consumed: 0, item: None };
        }
        let cut = session.stream.cut(input, max_size);
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
    pub(super) fn handle(&mut self, conn: ConnId, mut item: Item<'_>, context: &mut Context<'_>) -> Option<Then> {
        if self.refuses(conn, &mut item, context) {
            return None;
        }
        match item {
            Item::Put(..) | Item::PutMany(_) if self.is_store_failing(context.time.now) => {
                self.refuse_put(conn, context);
            }
            Item::Put(put, body) if is_schedule(&put) => {
                self.step(context, |state, step| state.schedule_put(conn, &put, &body, step));
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
                self.send(&Event::new(conn, Reply::Refused(refusal), None), context);
            }
            Item::Request(Request::Quit) => return Some(Then::Close),
            Item::Request(request) => return self.request(conn, request, context),
        }
        None
    }

    /// Serves one request without a body. Returns the next action if the connection's turn ends with it.
    pub(super) fn request(&mut self, conn: ConnId, request: Request<'_>, context: &mut Context<'_>) -> Option<Then> {
        let mut step = |take: &mut dyn FnMut(&mut State, &mut Step<'_, '_>)| self.step(context, take);
        match request {
            Request::Use(name) => step(&mut |state, step| state.use_tube(conn, name, step)),
            Request::Reserve(reserve) => step(&mut |state, step| state.reserve(conn, reserve, step)),
            Request::ReserveJob(id) => step(&mut |state, step| state.reserve_this(conn, id, step)),
            Request::Delete(id) => step(&mut |state, step| state.delete(conn, id, step)),
            Request::Release(id, pri, delay) => step(&mut |state, step| state.release(conn, id, pri, delay, step)),
            Request::Bury(id, pri) => step(&mut |state, step| state.bury(conn, id, pri, step)),
            Request::Touch(id) => step(&mut |state, step| state.touch(conn, id, step)),
            Request::Begin(id) => step(&mut |state, step| state.begin(conn, id, step)),
            Request::Watch(pattern, weight) => step(&mut |state, step| state.watch(conn, pattern, weight, step)),
            Request::Ignore(pattern) => step(&mut |state, step| state.ignore(conn, pattern, step)),
            Request::Kick(bound) => step(&mut |state, step| state.kick(conn, bound, step)),
            Request::KickJob(id) => step(&mut |state, step| state.kick_job(conn, id, step)),
            Request::PauseTube(name, seconds) => step(&mut |state, step| state.pause_tube(conn, name, seconds, step)),
            Request::PauseAll(pattern, seconds) => {
                step(&mut |state, step| state.pause_all(conn, pattern, seconds, step));
            }
            Request::Root(tube, signature, at) => step(&mut |state, step| state.root(conn, tube, signature, at, step)),
            Request::Dropped(tube) => step(&mut |state, step| state.take_dropped(conn, tube, step)),
            Request::Identify(name) => step(&mut |state, step| state.identify(conn, name, step)),
            Request::Limit(of, most, None) => step(&mut |state, step| state.limit(conn, of, most, step)),
            Request::Limit(of, most, Some(per)) => {
                step(&mut |state, step| state.rate(conn, of, (most, per), step));
            }
            Request::Retry(pattern, backoff) => step(&mut |state, step| state.retry(conn, pattern, backoff, step)),
            Request::DeadLetter(pattern, tube) => {
                step(&mut |state, step| state.dead_letter(conn, pattern, tube, step));
            }
            Request::Clear(pattern, which) => step(&mut |state, step| state.clear(conn, pattern, which, step)),
            Request::KickAll(pattern, which) => step(&mut |state, step| state.kick_all(conn, pattern, which, step)),
            Request::Move(what, tube, which) => step(&mut |state, step| state.move_jobs(conn, what, tube, which, step)),
            Request::SetJob(id, change) => step(&mut |state, step| state.set_job(conn, id, change, step)),
            Request::Cancel(what) => step(&mut |state, step| state.cancel(conn, what, step)),
            Request::ScheduleDelete(name) => step(&mut |state, step| state.schedule_delete(conn, name, step)),
            Request::Drain => step(&mut |state, step| state.drain(conn, true, step)),
            Request::Undrain => step(&mut |state, step| state.drain(conn, false, step)),
            other => return self.ask(conn, other, context),
        }
        None
    }
}
