//! Conditions of the jobs: no runner, late or failing types of jobs, buried jobs, runners that hold a job for long, a
//! failing store.

use super::JobQueue;
use super::options::Warnings;
use super::state::health::PartHealth;
use super::state::views::RunnerConn;
use super::state::{Counted, JobState, Part, State};
use super::store::{Health, Ownership};
use poolcounter_core::{Span, Time};
use poolcounter_service::contract::Observe as _;
use poolcounter_service::health::{Growth, Sweep, TOTAL, grouped, in_words, name_of, per_second, quoted};
use poolcounter_service::report::{Condition, Look, conditions};
use std::collections::BTreeMap;

/// Most last parts, and connections, that one step examines.
const MOST_AT_ONCE: usize = 1024;
/// Time for which jobs are ready before a missing runner is worth a condition.
const RUNNER_MISSING: Span = Span::from_secs(60);
/// Time over which shares of failures are computed.
const FAILURES_SPAN: Span = Span::from_secs(300);
/// Least number of attempts in that time; fewer give no condition.
const LEAST_ATTEMPTS: u64 = 10;
/// Time for which buried jobs are worth a condition.
const BURIED_SPAN: Span = Span::from_secs(86_400);
/// Longest pause without a condition, and most pauses that have one.
const LONG_PAUSE: Span = Span::from_secs(3600);
const MOST_PAUSES: usize = 64;
/// Most last parts whose failures are followed.
const MOST_FOLLOWED: usize = 1024;

conditions! {
    pub(super) static CONDITIONS;
    NO_RUNNER = critical "no runner",
        "Jobs have been ready for more than a minute, and no connection reserves jobs.";
    NOT_KEPT = critical "not kept", "The store fails, or its jobs cannot be read.";
    FULL = critical "full", "Jobs use all of jobs.max_memory: puts are refused.";
    VERY_LATE = critical "very late" labelled, "A job has been ready for longer than jobs.alarm_age.";
    LATE = warning "late" labelled, "A job has been ready for longer than jobs.warn_age.";
    UNWATCHED = warning "unwatched" labelled,
        "Jobs of a type have been ready for more than a minute, and none of that type was reserved in that time.";
    FAILS = warning "fails" labelled,
        "More than jobs.warn_failures of at least ten attempts have failed in five minutes.";
    BURIED = warning "buried" labelled, "Jobs were buried in the last day.";
    STUCK = warning "stuck" labelled, "A runner has held a job for longer than jobs.warn_hold.";
    PAUSED = warning "paused" labelled, "Tubes are paused for more than an hour.";
    INBOX = warning "inbox", "Rows of the inbox in PostgreSQL are refused, as they are not valid, or it cannot be read.";
    DRAINS = warning "drains", "Puts are refused by a drain.";
    STANDBY = warning "standby", "Another daemon serves the jobs of the store.";
}

/// State of earlier looks that the conditions need.
#[derive(Default)]
pub(super) struct Watcher {
    warnings: Warnings,
    /// Puts and deletes.
    minute: Growth<2>,
    parts: Sweep<usize>,
    runners: Sweep<usize>,
    followed: BTreeMap<Box<[u8]>, Followed>,
    /// The last round through the parts, since all of the store's jobs are read; None before that.
    last_round: Option<Round>,
    /// The present round.
    round: Round,
    /// Time for which the oldest ready job has been ready: of the last round, and of the present one so far.
    oldest: [Span; 2],
    /// Time at which the store began to fail; None while it works.
    failing_since: Option<Time>,
}

/// Round through the last parts.
#[derive(Clone, Copy, Default)]
struct Round {
    begun: Time,
    /// True if a part was not followed, because there are very many.
    has_left_out: bool,
}

/// Counts of a last part.
struct Followed {
    /// Reservations.
    minute: Growth<1>,
    /// Jobs done, and attempts that failed.
    attempts: Growth<2>,
    buried: Growth<1>,
    /// Counts at the last look.
    events: [u64; 3],
    /// Time of the last look.
    seen: Time,
}

