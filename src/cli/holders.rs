//! `holders` prints who holds the locks of a pool and who waits for them, and `watch` follows that.

mod watch;

use super::command::Failure;
use super::rows::{PrintedRow, show};
use super::servers::{ServerOptions, Servers, TIMEOUTS, json_option};
use super::table::Given;
use super::terminal::printable;
use poolcounter_client::{Client, Purpose, ToldClaim};
use poolcounter_service::options::{Opt, assign, seconds};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::Duration;
use watch::Watch;

/// What the options of both say.
struct HoldersSettings {
    servers: Servers,
    is_json: bool,
    interval: Duration,
}

/// The options of `holders`.
const HOLDERS: &[Opt<HoldersSettings>] = &[
    json_option(
        "
            Print a list of JSON objects, one for each server:
            .Va server ,
            and
            .Va claims
            or
            .Va error .",
        set_json,
    ),
    Opt::SERVER,
    Opt::TLS,
    Opt::VERSION,
    Opt::HELP,
];

/// The options of `watch`.
const WATCH: &[Opt<HoldersSettings>] = &[
    Opt {
        short: "i",
        long: "interval",
        hint: "SECONDS",
        doc_short: "how often to look (default: 1)",
        doc_long: "
            How often to look.
            The default is 1.",
        set: |settings, value| assign(&mut settings.interval, seconds(value)),
        ..Opt::BLANK
    },
    Opt {
        doc_short: "print each event as a JSON object in a line",
        ..json_option(
            "
            Print each event as a JSON object in a line.",
            set_json,
        )
    },
    Opt::SERVER,
    Opt::TLS,
    Opt::VERSION,
    Opt::HELP,
];

/// `holders`.
///
/// # Errors
///
/// When it cannot be printed. A server that does not answer is told of, and makes the status 1.
pub fn run(given: &Given) -> Result<ExitCode, Failure> {
    let (settings, client, key) = begin(given, HOLDERS, "holders")?;
    match client.claims_of_each(key) {
        Ok(answers) => show(answers, settings.is_json),
        Err(error) => Err(Failure::misuse(error.to_string())),
    }
}

/// `watch`.
///
/// # Errors
///
/// When it cannot be printed, or no server answers at first.
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
    settings.servers = settings.servers.or_environment();
    let [key] = given.words.as_slice() else {
        return Err(Failure::misuse(format!("{command} needs one key (see poolcounter help {command})")));
    };
    let client = Client::with(settings.servers.placement(), TIMEOUTS);
    Ok((settings, client, key.as_bytes()))
}

fn set_json(settings: &mut HoldersSettings, _: &str) -> Result<(), String> {
    settings.is_json = true;
    Ok(())
}

/// What a claim does, in a word.
pub fn state_of(claim: &ToldClaim) -> &'static str {
    match claim.waits_for {
        None => "working",
        Some(Purpose::Me) => "waiting for me",
        Some(Purpose::Anyone) => "waiting for anyone",
    }
}

impl PrintedRow for ToldClaim {
    const LIST: &'static str = "claims";

    fn heads() -> Vec<String> {
        ["STATE", "SECONDS", "CLIENT", "WHO"].map(String::from).into()
    }

    fn cells(&self) -> Vec<String> {
        let seconds = Duration::from(self.age).as_secs_f64();
        let [peer, who] = [&self.peer, &self.who].map(|text| printable(text.as_bytes()));
        vec![state_of(self).into(), format!("{seconds:.3}"), peer, if who.is_empty() { "-".into() } else { who }]
    }

    fn object(&self) -> Value {
        let ToldClaim { peer, who, age, .. } = self;
        json!({ "state": state_of(self), "age": Duration::from(*age).as_secs_f64(), "client": peer, "who": who })
    }
}

impl AsMut<Servers> for HoldersSettings {
    fn as_mut(&mut self) -> &mut Servers {
        &mut self.servers
    }
}

/// The rows of the table of `holders`, without what they set.
pub fn described() -> Vec<Opt<()>> {
    HOLDERS.iter().map(Opt::describe).collect()
}

/// Those of `watch`.
pub fn described_watch() -> Vec<Opt<()>> {
    WATCH.iter().map(Opt::describe).collect()
}
