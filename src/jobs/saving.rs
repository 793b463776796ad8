//! Handover format of the jobs service: connections, then state, one record after the other. Bodies follow their
//! records as bytes, so that none is written or read as a part of something larger. Jobs that are in the store and not
//! reserved are not handed over.

use super::JobQueue;
use super::sessions::{Session, Slot, session_of};
use super::state::{Body, Saved};
use poolcounter_core::{ConnId, Id, Reader, Writer};
use poolcounter_service::contract::{Context, Handover, Unreadable};
use serde::{Deserialize, Serialize};
use std::io;

/// First record.
#[derive(Serialize, Deserialize)]
struct Head {
    /// Name of the server in `stats`.
    name: Option<u64>,
    /// Number of sessions that follow, each behind the id of its connection.
    sessions: usize,
}

impl Handover for JobQueue {
    fn save(&self, out: &mut Writer<'_>, _: &mut Context<'_>) -> io::Result<()> {
        let open = || self.sessions.iter().enumerate().filter(|(_, session)| session.is_open);
        out.put(&self.handed_over())?;
        let leaves_jobs = self.leaves_jobs();
        out.put(&(self.store_in_use(), leaves_jobs))?;
        out.put(&Head { name: self.name, sessions: open().count() })?;
        for (index, session) in open() {
            out.put(&ConnId::from_index(index))?;
            session.save(out)?;
        }
        let mut result = Ok(());
        self.state.save(leaves_jobs, &mut |saved| {
            if result.is_ok() {
                result = save_one(out, saved);
            }
        });
        result?;
        out.put(&None::<Saved<'_>>)
    }

    fn restore(&mut self, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable> {
        self.restore_all(saved, true, context)
    }

    /// A store never moves, so a successor with another one is refused.
    fn rehearse(&mut self, saved: &mut Reader<'_>, context: &mut Context<'_>) -> Result<(), Unreadable> {
        self.restore_all(saved, false, context)?;
        self.refuse_other_store()
    }
}

impl JobQueue {
    /// Restores the service from a handover. A rehearsal needs no bodies of jobs.
    fn restore_all(
        &mut self,
        saved: &mut Reader<'_>,
        with_bodies: bool,
        context: &mut Context<'_>,
    ) -> Result<(), Unreadable> {
        self.driver.handed_over = saved.take()?;
        (self.driver.former_store, self.driver.are_left) = saved.take()?;
        if self.driver.are_left {
            self.state.begin_reading();
        }
        self.state.is_shut = true;
        // Periodic jobs that are restored need it.
        self.state.set_wall(context.time.wall);
        let Head { name, sessions } = saved.take()?;
        self.name = name;
        for _ in 0..sessions {
            let conn: ConnId = saved.take()?;
            let session = Session::restore(saved)?;
            if !session.unsent.is_empty() {
                context.resume(conn);
            }
            let slot = session_of(&mut self.sessions, conn);
            *slot = Slot::open(session);
            if let Some(session) = slot.begun() {
                session.note_kept(&mut self.state.kept_bytes);
            }
        }
        let mut record = Vec::new();
        loop {
            record.clear();
            record.extend_from_slice(saved.take_bytes()?);
            let one: Option<Saved<'_>> = postcard::from_bytes(&record).map_err(|error| damaged(&error))?;
            let Some(one) = one else { break };
            self.restore_one(one, saved, with_bodies, context)?;
        }
        for (index, slot) in self.sessions.iter_mut().enumerate() {
            let Some(session) = slot.begun() else { continue };
            // A rehearsal begins in the middle of a command under way, which is not saved for it.
            session.waits &= self.state.is_waiting(ConnId::from_index(index));
        }
        Ok(())
    }

    fn restore_one(
        &mut self,
        one: Saved<'_>,
        saved: &mut Reader<'_>,
        with_body: bool,
        context: &mut Context<'_>,
    ) -> Result<(), Unreadable> {
        let body = if let Saved::Job(..) = one { saved.take_bytes()? } else { &[] };
        let body = Body::Own(if with_body { body.into() } else { Box::default() });
        let restored = self.step_in_turn(false, context, |state, step| match one {
            Saved::Job(record, _, since, held) => state.restore_job(&record, body, since, held, step),
            other => state.restore(other, step),
        });
        restored.map_err(|wrong| damaged(&wrong))
    }
}

fn save_one(out: &mut Writer<'_>, saved: Saved<'_>) -> io::Result<()> {
    match saved {
        Saved::Job(record, body, since, held) => {
            out.put(&Some(Saved::Job(record, b"", since, held)))?;
            out.put_bytes(body)
        }
        other => out.put(&Some(other)),
    }
}

fn damaged(wrong: &dyn std::fmt::Display) -> Unreadable {
    Unreadable(format!("the handover is damaged: {wrong}"))
}
