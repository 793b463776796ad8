//! Connections: the tube that each uses, its watches, its jobs and its wait.

mod table;

pub(super) use table::Conns;

use super::background::{COST, DUE_COST, Task};
use super::ids::{SetId, SweepId, TubeId};
use super::job::{JobId, JobKey};
use super::tally::Rates;
use super::watches::Watches;
use super::{Reply, State, Step, TUBE_BYTES, TubeName};
use poolcounter_core::{ConnId, Count, Sorted, Span, Time, TimerId, Timers};
use poolcounter_service::access::Holds;
use std::cmp::Ordering;

/// A connection that waits for a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wait {
    /// Number of the wait; the lowest has waited longest.
    pub ticket: u64,
    pub until: Option<Time>,
    /// Number of jobs for a reserve of many; None for one job.
    pub many: Option<u32>,
}

/// A reserved job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct HeldJob {
    /// End of its TTR.
    pub deadline: Time,
    pub id: JobId,
    /// Time of its reservation, which no two jobs of a connection share.
    pub since: Time,
    /// False if it was reserved ahead, and its runner has not said `begin` yet.
    pub is_begun: bool,
}

/// Jobs that a connection holds, by the end of their TTR.
pub(super) type Held = Sorted<HeldJob>;

impl HeldJob {
    /// Returns its order relative to the job with this deadline and number.
    pub fn place(&self, other: (Time, JobId)) -> Ordering {
        (self.deadline, self.id).cmp(&other)
    }
}

/// A connection.
#[derive(Default)]
pub(super) struct Conn {
    /// Serial number, which differs among all connections that had the same id.
    pub serial: u32,
    pub used: TubeId,
    pub watches: Watches,
    /// Set of its watches; None if they have changed since its last reserve.
    pub set: Option<SetId>,
    pub held: Held,
    pub wait: Option<Wait>,
    pub timer: Option<TimerId>,
    /// Time of the last reservation, each of which has one of its own.
    pub last_reserved: Time,
    /// True while the TTRs of its jobs end in the order of their reservations.
    pub is_in_order: bool,
    pub sweep: Option<SweepId>,
    pub name: Box<[u8]>,
    pub is_producer: bool,
    pub is_worker: bool,
    pub rates: Rates,
    /// Number of its reservations that ended without the job being done.
    pub failures: Count,
}

impl Conn {
    /// Notes that it has a job from now on.
    pub fn hold(&mut self, (deadline, id): (Time, JobId), is_begun: bool, now: Time) {
        self.last_reserved = now.max(self.last_reserved + APART);
        let held = HeldJob { deadline, id, since: self.last_reserved, is_begun };
        self.is_in_order = self.held.last().is_none_or(|last| self.is_in_order && *last < held);
        self.held.insert(held);
    }

    /// Notes that the TTR of one of its jobs ends at another time.
    pub fn change_deadline(&mut self, old: (Time, JobId), new: (Time, JobId)) {
        let held = self.held.remove_by(|held| held.place(old)).expect("it holds the job");
        self.is_in_order = self.held.is_empty();
        self.held.insert(HeldJob { deadline: new.0, ..held });
    }

    /// Notes that one of its jobs has begun.
    pub fn begin(&mut self, job: (Time, JobId)) {
        let held = self.held.remove_by(|held| held.place(job)).expect("it holds the job");
        self.held.insert(HeldJob { is_begun: true, ..held });
    }

    /// Returns whether it has identified itself.
    pub fn is_identified(&self) -> bool {
        !self.name.is_empty()
    }

    /// Returns its job whose TTR ends first, and the time of that reservation.
    pub fn first_held(&self) -> Option<(JobId, Time)> {
        self.held.first().map(|held| (held.id, held.since))
    }
}

/// The last second of a TTR, in which its holder is warned.
pub(super) const SAFETY_MARGIN: Span = Span::from_secs(1);
const TICK: Span = Span::from_millis(1);
/// Distance of two reservations of one connection at least, so that their order is known.
const APART: Span = Span::from_micros(1);

impl State {
    /// Adds a connection, which uses and watches `default`. A connection that was added already stays as it is.
    pub fn open(&mut self, id: ConnId) {
        if self.conns.get(id).is_some() {
            return;
        }
        let name = TubeName::DEFAULT.bytes();
        // `default` has room in any case.
        let used = self.tube_in_any_case(name);
        let tube = &mut self.tubes[used];
        tube.using += 1;
        tube.watching += 1;
        self.conns.insert_idle(id, used);
    }

