//! `counter`: what a client of the yrmcds counter protocol can do, as a command.

use super::command::Failure;
use super::exec::WaitProgress;
use super::run_child::{self, HeldResource, OnLost};
use super::servers::{ServerOptions, Servers, TIMEOUTS, in_words, print_answers};
use super::table::Given;
use super::terminal::{print, printable};
use poolcounter_client::{Counters, Error, Units, Usage};
use poolcounter_counters::CounterRefusal;
use poolcounter_protocol::counters::wire::client::describe;
use poolcounter_service::options::{Opt, assign, number, seconds};
use std::ffi::OsString;
use std::io::{Write, stderr};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// How long it waits before it asks for units again; doubled each time, up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The exit status when the server refuses.
const REFUSED: u8 = 2;

/// Settings that the options make.
#[derive(Default)]
struct CounterSettings {
    servers: Servers,
    on_lost: OnLost,
    /// How long `acquire` waits for units.
    wait: Duration,
}

/// The options.
const OPTIONS: &[Opt<CounterSettings>] = &[
    Opt {
        doc_long: "
            A server.
            May be given several times.
            Each counter belongs to one of them;
            .Cm noop , stats
            and
            .Cm dump
            go to each.",
        ..Opt::SERVER
    },
    Opt::TLS,
    Opt {
        short: "w",
        long: "wait",
        hint: "SECONDS",
        doc_short: "how long acquire waits until there are units enough (default: 0)",
        doc_long: "
            How long
            .Cm acquire
            waits until there are units enough.
            The protocol has no queue: it asks over and over, at least once a second, and who comes later may be served earlier.
            The default is 0: it does not wait.",
        set: |settings, value| assign(&mut settings.wait, seconds(value)),
        ..Opt::BLANK
    },
    Opt {
        long: "on-lost",
        hint: "warn|term|kill",
        doc_short: "when the units are lost while the command runs: only say so, or also terminate or kill it (default: warn)",
        doc_long: "
            As for
            .Cm exec ,
            if the connection is lost while the command of
            .Cm acquire
            runs.",
        set: |settings, value| assign(&mut settings.on_lost, OnLost::parse(value)),
        ..Opt::BLANK
    },
    Opt::VERSION,
    Opt::HELP,
];

/// The command.
///
/// # Errors
///
/// When the command line is wrong, or no server answers.
pub fn run(given: &Given) -> Result<ExitCode, Failure> {
    let mut settings = CounterSettings::default();
    given.apply(OPTIONS, &mut settings)?;
    let (words, command) = given.words.split_at(given.words_before_dashes);
    let counters = Counters::with(settings.servers.placement(), TIMEOUTS);
    let texts: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    // Names are bytes; the rest is text.
    let name = words.get(1).map(|word| word.as_bytes()).unwrap_or_default();
    match texts.iter().map(|text| &**text).collect::<Vec<_>>().as_slice() {
        ["acquire", _, resources, maximum] => {
            let acquired = acquire(&counters, name, amount(resources)?, amount(maximum)?, settings.wait);
            finish(acquired, |units| match units {
                Some(units) => run_with(&units, &settings, command),
                None => Ok(refused(&describe(CounterRefusal::NotAvailable))),
            })
        }
        _ if !command.is_empty() => Err(misuse("only \"acquire NAME RESOURCES MAXIMUM\" runs a command")),
        ["get", _] => finish(counters.get(name), |consumption| match consumption {
            Some(consumption) => print(&format!("{consumption}\n")),
            None => Ok(refused(&describe(CounterRefusal::NotFound))),
        }),
        ["release", _, resources] => finish(counters.release(name, amount(resources)?), |released| match released {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(refusal) => Ok(refused(&describe(refusal))),
        }),
        ["noop"] => print_answers(in_words(counters.noop()), |()| Vec::new()),
        ["stats"] => print_answers(in_words(counters.stats()), |stats| {
            stats.rows().map(|(row, value)| format!("{}: {value}", row.name)).collect()
        }),
        ["dump"] => print_answers(in_words(counters.dump()), |usages| usages.iter().map(line_of).collect()),
        [word, ..] if !first_words().contains(word) => {
            Err(Failure::unknown("request", word, first_words(), "poolcounter help counter"))
        }
        [request, ..] => Err(misuse(&format!("this is not how to {request}"))),
        [] => Err(misuse("no request is named")),
    }
}

/// Acquires units, and asks again for so long.
fn acquire<'a>(
    counters: &'a Counters,
    name: &[u8],
    resources: u32,
    maximum: u32,
    wait: Duration,
) -> Result<Option<Units<'a>>, Error> {
    let begun = Instant::now();
    let mut progress = WaitProgress::new(printable(name), Some(wait));
    let mut pause = SHORTEST_PAUSE;
    loop {
        let acquired = counters.acquire(name, resources, maximum)?;
        let left = wait.saturating_sub(begun.elapsed());
        if acquired.is_some() || left.is_zero() {
            return Ok(acquired);
        }
        progress.show(begun.elapsed());
        thread::sleep(pause.min(left));
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

/// Runs the command while the units are held; without one, they are given back at once.
fn run_with(units: &Units<'_>, settings: &CounterSettings, command: &[OsString]) -> Result<ExitCode, Failure> {
    if command.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let check = || match units.is_lost() {
        true => Err("the units are lost, because the connection is gone".into()),
        false => Ok(None),
    };
    let connection = || Some((0, units.descriptor()?));
    let held = HeldResource { connection: &connection, check: &check, on_lost: settings.on_lost };
    Ok(ExitCode::from(run_child::run(command, &[], Some(&held))?.status))
}

/// Goes on with what the server answered, or tells what it or the client has against it.
fn finish<T>(
    answer: Result<T, Error>,
    go_on: impl FnOnce(T) -> Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    match answer {
        Ok(answer) => go_on(answer),
        Err(Error::Refused(words)) => Ok(refused(&words)),
        Err(error) => Err(error.to_string().into()),
    }
}

fn refused(words: &str) -> ExitCode {
    // Whoever has closed the standard error has the exit status.
    let _ = writeln!(stderr(), "ERROR: {}", printable(words.as_bytes()));
    ExitCode::from(REFUSED)
}

fn line_of(Usage { name, consumption, peak }: &Usage) -> String {
    format!("{} {consumption} {peak}", printable(name))
}

fn amount(text: &str) -> Result<u32, Failure> {
    number(text, 0..=u32::MAX).map_err(|wanted| misuse(&format!("\"{text}\" is not {wanted}")))
}

fn misuse(sentence: &str) -> Failure {
    Failure::misuse(format!("{sentence} (see poolcounter help counter)"))
}

impl AsMut<Servers> for CounterSettings {
    fn as_mut(&mut self) -> &mut Servers {
        &mut self.servers
    }
}

/// The table's rows, without what they set.
pub fn described() -> Vec<Opt<()>> {
    OPTIONS.iter().map(Opt::describe).collect()
}

/// The requests.
pub fn first_words() -> Vec<&'static str> {
    vec!["noop", "get", "acquire", "release", "stats", "dump"]
}
