//! Effects of move, set-job and cancel.

use super::{Job, Jobs, Place, SECOND, matches};

impl Jobs {
    /// Returns the jobs of a pattern, or the job with this number, if they are meant.
    fn meant(&self, what: &str, is_meant: impl Fn(&Job) -> bool) -> Vec<u64> {
        let number = what.parse::<u64>();
        let is_of = |job: &Job| number.as_ref().map_or_else(|_| matches(what, &job.tube), |number| *number == job.id);
        self.in_order(|job| is_of(job) && is_meant(job))
    }

    pub(super) fn move_jobs(&mut self, id: usize, what: &str, target: &str, state: Option<&str>) {
        let is_meant = |job: &Job| match job.place {
            Place::Ready => state.is_none_or(|state| state == "ready"),
            Place::Delayed(_) => state.is_none_or(|state| state == "delayed"),
            Place::Buried(_) => state.is_none_or(|state| state == "buried"),
            Place::Pending(_) | Place::Reserved(..) => false,
        };
        let is_one = what.parse::<u64>().is_ok();
        let meant = self.meant(what, is_meant);
        if meant.is_empty() && is_one {
            return self.tell(id, None, "NOT_FOUND");
        }
        let mut count = 0;
        for job in meant.into_iter().filter(|job| self.jobs[job].tube != target).collect::<Vec<_>>() {
            if !matches!(self.jobs[&job].place, Place::Buried(_)) && self.is_superseded(&self.jobs[&job]) {
                self.drop_superseded(job);
                continue;
            }
            count += 1;
            self.job(job).origin = None;
            self.change_tube(job, target.into());
            match self.jobs[&job].place {
                Place::Ready => self.ready(job),
                Place::Buried(_) => {
                    let order = self.next_burial;
                    self.next_burial += 1;
                    self.job(job).place = Place::Buried(order);
                }
                _ => {}
            }
            self.serve();
        }
        match is_one {
            true => self.promise(id, &format!("MOVED {count}")),
            false => self.promise_count(id, "MOVED", count),
        }
    }

    pub(super) fn set_job(&mut self, id: usize, job: u64, values: &[&str]) {
        let is_waiting = |job: &Job| !matches!(job.place, Place::Pending(_) | Place::Reserved(..));
        let Some(own) = self.jobs.get_mut(&job).filter(|job| is_waiting(job)) else {
            return self.tell(id, None, "NOT_FOUND");
        };
        let (is_ready, is_buried) = (own.place == Place::Ready, matches!(own.place, Place::Buried(_)));
        let (mut until, mut is_moved) = (None, false);
        for value in values {
            let (name, number) = value.split_once('=').expect("a value");
            let number: u64 = number.parse().expect("a number");
            match name {
                "pri" => (own.pri, is_moved) = (number, is_moved || is_ready),
                "ttr" => own.ttr = number.max(1),
                _ => (own.delay, is_moved, until) = (number, true, (number > 0).then_some(self.now + number * SECOND)),
            }
        }
        if is_moved && is_buried {
            own.kicks += 1;
            own.attempts = 0;
        }
        match until {
            Some(until) => self.delay_job(job, until),
            None if is_moved => self.ready(job),
            None => {}
        }
        self.promise(id, "SET");
        self.serve();
    }

    pub(super) fn cancel(&mut self, id: usize, what: &str) {
        let meant = self.meant(what, |job| matches!(job.place, Place::Reserved(..)));
        if meant.is_empty() && what.parse::<u64>().is_ok() {
            return self.tell(id, None, "NOT_FOUND");
        }
        let name = &self.conns[&id].name;
        let who = if name.is_empty() { format!("client-{id}") } else { name.clone() };
        for job in &meant {
            self.jobs.remove(job);
            self.cancelled.insert(*job, who.clone());
        }
        self.serve();
        self.promise_count(id, "CANCELLED", meant.len());
    }
}
