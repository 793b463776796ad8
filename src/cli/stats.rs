//! `stats`: prints what servers tell of themselves, as lines or as JSON.

use super::command::Failure;
use super::servers::{Servers, TIMEOUTS, in_words, print_answers};
use super::table::Given;
use super::terminal::{print, printable};
use crate::client::{Client, Lines};
use crate::options::Opt;
use crate::pools::wire::client::listing::{self, Amount, ListedRow};
use crate::pools::wire::client::parse_figure;
use crate::stats::Stat;
use crate::text::is_visible;
use crate::time::Span;
use serde_json::{Map, Value, json};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

/// What the options say.
#[derive(Default)]
struct Settings {
    servers: Servers,
    is_json: bool,
}

/// The options.
const OPTIONS: &[Opt<Settings>] = &[
    Opt {
        short: "j",
        long: "json",
        doc_short: "print a list of JSON objects, one for each server",
        doc_long: "
            Print a list of JSON objects, one for each server:
            .Va server ,
            and
            .Va stats , keys , types
            or
            .Va clients ,
            or
            .Va error .
            Times are in seconds.
            .Va more
            is how many the list leaves out.",
        set: |settings, _| {
            settings.is_json = true;
            Ok(())
        },
        ..Opt::BLANK
    },
    Opt {
        doc_long: "
            A server.
            May be given several times, and each is asked.",
        ..Opt::SERVER
    },
    Opt::VERSION,
    Opt::HELP,
];

/// The lists, what they are called in JSON, and what the names in them are called.
const LISTS: [(&str, &str, &str); 3] =
    [("KEYS", "keys", "key"), ("TYPES", "types", "type"), ("HOLDERS", "clients", "")];

/// What a server answered, or why not.
type Answer = (String, Result<Vec<Vec<u8>>, String>);

/// The command.
///
/// # Errors
///
/// When what was asked for cannot be printed. A server that does not answer is told of, and makes the status 1.
pub fn run(given: &Given) -> Result<ExitCode, Failure> {
    let mut settings = Settings::default();
    given.apply(OPTIONS, &mut settings)?;
    // Keys are bytes, in which a space is sent so.
    let words: Vec<Vec<u8>> = given
        .words
        .iter()
        .map(|word| word.as_bytes().split(|byte| *byte == b' ').collect::<Vec<_>>().join(&b"%20"[..]))
        .collect();
    let answers = Client::with(settings.servers.placement(), TIMEOUTS).query(words.join(&b' '));
    let flat = |answer: Result<Lines, String>| answer?.map_err(|error| error.to_string());
    let answers: Vec<Answer> = in_words(answers).into_iter().map(|(server, answer)| (server, flat(answer))).collect();
    if !settings.is_json {
        return print_answers(answers, |lines| lines.iter().map(|line| printable(line)).collect());
    }
    let asked = words.first().map_or("FULL".into(), |word| String::from_utf8_lossy(word));
    let objects = answers.iter().map(|answer| object_of(answer, &asked));
    print(&format!("{}\n", ascii_where_invisible(&objects.collect::<Value>().to_string())))?;
    let is_complete = answers.iter().all(|(_, answer)| answer.is_ok());
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn object_of((server, answer): &Answer, asked: &str) -> Value {
    let list = LISTS.iter().find(|(list, ..)| list.eq_ignore_ascii_case(asked));
    match (answer, list) {
        (Err(sentence), _) => json!({ "server": server, "error": sentence }),
        (Ok(lines), None) => {
            let figures = lines.iter().filter_map(|line| parse_figure(line));
            let figures = figures.map(|(stat, value)| match stat.row().unit {
                unit if unit.is_time() => (stat.row().name, seconds(Span::from_micros(value))),
                _ => (stat.row().name, Value::from(value)),
            });
            json!({ "server": server, "stats": figures.collect::<Value>() })
        }
        (Ok(lines), Some((_, name, member))) => {
            let row = |line: &Vec<u8>| if member.is_empty() { client_of(line) } else { row_of(line, member) };
            let more = lines.last().and_then(|line| listing::parse_more(line)).unwrap_or(0);
            json!({ "server": server, *name: lines.iter().filter_map(row).collect::<Value>(), "more": more })
        }
    }
}

fn row_of(line: &[u8], member: &str) -> Option<Value> {
    let ListedRow { name, amounts } = ListedRow::parse(line)?;
    let mut row = Map::new();
    row.insert(member.into(), String::from_utf8_lossy(&name).into());
    row.extend(amounts.into_iter().map(|(word, amount)| match amount {
        Amount::Count(count) => (word, Value::from(count)),
        Amount::Time(span) => (word, seconds(span)),
    }));
    Some(row.into())
}

fn client_of(line: &[u8]) -> Option<Value> {
    let listing::ListedClaim { peer, state, age } = listing::ListedClaim::parse(line)?;
    Some(json!({ "peer": peer, "state": state, "age": seconds(age) }))
}

/// The same JSON with escapes for what could do harm on a terminal. Outside of strings there is nothing of that kind.
pub fn ascii_where_invisible(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if is_visible(c) {
            text.push(c);
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text += &format!("\\u{unit:04x}"));
        }
    }
    text
}

fn seconds(span: Span) -> Value {
    (span.as_micros() as f64 / 1e6).into()
}

impl AsMut<Servers> for Settings {
    fn as_mut(&mut self) -> &mut Servers {
        &mut self.servers
    }
}

/// The table's rows, without what they set.
pub fn described() -> Vec<Opt<()>> {
    OPTIONS.iter().map(Opt::describe).collect()
}

/// What can be asked for, but for single statistics.
pub fn first_words() -> Vec<&'static str> {
    ["FULL"].into_iter().chain(LISTS.iter().map(|(list, ..)| *list)).collect()
}
