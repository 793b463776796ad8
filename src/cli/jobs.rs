//! `jobs`: what producers, runners and operators of a job queue do, as commands. A plain beanstalkd will do as the server for all
//! that it can.

mod allowed;
mod batch;
mod command_run;
mod fetch;
mod input;
mod options;
mod outcomes;
mod pace;
mod plan;
mod rests;
mod run;
mod settings;
mod show;
mod slot;
mod tally;
mod tubes;
mod words;

pub use options::described;

use super::command::Failure;
use super::command::MISUSE;
use super::exec::{PROTOCOL, TRY_LATER, UNAVAILABLE};
use super::table::Given;
use super::terminal::{self, print, printable};
use options::OPTIONS;
use poolcounter_client::{Error, JobId, JobState, NewJob, Producer, PutOutcome, SummaryBy};
#[cfg(feature = "postgres")]
use poolcounter_jobs::postgres::{self, PostgresUrl};
use settings::JobCommandSettings;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write, stdin, stdout};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::Duration;

/// What can be asked for, in the order of the help.
const REQUESTS: [&str; 16] = [
    "put",
    "run",
    "peek",
    "show",
    "kick",
    "bury",
    "delete",
    "summary",
    "list",
    "stats",
    "clear",
    "pause",
    "retry",
    "limit",
    "dead-letter",
    "init-db",
];
/// How many jobs of lines are put at once, and how many bytes: what one `put-many` may have.
const LINES_AT_ONCE: usize = 1000;
const BYTES_AT_ONCE: usize = 16 << 20;

/// The requests.
pub fn first_words() -> Vec<&'static str> {
    REQUESTS.into()
}

/// The command.
///
/// # Errors
///
/// When the command line is wrong, no server answers, or the server refuses.
pub fn run(given: &Given) -> Result<ExitCode, Failure> {
    let mut settings = JobCommandSettings::default();
    given.apply(OPTIONS, &mut settings)?;
    let (words, command) = given.words.split_at(given.words_before_dashes);
    let texts: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let texts: Vec<&str> = texts.iter().map(|text| &**text).collect();
    let request = texts.first().copied().filter(|word| REQUESTS.contains(word));
    let Some(request) = request else {
        return Err(match texts.first() {
            Some(word) => Failure::unknown("request", word, REQUESTS, "poolcounter help jobs"),
            None => misuse("no request is named"),
        });
    };
    allowed::check(request, given)?;
    if !settings.has_whole_root() {
        return Err(misuse("--root and --root-ts go together"));
    }
    if request == "run" {
        return run::run(&settings, &texts[1..], command);
    }
    if !command.is_empty() {
        return Err(misuse("only \"run\" runs a command"));
    }
    let producer = settings.servers.producer();
    match texts[..] {
        ["put", tube] => put_input(&producer, &settings, tube),
        ["put", tube, _] if !settings.by_line => {
            let job = NewJob { body: words[2].as_bytes().into(), ..settings.job(tube) };
            told(producer.put(&job).map_err(failure)?)
        }
        ["peek", what] => peek(&producer, what, JobState::Ready),
        ["peek", what, state] => peek(&producer, what, state_of(state)?),
        ["show", id] => show::job(&producer, &settings, id_of(id)?),
        ["kick"] if settings.is_all => {
            let tubes = producer.tubes().map_err(failure)?;
            count("KICKED", tubes.iter().try_fold(0, |kicked, tube| Ok(kicked + kick_tube(&producer, tube)?)))
        }
        ["kick", pattern] if settings.is_all => count("KICKED", kick_tube(&producer, pattern)),
        ["kick", what] => kick(&producer, what),
        ["bury", id] => bury(&settings, id_of(id)?),
        ["delete", id] => found(id, producer.delete(id_of(id)?).map_err(failure)?),
        ["summary"] => show::summary(&producer, &settings, SummaryBy::Wiki),
        ["summary", by] => {
            let by = SummaryBy::ALL.into_iter().find(|known| known.word() == by);
            show::summary(&producer, &settings, by.ok_or_else(|| misuse("not wiki, type, tube or runner"))?)
        }
        ["list", tube] => show::list(&producer, &settings, tube, JobState::Ready),
        ["list", tube, state] => show::list(&producer, &settings, tube, state_of(state)?),
        ["stats"] => show::stats(&producer, &settings, None),
        ["stats", what] => show::stats(&producer, &settings, Some(what)),
        ["clear", pattern] => count("CLEARED", producer.clear(pattern, None)),
        ["clear", pattern, state] => count("CLEARED", producer.clear(pattern, Some(state_of(state)?))),
        ["pause", pattern, seconds] => {
            let time = poolcounter_service::options::seconds(seconds)
                .map_err(|wanted| misuse(&format!("{seconds} is not {wanted}")))?;
            found(pattern, producer.pause(pattern, time).map_err(failure)?)
        }
        ["retry", pattern, ref how @ ..] if (1..=4).contains(&how.len()) => tubes::retry(&producer, pattern, how),
        ["limit", what, number] => tubes::limit(&producer, what, number, None),
        ["limit", what, number, scope] => tubes::limit(&producer, what, number, Some(scope)),
        ["dead-letter", pattern] => tubes::set(producer.dead_letter(pattern, None)),
        ["dead-letter", pattern, tube] => tubes::set(producer.dead_letter(pattern, Some(tube))),
        ["init-db", url] => init_db(url, settings.is_run),
        _ => Err(misuse(&format!("this is not how to {request}"))),
    }
}

#[cfg(not(feature = "postgres"))]
fn init_db(_: &str, _: bool) -> Result<ExitCode, Failure> {
    Err(misuse("this program is built without PostgreSQL"))
}

