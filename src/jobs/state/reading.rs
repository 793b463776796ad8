//! Jobs that another process has left in the store: the facts it has handed over, until the whole store is read.
//!
//! Reserved jobs exist from the beginning, without their bodies, so that their holders can go on. Other jobs that are
//! read count as ready since their put, or since the time since which the first job of their tube was ready, if that is
//! later.

use super::saved::Saved;
use super::{Body, JobId, SLICE, State, Step};
use poolcounter_core::{Metered as _, Time};
use std::collections::{BTreeMap, BTreeSet};

/// Facts that were handed over about jobs that are not read.
#[derive(Default)]
pub(super) struct Reading {
    /// Jobs whose bodies are not read. Some of them may be deleted by now.
    pub bodiless: BTreeSet<JobId>,
    /// Time since which the first ready job of each tube has been ready.
    pub ready_since: BTreeMap<Box<[u8]>, Time>,
}

impl State {
    /// Starts the reading: jobs restored from now on come without their bodies, and all other jobs from a store.
    pub fn begin_reading(&mut self) {
        self.reading = Some(Box::default());
        self.may_lack_jobs = true;
    }

    /// Ends the reading, in slices: removes jobs that were handed over and not found in the store. Returns true after
    /// the last slice, and the number of jobs removed. Pauses of tubes that have turned out to have no jobs stay, as
    /// after a start: until the tube is used and left again, or their time is over.
    pub fn end_reading(&mut self, step: &mut Step<'_, '_>) -> (bool, usize) {
        self.may_lack_jobs = false;
        let Some(reading) = &mut self.reading else { return (true, 0) };
        let some = std::iter::from_fn(|| reading.bodiless.pop_first()).metered().take(SLICE as usize);
        let missing: Vec<_> = some.filter_map(|id| self.jobs.find(id)).collect();
        self.reading.take_if(|reading| reading.bodiless.is_empty());
        missing.iter().for_each(|key| self.delete_job(*key, None, step));
        (self.reading.is_none(), missing.len())
    }

    /// Adds a record of a store.
    ///
    /// # Errors
    ///
    /// Fails if it contradicts an earlier one.
    pub fn read(&mut self, saved: Saved<'_>, step: &mut Step<'_, '_>) -> Result<(), &'static str> {
        self.may_lack_jobs = true;
        let Some(reading) = &mut self.reading else { return self.restore(saved, step) };
        match saved {
            // These were handed over.
            Saved::Meta { .. } | Saved::Setting(_) => Ok(()),
            Saved::Job(record, body, ..) if reading.bodiless.remove(&record.id) => {
                if let Some(key) = self.jobs.find(record.id) {
                    self.jobs.set_body(key, Body::Own(body.into()));
                }
                Ok(())
            }
            Saved::Job(mut record, body, ..) => {
                record.delayed = record.delayed.filter(|until| record.is_buried || *until > step.now);
                let put = Time::from_micros(u64::try_from(record.created).unwrap_or(0));
                let first = reading.ready_since.get(record.tube).copied().unwrap_or(Time::START);
                let tube = self.tubes.find(record.tube);
                let last = tube.and_then(|tube| self.tubes[tube].waiting.iter_back(&self.jobs).next());
                let last = last.map(|key| self.jobs[key].at);
                let since = put.max(first).max(last.unwrap_or(Time::START));
                self.restore_job(&record, Body::Own(body.into()), Some(since), None, step)
            }
            other => self.restore(other, step),
        }
    }

    /// Visits the time since which the first job of each tube has been ready, for a process that reads the jobs from
    /// the store.
    pub(super) fn save_ready_since(&self, visit: &mut dyn FnMut(Saved<'_>)) {
        let handed_over = |tube: &[u8]| self.reading.as_ref()?.ready_since.get(tube).copied();
        for (_, tube) in self.tubes.iter() {
            let first = tube.waiting.front().map(|key| self.jobs[key].at);
            let since = [first, handed_over(&tube.name)].into_iter().flatten().min();
            since.into_iter().for_each(|since| visit(Saved::ReadySince(&tube.name, since)));
        }
    }
}
