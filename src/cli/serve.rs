//! Starts the daemon: logs, descriptors, listeners, and then the loop.

use super::options::Settings;
use crate::net::{Address, Listener, Server};
use crate::services::{Kind, Services};
use log::{LevelFilter, info, warn};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;

/// A fleet's daemon with fewer descriptors than this will turn clients away on a busy day.
const ENOUGH_DESCRIPTORS: u64 = 65_535;

/// Serves until a signal ends it.
///
/// # Errors
///
/// One sentence that says why it cannot.
pub fn serve(settings: &Settings) -> Result<(), String> {
    start_logging(settings.verbosity);
    raise_descriptor_limit();
    let mut server = Server::new(Services::new(settings.pools), settings.max_connections)
        .map_err(|error| format!("cannot wait for events: {error}"))?;
    // Before the start is announced, so that a signal sent upon the announcement finds its handler.
    server.handle_signals().map_err(|error| format!("cannot handle signals: {error}"))?;
    let made = listen(&mut server, settings)?;
    info!("poolcounter {} listens on {}", env!("CARGO_PKG_VERSION"), enumerate(&server.addresses()));
    let result = server.run();
    for address in made {
        if let Address::Unix(path) = address {
            // Somebody may have removed it before.
            let _ = fs::remove_file(path);
        }
    }
    info!("poolcounter stops");
    result.map_err(|error| format!("cannot wait for events: {error}"))
}

fn start_logging(verbosity: u8) {
    let mut builder = env_logger::Builder::new();
    builder.format_target(false);
    match verbosity {
        0 => builder.filter_level(LevelFilter::Info).parse_default_env(),
        1 => builder.filter_level(LevelFilter::Debug),
        _ => builder.filter_level(LevelFilter::Trace),
    };
    builder.init();
}

/// Takes as many descriptors as the system gives: every connection needs one.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!("cannot raise the limit of open files: {error}");
    }
    if let Some(limit) = getrlimit(Resource::Nofile).current
        && limit < ENOUGH_DESCRIPTORS
    {
        warn!("at most {limit} files may be open, so fewer clients than that can connect; raise it with ulimit -n");
    }
}

/// Listens where the settings say, or on the standard input if that is a listening socket. Tells which addresses it made.
fn listen(server: &mut Server, settings: &Settings) -> Result<Vec<Address>, String> {
    let failed = |address: &Address, error: io::Error| format!("cannot listen on {address}: {error}");
    let stdin = io::stdin().as_fd().try_clone_to_owned();
    if let Some(listener) = stdin.ok().and_then(|fd| Listener::inherit(fd, &settings.net)) {
        let inherited = "the socket on the standard input";
        server.listen(listener, Kind::Pools).map_err(|error| format!("cannot listen on {inherited}: {error}"))?;
        return Ok(Vec::new());
    }
    let mut made = Vec::new();
    for address in settings.addresses()? {
        match Listener::bind(&address, &settings.net) {
            Ok(listener) => server.listen(listener, Kind::Pools).map_err(|error| failed(&address, error))?,
            // A machine without IPv6 is served all the same, if nobody asked for it by name.
            Err(error) if settings.listens_by_default() && !made.is_empty() && is_unsupported(&error) => continue,
            Err(error) => return Err(failed(&address, error)),
        }
        made.push(address);
    }
    Ok(made)
}

fn is_unsupported(error: &io::Error) -> bool {
    let no_such_family = rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::AFNOSUPPORT);
    no_such_family || error.kind() == ErrorKind::AddrNotAvailable
}

fn enumerate(addresses: &[Address]) -> String {
    let texts: Vec<String> = addresses.iter().map(Address::to_string).collect();
    match texts.as_slice() {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
