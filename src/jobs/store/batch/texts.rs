//! Texts of rows as values.

use super::{moment, signed};
use crate::state::{Backoff, Origin, Progress, Setting, TubeName};
use poolcounter_core::time::Span;

/// Returns where a dead letter comes from; None if it is none.
pub(super) fn read_origin(epoch: Span, text: &[u8]) -> Option<Origin<'_>> {
    let mut words = text.splitn(3, |byte| *byte == b' ');
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<i64>().ok();
    let (attempts, at) = (u32::try_from(number()?).ok()?, number()?);
    let tube = TubeName::parse(words.next()?)?.bytes();
    Some(Origin { tube, attempts, at: at.saturating_sub(signed(epoch)) })
}

/// Returns the setting of a row of the table of settings; None if the row is malformed.
pub fn read_setting<'a>(epoch: Span, kind: &str, of: &'a [u8], value: &'a [u8]) -> Option<Setting<'a>> {
    let words = || std::str::from_utf8(value).ok().map(|text| text.split(' ').collect::<Vec<_>>());
    Some(match kind {
        "limit" | "rate" | "group-limit" | "group-rate" => match words()?[..] {
            [most, "per", per, how] => Setting::Rate(of, Some((most.parse().ok()?, per.parse().ok()?, how == "all"))),
            [most, "per", per] => Setting::GroupRate(of, Some((most.parse().ok()?, per.parse().ok()?))),
            [most, "ordered"] => Setting::GroupLimit(of, Some((most.parse().ok()?, true))),
            [most, how] => Setting::Limit(of, Some((most.parse().ok()?, how == "all"))),
            [most] => Setting::GroupLimit(of, Some((most.parse().ok()?, false))),
            _ => return None,
        },
        "retry" => match words()?[..] {
            [attempts, first, factor, max] => {
                let (attempts, first) = (attempts.parse().ok()?, first.parse().ok()?);
                let backoff = Backoff { attempts, first, factor: factor.parse().ok()?, max: max.parse().ok()? };
                Setting::Retry(of, Some(backoff))
            }
            _ => return None,
        },
        "dead-letter" => Setting::DeadLetter(of, Some(value)),
        "file" => Setting::File(of, Some(value)),
        "schedule" => Setting::Schedule(of, Some(Progress::split(value)?)),
        "pause" => match words()?[..] {
            [until, seconds, ref rest @ ..] => {
                let pause = Some((moment(epoch, until.parse().ok()?), seconds.parse().ok()?));
                match rest {
                    [] => Setting::Pause(of, pause),
                    ["tube"] => Setting::TubePause(of, pause),
                    _ => return None,
                }
            }
            _ => return None,
        },
        _ => return None,
    })
}
