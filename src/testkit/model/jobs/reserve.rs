//! Assignment of jobs to connections.

use super::{Job, Jobs, Place, SECOND, Wait, by_literalness, matches};
use std::collections::BTreeSet;

/// Name of the starts that a rate counts.
type Log = (&'static str, String);

impl Jobs {
    pub(super) fn reserve(&mut self, id: usize, timeout: Option<u64>, many: Option<u64>) {
        self.conn(id).works = true;
        if let Some(job) = self.next_job(id) {
            return self.give(id, job, many);
        }
        if self.is_deadline_soon(id) {
            return self.tell(id, None, "DEADLINE_SOON");
        }
        if timeout == Some(0) {
            return self.tell(id, None, "TIMED_OUT");
        }
        let until = timeout.map(|seconds| self.now + seconds * SECOND);
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.conn(id).wait = Some(Wait { ticket, until, many });
    }

    pub(super) fn reserve_this(&mut self, id: usize, job: u64) {
        self.conn(id).works = true;
        let found = self.jobs.get(&job).filter(|job| !matches!(job.place, Place::Pending(_) | Place::Reserved(..)));
        let Some(found) = found.cloned() else { return self.tell(id, None, "NOT_FOUND") };
        if self.is_superseded(&found) && !matches!(found.place, Place::Buried(_)) {
            self.drop_superseded(job);
            self.tell(id, None, "NOT_FOUND");
            return self.serve();
        }
        if self.is_held_back(&found) {
            return self.tell(id, None, "NOT_FOUND");
        }
        self.take_hint(id, job);
        self.hand_out(id, job, true);
    }

    /// Gives jobs to waiting connections, the longest wait first, as long as there are any.
    pub(super) fn serve(&mut self) {
        loop {
            let mut waiting: Vec<(u64, usize)> =
                self.conns.iter().filter_map(|(id, conn)| Some((conn.wait?.ticket, *id))).collect();
            waiting.sort_unstable();
            let Some((id, job)) = waiting.into_iter().find_map(|(_, id)| Some((id, self.next_job(id)?))) else {
                return;
            };
            let wait = self.conn(id).wait.take().expect("it waits");
            self.give(id, job, wait.many);
        }
    }

    fn give(&mut self, id: usize, first: u64, many: Option<u64>) {
        self.hand_out(id, first, many.is_none());
        self.note_turn(first);
        for _ in 1..many.unwrap_or(1) {
            let Some(job) = self.next_job(id) else { break };
            self.hand_out(id, job, false);
            self.note_turn(job);
        }
        if many.is_some() {
            self.tell(id, None, "END");
        }
    }

    fn hand_out(&mut self, id: usize, job: u64, is_begun: bool) {
        let (now, number) = (self.now, self.next_reservation);
        let conn = self.conn(id);
        conn.last_reserved = now.max(conn.last_reserved + 1);
        let reserved_at = conn.last_reserved;
        self.next_reservation += 1;
        let job = self.job(job);
        job.reserves += 1;
        job.place = Place::Reserved(id, now + job.ttr * SECOND);
        (job.reservation, job.reserved_at, job.is_begun) = (number, reserved_at, is_begun);
        let (tube, group) = (job.tube.clone(), job.group.clone());
        let text = format!("RESERVED {} {} {}", job.id, job.body.len(), job.body);
        self.tell(id, None, text.trim_end());
        let rates = self.rates_of(&tube).into_iter().map(|(_, log, rate)| (log, rate));
        let of_group = self.rate_of_group(&group).map(|rate| (("group", group), rate));
        for (log, (_, per)) in rates.chain(of_group).collect::<Vec<_>>() {
            self.starts.entry(log).or_default().push_back(now + per * SECOND);
        }
        let waiting = self.waiting();
        self.turns.retain(|job, _| waiting.contains(job));
    }

    /// Returns the job that a connection would get now. Superseded ones on the way to it are dropped.
    fn next_job(&mut self, id: usize) -> Option<u64> {
        let watches = self.conns[&id].watches.clone();
        let is_fair = watches.iter().any(|(pattern, weight)| pattern.contains('*') || weight.is_some());
        loop {
            let eligible: Vec<Job> = self.jobs.values().filter(|job| self.may_have(&watches, job)).cloned().collect();
            let pri = eligible.iter().map(|job| job.pri).min()?;
            let level: Vec<&Job> = eligible.iter().filter(|job| job.pri == pri).collect();
            let live = level.iter().filter(|job| !self.is_superseded(job)).count();
            if !is_fair || live == 0 {
                let first = level.iter().min_by_key(|job| job.id)?;
                if self.is_superseded(first) {
                    self.drop_superseded(first.id);
                    continue;
                }
                self.take_hint(id, first.id);
                return Some(first.id);
            }
            return Some(self.take_turn(id, &watches, &level));
        }
    }

    /// Returns the daemon's choice among tubes that take turns, after checking it.
    fn take_turn(&mut self, id: usize, watches: &[(String, Option<u64>)], level: &[&Job]) -> u64 {
        let chosen = self.hints.get_mut(&id).and_then(std::collections::VecDeque::pop_front);
        let chosen = chosen.unwrap_or_else(|| panic!("{id} got no job, and there are {level:?}"));
        let job = level.iter().find(|job| job.id == chosen).unwrap_or_else(|| panic!("{id} may not have {chosen}"));
        let of_tube = level.iter().filter(|other| other.tube == job.tube && other.id < chosen);
        for earlier in of_tube {
            assert!(self.is_superseded(earlier), "{} is before {chosen} in its tube", earlier.id);
            self.drop_superseded(earlier.id);
        }
        let covering = watches.iter().filter(|(pattern, _)| matches(pattern, &job.tube));
        let is_first = |pattern: &str| {
            let mut others = level.iter().filter(|other| other.tube != job.tube && matches(pattern, &other.tube));
            others.all(|other| self.is_superseded(other) || !self.has_passed(&job.tube, other.id))
        };
        let mut covering = covering.map(|(pattern, _)| pattern.as_str());
        assert!(covering.any(is_first), "{} has a second turn while other tubes wait for the first", job.tube);
        let passed = level.iter().filter(|other| other.tube != job.tube && self.is_superseded(other));
        self.passed.extend(passed.map(|other| other.id).collect::<Vec<_>>());
        chosen
    }

    fn has_passed(&self, tube: &str, waiting: u64) -> bool {
        self.turns.get(&waiting).is_some_and(|tubes| tubes.contains(tube))
    }

    /// Notes that a tube has had a turn while other jobs of the same priority wait for one.
    fn note_turn(&mut self, job: u64) {
        let Job { tube, pri, .. } = self.jobs[&job].clone();
        let waiting = self.waiting();
        for other in waiting.iter().map(|id| &self.jobs[id]).filter(|other| other.tube != tube && other.pri == pri) {
            self.turns.entry(other.id).or_default().insert(tube.clone());
        }
        self.turns.retain(|waiting, _| self.jobs[waiting].tube != tube);
    }

    /// Returns the jobs that wait for a turn: no pause, limit or better job of their tubes keeps them from it.
    fn waiting(&self) -> BTreeSet<u64> {
        let is_free = |job: &&Job| {
            let is_paused = !by_literalness(self.pauses.keys(), &job.tube).is_empty();
            job.place == Place::Ready && !is_paused && !self.is_held_back(job)
        };
        let free: Vec<&Job> = self.jobs.values().filter(is_free).collect();
        let is_best = |job: &&&Job| free.iter().all(|other| other.tube != job.tube || other.pri >= job.pri);
        free.iter().filter(is_best).map(|job| job.id).collect()
    }

    pub(super) fn take_hint(&mut self, id: usize, job: u64) {
        if self.is_guided {
            let hint = self.hints.get_mut(&id).and_then(std::collections::VecDeque::pop_front);
            assert_eq!(hint, Some(job), "what {id} gets");
        }
    }

    fn may_have(&self, watches: &[(String, Option<u64>)], job: &Job) -> bool {
        job.place == Place::Ready
            && watches.iter().any(|(pattern, _)| matches(pattern, &job.tube))
            && by_literalness(self.pauses.keys(), &job.tube).is_empty()
            && !self.is_held_back(job)
    }

    /// Returns whether a limit of its tube or group is reached.
    pub(super) fn is_held_back(&self, job: &Job) -> bool {
        let reserved = |is_meant: &dyn Fn(&Job) -> bool| {
            self.jobs.values().filter(|job| matches!(job.place, Place::Reserved(..)) && is_meant(job)).count() as u64
        };
        for (place, pattern) in by_literalness(self.limits.keys(), &job.tube).into_iter().enumerate() {
            match self.limits[pattern] {
                // A limit of 0 exempts the tube from less literal patterns.
                (0, _) => break,
                (most, true) if reserved(&|other| matches(pattern, &other.tube)) >= most => return true,
                (most, false) if place == 0 && reserved(&|other| other.tube == job.tube) >= most => return true,
                _ => {}
            }
        }
        let is_full = |(log, (most, _)): (Log, (u64, u64))| self.started(&log) >= most;
        let mut rates = self.rates_of(&job.tube).into_iter().filter(|(holds, ..)| *holds);
        let of_group = self.rate_of_group(&job.group).map(|rate| (("group", job.group.clone()), rate));
        if rates.any(|(_, log, rate)| is_full((log, rate))) || of_group.is_some_and(is_full) {
            return true;
        }
        let most = self.group_limits.get(&job.group).or_else(|| self.group_limits.get("*"));
        let Some((most, is_ordered)) = most.copied().filter(|_| !job.group.is_empty()) else { return false };
        let waits_again =
            |other: &&Job| other.group == job.group && other.reserves > 0 && matches!(other.place, Place::Delayed(_));
        is_ordered && self.jobs.values().any(|other| waits_again(&other))
            || most > 0 && reserved(&|other| other.group == job.group) >= most
    }

    /// Returns the number of starts that count.
    pub(super) fn started(&self, log: &Log) -> u64 {
        self.starts.get(log).map_or(0, |starts| starts.len() as u64)
    }

    /// Returns the rates that count the starts of a tube, whether they hold its jobs back, and their logs.
    pub(super) fn rates_of(&self, tube: &str) -> Vec<(bool, Log, (u64, u64))> {
        let (mut all, mut holds) = (Vec::new(), true);
        for (place, pattern) in by_literalness(self.rates.keys(), tube).into_iter().enumerate() {
            match self.rates[pattern] {
                (0, ..) => holds = false,
                (most, per, true) => all.push((holds, ("pattern", pattern.clone()), (most, per))),
                (most, per, false) if place == 0 => all.push((true, ("tube", tube.into()), (most, per))),
                _ => {}
            }
        }
        all
    }

    pub(super) fn rate_of_group(&self, group: &str) -> Option<(u64, u64)> {
        let rate = self.group_rates.get(group).or_else(|| self.group_rates.get("*")).copied();
        rate.filter(|(most, _)| *most > 0 && !group.is_empty())
    }

    /// Returns whether there is a newer root job than that of a leaf.
    pub(super) fn is_superseded(&self, job: &Job) -> bool {
        let Some((signature, timestamp)) = &job.root else { return false };
        let root = self.roots.get(&(job.tube.clone(), signature.clone()));
        root.is_some_and(|(newest, ..)| newest > timestamp)
    }

    pub(super) fn drop_superseded(&mut self, id: u64) {
        let job = self.jobs.remove(&id).expect("is there");
        assert!(self.is_superseded(&job), "{id} was dropped, and is not superseded");
        self.note(&job.tube, 0, 1);
    }
}
