//! `counter`: requests of the yrmcds counter protocol, as a command.

use super::command::{Exit, Failure, wrong_request};
use super::failure::{PROTOCOL, TRY_LATER};
use super::run_child::{self, HeldResource, Lifetime, grace, lost_exit, on_lost, process_group};
use super::servers::{Servers, TIMEOUTS, has_part, in_words, print_answers, server_option, tls_option};
use super::spawn::obey_signals_as_first_process;
use super::table::Given;
use super::terminal::{aligned, print, printable};
use super::wait::{WaitProgress, doubled, repeated};
use poolcounter_client::{Counters, Error, Units, Usage};
use poolcounter_counters::CounterRefusal;
use poolcounter_protocol::counters::wire::client::describe;
use poolcounter_service::options::{Opt, assign, number, option_table, seconds};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::Duration;

/// Requests.
pub const REQUESTS: &[(&str, &str)] = &[
    ("noop", "ask whether the servers answer"),
    ("get NAME", "print the units in use"),
    ("acquire NAME RESOURCES MAXIMUM [-- COMMAND [ARGUMENT ...]]", "hold units while a command runs"),
    ("release NAME RESOURCES", "give back units"),
    ("stats", "print the statistics of the servers"),
    ("dump", "print all counters, with their units in use and the most in use at a time"),
];
/// Pauses before units are requested again; each is twice as long as the last.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Settings of the command.
#[derive(Default)]
pub struct CounterSettings {
    servers: Servers,
    lifetime: Lifetime,
    /// Time limit of the wait in `acquire`.
    wait: Duration,
}

/// Options of the command.
pub const OPTIONS: &[Opt<CounterSettings>] = option_table!(CounterSettings;
    => server_option(
        "A server, or tls:HOST[:PORT], or unix:PATH; repeatable (default: POOLCOUNTER_SERVERS in the environment, or \
         localhost). Each counter belongs to one of the servers; noop, stats and dump go to each.",
    );
    => tls_option();
    "-w, --wait SECONDS",
        "For acquire: time to wait for units (default: 0). The protocol has no queue: the command asks again at least \
         once a second, and a later client may be served earlier. With 0 the command does not wait.",
        |settings, value| assign(&mut settings.wait, seconds(value));
    => on_lost(
        "For acquire: action when the units are lost while the command runs: only warn, or also terminate or kill \
         it (default: warn). The units are lost when the connection is lost.",
    );
    => lost_exit(); => process_group(); => grace();
);

/// Runs the command.
///
/// # Errors
///
/// Fails if the command line is wrong, or no server answers.
pub fn run(given: &Given) -> Exit {
    let settings = given.settings(OPTIONS, CounterSettings::default())?;
    let (words, command) = given.words.split_at(given.words_before_dashes);
    let counters = Counters::with(settings.servers.placement(), TIMEOUTS);
    let texts: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    // Names may be any bytes; the other words are text.
    let name = words.get(1).map(|word| word.as_bytes()).unwrap_or_default();
    let failed = |error: Error| Failure::of(&error, format!("{}: {error}", printable(name)));
    match texts.iter().map(|text| &**text).collect::<Vec<_>>().as_slice() {
        ["acquire", _, resources, maximum] => {
            obey_signals_as_first_process().map_err(Failure::no_commands)?;
            let (resources, maximum) = (amount(resources)?, amount(maximum)?);
            if !(1..=maximum).contains(&resources) {
                return Err(Failure::misuse("RESOURCES is a number from 1 to MAXIMUM"));
            }
            match acquire(&counters, name, resources, maximum, settings.wait).map_err(failed)? {
                Some(units) => run_with(&units, name, &settings, command),
                None => Err(refused(name, TRY_LATER, CounterRefusal::NotAvailable)),
            }
        }
        _ if !command.is_empty() => Err(Failure::misuse("only \"acquire NAME RESOURCES MAXIMUM\" runs a command")),
        ["get", _] => match counters.get(name).map_err(failed)? {
            Some(consumption) => print(&format!("{consumption}\n")),
            None => Err(refused(name, PROTOCOL, CounterRefusal::NotFound)),
        },
        ["release", _, resources] => {
            let released = counters.release(name, amount(resources)?).map_err(failed)?;
            released.map(|()| ExitCode::SUCCESS).map_err(|refusal| refused(name, PROTOCOL, refusal))
        }
        ["noop"] => print_answers(in_words(counters.noop(), Error::to_string), |()| Vec::new()),
        ["stats"] => print_answers(in_words(counters.stats(), Error::to_string), |stats| {
            stats.rows().map(|(row, value)| format!("{}: {value}", row.name)).collect()
        }),
        ["dump"] => print_answers(in_words(counters.dump(), Error::to_string), table_of),
        words => Err(wrong_request("counter", REQUESTS, words)),
    }
}

/// Acquires units, and repeats the request until the time limit.
fn acquire<'a>(
    counters: &'a Counters,
    name: &[u8],
    resources: u32,
    maximum: u32,
    wait: Duration,
) -> Result<Option<Units<'a>>, Error> {
    let (mut progress, mut pause) = (WaitProgress::new(printable(name), wait), SHORTEST_PAUSE);
    let ask = |waited| {
        progress.show(waited);
        counters.acquire(name, resources, maximum)
    };
    repeated(wait, ask, |acquired| matches!(acquired, Ok(None)).then(|| doubled(&mut pause, LONGEST_PAUSE)))
}

/// Runs the command while the units are held; without a command, releases them at once.
fn run_with(units: &Units<'_>, name: &[u8], settings: &CounterSettings, command: &[OsString]) -> Exit {
    if command.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let check = || match units.is_lost() {
        true => Err(format!("{}: the units are lost, because the connection is gone", printable(name))),
        false => Ok(None),
    };
    let held = HeldResource { connection: &|| units.descriptor(), check: &check };
    Ok(settings.lifetime.exit(&run_child::run(command, &[], &settings.lifetime, Some(&held))?))
}

fn refused(name: &[u8], status: u8, refusal: CounterRefusal) -> Failure {
    Failure { status, sentence: format!("{}: the server refuses: {}", printable(name), describe(refusal)) }
}

fn table_of(usages: Vec<Usage>) -> Vec<String> {
    let row = |Usage { name, consumption, peak }| vec![printable(&name), consumption.to_string(), peak.to_string()];
    let heads = ["COUNTER", "UNITS", "MOST"].map(String::from).into();
    aligned(&[heads].into_iter().chain(usages.into_iter().map(row)).collect::<Vec<_>>())
}

fn amount(text: &str) -> Result<u32, Failure> {
    number(text, 0..=u32::MAX).map_err(|wanted| Failure::misuse(format!("\"{text}\" is not {wanted}")))
}

has_part!(CounterSettings, servers: Servers);
has_part!(CounterSettings, lifetime: Lifetime);
