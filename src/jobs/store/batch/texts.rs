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
