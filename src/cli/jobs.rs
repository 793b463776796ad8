//! `jobs`: requests of producers, runners and operators of a job queue, as commands. A plain beanstalkd works as the
//! server as far as it supports the request.

mod command_run;
mod copy;
mod fetch;
mod input;
mod options;
mod outcomes;
mod plan;
pub mod put;
pub mod run;
mod run_options;
pub mod schedule;
mod show;
mod slot;
mod tally;
mod words;

use super::command::{Command, Exit, FAILURE, Failure, MISUSE, command, wrong_request};
use super::failure::{PROTOCOL, TRY_LATER, UNAVAILABLE};
use super::table::Given;
use super::terminal::{print, print_bytes, printable};
use copy::Place;
pub use options::{JobsCommandSettings, OPTIONS};
use poolcounter_client::{Error, JobId, JobState, LimitScope, Producer, Retry, SummaryBy, own_user};
#[cfg(feature = "postgres")]
use poolcounter_jobs::postgres::{self, Place as Database};
use poolcounter_service::options::{number, seconds};
use std::io::{IsTerminal, stdout};
use std::process::ExitCode;

/// Requests.
pub const REQUESTS: &[(&str, &str)] = &[
    ("put TUBE [BODY]", "put a job; the body is an argument, or the standard input"),
    ("run PATTERN[:WEIGHT] ... -- COMMAND [ARGUMENT ...]", "run a command for each job"),
    ("peek ID | TUBE [STATE]", "print the body of a job, or of a tube's next"),
    ("show ID", "print a job with its history, error and body"),
    ("kick ID | PATTERN [STATE]", "make a job, or all buried or delayed ones ready"),
    ("bury ID", "bury a job that is not reserved"),
    ("delete ID", "delete a job that is not reserved"),
    ("move ID | PATTERN TUBE [STATE]", "move a job, or all that are not reserved, to another tube"),
    ("set ID [pri=N] [delay=SECONDS] [ttr=SECONDS]", "change a job that is not reserved"),
    ("cancel ID | PATTERN", "delete a reserved job, or all that are reserved, and end its command"),
    ("summary [wiki | type | tube | runner]", "print the numbers of jobs, their ages and rates"),
    ("list TUBE [STATE]", "print the jobs of a tube, ready ones if no state is named"),
    ("stats [ID | TUBE]", "print the statistics of the server, of a job or of a tube"),
    ("clear PATTERN [STATE]", "delete all jobs that are not reserved, or all in a state"),
    ("pause [PATTERN SECONDS]", "hand out no job for this time (0 ends it), or print the pauses"),
    ("retry [PATTERN ATTEMPTS [FIRST [FACTOR [MAX]]]]", "set how failed jobs are tried again, or print what is set"),
    (
        "limit [PATTERN N [per SECONDS] [each | all | ordered]]",
        "set how many jobs run at a time, or start in a period, also for group:NAME, or print what is set",
    ),
    ("dead-letter [PATTERN [TUBE]]", "set where jobs go after their last attempt, or print what is set"),
    ("schedule [put NAME TUBE [BODY] | delete NAME]", "put a job periodically, end that, or print what is put"),
    ("drain", "refuse new jobs, while the others are run"),
    ("undrain", "accept new jobs again"),
    ("store-copy NAME", "copy the store of the daemon to a file of this name beside it"),
    ("init-db URL", "print (or with --run, execute) the SQL for --jobs-store postgres:URL"),
    ("copy FROM TO", "copy all jobs from one store to another (sqlite:PATH, postgres:URL), without a daemon"),
];
/// Requests with options of their own.
pub const COMMANDS: &[Command] = &[
    command!(run "jobs run", "[options] PATTERN[:WEIGHT] ... -- COMMAND [ARGUMENT ...]",
        "run a command for each job of some tubes"),
    command!(put "jobs put", "[options] TUBE [BODY]",
        "put a job into a queue: the body is an argument, or the standard input"),
    command!(schedule "jobs schedule", "[options] [put NAME TUBE [BODY] | delete NAME]",
        "put a job periodically, end that, or print what is put"),
];

/// Default maximum of jobs in a list.
const LIMIT: u32 = 100;

/// Runs the command.
///
/// # Errors
///
/// Fails if the command line is wrong, no server replies, or the server refuses.
pub fn run(given: &Given) -> Exit {
    let settings = given.settings(OPTIONS, JobsCommandSettings { limit: LIMIT, ..JobsCommandSettings::default() })?;
    let (words, command) = given.words.split_at(given.words_before_dashes);
    let texts: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
    if !command.is_empty() {
        return Err(Failure::misuse("only \"run\" runs a command"));
    }
    let producer = settings.servers.producer();
    match texts[..] {
        ["peek" | "show" | "summary" | "list" | "stats", ..] | ["limit" | "retry" | "dead-letter" | "pause"] => {
            let looked = look(&producer, &settings, &texts);
            if settings.servers.is_json { show::error_as_json(&producer, looked) } else { looked }
        }
        _ => change(&producer, &settings, &texts),
    }
}

