//! The contract of the members service beside the tick: start, handover, reports.

use super::Members;
use super::sessions::Sessions;
use super::state::State;
use super::stats::Levels;
use poolcounter_core::{ConnId, Reader, Time, Writer};
use poolcounter_service::contract::{
    Context, Handover, Inquire, Inspect, Lifecycle, Observe, Peers, Traffic, Unreadable, Wake,
};
use poolcounter_service::report::{Counted, Look, Report, Series, View};
use std::io;
use std::sync::Arc;

impl Lifecycle for Members {
    fn attach(&mut self, wake: Wake) {
        self.keeping.attach(wake);
    }

    fn begin(&mut self, listens: bool, context: &mut Context<'_>) -> Result<(), String> {
        self.begin_keeping(listens, context)
    }

    fn settle(&mut self, settles: bool, context: &mut Context<'_>) {
        self.keeping.settle(settles, context);
    }

    fn finish(&mut self, context: &mut Context<'_>) {
        self.keeping.settle(true, context);
    }

    fn is_finished(&self) -> bool {
        self.is_quiet()
    }

    fn quiesce(&mut self, context: &mut Context<'_>) {
        // The successor serves the connections that wait.
        self.keeping.let_go(context);
    }

    fn is_quiet(&self) -> bool {
        self.keeping.is_quiet()
    }

    fn configure(&mut self, context: &mut Context<'_>) {
        let declared = std::mem::take(&mut self.declared);
        self.step(context, true, |state, step| state.configure(declared, step));
    }

    fn refuse_new(&mut self, refuses: bool, _: &mut Context<'_>) {
        self.state.refuses_new = refuses;
    }

    fn recheck(&mut self, conn: ConnId, context: &mut Context<'_>) {
        self.drop_denied(conn, context);
    }

    fn leases_of_rules(&self) -> Vec<(Arc<str>, u64)> {
        self.state.leases_of_rules().map(|(rule, leases)| (rule.clone(), leases)).collect()
    }
}

impl Handover for Members {
    fn save(&self, out: &mut Writer<'_>, context: &mut Context<'_>) -> io::Result<()> {
        out.put(&(self.is_numbered, self.keeping.handed_over()))?;
        self.sessions.save(out)?;
        self.state.save(out, &context.timers.typed())
    }

    fn restore(&mut self, saved: &mut Reader<'_>, _: &mut Context<'_>) -> Result<(), Unreadable> {
        let (is_numbered, ledger) = saved.take()?;
        self.is_numbered = is_numbered;
        self.keeping.take_over(ledger)?;
        self.sessions = Sessions::restore(saved)?;
        self.state.restore(saved)
    }

    fn restore_more(&mut self, context: &mut Context<'_>) -> Result<bool, Unreadable> {
        self.step(context, false, State::restore_more)
    }
}

impl Observe for Members {
    fn look(&mut self, look: &mut Look<'_>) {
        self.note_conditions(look);
    }

    fn at_risk(&self) -> u64 {
        let levels = self.levels(&Traffic::default());
        levels.of(Levels::InUse) + levels.of(Levels::Waiting)
    }

    fn unhealthy_reason(&self) -> Option<&'static str> {
        self.keeping.is_unreadable().then_some("the members cannot be read")
    }

    fn report(&self, _: Time, traffic: &Traffic, _: &dyn Peers) -> Report {
        let figures = self.state.counted_in_all();
        let figures = self.levels(traffic).rows().chain(figures.rows()).collect();
        Report { figures, tables: self.tables(), ..Report::default() }
    }

    fn sample(&self, note: &mut dyn FnMut(Series)) {
        self.series().into_iter().for_each(note);
    }

    fn view(&self, path: &[u8], now: Time, peers: &dyn Peers) -> Option<View> {
        self.view_of(path, now, peers)
    }

    fn sample_things(&self, _: Time, note: &mut dyn FnMut(&[u8], Series)) {
        self.sample_pools(note);
    }

    fn tally(&self, note: &mut dyn FnMut(Counted<'_>)) {
        self.tally_pools(note);
    }
}

impl Inquire for Members {}

impl Inspect for Members {
    fn check(&self) {
        self.state.check();
        assert_eq!(self.sessions.owe(), self.pacing.is_some(), "what is owed is sent some time");
    }

    fn is_empty(&self) -> bool {
        self.state.knows_nobody() && self.sessions.is_empty()
    }

    fn background_timers(&self) -> usize {
        self.state.armed_timers()
    }
}