impl JobQueue {
    /// Notes the conditions that hold.
    pub(super) fn note_conditions(&mut self, look: &mut Look<'_>) {
        let [put, deleted, ready] = self.state.totals();
        let now = look.now;
        let ([put, deleted], within) = self.watcher.minute.growth(now, [put, deleted]);
        let Health { owner, refused, fault, .. } = self.health().unwrap_or_default();
        let owner = owner.map(|owner| owner.address).filter(|owner| !owner.is_empty());
        if let Some((refused, why)) = refused {
            let sentence = match refused {
                0 => format!("inbox: it cannot be read: {why}"),
                number => format!("inbox: rows refused: {number}; one has this reason: {why}"),
            };
            look.note(Condition::of_service(&INBOX, "/jobs", sentence));
        }
        let (is_reached, ownership) = (fault.is_none(), self.store.ownership());
        // The lease may end long before a request fails.
        let unhealthy = self.unhealthy_reason().filter(|_| ownership != Ownership::StandsBy);
        self.watcher.note_fault(fault.or(unhealthy.map(String::from)), now, look);
        match ownership {
            Ownership::Owns => self.watcher.note_jobs(&self.state, &self.settings.part_names.path(1), look),
            // A daemon that has never reached the database does not know if another serves.
            Ownership::StandsBy if is_reached || owner.is_some() => {
                let owner = owner.unwrap_or("another daemon".into());
                let sentence = format!("standby: {owner} serves the jobs of {}", self.queue_name());
                look.note(Condition::of_service(&STANDBY, "/jobs", sentence));
            }
            _ => {}
        }
        let oldest = in_words(self.watcher.oldest[0]);
        let oldest = if ready == 0 { String::new() } else { format!(", the oldest for {oldest}") };
        let runners = self.state.producers_and_workers().1;
        look.standing = format!(
            "{} ready{oldest}; {} put, {} done, {} {}",
            grouped(ready),
            per_second(put, within),
            per_second(deleted, within),
            grouped(runners as u64),
            if runners == 1 { "runner" } else { "runners" }
        );
        look.is_moving = ready + self.state.count_in(JobState::Reserved) > 0;
    }
}

impl Watcher {
    pub fn with(warnings: Warnings) -> Self {
        Watcher { warnings, ..Watcher::default() }
    }

    /// Begins anew with the jobs that a store or the previous process has brought: growth is counted from here on.
    pub fn begin(&mut self, state: &State, now: Time) {
        *self = Watcher::with(self.warnings);
        self.round.begun = now;
        let (parts, next) = state.parts_health(0, MOST_AT_ONCE, now);
        for part in &parts {
            self.conditions_of(part, "", false, now);
        }
        self.last_round = Some(Round { has_left_out: next.is_some(), ..self.round });
    }

    fn note_fault(&mut self, fault: Option<String>, now: Time, look: &mut Look<'_>) {
        let Some(fault) = fault else {
            self.failing_since = None;
            return;
        };
        let span = now.since(*self.failing_since.get_or_insert(now));
        let sentence = format!("jobs are not taken: {fault}, for {}", in_words(span));
        look.note(Condition { badness: TOTAL, ..Condition::of_service(&NOT_KEPT, "/jobs", sentence) });
    }

