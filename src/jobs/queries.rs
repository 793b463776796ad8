//! Requests that change nothing, and answers that need more than the state.

use super::JobQueue;
use super::process::processor_time;
use super::replies::ReplyBody;
use super::sessions::{Query, Question, session_of};
use super::state::queries::Summary;
use super::state::{JobId, Listing, Pattern, Reply, State, SumBy, Watchers};
use super::stats::Jobs as Stat;
use super::wire::yaml::{self, ServerStats};
use poolcounter_core::{ConnId, Id, Time};
use poolcounter_protocol::jobs::request::SummaryBy;
use poolcounter_protocol::jobs::wire::{Request, replies};
use poolcounter_service::contract::{Context, Then};
use std::collections::BTreeMap;

/// Number of tubes, sums or connections that one slice of an answer examines; then other connections are served.
const LOOKED_AT_ONCE: usize = 1024;
/// Number of jobs that one slice of a list examines.
const JOBS_AT_ONCE: usize = 2048;

/// Version in the form `N.M` that clients of a beanstalkd expect.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

impl JobQueue {
    /// Answers a request that changes nothing. Returns the next action if the connection's turn ends with it: after a
    /// request that examines every tube or job, other connections are served before the next request.
    pub(super) fn ask(&mut self, conn: ConnId, request: Request<'_>, context: &mut Context<'_>) -> Option<Then> {
        match request {
            Request::Peek(id) => {
                let found = self.state.peek(id);
                self.reply_found(conn, found, context);
            }
            Request::PeekFirst(which) => {
                let found = self.state.peek_first(conn, which);
                self.reply_found(conn, found, context);
            }
            Request::StatsJob(id) => self.reply_job(conn, id, context),
            Request::StatsTube(name) => {
                self.state.count(Stat::StatsTube);
                self.begin_query(conn, Question::Tube(Watchers::new(name)), context);
                return session_of(&mut self.sessions, conn).query.is_some().then_some(Then::Serve);
            }
            Request::ListTubeUsed => {
                self.state.count(Stat::ListTubeUsed);
                self.reply(conn, Reply::Using, context);
            }
            Request::ListTubesWatched => {
                self.state.count(Stat::ListTubesWatched);
                let mut text = yaml::begin();
                yaml::write_names(&mut text, self.state.watches_in_order(conn).map(|watch| &*watch.pattern));
                self.reply_text(conn, text, context);
            }
            Request::Extensions => {
                let mut text = yaml::begin();
                yaml::write_extensions(&mut text);
                self.reply_text(conn, text, context);
            }
            Request::StoreCopy(name) => return self.begin_copy(conn, name, context),
            Request::Stats => {
                self.state.count(Stat::Stats);
                let server = self.server_stats(context);
                let mut text = yaml::begin();
                yaml::write_stats(&mut text, &self.figures(context.time.now), &server);
                self.reply_text(conn, text, context);
                return Some(Then::Serve);
            }
            Request::ListTubes => {
                self.state.count(Stat::ListTubes);
                return self.begin_query(conn, Question::Tubes, context);
            }
            Request::Summary(by) => {
                let question = match by {
                    SummaryBy::Wiki => Question::SumSummary(SumBy::FirstPart),
                    SummaryBy::Type => Question::SumSummary(SumBy::LastPart),
                    SummaryBy::Tube => Question::TubeSummary,
                    SummaryBy::Runner => Question::RunnerSummary(BTreeMap::new()),
                };
                return self.begin_query(conn, question, context);
            }
            Request::ListSchedules => {
                let mut text = yaml::begin();
                let schedules = self.state.schedules(context.time.now);
                schedules.for_each(|schedule| yaml::write_schedule(&mut text, &schedule));
                self.reply_text(conn, text, context);
                return Some(Then::Serve);
            }
            Request::ListSettings(of) => {
                let of = of.map(|pattern| pattern.bytes().into());
                return self.begin_query(conn, Question::Settings(of), context);
            }
            Request::ListJobs(tube, which, limit, after) => {
                if self.state.has_tube(tube.bytes()) {
                    return self.begin_query(conn, Question::Jobs(Listing::new(tube, which, limit, after)), context);
                }
                self.reply(conn, Reply::NotFound, context);
                return Some(Then::Serve);
            }
            other => unreachable!("{other:?} changes something"),
        }
        None
    }

    /// Starts an answer in slices. Each entry is shown as it is when its slice comes.
    fn begin_query(&mut self, conn: ConnId, question: Question, context: &mut Context<'_>) -> Option<Then> {
        session_of(&mut self.sessions, conn).query = Some(Query { question, next: 0, text: yaml::begin() });
        self.go_on_with_query(conn, context);
        Some(Then::Serve)
    }

