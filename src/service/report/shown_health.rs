//! Health of the services, as shown on pages and in the JSON.

use super::moment::Moment;
use super::tables::NAME_BYTES;
use crate::health::{Condition, ConditionOn, ConditionOver, HealthLine, Level};
use crate::shown::{Text, seconds};
use poolcounter_core::text::visible;
use serde::{Deserialize, Serialize};

/// Limit of listed conditions per service.
const MOST_SHOWN: usize = 20;

/// Health of one service.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShownHealth {
    /// Title of the service.
    pub title: Text,
    /// Level of its worst condition.
    pub level: Level,
    /// Worst condition, or a sentence about the state of the service.
    pub sentence: String,
    /// Conditions that are on, worst first.
    pub conditions: Vec<ShownCondition>,
    /// Number of conditions that are on but not listed.
    pub more: usize,
}

/// Condition that is on.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShownCondition {
    /// Name.
    pub name: Text,
    /// Severity.
    pub level: Level,
    /// Subject; empty if it concerns the whole service.
    pub subject: String,
    /// Cause.
    pub sentence: String,
    /// Start, in seconds since 1970.
    pub since: f64,
    /// Path of the page about it.
    pub link: String,
    /// Command that helps; empty if there is none.
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
        let condition = |on: &ConditionOn| ShownCondition {
            name: on.condition.info.name.into(),
            level: on.condition.info.level,
            subject: visible(&on.condition.subject, NAME_BYTES),
            sentence: on.condition.sentence.clone(),
            since: seconds(moment.time_of_day(on.since)),
            link: on.condition.link.clone(),
            command: on.condition.command.clone(),
        };
        let listed = line.conditions.iter().take(MOST_SHOWN).map(condition);
        ShownHealth {
            title: line.title.into(),
            level: line.level,
            sentence: line.sentence(),
            more: line.more + line.conditions.len().saturating_sub(MOST_SHOWN),
            conditions: listed.collect(),
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
