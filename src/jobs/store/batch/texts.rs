//! Texts of rows as values.

use super::{moment, signed};
use crate::state::{Origin, Setting, SettingKind, TubeName, Value};
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
pub fn read_setting(epoch: Span, kind: &str, of: &[u8], value: &[u8]) -> Option<Setting> {
    let kind = SettingKind::of_word(kind).filter(|kind| kind.can_be_of(of))?;
    let value = Value::read(kind, value, |wall| moment(epoch, wall))?;
    Some(Setting { kind, of: of.into(), value: Some(value) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_be_are_malformed() {
        let read = |kind: &str, of: &[u8], value: &[u8]| read_setting(Span::ZERO, kind, of, value).is_some();
        assert!(read("limit", b"a/*", b"3 each") && read("schedule", b"s", b"0 - 0 schedule-put s 1 1 1 tube=t\nx"));
        for kind in ["limit", "rate", "retry", "dead-letter", "pause"] {
            let value: &[u8] = match kind {
                "limit" => b"3 each",
                "rate" => b"3 per 1 each",
                "retry" => b"3 1 2 9",
                "pause" => b"9 9",
                _ => b"t",
            };
            assert!(read(kind, b"a/*", value) && !read(kind, b"a**", value), "{kind}");
        }
        assert!(!read("schedule", b"s", b"0 - 0 schedule-put s 1 1 1 tube=t"));
    }
}
