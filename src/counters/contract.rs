//! The contract of the counters service beside the tick: life cycle, handover, inquiries, checks.

use super::{CounterSession, CountersService, step};
use poolcounter_core::{ConnId, Reader, Writer};
use poolcounter_service::contract::{Context, Handover, Inquire, Inspect, Lifecycle, Operate, Unreadable};
use std::io;

impl Lifecycle for CountersService {
    fn refuse_new(&mut self, refuses: bool, _: &mut Context<'_>) {
        self.refuses_new = refuses;
    }
}

impl Handover for CountersService {
    fn save(&self, out: &mut Writer<'_>, _: &mut Context<'_>) -> io::Result<()> {
        let sessions: Vec<_> = self.sessions.iter().filter(|(_, session)| session.is_busy()).collect();
        out.put(&sessions)?;
        self.state.save(out)
    }

    fn restore(&mut self, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable> {
        self.restore_sessions(saved)?;
        self.state.restore(saved, &mut step(context))
    }

    fn restore_more(&mut self, context: &mut Context<'_>) -> Result<bool, Unreadable> {
        self.state.restore_more(&mut step(context))
    }

    fn rehearse(&mut self, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable> {
        self.restore_sessions(saved)?;
        self.state.rehearse(saved, &mut step(context))
    }
}

impl Operate for CountersService {}

impl Inquire for CountersService {}

impl Inspect for CountersService {
    fn check(&self) {
        self.state.check();
    }

    fn is_empty(&self) -> bool {
        self.state.is_empty() && !self.sessions.iter().any(|(_, session)| session.is_busy())
    }
}

impl CountersService {
    fn restore_sessions(&mut self, saved: &mut Reader<'_>) -> Result<(), Unreadable> {
        for (conn, session) in saved.take::<Vec<(ConnId, CounterSession)>>()? {
            *self.sessions.get_mut(conn) = session;
        }
        Ok(())
    }
}