    fn note_jobs(&mut self, state: &State, path: &str, look: &mut Look<'_>) {
        let now = look.now;
        let has_runner = state.producers_and_workers().1 > 0;
        let first = self.parts.begin_part().unwrap_or_else(|| {
            self.round = Round { begun: now, has_left_out: false };
            0
        });
        let (parts, next) = state.parts_health(first, MOST_AT_ONCE, now);
        for part in &parts {
            self.oldest[1] = self.oldest[1].max(part.oldest);
            self.conditions_of(part, path, has_runner, now)
                .into_iter()
                .for_each(|condition| self.parts.found(condition));
        }
        if next.is_none() {
            self.oldest = [self.oldest[1], Span::ZERO];
            let Round { begun, .. } = self.round;
            self.followed.retain(|_, followed| followed.seen >= begun);
            self.last_round = Some(self.round);
        }
        self.parts.end_part(next, look);
        if self.warnings.hold < Span::FOREVER {
            let (held, next) =
                state.held_for(self.warnings.hold, self.runners.begin_part().unwrap_or(0), MOST_AT_ONCE, now);
            for condition in held.iter().filter_map(|held| stuck(held, look, self.warnings.hold)) {
                self.runners.found(condition);
            }
            self.runners.end_part(next, look);
        }
        let (ready, oldest) = (state.count_in(JobState::Ready), self.oldest[0]);
        if oldest > RUNNER_MISSING && !has_runner {
            let sentence = format!("no runner: {} ready, the oldest for {}", grouped(ready), in_words(oldest));
            let condition =
                Condition::of_service(&NO_RUNNER, "/jobs", sentence).helped_by(Some("jobs run TUBE -- COMMAND".into()));
            look.note(condition.lasting(oldest, RUNNER_MISSING));
        }
        for (pattern, until) in state.long_pauses(LONG_PAUSE, MOST_PAUSES) {
            let sentence = format!("{} is paused for another {}", name_of(pattern), in_words(until.since(now)));
            let command = quoted(pattern).map(|pattern| format!("jobs pause {pattern} 0"));
            let condition = Condition::about(&PAUSED, "/jobs", pattern, sentence).helped_by(command);
            look.note(Condition { link: "/jobs".into(), ..condition });
        }
        if state.is_draining {
            let reserved = grouped(state.count_in(JobState::Reserved));
            let sentence = format!("draining: no job is taken; {reserved} are reserved");
            look.note(Condition::of_service(&DRAINS, "/jobs", sentence).helped_by(Some("admin UNDRAIN".into())));
        }
        if state.is_full() {
            let sentence = "jobs are not taken: jobs.max_memory is used up".into();
            let condition = Condition::of_service(&FULL, "/jobs", sentence).helped_by(Some("jobs summary tube".into()));
            look.note(Condition { badness: TOTAL, ..condition });
        }
    }

    /// Returns the counts of a part at earlier looks; None if it is not followed.
    fn follow(&mut self, name: &[u8], events: [u64; 3], now: Time) -> Option<&mut Followed> {
        if self.followed.len() >= MOST_FOLLOWED && !self.followed.contains_key(name) {
            self.round.has_left_out = true;
            return None;
        }
        // A part that the last round did not find has begun at zero since.
        let from = self.last_round.filter(|round| !round.has_left_out).map(|round| round.begun);
        let followed = self.followed.entry(name.into()).or_insert_with(|| Followed::new(from, now));
        let is_another = events.iter().zip(followed.events).any(|(now, before)| *now < before);
        if is_another {
            *followed = Followed::new(Some(followed.seen), now);
        }
        (followed.events, followed.seen) = (events, now);
        Some(followed)
    }

