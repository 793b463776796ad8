//! The requests that only ask, and what is answered from more than the state.

use super::JobQueue;
use super::process::processor_time;
use super::sessions::{Query, session_of};
use super::state::queries::SummaryBy;
use super::state::{Event, JobId, Peek, Reply, TubeName};
use super::stats::Jobs as Stat;
use super::telling::{Body, body_of};
use super::wire::yaml::{self, ServerStats};
use super::wire::{Request, replies};
use crate::id::{ConnId, Id};
use crate::service::{Context, Then};
use crate::time::Time;

/// How many tubes are looked at for one answer; then others are served.
const TUBES_AT_ONCE: usize = 1024;

/// What clients take for the version of a beanstalkd: it looks like `N.M`.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

impl JobQueue {
    /// Answers a request that changes nothing. Returns what to do next if the connection's turn ends with it: where every tube or
    /// job is looked at, others are served before the next request.
    pub(super) fn ask(&mut self, conn: ConnId, request: Request<'_>, context: &mut Context<'_>) -> Option<Then> {
        match request {
            Request::Peek(id) => {
                let found = self.state.peek(id);
                self.tell_found(conn, found, context);
            }
            Request::PeekFirst(which) => self.tell_first(conn, which, context),
            Request::StatsJob(id) => self.tell_job(conn, id, context),
            Request::StatsTube(name) => self.tell_tube(conn, name, context),
            Request::ListTubeUsed => {
                self.state.count(Stat::ListTubeUsed);
                self.tell(&Event { conn, reply: Reply::Using, after: None }, context);
            }
            Request::ListTubesWatched => {
                self.state.count(Stat::ListTubesWatched);
                let mut text = yaml::begin();
                yaml::write_names(&mut text, self.state.watches(conn).iter().map(|watch| &*watch.pattern));
                self.tell_text(conn, text, context);
            }
            Request::Extensions => {
                let mut text = yaml::begin();
                yaml::write_extensions(&mut text);
                self.tell_text(conn, text, context);
            }
            Request::StoreCopy(path) => {
                if self.begin_copy(conn, path) {
                    return Some(Then::Wait);
                }
                self.tell_nothing(conn, context);
            }
            other => {
                self.ask_all(conn, other, context);
                return Some(Then::Serve);
            }
        }
        None
    }

    /// Answers a request for which every tube, job or connection is looked at.
    fn ask_all(&mut self, conn: ConnId, request: Request<'_>, context: &mut Context<'_>) {
        let now = context.now;
        let mut text = yaml::begin();
        match request {
            Request::Stats => {
                self.state.count(Stat::Stats);
                let server = self.server_stats(context);
                yaml::write_stats(&mut text, &self.figures(now), &server);
            }
            Request::ListTubes => {
                self.state.count(Stat::ListTubes);
                return self.begin_query(conn, false, context);
            }
            Request::Summary(SummaryBy::Tube) => return self.begin_query(conn, true, context),
            Request::ListJobs(tube, which, limit, after) => {
                let Some(ids) = self.state.list(tube, which, limit, after) else {
                    return self.tell_nothing(conn, context);
                };
                let jobs = ids.into_iter().filter_map(|id| self.state.job_stats(id, now));
                jobs.for_each(|job| yaml::write_listed(&mut text, &job));
            }
            Request::Summary(by) => {
                for (name, summary) in self.state.summary(by, now) {
                    yaml::write_summary(&mut text, &name, &summary, by == SummaryBy::Runner, now);
                }
            }
            other => unreachable!("{other:?} is served before"),
        }
        self.tell_text(conn, text, context);
    }

    /// Begins to tell of all tubes. What others change meanwhile is told as it is when its tube has its turn.
    fn begin_query(&mut self, conn: ConnId, is_summary: bool, context: &mut Context<'_>) {
        session_of(&mut self.sessions, conn).query = Some(Query { is_summary, next: 0, text: yaml::begin() });
        self.go_on_with_query(conn, context);
    }

    /// Looks at some more tubes for what a connection has asked about all of them, and answers when these were the last.
    pub(super) fn go_on_with_query(&mut self, conn: ConnId, context: &mut Context<'_>) {
        let session = session_of(&mut self.sessions, conn);
        let Some(mut query) = session.query.take() else { return };
        let rest = if query.is_summary {
            let (summaries, rest) = self.state.summary_of_tubes(query.next, TUBES_AT_ONCE, context.now);
            for (name, summary) in &summaries {
                yaml::write_summary(&mut query.text, name, summary, false, context.now);
            }
            rest
        } else {
            let (names, rest) = self.state.tubes_from(query.next, TUBES_AT_ONCE);
            yaml::write_names(&mut query.text, names);
            rest
        };
        match rest {
            Some(next) => session.query = Some(Query { next, ..query }),
            None => self.tell_text(conn, query.text, context),
        }
    }

    /// Answers what is asked about all tubes, to the end.
    pub(super) fn finish_queries(&mut self, context: &mut Context<'_>) {
        for index in 0..self.sessions.len() {
            while self.sessions[index].query.is_some() {
                self.go_on_with_query(ConnId::from_index(index), context);
            }
        }
    }

    fn tell_first(&mut self, conn: ConnId, which: Peek, context: &mut Context<'_>) {
        let found = self.state.peek_first(conn, which);
        self.tell_found(conn, found, context);
    }

    fn tell_found(&mut self, conn: ConnId, found: Option<JobId>, context: &mut Context<'_>) {
        let Some(id) = found else { return self.tell_nothing(conn, context) };
        self.say(conn, Body::Job(id), None, context, |state, bytes| {
            replies::write_found(bytes, id, body_of(state, id).len());
        });
    }

    fn tell_job(&mut self, conn: ConnId, id: JobId, context: &mut Context<'_>) {
        self.state.count(Stat::StatsJob);
        let Some(job) = self.state.job_stats(id, context.now) else { return self.tell_nothing(conn, context) };
        let mut text = yaml::begin();
        yaml::write_job(&mut text, &job);
        self.tell_text(conn, text, context);
    }

    fn tell_tube(&mut self, conn: ConnId, name: TubeName<'_>, context: &mut Context<'_>) {
        self.state.count(Stat::StatsTube);
        let Some(tube) = self.state.tube_stats(name, context.now) else { return self.tell_nothing(conn, context) };
        let mut text = yaml::begin();
        yaml::write_tube(&mut text, &tube);
        self.tell_text(conn, text, context);
    }

    fn tell_text(&mut self, conn: ConnId, text: Vec<u8>, context: &mut Context<'_>) {
        let len = text.len();
        self.say(conn, Body::Text(text), None, context, |_, bytes| replies::write_ok(bytes, len));
    }

    fn tell_nothing(&mut self, conn: ConnId, context: &mut Context<'_>) {
        self.tell(&Event { conn, reply: Reply::NotFound, after: None }, context);
    }

    fn server_stats(&mut self, context: &mut Context<'_>) -> ServerStats {
        let (producers, workers) = self.state.producers_and_workers();
        let name = *self.name.get_or_insert_with(|| u64::from_be_bytes(context.random.bytes()));
        ServerStats {
            max_job_size: self.state.bounds().max_size,
            connections: [context.traffic.open, producers as u64, workers as u64, context.traffic.opened],
            pid: std::process::id(),
            version: VERSION.into(),
            rusage: processor_time(),
            uptime: context.now.since(Time::START).as_micros() / 1_000_000,
            draining: self.state.is_draining(),
            id: format!("{name:016x}"),
            hostname: self.machine.hostname.clone(),
            os: self.machine.os.clone(),
            platform: self.machine.platform.clone(),
        }
    }
}
