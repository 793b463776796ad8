//! Queries, which change nothing. Of texts, the model returns only the lines that it can know.

use super::{Backoff, Job, Jobs, Place, SECOND, Schedule, by_literalness, matches, part_of};
use std::collections::BTreeMap;

impl Jobs {
    pub(super) fn query(&mut self, id: usize, words: &[&str]) {
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        let used = self.conns[&id].used.clone();
        let of_used = |is_meant: &dyn Fn(&Job) -> bool| self.in_order(|job| job.tube == used && is_meant(job));
        let found = match words[0] {
            "peek" => self.jobs.get(&number(1)).filter(|job| !matches!(job.place, Place::Pending(_))),
            "peek-ready" => {
                let ready = self.jobs.values().filter(|job| job.tube == used && job.place == Place::Ready);
                ready.min_by_key(|job| (job.pri, job.id))
            }
            "peek-delayed" => of_used(&|job| matches!(job.place, Place::Delayed(_))).first().map(|job| &self.jobs[job]),
            "peek-buried" => of_used(&|job| matches!(job.place, Place::Buried(_))).first().map(|job| &self.jobs[job]),
            _ => return self.text(id, words),
        };
        let text = found.map_or("NOT_FOUND".into(), |job| format!("FOUND {} {} {}", job.id, job.body.len(), job.body));
        self.tell(id, None, text.trim_end());
    }

    fn text(&mut self, id: usize, words: &[&str]) {
        let lines = match words[0] {
            "stats" => Some(self.stats()),
            "stats-job" => self.stats_job(words[1].parse().expect("a number")),
            "stats-tube" => self.stats_tube(words[1]),
            "list-tubes" => {
                let there = self.tubes.iter().filter(|(_, tube)| tube.hidden.is_none());
                Some(there.map(|(name, _)| format!("- {name}")).collect())
            }
            "list-tube-used" => {
                let text = format!("USING {}", self.conns[&id].used);
                return self.tell(id, None, &text);
            }
            "list-tubes-watched" => {
                Some(self.conns[&id].watches.iter().map(|(pattern, _)| format!("- {pattern}")).collect())
            }
            "list-jobs" => {
                let after = words.get(4).map_or(0, |after| after["after=".len()..].parse().expect("a number"));
                self.list(words[1], words[2], words[3].parse().expect("a number"), after)
            }
            "list-settings" => Some(self.settings(words.get(1).copied())),
            "list-schedules" => Some(self.schedules()),
            "summary" => Some(self.summary(words.get(1).copied().unwrap_or("wiki"))),
            other => panic!("the model does not know {other}"),
        };
        match lines {
            Some(lines) => self.tell(id, None, &format!("OK\n{}", lines.join("\n"))),
            None => self.tell(id, None, "NOT_FOUND"),
        }
    }

    fn schedules(&self) -> Vec<String> {
        let lines = |(name, schedule): (&String, &Schedule)| {
            let next = (schedule.from + schedule.every - self.now) / SECOND;
            let last = schedule.last.map(|last| format!("  last: {}", (self.now - last) / SECOND));
            let known = [
                format!("- name: \"{name}\""),
                format!("  tube: \"{}\"", schedule.tube),
                format!("  every: {}", schedule.every / SECOND),
                format!("  key: \"{}\"", schedule.key),
                format!("  bytes: {}", schedule.body.len()),
                format!("  next: {next}"),
            ];
            let rest = [format!("  skipped: {}", schedule.skipped), "  origin: command".into()];
            known.into_iter().chain(last).chain(rest).collect::<Vec<_>>()
        };
        self.schedules.iter().flat_map(lines).collect()
    }

    fn count(&self, is_meant: impl Fn(&Job) -> bool) -> usize {
        self.jobs.values().filter(|job| is_meant(job)).count()
    }

