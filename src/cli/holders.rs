//! `holders`: prints holders and waiters of the locks of a pool.

use super::command::{Exit, Failure};
use super::servers::{
    A_SERVER, PrintedRow, Servers, TIMEOUTS, in_words, json_option, print_answers, server_option, show, table,
    tls_option,
};
use super::table::Given;
use super::terminal::{self, printable};
use poolcounter_client::{Client, Error, ListedClaim, Purpose};
use poolcounter_service::options::Opt;
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Options of the command.
pub const OPTIONS: &[Opt<Servers>] = &[
    json_option("Print a list of JSON objects, one for each server. Each has server, and claims or error."),
    server_option(A_SERVER),
    tls_option(),
];

/// Runs the command.
///
/// # Errors
///
/// Fails if the result cannot be printed. A server that does not reply is reported; see [`print_answers`].
pub fn run(given: &Given) -> Exit {
    let servers = given.settings(OPTIONS, Servers::default())?;
    let [key] = given.words.as_slice() else { return Err(Failure::misuse("holders needs one KEY")) };
    let (client, key) = (Client::with(servers.placement(), TIMEOUTS), key.as_bytes());
    let answers = client.claims_of_each(key).map_err(|error| Failure::misuse(error.to_string()))?;
    if servers.is_json {
        return show(answers, true);
    }
    let (is_one, key) = (answers.len() == 1, printable(key));
    for (server, _) in answers.iter().filter(|(_, claims)| claims.as_ref().is_ok_and(Vec::is_empty)) {
        let server = if is_one { String::new() } else { format!("{server}: ") };
        terminal::warn(&format!("{server}no holders or waiters of {key}"));
    }
    let lines = |claims: Vec<ListedClaim>| if claims.is_empty() { Vec::new() } else { table(&claims) };
    print_answers(in_words(answers, Error::to_string), lines)
}

/// Returns the state of a claim in a word.
pub fn state_of(claim: &ListedClaim) -> &'static str {
    match claim.waits_for {
        None if claim.kept_for.is_some() => "kept",
        None => "working",
        Some(Purpose::Me) => "waiting for me",
        Some(Purpose::Anyone) => "waiting for anyone",
    }
}

impl PrintedRow for ListedClaim {
    const LIST: &'static str = "claims";

    const HEADS: &'static str = "STATE FOR CLIENT WHO";

    fn cell(&self, head: &str) -> Option<String> {
        match head {
            "STATE" => self.kept_for.map(|left| format!("kept for {}", terminal::in_words(left.into()))),
            "FOR" => Some(terminal::in_words(self.age.into())),
            _ => (head == "WHO" && self.who.is_empty()).then(|| "-".into()),
        }
    }

    fn object(&self) -> Value {
        let ListedClaim { peer, who, age, kept_for, .. } = self;
        let mut object =
            json!({ "state": state_of(self), "age": Duration::from(*age).as_secs_f64(), "client": peer, "who": who });
        if let Some(left) = kept_for {
            object["left"] = Duration::from(*left).as_secs_f64().into();
        }
        object
    }
}
