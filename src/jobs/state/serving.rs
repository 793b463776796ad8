//! Requests, and connections that wait for a job. Each request without a body that changes something has a function.

pub(super) mod manage;
mod requests;
mod reserve;
mod waiters;

use super::{Limit, LimitOf, Reply, SettingKind, State, Step, TubeName, Value};
use poolcounter_core::ConnId;
use poolcounter_protocol::jobs::wire::Request;

impl State {
    /// Serves a request whose command does not only ask.
    pub fn serve(&mut self, conn: ConnId, request: Request<'_>, step: &mut Step<'_, '_>) {
        match request {
            Request::Use(name) => self.use_tube(conn, name, step),
            Request::Reserve(reserve) => self.reserve(conn, reserve, step),
            Request::ReserveJob(id) => self.reserve_this(conn, id, step),
            Request::Delete(id) => self.delete(conn, id, step),
            Request::Release(id, pri, delay) => self.release(conn, id, pri, delay, step),
            Request::Bury(id, pri) => self.bury(conn, id, pri, step),
            Request::Touch(id) => self.touch(conn, id, step),
            Request::Begin(id) => self.begin(conn, id, step),
            Request::Watch(pattern, weight) => self.watch(conn, pattern, weight, step),
            Request::Ignore(pattern) => self.ignore(conn, pattern, step),
            Request::Kick(bound) => self.kick(conn, bound, step),
            Request::KickJob(id) => self.kick_job(conn, id, step),
            Request::PauseTube(name, seconds) => self.pause_tube(conn, name, seconds, step),
            Request::PauseAll(pattern, seconds) => self.pause(conn, pattern, (seconds, false), step),
            Request::Root(tube, signature, at) => self.root(conn, tube, signature, at, step),
            Request::Dropped(tube) => self.take_dropped(conn, tube, step),
            Request::Identify(name) => self.identify(conn, name, step),
            // Reserved jobs stay so.
            Request::Limit(LimitOf::Tubes(pattern), limit) => self.limit(conn, pattern.bytes(), limit, step),
            Request::Limit(LimitOf::Group(name), limit) => self.limit(conn, name, limit, step),
            Request::Retry(pattern, backoff) => {
                let value = Some(Value::Retry(backoff));
                self.set(conn, SettingKind::Retry, pattern.bytes(), value, Reply::Retry, step);
            }
            // Without a tube, jobs are buried again after their last attempt.
            Request::DeadLetter(pattern, tube) => {
                let name: Box<[u8]> = tube.map_or(&b""[..], TubeName::bytes).into();
                let value = tube.map(|_| Value::Text(name.clone()));
                self.set(conn, SettingKind::DeadLetter, pattern.bytes(), value, Reply::DeadLetter(name), step);
            }
            Request::Clear(pattern, which) => self.clear(conn, pattern, which, step),
            Request::KickAll(pattern, which) => self.kick_all(conn, pattern, which, step),
            Request::Move(what, tube, which) => self.move_jobs(conn, what, tube, which, step),
            Request::SetJob(id, change) => self.set_job(conn, id, change, step),
            Request::Cancel(what) => self.cancel(conn, what, step),
            Request::ScheduleDelete(name) => self.schedule_delete(conn, name, step),
            Request::Drain => self.drain(conn, true, step),
            Request::Undrain => self.drain(conn, false, step),
            other => unreachable!("{other:?} only asks"),
        }
    }

    fn limit(&mut self, conn: ConnId, of: &[u8], limit: Limit, step: &mut Step<'_, '_>) {
        self.set(conn, SettingKind::of_limit(limit), of, Some(Value::Limit(limit)), Reply::Limit(limit.most), step);
    }
}
