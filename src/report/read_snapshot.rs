//! Snapshot received from another daemon, in JSON. The sender is not trusted: invalid parts are refused or left out
//! here, so that no name is mistaken for something else, no link leads to another server, and no number is too large to
//! be added up.

use super::matrix::ShownMatrix;
use super::snapshot::{ShownHealth, Snapshot};
use super::tables::{ColumnHead, NAME_BYTES, ShownCell, ShownClient, ShownTable, ShownTimes};
use crate::shown::Text;
use poolcounter_core::text::{is_visible, visible};
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;

/// Valid units of a column.
const UNITS: [&str; 8] = ["name", "address", "text", "key", "number", "bytes", "seconds", "times"];
/// Limit of each list: services, tables of a service, columns of a table, figures, and so on.
const MOST_OF_EACH: usize = 100;
/// Largest number that is accepted, so that those of many daemons can be added up. Larger ones are taken for it.
const LARGEST: u64 = 1 << 53;
/// Longest text outside of rows, in bytes: a sentence or two.
const TEXT_BYTES: usize = 600;

impl Snapshot {
    /// Parses the snapshot of a daemon, and keeps the services of these names.
    ///
    /// # Errors
    ///
    /// A few words, if it is not a valid snapshot.
    pub fn read(json: &[u8], services: &[&'static str]) -> Result<Snapshot, String> {
        let unreadable = |error: serde_json::Error| format!("its status cannot be read: {error}");
        let mut told: Value = serde_json::from_slice(json).map_err(unreadable)?;
        tame(&mut told);
        let mut snapshot = Snapshot::deserialize(&told).map_err(unreadable)?;
        snapshot.services.retain(|service| services.contains(&&*service.name));
        snapshot.history.series.retain(|series| services.contains(&&*series.service));
        snapshot.version = shortened(&snapshot.version);
        snapshot.title = snapshot.title.map(|title| shortened(&title.into()).into_owned());
        snapshot.tab = snapshot.tab.map(|tab| shortened(&tab));
        // Past conditions and commands make sense for a single daemon only.
        (snapshot.past, snapshot.commands) = (Vec::new(), Vec::new());
        snapshot.services.truncate(services.len());
        snapshot.health.truncate(MOST_OF_EACH);
        snapshot.health.iter_mut().for_each(ShownHealth::read);
        snapshot.history.series.truncate(MOST_OF_EACH);
        for series in &mut snapshot.history.series {
            let texts = [&mut series.name, &mut series.title, &mut series.unit, &mut series.emphasis];
            texts.into_iter().for_each(|text| *text = shortened(text));
        }
        for service in &mut snapshot.services {
            [&mut service.title, &mut service.option].into_iter().for_each(|text| *text = shortened(text));
            service.figures.truncate(MOST_OF_EACH);
            for figure in &mut service.figures {
                [&mut figure.name, &mut figure.help].into_iter().for_each(|text| *text = shortened(text));
            }
            service.tables.truncate(MOST_OF_EACH);
            service.tables.retain(|table| is_plain(&table.name));
            let rows = &told[&*service.name];
            service.tables.iter_mut().for_each(|table| table.read_rows(&rows[&*table.name]));
            // A table without known columns is of another release.
            service.tables.retain(|table| !table.columns.is_empty());
            let is_sound = |matrix: &ShownMatrix| {
                let lines = matrix.rows.iter().map(|line| &line.values).chain([&matrix.others, &matrix.all]);
                let width = matrix.columns.len() + 2;
                [&matrix.path, &matrix.row.1, &matrix.column.1].into_iter().all(|path| is_path(path))
                    && lines.into_iter().all(|values| values.len() == width)
            };
            service.matrix = service.matrix.take().filter(is_sound);
            service.matrix.iter_mut().for_each(ShownMatrix::read);
        }
        Ok(snapshot)
    }
}

impl ShownHealth {
    fn read(&mut self) {
        let shorten = |text: &mut String| *text = shortened(&std::mem::take(text).into()).into_owned();
        self.title = shortened(&self.title);
        shorten(&mut self.sentence);
        self.more = self.more.saturating_add(self.conditions.len().saturating_sub(MOST_OF_EACH));
        self.conditions.truncate(MOST_OF_EACH);
        self.conditions.retain(|condition| is_link(&condition.link));
        for condition in &mut self.conditions {
            condition.name = shortened(&condition.name);
            [&mut condition.subject, &mut condition.sentence, &mut condition.command].into_iter().for_each(shorten);
        }
    }
}

impl ShownMatrix {
    fn read(&mut self) {
        let texts = [&mut self.title, &mut self.help, &mut self.empty, &mut self.row.0, &mut self.column.0];
        texts.into_iter().for_each(|text| *text = shortened(text));
        let names = self.rows.iter_mut().map(|line| &mut line.name).chain(&mut self.columns);
        names.for_each(|name| *name = cut(name, NAME_BYTES).into_owned());
    }
}

impl ShownTable {
    fn read_rows(&mut self, rows: &Value) {
        [&mut self.title, &mut self.help, &mut self.empty].into_iter().for_each(|text| *text = shortened(text));
        self.note = self.note.take().map(|note| shortened(&note.into()).into_owned());
        self.columns.truncate(MOST_OF_EACH);
        self.columns.retain(|column| is_plain(&column.name) && UNITS.contains(&&*column.unit));
        for column in &mut self.columns {
            let texts = [&mut column.title, &mut column.help, &mut column.emphasis];
            texts.into_iter().for_each(|text| *text = shortened(text));
            column.link = column.link.take().filter(|link| is_path(link));
        }
        let rows = rows.as_array().into_iter().flatten();
        self.rows = rows.map(|row| self.columns.iter().map(|column| column.read_cell(row)).collect()).collect();
    }
}

impl ColumnHead {
    /// Returns true if its cells are text.
    pub fn is_text(&self) -> bool {
        matches!(&*self.unit, "name" | "address" | "text" | "key")
    }

