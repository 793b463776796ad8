//! Reports of servers, as sent by `STATS REPORT`: `stats` prints them and `top` shows them. Independent of services.

use super::servers::{AnswerOf, in_words};
use poolcounter_client::{Client, Error};
use poolcounter_core::Count;
use poolcounter_service::report::matrix::Matrix;
use poolcounter_service::report::{Cell, Column, ColumnUnit, ShownService, Snapshot, Table};
use poolcounter_service::shown;
use serde_json::Value;

/// Text about a server whose rules of access do not let this client ask.
pub const DENIED: &str = "no rule of access allows this (DENIED)";
/// Text about a server that does not support reports, such as the C daemon.
pub const NO_REPORTS: &str = "it knows no reports: poolcounter stats FULL asks for its figures";

/// Asks each server for its report, with at most `rows` rows of each table. Errors are phrased to follow the name of
/// the server.
pub fn ask(client: &Client, rows: usize) -> Vec<AnswerOf<Value>> {
    let refusal = |error: &Error| match error {
        Error::Refused(words) if words.contains("DENIED") => DENIED.into(),
        Error::Refused(_) => NO_REPORTS.into(),
        error => error.to_string(),
    };
    let read = |lines: Vec<Vec<u8>>| serde_json::from_slice(&lines.concat()).map_err(|error| unreadable(&error).into());
    let answers = in_words(client.query(format!("REPORT {rows}")), refusal).into_iter();
    answers.map(|(server, answer)| (server, answer.and_then(read))).collect()
}

/// Asks like [`ask`], and reads the reports.
pub fn snapshots(client: &Client, rows: usize) -> Vec<(String, Result<Snapshot, String>)> {
    let answers = ask(client, rows).into_iter();
    answers.map(|(server, answer)| (server, answer.map_err(|failure| failure.sentence).and_then(read))).collect()
}

/// Reads the report in a server's reply.
///
/// # Errors
///
/// One sentence, if it is not a valid report.
pub fn read(report: Value) -> Result<Snapshot, String> {
    Snapshot::of_value(report).map_err(|error| unreadable(&error))
}

fn unreadable(error: &serde_json::Error) -> String {
    format!("its report cannot be read: {error}")
}

/// Returns the visible tables of a service, with its matrix as one; each cell is one value.
pub fn tables_of(service: &ShownService) -> Vec<Table> {
    let tables = service.matrix.iter().map(Matrix::table).chain(service.tables.iter().cloned());
    let is_shown = |table: &Table| !table.rows.is_empty() || !table.empty.is_empty();
    tables.filter(is_shown).map(Table::flat).collect()
}

/// Returns true if a service was used or has rows in a table.
pub fn is_used(service: &ShownService) -> bool {
    service.traffic.opened > Count::ZERO && !service.figures.is_empty()
        || service.tables.iter().any(|table| !table.rows.is_empty())
}

/// Returns the text of a cell. A fraction in a column of numbers is a rate per second.
pub fn text_of(cell: &Cell, column: &Column) -> String {
    match cell {
        Cell::Nothing | Cell::Times(_) => "-".into(),
        Cell::Text(text) => text.clone(),
        Cell::Client(client) => client.address.clone(),
        Cell::Number(number) => number.to_string(),
        Cell::Seconds(seconds) if column.unit == ColumnUnit::Seconds => shown::duration(seconds.max(0.0)),
        Cell::Seconds(rate) => rate_text(*rate),
    }
}

/// Returns the text of a rate.
pub fn rate_text(rate: f64) -> String {
    match rate {
        0.0 => "0".into(),
        ..10.0 => format!("{rate:.1}"),
        _ => format!("{rate:.0}"),
    }
}

/// Returns the texts of the heads and the rows of a table.
pub fn texts_of(table: &Table) -> Vec<Vec<String>> {
    let heads = table.columns.iter().map(|column| column.title.to_string()).collect();
    let texts = |row: &Vec<Cell>| row.iter().zip(&table.columns).map(|(cell, head)| text_of(cell, head)).collect();
    [heads].into_iter().chain(table.rows.iter().map(texts)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_pages() {
        let column = Column::new("", "", ColumnUnit::Seconds, "");
        assert_eq!(text_of(&Cell::Seconds(61.0), &column), "1 min 1 s");
    }

    #[test]
    fn other_text_is_refused_as_a_report() {
        for json in ["{}", "[]", "3", r#"{"version":"1","uptime":0,"services":[{}],"history":{"series":[]}}"#] {
            assert!(read(serde_json::from_str(json).expect("is JSON")).is_err(), "{json}");
        }
    }
}
