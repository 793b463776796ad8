//! Opens and closes listeners after a reload, so that the daemon listens where the settings say now. Connections live on.

use super::options::Settings;
use super::serve::is_unsupported;
use crate::net::{Address, Listener, Server};
use crate::services::{ByKind, Kind};
use log::{info, warn};
use std::io;

/// Has the server listen where the settings say, and returns whether it does. What cannot change is logged, and stays as it was.
pub fn relisten(server: &mut Server, settings: &Settings) -> bool {
    let old = match server.take_listeners() {
        Ok(old) => old,
        Err(error) => {
            warn!("the addresses stay as they were: {error}");
            return false;
        }
    };
    let mut succeeds = ByKind::each(|_| true);
    let mut new = Vec::new();
    for Opened { kind, address, result } in open_missing(&old, settings) {
        match result {
            Ok(listener) => new.push((listener, kind)),
            Err(error) if settings.endpoints[kind].is_default() && is_unsupported(&error) => {}
            Err(error) => {
                warn!("cannot listen on {address}: {error}; the {} are also served where they were", kind.name());
                succeeds[kind] = false;
            }
        }
    }
    for (listener, kind) in old {
        let stays = listener.bound().is_none_or(|address| settings.endpoints[kind].addresses().contains(address));
        if stays || !succeeds[kind] {
            succeeds[kind] &= keep(listener, kind, server, settings);
        } else {
            listener.bound().into_iter().for_each(|address| info!("{address} is not listened on any more"));
            server.retire(listener, kind);
        }
    }
    for (listener, kind) in new {
        succeeds[kind] &= add(listener, kind, server);
    }
    Kind::ALL.into_iter().all(|kind| succeeds[kind])
}

/// A listener that the settings ask for and that was not there, if it could be opened.
struct Opened {
    kind: Kind,
    address: Address,
    result: io::Result<Listener>,
}

fn open_missing(old: &[(Listener, Kind)], settings: &Settings) -> Vec<Opened> {
    let others: Vec<&Listener> = old.iter().map(|(listener, _)| listener).collect();
    let mut opened = Vec::new();
    for kind in Kind::ALL {
        let own = || old.iter().filter(|(_, of)| *of == kind).map(|(listener, _)| listener.bound());
        if own().any(|bound| bound.is_none()) {
            if !settings.endpoints[kind].is_default() {
                warn!(
                    "the addresses set for the {} are ignored: a socket that was inherited is listened on",
                    kind.name()
                );
            }
            continue;
        }
        let mut there: Vec<&Address> = own().flatten().collect();
        for address in settings.endpoints[kind].addresses() {
            match there.iter().position(|bound| **bound == address) {
                // Each counts once: with port 0, two that are alike are not the same.
                Some(at) => drop(there.swap_remove(at)),
                None => {
                    let result = Listener::bind_beside(&address, &settings.net, &others);
                    opened.push(Opened { kind, address, result });
                }
            }
        }
    }
    opened
}

/// Goes on with a listener that was there before, and returns whether it listens as the settings say.
fn keep(listener: Listener, kind: Kind, server: &mut Server, settings: &Settings) -> bool {
    let adjusted = listener.adjust(&settings.net);
    if let Err(error) = &adjusted {
        warn!("backlog, keepalive and socket_mode of a socket of the {} stay as they were: {error}", kind.name());
    }
    add(listener, kind, server) && adjusted.is_ok()
}

fn add(listener: Listener, kind: Kind, server: &mut Server) -> bool {
    let added = server.listen(listener, kind);
    added.inspect_err(|error| warn!("cannot listen on a socket of the {}: {error}", kind.name())).is_ok()
}
