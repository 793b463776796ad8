//! Rows sent by servers, as a table or as JSON.

use super::command::Exit;
use super::servers::{in_words, print_answers, print_objects};
use super::terminal::{aligned, printable};
use poolcounter_client::{Error, OfEach};
use poolcounter_service::shown::duration;
use serde_json::Value;

/// Row of a printed table.
pub trait PrintedRow {
    /// Name of a list of them in JSON.
    const LIST: &'static str;

    /// Heads of the columns, separated by spaces. The cell below a head is the member of that name in the JSON.
    const HEADS: &'static str;

    /// Returns the text for a server's refusal.
    const REFUSAL: fn(&Error) -> String = Error::to_string;

    /// Returns the row as JSON, with times in seconds, as numbers with a fraction.
    fn object(&self) -> Value;

    /// Returns the cell below a head, if it is another text.
    fn cell(&self, _head: &str) -> Option<String> {
        None
    }
}

/// Prints the rows of servers as a table, or as JSON.
///
/// # Errors
///
/// Fails if nothing can be printed.
pub fn show<R: PrintedRow>(answers: OfEach<Vec<R>>, is_json: bool) -> Exit {
    let answers = in_words(answers, R::REFUSAL);
    match is_json {
        true => print_objects(answers, |rows| (R::LIST, rows.iter().map(R::object).collect())),
        false => print_answers(answers, |rows| table(&rows)),
    }
}

/// Returns the lines of a table.
pub fn table<R: PrintedRow>(rows: &[R]) -> Vec<String> {
    let cells = |row: &R| {
        let object = row.object();
        let cell = |head: &str| row.cell(head).unwrap_or_else(|| text_of(&object[head.to_lowercase()]));
        R::HEADS.split(' ').map(cell).collect()
    };
    let heads = R::HEADS.split(' ').map(String::from).collect();
    aligned(&[heads].into_iter().chain(rows.iter().map(cells)).collect::<Vec<_>>())
}

fn text_of(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => printable(text.as_bytes()),
        Value::Number(number) if number.is_f64() => duration(number.as_f64().unwrap_or_default()),
        other => other.to_string(),
    }
}
