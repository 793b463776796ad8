//! The servers that a command asks, and the option that names them.

use super::command::Failure;
use super::terminal::{self, ascii_where_invisible};
use poolcounter_client::{self as client, MediaWiki, Producer, Runner, Timeouts, Tls};
use poolcounter_service::options::Opt;
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Where to ask, if nobody says where.
const LOCALHOST: &str = "localhost";
/// Where to ask for locks, if no option says where: names as for the option, with commas or spaces between them.
const VARIABLE: &str = "POOLCOUNTER_SERVERS";
/// Whom to trust, if no option says so: files as for the option.
const TLS_VARIABLE: &str = "POOLCOUNTER_TLS";

/// For commands that people and scripts start: patient with a server that is far away or busy, and at most four seconds late for one
/// that is back.
pub const TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_secs(2), answer: Duration::from_secs(5), retry: Duration::from_millis(500) };

/// Servers as they were named, in that order.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Servers {
    names: Vec<String>,
    /// How to speak to those that speak TLS, if an option says so.
    tls: Option<Tls>,
}

impl Servers {
    /// The servers; the machine itself if none was named.
    pub fn list(&self) -> Vec<String> {
        if self.names.is_empty() { vec![LOCALHOST.into()] } else { self.names.clone() }
    }

    /// The same servers; those of the environment if none was named.
    pub fn or_environment(self) -> Servers {
        if !self.names.is_empty() {
            return self;
        }
        let servers = std::env::var(VARIABLE).unwrap_or_default();
        let names = servers.split([',', ' ']).filter(|server| !server.is_empty()).map(String::from).collect();
        Servers { names, ..self }
    }

    /// The servers in the order of MediaWiki for each key.
    pub fn placement(&self) -> MediaWiki {
        let placement = MediaWiki::new(self.list());
        if let Some(tls) = self.tls() { placement.with_tls(tls) } else { placement }
    }

    /// One of these servers.
    pub fn only(&self, server: &str) -> Servers {
        Servers { names: vec![server.into()], tls: self.tls.clone() }
    }

    /// A producer of jobs at the first that answers.
    pub fn producer(&self) -> Producer {
        let producer = Producer::new(self.list(), TIMEOUTS);
        if let Some(tls) = self.tls() { producer.with_tls(tls) } else { producer }
    }

    /// A runner of jobs of the first that answers among some of these.
    pub fn runner_of(&self, servers: &[String]) -> Runner {
        let runner = Runner::new(servers.iter().cloned(), TIMEOUTS);
        if let Some(tls) = self.tls() { runner.with_tls(tls) } else { runner }
    }

    /// How to speak to those that speak TLS: as the option says, or the environment.
    fn tls(&self) -> Option<Tls> {
        let from_environment = || {
            let files = std::env::var(TLS_VARIABLE).ok().filter(|files| !files.is_empty())?;
            tls_of(&files).inspect_err(|sentence| terminal::warn(&format!("{TLS_VARIABLE}: {sentence}"))).ok()
        };
        self.tls.clone().or_else(from_environment)
    }
}

/// Reads `CA[,CERT,KEY]`. The error is one sentence.
fn tls_of(files: &str) -> Result<Tls, String> {
    match files.split(',').map(Path::new).collect::<Vec<_>>()[..] {
        [ca] => Tls::from_files(ca, None),
        [ca, certificate, key] => Tls::from_files(ca, Some((certificate, key))),
        _ => Err("it takes one file or three".into()),
    }
}

/// Returns the option of commands that can print what the servers say as JSON.
pub const fn json_option<S>(doc_long: &'static str, set: fn(&mut S, &str) -> Result<(), String>) -> Opt<S> {
    Opt {
        short: "j",
        long: "json",
        doc_short: "print a list of JSON objects, one for each server",
        doc_long,
        set,
        ..Opt::BLANK
    }
}

