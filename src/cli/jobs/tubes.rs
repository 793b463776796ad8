//! Settings of tubes and jobs: retry rules, limits of reserved jobs, values of a job; and copies of the store.

use super::{failure, found};
use crate::command::{Exit, FAILURE, Failure};
use crate::terminal::print;
use poolcounter_client::{Error, JobId, LimitScope, Producer, Retry};
use poolcounter_service::options::{number, seconds};
use std::process::ExitCode;

/// Handles `retry PATTERN ATTEMPTS [FIRST [FACTOR [MAX]]]`.
pub fn retry(producer: &Producer, pattern: &str, how: &[&str]) -> Exit {
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

/// Handles `limit PATTERN N [per SECONDS] [each|all]` and `limit group:NAME N [per SECONDS | ordered]`.
pub fn limit(producer: &Producer, what: &str, most: &str, how: &[&str]) -> Exit {
    let most = read(most, |word| number(word, 0..=u32::MAX))?;
    let (period, scope) = match *how {
        ["per", period, ref scope @ ..] => (Some(read(period, seconds)?), scope),
        ref scope => (None, scope),
    };
    if period.is_some_and(|period| period.is_zero()) {
        return Err(Failure::misuse("a period is at least a second"));
    }
    let scope = match (what.starts_with("group:"), scope) {
        (_, []) | (false, ["each"]) => LimitScope::Each,
        (false, ["all"]) => LimitScope::All,
        (true, ["ordered"]) if period.is_none() => LimitScope::Ordered,
        (false, other) => return Err(Failure::misuse(format!("\"{}\" is neither each nor all", other.join(" ")))),
        (true, _) => {
            return Err(Failure::misuse("the limit of a group has per SECONDS, or ordered, and no other word"));
        }
    };
    set(producer.limit(what, most, period, scope))
}

/// Handles `set ID [pri=N] [delay=SECONDS] [ttr=SECONDS]`.
pub fn set_job(producer: &Producer, id: JobId, values: &[&str]) -> Exit {
    let (mut pri, mut delay, mut ttr) = (None, None, None);
    for value in values {
        match value.split_once('=') {
            Some(("pri", value)) => pri = Some(read(value, |word| number(word, 0..=u32::MAX))?),
            Some(("delay", value)) => delay = Some(read(value, seconds)?),
            Some(("ttr", value)) => ttr = Some(read(value, seconds)?),
            _ => return Err(Failure::misuse(format!("\"{value}\" is not pri=N, delay=SECONDS or ttr=SECONDS"))),
        }
    }
    found(&id.to_string(), producer.set_job(id, pri, delay, ttr).map_err(failure)?)
}

/// Handles `store-copy NAME`: prints the size of the copy in bytes.
pub fn store_copy(producer: &Producer, name: &str) -> Exit {
    let why = match producer.store_copy(name) {
        Ok(Some(bytes)) => return print(&format!("COPIED {bytes}\n")),
        Ok(None) => "the server has no file of jobs; copy FROM TO copies a database",
        Err(Error::Refused(words)) if words == "INTERNAL_ERROR" => {
            "it exists, another copy is being made, or there is no room; the log of the daemon has the reason"
        }
        Err(Error::Refused(words)) if words.starts_with("BAD_FORMAT") => {
            return Err(Failure::misuse(
                "NAME has no slash, no dot in front, and does not begin as the file of jobs does",
            ));
        }
        Err(error) => return Err(failure(error)),
    };
    Err(Failure { status: FAILURE, sentence: format!("{name}: {why}") })
}

/// Returns the exit status of a setting.
pub fn set(result: Result<(), Error>) -> Exit {
    result.map_err(failure)?;
    Ok(ExitCode::SUCCESS)
}

/// Parses a parameter. The error of `read` describes valid values.
pub fn read<T>(word: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Result<T, Failure> {
    read(word).map_err(|wanted| Failure::misuse(format!("\"{word}\" is not {wanted}")))
}
