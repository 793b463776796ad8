//! Handover, lifecycle and reports of the pages.

use super::Http;
use super::recent::Recent;
use poolcounter_core::{ConnId, Id, Reader, Time, Writer};
use poolcounter_service::contract::{
    Context, Effect, Handover, Inquire, Inspect, Lifecycle, Observe, Operate, OperationResult, Operations, Requester,
    Shown, Telemetry, Unreadable, Wake, Wanted,
};
use poolcounter_service::report::Series;
use std::io;

impl Lifecycle for Http {
    fn attach(&mut self, wake: Wake) {
        self.wake = Some(wake);
    }

    fn begin(&mut self, listens: bool, context: &mut Context<'_>) -> Result<(), String> {
        if listens {
            self.recent = Some(Recent::default());
            let from = Requester { service: context.called.id, conn: ConnId::from_index(0), number: 0 };
            context.effects.push(Effect::Show(from, Wanted::Telemetry));
        }
        Ok(())
    }

    /// The handover does not contain pending operations, so it waits for them.
    fn is_quiet(&self) -> bool {
        self.pending.is_empty()
    }
}

impl Handover for Http {
    fn save(&self, out: &mut Writer<'_>, _: &mut Context<'_>) -> io::Result<()> {
        self.samples.save(out)?;
        self.things_hour.save(out)
    }

    fn restore(&mut self, saved: &mut Reader<'_>, _: &mut Context<'_>) -> Result<(), Unreadable> {
        self.samples.restore(saved)?;
        self.things_hour.restore(saved)
    }
}

impl Observe for Http {}

impl Operate for Http {}

impl Inquire for Http {
    fn know_operations(&mut self, operations: &Operations) {
        self.operations = operations.clone();
    }

    fn operation_done(&mut self, from: Requester, result: &OperationResult, context: &mut Context<'_>) {
        self.respond_with_result(from, result, context);
    }

    fn shown(&mut self, _: Requester, shown: Shown<'_>, context: &mut Context<'_>) {
        match (self.page.take(), shown) {
            (Some(page), shown) => self.respond_with_page(page, shown, context),
            (None, Shown::Telemetry(telemetry)) => {
                if let Some(recent) = &mut self.recent {
                    recent.note(context.time.now, |note| (telemetry.tally)(note));
                }
            }
            (None, _) => {}
        }
    }

    fn watch(&mut self, telemetry: &Telemetry<'_>, now: Time) -> Time {
        self.note_health(telemetry.unhealthy_reason);
        let sample = |note: &mut dyn FnMut(&[u8], Series)| {
            (telemetry.sample)(&mut |service, series| note(service.as_bytes(), series));
        };
        self.samples.note(now, sample);
        self.hour.note(now, sample);
        self.things_hour.note(now, |note| (telemetry.sample_things)(now, note));
        let Some(recent) = &mut self.recent else { return self.samples.next };
        self.things.note(now, |note| (telemetry.sample_things)(now, note));
        let next = recent.note(now, |note| (telemetry.tally)(note));
        self.samples.next.min(self.things.next).min(next)
    }
}

impl Inspect for Http {
    fn check(&self) {
        assert!(self.page.is_none(), "a page is made at once");
    }

    fn is_empty(&self) -> bool {
        self.fleet.as_ref().is_none_or(|fleet| fleet.waiting.is_empty()) && self.pending.is_empty()
    }
}
