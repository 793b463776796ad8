//! Effects of the requests.

use super::{Backoff, Job, Jobs, Place, SECOND, Schedule, USUAL, by_literalness, matches};
use poolcounter_core::Span;

impl Jobs {
    /// Serves one request: a line, with a body behind it if it has one.
    pub fn request(&mut self, id: usize, text: &str) {
        let (head, body) = text.split_once("\r\n").unwrap_or((text, ""));
        let words: Vec<&str> = head.split(' ').collect();
        if !matches!(words[0], "put" | "put-job" | "put-many" | "delete" | "touch" | "begin")
            && !words[0].starts_with("reserve")
        {
            self.turns.clear();
        }
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        match words[0] {
            "put" | "put-job" | "put-many" | "schedule-put" if self.is_full => self.tell(id, None, "OUT_OF_MEMORY"),
            "put" | "put-job" => self.put(id, &words, body),
            "put-many" => {
                self.conn(id).produces = true;
                let first = self.conns[&id].told.len();
                let lines: Vec<&str> = body.split("\r\n").collect();
                for put in lines.chunks(2) {
                    self.put(id, &put[0].split(' ').collect::<Vec<_>>(), put[1]);
                }
                self.hold_together(id, first);
            }
            "use" => {
                self.conn(id).used = words[1].into();
                self.tell(id, None, &format!("USING {}", words[1]));
            }
            "reserve" => self.reserve(id, None, None),
            "reserve-with-timeout" => self.reserve(id, Some(number(1)), None),
            "reserve-many" => self.reserve(id, Some(number(2)), Some(number(1))),
            "reserve-job" => self.reserve_this(id, number(1)),
            "delete" => self.delete(id, number(1)),
            "release" => self.release(id, number(1), number(2), number(3)),
            "bury" => self.bury(id, number(1), number(2)),
            "touch" => self.touch(id, number(1)),
            "begin" => {
                let job = number(1);
                if self.holds(id, job) {
                    self.job(job).is_begun = true;
                    self.tell(id, None, "BEGUN");
                }
            }
            "fail" => self.fail(id, number(1), number(2), number(3), body),
            "watch" => self.watch(id, words[1], words.get(2).map(|weight| weight.parse().expect("a weight"))),
            "ignore" => self.ignore(id, words[1]),
            "kick" => self.kick(id, number(1)),
            "kick-job" => self.kick_job(id, number(1)),
            "kick-all" => {
                let which = words.get(2).copied();
                let is_meant = |job: &Job| match job.place {
                    Place::Buried(_) => which != Some("delayed"),
                    Place::Delayed(_) => which != Some("buried"),
                    Place::Ready => job.origin.is_some() && which != Some("delayed"),
                    _ => false,
                };
                let kicked = self.in_order(|job| is_meant(job) && matches(words[1], &job.tube));
                kicked.iter().for_each(|job| self.kick_one(*job));
                self.promise_count(id, "KICKED", kicked.len());
            }
            "move" => self.move_jobs(id, words[1], words[2], words.get(3).copied()),
            "set-job" => self.set_job(id, number(1), &words[2..]),
            "cancel" => self.cancel(id, words[1]),
            "clear" => self.clear(id, words[1], words.get(2).copied()),
            "pause-tube" => match self.tubes.get_mut(words[1]).filter(|tube| tube.hidden.is_none()) {
                Some(tube) => {
                    tube.pauses += 1;
                    self.tube_pauses.insert(words[1].into());
                    self.pause(id, words[1], number(2));
                }
                None => self.tell(id, None, "NOT_FOUND"),
            },
            "pause-all" => {
                self.tube_pauses.remove(words[1]);
                self.pause(id, words[1], number(2));
            }
            "root" => self.root(id, words[1], words[2], number(3)),
            "identify" => {
                self.conn(id).name = words[1].into();
                self.tell(id, None, &format!("IDENTIFIED {}", words[1]));
            }
            "limit" if words.get(3) == Some(&"per") => {
                self.rate(id, words[1], (number(2), number(4)), words.get(5) == Some(&"all"));
            }
            "limit" => self.limit(id, words[1], number(2), words.get(3).copied()),
            "retry" => {
                let decimal = |at: usize| words[at].parse::<f64>().expect("a decimal");
                let backoff = Backoff { attempts: number(2), first: decimal(3), factor: decimal(4), max: decimal(5) };
                self.backoffs.insert(words[1].into(), backoff);
                self.promise(id, "RETRY");
            }
            "schedule-put" => self.schedule_put(id, head, body),
            "schedule-delete" => match self.schedules.remove(words[1]) {
                Some(_) => self.promise(id, "DELETED"),
                None => self.tell(id, None, "NOT_FOUND"),
            },
            "dead-letter" => match words.get(2) {
                Some(tube) => {
                    self.dead_letters.insert(words[1].into(), (*tube).into());
                    self.promise(id, &format!("DEAD_LETTER {tube}"));
                }
                None => {
                    self.dead_letters.remove(words[1]);
                    self.promise(id, "DEAD_LETTER");
                }
            },
            "drain" => {
                self.is_draining = true;
                self.tell(id, None, "DRAINING");
            }
            "undrain" => {
                self.is_draining = false;
                self.tell(id, None, "ACCEPTING");
            }
            _ => self.query(id, &words),
        }
        self.see_to_tubes();
    }

