//! Health of services in a report.

use poolcounter_service::health::Level;
use serde::Deserialize;

/// Health of one service.
#[derive(Deserialize)]
pub struct ToldHealth {
    pub title: String,
    pub level: Level,
    pub sentence: String,
    pub conditions: Vec<ToldCondition>,
    pub more: u64,
}

/// Condition that is on.
#[derive(Deserialize)]
pub struct ToldCondition {
    pub level: Level,
    pub sentence: String,
    /// Command that helps, without the name of the program; empty if there is none.
    #[serde(default)]
    pub command: String,
    /// Start, in seconds since 1970.
    pub since: f64,
    /// End, in seconds since 1970; None while it holds.
    #[serde(default)]
    pub until: Option<f64>,
}