    fn stats(&self) -> Vec<String> {
        let there = self.tubes.values().filter(|tube| tube.hidden.is_none()).count();
        let waiting = self.conns.values().filter(|conn| conn.wait.is_some()).count();
        vec![
            format!("current-jobs-urgent: {}", self.count(|job| job.place == Place::Ready && job.pri < 1024)),
            format!("current-jobs-ready: {}", self.count(|job| job.place == Place::Ready)),
            format!("current-jobs-reserved: {}", self.count(|job| matches!(job.place, Place::Reserved(..)))),
            format!("current-jobs-delayed: {}", self.count(|job| matches!(job.place, Place::Delayed(_)))),
            format!("current-jobs-buried: {}", self.count(|job| matches!(job.place, Place::Buried(_)))),
            format!("job-timeouts: {}", self.timeouts),
            format!("total-jobs: {}", self.total),
            format!("current-tubes: {there}"),
            format!("current-waiting: {waiting}"),
            format!("lost-reservations: {}", self.lost),
            format!("dead-letters: {}", self.dead),
            format!("current-roots: {}", self.roots.len()),
        ]
    }

    fn stats_job(&self, id: u64) -> Option<Vec<String>> {
        let job = self.jobs.get(&id)?;
        let (state, left) = match job.place {
            Place::Pending(_) => return None,
            Place::Ready => ("ready", 0),
            Place::Delayed(until) => ("delayed", until.saturating_sub(self.now)),
            Place::Reserved(_, until) => ("reserved", until.saturating_sub(self.now)),
            Place::Buried(_) => ("buried", 0),
        };
        let mut lines = vec![
            format!("id: {id}"),
            format!("tube: \"{}\"", job.tube),
            format!("state: {state}"),
            format!("pri: {}", job.pri),
            format!("age: {}", (self.now - job.created) / SECOND),
            format!("delay: {}", job.delay),
            format!("ttr: {}", job.ttr),
            format!("time-left: {}", left / SECOND),
            "file: 0".into(),
            format!("reserves: {}", job.reserves),
            format!("timeouts: {}", job.timeouts),
            format!("releases: {}", job.releases),
            format!("buries: {}", job.buries),
            format!("kicks: {}", job.kicks),
        ];
        lines.extend(self.origin(job, ""));
        Some(lines)
    }

    fn origin(&self, job: &Job, indent: &str) -> Vec<String> {
        let Some((tube, attempts, at)) = &job.origin else { return Vec::new() };
        let age = (self.now - at) / SECOND;
        let lines =
            [format!("origin: \"{tube}\""), format!("origin-attempts: {attempts}"), format!("origin-age: {age}")];
        lines.map(|line| format!("{indent}{line}")).into()
    }

    fn stats_tube(&self, name: &str) -> Option<Vec<String>> {
        let tube = self.tubes.get(name).filter(|tube| tube.hidden.is_none())?;
        let count = |is_meant: &dyn Fn(&Job) -> bool| self.count(|job| job.tube == name && is_meant(job));
        let covers = |conn: &&super::Conn| conn.watches.iter().any(|(pattern, _)| matches(pattern, name));
        let watching: Vec<_> = self.conns.values().filter(covers).collect();
        let pause = by_literalness(self.pauses.keys(), name).first().map(|pattern| self.pauses[*pattern]);
        Some(vec![
            format!("name: \"{name}\""),
            format!("current-jobs-urgent: {}", count(&|job| job.place == Place::Ready && job.pri < 1024)),
            format!("current-jobs-ready: {}", count(&|job| job.place == Place::Ready)),
            format!("current-jobs-reserved: {}", count(&|job| matches!(job.place, Place::Reserved(..)))),
            format!("current-jobs-delayed: {}", count(&|job| matches!(job.place, Place::Delayed(_)))),
            format!("current-jobs-buried: {}", count(&|job| matches!(job.place, Place::Buried(_)))),
            format!("total-jobs: {}", tube.total),
            format!("current-using: {}", self.conns.values().filter(|conn| conn.used == name).count()),
            format!("current-watching: {}", watching.len()),
            format!("current-waiting: {}", watching.iter().filter(|conn| conn.wait.is_some()).count()),
            format!("cmd-delete: {}", tube.deletes),
            format!("cmd-pause-tube: {}", tube.pauses),
            format!("pause: {}", pause.map_or(0, |(_, seconds)| seconds)),
            format!("pause-time-left: {}", pause.map_or(0, |(until, _)| until.saturating_sub(self.now) / SECOND)),
        ])
    }