    fn put(&mut self, id: usize, words: &[&str], body: &str) {
        self.conn(id).produces = true;
        if self.is_draining {
            return self.tell(id, None, "DRAINING");
        }
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        let option = |name: &str| words[5..].iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let tube = option("tube").unwrap_or(&self.conns[&id].used).to_string();
        let root = option("root").zip(option("root-ts"));
        let root = root.map(|(signature, at)| (signature.to_string(), at.parse::<u64>().expect("a timestamp")));
        let key = option("key").unwrap_or_default().to_string();
        if let Some((signature, timestamp)) = &root
            && let Some((newest, _, commit)) = self.roots.get(&(tube.clone(), signature.clone())).copied()
            && newest > *timestamp
        {
            self.note(&tube, 0, 1);
            return self.tell(id, Some(commit), "SUPERSEDED");
        }
        let job = Job {
            tube,
            body: body.into(),
            pri: number(1),
            delay: number(2),
            ttr: number(3).max(1),
            key,
            until_deleted: option("until") == Some("deleted"),
            keep: option("for").map_or(0, |seconds| seconds.parse::<u64>().expect("a number") * SECOND),
            root,
            group: option("group").unwrap_or_default().into(),
            ..self.new_job()
        };
        match self.insert(job) {
            Ok(job) => {
                self.conn(id).put = self.commit;
                self.promise(id, &format!("INSERTED {job}"));
            }
            Err((holder, after)) => {
                let conn = self.conn(id);
                conn.put = conn.put.max(after.unwrap_or(0));
                let is_buried = self.jobs.get(&holder).is_some_and(|job| matches!(job.place, Place::Buried(_)));
                self.tell(id, after, &format!("DUPLICATE {holder}{}", if is_buried { " buried" } else { "" }));
            }
        }
    }

    /// Puts a job, unless another holds its key, or the key is kept for another: then returns that, and the commit that
    /// has it.
    fn insert(&mut self, job: Job) -> Result<u64, (u64, Option<u64>)> {
        let (tube, key, root) = (job.tube.clone(), job.key.clone(), job.root.clone());
        let holders: Vec<Job> =
            self.jobs.values().filter(|job| !key.is_empty() && job.holds(&tube, &key)).cloned().collect();
        let gives_way = |job: &Job| {
            let is_older =
                |(own, at): &(String, u64)| root.as_ref().is_some_and(|(new, newer)| own == new && at < newer);
            let waits = matches!(job.place, Place::Pending(_) | Place::Ready | Place::Delayed(_));
            waits && (self.is_superseded(job) || job.root.as_ref().is_some_and(is_older))
        };
        let holder = holders.iter().find(|job| !gives_way(job));
        let holder =
            holder.map(|job| (job.id, if let Place::Pending(commit) = job.place { Some(commit) } else { None }));
        let kept = self.kept_keys.get(&(tube.clone(), key.clone())).filter(|(_, until, _)| *until > self.now);
        if let Some(known) = holder.or(kept.map(|(id, _, commit)| (*id, Some(*commit)))) {
            self.note(&tube, 1, 0);
            return Err(known);
        }
        if job.keep > 0 {
            self.kept_keys.insert((tube.clone(), key), (job.id, self.now + job.keep, self.commit));
        }
        if let Some((signature, timestamp)) = &root {
            self.raise(&tube, signature, *timestamp);
        }
        holders.iter().for_each(|holder| self.drop_superseded(holder.id));
        self.next_id += 1;
        self.total += 1;
        let tube = self.tubes.entry(job.tube.clone()).or_default();
        if tube.hidden.take().is_some() {
            (tube.total, tube.deletes, tube.pauses) = (0, 0, 0);
        }
        tube.total += 1;
        let id = job.id;
        self.jobs.insert(id, job);
        Ok(id)
    }

