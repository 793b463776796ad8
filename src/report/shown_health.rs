//! Health of the services, as shown on pages and in the JSON.

use super::moment::Moment;
use super::tables::NAME_BYTES;
use crate::health::{Condition, ConditionOn, ConditionOver, HealthLine, Level, in_words};
use crate::shown::{Text, seconds};
use poolcounter_core::text::visible;
use serde::{Deserialize, Serialize};

/// Limit of the listed conditions of a service in JSON, in bytes: some seventy conditions.
const CONDITION_BYTES: usize = 25_000;

/// Health of one service.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShownHealth {
    /// Title of the service.
    pub title: Text,
    /// Level of its worst condition that holds.
    pub level: Level,
    /// Worst condition that holds, or a sentence about the state of the service.
    pub sentence: String,
    /// Conditions that are on: conditions that hold, worst first, then conditions that have ended.
    pub conditions: Vec<ShownCondition>,
    /// Number of conditions that are on but not listed.
    pub more: usize,
}

/// Condition that is on.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShownCondition {
    /// Name.
    pub name: Text,
    /// Severity; [`Level::Ok`] if it has ended.
    pub level: Level,
    /// Subject; empty if it concerns the whole service.
    pub subject: String,
    /// Cause.
    pub sentence: String,
    /// Measured value as a multiple of its limit.
    pub badness: f64,
    /// Start, in seconds since 1970.
    pub since: f64,
    /// End, in seconds since 1970; None while it holds.
    pub until: Option<f64>,
    /// Path of the page about it.
    pub link: String,
    /// Command that helps; empty if there is none, or the condition has ended.
    pub command: String,
}

/// Condition that is over.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShownPast {
    /// Title of its service.
    pub title: Text,
    /// Severity.
    pub level: Level,
    /// Cause.
    pub sentence: String,
    /// Path of the page about its subject.
    pub link: String,
    /// Start, in seconds since 1970.
    pub since: f64,
    /// End, in seconds since 1970.
    pub until: f64,
}

impl ShownHealth {
    pub(super) fn of(line: &HealthLine, moment: &Moment<'_>) -> ShownHealth {
        let mut bytes = 0;
        let conditions = line.conditions.iter().map(|on| ShownCondition::of(on, moment));
        let conditions: Vec<ShownCondition> = conditions
            .take_while(|condition| {
                bytes += serde_json::to_string(condition).map_or(0, |json| json.len());
                bytes <= CONDITION_BYTES
            })
            .collect();
        ShownHealth {
            title: line.title.into(),
            level: line.level,
            sentence: line.sentence(),
            more: line.more + line.conditions.iter().skip(conditions.len()).filter(|on| on.until.is_none()).count(),
            conditions,
        }
    }
}

impl ShownCondition {
    fn of(on: &ConditionOn, moment: &Moment<'_>) -> ShownCondition {
        let Condition { info, subject, sentence, link, command, badness } = on.condition.clone();
        let sentence = match on.until {
            None => sentence,
            Some(until) => format!("not now; was: {sentence}, ended {} ago", in_words(moment.now.since(until))),
        };
        ShownCondition {
            name: info.name.into(),
            level: on.level(),
            subject: visible(&subject, NAME_BYTES),
            sentence,
            badness,
            since: seconds(moment.time_of_day(on.since)),
            until: on.until.map(|until| seconds(moment.time_of_day(until))),
            link,
            command,
        }
    }
}

impl ShownPast {
    pub(super) fn of(over: &ConditionOver, moment: &Moment<'_>) -> ShownPast {
        let Condition { info, sentence, link, .. } = over.condition.clone();
        let [since, until] = [over.since, over.until].map(|at| seconds(moment.time_of_day(at)));
        ShownPast { title: over.title.into(), level: info.level, sentence, link, since, until }
    }
}
