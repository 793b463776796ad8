//! Conditions of the jobs: no runner, late or failing types of jobs, buried jobs, runners that hold a job for long, a store that fails.

use super::JobQueue;
use super::options::Warnings;
use super::state::health::{HeldJob, PartHealth};
use super::state::{JobState, State};
use super::store::Ownership;
use poolcounter_core::time::{Span, Time};
use poolcounter_service::health::{
    Condition, ConditionInfo, Growth, Look, Sweep, grouped, in_words, name_of, per_second, quoted,
};
use std::collections::BTreeMap;

/// Last parts, and connections, that are looked at at a time.
const MOST_AT_ONCE: usize = 1024;
/// Time for which jobs are ready before a missing runner is worth a condition.
const RUNNER_MISSING: Span = Span::from_secs(60);
/// The time of which shares of failures are.
const FAILURES_SPAN: Span = Span::from_secs(300);
/// Least number of attempts in that time.
const LEAST_ATTEMPTS: u64 = 10;
/// Time for which buried jobs are worth a condition.
const BURIED_SPAN: Span = Span::from_secs(86_400);
/// Most last parts whose failures are followed.
const MOST_FOLLOWED: usize = 1024;

static NO_RUNNER: ConditionInfo =
    ConditionInfo::critical("no runner", "Jobs are ready for more than a minute, and no connection reserves jobs.");
static NOT_KEPT: ConditionInfo = ConditionInfo::critical("not kept", "The store fails, or its jobs cannot be read.");
static FULL: ConditionInfo = ConditionInfo::critical("full", "Jobs take all of jobs.max_memory: puts are refused.");
static VERY_LATE: ConditionInfo =
    ConditionInfo::critical("very late", "A job has been ready for longer than jobs.alarm_age.").labelled();
static LATE: ConditionInfo =
    ConditionInfo::warning("late", "A job has been ready for longer than jobs.warn_age.").labelled();
static UNWATCHED: ConditionInfo = ConditionInfo::warning(
    "unwatched",
    "Jobs of a type are ready for more than a minute, and none of it was reserved in that time.",
)
.labelled();
static FAILS: ConditionInfo = ConditionInfo::warning(
    "fails",
    "More than jobs.warn_failures of at least ten attempts have failed in five minutes.",
)
.labelled();
static BURIED: ConditionInfo = ConditionInfo::warning("buried", "Jobs were buried in the last day.").labelled();
static STUCK: ConditionInfo =
    ConditionInfo::warning("stuck", "A runner has held a job for longer than jobs.warn_hold.").labelled();
static STANDBY: ConditionInfo = ConditionInfo::warning("standby", "Another daemon serves the jobs of the store.");

pub(super) static CONDITIONS: &[&ConditionInfo] =
    &[&NO_RUNNER, &NOT_KEPT, &FULL, &VERY_LATE, &LATE, &UNWATCHED, &FAILS, &BURIED, &STUCK, &STANDBY];

/// Knowledge of the past that conditions need.
#[derive(Default)]
pub(super) struct Watcher {
    warnings: Warnings,
    /// Puts and deletes.
    minute: Growth<2>,
    parts: Sweep<usize>,
    runners: Sweep<usize>,
    followed: BTreeMap<Box<[u8]>, Followed>,
    /// Time for which the oldest ready job is ready: of the last round, and of the present one so far.
    oldest: [Span; 2],
    /// Time since which the store fails.
    failing_since: Option<Time>,
}

/// Counts of a last part.
struct Followed {
    /// Reservations.
    minute: Growth<1>,
    /// Jobs done, and attempts that failed.
    attempts: Growth<2>,
    buried: Growth<1>,
    /// The round in which it was seen last.
    seen: Time,
}

impl JobQueue {
    /// Notes the conditions that hold.
    pub(super) fn note_conditions(&mut self, look: &mut Look<'_>) {
        let [put, deleted, ready] = self.state.totals();
        let now = look.now;
        let ([put, deleted], within) = self.watcher.minute.growth(now, [put, deleted]);
        let fault = self.health().and_then(|health| health.fault);
        self.watcher.note_fault(fault, now, look);
        match self.store.ownership() {
            Ownership::Owns => self.watcher.note_jobs(&self.state, self.tables.matrix.column.1, look),
            Ownership::StandsBy => {
                look.note(Condition::of_service(
                    &STANDBY,
                    "standby: another daemon serves the jobs of this store".into(),
                ));
            }
            _ => {}
        }
        let oldest = in_words(self.watcher.oldest[0]);
        let oldest = if ready == 0 { String::new() } else { format!(", the oldest for {oldest}") };
        let runners = self.state.producers_and_workers().1;
        look.standing = format!(
            "{} ready{oldest}; {} put, {} done, {} runners",
            grouped(ready),
            per_second(put, within),
            per_second(deleted, within),
            grouped(runners as u64)
        );
        look.is_moving = ready + self.state.count_in(JobState::Reserved) > 0;
    }
}

impl Watcher {
    pub fn with(warnings: Warnings) -> Self {
        Watcher { warnings, ..Watcher::default() }
    }

