//! Rows that servers tell, as a table or as JSON.

use super::command::Failure;
use super::servers::{AnswerOf, in_words, print_answers, print_objects};
use super::terminal::aligned;
use poolcounter_client::{Rows, RowsOfEach};
use serde_json::Value;
use std::process::ExitCode;

/// A row of a table that is printed.
pub trait PrintedRow {
    /// What a list of them is called in JSON.
    const LIST: &'static str;

    /// The heads of the columns.
    fn heads() -> Vec<String>;

    /// What stands in them.
    fn cells(&self) -> Vec<String>;

    /// The same in JSON.
    fn object(&self) -> Value;
}

/// The rows of servers by name, or what is wrong in words.
pub fn flat<T>(answers: RowsOfEach<T>) -> Vec<AnswerOf<Vec<T>>> {
    let flat = |answer: Result<Rows<T>, String>| answer?.map_err(|error| error.to_string());
    in_words(answers).into_iter().map(|(server, answer)| (server, flat(answer))).collect()
}

/// Prints what servers told as a table, or as JSON.
///
/// # Errors
///
/// When nothing can be printed.
pub fn show<R: PrintedRow>(answers: RowsOfEach<R>, is_json: bool) -> Result<ExitCode, Failure> {
    let answers = flat(answers);
    match is_json {
        true => print_objects(answers, |rows| (R::LIST, rows.iter().map(R::object).collect())),
        false => print_answers(answers, |rows| {
            aligned(&[R::heads()].into_iter().chain(rows.iter().map(R::cells)).collect::<Vec<_>>())
        }),
    }
}
