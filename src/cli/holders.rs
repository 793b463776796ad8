//! `holders` prints holders and waiters of the locks of a pool, and `watch` follows their changes.

mod watch;

use super::command::Failure;
use super::rows::{PrintedRow, flat, show, table};
use super::servers::{ServerOptions, Servers, TIMEOUTS, has_servers, json_option, print_answers};
use super::table::Given;
use super::terminal::{self, in_words, printable};
use poolcounter_client::{Client, ListedClaim, Purpose};
use poolcounter_service::options::{Opt, assign, seconds_from};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::Duration;
use watch::Watch;

/// Settings of both commands.
pub struct HoldersSettings {
    servers: Servers,
    is_json: bool,
    interval: Duration,
}

/// Options of `holders`.
pub const HOLDERS: &[Opt<HoldersSettings>] = &[
    json_option(
        "Print a list of JSON objects, one for each server. Each has server, and claims or error.",
        |settings, _| assign(&mut settings.is_json, Ok(true)),
    ),
    Opt::SERVER,
    Opt::TLS,
];

/// Options of `watch`.
pub const WATCH: &[Opt<HoldersSettings>] = &[
    Opt {
        short: "i",
        long: "interval",
        hint: "SECONDS",
        doc: "Time between two polls (default: 1).",
        set: |settings, value| assign(&mut settings.interval, seconds_from(Duration::from_millis(10), value)),
        ..Opt::BLANK
    },
    json_option("Print each event as a JSON object in a line.", |settings, _| assign(&mut settings.is_json, Ok(true))),
    Opt::SERVER,
    Opt::TLS,
];

/// Runs `holders`.
///
/// # Errors
///
/// Fails if the result cannot be printed. A server that does not reply is reported; see [`print_answers`].
pub fn run(given: &Given) -> Result<ExitCode, Failure> {
    let (settings, client, key) = begin(given, HOLDERS, "holders")?;
    match client.claims_of_each(key) {
        Ok(answers) if settings.is_json => show(answers, true),
        Ok(answers) => {
            let (is_one, key) = (answers.len() == 1, printable(key));
            for (server, claims) in &answers {
                if matches!(claims, Ok(Ok(claims)) if claims.is_empty()) {
                    let server = if is_one { String::new() } else { format!("{server}: ") };
                    terminal::warn(&format!("{server}no holders or waiters of {key}"));
                }
            }
            let lines = |claims: Vec<ListedClaim>| if claims.is_empty() { Vec::new() } else { table(&claims) };
            print_answers(flat(answers, ListedClaim::refusal), lines)
        }
        Err(error) => Err(Failure::misuse(error.to_string())),
    }
}

/// Runs `watch`.
///
/// # Errors
///
/// Fails if the result cannot be printed, or no server replies at first.
pub fn run_watch(given: &Given) -> Result<ExitCode, Failure> {
    let (settings, client, key) = begin(given, WATCH, "watch")?;
    Watch::new(client, key, settings.is_json).run(settings.interval)
}

fn begin<'a>(
    given: &'a Given,
    options: &[Opt<HoldersSettings>],
    command: &str,
) -> Result<(HoldersSettings, Client, &'a [u8]), Failure> {
    let mut settings =
        HoldersSettings { servers: Servers::default(), is_json: false, interval: Duration::from_secs(1) };
    given.apply(options, &mut settings)?;
    let [key] = given.words.as_slice() else {
        return Err(Failure::misuse(format!("{command} needs one KEY")));
    };
    let client = Client::with(settings.servers.placement(), TIMEOUTS);
    Ok((settings, client, key.as_bytes()))
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

    const HEADS: &'static [&'static str] = &["STATE", "FOR", "CLIENT", "WHO"];

    fn cell(&self, head: &str) -> Option<String> {
        match head {
            "STATE" => self.kept_for.map(|left| format!("kept for {}", in_words(left.into()))),
            "FOR" => Some(in_words(self.age.into())),
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

has_servers!(HoldersSettings);