/// Serves the requests that show jobs.
fn look(producer: &Producer, settings: &JobsCommandSettings, words: &[&str]) -> Exit {
    match *words {
        ["peek", what, ref state @ ..] => peek(producer, what, one_state(state)?.unwrap_or(JobState::Ready)),
        ["show", id] => show::job(producer, settings, id_of(id)?),
        ["summary"] => show::summary(producer, settings, SummaryBy::Type),
        ["summary", by] => {
            let by = SummaryBy::ALL.into_iter().find(|known| known.word() == by);
            let by = by.ok_or_else(|| Failure::misuse("summary is by wiki, type, tube or runner"))?;
            show::summary(producer, settings, by)
        }
        ["list", tube, ..] if tube.contains('*') => Err(Failure::misuse(format!(
            "\"{tube}\" is a pattern, and list takes one tube: jobs summary tube prints their names"
        ))),
        ["list", tube] if settings.has_errors => show::list(producer, settings, tube, &show::STATES),
        ["list", tube, ref state @ ..] => {
            show::list(producer, settings, tube, &[one_state(state)?.unwrap_or(JobState::Ready)])
        }
        [word @ ("limit" | "retry" | "dead-letter" | "pause")] => show::settings(producer, settings, word),
        ["stats", ref what @ ..] if what.len() <= 1 => show::stats(producer, settings, what.first().copied()),
        _ => Err(wrong_form(words)),
    }
}

/// Serves the requests that change jobs, tubes or stores.
fn change(producer: &Producer, settings: &JobsCommandSettings, words: &[&str]) -> Exit {
    match *words {
        ["kick"] if settings.is_all => {
            let tubes = producer.tubes().map_err(failure)?;
            let kick = |tube: &String| kick_tube(producer, tube, JobState::Buried);
            let kicked = tubes.iter().try_fold(0, |kicked, tube| Ok::<u64, Failure>(kicked + kick(tube)?))?;
            count("KICKED", Ok(kicked))
        }
        ["kick", id] if !settings.is_all && as_id(id).is_some() => {
            found(id, producer.kick_job(id_of(id)?).map_err(failure)?)
        }
        ["kick", pattern, ref state @ ..] => {
            let state = one_state(state)?.unwrap_or(JobState::Buried);
            count("KICKED", Ok(kick_tube(producer, pattern, state)?))
        }
        ["bury", id] => bury(settings, id_of(id)?),
        ["delete", id] => found(id, producer.delete(id_of(id)?).map_err(failure)?),
        ["move", what, tube, ref state @ ..] => {
            count_of(what, "MOVED", producer.move_jobs(what, tube, one_state(state)?))
        }
        ["set", id, ref values @ ..] if !values.is_empty() => set_job(producer, id_of(id)?, values),
        ["cancel", what] => count_of(what, "CANCELLED", producer.cancel(what, &own_user())),
        ["clear", pattern, ref state @ ..] => count("CLEARED", producer.clear(pattern, one_state(state)?)),
        ["pause", pattern, time] => found(pattern, producer.pause(pattern, read(time, seconds)?).map_err(failure)?),
        ["retry", pattern, ref how @ ..] if (1..=4).contains(&how.len()) => retry(producer, pattern, how),
        ["limit", what, number, ref how @ ..] => limit(producer, what, number, how),
        ["drain"] => set(producer.drain(true)),
        ["undrain"] => set(producer.drain(false)),
        ["store-copy", name] => store_copy(producer, name),
        ["dead-letter", pattern, ref tube @ ..] if tube.len() <= 1 => {
            set(producer.dead_letter(pattern, tube.first().copied()))
        }
        ["init-db", url] => init_db(url, settings.is_run),
        ["copy", from, to] => copy_store(from, to),
        _ => Err(wrong_form(words)),
    }
}

fn wrong_form(words: &[&str]) -> Failure {
    wrong_request("jobs", REQUESTS, words)
}

/// Copies all jobs of a store to an empty one, without a daemon.
fn copy_store(from: &str, to: &str) -> Exit {
    let place = |text| Place::parse(text).map_err(Failure::misuse);
    let (source, target) = (place(from)?, place(to)?);
    let name = target.name().to_string();
    print(&format!("{name} has {} jobs now\n", copy::copy(source, target)?))
}

#[cfg(not(feature = "postgres"))]
fn init_db(_: &str, _: bool) -> Exit {
    Err(Failure::misuse("this program is built without PostgreSQL"))
}