    fn list(&self, tube: &str, state: &str, limit: usize, after: u64) -> Option<Vec<String>> {
        self.tubes.get(tube).filter(|tube| tube.hidden.is_none())?;
        let is_meant = |job: &&Job| {
            let own = match job.place {
                Place::Pending(_) => "",
                Place::Ready => "ready",
                Place::Delayed(_) => "delayed",
                Place::Reserved(..) => "reserved",
                Place::Buried(_) => "buried",
            };
            job.tube == tube && own == state && job.id > after
        };
        let mut lines = Vec::new();
        for job in self.jobs.values().filter(is_meant).take(limit) {
            lines.extend([
                format!("- id: {}", job.id),
                format!("  age: {}", (self.now - job.created) / SECOND),
                format!("  pri: {}", job.pri),
                format!("  attempts: {}", job.attempts),
                format!("  key: \"{}\"", job.key),
                format!("  group: \"{}\"", job.group),
                format!("  error: \"{}\"", job.error.replace('\n', "\\n")),
            ]);
            lines.extend(self.origin(job, "  "));
            let kept = self
                .kept_keys
                .get(&(job.tube.clone(), job.key.clone()))
                .filter(|(id, until, _)| *id == job.id && *until > self.now);
            lines.extend(kept.map(|(_, until, _)| format!("  key-left: {}", (until - self.now) / SECOND)));
            if self.is_superseded(job) && !matches!(job.place, Place::Buried(_)) {
                lines.push("  superseded: true".into());
            }
        }
        Some(lines)
    }

    /// Returns all settings, or the settings that apply to a tube.
    fn settings(&self, tube: Option<&str>) -> Vec<String> {
        let (mut lines, now) = (Vec::new(), self.now);
        let mut add = |command: &str, of: &str, value: String, left: Option<u64>| {
            lines.extend([format!("- setting: {command}"), format!("  of: \"{of}\""), format!("  value: \"{value}\"")]);
            lines.extend(left.map(|until: u64| format!("  left: {}", until.saturating_sub(now) / SECOND)));
            lines.push("  origin: command".into());
        };
        let is_first = |patterns: Vec<&String>, own: &str| {
            tube.is_none_or(|tube| {
                by_literalness(patterns.into_iter(), tube).first().is_some_and(|first| *first == own)
            })
        };
        for (pattern, (most, is_all)) in &self.limits {
            let is_beside = tube.is_some_and(|tube| {
                let mut others =
                    by_literalness(self.limits.keys(), tube).into_iter().take_while(|other| *other != pattern);
                matches(pattern, tube) && *is_all && *most > 0 && others.all(|other| self.limits[other].0 > 0)
            });
            if is_beside || is_first(self.limits.keys().collect(), pattern) {
                add("limit", pattern, format!("{most} {}", if *is_all && *most > 0 { "all" } else { "each" }), None);
            }
        }
        for (group, (most, is_ordered)) in self.group_limits.iter().filter(|_| tube.is_none()) {
            let value = format!("{most}{}", if *is_ordered { " ordered" } else { "" });
            add("limit", &format!("group:{group}"), value, None);
        }
        let left = |log: (&'static str, String), most: u64| {
            let starts = self.starts.get(&log).filter(|starts| most > 0 && starts.len() as u64 >= most)?;
            Some(starts[starts.len() - most as usize])
        };
        for (pattern, (most, per, is_all)) in &self.rates {
            let is_beside = tube.is_some_and(|tube| {
                let mut others =
                    by_literalness(self.rates.keys(), tube).into_iter().take_while(|other| *other != pattern);
                matches(pattern, tube) && *is_all && others.all(|other| self.rates[other].0 > 0)
            });
            if is_beside || is_first(self.rates.keys().collect(), pattern) {
                let of_tube = ("tube", tube.unwrap_or(pattern).to_string());
                let log = if *is_all { ("pattern", pattern.clone()) } else { of_tube };
                let how = if *is_all { "all" } else { "each" };
                add("limit", pattern, format!("{most} per {per} {how}"), left(log, *most));
            }
        }
        for (group, (most, per)) in self.group_rates.iter().filter(|_| tube.is_none()) {
            let is_there = self.jobs.values().any(|job| job.group == *group);
            let left = left(("group", group.clone()), *most).filter(|_| is_there);
            add("limit", &format!("group:{group}"), format!("{most} per {per}"), left);
        }
        for (pattern, Backoff { attempts, first, factor, max }) in &self.backoffs {
            if is_first(self.backoffs.keys().collect(), pattern) {
                add("retry", pattern, format!("{attempts} {first} {factor} {max}"), None);
            }
        }
        for (pattern, dead) in
            self.dead_letters.iter().filter(|(own, _)| is_first(self.dead_letters.keys().collect(), own))
        {
            add("dead-letter", pattern, dead.clone(), None);
        }
        for (pattern, (until, seconds)) in &self.pauses {
            if is_first(self.pauses.keys().collect(), pattern) {
                add("pause", pattern, seconds.to_string(), Some(*until));
            }
        }
        for (name, schedule) in self.schedules.iter().filter(|(_, of)| tube.is_none_or(|tube| tube == of.tube)) {
            add("schedule-put", name, schedule.line.splitn(3, ' ').last().unwrap_or_default().into(), None);
        }
        lines
    }

