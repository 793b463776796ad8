//! Health of the services as pages and the JSON have it.

use super::shown::{Text, seconds};
use super::snapshot::Moment;
use super::tables::NAME_BYTES;
use crate::health::{Condition, ConditionOn, ConditionOver, HealthLine, Level};
use poolcounter_core::text::visible;
use serde::{Deserialize, Serialize};

/// Most conditions of a service that are listed.
const MOST_SHOWN: usize = 20;

/// Health of one service.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShownHealth {
    /// Its title.
    pub title: Text,
    /// The level of its worst condition.
    pub level: Level,
    /// The worst condition, or how the service stands.
    pub sentence: String,
    /// Conditions that are on, the worst first.
    pub conditions: Vec<ShownCondition>,
    /// Number of conditions that are on and not listed.
    pub more: usize,
}

/// A condition that is on.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShownCondition {
    /// Its name.
    pub name: Text,
    /// Severity.
    pub level: Level,
    /// The thing that it is about; empty if it is about the service.
    pub subject: String,
    /// The cause.
    pub sentence: String,
    /// Since when, in seconds since 1970.
    pub since: f64,
    /// Path of the page about it.
    pub link: String,
    /// Command that helps; empty if there is none.
    pub command: String,
}

/// A condition that is over.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShownPast {
    /// Title of its service.
    pub title: Text,
    /// Severity.
    pub level: Level,
    /// The cause.
    pub sentence: String,
    /// Path of the page about its thing.
    pub link: String,
    /// Since when it held, and until when, in seconds since 1970.
    pub since: f64,
    /// The end of it.
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
