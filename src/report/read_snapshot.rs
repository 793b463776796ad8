//! Snapshot received from another daemon, in JSON. The sender is not trusted: texts are made safe to show, links lead to
//! pages of the server that shows them, and numbers can be added up.

use super::matrix::Matrix;
use super::snapshot::Snapshot;
use super::tables::Table;
use poolcounter_core::text::{is_visible, visible};
use serde::Deserialize;
use serde_json::Value;

/// Limit of each list: rows of a table, rows of a matrix, buckets of a histogram, and so on.
const MOST_OF_EACH: usize = 1024;
/// Largest number that is accepted, so that those of many daemons can be added up. Larger ones are taken for it.
const LARGEST: u64 = 1 << 53;
/// Longest text, in bytes: a link with an escaped name.
const TEXT_BYTES: usize = 1000;

impl Snapshot {
    /// Parses the snapshot of a daemon, and keeps the services of these names.
    ///
    /// # Errors
    ///
    /// A few words, if it is not a valid snapshot.
    pub fn read(json: &[u8], services: &[&'static str]) -> Result<Snapshot, String> {
        let read = serde_json::from_slice(json).and_then(Snapshot::of_value);
        let mut snapshot = read.map_err(|error| format!("its status cannot be read: {error}"))?;
        snapshot.services.retain(|service| services.contains(&&*service.name));
        snapshot.history.series.retain(|series| services.contains(&&*series.service));
        Ok(snapshot)
    }

    /// Reads a snapshot from JSON of another process.
    ///
    /// # Errors
    ///
    /// Fails if the JSON is not a snapshot.
    pub fn of_value(mut told: Value) -> Result<Snapshot, serde_json::Error> {
        tame(&mut told);
        let mut snapshot = Snapshot::deserialize(&told)?;
        for service in &mut snapshot.services {
            for Table { name, columns, rows, .. } in &mut service.tables {
                let told = told[&*service.name][&**name].as_array().into_iter().flatten();
                *rows = told.map(|row| columns.iter().map(|column| column.read_cell(row)).collect()).collect();
            }
            service.matrix = service.matrix.take().filter(Matrix::is_sound);
        }
        Ok(snapshot)
    }
}

/// Returns true for a path, which leads to a page of the server that shows it.
fn is_path(link: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"/_-%".contains(&byte);
    link.starts_with('/') && !link.starts_with("//") && link.bytes().all(is_part)
}

/// Makes every text safe to show, keeps only links that are paths, and limits texts, numbers and lists.
fn tame(value: &mut Value) {
    match value {
        Value::Number(it) if it.as_f64().is_none_or(|it| it.abs() > LARGEST as f64) => *value = LARGEST.into(),
        Value::String(text) if text.len() > TEXT_BYTES || !text.chars().all(is_visible) => {
            *text = visible(text.as_bytes(), TEXT_BYTES);
        }
        Value::Array(items) => {
            items.truncate(MOST_OF_EACH);
            items.iter_mut().for_each(tame);
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                tame(value);
                let link = match &**name {
                    "link" | "path" => Some(value),
                    // Kind of the rows or columns of a matrix, and the path of the page about each.
                    "row" | "column" => value.get_mut(1),
                    _ => None,
                };
                link.filter(|link| !link.is_null() && !link.as_str().is_some_and(is_path))
                    .into_iter()
                    .for_each(|link| *link = "/".into());
            }
        }
        _ => {}
    }
}
