//! Methods of the toy's contract besides the tick.

use super::Toy;
use super::store::Store;
use super::wire::{self, Reply};
use poolcounter_core::record::{Reader, Writer};
use poolcounter_core::time::Time;
use poolcounter_service::contract::{
    Context, Handover, Inquire, Inspect, Lifecycle, Observe, Operate, OperationRequest, OperationResult, Peers,
    Requester, Shown, Traffic, Unreadable, Wake,
};
use poolcounter_service::report::Report;
use std::io;

impl Lifecycle for Toy {
    fn attach(&mut self, wake: Wake) {
        self.store.attach(wake);
    }

    fn is_quiet(&self) -> bool {
        self.state.is_quiet()
    }
}

impl Handover for Toy {
    fn version(&self) -> u16 {
        1
    }

    fn save(&self, out: &mut Writer<'_>, context: &mut Context<'_>) -> io::Result<()> {
        out.put(&self.state.save(&context.timers.typed()))
    }

    fn restore(&mut self, version: u16, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable> {
        assert_eq!(version, 1, "there is no other");
        self.state.restore(saved.take()?, &mut context.timers.typed());
        Ok(())
    }

    fn rehearse(&mut self, version: u16, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable> {
        // The store belongs to the process that serves.
        self.store = Store::default();
        self.restore(version, saved, context)
    }
}

impl Observe for Toy {
    fn report(&self, _: Time, _: &Traffic, _: &dyn Peers) -> Report {
        Report::default()
    }
}

impl Operate for Toy {
    fn operate(&mut self, request: &OperationRequest, _: &mut Context<'_>) -> Option<OperationResult> {
        self.run_operation(request)
    }
}

impl Inquire for Toy {
    fn shown(&mut self, from: Requester, shown: Shown<'_>, context: &mut Context<'_>) {
        if let Shown::Telemetry(telemetry) = shown {
            let risk = (telemetry.at_risk)().into_iter().map(|(_, count)| count).sum();
            context.output.reply(from.conn, |bytes| wire::write(bytes, &Reply::Risk(risk)));
            context.resume(from.conn);
        }
    }
}

impl Inspect for Toy {
    fn check(&self) {
        self.state.check();
    }

    fn is_empty(&self) -> bool {
        self.state.is_empty() && self.underway.is_empty()
    }

    fn background_timers(&self) -> usize {
        self.state.background_timers()
    }
}