/// Prints what makes the tables in a database, or makes them.
#[cfg(feature = "postgres")]
fn init_db(url: &str, is_run: bool) -> Result<ExitCode, Failure> {
    // As the option of the daemon has it.
    let url = url.strip_prefix("postgres:").filter(|rest| !rest.starts_with("//")).unwrap_or(url);
    let url = PostgresUrl::parse(url).map_err(|sentence| misuse(&sentence))?;
    if !is_run {
        return print(postgres::schema::TABLES);
    }
    let name = url.place.name();
    postgres::init_db(&url.place).map_err(|sentence| format!("{name}: {sentence}"))?;
    print(&format!("{name} has the tables now\n"))
}

/// Puts what is on the standard input: as one job, or each line as one.
fn put_input(producer: &Producer, settings: &JobCommandSettings, tube: &str) -> Result<ExitCode, Failure> {
    let cannot_read = |error: std::io::Error| Failure::from(format!("cannot read the standard input: {error}"));
    if !settings.by_line {
        let mut body = Vec::new();
        stdin().lock().read_to_end(&mut body).map_err(cannot_read)?;
        return told(producer.put(&NewJob { body, ..settings.job(tube) }).map_err(failure)?);
    }
    let mut input = BufReader::with_capacity(1 << 16, stdin().lock());
    loop {
        let (mut jobs, mut bytes) = (Vec::new(), 0);
        // What is there already goes together; nothing waits for a line that may come later.
        while jobs.is_empty()
            || jobs.len() < LINES_AT_ONCE && bytes < BYTES_AT_ONCE / 2 && input.buffer().contains(&b'\n')
        {
            let mut body = Vec::new();
            if input.read_until(b'\n', &mut body).map_err(cannot_read)? == 0 {
                break;
            }
            body.pop_if(|byte| *byte == b'\n');
            bytes += body.len();
            jobs.push(NewJob { body, ..settings.job(tube) });
        }
        if jobs.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        let is_together = jobs.len() > 1 && producer.is_extended().map_err(failure)?;
        let outcomes = match is_together {
            true => producer.put_many(&jobs).map_err(failure)?,
            false => jobs.iter().map(|job| producer.put(job)).collect(),
        };
        for outcome in outcomes {
            told(outcome.map_err(failure)?)?;
        }
    }
}

fn told(outcome: PutOutcome) -> Result<ExitCode, Failure> {
    print(&match outcome {
        PutOutcome::Inserted(id) => format!("INSERTED {id}\n"),
        PutOutcome::Buried(id) => format!("BURIED {id}\n"),
        PutOutcome::Duplicate(id) => format!("DUPLICATE {id}\n"),
        PutOutcome::Superseded => "SUPERSEDED\n".into(),
    })
}

fn peek(producer: &Producer, what: &str, state: JobState) -> Result<ExitCode, Failure> {
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
    stdout().write_all(&body).map_err(|error| format!("cannot print: {error}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Kicks a job, or all of a pattern.
fn kick(producer: &Producer, what: &str) -> Result<ExitCode, Failure> {
    if let Some(id) = as_id(what) {
        return found(what, producer.kick_job(id).map_err(failure)?);
    }
    count("KICKED", kick_tube(producer, what))
}

fn kick_tube(producer: &Producer, pattern: &str) -> Result<u64, Error> {
    if pattern.contains('*') || producer.is_extended()? {
        return producer.kick_all(pattern);
    }
    producer.use_tube(pattern)?;
    // It kicks the delayed ones only when none is buried.
    Ok(producer.kick(u32::MAX)? + producer.kick(u32::MAX)?)
}

fn bury(settings: &JobCommandSettings, id: JobId) -> Result<ExitCode, Failure> {
    let mut runner = settings.servers.runner_of(&settings.servers.list());
    let Some(job) = runner.reserve_job(id).map_err(failure)? else { return found(&id.to_string(), false) };
    runner.bury(&job, None).map_err(failure)?;
    Ok(ExitCode::SUCCESS)
}

fn count(word: &str, counted: Result<u64, Error>) -> Result<ExitCode, Failure> {
    print(&format!("{word} {}\n", counted.map_err(failure)?))
}

fn found(what: &str, is_there: bool) -> Result<ExitCode, Failure> {
    if is_there {
        return Ok(ExitCode::SUCCESS);
    }
    terminal::warn(&format!("{what}: NOT_FOUND"));
    Ok(ExitCode::FAILURE)
}

/// Returns the number of a job; a tube may be called so too, and is not meant.
fn as_id(what: &str) -> Option<JobId> {
    what.bytes().all(|byte| byte.is_ascii_digit()).then(|| what.parse().ok().map(JobId)).flatten()
}

fn id_of(word: &str) -> Result<JobId, Failure> {
    as_id(word).ok_or_else(|| misuse(&format!("\"{word}\" is not the number of a job")))
}

fn state_of(word: &str) -> Result<JobState, Failure> {
    JobState::of_word(word).ok_or_else(|| misuse(&format!("\"{word}\" is not ready, reserved, delayed or buried")))
}

fn misuse(sentence: &str) -> Failure {
    Failure::misuse(format!("{sentence} (see poolcounter help jobs)"))
}

/// What a server or the client has against it, with the status for that.
fn failure(error: Error) -> Failure {
    let sentence = error.to_string();
    let status = match error {
        Error::BadName => MISUSE,
        Error::Unavailable(_) | Error::Lost => UNAVAILABLE,
        Error::Refused(words) if words == "OUT_OF_MEMORY" || words == "DRAINING" => TRY_LATER,
        _ => PROTOCOL,
    };
    Failure { status, sentence }
}

/// As long as `--timeout` and `--grace` can be, where that is forever.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);
