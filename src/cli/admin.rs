//! `admin`: sends a command of the administration to the daemon on this machine, and prints the reply.

use super::command::{Exit, FAILURE, Failure, Requests};
use super::config_command::{USUAL_CONFIG, file_option};
use super::options::DaemonSettings;
use super::services::SERVICES;
use super::stats::on_wire;
use super::table::Given;
use super::terminal::{print, print_json, printable};
use poolcounter_admin::wire::{ERROR, LEFT, OK, WAIT};
use poolcounter_client::connect_unix;
use poolcounter_core::Address;
use poolcounter_service::operations::{Offered, Operations};
use poolcounter_service::options::{Opt, assign, option_table};
use serde_json::json;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fs};

/// Environment variable with the path of the socket, if no option sets it.
const VARIABLE: &str = "POOLCOUNTER_ADMIN";
/// Directory of the package's sockets.
const USUAL_DIRECTORY: &str = "/run/poolcounter";

/// Time limit of a reply.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time limit of a further line of a drain: more than an upgrade takes meanwhile.
const DRAIN_PATIENCE: Duration = Duration::from_secs(30);

/// Settings of the command.
pub struct AdminCommandSettings {
    socket: Option<String>,
    config: Option<String>,
    is_json: bool,
}

/// Options of the command.
pub const OPTIONS: &[Opt<AdminCommandSettings>] = option_table!(AdminCommandSettings;
    "-a, --admin unix:PATH",
        "Administration socket of the daemon, as in its option --admin. The default is the value of POOLCOUNTER_ADMIN \
         in the environment, the socket in the configuration file, admin.sock in the directory RUNTIME_DIRECTORY, or \
         /run/poolcounter/admin.sock, whichever is found first.",
        |settings, value| assign(&mut settings.socket, Ok(Some(value.into())));
    => file_option(|settings, value| assign(&mut settings.config, Ok(Some(value.into()))));
    "-j, --json",
        "Print each line as a JSON object. Each object has left, wait, ok or error, with the content of the line.",
        |settings, _| assign(&mut settings.is_json, Ok(true));
);

/// Runs the command.
///
/// # Errors
///
/// Fails if the daemon does not answer, or refuses.
pub fn run(given: &Given) -> Exit {
    let settings = given.settings(OPTIONS, AdminCommandSettings { socket: None, config: None, is_json: false })?;
    let request = request_of(&given.words)?;
    let path = settings.path()?;
    let socket = connect_unix(&path, PATIENCE).map_err(|error| format!("unix:{}: {error}", path.display()))?;
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::WouldBlock => format!("unix:{}: the daemon does not answer", path.display()),
        _ => format!("unix:{}: {error}", path.display()),
    };
    socket.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    (&socket).write_all(&request).map_err(failed)?;
    for line in BufReader::new(&socket).split(b'\n') {
        let line = printable(&line.map_err(failed)?);
        let (word, text) = line.split_once(' ').unwrap_or((&line, ""));
        if settings.is_json {
            print_json(&json!({ word.to_ascii_lowercase(): text }))?;
        }
        match word {
            OK if settings.is_json || text.is_empty() => return Ok(ExitCode::SUCCESS),
            OK => return print(&format!("{text}\n")),
            ERROR if settings.is_json => return Ok(ExitCode::from(FAILURE)),
            ERROR => return Err(text.to_string().into()),
            LEFT => {
                socket.set_read_timeout(Some(DRAIN_PATIENCE)).map_err(failed)?;
                if !settings.is_json {
                    print(&format!("left: {text}\n"))?;
                }
            }
            // The daemon ends a reload that takes too long, and the end of the daemon ends the connection.
            WAIT => socket.set_read_timeout(None).map_err(failed)?,
            _ => {}
        }
    }
    Err(format!("unix:{}: the daemon has gone without an answer", path.display()).into())
}

/// Returns the request line. A space in a key is escaped as in requests for locks.
fn request_of(words: &[OsString]) -> Result<Vec<u8>, Failure> {
    let known: Vec<&str> = Operations::of(SERVICES).commands().map(|(name, _)| name).collect();
    let Some(first) = words.first().map(|word| word.to_string_lossy()) else {
        return Err(Failure::misuse(format!("admin needs a command: {}", known.join(", "))));
    };
    if !known.iter().any(|known| known.eq_ignore_ascii_case(&first)) {
        return Err(Failure::unknown("command", &first, known));
    }
    let mut line = on_wire(words).join(&b' ');
    if line.iter().any(|byte| matches!(byte, b'\n' | b'\r' | 0)) {
        return Err(Failure::misuse("a command has no line feed, carriage return or NUL"));
    }
    line.push(b'\n');
    Ok(line)
}

impl AdminCommandSettings {
    /// Returns the path of the administration socket.
    fn path(&self) -> Result<PathBuf, Failure> {
        let named = self.socket.clone().or_else(|| env::var(VARIABLE).ok().filter(|name| !name.is_empty()));
        let wrong = |name: &str| {
            Failure::misuse(format!("the socket \"{name}\" is not {}", Address::wanted(name, "unix:PATH")))
        };
        let address = match named {
            Some(name) => Some(Address::parse(&name, 0).ok_or_else(|| wrong(&name))?),
            None => self.address_in_file()?.or_else(usual_address),
        };
        match address {
            Some(Address::Unix(path)) => Ok(path),
            Some(Address::Tcp(_) | Address::Proxied(_)) => Err(Failure::misuse("the administration is at unix:PATH")),
            None => {
                let advice =
                    "start it with --admin unix:/run/poolcounter/admin.sock, or see admin in poolcounter.toml(5)";
                Err(format!("the daemon has no administration socket that is known here; {advice}").into())
            }
        }
    }

    /// Returns the address of the socket in the configuration file, if that can be read and names one.
    ///
    /// # Errors
    ///
    /// Fails if the file is malformed, or if it was named on the command line and cannot be read.
    fn address_in_file(&self) -> Result<Option<Address>, Failure> {
        if self.config.is_none() && fs::metadata(USUAL_CONFIG).is_err() {
            return Ok(None);
        }
        let config = self.config.as_deref().unwrap_or(USUAL_CONFIG);
        Ok(DaemonSettings::of_file(config)?.addresses_of("admin").into_iter().next())
    }
}

/// Returns the address of the socket where packages have it, if it is there.
fn usual_address() -> Option<Address> {
    let own = env::var_os("RUNTIME_DIRECTORY").map(PathBuf::from);
    let places = own.into_iter().chain([PathBuf::from(USUAL_DIRECTORY)]).map(|directory| directory.join("admin.sock"));
    places.filter(|path| path.exists()).map(Address::Unix).next()
}

/// Returns the commands for the help.
pub fn list() -> Requests {
    let request = |(name, Offered { about, .. }): (&'static str, Offered)| {
        ([&[name], about.parameters].concat().join(" "), about.summary)
    };
    Operations::of(SERVICES).commands().map(request).collect()
}
