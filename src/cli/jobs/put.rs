//! `jobs put`: puts a job, or a job for each line of the standard input.

use super::failure;
use super::options::QUEUE_SERVER;
use crate::command::{Exit, Failure};
use crate::servers::{Servers, has_part, server_option, tls_option};
use crate::table::Given;
use crate::terminal::{self, cannot_read, input, print};
use poolcounter_client::{Error, JobExtras, NewJob, Producer, PutOutcome, Until};
use poolcounter_service::options::{Opt, assign, number, option_table, seconds, seconds_from};
use std::io::{BufRead, BufReader, stdin};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::Duration;

/// Limits of one `put-many` for jobs from lines: their number, and the bytes of their bodies.
const LINES_AT_ONCE: usize = 1000;
const BYTES_AT_ONCE: usize = 16 << 20;

/// Settings of the command.
#[derive(Default)]
pub struct PutSettings {
    servers: Servers,
    /// Properties of the jobs.
    job: NewJob,
    /// Timestamp of the root job.
    root_timestamp: Option<u64>,
    by_line: bool,
}

/// Options of the command.
pub const OPTIONS: &[Opt<PutSettings>] = option_table!(PutSettings;
    "--pri N", "Priority of the job; jobs with a lower number are reserved first (default: 65536).",
        |settings, value| assign(&mut settings.job.pri, number(value, 0..=u32::MAX));
    "--delay SECONDS",
        "Time until the job can be reserved (default: 0). The time is rounded up to whole seconds, like all times of \
         jobs.",
        |settings, value| assign(&mut settings.job.delay, seconds(value));
    "--ttr SECONDS",
        "Time to run (TTR): time for which a runner may be silent before the job is given to another (default: 60).",
        |settings, value| assign(&mut settings.job.ttr, seconds(value));
    => Opt::of_bytes("--key KEY",
        "Do nothing if a job with this key waits in the tube already. The key has no spaces. The reply for such a \
         duplicate is DUPLICATE, with the number of that job, and `buried` if it is buried.",
        |settings, value| assign(&mut settings.job.extras.key, Ok(Some(value.into()))));
    "--until-deleted", "The key prevents duplicates until the job is deleted, not only while it waits.",
        |settings, _| assign(&mut settings.job.extras.until, Ok(Until::Deleted));
    "--key-for SECONDS",
        "The key prevents duplicates for this time from the put on, also after the job is done. With --key, and not \
         together with --root.",
        |settings, value| assign(&mut settings.job.extras.key_for, seconds_from(Duration::ZERO, value).map(Some));
    => Opt::of_bytes("--group NAME", "Group of the job, for limits.", |settings, value| {
        assign(&mut settings.job.extras.group, Ok(Some(value.into())))
    });
    => Opt::of_bytes("--root SIGNATURE",
        "Signature of the root job of the job, with --root-ts; a newer root job with this signature drops the job.",
        |settings, value| {
            // The timestamp is another option, which may come before or after it.
            assign(&mut settings.job.extras.root, Ok(Some((value.into(), 0))))
        });
    "--root-ts N", "Timestamp of the root job, a number.",
        |settings, value| assign(&mut settings.root_timestamp, number(value, 0..=u64::MAX).map(Some));
    "--lines",
        "Put each line of the standard input as a job, without its line end. A refused line has the reason in the \
         place of its reply. The command ends with the first one; jobs that were read together with it are put, too. \
         It goes on if the reader of its output is gone.",
        |settings, _| assign(&mut settings.by_line, Ok(true));
    => server_option(QUEUE_SERVER); => tls_option();
);

/// Runs the command.
///
/// # Errors
///
/// Fails if the command line is wrong, no server replies, or the server refuses.
pub fn run(given: &Given) -> Exit {
    let settings = given.settings(OPTIONS, PutSettings::default())?;
    if settings.job.extras.root.is_some() != settings.root_timestamp.is_some() {
        return Err(Failure::misuse("--root and --root-ts go together"));
    }
    let JobExtras { key, key_for, root, .. } = &settings.job.extras;
    if key_for.is_some() && (key.is_none() || root.is_some()) {
        return Err(Failure::misuse("--key-for needs --key, and does not go together with --root"));
    }
    let producer = settings.servers.producer();
    match given.words.as_slice() {
        [tube] => put_input(&producer, &settings, &tube.to_string_lossy()),
        [tube, body] if !settings.by_line => {
            let job = NewJob { body: body.as_bytes().into(), ..settings.job(&tube.to_string_lossy()) };
            put_one(&producer, &job)
        }
        _ => Err(Failure::misuse("jobs put needs TUBE [BODY]")),
    }
}

