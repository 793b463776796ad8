//! The contract of the members service beside the tick: life cycle, handover, inquiries, checks.

use super::Members;
use super::sessions::Sessions;
use super::state::State;
use poolcounter_core::{ConnId, Reader, Writer};
use poolcounter_service::contract::{Context, Handover, Inquire, Inspect, Lifecycle, Unreadable, Wake};
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
        self.state.armed_timers() + usize::from(self.keeping.clock.is_some())
    }
}
