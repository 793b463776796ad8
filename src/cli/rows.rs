//! Rows that servers tell, as a table or as JSON.

use super::command::Failure;
use super::servers::{AnswerOf, in_words, print_answers, print_objects};
use super::terminal::aligned;
use poolcounter_client::{Error, Rows, RowsOfEach};
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

    /// Says why a server has told none.
    fn refusal(error: &Error) -> String {
        error.to_string()
    }
}

/// The rows of servers by name, or what is wrong in words.
pub fn flat<T>(answers: RowsOfEach<T>, refusal: fn(&Error) -> String) -> Vec<AnswerOf<Vec<T>>> {
    let flat = |answer: Result<Rows<T>, String>| answer?.map_err(|error| refusal(&error));
    in_words(answers).into_iter().map(|(server, answer)| (server, flat(answer))).collect()
}

/// Prints what servers told as a table, or as JSON.
///
/// # Errors
///
/// When nothing can be printed.
pub fn show<R: PrintedRow>(answers: RowsOfEach<R>, is_json: bool) -> Result<ExitCode, Failure> {
    let answers = flat(answers, R::refusal);
    match is_json {
        true => print_objects(answers, |rows| (R::LIST, rows.iter().map(R::object).collect())),
        false => print_answers(answers, |rows| {
            aligned(&[R::heads()].into_iter().chain(rows.iter().map(R::cells)).collect::<Vec<_>>())
        }),
    }
}