    /// Examines the next slice of a connection's question, and replies after the last one.
    pub(super) fn go_on_with_query(&mut self, conn: ConnId, context: &mut Context<'_>) {
        let session = session_of(&mut self.sessions, conn);
        let Some(mut query) = session.query.take() else { return };
        let next = look_at_more(&mut self.state, &mut query, context.time.now);
        let is_short = matches!(query.question, Question::Tube(_));
        session.query = Some(Query { next: next.unwrap_or(0), ..query });
        session.note_kept(&mut self.state.kept_bytes);
        // Answers may take at most half of the memory, so that jobs have the rest.
        let has_room = is_short || self.state.has_memory_for(self.state.kept_bytes);
        if next.is_some() && has_room {
            return;
        }
        let text = session.query.take().map(|query| query.text).unwrap_or_default();
        session.note_kept(&mut self.state.kept_bytes);
        match has_room {
            true if text.is_empty() => self.reply(conn, Reply::NotFound, context),
            true => self.reply_text(conn, text, context),
            false => self.reply(conn, Reply::OutOfMemory, context),
        }
    }

    /// Finishes all answers in slices.
    pub(super) fn finish_queries(&mut self, context: &mut Context<'_>) {
        for index in 0..self.sessions.len() {
            while self.sessions[index].query.is_some() {
                self.go_on_with_query(ConnId::from_index(index), context);
            }
        }
    }

    fn reply_found(&mut self, conn: ConnId, found: Option<JobId>, context: &mut Context<'_>) {
        let Some(id) = found else { return self.reply(conn, Reply::NotFound, context) };
        self.add_reply(conn, ReplyBody::Job(id), None, context, |_, bytes, len| replies::write_found(bytes, id, len));
    }

    fn reply_job(&mut self, conn: ConnId, id: JobId, context: &mut Context<'_>) {
        self.state.count(Stat::StatsJob);
        let Some(job) = self.state.job_stats(id, context.time.now) else {
            return self.reply(conn, Reply::NotFound, context);
        };
        let mut text = yaml::begin();
        yaml::write_job(&mut text, &job);
        self.reply_text(conn, text, context);
    }

    fn reply_text(&mut self, conn: ConnId, text: Vec<u8>, context: &mut Context<'_>) {
        self.add_reply(conn, ReplyBody::Text(text), None, context, |_, bytes, len| replies::write_ok(bytes, len));
    }

    fn server_stats(&mut self, context: &mut Context<'_>) -> ServerStats {
        let (producers, workers) = self.state.producers_and_workers();
        let name = *self.name.get_or_insert_with(|| u64::from_be_bytes(context.random.bytes()));
        ServerStats {
            max_job_size: self.state.bounds.max_size,
            connections: [
                context.conns.traffic.open,
                producers as u64,
                workers as u64,
                context.conns.traffic.opened.get(),
            ],
            pid: std::process::id(),
            version: VERSION.into(),
            rusage: processor_time(),
            uptime: context.time.now.since(context.time.started).as_micros() / 1_000_000,
            draining: self.state.is_draining,
            id: format!("{name:016x}"),
            machine: self.machine.clone(),
        }
    }
}

/// Examines the next slice, and returns the position of the one after it, if any. The text is empty for a tube that no
/// longer exists.
fn look_at_more(state: &mut State, Query { question, next, text }: &mut Query, now: Time) -> Option<usize> {
    let tell = |(name, summary): (Vec<u8>, Summary)| yaml::write_summary(text, &name, &summary, false, now);
    match question {
        Question::Tubes => {
            let (names, rest) = state.tubes_from(*next, LOOKED_AT_ONCE);
            yaml::write_names(text, names);
            rest
        }
        Question::Settings(of) => {
            let of = of.as_ref().and_then(|pattern| Pattern::parse(pattern));
            let (settings, rest) = state.settings_from(of, *next, LOOKED_AT_ONCE, now);
            settings.iter().for_each(|setting| yaml::write_setting(text, setting));
            rest
        }
        Question::Tube(watchers) => {
            let rest = state.count_watchers(watchers, *next, LOOKED_AT_ONCE);
            if rest.is_none() {
                match state.tube_stats(watchers, now) {
                    Some(tube) => yaml::write_tube(text, tube),
                    None => text.clear(),
                }
            }
            rest
        }
        Question::TubeSummary => {
            let (summaries, rest) = state.summary_of_tubes(*next, LOOKED_AT_ONCE, now);
            summaries.into_iter().for_each(tell);
            rest
        }
        Question::SumSummary(by) => {
            let (summaries, rest) = state.summary_of_sums(*by, *next, LOOKED_AT_ONCE, now);
            summaries.into_iter().for_each(tell);
            rest
        }
        Question::RunnerSummary(runners) => {
            let rest = state.add_runners(runners, *next, LOOKED_AT_ONCE, now);
            if rest.is_none() {
                *question = Question::Runners(std::mem::take(runners));
            }
            rest.or(Some(0))
        }
        Question::Runners(runners) => {
            for (name, summary) in std::iter::from_fn(|| runners.pop_first()).take(LOOKED_AT_ONCE) {
                yaml::write_summary(text, &name, &summary, true, now);
            }
            (!runners.is_empty()).then_some(0)
        }
        Question::Jobs(listing) => {
            let rest = state.list_more(listing, *next, JOBS_AT_ONCE);
            if rest.is_none() {
                let jobs = listing.take().into_iter().filter_map(|id| state.job_stats(id, now));
                let jobs = jobs.filter(|job| listing.has(job));
                jobs.for_each(|job| yaml::write_listed(text, &job));
            }
            rest
        }
    }
}
