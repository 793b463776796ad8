//! Opens and closes listeners after a reload, to match the settings. Connections stay open.

use super::options::DaemonSettings;
use crate::services::SERVICES;
use log::{info, warn};
use nix::errno::Errno;
use poolcounter_server::{Address, Listener, Server};
use poolcounter_service::container::{PerService, ServiceId};
use std::io::{self, ErrorKind};

/// Makes the listeners match the settings, and returns true on success. Logs what cannot change and leaves it as it
/// was.
pub fn relisten(server: &mut Server, settings: &DaemonSettings) -> bool {
    let old = match server.take_listeners() {
        Ok(old) => old,
        Err(error) => {
            warn!("the addresses stay as they were: {error}");
            return false;
        }
    };
    let mut succeeds = PerService::each(SERVICES, |_| true);
    let mut new = Vec::new();
    for (service, address, result) in open_missing(&old, settings) {
        match result {
            Ok(listener) => new.push((listener, service)),
            Err(error) if settings.endpoints[service].is_default() && is_unsupported(&error) => {}
            Err(error) => {
                let name = name_of(service);
                warn!("cannot listen on {address}: {error}; the {name} are still served at their old addresses");
                succeeds[service] = false;
            }
        }
    }
    for (mut listener, service) in old {
        let wanted = settings.endpoints[service].addresses();
        let same = |bound: &Address| wanted.iter().find(|address| address.socket() == bound.socket());
        let same = listener.bound().map(same);
        if let Some(Some(address)) = same {
            listener.rename(address);
        }
        let is_reachable = listener.is_reachable();
        if (same != Some(None) && is_reachable) || !succeeds[service] {
            succeeds[service] &= keep(listener, service, server, settings);
        } else {
            let what = match same {
                Some(Some(_)) => "was opened anew: the file of its socket had been removed or replaced",
                _ => "is not listened on any more",
            };
            listener.bound().into_iter().for_each(|address| info!("{address} {what}"));
            server.retire(listener, service);
        }
    }
    for (listener, service) in new {
        succeeds[service] &= add(listener, service, server);
    }
    ServiceId::all(SERVICES).all(|service| succeeds[service])
}

/// Opens the listeners that the settings require in addition.
fn open_missing(
    old: &[(Listener, ServiceId)],
    settings: &DaemonSettings,
) -> Vec<(ServiceId, Address, io::Result<Listener>)> {
    let others: Vec<&Listener> = old.iter().map(|(listener, _)| listener).collect();
    let mut opened = Vec::new();
    for service in ServiceId::all(SERVICES) {
        let own = || old.iter().filter(|(_, of)| *of == service).map(|(listener, _)| listener);
        if own().any(|listener| listener.bound().is_none()) {
            if !settings.endpoints[service].is_default() {
                let name = name_of(service);
                warn!("the addresses set for the {name} are ignored: a socket that was inherited is listened on");
            }
            continue;
        }
        // A socket whose file was removed or replaced is opened anew.
        let mut there: Vec<&Address> = own().filter(|own| own.is_reachable()).filter_map(Listener::bound).collect();
        for address in settings.endpoints[service].addresses() {
            match there.iter().position(|bound| bound.socket() == address.socket()) {
                // Each matches once: with port 0, two equal entries are different listeners.
                Some(at) => drop(there.swap_remove(at)),
                None => {
                    let result = Listener::bind_beside(&address, &settings.net_of(service), &others);
                    opened.push((service, address, result));
                }
            }
        }
    }
    opened
}

/// Keeps a listener, and returns true if it matches the settings.
fn keep(mut listener: Listener, service: ServiceId, server: &mut Server, settings: &DaemonSettings) -> bool {
    let adjusted = listener.adjust(&settings.net_of(service));
    if let Err(error) = &adjusted {
        let name = name_of(service);
        warn!("backlog, keepalive and socket_mode of a socket of the {name} stay as they were: {error}");
    }
    add(listener, service, server) && adjusted.is_ok()
}

fn add(listener: Listener, service: ServiceId, server: &mut Server) -> bool {
    let added = server.listen(listener, service);
    added.inspect_err(|error| warn!("cannot listen on a socket of the {}: {error}", name_of(service))).is_ok()
}

fn name_of(service: ServiceId) -> &'static str {
    service.info(SERVICES).name
}

/// Returns true if the machine lacks this address family.
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    let no_such_family = error.raw_os_error() == Some(Errno::EAFNOSUPPORT as i32);
    no_such_family || error.kind() == ErrorKind::AddrNotAvailable
}