    fn read_cell(&self, row: &Value) -> ShownCell {
        let value = &row[&*self.name];
        let text = |value: &Value| value.as_str().map(|text| cut(text, NAME_BYTES).into_owned());
        let cell = match &*self.unit {
            "times" => ShownTimes::deserialize(value).ok().map(|times| match times.all {
                Some(all) if all.count() < LARGEST => {
                    ShownCell::Times(ShownTimes { all: Some(all.clone()), ..ShownTimes::of(&all) })
                }
                _ => ShownCell::Times(ShownTimes { all: None, ..times }),
            }),
            "seconds" => value.as_f64().map(ShownCell::Seconds),
            "number" | "bytes" => value.as_u64().map(ShownCell::Number),
            "address" => text(value).map(|address| match text(&row[&format!("{}_key", self.name)]) {
                Some(key) => ShownCell::Client(ShownClient { address, key }),
                None => ShownCell::Text(address),
            }),
            _ => text(value).map(ShownCell::Text),
        };
        cell.unwrap_or(ShownCell::Nothing)
    }
}

/// Returns true if this can be a name in the JSON and in the page.
fn is_plain(name: &str) -> bool {
    (1..=40).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// Returns true if this is a path on the server that shows it.
fn is_path(link: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-');
    link.starts_with('/') && !link.starts_with("//") && link.len() < 100 && link.bytes().all(is_part)
}

/// Returns true if this is a path, so that the link leads to a page of the server that shows it.
fn is_link(link: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'_' | b'-' | b'%');
    link.starts_with('/') && !link.starts_with("//") && link.len() < 2000 && link.bytes().all(is_part)
}

/// Makes every text safe to show, and every number small enough to be added up.
fn tame(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let is_tame = match number.as_u64() {
                Some(number) => number <= LARGEST,
                None => number.as_f64().is_some_and(|number| number.abs() <= LARGEST as f64),
            };
            if !is_tame {
                *value = LARGEST.into();
            }
        }
        Value::String(text) if !text.chars().all(is_visible) => *text = visible(text.as_bytes(), usize::MAX),
        Value::Array(items) => items.iter_mut().for_each(tame),
        Value::Object(fields) => fields.values_mut().for_each(tame),
        Value::String(_) | Value::Null | Value::Bool(_) => {}
    }
}

/// Returns a text, cut at [`TEXT_BYTES`].
fn shortened(text: &Text) -> Text {
    if text.len() <= TEXT_BYTES { text.clone() } else { cut(text, TEXT_BYTES).into_owned().into() }
}

/// Returns at most so many bytes of a text that is visible, with an ellipsis if there are more.
fn cut(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    format!("{}…", &text[..end]).into()
}