    fn schedule_put(&mut self, id: usize, line: &str, body: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let option = |name: &str| words[5..].iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let (name, tube) = (words[1].to_string(), option("tube").expect("it has one"));
        let own_key = format!("schedule:{name}");
        let (key, every) = (option("key").unwrap_or(&own_key).into(), option("every").expect("it has"));
        let every = every.parse::<u64>().expect("a number") * SECOND;
        let (line, body, tube, from) = (line.to_string(), body.to_string(), tube.into(), self.now);
        let old = self.schedules.get(&name);
        if old.is_none_or(|old| (&old.line, &old.body) != (&line, &body)) {
            let (last, skipped) = old.map_or((None, 0), |old| (old.last, old.skipped));
            self.schedules.insert(name, Schedule { line, body, tube, key, every, from, last, skipped });
        }
        self.promise(id, "SCHEDULED");
    }

    /// Puts a periodic job that is due.
    pub(super) fn put_periodic(&mut self, name: &str) {
        let mut schedule = self.schedules.remove(name).expect("it is there");
        let words: Vec<&str> = schedule.line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        schedule.from += schedule.every;
        let job = Job {
            tube: schedule.tube.clone(),
            body: schedule.body.clone(),
            pri: number(2),
            ttr: number(3).max(1),
            key: schedule.key.clone(),
            ..self.new_job()
        };
        if !self.is_draining && !self.is_full && self.insert(job).is_ok() {
            schedule.last = Some(schedule.from);
        } else {
            schedule.skipped += 1;
        }
        self.schedules.insert(name.into(), schedule);
    }

    fn new_job(&self) -> Job {
        let (created, since, place) = (self.now, self.now, Place::Pending(self.commit));
        Job { id: self.next_id, created, since, place, ..Job::default() }
    }

    fn raise(&mut self, tube: &str, signature: &str, timestamp: u64) {
        let (now, commit) = (self.now, self.commit);
        let root = self.roots.entry((tube.into(), signature.into())).or_insert((0, now, commit));
        if root.0 < timestamp {
            *root = (timestamp, now, commit);
        }
    }

    fn root(&mut self, id: usize, tube: &str, signature: &str, timestamp: u64) {
        match self.roots.get(&(tube.into(), signature.into())).copied() {
            Some((newest, _, commit)) if newest >= timestamp => self.tell(id, Some(commit), &format!("ROOT {newest}")),
            _ => {
                self.raise(tube, signature, timestamp);
                self.promise(id, &format!("ROOT {timestamp}"));
            }
        }
    }

    fn delete(&mut self, id: usize, job: u64) {
        let is_another = |job: &Job| matches!(job.place, Place::Reserved(conn, _) if conn != id);
        let found = self.jobs.get(&job).filter(|job| !matches!(job.place, Place::Pending(_)) && !is_another(job));
        if found.is_none() {
            return self.tell(id, None, "NOT_FOUND");
        }
        let job = self.jobs.remove(&job).expect("it was found");
        self.tubes.entry(job.tube).or_default().deletes += 1;
        self.promise(id, "DELETED");
        self.serve();
    }

    /// Returns whether a connection has reserved a job; replies NOT_FOUND if not.
    fn holds(&mut self, id: usize, job: u64) -> bool {
        let holds = self.held_by(id).iter().any(|(_, held)| *held == job);
        if !holds {
            self.tell(id, None, "NOT_FOUND");
        }
        holds
    }

    fn release(&mut self, id: usize, job: u64, pri: u64, delay: u64) {
        if !self.holds(id, job) {
            return;
        }
        let until = self.now + delay * SECOND;
        let own = self.job(job);
        (own.pri, own.delay) = (pri, delay);
        own.releases += 1;
        if delay > 0 {
            self.delay_job(job, until);
        } else {
            self.ready(job);
        }
        self.promise(id, "RELEASED");
        self.serve();
    }

    fn bury(&mut self, id: usize, job: u64, pri: u64) {
        if self.holds(id, job) {
            self.job(job).pri = pri;
            self.bury_job(job);
            self.promise(id, "BURIED");
            self.serve();
        }
    }

    fn touch(&mut self, id: usize, job: u64) {
        let is_named = !self.conns[&id].name.is_empty();
        if let Some(who) = self.cancelled.get(&job).filter(|_| is_named) {
            let text = format!("NOT_FOUND cancelled by {who}");
            self.tell(id, None, &text);
        } else if self.holds(id, job) {
            let now = self.now;
            let job = self.job(job);
            job.place = Place::Reserved(id, now + job.ttr * SECOND);
            self.tell(id, None, "TOUCHED");
        }
    }

