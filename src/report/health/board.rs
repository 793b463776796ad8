//! Board of conditions that are on, with the times of their starts.

use super::{Condition, HealthSettings, Level, Look, MOST_CONDITIONS};
use log::{Level as LogLevel, log};
use poolcounter_core::{LogLimit, Span, Time};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Time between two looks if only time can cause a condition.
const SLOW_INTERVAL: Span = Span::from_secs(10);
/// Limit of log lines per minute.
const MOST_LINES: u32 = 20;

/// Limit of remembered conditions that are over.
const MOST_PAST: usize = 20;

/// Conditions of all services, and of the daemon itself.
pub struct Board {
    services: Vec<OfService>,
    /// Conditions that are over, newest first.
    past: VecDeque<ConditionOver>,
    /// Delays before conditions turn on and off.
    pub settings: HealthSettings,
    /// Earliest time of the next look.
    next: Time,
    /// Time of the next look even without events; [`Time::NEVER`] if none is needed.
    pub wake_at: Time,
    /// Limits of log lines: for critical conditions, and for all other conditions.
    logs: [LogLimit; 2],
}

/// Conditions of one service.
struct OfService {
    title: &'static str,
    standing: String,
    more: usize,
    /// Time of the last look.
    looked_at: Time,
    kept: BTreeMap<(&'static str, Vec<u8>), Kept>,
}

/// Condition that is on, or holds but not for long enough yet.
struct Kept {
    condition: Condition,
    since: Time,
    held_at: Time,
    is_on: bool,
}

/// Condition that is on. It holds, or ended less than [`HealthSettings::over`] ago.
#[derive(Clone, Debug)]
pub struct ConditionOn {
    /// The condition as last reported; without its command once it has ended.
    pub condition: Condition,
    /// Start of the condition.
    pub since: Time,
    /// End of the condition; None while it holds.
    pub until: Option<Time>,
}

/// Condition that is over.
#[derive(Clone, Debug)]
pub struct ConditionOver {
    /// Title of its service.
    pub title: &'static str,
    /// The condition as last reported.
    pub condition: Condition,
    /// Start of the condition.
    pub since: Time,
    /// Time of its last report.
    pub until: Time,
}

/// Health line of a service: its worst condition, or a sentence about its state.
#[derive(Clone, Debug)]
pub struct HealthLine {
    /// Title of the service.
    pub title: &'static str,
    /// Level of the worst condition that holds.
    pub level: Level,
    /// Sentence about the service where no condition holds.
    pub standing: String,
    /// Conditions that are on: conditions that hold, worst first, then conditions that have ended.
    pub conditions: Vec<ConditionOn>,
    /// Number of conditions that were not kept.
    pub more: usize,
}

impl Default for Board {
    fn default() -> Self {
        let logs = [const { LogLimit::new(MOST_LINES, Span::from_secs(60)) }; 2];
        let (services, past, settings) = (Vec::new(), VecDeque::new(), HealthSettings::default());
        Board { services, past, settings, next: Time::START, wake_at: Time::NEVER, logs }
    }
}

impl Board {
    /// Returns true if another look is due.
    pub fn is_due(&self, now: Time) -> bool {
        now >= self.next && self.settings.interval < Span::FOREVER
    }

    /// Schedules the next look without events: something has happened since the last one.
    #[inline]
    pub fn look_later(&mut self) {
        if self.settings.interval < Span::FOREVER {
            self.wake_at = self.wake_at.min(self.next);
        }
    }

    /// Starts a look at all services.
    pub fn begin(&mut self, now: Time) {
        (self.next, self.wake_at) = (now + self.settings.interval, Time::NEVER);
    }

