//! `jobs schedule`: sets and ends periodic jobs, and prints them.

use super::options::QUEUE_SERVER;
use super::{failure, found, set, show, wrong_form};
use crate::command::{Exit, Failure};
use crate::servers::{Servers, has_part, json_option, server_option, tls_option};
use crate::table::{Given, one_of};
use crate::terminal::input;
use poolcounter_client::{NewJob, Schedule, ScheduleTimes};
use poolcounter_jobs::timetable::Timetable;
use poolcounter_jobs::values;
use poolcounter_service::options::{Opt, assign, number, option_table, seconds};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// Settings of the command.
#[derive(Default)]
pub struct ScheduleSettings {
    servers: Servers,
    cron: Option<String>,
    timezone: Option<String>,
    every: Option<u32>,
    is_made_up: bool,
    /// Properties of the jobs.
    job: NewJob,
}

/// Options of the command.
pub const OPTIONS: &[Opt<ScheduleSettings>] = option_table!(ScheduleSettings;
    "--cron EXPRESSION",
        "For put: times of day, as five fields of cron (minute, hour, day, month, day of the week), or six with the \
         second first. There are @hourly, @daily, @weekly, @monthly and @yearly, too.",
        |settings, value| assign(&mut settings.cron, Ok(Some(value.into())));
    "--timezone ZONE", "For put: zone of these times, such as Europe/Berlin (default: UTC).",
        |settings, value| assign(&mut settings.timezone, Ok(Some(value.into())));
    "--every SECONDS", "For put: time from one job to the next, instead of times of day.",
        |settings, value| assign(&mut settings.every, number(value, 1..=u32::MAX).map(Some));
    "--missed skip|once",
        "For put: whether a job is put late, once, for times that were missed because no daemon ran (default: skip).",
        |settings, value| assign(&mut settings.is_made_up, one_of(value, &[("skip", false), ("once", true)]));
    => Opt::of_bytes("--key KEY",
        "For put: key of the jobs: a time is skipped while a job with it waits in the tube (default: schedule: and the \
         name).",
        |settings, value| assign(&mut settings.job.extras.key, Ok(Some(value.into()))));
    "--pri N", "For put: priority of the jobs (default: 65536).",
        |settings, value| assign(&mut settings.job.pri, number(value, 0..=u32::MAX));
    "--ttr SECONDS", "For put: time to run (TTR) of the jobs (default: 60).",
        |settings, value| assign(&mut settings.job.ttr, seconds(value));
    => json_option("Print JSON, without put or delete. The output is a list of one object: server and schedules.");
    => server_option(QUEUE_SERVER); => tls_option();
);

/// Runs the command.
///
/// # Errors
///
/// Fails if the command line is wrong, no server replies, or the server refuses.
pub fn run(given: &Given) -> Exit {
    let settings = given.settings(OPTIONS, ScheduleSettings::default())?;
    let producer = settings.servers.producer();
    let texts: Vec<String> = given.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    match *texts.iter().map(|text| &**text).collect::<Vec<_>>() {
        [] => show::schedules(&producer, settings.servers.is_json),
        ["delete", name] => found(name, producer.schedule_delete(name).map_err(failure)?),
        ["put", name, tube, ..] if texts.len() <= 4 => {
            let body = given.words.get(3).map_or_else(input, |body| Ok(body.as_bytes().into()))?;
            set(producer.schedule_put(&settings.schedule(name, tube, body)?))
        }
        ref words => Err(wrong_form(&[&["schedule"], words].concat())),
    }
}

impl ScheduleSettings {
    /// Returns the periodic job that the options describe.
    fn schedule(&self, name: &str, tube: &str, body: Vec<u8>) -> Result<Schedule, Failure> {
        let times = match (&self.cron, self.every) {
            (Some(cron), None) => ScheduleTimes::Cron { expression: cron.clone(), timezone: self.timezone.clone() },
            (None, Some(_)) if self.timezone.is_some() => {
                return Err(Failure::misuse("--timezone goes together with --cron"));
            }
            (None, Some(every)) => ScheduleTimes::Every(Duration::from_secs(every.into())),
            _ => return Err(Failure::misuse("jobs schedule put needs either --cron or --every")),
        };
        if let ScheduleTimes::Cron { expression, timezone } = &times {
            let timezone = timezone.as_deref().unwrap_or("UTC").into();
            let times = values::ScheduleTimes::Cron { expression: (&**expression).into(), timezone };
            Timetable::new(&times).map_err(Failure::misuse)?;
        }
        let job = NewJob { tube: Some(tube.into()), body, ..self.job.clone() };
        Ok(Schedule { name: name.into(), job, times, is_made_up: self.is_made_up })
    }
}

has_part!(ScheduleSettings, servers: Servers);