/// The options of commands that ask servers.
pub trait ServerOptions {
    /// The option of all commands that ask servers.
    const SERVER: Self;
    /// The option of commands that ask each of several servers.
    const EACH_SERVER: Self;
    /// The option that says how to speak to servers that speak TLS.
    const TLS: Self;
}

impl<S: AsMut<Servers>> ServerOptions for Opt<S> {
    const SERVER: Opt<S> = Opt {
        short: "s",
        long: "server",
        hint: "HOST[:PORT]",
        doc_short: "the server, or tls:HOST[:PORT], or unix:PATH; repeatable (default: localhost)",
        doc_long: "
            A server.
            May be given several times.",
        repeats: true,
        set: |settings, value| {
            if value.is_empty() {
                return Err("a host".into());
            }
            settings.as_mut().names.push(value.into());
            Ok(())
        },
        ..Opt::BLANK
    };

    const EACH_SERVER: Opt<S> = Opt {
        doc_long: "
            A server.
            May be given several times, and each is asked.",
        ..Opt::SERVER
    };

    const TLS: Opt<S> = Opt {
        long: "tls",
        hint: "CA[,CERT,KEY]",
        doc_short: "for servers tls:HOST: files with the authorities to trust, and a certificate to show with its key",
        doc_long: "
            How to speak to servers that are named
            .Cm tls : Ns Ar host Ns Op : Ns Ar port .
            The file
            .Ar ca
            has the authorities in PEM whose servers are trusted;
            .Ar cert
            is the certificate to show, and
            .Ar key
            its private key.",
        set: |settings, value| {
            let tls = tls_of(value).map_err(|sentence| format!("what can be used: {sentence}"))?;
            settings.as_mut().tls = Some(tls);
            Ok(())
        },
        ..Opt::BLANK
    };
}

/// What a server answered, or what is wrong in words that stand behind its name.
pub type AnswerOf<T> = (String, Result<T, String>);

/// The answers of servers by name, with what is wrong in words that stand behind the name.
pub fn in_words<T>(answers: Vec<(String, Result<T, client::Failure>)>) -> Vec<AnswerOf<T>> {
    let in_words = |(server, answer): (String, Result<T, client::Failure>)| {
        let answer = answer.map_err(|failure| failure.behind(&server));
        (server, answer)
    };
    answers.into_iter().map(in_words).collect()
}

/// Prints the answer of each server, behind its name if there are several. One that gave none is told of, and makes the
/// status 1.
///
/// # Errors
///
/// When nothing can be printed.
pub fn print_answers<T>(answers: Vec<AnswerOf<T>>, lines_of: impl Fn(T) -> Vec<String>) -> Result<ExitCode, Failure> {
    let is_one = answers.len() == 1;
    let (mut text, mut is_complete) = (String::new(), true);
    for (server, answer) in answers {
        let prefix = if is_one { String::new() } else { format!("{server}: ") };
        match answer {
            Ok(answer) => text.extend(lines_of(answer).iter().map(|line| format!("{prefix}{line}\n"))),
            Err(reason) => {
                terminal::warn(&format!("{server}: {reason}"));
                is_complete = false;
            }
        }
    }
    terminal::print(&text)?;
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints a list of JSON objects: for each server what it answered, under the name that `value_of` returns with it, or why it gave
/// no answer, which makes the status 1.
///
/// # Errors
///
/// When nothing can be printed.
pub fn print_objects<T>(
    answers: Vec<AnswerOf<T>>,
    value_of: impl Fn(T) -> (&'static str, Value),
) -> Result<ExitCode, Failure> {
    let is_complete = answers.iter().all(|(_, answer)| answer.is_ok());
    let object = |(server, answer): AnswerOf<T>| match answer.map(&value_of) {
        Ok((name, value)) => json!({ "server": server, name: value }),
        Err(sentence) => json!({ "server": server, "error": sentence }),
    };
    let objects: Value = answers.into_iter().map(object).collect();
    terminal::print(&format!("{}\n", ascii_where_invisible(&objects.to_string())))?;
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