    /// Applies the look at the service of this title.
    pub fn take(&mut self, title: &'static str, look: Look<'_>) {
        let place = self.services.iter().position(|of| of.title == title).unwrap_or_else(|| {
            let (standing, kept) = (String::new(), BTreeMap::new());
            self.services.push(OfService { title, standing, more: 0, looked_at: Time::START, kept });
            self.services.len() - 1
        });
        let Look { now, standing, mut conditions, is_moving, more, .. } = look;
        conditions.sort_by(|one, other| other.badness.total_cmp(&one.badness));
        let HealthSettings { after, over, interval, .. } = self.settings;
        let (OfService { kept, .. }, past) = (&mut self.services[place], &mut self.past);
        let mut turned = Vec::new();
        for condition in conditions {
            let key = (condition.info.name, condition.subject.clone());
            let known = kept.get(&key);
            // The worst of several with one subject is kept, such as the oldest of a key's locks.
            if known.is_some_and(|kept| kept.held_at == now) || known.is_none() && kept.len() >= 2 * MOST_CONDITIONS {
                continue;
            }
            let entry = kept.entry(key).or_insert_with(|| Kept {
                condition: condition.clone(),
                since: now,
                held_at: now,
                is_on: false,
            });
            (entry.condition, entry.held_at) = (condition, now);
            if !entry.is_on && now.since(entry.since) >= after {
                entry.is_on = true;
                let level =
                    if entry.condition.info.level == Level::Critical { LogLevel::Error } else { LogLevel::Warn };
                turned.push((level, entry.condition.sentence.clone()));
            }
        }
        kept.retain(|_, entry| {
            let is_over = now.since(entry.held_at) >= if entry.is_on { over } else { Span::from_micros(1) };
            if is_over && entry.is_on {
                let Kept { condition, since, held_at: until, .. } = entry;
                let after = super::in_words(until.since(*since));
                turned.push((LogLevel::Info, format!("over after {after}: {}", condition.sentence)));
                past.truncate(MOST_PAST - 1);
                past.push_front(ConditionOver { title, condition: condition.clone(), since: *since, until: *until });
            }
            !is_over
        });
        if !kept.is_empty() || is_moving {
            let interval = if kept.is_empty() { SLOW_INTERVAL } else { interval };
            self.wake_at = self.wake_at.min(now + interval);
        }
        let of = &mut self.services[place];
        (of.standing, of.more, of.looked_at) = (standing, more, now);
        for (level, text) in turned {
            let limit = &mut self.logs[usize::from(level != LogLevel::Error)];
            if let Some(left_out) = limit.due(now) {
                log!(level, "{}: {text}{left_out}", title.to_lowercase());
            }
        }
    }

    /// Returns the conditions that are over, newest first.
    pub fn past(&self) -> Vec<ConditionOver> {
        self.past.iter().cloned().collect()
    }