    fn summary(&self, by: &str) -> Vec<String> {
        let mut lines = Vec::new();
        if by == "runner" {
            let mut names: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
            for (id, conn) in self.conns.iter().filter(|(_, conn)| conn.works || !conn.name.is_empty()) {
                let sums = names.entry(&conn.name).or_default();
                let own = [1, usize::from(conn.wait.is_some()), self.held_by(*id).len()];
                sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
            }
            for (name, [conns, waiting, reserved]) in names {
                lines.push(format!("- name: \"{name}\""));
                lines.extend([format!("  connections: {conns}"), format!("  waiting: {waiting}")]);
                lines.extend(["  ready: 0".into(), format!("  reserved: {reserved}")]);
            }
            return lines;
        }
        let name_of = |tube: &str| if by == "tube" { tube.to_string() } else { part_of(tube, by).to_string() };
        let known = self.tubes.iter().filter(|(_, tube)| by != "tube" || tube.hidden.is_none());
        let mut names: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        known.for_each(|(name, _)| names.entry(name_of(name)).or_default().push(name));
        for (name, tubes) in names {
            let jobs: Vec<&Job> = self.jobs.values().filter(|job| tubes.contains(&&*job.tube)).collect();
            let count = |is_meant: &dyn Fn(&&&Job) -> bool| jobs.iter().filter(is_meant).count();
            let ready = |job: &&&Job| job.place == Place::Ready;
            let oldest = jobs.iter().filter(ready).map(|job| self.now - job.since).max().unwrap_or(0);
            let (duplicates, superseded) = match by {
                "tube" => (self.tubes[&name].duplicates, self.tubes[&name].superseded),
                by => {
                    let sum = self.sums.iter().find(|((own, other), _)| *own == by && *other == name);
                    sum.map_or((0, 0), |(_, sum)| *sum)
                }
            };
            lines.extend([
                format!("- name: \"{name}\""),
                format!("  ready: {}", count(&ready)),
                format!("  reserved: {}", count(&|job| matches!(job.place, Place::Reserved(..)))),
                format!("  delayed: {}", count(&|job| matches!(job.place, Place::Delayed(_)))),
                format!("  buried: {}", count(&|job| matches!(job.place, Place::Buried(_)))),
                format!("  oldest-ready: {:.3}", oldest as f64 / 1e6),
                format!("  duplicates: {duplicates}"),
                format!("  superseded: {superseded}"),
            ]);
        }
        lines
    }
}
