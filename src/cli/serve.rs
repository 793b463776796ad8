//! Start of the daemon: log, descriptors, listeners, and then the loop.

use super::command::{Exit, Failure};
use super::doctor::{ENOUGH_DESCRIPTORS, folder_of, jobs_store};
use super::options::DaemonSettings;
use super::relisten::{is_unsupported, relisten};
use super::table::Given;
use super::terminal::{self, enumerate};
use super::{config, logger};
use crate::services::SERVICES;
use log::{error, info, warn};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{AccessFlags, access};
use poolcounter_jobs::options::StoreKind;
use poolcounter_server::{self as net, Handover, Listener, Server};
use poolcounter_service::access::Rule;
use poolcounter_service::container::{ServiceId, Services};
use poolcounter_service::options::Endpoint;
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;

pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Runs the command: serves until a signal ends it, or only checks whether it could serve, or take over.
///
/// # Errors
///
/// Fails if it cannot.
pub fn run(given: &Given) -> Exit {
    if let Some(handover) = Handover::inherited() {
        go_on(handover?, given)?;
        return Ok(ExitCode::SUCCESS);
    }
    net::Signals::hold_requests();
    let settings = DaemonSettings::of(given)?;
    if settings.is_check {
        settings.idle(|_| false).iter().for_each(|sentence| terminal::warn(sentence));
        return Ok(ExitCode::SUCCESS);
    }
    if settings.is_rehearsal {
        check_store(&settings)?;
        let has_lost_rules = settings.rules.is_empty() && settings.config_text.as_deref().is_some_and(config::is_empty);
        net::check(Services::of(SERVICES, &settings.services), settings.config_text, has_lost_rules)?;
    } else {
        logger::start(settings.verbosity);
        serve(start(&settings)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves in place of the process that left `handover`, with the settings that were rehearsed, even if the
/// configuration file has changed since. A fault in them must not cost the locks.
fn go_on(handover: Handover, given: &Given) -> Result<(), Failure> {
    let (settings, complaint) = match DaemonSettings::with_file(given, handover.config()) {
        Ok(settings) => (settings, None),
        Err(failure) => (DaemonSettings::without_file(given)?, Some(failure.sentence.replace('\n', "; "))),
    };
    logger::start(settings.verbosity);
    let mut policy = settings.policy();
    if complaint.is_some() {
        // Unreadable rules must not give everyone access.
        policy.rules = None;
    }
    warn_of_rules(&settings);
    let mut server = Server::take_over(handover, Services::of(SERVICES, &settings.services), policy)?;
    handle_signals(&mut server)?;
    let has_worked = match complaint {
        None => {
            server.configure();
            let has_worked = relisten(&mut server, &settings);
            warn_of_idle(&server, &settings);
            has_worked
        }
        Some(sentence) => {
            warn!(
                "the configuration file counts for nothing until the next reload; if there were rules of access, no request is allowed until then: {sentence}"
            );
            false
        }
    };
    // A service that cannot start must not cost the locks of connected clients.
    let has_begun = server.begin().inspect_err(|sentence| error!("{sentence}")).is_ok();
    server.note_reload(match has_worked && has_begun {
        true => Ok(format!("poolcounter {VERSION} has taken over")),
        false => {
            Err(format!("poolcounter {VERSION} has taken over, but not all of its settings: the log has the reason"))
        }
    });
    announce(&server, &format!("has taken over, with {} connections, and ", server.connections()));
    Ok(serve(server)?)
}

/// Checks that there is a directory for the file of the jobs, which a successor could not open otherwise.
fn check_store(settings: &DaemonSettings) -> Result<(), String> {
    let Some(StoreKind::Sqlite(Some(path))) = jobs_store(settings) else { return Ok(()) };
    let folder = folder_of(path);
    access(&folder.join("."), AccessFlags::W_OK | AccessFlags::X_OK).map_err(|error| {
        format!("the jobs cannot be kept in {}: {}: {}", path.display(), folder.display(), error.desc())
    })
}

/// Serves until a signal ends it.
pub(super) fn serve(mut server: Server) -> Result<(), String> {
    let result = server.run();
    info!("poolcounter stops");
    result.map_err(|error| format!("cannot wait for events: {error}"))
}

/// Starts the daemon: it listens, and serves as soon as it runs.
pub(super) fn start(settings: &DaemonSettings) -> Result<Server, String> {
    warn_of_rules(settings);
    let mut server = Server::new(Services::of(SERVICES, &settings.services), settings.policy())
        .map_err(|error| format!("cannot wait for events: {error}"))?;
    handle_signals(&mut server)?;
    server.configure();
    listen(&mut server, settings)?;
    server.begin()?;
    warn_of_idle(&server, settings);
    raise_descriptor_limit(settings.connections());
    announce(&server, "");
    Ok(server)
}

/// Warns about rules for users or groups if this process cannot see all of them.
fn warn_of_rules(settings: &DaemonSettings) {
    if !net::tells_all_users() && settings.rules.iter().any(Rule::is_for_users) {
        warn!(
            "rules of access for user: and group: match only ids that are mapped in this user namespace, and not all are"
        );
    }
}

/// Warns about settings that have no effect.
fn warn_of_idle(server: &Server, settings: &DaemonSettings) {
    let is_on = |id: ServiceId| !server.addresses(id.info(SERVICES).name).is_empty();
    settings.idle(is_on).iter().for_each(|sentence| warn!("{sentence}"));
}

/// Logs the addresses, the pools' addresses last. `before` is the text before them.
fn announce(server: &Server, before: &str) {
    let (first, others) = SERVICES.split_first().expect("there are services");
    for service in others.iter().rev() {
        let addresses = enumerate(&server.addresses(service.name));
        if !addresses.is_empty() {
            info!("{} {addresses}", service.announcement);
        }
    }
    let addresses = enumerate(&server.addresses(first.name));
    if !addresses.is_empty() {
        info!("poolcounter {VERSION} {before}{} {addresses}", first.announcement);
    }
}

/// Installs the signal handlers. Called before the start is announced, so that signals sent in reaction to that are
/// handled.
fn handle_signals(server: &mut Server) -> Result<(), String> {
    server.handle_signals().map_err(|error| format!("cannot handle signals: {error}"))
}

/// Raises the descriptor limit as far as the system allows, and returns it: every connection needs a descriptor. The
/// limit survives an upgrade. `wanted` is the number of connections that the settings ask for.
pub(super) fn raise_descriptor_limit(wanted: u64) -> u64 {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(_, most)| {
        setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
        Ok(most)
    });
    match raised {
        Ok(most) if most <= wanted => {
            warn!(
                "at most {most} files may be open, and the settings allow {wanted} connections; raise it with ulimit -n"
            );
        }
        Ok(most) if most < ENOUGH_DESCRIPTORS => {
            info!("at most {most} files may be open, so fewer clients than that can connect; ulimit -n raises it");
        }
        Ok(_) => {}
        Err(error) => warn!("cannot raise the limit of open files: {error}"),
    }
    getrlimit(Resource::RLIMIT_NOFILE).map_or(ENOUGH_DESCRIPTORS, |(most, _)| most)
}

/// Listens on the sockets of the supervisor, and for services without one on the addresses of the settings.
fn listen(server: &mut Server, settings: &DaemonSettings) -> Result<(), String> {
    for (name, fd) in net::sockets_from_supervisor()? {
        let socket = format!("the socket \"{name}\" of LISTEN_FDS");
        let service = service_called(&name).ok_or_else(|| format!("{socket} is for no service"))?;
        let listener =
            Listener::inherit(fd, &settings.net_of(service)).ok_or_else(|| format!("{socket} does not listen"))?;
        listen_instead(listener, service, &socket, server, settings)?;
    }
    let first = ServiceId::all(SERVICES).next().expect("there are services");
    let stdin = io::stdin().as_fd().try_clone_to_owned();
    if let Some(listener) = stdin.ok().and_then(|fd| Listener::inherit(fd, &settings.net)) {
        listen_instead(listener, first, "the socket on the standard input", server, settings)?;
    }
    for service in ServiceId::all(SERVICES) {
        if server.addresses(service.info(SERVICES).name).is_empty() {
            let (endpoint, name) = (&settings.endpoints[service], service.info(SERVICES).name);
            listen_for(server, service, name, endpoint, &settings.net_of(service))?;
        }
    }
    Ok(())
}

/// Listens on an inherited socket instead of the addresses of the settings.
fn listen_instead(
    listener: Listener,
    service: ServiceId,
    socket: &str,
    server: &mut Server,
    settings: &DaemonSettings,
) -> Result<(), String> {
    if !settings.endpoints[service].is_default() {
        warn!("the addresses set for the {} are ignored: {socket} is listened on instead", service.info(SERVICES).name);
    }
    server.listen(listener, service).map_err(|error| format!("cannot listen on {socket}: {error}"))
}

/// Returns the service for a socket of this name. A socket without a specific name is for the first service.
fn service_called(name: &str) -> Option<ServiceId> {
    let is_unnamed = name.is_empty() || name == "unknown" || name.ends_with(".socket");
    let singular = |name: &str| name.trim_end_matches('s').to_string();
    let named = || ServiceId::all(SERVICES).find(|id| singular(SERVICES[id.index()].name) == singular(name));
    if is_unnamed { ServiceId::all(SERVICES).next() } else { named() }
}

/// Listens on the addresses of the service of this name.
pub(super) fn listen_for(
    server: &mut Server,
    service: ServiceId,
    name: &str,
    endpoint: &Endpoint,
    options: &net::Options,
) -> Result<(), String> {
    for address in endpoint.addresses() {
        let bound = Listener::bind(&address, options).and_then(|listener| server.listen(listener, service));
        // Without IPv6 on the machine, the default addresses are served as far as possible.
        let may_fail = |error: &_| endpoint.is_default() && !server.addresses(name).is_empty() && is_unsupported(error);
        if let Err(error) = bound
            && !may_fail(&error)
        {
            return Err(format!("cannot listen on {address}: {error}"));
        }
    }
    Ok(())
}