/// Prints the SQL that creates the tables in a database, or executes it.
#[cfg(feature = "postgres")]
fn init_db(url: &str, is_run: bool) -> Exit {
    // Accepts the same form as the daemon's option.
    let url = url.strip_prefix("postgres:").filter(|rest| !rest.starts_with("//")).unwrap_or(url);
    let place = Database::parse(url).map_err(Failure::misuse)?;
    if !is_run {
        return print(&postgres::schema::script());
    }
    let name = place.name();
    postgres::init_db(&place).map_err(|sentence| format!("{name}: {sentence}"))?;
    print(&format!("{name} has the tables now\n"))
}

fn peek(producer: &Producer, what: &str, state: JobState) -> Exit {
    let body = match as_id(what) {
        Some(id) => producer.peek(id).map_err(failure)?,
        None => {
            producer.use_tube(what).map_err(failure)?;
            producer.peek_next(state).map_err(failure)?.map(|(_, body)| body)
        }
    };
    let Some(body) = body else { return found(what, false) };
    if stdout().is_terminal() {
        return print(&format!("{}\n", printable(&body)));
    }
    print_bytes(&body)
}

/// Kicks the jobs of a pattern that are in this state, and returns their number.
fn kick_tube(producer: &Producer, pattern: &str, state: JobState) -> Result<u64, Failure> {
    if !matches!(state, JobState::Delayed | JobState::Buried) {
        return Err(Failure::misuse("only delayed and buried jobs are kicked"));
    }
    if pattern.contains('*') || producer.is_extended().map_err(failure)? {
        return producer.kick_all(pattern, Some(state)).map_err(failure);
    }
    // beanstalkd kicks delayed jobs only if none is buried.
    let stats = producer.stats_tube(pattern).map_err(failure)?;
    let is_buried = |(name, _): &&(String, String)| name == "current-jobs-buried";
    let stats = stats.unwrap_or_default();
    let buried = stats.iter().find(is_buried).and_then(|(_, number)| number.parse().ok()).unwrap_or(0);
    let most = match state {
        JobState::Buried => buried,
        _ if buried > 0 => return Err(Failure::misuse("this server kicks delayed jobs only if none is buried")),
        _ => u32::MAX,
    };
    if most == 0 {
        return Ok(0);
    }
    producer.use_tube(pattern).and_then(|()| producer.kick(most)).map_err(failure)
}

fn bury(settings: &JobsCommandSettings, id: JobId) -> Exit {
    let mut runner = settings.servers.runner_of(&settings.servers.list());
    let Some(job) = runner.reserve_job(id).map_err(failure)? else { return found(&id.to_string(), false) };
    runner.bury(&job, None).map_err(failure)?;
    Ok(ExitCode::SUCCESS)
}

fn count(word: &str, counted: Result<u64, Error>) -> Exit {
    print(&format!("{word} {}\n", counted.map_err(failure)?))
}

/// Prints the number of jobs that a request about a job or a pattern has changed.
fn count_of(what: &str, word: &str, counted: Result<Option<u64>, Error>) -> Exit {
    match counted.map_err(failure)? {
        Some(number) => count(word, Ok(number)),
        None => found(what, false),
    }
}

fn found(what: &str, is_there: bool) -> Exit {
    if is_there {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::from(format!("{what}: NOT_FOUND")))
}

/// Returns the number of a job; a tube with a number as its name is not considered.
fn as_id(what: &str) -> Option<JobId> {
    what.bytes().all(|byte| byte.is_ascii_digit()).then(|| what.parse().ok().map(JobId)).flatten()
}

fn id_of(word: &str) -> Result<JobId, Failure> {
    as_id(word).ok_or_else(|| Failure::misuse(format!("\"{word}\" is not the number of a job")))
}

/// Returns the state of jobs that a request may name at its end.
fn one_state(words: &[&str]) -> Result<Option<JobState>, Failure> {
    let [word] = *words else {
        return if words.is_empty() { Ok(None) } else { Err(Failure::misuse("one state of jobs can be named")) };
    };
    match JobState::of_word(word) {
        None => Err(Failure::misuse(format!("\"{word}\" is not ready, reserved, delayed or buried"))),
        state => Ok(state),
    }
}

/// Returns the failure for an error of server or client, with its exit status.
fn failure(error: Error) -> Failure {
    let sentence = error.to_string();
    let status = match error {
        Error::BadArgument(_) => MISUSE,
        Error::Unavailable(_) | Error::Lost => UNAVAILABLE,
        Error::Refused(words) if words == "OUT_OF_MEMORY" || words == "DRAINING" => TRY_LATER,
        _ => PROTOCOL,
    };
    Failure { status, sentence }
}

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
