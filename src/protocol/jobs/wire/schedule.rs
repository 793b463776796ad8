//! The line of a periodic job, which is a put with times.

use super::words::{self, Words, Wrong};
use super::{Line, MAX_GROUP, MAX_KEY, parse};
use crate::jobs::commands::JobCommand;
use crate::jobs::name::TubeName;
use crate::jobs::values::{Put, PutOptions, Schedule, ScheduleTimes};

/// Zone of expressions without one.
pub const UTC: &str = "UTC";

/// Returns whether a put is of a periodic job.
pub fn is_schedule(put: &Put) -> bool {
    put.options.as_ref().is_some_and(|options| options.schedule.is_some())
}

/// Returns the key of the jobs of a schedule without a key of its own.
pub fn key_of(name: &[u8]) -> Box<[u8]> {
    [b"schedule:", name].concat().into()
}

/// Reads the arguments of `schedule-put`. After its numbers, the length of the body is known even if the rest is wrong.
pub(super) fn read(words: &mut Words<'_>) -> Result<Line<'static>, Wrong> {
    let name = words.text(MAX_GROUP)?;
    let (pri, ttr, bytes) = (words.u32()?, words.u32()?, words.u32()?);
    Ok(match options(name, words) {
        Ok(options) => Line::Put(Put { pri, delay: 0, ttr, options: Some(Box::new(options)) }, bytes),
        Err(Wrong) => Line::RefusedBody(JobCommand::SchedulePut, bytes),
    })
}

fn options(name: &[u8], words: &mut Words<'_>) -> Result<PutOptions, Wrong> {
    let (mut tube, mut key, mut zone, mut missed, mut times) = (None, None, None, None, None);
    while times.is_none() {
        let word = words.word()?;
        let equals = word.iter().position(|byte| *byte == b'=').ok_or(Wrong)?;
        let value = &word[equals + 1..];
        match &word[..equals] {
            b"tube" if tube.is_none() => tube = Some(TubeName::parse(value).ok_or(Wrong)?.bytes()),
            b"key" if key.is_none() && words::is_text(value, MAX_KEY) => key = Some(value),
            b"timezone" if zone.is_none() => zone = Some(text(value)?),
            b"missed" if missed.is_none() && value == b"skip" => missed = Some(false),
            b"missed" if missed.is_none() && value == b"once" => missed = Some(true),
            // Lossless: it is within the limits.
            b"every" => times = Some(ScheduleTimes::Every(words::number(value, 1, u32::MAX.into())? as u32)),
            b"cron" => {
                let expression = [value, words.rest()].concat();
                times = Some(ScheduleTimes::Cron {
                    expression: text(&expression)?.into(),
                    timezone: zone.take().unwrap_or(UTC).into(),
                });
            }
            _ => return Err(Wrong),
        }
    }
    let times = times.filter(|_| zone.is_none() && words.is_empty()).ok_or(Wrong)?;
    Ok(PutOptions {
        tube: tube.ok_or(Wrong)?.into(),
        key: key.map_or_else(|| key_of(name), Into::into),
        schedule: Some(Box::new(Schedule { name: name.into(), times, is_made_up: missed.unwrap_or(false) })),
        ..PutOptions::default()
    })
}

fn text(bytes: &[u8]) -> Result<&str, Wrong> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty() && !text.contains(char::is_control)).ok_or(Wrong)
}

/// Returns what stands behind the name in the `schedule-put` of a periodic job with a body of this length.
pub fn write(put: &Put, body_bytes: usize) -> Vec<u8> {
    let mut line = format!("{} {} {body_bytes}", put.pri, put.ttr).into_bytes();
    let Some((PutOptions { tube, key, .. }, schedule)) =
        put.options.as_ref().and_then(|options| Some((&**options, options.schedule.as_ref()?)))
    else {
        return line;
    };
    let mut option = |name: &str, value: &[u8]| line.extend([b" ", name.as_bytes(), b"=", value].concat());
    option("tube", tube);
    if *key != key_of(&schedule.name) {
        option("key", key);
    }
    if schedule.is_made_up {
        option("missed", b"once");
    }
    match &schedule.times {
        ScheduleTimes::Every(seconds) => option("every", seconds.to_string().as_bytes()),
        ScheduleTimes::Cron { expression, timezone } => {
            if &**timezone != UTC {
                option("timezone", timezone.as_bytes());
            }
            option("cron", expression.as_bytes());
        }
    }
    line
}

/// Reads what [`write()`] has written. None if it is anything else.
pub fn parse_written(name: &[u8], line: &[u8]) -> Option<(Put, usize)> {
    let word = JobCommand::SchedulePut.row().word.as_bytes();
    match parse(&[word, b" ", name, b" ", line].concat()) {
        Line::Put(put, bytes) => Some((put, bytes as usize)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        for line in [
            "1 60 3 tube=a/b every=60",
            "1 60 3 tube=a/b key=k missed=once every=4294967295",
            "1 60 3 tube=a/b timezone=Europe/Berlin cron=30 2 * * *",
            "1 60 3 tube=a/b cron=@daily",
        ] {
            let (put, bytes) = parse_written(b"n", line.as_bytes()).expect(line);
            assert!(is_schedule(&put) && bytes == 3);
            assert_eq!(String::from_utf8(write(&put, 3)).expect("is text"), line);
        }
    }

    #[test]
    fn the_times_come_last_and_the_tube_is_named() {
        for line in [
            "1 60 3 every=60",
            "1 60 3 tube=a",
            "1 60 3 tube=* every=60",
            "1 60 3 tube=a every=0",
            "1 60 3 tube=a every=60 key=k",
            "1 60 3 tube=a timezone=UTC every=60",
            "1 60 3 tube=a missed=twice every=60",
            "1 60 3 tube=a cron=",
            "1 60 3 tube=a delay=3 every=60",
        ] {
            let refused = Line::RefusedBody(JobCommand::SchedulePut, 3);
            assert_eq!(parse(format!("schedule-put n {line}").as_bytes()), refused, "{line}");
        }
    }
}