    /// Removes a connection: its jobs become ready again, or delayed or buried as `retry` says; very many of them in
    /// slices.
    pub fn close(&mut self, id: ConnId, step: &mut Step<'_, '_>) {
        if self.conns.get(id).is_none() {
            return;
        }
        if self.conns.is_idle(id) {
            // The tube `default` is never hidden.
            let default = &mut self.tubes[self.conns[id].used];
            default.using -= 1;
            default.watching -= 1;
            self.conns.remove(id);
            return;
        }
        self.stop_waiting(id);
        self.leave_set(id);
        if self.conns.orphan(id, step) {
            // Jobs of connections that ended before come first.
            self.give_orphans_back(true, step);
        }
        let Some(conn) = self.conns.remove(id) else { return };
        conn.timer.into_iter().for_each(|timer| step.timers.cancel(timer));
        if let Some(sweep) = conn.sweep {
            self.background.abandon(sweep);
        }
        self.tubes[conn.used].using -= 1;
        self.hide_if_unused(conn.used, step.now, step.timers);
        self.background.left_watches.push(conn.watches);
        self.unwatch_left(step);
    }

    /// Removes the watches of connections that have ended, within the slice.
    pub(super) fn unwatch_left(&mut self, step: &mut Step<'_, '_>) {
        while step.timers.spend(COST) {
            let Some(watches) = self.background.left_watches.last_mut() else { return };
            match watches.pop() {
                Some(watch) => self.unwatch_tube(&watch.pattern, step),
                None => drop(self.background.left_watches.pop()),
            }
        }
        if !self.background.left_watches.is_empty() {
            self.go_on(Task::Unwatch, step);
        }
    }

    /// Returns the bytes that the watches of a connection and their tubes take; none with the watch of `default` alone.
    pub fn watch_bytes_of(&self, id: ConnId) -> usize {
        let watches = self.conns.get(id).map(|conn| &conn.watches).filter(|watches| watches.sorted.len() > 1);
        watches.map_or(0, |watches| watches.bytes + (watches.sorted.len() - 1) * TUBE_BYTES)
    }

    /// Gives back jobs of connections that have ended, within the slice; none while too much waits for a commit, if
    /// `may_wait`.
    pub(super) fn give_orphans_back(&mut self, may_wait: bool, step: &mut Step<'_, '_>) {
        while !(may_wait && self.is_backed_up()) && step.timers.spend(COST) {
            if !self.conns.has_orphans() {
                return;
            }
            let Some(job) = self.conns.next_orphan() else { continue };
            // One that was deleted meanwhile is none any more.
            if let Some(key) = self.jobs.find(job) {
                self.lose_reservation(key, step);
            }
            self.conns.forget_orphans();
            self.serve_waiting(step);
        }
        if self.conns.has_orphans() {
            self.go_on(Task::Orphans, step);
        }
    }

    /// Ends the wait of a connection whose peer sends no more.
    pub fn hang_up(&mut self, id: ConnId, step: &mut Step<'_, '_>) {
        if self.stop_waiting(id).is_some() {
            step.reply(id, Reply::TimedOut);
        }
    }

    /// Ends the wait of a connection that may not wait any more, and returns whether it waited.
    pub fn deny_wait(&mut self, id: ConnId) -> bool {
        self.stop_waiting(id).is_some()
    }

    /// Returns true while a connection waits for the reply to its last request, other than for a commit.
    pub fn is_waiting(&self, id: ConnId) -> bool {
        self.conns.get(id).is_some_and(|conn| conn.wait.is_some() || conn.sweep.is_some())
    }

    /// Returns the number of jobs that a connection holds, and of its waits.
    pub fn holds(&self, id: ConnId) -> Holds {
        let Some(conn) = self.conns.get(id) else { return Holds::default() };
        // Lossless: fewer jobs fit into the memory.
        Holds { locks: conn.held.len() as u32, waits: u32::from(conn.wait.is_some()) }
    }

    /// Returns the name of the tube that a connection uses.
    pub fn used_tube(&self, id: ConnId) -> &[u8] {
        &self.tubes[self.conns[id].used].name
    }

    /// Returns whether a connection holds the job with this number.
    pub fn is_holder(&self, conn: ConnId, id: JobId) -> bool {
        self.conns.get(conn).is_some() && self.held_by(conn, id).is_some()
    }

