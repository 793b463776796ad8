//! `admin`: sends a command of the administration to the daemon on this machine, and prints its answer.

use super::command::{FAILURE, Failure};
use super::options::DaemonSettings;
use super::servers::json_option;
use super::services::SERVICES;
use super::table::Given;
use super::terminal::{ascii_where_invisible, print, printable};
use poolcounter_admin::wire::{ERROR, LEFT, OK};
use poolcounter_core::address::Address;
use poolcounter_service::operations::{Offered, Operations};
use poolcounter_service::options::{Opt, assign};
use serde_json::json;
use std::env;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

/// Where the socket is, if no option says where.
const VARIABLE: &str = "POOLCOUNTER_ADMIN";
/// The configuration file of the package.
pub(super) const USUAL_CONFIG: &str = "/etc/poolcounter.toml";

/// Settings that the options make.
struct AdminCommandSettings {
    socket: Option<String>,
    config: String,
    is_json: bool,
}

/// The options.
const OPTIONS: &[Opt<AdminCommandSettings>] = &[
    Opt {
        short: "a",
        long: "admin",
        hint: "unix:PATH",
        doc_short: "the daemon's administration socket (default: $POOLCOUNTER_ADMIN, or what the configuration file says)",
        doc_long: "
            The socket where the daemon takes such commands: what it was given as
            .Fl -admin .
            The default is the value of
            .Ev POOLCOUNTER_ADMIN ,
            or what the configuration file says.",
        set: |settings, value| assign(&mut settings.socket, Ok(Some(value.into()))),
        ..Opt::BLANK
    },
    Opt {
        short: "c",
        long: "config",
        hint: "FILE",
        doc_short: "the daemon's configuration file (default: /etc/poolcounter.toml)",
        doc_long: "
            The daemon's configuration file, where its socket is looked up.
            The default is
            .Pa /etc/poolcounter.toml .",
        set: |settings, value| assign(&mut settings.config, Ok(value.into())),
        ..Opt::BLANK
    },
    Opt {
        doc_short: "print each line as a JSON object",
        ..json_option(
            "
            Print each line of the answer as a JSON object:
            .Va left ,
            .Va ok
            or
            .Va error ,
            and what the line says.",
            |settings, _| assign(&mut settings.is_json, Ok(true)),
        )
    },
    Opt::VERSION,
    Opt::HELP,
];

/// The command.
///
/// # Errors
///
/// When the daemon does not answer, or refuses.
pub fn run(given: &Given) -> Result<ExitCode, Failure> {
    let mut settings = AdminCommandSettings { socket: None, config: USUAL_CONFIG.into(), is_json: false };
    given.apply(OPTIONS, &mut settings)?;
    let request = request_of(&given.words)?;
    let path = settings.path()?;
    let socket = UnixStream::connect(&path).map_err(|error| format!("unix:{}: {error}", path.display()))?;
    (&socket).write_all(&request).map_err(|error| format!("unix:{}: {error}", path.display()))?;
    for line in BufReader::new(socket).split(b'\n') {
        let line = printable(&line.map_err(|error| format!("unix:{}: {error}", path.display()))?);
        let (word, text) = line.split_once(' ').unwrap_or((&line, ""));
        if settings.is_json {
            let object = json!({ word.to_ascii_lowercase(): text }).to_string();
            print(&format!("{}\n", ascii_where_invisible(&object)))?;
        }
        match word {
            OK if settings.is_json || text.is_empty() => return Ok(ExitCode::SUCCESS),
            OK => return print(&format!("{text}\n")),
            ERROR if settings.is_json => return Ok(ExitCode::from(FAILURE)),
            ERROR => return Err(text.to_string().into()),
            LEFT if !settings.is_json => drop(print(&format!("left: {text}\n"))?),
            _ => {}
        }
    }
    Err(format!("unix:{}: the daemon has gone without an answer", path.display()).into())
}

/// Returns the line that asks for it. A space in a key goes over the wire as in requests for locks.
fn request_of(words: &[OsString]) -> Result<Vec<u8>, Failure> {
    let names = || first_words().join(", ");
    if words.is_empty() {
        return Err(Failure::misuse(format!("admin needs a command: {} (see poolcounter help admin)", names())));
    }
    let words: Vec<Vec<u8>> = words
        .iter()
        .map(|word| word.as_bytes().split(|byte| *byte == b' ').collect::<Vec<_>>().join(&b"%20"[..]))
        .collect();
    let mut line = words.join(&b' ');
    if line.iter().any(|byte| matches!(byte, b'\n' | b'\r' | 0)) {
        return Err(Failure::misuse("a command has no line feed, carriage return or NUL"));
    }
    line.push(b'\n');
    Ok(line)
}

impl AdminCommandSettings {
    /// Returns where the daemon listens for administrators.
    fn path(&self) -> Result<PathBuf, Failure> {
        let named = self.socket.clone().or_else(|| env::var(VARIABLE).ok().filter(|name| !name.is_empty()));
        let address = match named {
            Some(name) => match Address::parse(&name, 0) {
                Some(address) => Some(address),
                None => {
                    let wanted = Address::wanted(&name, "unix:PATH");
                    return Err(Failure::misuse(format!("the socket \"{name}\" is not {wanted}")));
                }
            },
            None => DaemonSettings::of_file(&self.config)?.addresses_of("admin").into_iter().next(),
        };
        match address {
            Some(Address::Unix(path)) => Ok(path),
            Some(Address::Tcp(_) | Address::Proxied(_)) => Err(Failure::misuse("the administration is at unix:PATH")),
            None => {
                Err(format!("no socket is named: neither by --admin nor by {VARIABLE}, nor by {}", self.config).into())
            }
        }
    }
}

/// The table's rows, without what they set.
pub fn described() -> Vec<Opt<()>> {
    OPTIONS.iter().map(Opt::describe).collect()
}

/// Returns the names of the commands.
pub fn first_words() -> Vec<&'static str> {
    Operations::of(SERVICES).commands().map(|(name, _)| name).collect()
}

/// Returns the commands for the help, a line each.
pub fn list() -> String {
    let line = |(name, Offered { about, .. }): (&str, Offered)| {
        let usage = [&[name], about.parameters].concat().join(" ");
        format!("    {usage:<38} {}", about.summary)
    };
    Operations::of(SERVICES).commands().map(line).collect::<Vec<_>>().join("\n")
}
