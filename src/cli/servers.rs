//! Servers of a command, the options for them, and their replies: lines, tables or JSON.

use super::command::{Exit, FAILURE, Failure};
use super::failure::UNAVAILABLE;
use super::terminal::{self, aligned, printable};
use poolcounter_client::{Error, MediaWiki, OfEach, Producer, Runner, Timeouts, Tls};
use poolcounter_service::options::{Opt, assign};
use poolcounter_service::shown::duration;
use serde_json::{Value, json};
use std::net::Ipv6Addr;
use std::num::NonZeroU16;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Default server.
const LOCALHOST: &str = "localhost";
/// Environment variable with the default servers, if no option sets them: names as for the option, separated by commas
/// or spaces.
const VARIABLE: &str = "POOLCOUNTER_SERVERS";
/// Environment variable with the default TLS files, if no option sets them: as for the option.
const TLS_VARIABLE: &str = "POOLCOUNTER_TLS";

/// Timeouts of commands started by people and scripts: patient with a distant or busy server, and at most four seconds
/// late for a server that is back.
pub const TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_secs(2), answer: Duration::from_secs(5), retry: Duration::from_millis(500) };

/// Servers in the order given, and the form in which their replies are printed.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Servers {
    names: Vec<String>,
    /// True if replies are printed as JSON.
    pub is_json: bool,
    /// TLS settings, if an option sets them.
    tls: Option<Tls>,
}

impl Servers {
    /// Returns the servers; the servers of the environment if none was given, or else the local machine.
    pub fn list(&self) -> Vec<String> {
        if !self.names.is_empty() {
            return self.names.clone();
        }
        let servers = std::env::var(VARIABLE).unwrap_or_default();
        let names: Vec<String> = servers.split([',', ' ']).filter(|name| !name.is_empty()).map(String::from).collect();
        if names.is_empty() { vec![LOCALHOST.into()] } else { names }
    }

    /// Adds a server.
    pub fn add(&mut self, name: &str) {
        self.names.push(name.into());
    }

    /// Returns the placement on the servers in the order of MediaWiki.
    pub fn placement(&self) -> MediaWiki {
        MediaWiki::new(self.list()).with_tls(self.tls())
    }

    /// Returns a single one of these servers.
    pub fn only(&self, server: &str) -> Servers {
        Servers { names: vec![server.into()], ..self.clone() }
    }

    /// Returns a producer for the first server that replies.
    pub fn producer(&self) -> Producer {
        Producer::new(self.list(), TIMEOUTS).with_tls(self.tls())
    }

    /// Returns a runner for the first of these servers that replies.
    pub fn runner_of(&self, servers: &[String]) -> Runner {
        Runner::new(servers.iter().cloned(), TIMEOUTS).with_tls(self.tls())
    }

    /// Returns the TLS settings of the option, or of the environment.
    fn tls(&self) -> Option<Tls> {
        let from_environment = || {
            let files = std::env::var(TLS_VARIABLE).ok().filter(|files| !files.is_empty())?;
            tls_of(&files).inspect_err(|sentence| terminal::warn(&format!("{TLS_VARIABLE}: {sentence}"))).ok()
        };
        self.tls.clone().or_else(from_environment)
    }
}

/// Parses `CA[,CERT,KEY]`. The error is one sentence.
fn tls_of(files: &str) -> Result<Tls, String> {
    match files.split(',').map(Path::new).collect::<Vec<_>>()[..] {
        [ca] => Tls::from_files(ca, None),
        [ca, certificate, key] => Tls::from_files(ca, Some((certificate, key))),
        _ => Err("it takes one file or three".into()),
    }
}

/// Checks the form of a server's name; the port is the end of it.
///
/// # Errors
///
/// Fails with the right form, to follow "is not".
fn check_server(name: &str) -> Result<(), String> {
    let server = name.strip_prefix("tls:").unwrap_or(name);
    let is_in_brackets = |host: &str| host.starts_with('[') && host.ends_with(']');
    let is_host = |host: &str| !host.is_empty() && !host.contains(':') || is_in_brackets(host);
    let is_port = |port: &str| port.parse::<NonZeroU16>().is_ok();
    if let Some((host, "7531" | "7532")) = server.rsplit_once(':')
        && server.parse::<Ipv6Addr>().is_ok()
    {
        return Err(format!("clear: write [{host}]:PORT, or [{server}] if that is the address"));
    }
    let has_port = || server.rsplit_once(':').is_some_and(|(host, port)| is_host(host) && is_port(port));
    match is_host(server) || name.starts_with("unix:") || server.parse::<Ipv6Addr>().is_ok() || has_port() {
        true => Ok(()),
        false => Err("a host, HOST:PORT with a port from 1 to 65535, or unix:PATH".into()),
    }
}

/// Returns the option of commands that can print the replies of servers as JSON.
pub const fn json_option<S: AsMut<Servers>>(doc: &'static str) -> Opt<S> {
    Opt::new("-j, --json", doc, |settings, _| assign(&mut settings.as_mut().is_json, Ok(true)))
}