    fn note_fault(&mut self, fault: Option<String>, now: Time, look: &mut Look<'_>) {
        let Some(fault) = fault else {
            self.failing_since = None;
            return;
        };
        let span = now.since(*self.failing_since.get_or_insert(now));
        look.note(Condition::of_service(&NOT_KEPT, format!("jobs are not taken: {fault}, for {}", in_words(span))));
    }

    fn note_jobs(&mut self, state: &State, path: &str, look: &mut Look<'_>) {
        let now = look.now;
        let has_runner = state.producers_and_workers().1 > 0;
        let (parts, next) = state.parts_health(self.parts.begin_part().unwrap_or(0), MOST_AT_ONCE, now);
        for part in &parts {
            self.oldest[1] = self.oldest[1].max(part.oldest);
            self.conditions_of(part, path, has_runner, now)
                .into_iter()
                .for_each(|condition| self.parts.found(condition));
        }
        if next.is_none() {
            self.oldest = [self.oldest[1], Span::ZERO];
            self.followed.retain(|_, followed| now.since(followed.seen) < BURIED_SPAN);
        }
        self.parts.end_part(next, look);
        if self.warnings.hold < Span::FOREVER {
            let (held, next) =
                state.held_for(self.warnings.hold, self.runners.begin_part().unwrap_or(0), MOST_AT_ONCE, now);
            for held in held {
                self.runners.found(stuck(&held, look));
            }
            self.runners.end_part(next, look);
        }
        let (ready, oldest) = (state.count_in(JobState::Ready), self.oldest[0]);
        if oldest > RUNNER_MISSING && !has_runner {
            let sentence = format!("no runner: {} ready, the oldest for {}", grouped(ready), in_words(oldest));
            look.note(Condition { waiting: ready, ..Condition::of_service(&NO_RUNNER, sentence) });
        }
        if state.is_full() {
            let sentence = "jobs are not taken: jobs.max_memory is used up".into();
            look.note(Condition { waiting: ready, ..Condition::of_service(&FULL, sentence) });
        }
    }

    fn conditions_of(&mut self, part: &PartHealth<'_>, path: &str, has_runner: bool, now: Time) -> Vec<Condition> {
        let [reserves, deletes, failures] = part.events;
        let is_known = self.followed.contains_key(part.name) || self.followed.len() < MOST_FOLLOWED;
        let fresh = || Followed {
            minute: Growth::default(),
            attempts: Growth::over(FAILURES_SPAN),
            buried: Growth::over(BURIED_SPAN),
            seen: now,
        };
        let followed = is_known.then(|| self.followed.entry(part.name.into()).or_insert_with(fresh));
        let mut all = Vec::new();
        let mut note = |info, sentence, command: Option<String>| {
            let condition = Condition::about(info, path, part.name, sentence).helped_by(command);
            all.push(Condition { waiting: part.ready, ..condition });
        };
        let name = name_of(part.name);
        let pattern = quoted(&[b"*/", part.name].concat());
        let late = format!("{} ready, the oldest for {}", grouped(part.ready), in_words(part.oldest));
        let late_of = format!("{}: {late}", name_of(part.tube));
        if part.oldest > self.warnings.alarm_age {
            note(&VERY_LATE, late_of, Some("jobs summary tube".into()));
        } else if part.oldest > self.warnings.age {
            note(&LATE, late_of, Some("jobs summary tube".into()));
        }
        let Some(followed) = followed else { return all };
        followed.seen = now;
        let ([reserved], within) = followed.minute.growth(now, [reserves]);
        if has_runner && part.oldest > RUNNER_MISSING && reserved == 0 && part.reserved == 0 && within >= RUNNER_MISSING
        {
            let command = pattern.as_ref().map(|pattern| format!("jobs run {pattern} -- COMMAND"));
            note(&UNWATCHED, format!("no runner for {name}: {late}"), command);
        }
        let ([done, failed], _) = followed.attempts.growth(now, [deletes, failures]);
        let attempts = done.saturating_add(failed);
        if attempts >= LEAST_ATTEMPTS && failed.saturating_mul(1000) > self.warnings.failures.saturating_mul(attempts) {
            let share = failed.saturating_mul(100) / attempts;
            let sentence = format!("{name}: {share} % of {} attempts failed in 5 min", grouped(attempts));
            note(&FAILS, sentence, quoted(part.tube).map(|tube| format!("jobs list {tube} buried")));
        }
        let ([buried], within) = followed.buried.growth(now, [part.buried]);
        if buried > 0 {
            let sentence = format!(
                "{name}: {} buried, {} in the last {}",
                grouped(part.buried),
                grouped(buried),
                in_words(within)
            );
            note(&BURIED, sentence, pattern.map(|pattern| format!("jobs kick {pattern}")));
        }
        all
    }
}

fn stuck(held: &HeldJob<'_>, look: &Look<'_>) -> Condition {
    let peer = look.peers.peer(held.conn);
    let runner = if held.runner.is_empty() { peer } else { name_of(held.runner) };
    let sentence = format!("{runner} has held job {} of {} for {}", held.job, name_of(held.tube), in_words(held.span));
    let mut condition = Condition::about(&STUCK, "/jobs/runner/", held.runner, sentence);
    if held.runner.is_empty() {
        (condition.subject, condition.link) = (runner.into_bytes(), "/".into());
    }
    condition.helped_by(Some(format!("jobs stats {}", held.job)))
}