    fn conditions_of(&mut self, part: &PartHealth<'_>, path: &str, has_runner: bool, now: Time) -> Vec<Condition> {
        let PartHealth { part: Part { name: of, counts, tally, .. }, oldest, tube } = part;
        let (&of, [ready, reserved_now, _, buried_now]) = (of, *counts);
        let count = |event: Counted| tally.counts[event as usize].get();
        let [reserves, deletes, failures] = [Counted::Reserve, Counted::Delete, Counted::Failure].map(count);
        let warnings = self.warnings;
        let followed = self.follow(of, [reserves, deletes, failures], now);
        let mut all = Vec::new();
        let mut note = |info, sentence, command: Option<String>, [value, limit]: [f64; 2]| {
            let condition = Condition::about(info, path, of, sentence).helped_by(command);
            all.push(condition.measured(value, limit));
        };
        let age = |limit: Span| [*oldest, limit].map(|span| span.as_micros() as f64);
        // Most parts have no condition, and need no texts.
        let name = || name_of(of);
        let pattern = || quoted(&pattern_of(tube, of));
        let late = || {
            let place = if *tube == of { String::new() } else { format!(" in {}", name_of(tube)) };
            format!("{} ready, the oldest for {}{place}", grouped(ready), in_words(*oldest))
        };
        let limits = [(&VERY_LATE, warnings.alarm_age), (&LATE, warnings.age)];
        if let Some((info, limit)) = limits.into_iter().find(|(_, limit)| oldest > limit) {
            let sentence = format!("{}: {}", name(), late());
            note(info, sentence, Some("jobs summary tube".into()), age(limit));
        }
        let Some(followed) = followed else { return all };
        let ([reserved], within) = followed.minute.growth(now, [reserves]);
        let is_untouched = reserved == 0 && reserved_now == 0 && within >= RUNNER_MISSING;
        if has_runner && *oldest > RUNNER_MISSING && is_untouched {
            let command = pattern().map(|pattern| format!("jobs run {pattern} -- COMMAND"));
            note(&UNWATCHED, format!("no runner for {}: {}", name(), late()), command, age(RUNNER_MISSING));
        }
        let ([done, failed], _) = followed.attempts.growth(now, [deletes, failures]);
        let attempts = done.saturating_add(failed);
        let fails =
            attempts >= LEAST_ATTEMPTS && failed.saturating_mul(1000) > warnings.failures.saturating_mul(attempts);
        if fails {
            let share = failed.saturating_mul(100) / attempts;
            let sentence = format!("{}: {share} % of {} attempts failed in 5 min", name(), grouped(attempts));
            let command = quoted(tube).map(|tube| format!("jobs list {tube} --error"));
            note(&FAILS, sentence, command, [failed as f64 * 1000.0 / attempts as f64, warnings.failures as f64]);
        }
        let ([buried], within) = followed.buried.growth(now, [buried_now]);
        if buried > 0 {
            // Jobs that are kicked while attempts fail are buried again.
            let command = pattern().filter(|_| !fails).map(|pattern| format!("jobs kick {pattern}"));
            let hint = if command.is_some() { "; mend the cause, then kick" } else { "" };
            let [all, lately] = [buried_now, buried].map(grouped);
            let sentence = format!("{}: {all} buried, {lately} in the last {}{hint}", name(), in_words(within));
            note(&BURIED, sentence, command, [buried as f64, LEAST_ATTEMPTS as f64]);
        }
        all
    }
}

impl Followed {
    /// Returns the counts of a part that had none at this time; None: it had the counts of the first look.
    fn new(from: Option<Time>, now: Time) -> Followed {
        fn growth<const N: usize>(length: Span, from: Option<Time>) -> Growth<N> {
            from.map_or_else(|| Growth::over(length), |from| Growth::from_zero(length, from))
        }
        Followed {
            minute: growth(Span::from_secs(60), from),
            attempts: growth(FAILURES_SPAN, from),
            buried: growth(BURIED_SPAN, from),
            events: [0; 3],
            seen: now,
        }
    }
}

/// Returns the pattern of the tubes with as many parts as this one, and the same last part.
pub(super) fn pattern_of(tube: &[u8], last_part: &[u8]) -> Vec<u8> {
    let first_parts = tube.strip_suffix(last_part).unwrap_or(b"*/");
    let others = first_parts.iter().filter(|byte| **byte == b'/').count();
    [&b"*/".repeat(others), last_part].concat()
}

/// Returns the condition of a runner that has held a job for longer than the limit.
fn stuck(held: &RunnerConn<'_>, look: &Look<'_>, limit: Span) -> Option<Condition> {
    let (job, tube, span) = held.job?;
    let peer = look.peers.peer(held.conn);
    let runner = if held.runner.is_empty() { peer } else { name_of(held.runner) };
    let sentence = format!("{runner} has held job {job} of {} for {}", name_of(tube), in_words(span));
    let mut condition = Condition::about(&STUCK, "/jobs/runner/", held.runner, sentence);
    if held.runner.is_empty() {
        (condition.subject, condition.link) = (runner.into_bytes(), "/".into());
    }
    Some(condition.helped_by(Some(format!("jobs stats {job}"))).lasting(span, limit))
}
