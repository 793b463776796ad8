//! Times of periodic jobs, reckoned from expressions of cron and zones. The rules of the zones are built in, so that no
//! file is read and daemons agree. Times are microseconds since 1970.
//!
//! A time of day that a change of summer time leaves out counts as the first one after the gap. Of one that comes twice
//! the first counts; an expression with steps or `*` in its hours has both.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use poolcounter_protocol::jobs::values::ScheduleTimes;

/// Begin of the last years that expressions can name. What has no time in them has none at all: the days of the week and
/// of leap years have come round by their end.
const LAST_YEARS: i64 = 94_355_280_000_000_000;

/// Times of one periodic job.
pub enum Timetable {
    /// Each time that this many microseconds are over.
    Every(i64),
    /// By the time of day.
    Cron(Box<Cron>, TimeZone),
}

impl Timetable {
    /// Returns the timetable.
    ///
    /// # Errors
    ///
    /// A sentence that says what is wrong with the expression or the zone.
    pub fn new(times: &ScheduleTimes) -> Result<Timetable, String> {
        let (expression, timezone) = match times {
            ScheduleTimes::Every(seconds) => return Ok(Timetable::Every(i64::from(*seconds) * 1_000_000)),
            ScheduleTimes::Cron { expression, timezone } => (expression, timezone),
        };
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let cron = parser.parse(expression).map_err(|error| format!("cron \"{expression}\": {error}"))?;
        let zone = TimeZone::get(timezone).map_err(|_| {
            format!("timezone \"{timezone}\": there is no such zone; they are named as in Europe/Berlin")
        })?;
        let table = Timetable::Cron(Box::new(cron), zone);
        match table.next(LAST_YEARS, 0) {
            Some(_) => Ok(table),
            None => Err(format!("cron \"{expression}\": there is no such day")),
        }
    }

    /// Returns the first time after `after`. `one` is one of the times of [`Timetable::Every`].
    pub fn next(&self, after: i64, one: i64) -> Option<i64> {
        match self {
            Timetable::Every(_) => Some(self.back_to(after, one).saturating_add(self.step())),
            Timetable::Cron(cron, zone) => micros(cron.find_next_occurrence(&zoned(after, zone)?, false)),
        }
    }

    /// Returns the last time that is not after `until`.
    pub fn last(&self, until: i64, one: i64) -> Option<i64> {
        match self {
            Timetable::Every(_) => Some(self.back_to(until, one)),
            Timetable::Cron(cron, zone) => micros(cron.find_previous_occurrence(&zoned(until, zone)?, true)),
        }
    }

    /// Returns `until`, or the last time of [`Timetable::Every`] that is not after it.
    pub fn back_to(&self, until: i64, one: i64) -> i64 {
        match self {
            Timetable::Every(_) => until.saturating_sub(until.saturating_sub(one).rem_euclid(self.step())),
            Timetable::Cron(..) => until,
        }
    }

    fn step(&self) -> i64 {
        if let Timetable::Every(step) = self { *step } else { 1 }
    }
}

fn zoned(at: i64, zone: &TimeZone) -> Option<Zoned> {
    Some(Timestamp::from_microsecond(at).ok()?.to_zoned(zone.clone()))
}

fn micros<E>(time: Result<Zoned, E>) -> Option<i64> {
    time.ok().map(|time| time.timestamp().as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> i64 {
        text.parse::<Timestamp>().expect("is a time").as_microsecond()
    }

    fn cron(expression: &str, timezone: &str) -> Result<Timetable, String> {
        Timetable::new(&ScheduleTimes::Cron { expression: expression.into(), timezone: timezone.into() })
    }

    /// Returns the times after one, and finds each again from the other side.
    fn times(expression: &str, after: &str) -> Vec<String> {
        let table = cron(expression, "Europe/Berlin").expect("is right");
        let mut time = at(after);
        let mut told = |_| {
            time = table.next(time, 0).expect("there is one");
            assert_eq!(table.last(time + 1, 0), Some(time), "{expression}");
            zoned(time, &TimeZone::get("Europe/Berlin").expect("is there"))
                .expect("is a time")
                .strftime("%d %H:%M %:z")
                .to_string()
        };
        (0..3).map(&mut told).collect()
    }

    #[test]
    fn a_time_that_summer_begins_without_comes_after_the_gap() {
        let of = |expression| times(expression, "2026-03-28T12:00:00Z");
        assert_eq!(of("30 2 * * *"), ["29 03:00 +02:00", "30 02:30 +02:00", "31 02:30 +02:00"]);
        assert_eq!(
            times("*/30 * * * *", "2026-03-29T00:15:00Z"),
            ["29 01:30 +01:00", "29 03:00 +02:00", "29 03:30 +02:00"]
        );
    }

    #[test]
    fn a_time_that_comes_twice_at_the_end_of_summer_counts_once() {
        let of = |expression| times(expression, "2026-10-24T12:00:00Z");
        assert_eq!(of("30 2 * * *"), ["25 02:30 +02:00", "26 02:30 +01:00", "27 02:30 +01:00"]);
        assert_eq!(
            times("0 * * * *", "2026-10-24T23:30:00Z"),
            ["25 02:00 +02:00", "25 02:00 +01:00", "25 03:00 +01:00"]
        );
    }

    #[test]
    fn what_never_comes_is_refused() {
        for (expression, timezone, wanted) in [
            ("0 0 31 2 *", "UTC", "there is no such day"),
            ("0 0 31 4,6,9,11 *", "Europe/Berlin", "there is no such day"),
            ("60 * * * *", "UTC", "cron \"60 * * * *\": "),
            ("* * * *", "UTC", "cron \"* * * *\": "),
            ("0 0 1 1 * * 2030", "UTC", "cron "),
            ("@daily", "Mars/Base", "timezone \"Mars/Base\": there is no such zone"),
        ] {
            let wrong = cron(expression, timezone).err().expect(expression);
            assert!(wrong.contains(wanted), "{wrong}");
        }
        assert!(
            cron("0 0 29 2 *", "UTC").is_ok() && cron("0 0 29 2 +MON", "UTC").is_ok() && cron("@daily", "UTC").is_ok()
        );
    }

    #[test]
    fn steps_begin_with_one_of_the_times() {
        let table = Timetable::new(&ScheduleTimes::Every(10)).expect("is right");
        let second = 1_000_000;
        assert_eq!(table.next(7 * second, 7 * second), Some(17 * second));
        assert_eq!(table.next(16 * second, 27 * second), Some(17 * second));
        assert_eq!(table.last(26 * second, 7 * second), Some(17 * second));
        assert_eq!(table.next(i64::MAX, 0), Some(i64::MAX), "there is no overflow");
    }
}
