//! The handover of version 0.9.0, which was one piece. It is turned into what is written now.

use super::{Preamble, SavedPort, SavedSocket};
use crate::id::ConnId;
use crate::net::clock::Clock;
use crate::net::connections::{Head, SavedConnection};
use crate::net::dispatch::SavedService;
use crate::net::listener::SavedListener;
use crate::pulse::{Pulse, Spread};
use crate::record::Writer;
use crate::service::{IN_ONE_PIECE, Traffic};
use crate::time::Time;
use serde::Deserialize;
use std::ffi::OsString;
use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// The version of these.
pub const VERSION: u32 = 4;

/// The services that there were.
#[derive(Clone, Copy, Deserialize)]
enum Kind {
    Pools,
    Counters,
    Http,
}

/// Everything that the process knew.
#[derive(Deserialize)]
struct Handover {
    clock: Clock,
    ports: Vec<Port>,
    sockets: Vec<SavedSocket>,
    connections: Connections,
}

#[derive(Deserialize)]
struct Port {
    kind: Kind,
    fd: RawFd,
    /// The path of the socket file that it made.
    made: Option<OsString>,
}

#[derive(Deserialize)]
struct Connections {
    services: Vec<Service>,
    connections: Vec<Connection>,
    pulse: LoopFigures,
}

#[derive(Deserialize)]
struct Connection {
    id: ConnId,
    kind: Kind,
    unserved: Vec<u8>,
    unsent: Vec<u8>,
    replies: u32,
    ended: bool,
    patience: Option<Time>,
}

#[derive(Deserialize)]
struct LoopFigures {
    durations: Spread,
    turns: Spread,
    memory_bytes: u64,
    spent: [u64; 5],
    _begun: Option<Time>,
    _turns_now: u64,
}

impl Kind {
    fn name(self) -> String {
        match self {
            Kind::Pools => "pools",
            Kind::Counters => "counters",
            Kind::Http => "http",
        }
        .into()
    }
}

#[derive(Deserialize)]
struct Service {
    kind: Kind,
    traffic: Traffic,
    state: Vec<u8>,
}

/// What is behind the header, in two: the preamble, and the rest as records.
pub fn read(body: &[u8]) -> Result<(Preamble, Vec<u8>), String> {
    let damaged = |error| format!("the handover is damaged: {error}");
    let Handover { clock, ports, sockets, connections } = postcard::from_bytes(body).map_err(damaged)?;
    let mut records = Vec::new();
    write(connections, &mut Writer::new(&mut records)).map_err(|error| error.to_string())?;
    let ports = ports.into_iter().map(|Port { kind, fd, made }| SavedPort {
        service: kind.name(),
        listener: SavedListener::without_address(fd, made.map(PathBuf::from)),
    });
    Ok((Preamble { clock, ports: ports.collect(), sockets, program: None, rehearsed: None }, records))
}

fn write(saved: Connections, out: &mut Writer<'_>) -> io::Result<()> {
    let order: Vec<u8> = saved.services.iter().map(|service| service.kind as u8).collect();
    out.put(&saved.services.len())?;
    for Service { kind, traffic, state } in saved.services {
        out.put(&SavedService { name: kind.name(), version: IN_ONE_PIECE, traffic })?;
        out.put_bytes(&state)?;
    }
    let LoopFigures { durations, turns, memory_bytes, spent, .. } = saved.pulse;
    let pulse = Pulse::restored(durations, turns, memory_bytes, &spent);
    out.put(&Head { pulse, connections: saved.connections.len() })?;
    for Connection { id, kind, unserved, unsent, replies, ended, patience } in saved.connections {
        let place = order.iter().position(|other| *other == kind as u8);
        // Lossless: there were three services.
        let service = place.ok_or_else(|| io::Error::other("a connection is of no service"))? as u8;
        out.put(&SavedConnection { id, service, unserved, unsent, replies, ended, waiting: false, patience })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::net::connections;
    use crate::net::handover::Handover;
    use crate::record::Reader;
    use crate::registry::Services;
    use crate::time::{Span, Time};

    /// A daemon of version 0.9.0 wrote this with locks, waiters, counters, half requests and a client that does not read.
    const WRITTEN: &[u8] = include_bytes!("../../../tests/handovers/4");

    #[test]
    fn what_version_0_9_0_wrote_is_read() {
        let Handover { preamble, mut rest } = Handover::read(WRITTEN).expect("is read");
        let services: Vec<&str> = preamble.ports.iter().map(|port| &*port.service).collect();
        assert_eq!((services, preamble.sockets.len()), (vec!["pools", "counters", "http"], 8));
        let mut records = Vec::new();
        rest.read_to_end(&mut records).expect("is in memory");
        for text in
            ["Article:k", "STATS UP", "ACQ4ME half-a-line 1 1", "alpha", "a name of more than eighteen bytes", "delta"]
        {
            assert!(records.windows(text.len()).any(|bytes| bytes == text.as_bytes()), "{text} is lost");
        }
        let (now, epoch) = (Time::START + Span::from_secs(10), preamble.clock.epoch());
        let rehearse = |records: &[u8]| {
            let services = Services::default();
            connections::rehearse(services, &mut Reader::new(&mut &records[..]), (now, epoch))
        };
        assert_eq!(rehearse(&records), Ok(()));
        assert!(rehearse(&records[..records.len() - 1]).is_err());
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        assert!(Handover::read(&WRITTEN[..WRITTEN.len() - 1]).is_err());
    }
}
