//! Starts the daemon: logs, descriptors, listeners, and then the loop.

use super::commands::Failure;
use super::options::Settings;
use super::table::Given;
use crate::net::{self, Address, Handover, Listener, Server};
use crate::services::{Kind, Services};
use log::{LevelFilter, info, warn};
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::process::ExitCode;

/// A fleet's daemon with fewer descriptors than this will turn clients away on a busy day.
const ENOUGH_DESCRIPTORS: u64 = 65_535;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The command: serves until a signal ends it, or only tells whether it could take over.
///
/// # Errors
///
/// When it cannot.
pub fn run(given: &Given) -> Result<ExitCode, Failure> {
    if let Some(handover) = Handover::inherited() {
        go_on(handover?, given)?;
        return Ok(ExitCode::SUCCESS);
    }
    let settings = Settings::of(given)?;
    if settings.is_rehearsal {
        net::check(Services::new(settings.limits), settings.config_text)?;
    } else {
        start_logging(settings.verbosity);
        serve(start(&settings)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves in place of the process that left `handover`, with the settings that were rehearsed, whatever is in the
/// configuration file by now. Version 0.9.0 did not tell them. If the file is not well-formed any more, that is no reason to
/// drop every lock.
fn go_on(handover: Handover, given: &Given) -> Result<(), String> {
    let settings = match handover.config() {
        Some(text) => Settings::with_file(given, text),
        None => Settings::of(given),
    };
    let (settings, complaint) = match settings {
        Ok(settings) => (settings, None),
        Err(sentence) => (Settings::without_file(given)?, Some(sentence)),
    };
    start_logging(settings.verbosity);
    if let Some(sentence) = complaint {
        warn!("the configuration file counts for nothing until the next reload: {sentence}");
    }
    serve(take_over(handover, &settings)?)
}

fn serve(mut server: Server) -> Result<(), String> {
    let result = server.run();
    info!("poolcounter stops");
    result.map_err(|error| format!("cannot wait for events: {error}"))
}

fn start(settings: &Settings) -> Result<Server, String> {
    let mut server = Server::new(Services::new(settings.limits), settings.policy)
        .map_err(|error| format!("cannot wait for events: {error}"))?;
    handle_signals(&mut server)?;
    listen(&mut server, settings)?;
    raise_descriptor_limit();
    announce(&server, "");
    Ok(server)
}

fn take_over(handover: Handover, settings: &Settings) -> Result<Server, String> {
    let mut server = Server::take_over(handover, Services::new(settings.limits), settings.policy)?;
    handle_signals(&mut server)?;
    announce(&server, &format!("has taken over, with {} connections, and ", server.connections()));
    Ok(server)
}

/// Tells that it listens, last of all where the pools' clients find it. `before` is what it did before that.
fn announce(server: &Server, before: &str) {
    for kind in Kind::ALL.into_iter().rev() {
        let addresses = enumerate(&server.addresses(kind));
        match kind {
            _ if addresses.is_empty() => {}
            Kind::Pools => info!("poolcounter {VERSION} {before}listens on {addresses}"),
            Kind::Http => info!("metrics and the status page are at {addresses}"),
            Kind::Counters => info!("the {} are at {addresses}", kind.name()),
        }
    }
}

/// Done before the start is announced, so that a signal sent upon the announcement finds its handler.
fn handle_signals(server: &mut Server) -> Result<(), String> {
    server.handle_signals().map_err(|error| format!("cannot handle signals: {error}"))
}

fn start_logging(verbosity: u8) {
    let level = match verbosity {
        0 => LevelFilter::Info,
        1 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    };
    env_logger::Builder::new().format_target(false).filter_level(level).parse_default_env().init();
}

/// Takes as many descriptors as the system gives: every connection needs one. Whoever takes over keeps the limit.
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(_, most)| {
        setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
        Ok(most)
    });
    match raised {
        Ok(most) if most < ENOUGH_DESCRIPTORS => {
            warn!("at most {most} files may be open, so fewer clients than that can connect; raise it with ulimit -n");
        }
        Ok(_) => {}
        Err(error) => warn!("cannot raise the limit of open files: {error}"),
    }
}

/// Listens on the sockets that the supervisor has opened, and for services that got none where the settings say.
fn listen(server: &mut Server, settings: &Settings) -> Result<(), String> {
    for (name, fd) in net::sockets_from_supervisor()? {
        let socket = format!("the socket \"{name}\" of LISTEN_FDS");
        let kind = kind_called(&name).ok_or_else(|| format!("{socket} is for no service"))?;
        let listener = Listener::inherit(fd, &settings.net).ok_or_else(|| format!("{socket} does not listen"))?;
        listen_instead(listener, kind, &socket, server, settings)?;
    }
    let stdin = io::stdin().as_fd().try_clone_to_owned();
    if let Some(listener) = stdin.ok().and_then(|fd| Listener::inherit(fd, &settings.net)) {
        listen_instead(listener, Kind::Pools, "the socket on the standard input", server, settings)?;
    }
    for kind in Kind::ALL {
        if settings.endpoints[kind].is_enabled && server.addresses(kind).is_empty() {
            listen_for(kind, server, settings)?;
        }
    }
    Ok(())
}

/// Listens on what somebody else has opened, instead of where the settings say.
fn listen_instead(
    listener: Listener,
    kind: Kind,
    socket: &str,
    server: &mut Server,
    settings: &Settings,
) -> Result<(), String> {
    if !settings.endpoints[kind].is_default() {
        warn!("the addresses set for the {} are ignored: {socket} is listened on instead", kind.name());
    }
    server.listen(listener, kind).map_err(|error| format!("cannot listen on {socket}: {error}"))
}

/// The service that a socket of this name is for. One without a name of its own is for the pools.
fn kind_called(name: &str) -> Option<Kind> {
    let is_unnamed = name.is_empty() || name == "unknown" || name.ends_with(".socket");
    let singular = |name: &str| name.trim_end_matches('s').to_string();
    let named = || Kind::ALL.into_iter().find(|kind| singular(kind.name()) == singular(name));
    if is_unnamed { Some(Kind::Pools) } else { named() }
}

fn listen_for(kind: Kind, server: &mut Server, settings: &Settings) -> Result<(), String> {
    let endpoint = &settings.endpoints[kind];
    for address in endpoint.addresses() {
        let bound = Listener::bind(&address, &settings.net).and_then(|listener| server.listen(listener, kind));
        match bound {
            Ok(()) => {}
            // A machine without IPv6 is served all the same, if nobody asked for it by name.
            Err(error) if endpoint.is_default() && !server.addresses(kind).is_empty() && is_unsupported(&error) => {}
            Err(error) => return Err(format!("cannot listen on {address}: {error}")),
        }
    }
    Ok(())
}

fn is_unsupported(error: &io::Error) -> bool {
    let no_such_family = error.raw_os_error() == Some(Errno::EAFNOSUPPORT as i32);
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
