//! What of the service outlives the process: its connections, then its state, one record after the other. Bodies stand
//! behind their records as bytes, so that none is written or read as a part of something larger. Jobs that the store has, and that
//! nobody holds, are left there.

use super::JobQueue;
use super::sessions::{Session, session_of};
use super::state::{Body, Saved, Step};
use super::store::{HandedOver, Mark};
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::record::{Reader, Writer};
use poolcounter_service::contract::{Context, Unreadable};
use serde::{Deserialize, Serialize};
use std::io;

/// The version of what is written. It cannot change without another.
pub(super) const VERSION: u16 = 6;
/// The version before, which had no settings of a file.
const WITHOUT_FILE: u16 = 5;
/// The version before that, which had all jobs.
const WITH_ALL_JOBS: u16 = 4;
/// The version before that, which did not say which queue it was, and who had it.
const WITHOUT_QUEUE: u16 = 3;
/// The version before that, which said nothing of failures and curves.
const WITHOUT_CURVES: u16 = 2;
/// The version before that, which said nothing of a store: jobs were kept in memory.
const WITHOUT_STORE: u16 = 1;

/// What stands before everything.
#[derive(Serialize, Deserialize)]
struct Head {
    /// What `stats` calls the server.
    name: Option<u64>,
    /// How many sessions follow, each behind the id of its connection.
    sessions: usize,
}

impl JobQueue {
    pub(super) fn save_all(&self, out: &mut Writer<'_>) -> io::Result<()> {
        let open = || self.sessions.iter().enumerate().filter(|(_, session)| session.is_open);
        out.put(&self.handed_over())?;
        let left_in = self.left_in();
        out.put(&left_in)?;
        out.put(&Head { name: self.name, sessions: open().count() })?;
        for (index, session) in open() {
            out.put(&ConnId::from_index(index))?;
            session.save(out)?;
        }
        let mut result = Ok(());
        self.state.save(left_in.is_some(), &mut |saved| {
            if result.is_ok() {
                result = save_one(out, saved);
            }
        });
        result?;
        out.put(&None::<Saved<'_>>)
    }

    /// Goes on from what was saved. The bodies of jobs are of no use in a rehearsal.
    pub(super) fn restore_all(
        &mut self,
        version: u16,
        saved: &mut Reader<'_>,
        with_bodies: bool,
        context: &mut Context<'_>,
    ) -> Result<(), Unreadable> {
        self.driver.handed_over = match version {
            VERSION | WITHOUT_FILE | WITH_ALL_JOBS => saved.take()?,
            WITHOUT_QUEUE | WITHOUT_CURVES => {
                let mark: Option<Mark> = saved.take()?;
                mark.map(|mark| HandedOver { mark, ..HandedOver::default() })
            }
            WITHOUT_STORE => Some(HandedOver::default()),
            other => return Err(Unreadable::version("jobs", other)),
        };
        if matches!(version, VERSION | WITHOUT_FILE) {
            self.driver.left_in = saved.take()?;
        }
        if self.driver.left_in.is_some() {
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
            // There never was a job.
            self.driver.handed_over = None;
        }
        for (index, session) in self.sessions.iter_mut().enumerate() {
            // A command under way is not saved for a rehearsal, which begins in the middle of it.
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

/// Version 1 had unsigned times of root jobs, which are read here as if they were signed: the last bit is the sign of those.
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
