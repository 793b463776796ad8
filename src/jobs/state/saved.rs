//! Handover format of the state, one record after the other: settings, root jobs, tubes, connections and jobs. A store
//! gives the same records, without connections.

use super::commits::Commit;
use super::conns::{Conn, HeldJob, Wait};
use super::ids::TubeId;
use super::job::{Extra, Job, JobKey, JobPlacement, To, micros};
use super::rates::Starts;
use super::record::Record;
use super::roots::is_signature_of_key;
use super::sets::Watch;
use super::setting::Setting;
use super::sums::SumBy;
use super::tally::{Rates, Tally};
use super::tube::Tube;
use super::watches::Watches;
use super::{END_OF_IDS, END_OF_STORED_BATCHES, State, Step, Task};
use poolcounter_core::{ConnId, Count, Figures, Time};
use poolcounter_protocol::jobs::name::TubeName;
use poolcounter_protocol::jobs::values::Body;
use serde::{Deserialize, Serialize};

/// One record of a handover.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Saved<'a> {
    /// First record.
    Meta {
        /// Number of the next job.
        next_id: u64,
        /// Last committed batch.
        committed: Commit,
        /// True while puts are refused.
        is_draining: bool,
        /// Statistics, by name.
        figures: Vec<(String, u64)>,
    },
    /// A setting.
    Setting(Setting),
    /// Root job: its tube, its signature, its newest timestamp, and the time of its last change in microseconds since
    /// the start. The one with the oldest change is first.
    Root(&'a [u8], &'a [u8], u64, i64),
    /// State of a tube beyond its jobs.
    Tube(&'a [u8], Box<SavedTube>),
    /// Tally of the sums that are not followed, and the time of the next choice of followed ones. After all tubes.
    Others(SumBy, Box<Tally>, Time),
    /// Tally of a sum, of its tubes and of forgotten ones, and the puts and deletes from which it is followed, if it
    /// is. After [`Saved::Others`].
    Sum(SumBy, &'a [u8], Option<Box<Tally>>, Option<[u64; 2]>),
    /// A connection.
    Conn(ConnId, #[serde(borrow)] SavedConn<'a>),
    /// Job with its body, the time since which it is ready or held, its holder, its deadline, and whether it has begun.
    /// The body is missing if a store has it.
    Job(#[serde(borrow)] Record<'a>, &'a [u8], Option<Time>, Option<(ConnId, Time, bool)>),
    /// Waiting connection, the end of its wait, and the number of jobs it asked for. The connection that has waited
    /// longest is first.
    Wait(ConnId, Option<Time>, Option<u32>),
    /// Time since which the first ready job of a tube is ready, if the jobs are left in a store.
    ReadySince(&'a [u8], Time),
    /// Starts that count for a rate, behind the name of their log. After the settings.
    Starts(&'a [u8], Vec<Starts>),
}

/// State of a tube beyond its jobs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SavedTube {
    hidden: Option<Time>,
    totals: [Count; 3],
    tally: Tally,
}

/// State of a connection beyond its jobs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedConn<'a> {
    used: &'a [u8],
    watches: Vec<Watch>,
    name: &'a [u8],
    is_producer: bool,
    is_worker: bool,
    rates: Rates,
    failures: Count,
}

impl State {
    /// Finishes all commands under way, as saving requires.
    pub fn finish_commands(&mut self, step: &mut Step<'_, '_>) {
        while !self.is_settled() {
            step.timers.renew_budget();
            self.work(false, step);
        }
    }

    /// Returns whether no command is under way.
    pub fn is_settled(&self) -> bool {
        self.background.is_settled()
    }

    /// Visits everything that a handover contains. No command may be under way. Uncommitted puts are left out: their
    /// replies have not been sent. With `leaves_jobs`, root and unreserved jobs are read from the store.
    pub fn save(&self, leaves_jobs: bool, visit: &mut dyn FnMut(Saved<'_>)) {
        visit(Saved::Meta {
            next_id: self.next_id,
            committed: self.last_committed(),
            is_draining: self.is_draining,
            figures: self.figures.save(),
        });
        self.all_settings().for_each(|setting| visit(Saved::Setting(setting)));
        self.limits.rates.saved().for_each(|(log, starts)| visit(Saved::Starts(log, starts)));
        if !leaves_jobs {
            self.roots.iter().for_each(|(tube, signature, newest, at)| visit(Saved::Root(tube, signature, newest, at)));
        }
        let saved = |tube: &Tube| SavedTube { hidden: tube.hidden, totals: tube.totals(), tally: tube.tally.clone() };
        self.tubes.iter().for_each(|(_, tube)| visit(Saved::Tube(&tube.name, Box::new(saved(tube)))));
        let sums = &self.tubes.sums;
        for by in SumBy::ALL {
            visit(Saved::Others(by, Box::new(sums.others(by).clone()), sums.next_choice));
        }
        for sum in sums.to_save() {
            let own = sum.own.as_ref().map(|own| Box::new(own.tally.clone()));
            visit(Saved::Sum(sum.by, self.tubes.part(sum).name, own, sum.followed_from.as_deref().copied()));
        }
        let conns = || self.conns.iter();
        conns().for_each(|(id, conn)| visit(Saved::Conn(id, self.saved_conn(conn))));
        match leaves_jobs {
            true => self.save_ready_since(visit),
            false => self.tubes.iter().for_each(|(_, tube)| self.save_jobs(tube, visit)),
        }
        for (id, conn) in conns() {
            for HeldJob { deadline, id: job, since, is_begun } in conn.held.iter().copied() {
                let key = self.jobs.find(job).expect("a connection holds only jobs that there are");
                let body = if leaves_jobs { b"" } else { self.jobs[key].body.bytes() };
                visit(Saved::Job(self.record(key), body, Some(since), Some((id, deadline, is_begun))));
            }
        }
        let mut waits: Vec<(Wait, ConnId)> = conns().filter_map(|(id, conn)| Some((conn.wait?, id))).collect();
        waits.sort_unstable_by_key(|(wait, _)| wait.ticket);
        waits.into_iter().for_each(|(wait, id)| visit(Saved::Wait(id, wait.until, wait.many)));
    }

    fn saved_conn<'a>(&'a self, conn: &'a Conn) -> SavedConn<'a> {
        SavedConn {
            used: &self.tubes[conn.used].name,
            watches: conn.watches.in_order().cloned().collect(),
            name: &conn.name,
            is_producer: conn.is_producer,
            is_worker: conn.is_worker,
            rates: conn.rates.clone(),
            failures: conn.failures,
        }
    }

    /// Visits the unreserved jobs of a tube, the waiting ones in their order.
    fn save_jobs(&self, tube: &Tube, visit: &mut dyn FnMut(Saved<'_>)) {
        let delayed = tube.delayed.iter().filter_map(|(_, id)| self.jobs.find(*id));
        for key in tube.waiting.iter(&self.jobs).chain(tube.buried.iter(&self.jobs)).chain(delayed) {
            let job = &self.jobs[key];
            let since = (job.place == JobPlacement::Ready).then_some(job.at);
            visit(Saved::Job(self.record(key), job.body.bytes(), since, None));
        }
    }

    /// Restores one record of a handover. Records come in the order in which they were visited.
    ///
    /// # Errors
    ///
    /// Fails if a record contradicts an earlier one.
    pub fn restore(&mut self, saved: Saved<'_>, step: &mut Step<'_, '_>) -> Result<(), &'static str> {
        match saved {
            Saved::Meta { next_id, committed, is_draining, figures } => {
                if next_id > END_OF_IDS {
                    return Err("the number of the next job is none");
                }
                if committed >= END_OF_STORED_BATCHES {
                    return Err("the number of the last batch is none");
                }
                (self.next_id, self.is_draining) = (next_id.max(1), is_draining);
                self.figures = Figures::default();
                self.figures.restore(&figures);
                self.restore_commits(committed);
            }
            Saved::Setting(setting) => self.restore_setting(setting, step.now, step.timers),
            Saved::Starts(log, starts) => self.restore_starts(log, starts, step),
            Saved::Root(tube, signature, newest, changed) => {
                // A store has a later time if the clock was set back. A key may be kept for longer than a root job.
                let changed = if is_signature_of_key(signature) { changed } else { changed.min(micros(step.now)) };
                self.roots.set(tube, signature, newest, changed, self.last_committed());
                self.arm_forget(step.timers);
            }
            Saved::Tube(name, saved) => self.restore_tube(name, &saved, step),
            Saved::Others(by, tally, next_choice) => self.tubes.sums.restore_others(by, *tally, next_choice),
            Saved::Sum(by, name, tally, followed) => self.tubes.restore_sum((by, name), tally, followed),
            Saved::Conn(id, saved) => self.restore_conn(id, saved)?,
            Saved::Job(record, body, since, held) => {
                self.restore_job(&record, Body::Own(body.into()), since, held, step)?;
            }
            Saved::Wait(id, until, many) => {
                if self.conns.get(id).is_none() {
                    return Err("a connection waits that is not there");
                }
                let set = self.enter_set(id);
                let ticket = self.sets.tickets.draw();
                self.begin_wait(id, set, Wait { ticket, until, many }, false);
                self.arm_conn(id, step.timers);
                self.go_on(Task::Serve, step);
            }
            Saved::ReadySince(tube, since) => {
                self.reading.iter_mut().for_each(|reading| _ = reading.ready_since.insert(tube.into(), since));
            }
        }
        Ok(())
    }

    fn restore_tube(&mut self, name: &[u8], saved: &SavedTube, step: &mut Step<'_, '_>) {
        let id = self.tube_in_any_case(name);
        self.tubes[id].set_totals(saved.totals);
        self.tubes.change_tally(id, |tally| *tally = saved.tally.clone());
        self.tubes.add(id, &saved.tally, step.now);
        if !self.tubes[id].is_unused() {
            return;
        }
        // It has no jobs, users and watchers yet; the first of them shows it again.
        self.tubes.hide(id, saved.hidden.unwrap_or(step.now));
        self.arm_forget(step.timers);
    }

    /// Returns the tube with this name for a job, a user or a watcher, and keeps its counts.
    fn restored_tube(&mut self, name: &[u8]) -> TubeId {
        let counted = self.tubes.find(name).map(|id| self.tubes[id].totals());
        let id = self.tube_in_any_case(name);
        self.tubes[id].set_totals(counted.unwrap_or_default());
        id
    }

    fn restore_conn(&mut self, id: ConnId, saved: SavedConn<'_>) -> Result<(), &'static str> {
        if saved.watches.is_empty() {
            return Err("a connection has no watch");
        }
        let used = self.restored_tube(saved.used);
        self.tubes[used].using += 1;
        for watch in saved.watches.iter().filter(|watch| !watch.pattern.contains(&b'*')) {
            let tube = self.restored_tube(&watch.pattern);
            self.tubes[tube].watching += 1;
        }
        let patterns = saved.watches.iter().filter(|watch| watch.pattern.contains(&b'*'));
        patterns.for_each(|watch| self.feeds.by_pattern.hold(&watch.pattern));
        let watches = Watches::new(saved.watches);
        let is_new = saved.name.is_empty() && saved.rates == Rates::default() && !saved.is_producer && !saved.is_worker;
        if is_new && saved.used == TubeName::DEFAULT.bytes() && watches.sorted == Watches::of_default().sorted {
            self.conns.insert_idle(id, used);
            return Ok(());
        }
        let conn = self.conns.insert(id, used, watches);
        conn.name = saved.name.into();
        (conn.rates, conn.failures) = (saved.rates, saved.failures);
        if saved.is_producer {
            self.conns.note_producer(id);
        }
        if saved.is_worker {
            self.conns.note_worker(id);
        }
        Ok(())
    }

    /// Adds a job of a handover or a store.
    pub fn restore_job(
        &mut self,
        record: &Record<'_>,
        body: Body,
        since: Option<Time>,
        held: Option<(ConnId, Time, bool)>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), &'static str> {
        if !(1..END_OF_IDS).contains(&record.id.0) {
            return Err("no job has such a number");
        }
        let root = record.root.map_or(0, |(signature, _)| signature.len());
        if record.key.len().max(root) > usize::from(u8::MAX) {
            return Err("its key or its root job is longer than any");
        }
        if self.jobs.find(record.id).is_some() {
            return Err("a job is there twice");
        }
        let tube = self.restored_tube(record.tube);
        let group = (!record.group.is_empty()).then(|| self.limits.join_group(record.group, &self.settings));
        let extra = Extra {
            key: record.key,
            until: record.until,
            root: record.root,
            group,
            history: record.history,
            origin: record.origin,
            error: record.error,
        };
        let mut job = Job::new(record.id, tube, body);
        (job.pri, job.delay, job.ttr) = (record.pri, record.delay, record.ttr.max(1));
        (job.created, job.reserves, job.is_stored) = (record.created, record.reserves, true);
        let key = self.jobs.insert(job, extra.encode());
        if held.is_some() {
            self.reading.iter_mut().for_each(|reading| _ = reading.bodiless.insert(record.id));
        }
        self.next_id = self.next_id.max(record.id.0 + 1);
        let to = match (held, record.delayed) {
            (Some((conn, ..)), _) if self.conns.get(conn).is_none() => To::Ready,
            (Some((conn, _, is_begun)), _) => To::Reserved(conn, is_begun),
            (None, _) if record.is_buried => To::Buried,
            (None, Some(until)) => To::Delayed(until),
            (None, None) => To::Ready,
        };
        self.move_job(key, to, step);
        match (to, held) {
            (To::Reserved(conn, _), Some((_, deadline, _))) => {
                self.set_deadline(conn, key, (since.unwrap_or(step.now), deadline), step);
            }
            // A reserved job without its connection is ready from now on.
            (To::Ready, None) => {
                // As with root jobs.
                self.jobs[key].at = since.unwrap_or(step.now).min(step.now);
                self.tubes.note_first_ready(tube, &self.jobs);
            }
            (To::Buried, _) => {
                self.forget_burial(key, step.timers);
                self.jobs[key].at = record.delayed.unwrap_or(step.now);
                self.note_burial(key, step.timers);
            }
            _ => {}
        }
        Ok(())
    }

    fn set_deadline(&mut self, conn: ConnId, key: JobKey, (since, deadline): (Time, Time), step: &mut Step<'_, '_>) {
        let (id, old) = (self.jobs[key].id, std::mem::replace(&mut self.jobs[key].at, deadline));
        let conn_of = &mut self.conns[conn];
        let held = conn_of.held.remove_by(|held| held.place((old, id))).expect("it has just been given to it");
        conn_of.held.insert(HeldJob { deadline, since, ..held });
        conn_of.is_in_order = false;
        self.arm_conn(conn, step.timers);
    }
}
