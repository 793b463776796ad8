//! Handover, lifecycle and reports of the administration.

use super::stats::AdminStat as Stat;
use super::{Admin, end_waits, note_result};
use poolcounter_core::{Reader, Time, Writer};
use poolcounter_service::contract::{
    Context, Effect, Handover, Inquire, Inspect, Lifecycle, Observe, OperationResult, Operations, Peers, Requester,
    Shown, Traffic, Unreadable,
};
use poolcounter_service::report::Report;
use std::io;

impl Lifecycle for Admin {
    fn begin(&mut self, _: bool, context: &mut Context<'_>) -> Result<(), String> {
        context.effects.push(Effect::SetLogLevel(self.log_level));
        Ok(())
    }

    /// The handover does not contain pending operations, so it waits for them.
    fn is_quiet(&self) -> bool {
        self.pending.is_empty()
    }
}

impl Handover for Admin {
    fn save(&self, out: &mut Writer<'_>, _: &mut Context<'_>) -> io::Result<()> {
        let level = self.log_level.map(|level| level.as_str());
        out.put(&(&self.drain, &self.watchers, level, self.figures.save(), &self.reloads))
    }

    fn restore(&mut self, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable> {
        let (level, figures): (Option<String>, Vec<(String, u64)>);
        (self.drain, self.watchers, level, figures, self.reloads) = saved.take()?;
        self.figures.restore(&figures);
        self.log_level = level.and_then(|level| level.parse().ok());
        // The reload had not begun in the previous process.
        if !self.reloads.asked.is_empty() {
            context.effects.push(Effect::Reload);
        }
        if self.drain.is_some() {
            self.go_on_draining(context);
        }
        Ok(())
    }
}

impl Observe for Admin {
    fn unhealthy_reason(&self) -> Option<&'static str> {
        self.drain.is_some().then_some("the daemon is to end")
    }

    fn report(&self, _: Time, _: &Traffic, _: &dyn Peers) -> Report {
        let mut figures = self.figures.clone();
        figures.set(Stat::Draining, u64::from(self.drain.is_some()));
        Report { figures: figures.rows().collect(), ..Report::default() }
    }
}

impl Inquire for Admin {
    fn know_operations(&mut self, operations: &Operations) {
        self.operations = operations.clone();
    }

    fn operation_done(&mut self, from: Requester, result: &OperationResult, context: &mut Context<'_>) {
        let Some((conn, asked)) = self.pending.end(from.number) else { return };
        note_result(&asked, result, context);
        end_waits(conn.into_iter().collect(), result, context);
    }

    fn reload_begins(&mut self) {
        self.reloads.begun.append(&mut self.reloads.asked);
    }

    fn reload_ended(&mut self, result: &OperationResult, context: &mut Context<'_>) {
        end_waits(std::mem::take(&mut self.reloads.begun), result, context);
    }

    fn shown(&mut self, from: Requester, shown: Shown<'_>, context: &mut Context<'_>) {
        if let Shown::Telemetry(telemetry) = shown {
            self.note_left(from, telemetry, context);
        }
    }
}

impl Inspect for Admin {
    fn check(&self) {
        assert!(self.watchers.is_empty() || self.drain.is_some(), "only a drain is waited for");
        assert!(self.look_timer.is_none() || self.drain.is_some(), "only a drain looks at what is left");
    }

    fn is_empty(&self) -> bool {
        self.watchers.is_empty() && self.reloads.is_empty() && self.pending.is_empty()
    }

    fn background_timers(&self) -> usize {
        usize::from(self.look_timer.is_some())
    }
}
