//! Requests of `jobs` to which each option applies.

use super::misuse;
use super::options::OPTIONS;
use crate::command::Failure;
use crate::table::Given;

/// Requests to which an option applies; options not listed apply to all.
const FOR: &[(&str, &[&str])] = &[
    ("pri", &["put"]),
    ("delay", &["put", "run"]),
    ("ttr", &["put"]),
    ("key", &["put"]),
    ("until-deleted", &["put"]),
    ("group", &["put"]),
    ("root", &["put"]),
    ("root-ts", &["put"]),
    ("lines", &["put"]),
    ("watch", &["run"]),
    ("parallel", &["run"]),
    ("each-server", &["run"]),
    ("batch", &["run"]),
    ("quiet", &["run"]),
    ("textfile", &["run"]),
    ("timeout", &["run"]),
    ("grace", &["run"]),
    ("bury-on", &["run"]),
    ("on-lost", &["run"]),
    ("name", &["run"]),
    ("json", &["summary", "list", "show", "stats"]),
    ("all", &["kick"]),
    ("error", &["list"]),
    ("limit", &["list"]),
    ("after", &["list"]),
    ("run", &["init-db"]),
];

/// Fails if an option was given that does not apply to this request.
pub fn check(request: &str, given: &Given) -> Result<(), Failure> {
    let is_for_other = |long| FOR.iter().any(|(option, requests)| *option == long && !requests.contains(&request));
    let wrong = OPTIONS.iter().enumerate().find(|(row, option)| given.has(*row) && is_for_other(option.long));
    match wrong {
        Some((_, option)) => Err(misuse(&format!("--{} is not for {request}", option.long))),
        None => Ok(()),
    }
}