    fn fail(&mut self, id: usize, job: u64, pri: u64, delay: u64, text: &str) {
        if !self.holds(id, job) {
            return;
        }
        let own = self.job(job);
        (own.pri, own.delay, own.error) = (pri, delay, text.into());
        own.releases += 1;
        let is_buried = self.end_attempt(job, USUAL, delay * SECOND);
        self.promise(id, if is_buried { "BURIED" } else { "RELEASED" });
        self.serve();
    }

    /// Ends a failed reservation. Returns whether that was the last attempt.
    pub(super) fn end_attempt(&mut self, id: u64, default: Backoff, least: u64) -> bool {
        self.job(id).attempts += 1;
        let Job { tube, attempts, .. } = self.jobs[&id].clone();
        let backoff = by_literalness(self.backoffs.keys(), &tube).first().map(|pattern| self.backoffs[*pattern]);
        let backoff = backoff.unwrap_or(default);
        if backoff.attempts > 0 && attempts >= backoff.attempts {
            self.give_up(id, &tube);
            return true;
        }
        let seconds = (backoff.first * backoff.factor.powf((attempts - 1) as f64)).min(backoff.max);
        let span = Span::from_micros((seconds * 1e6) as u64);
        let delay = self.jitter.as_mut().expect("is set").jitter(span, 90, 110).as_micros().max(least);
        if delay == 0 {
            self.ready(id);
        } else {
            self.job(id).delay = delay / SECOND;
            let until = self.now + delay;
            self.delay_job(id, until);
        }
        false
    }

    fn give_up(&mut self, id: u64, tube: &str) {
        let dead =
            by_literalness(self.dead_letters.keys(), tube).first().map(|pattern| self.dead_letters[*pattern].clone());
        let Some(dead) = dead.filter(|_| self.job(id).origin.is_none()) else { return self.bury_job(id) };
        self.dead += 1;
        let now = self.now;
        let job = self.job(id);
        job.origin = Some((job.tube.clone(), job.attempts, now));
        self.change_tube(id, dead);
        self.ready(id);
    }

    pub(super) fn change_tube(&mut self, id: u64, name: String) {
        let job = self.job(id);
        (job.tube, job.attempts) = (name.clone(), 0);
        let tube = self.tubes.entry(name).or_default();
        if tube.hidden.take().is_some() {
            (tube.total, tube.deletes, tube.pauses) = (0, 0, 0);
        }
        tube.total += 1;
    }

    pub(super) fn ready(&mut self, id: u64) {
        let now = self.now;
        let job = self.job(id);
        (job.place, job.since) = (Place::Ready, now);
    }

    pub(super) fn delay_job(&mut self, id: u64, until: u64) {
        self.job(id).place = Place::Delayed(until);
    }

    fn bury_job(&mut self, id: u64) {
        let order = self.next_burial;
        self.next_burial += 1;
        let job = self.job(id);
        job.buries += 1;
        job.place = Place::Buried(order);
    }

    fn watch(&mut self, id: usize, pattern: &str, weight: Option<u64>) {
        let watches = &mut self.conn(id).watches;
        match watches.iter_mut().find(|(own, _)| own == pattern) {
            Some(watch) => watch.1 = weight,
            None => watches.push((pattern.into(), weight)),
        }
        let count = watches.len();
        self.tell(id, None, &format!("WATCHING {count}"));
    }

    fn ignore(&mut self, id: usize, pattern: &str) {
        let watches = &mut self.conn(id).watches;
        if watches.iter().any(|(own, _)| own == pattern) && watches.len() == 1 {
            return self.tell(id, None, "NOT_IGNORED");
        }
        watches.retain(|(own, _)| own != pattern);
        let count = watches.len();
        self.tell(id, None, &format!("WATCHING {count}"));
    }

    /// Returns the numbers of jobs, the buried ones first, each in the order in which they would be kicked.
    pub(super) fn in_order(&self, is_meant: impl Fn(&Job) -> bool) -> Vec<u64> {
        let meant = self.jobs.values().filter(|job| is_meant(job));
        let rank = |job: &Job| match job.place {
            Place::Buried(order) => (0, order, job.id),
            Place::Ready if job.origin.is_some() => (1, 0, job.id),
            _ => (2, job.at(), job.id),
        };
        let mut jobs: Vec<_> = meant.map(|job| (job.tube.clone(), rank(job))).collect();
        jobs.sort_unstable();
        jobs.into_iter().map(|(_, (_, _, id))| id).collect()
    }

