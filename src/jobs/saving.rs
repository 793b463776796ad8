//! Handover format of the jobs service: connections, then state, one record after the other. Bodies follow their
//! records as bytes, so that none is written or read as a part of something larger. Jobs that are in the store and not
//! reserved are not handed over.

use super::JobQueue;
use super::sessions::{Session, session_of};
use super::state::{Body, Saved, Step};
use super::store::{HandedOver, Mark};
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::record::{Reader, Writer};
use poolcounter_service::contract::{Context, Unreadable};
use serde::{Deserialize, Serialize};
use std::io;

/// Version of the format. Each change of the format needs another.
pub(super) const VERSION: u16 = 8;
/// Version 7 named the store only if jobs were left in it.
const WITHOUT_STORE_NAME: u16 = 7;
/// Version 6 had neither the times for which jobs ran nor last failures.
const WITHOUT_RUNS: u16 = 6;
/// Version 5 had no settings of a configuration file.
const WITHOUT_FILE: u16 = 5;
/// Version 4 had all jobs.
const WITH_ALL_JOBS: u16 = 4;
/// Version 3 had neither the id of the queue nor its owner.
const WITHOUT_QUEUE: u16 = 3;
/// Version 2 had no failures and curves.
const WITHOUT_CURVES: u16 = 2;
/// Version 1 had no store: jobs were kept in memory.
const WITHOUT_STORE: u16 = 1;

/// First record.
#[derive(Serialize, Deserialize)]
struct Head {
    /// Name of the server in `stats`.
    name: Option<u64>,
    /// Number of sessions that follow, each behind the id of its connection.
    sessions: usize,
}

impl JobQueue {
    pub(super) fn save_all(&self, out: &mut Writer<'_>) -> io::Result<()> {
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

    /// Restores the service from a handover. A rehearsal needs no bodies of jobs.
    pub(super) fn restore_all(
        &mut self,
        version: u16,
        saved: &mut Reader<'_>,
        with_bodies: bool,
        context: &mut Context<'_>,
    ) -> Result<(), Unreadable> {
        self.driver.handed_over = match version {
            VERSION | WITHOUT_STORE_NAME | WITHOUT_RUNS | WITHOUT_FILE | WITH_ALL_JOBS => saved.take()?,
            WITHOUT_QUEUE | WITHOUT_CURVES => {
                let mark: Option<Mark> = saved.take()?;
                mark.map(|mark| HandedOver { mark, ..HandedOver::default() })
            }
            WITHOUT_STORE => Some(HandedOver::default()),
            other => return Err(Unreadable::version("jobs", other)),
        };
        match version {
            VERSION => (self.driver.former_store, self.driver.are_left) = saved.take()?,
            WITHOUT_STORE_NAME | WITHOUT_RUNS | WITHOUT_FILE => {
                self.driver.former_store = saved.take()?;
                self.driver.are_left = self.driver.former_store.is_some();
            }
            _ => {}
        }
        if self.driver.are_left {
            self.state.begin_reading();
        }
        self.state.begin_shut();
        let Head { name, sessions } = saved.take()?;
        self.name = name;
        for _ in 0..sessions {
            let conn: ConnId = saved.take()?;
            let session = Session::restore(saved)?;
            if !session.unsent.is_empty() {
                context.resume(conn);
            }
            let slot = session_of(&mut self.sessions, conn);
            *slot = session;
            slot.note_kept(&mut self.state.kept_bytes);
        }
        let mut record = Vec::new();
        loop {
            record.clear();
            record.extend_from_slice(saved.take_bytes()?);
            let one: Option<Saved<'_>> = postcard::from_bytes(&record).map_err(|error| damaged(&error))?;
            let Some(one) = one else { break };
            let one = if version == WITHOUT_STORE { of_version_1(one) } else { one };
            self.restore_one(one, saved, with_bodies, context)?;
        }
        if version == WITHOUT_STORE && self.state.next_id() == 1 {
            // There has never been a job.
            self.driver.handed_over = None;
        }
        for (index, session) in self.sessions.iter_mut().enumerate() {
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
        let mut events = Vec::new();
        let Context { time, timers, random, .. } = context;
        let mut step = Step { now: time.now, timers: &mut timers.typed(), random, events: &mut events };
        let result = match one {
            Saved::Job(record, _, since, held) => {
                let bytes = saved.take_bytes()?;
                let body = Body::Own(if with_body { bytes.into() } else { Box::default() });
                self.state.restore_job(&record, body, since, held, &mut step)
            }
            other => self.state.restore(other, &mut step),
        };
        result.map_err(|wrong| damaged(&wrong))
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

/// Reads unsigned times of root jobs of version 1 as signed: their last bit is the sign now.
fn of_version_1(saved: Saved<'_>) -> Saved<'_> {
    match saved {
        Saved::Root(tube, signature, newest, changed) => {
            Saved::Root(tube, signature, newest, (changed << 1) ^ (changed >> 63))
        }
        other => other,
    }
}

fn damaged(wrong: &dyn std::fmt::Display) -> Unreadable {
    Unreadable(format!("the handover is damaged: {wrong}"))
}
