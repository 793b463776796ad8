//! Rows sent by servers, as a table or as JSON.

use super::command::Failure;
use super::servers::{AnswerOf, in_words, print_answers, print_objects};
use super::terminal::aligned;
use poolcounter_client::{Error, Rows, RowsOfEach};
use serde_json::Value;
use std::process::ExitCode;

/// Row of a printed table.
pub trait PrintedRow {
    /// Name of a list of them in JSON.
    const LIST: &'static str;

    /// Returns the heads of the columns.
    fn heads() -> Vec<String>;

    /// Returns the cells.
    fn cells(&self) -> Vec<String>;

    /// Returns the row as JSON.
    fn object(&self) -> Value;

    /// Returns the text for a server's refusal.
    fn refusal(error: &Error) -> String {
        error.to_string()
    }
}

/// Returns the rows of servers by name, or the error as text.
pub fn flat<T>(answers: RowsOfEach<T>, refusal: fn(&Error) -> String) -> Vec<AnswerOf<Vec<T>>> {
    let flat = |answer: Result<Rows<T>, Failure>| answer?.map_err(|error| refusal(&error).into());
    in_words(answers).into_iter().map(|(server, answer)| (server, flat(answer))).collect()
}

/// Prints the rows of servers as a table, or as JSON.
///
/// # Errors
///
/// Fails if nothing can be printed.
pub fn show<R: PrintedRow>(answers: RowsOfEach<R>, is_json: bool) -> Result<ExitCode, Failure> {
    let answers = flat(answers, R::refusal);
    match is_json {
        true => print_objects(answers, |rows| (R::LIST, rows.iter().map(R::object).collect())),
        false => print_answers(answers, |rows| table(&rows)),
    }
}

/// Returns the lines of a table.
pub fn table<R: PrintedRow>(rows: &[R]) -> Vec<String> {
    aligned(&[R::heads()].into_iter().chain(rows.iter().map(R::cells)).collect::<Vec<_>>())
}