    /// Returns the job with this number if the connection holds it.
    pub(super) fn held_by(&self, conn: ConnId, id: JobId) -> Option<JobKey> {
        self.jobs.find(id).filter(|key| self.is_held_by(conn, *key))
    }

    /// Returns true when the connection holds a job.
    pub(super) fn is_held_by(&self, conn: ConnId, key: JobKey) -> bool {
        let job = &self.jobs[key];
        job.place == super::job::JobPlacement::Reserved && job.holder() == (conn, self.conns[conn].serial)
    }

    /// Returns the reservation of a job, if it has one.
    pub(super) fn reservation_of(&self, key: JobKey) -> Option<HeldJob> {
        let job = &self.jobs[key];
        let (conn, serial) = (job.place == super::job::JobPlacement::Reserved).then(|| job.holder())?;
        self.conns.held(conn, serial)?.find_by(|held| held.place((job.at, job.id))).copied()
    }

    /// Ends a wait, and returns it.
    pub(super) fn stop_waiting(&mut self, id: ConnId) -> Option<Wait> {
        let wait = self.conns.get(id)?.wait?;
        let conn = &mut self.conns[id];
        conn.wait = None;
        let set = conn.set.expect("a connection that waits has a set of watches");
        self.sets.end_wait(set, id);
        Some(wait)
    }

    /// Returns true in the last second of the TTR of a job that the connection holds.
    pub(super) fn is_deadline_soon(&self, id: ConnId, now: Time) -> bool {
        self.conns[id].held.first().is_some_and(|held| held.deadline <= now + SAFETY_MARGIN)
    }

    /// Keeps the timer of a connection at its next deadline, or earlier.
    pub(super) fn arm_conn(&mut self, id: ConnId, timers: &mut Timers<'_, super::Timer>) {
        let conn = &mut self.conns[id];
        let deadline = conn.held.first().map(|held| held.deadline);
        let warning = |deadline: Time| Time::START + deadline.since(Time::START + SAFETY_MARGIN);
        let next = match conn.wait {
            None => deadline,
            Some(wait) => [deadline.map(warning), wait.until].into_iter().flatten().min(),
        };
        let Some(next) = next else { return };
        if conn.timer.as_ref().is_some_and(|timer| timers.deadline(timer) <= next + TICK) {
            return;
        }
        if let Some(timer) = conn.timer.take() {
            timers.cancel(timer);
        }
        conn.timer = Some(timers.arm(next, super::Timer::Conn(id)));
    }

    /// Handles a connection's timer: a TTR or its wait may have ended.
    pub(super) fn expire_conn(&mut self, id: ConnId, step: &mut Step<'_, '_>) {
        self.conns[id].timer.take().into_iter().for_each(TimerId::fired);
        self.end_wait_if_due(id, step);
        while let Some(HeldJob { deadline, id: job, .. }) = self.conns[id].held.first().copied()
            && deadline <= step.now
            && !self.commits.keeps_reserved
            && !self.is_backed_up()
            && step.timers.spend(DUE_COST)
        {
            let key = self.jobs.find(job).expect("a connection holds only jobs that there are");
            self.time_out(key, step);
            self.serve_waiting(step);
        }
        let is_behind = self.conns[id].held.first().is_some_and(|held| held.deadline <= step.now);
        if is_behind && self.conns[id].timer.is_none() {
            let timer = step.timers.arm(step.now + super::PAUSE_BETWEEN_SLICES, super::Timer::Conn(id));
            self.conns[id].timer = Some(timer);
        } else if self.conns[id].timer.is_none() {
            // A wait that could not be ended yet has its timer already, later than its deadline.
            self.arm_conn(id, step.timers);
        }
    }

    fn end_wait_if_due(&mut self, id: ConnId, step: &mut Step<'_, '_>) {
        let conn = &self.conns[id];
        let (Some(wait), Some(set)) = (conn.wait, conn.set) else { return };
        if self.is_later(set) {
            // The search for a job for it is not finished.
            self.conns[id].timer = Some(step.timers.arm(step.now + TICK, super::Timer::Conn(id)));
            return;
        }
        let reply = if self.is_deadline_soon(id, step.now) {
            Reply::DeadlineSoon
        } else if wait.until.is_some_and(|until| until <= step.now) {
            Reply::TimedOut
        } else {
            return;
        };
        self.stop_waiting(id);
        step.reply(id, reply);
    }
}
