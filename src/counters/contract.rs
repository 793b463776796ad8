//! The contract of the counters service beside the tick: start, handover, reports.

use super::{CounterSession, CountersService, step};
use poolcounter_core::{ConnId, Id, Reader, Time, Writer};
use poolcounter_service::contract::{
    Context, Handover, Inquire, Inspect, Lifecycle, Observe, Operate, Peers, Traffic, Unreadable,
};
use poolcounter_service::report::{Look, Report, Series, View};
use std::io;

/// Version of the handover format: the sessions that are not idle, then the state.
const SAVED_VERSION: u16 = 1;

impl Lifecycle for CountersService {
    fn refuse_new(&mut self, refuses: bool, _: &mut Context<'_>) {
        self.refuses_new = refuses;
    }
}

impl Handover for CountersService {
    fn version(&self) -> u16 {
        SAVED_VERSION
    }

    fn save(&self, out: &mut Writer<'_>, _: &mut Context<'_>) -> io::Result<()> {
        let sessions = self.sessions.iter().enumerate().filter(|(_, session)| session.is_busy());
        let sessions: Vec<_> = sessions.map(|(index, session)| (ConnId::from_index(index), session)).collect();
        out.put(&sessions)?;
        self.state.save(out)
    }

    fn restore(&mut self, version: u16, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable> {
        self.restore_sessions(version, saved)?;
        self.state.restore(saved, &mut step(context))
    }

    fn restore_more(&mut self, context: &mut Context<'_>) -> Result<bool, Unreadable> {
        self.state.restore_more(&mut step(context))
    }

    fn rehearse(&mut self, version: u16, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable> {
        self.restore_sessions(version, saved)?;
        self.state.rehearse(saved, &mut step(context))
    }
}

impl Observe for CountersService {
    fn look(&mut self, look: &mut Look<'_>) {
        self.note_conditions(look);
    }

    fn at_risk(&self) -> u64 {
        self.state.holdings()
    }

    fn report(&self, _: Time, traffic: &Traffic, _: &dyn Peers) -> Report {
        Report { figures: self.figures(traffic).rows().collect(), tables: self.tables(), ..Report::default() }
    }

    fn sample(&self, note: &mut dyn FnMut(Series)) {
        self.series().into_iter().for_each(note);
    }

    fn view(&self, path: &[u8], _: Time, peers: &dyn Peers) -> Option<View> {
        self.view_of(path, peers)
    }
}

impl Operate for CountersService {}

impl Inquire for CountersService {}

impl Inspect for CountersService {
    fn check(&self) {
        self.state.check();
    }

    fn is_empty(&self) -> bool {
        self.state.is_empty() && !self.sessions.iter().any(CounterSession::is_busy)
    }
}

impl CountersService {
    fn restore_sessions(&mut self, version: u16, saved: &mut Reader<'_>) -> Result<(), Unreadable> {
        if version != SAVED_VERSION {
            return Err(Unreadable::version("counters", version));
        }
        for (conn, session) in saved.take::<Vec<(ConnId, CounterSession)>>()? {
            *self.session(conn) = session;
        }
        Ok(())
    }
}
