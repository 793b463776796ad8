//! Settings of tubes: retry rules, limits of reserved jobs, and dead-letter tubes.

use super::{failure, misuse};
use crate::command::Failure;
use poolcounter_client::{Error, LimitScope, Producer, Retry};
use poolcounter_service::options::{number, seconds};
use std::process::ExitCode;

/// Handles `retry PATTERN ATTEMPTS [FIRST [FACTOR [MAX]]]`.
pub fn retry(producer: &Producer, pattern: &str, how: &[&str]) -> Result<ExitCode, Failure> {
    let usual = Retry::default();
    let time = |at: usize, usual| how.get(at).map_or(Ok(usual), |word| read(word, seconds));
    let factor = how.get(2).map_or(Ok(usual.factor), |word| read(word, |word| number(word, 0.0..=f64::from(u32::MAX))));
    let retry = Retry {
        attempts: read(how[0], |word| number(word, 0..=u32::MAX))?,
        first: time(1, usual.first)?,
        factor: factor?,
        max: time(3, usual.max)?,
    };
    set(producer.retry(pattern, &retry))
}

/// Handles `limit PATTERN N [each|all]` and `limit group:NAME N`.
pub fn limit(producer: &Producer, what: &str, most: &str, scope: Option<&str>) -> Result<ExitCode, Failure> {
    let most = read(most, |word| number(word, 0..=u32::MAX))?;
    set(match (what.strip_prefix("group:"), scope) {
        (Some(group), None) => producer.limit_group(group, most),
        (None, None | Some("each")) => producer.limit(what, most, LimitScope::Each),
        (None, Some("all")) => producer.limit(what, most, LimitScope::All),
        (Some(_), Some(_)) => return Err(misuse("the limit of a group is neither each nor all")),
        (None, Some(other)) => return Err(misuse(&format!("\"{other}\" is neither each nor all"))),
    })
}

/// Returns the exit status of a setting.
pub fn set(result: Result<(), Error>) -> Result<ExitCode, Failure> {
    result.map_err(failure)?;
    Ok(ExitCode::SUCCESS)
}

fn read<T>(word: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Result<T, Failure> {
    read(word).map_err(|wanted| misuse(&format!("\"{word}\" is not {wanted}")))
}
