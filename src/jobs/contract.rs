//! The contract of the jobs service beside the tick: life cycle, reports, inquiries, checks.

use super::JobQueue;
use super::pages::tables::{DELETES, PUT, READY};
use super::pages::views::series_of;
use super::state::{JobState, State, SumBy};
use super::store::Ownership;
use poolcounter_core::{ConnId, Count, Id, Time};
use poolcounter_service::contract::{Context, Inquire, Inspect, Lifecycle, Observe, Peers, Traffic, Wake};
use poolcounter_service::report::{Counted, Look, Report, Series, View};

/// Largest matrix of the status page, in first parts and last parts: the size of a screen.
const SHOWN_PARTS: [usize; 2] = [20, 12];

impl Lifecycle for JobQueue {
    fn attach(&mut self, wake: Wake) {
        self.driver.wake = Some(wake.clone());
        self.store.attach(wake);
    }

    fn configure(&mut self, _: &mut Context<'_>) {
        self.has_file = true;
    }

    fn begin(&mut self, listens: bool, context: &mut Context<'_>) -> Result<(), String> {
        self.begin_store(listens, context)?;
        self.set_from_file(context);
        Ok(())
    }

    fn settle(&mut self, settles: bool, context: &mut Context<'_>) {
        self.driver.is_settling = settles;
        self.state.keep_reserved(settles);
        match settles {
            true => self.give_up_waiting(context),
            false => self.driver.let_go(context),
        }
    }

    fn is_settled(&self) -> bool {
        self.is_kept()
            && self.driver.copy.is_none()
            && self.state.is_settled()
            && self.sessions.iter().all(|session| session.query.is_none())
    }

    fn finish(&mut self, _: &mut Context<'_>) {
        (self.driver.is_settling, self.driver.is_ending) = (true, true);
        self.state.keep_reserved(true);
    }

    fn is_finished(&self) -> bool {
        // On a slow disk, no other batch is begun.
        let is_done = self.state.last_uncommitted().is_none() || self.driver.is_slow;
        self.store.is_failing() || self.driver.under_way.is_none() && is_done
    }

    fn quiesce(&mut self, context: &mut Context<'_>) {
        self.finish_queries(context);
        self.step(context, State::finish_commands);
        self.give_up_waiting(context);
        // The successor serves the connections whose waits ended; without one, this process serves them again.
        self.driver.let_go(context);
    }

    fn drain(&mut self, _: &mut Context<'_>) {
        self.state.is_draining = true;
    }

    /// Jobs that are kept nowhere else would be lost, so they are given out until the queue is empty.
    fn refuse_new(&mut self, refuses: bool, context: &mut Context<'_>) {
        self.state.is_draining = refuses;
        self.keeps_jobs = refuses && !self.store.is_immediate();
        if !refuses {
            self.step(context, |_, _| {});
        }
    }

    fn recheck(&mut self, conn: ConnId, context: &mut Context<'_>) {
        self.drop_denied(conn, context);
    }

    fn is_quiet(&self) -> bool {
        self.is_kept() && self.driver.is_quiet() && self.state.is_settled()
    }
}

impl Observe for JobQueue {
    fn look(&mut self, look: &mut Look<'_>) {
        self.note_conditions(look);
    }

    /// Buried jobs do not count.
    fn at_risk(&self) -> u64 {
        let given_out = self.state.count_in(JobState::Reserved);
        match self.store.is_immediate() {
            true => given_out + self.state.count_in(JobState::Ready) + self.state.count_in(JobState::Delayed),
            false => given_out,
        }
    }

    fn unhealthy_reason(&self) -> Option<&'static str> {
        match self.store.ownership() {
            Ownership::StandsBy if self.driver.has_begun => Some("the jobs stand by"),
            Ownership::Damaged => Some("the jobs cannot be read"),
            Ownership::Lapsed | Ownership::Expired => Some("the database does not answer"),
            _ => None,
        }
    }

    fn report(&self, now: Time, _: &Traffic, _: &dyn Peers) -> Report {
        Report {
            figures: self.figures(now).rows().collect(),
            tables: self.all_tables(now),
            exported: self.exported(now),
            matrix: Some(self.matrix(SHOWN_PARTS, now)),
            ..Report::default()
        }
    }

    fn view(&self, path: &[u8], now: Time, peers: &dyn Peers) -> Option<View> {
        self.view_of(path, now, peers)
    }

    fn sample(&self, note: &mut dyn FnMut(Series)) {
        let [put, deleted, ready] = self.state.totals();
        [(&READY, ready), (&DELETES, deleted), (&PUT, put)].into_iter().for_each(note);
    }

    fn sample_things(&self, now: Time, note: &mut dyn FnMut(&[u8], Series)) {
        let mut path = Vec::new();
        for by in SumBy::ALL {
            for (name, levels) in self.state.levels(by, now) {
                path.clear();
                path.extend_from_slice(self.settings.part_names.0[by as usize].as_bytes());
                path.push(b'/');
                path.extend_from_slice(name);
                series_of(levels).into_iter().for_each(|series| note(&path, series));
            }
        }
    }

    /// Notes nothing if some sums are not followed, because the followed ones change then.
    fn tally(&self, note: &mut dyn FnMut(Counted<'_>)) {
        for by in SumBy::ALL {
            let table = format!("{}s", self.settings.part_names.0[by as usize]);
            for (name, tally) in self.state.tallies(by).into_iter().flatten() {
                let times = &[&tally.pickups, &tally.runs];
                note(Counted { table: &table, name, counts: &tally.counts.map(Count::get), times });
            }
        }
    }
}

impl Inquire for JobQueue {}

impl Inspect for JobQueue {
    fn check(&self) {
        self.state.check();
        self.check_driver();
        let kept: usize = self.sessions.iter().map(|session| session.bytes()).sum();
        assert_eq!(self.state.kept_bytes, kept, "what is kept for connections is charged to them");
        for (index, session) in self.sessions.iter().enumerate() {
            let conn = ConnId::from_index(index);
            assert!(session.is_open || session.is_idle(), "{conn} is not open, and something is known of it");
            assert!(!session.waits || session.is_open && self.state.is_waiting(conn), "{conn} waits for nothing");
        }
    }

    fn is_empty(&self) -> bool {
        self.state.is_empty() && self.sessions.iter().all(|session| !session.is_open)
    }

    fn background_timers(&self) -> usize {
        self.state.background_timers() + self.driver.timers() + self.slack.timers()
    }
}