/// Puts the standard input as one job, or each of its lines as one.
fn put_input(producer: &Producer, settings: &PutSettings, tube: &str) -> Exit {
    if !settings.by_line {
        return put_one(producer, &NewJob { body: input()?, ..settings.job(tube) });
    }
    let mut input = BufReader::with_capacity(1 << 16, stdin().lock());
    // The jobs are put whether or not somebody reads their numbers.
    let (mut has_reader, mut lines) = (true, 0);
    loop {
        let (mut jobs, mut bytes) = (Vec::new(), 0);
        // Batches the lines available now; no job waits for a later line.
        while jobs.is_empty()
            || jobs.len() < LINES_AT_ONCE && bytes < BYTES_AT_ONCE / 2 && input.buffer().contains(&b'\n')
        {
            let mut body = Vec::new();
            if input.read_until(b'\n', &mut body).map_err(|error| cannot_read(&error))? == 0 {
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
        // All of them, because those behind a refused one are put, too.
        let (mut text, mut first_refused) = (String::new(), None);
        for (outcome, job) in outcomes.into_iter().zip(&jobs) {
            lines += 1;
            match outcome {
                Ok(outcome) => text += &line_of(&outcome),
                Err(error) => {
                    let refused = with_size(producer, error, job);
                    let reason = if let Error::Refused(words) = &refused { words.clone() } else { refused.to_string() };
                    text += &format!("line {lines}: {reason}\n");
                    first_refused
                        .get_or_insert(Failure { sentence: format!("line {lines}: {reason}"), ..failure(refused) });
                }
            }
        }
        if has_reader {
            has_reader = terminal::try_print(text.as_bytes())?;
        }
        if let Some(Failure { status, sentence }) = first_refused {
            return Err(Failure { status, sentence: format!("{sentence}; {lines} lines were sent") });
        }
    }
}

fn put_one(producer: &Producer, job: &NewJob) -> Exit {
    let outcome = producer.put(job).map_err(|error| failure(with_size(producer, error, job)))?;
    print(&line_of(&outcome))
}

/// Adds the sizes to the refusal of a job that is too large.
fn with_size(producer: &Producer, error: Error, job: &NewJob) -> Error {
    let Error::Refused(words) = &error else { return error };
    let stats = if words == "JOB_TOO_BIG" { producer.stats().unwrap_or_default() } else { Vec::new() };
    let most = stats.into_iter().find(|(name, _)| name == "max-job-size");
    most.map_or(error, |(_, most)| {
        let words = format!("JOB_TOO_BIG: {} bytes, at most {most} (jobs.max_size)", job.body.len());
        Error::Refused(words)
    })
}

fn line_of(outcome: &PutOutcome) -> String {
    match outcome {
        PutOutcome::Inserted(id) => format!("INSERTED {id}\n"),
        PutOutcome::Buried(id) => format!("BURIED {id}\n"),
        PutOutcome::Duplicate(id) => format!("DUPLICATE {id}\n"),
        PutOutcome::DuplicateOfBuried(id) => format!("DUPLICATE {id} buried\n"),
        PutOutcome::Superseded => "SUPERSEDED\n".into(),
    }
}

impl PutSettings {
    /// Returns a job with the properties given by options, without a body.
    fn job(&self, tube: &str) -> NewJob {
        let mut job = NewJob { tube: Some(tube.into()), ..self.job.clone() };
        if let (Some((_, timestamp)), Some(given)) = (&mut job.extras.root, self.root_timestamp) {
            *timestamp = given;
        }
        job
    }
}

has_part!(PutSettings, servers: Servers);