impl AsMut<Servers> for Servers {
    fn as_mut(&mut self) -> &mut Servers {
        self
    }
}

/// Gives options for several commands access to a part of the settings of a command.
macro_rules! has_part {
    ($settings:ty, $field:ident: $part:ty) => {
        impl AsMut<$part> for $settings {
            fn as_mut(&mut self) -> &mut $part {
                &mut self.$field
            }
        }
    };
}

pub(crate) use has_part;

/// Text of the option for the servers of most commands.
pub const A_SERVER: &str = "A server, or tls:HOST[:PORT], or unix:PATH; repeatable (default: POOLCOUNTER_SERVERS in \
    the environment, or localhost). See poolcounter(1).";
/// The text for commands that ask each server.
pub const EACH_SERVER: &str = "A server, or tls:HOST[:PORT], or unix:PATH; repeatable, and each is asked (default: \
    POOLCOUNTER_SERVERS in the environment, or localhost). See poolcounter(1).";

/// Returns the option for the servers.
pub const fn server_option<S: AsMut<Servers>>(doc: &'static str) -> Opt<S> {
    let set = |settings: &mut S, value: &str| {
        check_server(value)?;
        settings.as_mut().names.push(value.into());
        Ok(())
    };
    Opt::<S>::new("-s, --server HOST[:PORT]", doc, set).repeated()
}

/// Returns the option for the TLS settings.
pub const fn tls_option<S: AsMut<Servers>>() -> Opt<S> {
    Opt::new(
        "--tls CA[,CERT,KEY]",
        "File with the authorities to trust for servers tls:HOST, and a certificate to show with its key. See \
         poolcounter(1).",
        |settings, value| {
            let tls = tls_of(value).map_err(|sentence| format!("what can be used: {sentence}"))?;
            settings.as_mut().tls = Some(tls);
            Ok(())
        },
    )
}

/// Reply of a server, or a failure phrased to follow its name.
pub type AnswerOf<T> = (String, Result<T, Failure>);

/// Returns the replies of servers by name, with errors phrased to follow the name. `refusal` returns the text of a
/// refusal.
pub fn in_words<T>(answers: OfEach<T>, refusal: impl Fn(&Error) -> String) -> Vec<AnswerOf<T>> {
    let failure = |error: Error| match &error {
        Error::Unavailable(failures) => {
            let sentences = failures.iter().map(|(server, failure)| failure.behind(server));
            Failure { status: UNAVAILABLE, sentence: sentences.collect() }
        }
        refused => Failure::of(refused, refusal(refused)),
    };
    answers.into_iter().map(|(server, answer)| (server, answer.map_err(&failure))).collect()
}

/// Returns the rows of the servers that have replied.
pub fn rows_of<T>(answers: OfEach<Vec<T>>) -> impl Iterator<Item = T> {
    answers.into_iter().filter_map(|(_, answer)| answer.ok()).flatten()
}

/// Prints the reply of each server, after its name if there are several. Failures are reported, and make the status 1, or
/// that of the failure if no server has replied.
///
/// # Errors
///
/// Fails if the result cannot be printed.
pub fn print_answers<T>(answers: Vec<AnswerOf<T>>, lines_of: impl Fn(T) -> Vec<String>) -> Exit {
    let (is_one, status) = (answers.len() == 1, status_of(&answers));
    let mut text = String::new();
    for (server, answer) in answers {
        let prefix = if is_one { String::new() } else { format!("{server}: ") };
        match answer {
            Ok(answer) => text.extend(lines_of(answer).iter().map(|line| format!("{prefix}{line}\n"))),
            Err(Failure { sentence, .. }) => terminal::warn(&format!("{server}: {sentence}")),
        }
    }
    terminal::print(&text)?;
    Ok(status)
}

fn status_of<T>(answers: &[AnswerOf<T>]) -> ExitCode {
    let failed = answers.iter().find_map(|(_, answer)| answer.as_ref().err());
    let has_replies = answers.iter().any(|(_, answer)| answer.is_ok());
    failed.map_or(ExitCode::SUCCESS, |failure| ExitCode::from(if has_replies { FAILURE } else { failure.status }))
}

/// Prints a list of JSON objects: for each server its reply, under the name that `value_of` returns with it, or the
/// error. The status is that of [`print_answers`].
///
/// # Errors
///
/// Fails if the result cannot be printed.
pub fn print_objects<T>(answers: Vec<AnswerOf<T>>, value_of: impl Fn(T) -> (&'static str, Value)) -> Exit {
    let status = status_of(&answers);
    let object = |(server, answer): AnswerOf<T>| match answer.map(&value_of) {
        Ok((name, value)) => json!({ "server": server, name: value }),
        Err(Failure { sentence, .. }) => json!({ "server": server, "error": sentence }),
    };
    terminal::print_json(&answers.into_iter().map(object).collect())?;
    Ok(status)
}

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
