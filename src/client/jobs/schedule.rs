//! Periodic jobs, as their requests.

use super::producer::Producer;
use super::replies::{expect, expect_or_not_found, read_text};
use super::{NewJob, checked, tube_of, whole_seconds};
use crate::error::Error;
use poolcounter_protocol::jobs::wire::client::{self as wire, YamlMap};
use std::time::Duration;

/// Job that the server puts periodically.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// Name: 1 to 64 bytes without spaces and control bytes.
    pub name: String,
    /// The job, with its tube. Of its extras it may have a key; without one it has `schedule:` and the name. It has no
    /// delay.
    pub job: NewJob,
    /// Times at which it is put.
    pub times: ScheduleTimes,
    /// True if a job is put late, once, for times that were missed.
    pub is_made_up: bool,
}

/// Times of a periodic job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScheduleTimes {
    /// Each time that this is over, in whole seconds; first when it is over for the first time.
    Every(Duration),
    /// By the time of day.
    Cron {
        /// Five fields of cron, or six with the second first.
        expression: String,
        /// Zone, as `Europe/Berlin`; None for UTC.
        timezone: Option<String>,
    },
}

impl Schedule {
    /// Returns its request, without the word of it.
    fn request(&self) -> Result<Vec<u8>, Error> {
        let Schedule { name, job, times, is_made_up } = self;
        checked("the name", name.as_bytes(), wire::is_group)?;
        let tube = tube_of(job.tube.as_deref().unwrap_or_default())?;
        let key = checked("the key", job.extras.key.as_deref(), wire::is_key)?;
        let (ttr, len) = (whole_seconds(job.ttr), job.body.len());
        let mut request = format!("{name} {} {ttr} {len} tube={tube}", job.pri).into_bytes();
        if !key.is_empty() {
            request.extend([b" key=", key].concat());
        }
        let missed = if *is_made_up { "once" } else { "skip" };
        request.extend(match times {
            ScheduleTimes::Every(time) => format!(" missed={missed} every={}", whole_seconds(*time)).into_bytes(),
            ScheduleTimes::Cron { expression, timezone } => {
                let zone = checked("the zone", timezone.as_deref().map(str::as_bytes), wire::is_key)?;
                let zone = if zone.is_empty() { Vec::new() } else { [b" timezone=", zone].concat() };
                if expression.is_empty() || expression.contains(char::is_control) {
                    return Err(Error::BadArgument(format!("the expression {expression:?}: it is empty or no line")));
                }
                [format!(" missed={missed}").as_bytes(), &zone, b" cron=", expression.as_bytes()].concat()
            }
        });
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(&job.body);
        Ok(request)
    }
}

impl Producer {
    /// Sets a periodic job. One that is set already as it is goes on.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; [`Error::Refused`] with `BAD_FORMAT` if the server does not know the expression or the
    /// zone; the errors of [`Producer::put`].
    pub fn schedule_put(&self, schedule: &Schedule) -> Result<(), Error> {
        self.ask_extension("schedule-put", schedule.request()?, |_, line| expect(line, "SCHEDULED"))
    }

    /// Ends a periodic job, and returns false if there is none of this name. Jobs that it has put stay.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; the errors of [`Producer::put`].
    pub fn schedule_delete(&self, name: &str) -> Result<bool, Error> {
        checked("the name", name.as_bytes(), wire::is_group)?;
        self.ask_extension("schedule-delete", name, |_, line| expect_or_not_found(line, "DELETED"))
    }

    /// Returns the periodic jobs: maps with the `name`, its `tube`, `every` or `cron` and `timezone`, `missed`, `key`,
    /// `pri`, `ttr`, the `bytes` of the body, the seconds until the `next` and since the `last`, the number of times
    /// that were `skipped`, and the `origin`.
    ///
    /// # Errors
    ///
    /// [`Error::NoExtension`]; the errors of [`Producer::put`].
    pub fn schedules(&self) -> Result<Vec<YamlMap>, Error> {
        let read = |connection: &mut _, line: &[u8]| read_text(connection, line, wire::parse_maps);
        self.ask_extension("list-schedules", "", read)
    }
}