    fn kick(&mut self, id: usize, bound: u64) {
        let used = self.conns[&id].used.clone();
        let has_given_up =
            |job: &Job| matches!(job.place, Place::Buried(_)) || job.place == Place::Ready && job.origin.is_some();
        let buried = self.in_order(|job| job.tube == used && has_given_up(job));
        let delayed = self.in_order(|job| job.tube == used && matches!(job.place, Place::Delayed(_)));
        let mut kicked = if buried.is_empty() { delayed } else { buried };
        kicked.truncate(bound as usize);
        kicked.iter().for_each(|job| self.kick_one(*job));
        self.promise_count(id, "KICKED", kicked.len());
    }

    fn kick_job(&mut self, id: usize, job: u64) {
        let waits = self.jobs.get(&job).is_some_and(|job| match job.place {
            Place::Buried(_) | Place::Delayed(_) => true,
            place => place == Place::Ready && job.origin.is_some(),
        });
        if !waits {
            return self.tell(id, None, "NOT_FOUND");
        }
        self.kick_one(job);
        self.promise(id, "KICKED");
    }

    fn kick_one(&mut self, id: u64) {
        let job = self.job(id);
        job.kicks += 1;
        job.attempts = 0;
        if let Some((tube, ..)) = job.origin.take() {
            self.change_tube(id, tube);
        }
        self.ready(id);
        self.serve();
    }

    fn clear(&mut self, id: usize, pattern: &str, state: Option<&str>) {
        let is_meant = |job: &Job| match job.place {
            Place::Ready => state.is_none_or(|state| state == "ready"),
            Place::Delayed(_) => state.is_none_or(|state| state == "delayed"),
            Place::Buried(_) => state.is_none_or(|state| state == "buried"),
            Place::Pending(_) | Place::Reserved(..) => false,
        };
        let cleared = self.in_order(|job| matches(pattern, &job.tube) && is_meant(job));
        cleared.iter().for_each(|job| drop(self.jobs.remove(job)));
        self.serve();
        self.promise_count(id, "CLEARED", cleared.len());
    }

    /// Replies with a count, which waits for the commit only if it is not 0.
    pub(super) fn promise_count(&mut self, id: usize, word: &str, count: usize) {
        let text = format!("{word} {count}");
        if count > 0 { self.promise(id, &text) } else { self.tell(id, None, &text) }
    }

    fn pause(&mut self, id: usize, pattern: &str, seconds: u64) {
        if seconds > 0 {
            self.pauses.insert(pattern.into(), (self.now + seconds * SECOND, seconds));
        } else {
            self.pauses.remove(pattern);
        }
        self.serve();
        self.promise(id, "PAUSED");
    }

    /// Sets a rate. If it changes, the starts of what it covers do not count any more.
    fn rate(&mut self, id: usize, of: &str, rate: (u64, u64), is_all: bool) {
        let own = |jobs: &Jobs| {
            let of_tube = |tube: &String| jobs.rates_of(tube).into_iter().find(|(_, log, _)| log.0 == "tube");
            let tubes: Vec<_> =
                jobs.tubes.keys().map(|tube| (("tube", tube.clone()), of_tube(tube).map(|of| of.2))).collect();
            let groups = jobs.jobs.values().map(|job| (("group", job.group.clone()), jobs.rate_of_group(&job.group)));
            tubes.into_iter().chain(groups).collect::<std::collections::BTreeMap<_, _>>()
        };
        let before = own(self);
        match of.strip_prefix("group:") {
            Some(group) => drop(self.group_rates.insert(group.into(), rate)),
            None => {
                let new = (rate.0, rate.1, is_all && rate.0 > 0);
                if self.rates.insert(of.into(), new) != Some(new) {
                    self.starts.remove(&("pattern", of.into()));
                }
            }
        }
        for (log, rate) in own(self) {
            if before.get(&log) != Some(&rate) {
                self.starts.remove(&log);
            }
        }
        let text = format!("LIMIT {}", rate.0);
        self.serve();
        self.promise(id, &text);
    }

    fn limit(&mut self, id: usize, of: &str, most: u64, how: Option<&str>) {
        let (is_all, is_ordered) = (how == Some("all"), how == Some("ordered"));
        match of.strip_prefix("group:") {
            Some(group) => drop(self.group_limits.insert(group.into(), (most, is_ordered))),
            None => drop(self.limits.insert(of.into(), (most, is_all))),
        }
        let text = format!("LIMIT {most}");
        // The order of this reply and of replies to other connections does not show.
        self.serve();
        self.promise(id, &text);
    }
}

impl Job {
    /// Returns whether it blocks other jobs with its key.
    fn holds(&self, tube: &str, key: &str) -> bool {
        let waits = matches!(self.place, Place::Pending(_) | Place::Ready | Place::Delayed(_));
        self.tube == tube && self.key == key && (waits || self.until_deleted)
    }
}