    /// Returns a line for each service, in the order of their first looks.
    pub fn lines(&self) -> Vec<HealthLine> {
        self.services.iter().map(OfService::line).collect()
    }
}

impl OfService {
    fn line(&self) -> HealthLine {
        let on = self.kept.values().filter(|kept| kept.is_on);
        let (held, mut ended): (Vec<&Kept>, Vec<&Kept>) = on.partition(|kept| kept.held_at == self.looked_at);
        // A subject has its last ended condition listed, and none while another condition of it holds.
        let mut subjects: BTreeSet<&[u8]> = held.iter().map(|kept| &*kept.condition.subject).collect();
        ended.sort_by_key(|kept| Reverse(kept.held_at));
        ended.retain(|kept| subjects.insert(&kept.condition.subject));
        let mut conditions: Vec<ConditionOn> = held.iter().map(|kept| kept.on(None)).collect();
        conditions.extend(ended.iter().map(|kept| kept.on(Some(kept.held_at))));
        conditions.sort_by(|one, other| {
            let by_badness = other.condition.badness.total_cmp(&one.condition.badness);
            other.level().cmp(&one.level()).then(by_badness).then(one.since.cmp(&other.since))
        });
        let more = self.more + held.len().saturating_sub(MOST_CONDITIONS);
        conditions.truncate(MOST_CONDITIONS);
        let level = conditions.first().map_or(Level::Ok, ConditionOn::level);
        HealthLine { title: self.title, level, standing: self.standing.clone(), conditions, more }
    }
}

impl Kept {
    fn on(&self, until: Option<Time>) -> ConditionOn {
        let mut condition = self.condition.clone();
        if until.is_some() {
            condition.command.clear();
        }
        ConditionOn { condition, since: self.since, until }
    }
}

impl ConditionOn {
    /// Returns the level of the condition; [`Level::Ok`] if it has ended.
    pub fn level(&self) -> Level {
        if self.until.is_none() { self.condition.info.level } else { Level::Ok }
    }
}

impl HealthLine {
    /// Returns the sentence about the service: the worst condition that holds and the number of further conditions, or
    /// its state.
    pub fn sentence(&self) -> String {
        let mut held = self.conditions.iter().filter(|on| on.until.is_none());
        let Some(ConditionOn { condition: Condition { sentence, .. }, .. }) = held.next() else {
            return self.standing.clone();
        };
        match held.count() + self.more {
            0 => sentence.clone(),
            more => format!("{sentence}, and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::ConditionInfo;
    use crate::peer::{NoPeers, Traffic};

    static FULL: ConditionInfo = ConditionInfo::critical("full", "It is full.");
    static SLOW: ConditionInfo = ConditionInfo::warning("slow", "It is slow.");

    fn condition(info: &'static ConditionInfo, subject: &str, badness: u32) -> Condition {
        let sentence = format!("{subject} is {}", info.name);
        let condition = Condition::about(info, "/", subject.as_bytes(), sentence);
        condition.helped_by(Some("help".into())).measured(badness.into(), 1.0)
    }

    /// Takes a look at second `s`, and returns level and sentence.
    fn look(board: &mut Board, s: u64, conditions: &[Condition]) -> (Level, String) {
        let (now, traffic) = (Time::START + Span::from_secs(s), Traffic::default());
        let mut look = Look::new(now, &NoPeers, &traffic);
        look.standing = "well".into();
        conditions.iter().for_each(|condition| look.note(condition.clone()));
        board.begin(now);
        board.take("Tests", look);
        let line = board.lines().remove(0);
        (line.level, line.sentence())
    }

    #[test]
    fn condition_ends_more_slowly_than_it_begins() {
        let mut board = Board::default();
        let full = [condition(&FULL, "a", 1)];
        assert_eq!(look(&mut board, 0, &[]), (Level::Ok, "well".into()));
        assert_eq!(board.wake_at, Time::NEVER, "an idle daemon sleeps");
        assert_eq!(look(&mut board, 1, &full), (Level::Ok, "well".into()));
        assert_eq!(look(&mut board, 5, &full), (Level::Ok, "well".into()));
        assert_eq!(look(&mut board, 6, &full), (Level::Critical, "a is full".into()));
        assert_eq!(look(&mut board, 65, &[]), (Level::Ok, "well".into()), "it does not hold");
        assert_eq!((board.lines()[0].conditions.len(), board.past().len()), (1, 0), "it is not over");
        assert_eq!(look(&mut board, 66, &[]), (Level::Ok, "well".into()));
        assert_eq!((board.lines()[0].conditions.len(), board.past().len()), (0, 1));
        assert_eq!(look(&mut board, 72, &full), (Level::Ok, "well".into()));
        look(&mut board, 73, &[]);
        assert_eq!(look(&mut board, 77, &full), (Level::Ok, "well".into()), "it did not hold all the time");
        let past = board.past();
        let times =
            |over: &ConditionOver| [over.since, over.until].map(|at| at.since(Time::START).as_micros() / 1_000_000);
        assert_eq!(past.iter().map(times).collect::<Vec<_>>(), [[1, 6]]);
    }

    #[test]
    fn worst_comes_first() {
        let mut board = Board::default();
        let all = [condition(&SLOW, "s", 99), condition(&FULL, "a", 1), condition(&FULL, "b", 2)];
        look(&mut board, 0, &all);
        assert_eq!(look(&mut board, 10, &all), (Level::Critical, "b is full, and 2 more".into()));
        assert_eq!(board.wake_at, Time::START + Span::from_secs(11));
    }

    #[test]
    fn ended_condition_has_an_end_and_no_command() {
        let mut board = Board::default();
        let full = [condition(&FULL, "a", 1)];
        look(&mut board, 0, &full);
        look(&mut board, 10, &full);
        let on = |board: &Board| board.lines().remove(0).conditions;
        assert_eq!((on(&board)[0].until, &*on(&board)[0].condition.command), (None, "help"));
        look(&mut board, 11, &[]);
        let ended = (Some(Time::START + Span::from_secs(10)), "");
        assert_eq!((on(&board)[0].until, &*on(&board)[0].condition.command), ended);
        assert_eq!(look(&mut board, 12, &full), (Level::Critical, "a is full".into()), "it holds again");
        assert_eq!((on(&board)[0].until, &*on(&board)[0].condition.command), (None, "help"));
    }

    #[test]
    fn condition_replaces_an_ended_one_of_its_subject() {
        let mut board = Board::default();
        let both = [condition(&SLOW, "a", 1), condition(&SLOW, "b", 1)];
        look(&mut board, 0, &both);
        look(&mut board, 10, &both);
        let full = [condition(&FULL, "a", 1)];
        look(&mut board, 11, &full);
        look(&mut board, 16, &full);
        let on = board.lines().remove(0).conditions;
        let told: Vec<_> = on.iter().map(|on| (&*on.condition.sentence, on.level())).collect();
        assert_eq!(told, [("a is full", Level::Critical), ("b is slow", Level::Ok)]);
    }

    #[test]
    fn worst_of_a_subject_is_kept() {
        let mut board = Board::default();
        let of = |badness, sentence: &str| Condition { sentence: sentence.into(), ..condition(&SLOW, "a", badness) };
        let both = [of(3, "the older"), of(2, "the younger")];
        look(&mut board, 0, &both);
        assert_eq!(look(&mut board, 10, &both).1, "the older");
    }

    #[test]
    fn very_many_conditions_are_counted() {
        let mut board = Board::default();
        let all: Vec<Condition> = (0..1_000).map(|n| condition(&SLOW, &format!("{n:04}"), 0)).collect();
        look(&mut board, 0, &all);
        assert_eq!(look(&mut board, 10, &all).1, "0000 is slow, and 999 more");
        assert_eq!(board.lines()[0].conditions.len(), MOST_CONDITIONS);
    }
}
