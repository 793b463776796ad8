//! Handover of version 0.9.0, which was one postcard value. It is converted to the present form.

use super::v5::SocketV5;
use super::{Preamble, SavedPort, SavedSocket};
use crate::clock::Clock;
use crate::connections::{ConnectionsHead, SavedClient, SavedConnection};
use crate::dispatch::SavedService;
use crate::listener::SavedListener;
use poolcounter_core::histogram::Histogram;
use poolcounter_core::id::ConnId;
use poolcounter_core::record::Writer;
use poolcounter_core::time::Time;
use poolcounter_service::contract::{IN_ONE_PIECE, Traffic};
use poolcounter_service::loop_stats::LoopStats;
use serde::Deserialize;
use std::ffi::OsString;
use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// Version of this layout.
pub const VERSION: u32 = 4;

/// Services of that version.
#[derive(Clone, Copy, Deserialize)]
enum ServiceKindV4 {
    Pools,
    Counters,
    Http,
}

/// The whole state of the process.
#[derive(Deserialize)]
struct HandoverV4 {
    clock: Clock,
    ports: Vec<PortV4>,
    sockets: Vec<SocketV5>,
    connections: ConnectionsV4,
}

#[derive(Deserialize)]
struct PortV4 {
    kind: ServiceKindV4,
    fd: RawFd,
    /// Path of the socket file that it made.
    made: Option<OsString>,
}

#[derive(Deserialize)]
struct ConnectionsV4 {
    services: Vec<ServiceV4>,
    connections: Vec<ConnectionV4>,
    pulse: LoopFigures,
}

#[derive(Deserialize)]
struct ConnectionV4 {
    id: ConnId,
    kind: ServiceKindV4,
    unserved: Vec<u8>,
    unsent: Vec<u8>,
    replies: u32,
    eof: bool,
    patience: Option<Time>,
}

#[derive(Deserialize)]
struct LoopFigures {
    durations: Spread,
    turns: Spread,
    _memory_bytes: u64,
    spent: [u64; 5],
    _begun: Option<Time>,
    _turns_now: u64,
}

/// Histogram with its own bounds.
#[derive(Deserialize)]
struct Spread {
    bounds: Vec<u64>,
    /// One more than there are bounds: the last bucket has none.
    counts: Vec<u64>,
    sum: u64,
}

impl Spread {
    fn into_histogram(self) -> Histogram {
        Histogram::of_coarse(&self.bounds, &self.counts, self.sum)
    }
}

impl ServiceKindV4 {
    fn name(self) -> String {
        match self {
            ServiceKindV4::Pools => "pools",
            ServiceKindV4::Counters => "counters",
            ServiceKindV4::Http => "http",
        }
        .into()
    }
}

#[derive(Deserialize)]
struct ServiceV4 {
    kind: ServiceKindV4,
    traffic: Traffic,
    state: Vec<u8>,
}

/// Returns the preamble of the bytes behind the header, and the rest as records.
pub fn read(body: &[u8]) -> Result<(Preamble, Vec<u8>), String> {
    let damaged = |error| format!("the handover is damaged: {error}");
    let HandoverV4 { clock, ports, sockets, connections } = postcard::from_bytes(body).map_err(damaged)?;
    let mut records = Vec::new();
    write(connections, &mut Writer::new(&mut records)).map_err(|error| error.to_string())?;
    let ports = ports.into_iter().map(|PortV4 { kind, fd, made }| SavedPort {
        service: kind.name(),
        listener: SavedListener::without_address(fd, made.map(PathBuf::from)),
    });
    let sockets = sockets.into_iter().map(SavedSocket::from).collect();
    Ok((Preamble { clock, ports: ports.collect(), sockets, program: None, rehearsed: None }, records))
}

fn write(saved: ConnectionsV4, out: &mut Writer<'_>) -> io::Result<()> {
    let order: Vec<u8> = saved.services.iter().map(|service| service.kind as u8).collect();
    out.put(&saved.services.len())?;
    for ServiceV4 { kind, traffic, state } in saved.services {
        out.put(&SavedService { name: kind.name(), version: IN_ONE_PIECE, traffic })?;
        out.put_bytes(&state)?;
    }
    let LoopFigures { durations, turns, spent, .. } = saved.pulse;
    let loop_stats = LoopStats::restored(durations.into_histogram(), turns.into_histogram(), &spent);
    out.put(&ConnectionsHead { loop_stats, denied: Vec::new(), connections: saved.connections.len() })?;
    for ConnectionV4 { id, kind, unserved, unsent, replies, eof, patience } in saved.connections {
        let index = order.iter().position(|other| *other == kind as u8);
        // Lossless: there were three services.
        let service = index.ok_or_else(|| io::Error::other("a connection is of no service"))? as u8;
        out.put(&SavedConnection {
            id,
            service,
            unserved,
            unsent,
            replies,
            eof,
            waiting: false,
            linger_until: patience,
            client: SavedClient::Peer,
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::SERVICES;
    use crate::connections;
    use crate::handover::Handover;
    use poolcounter_core::record::Reader;
    use poolcounter_core::time::{Span, Time};
    use poolcounter_service::container::{AllSettings, Services};

    /// Handover of a daemon of version 0.9.0 with locks, waiters, counters, partial requests and a client that does not
    /// read.
    const WRITTEN: &[u8] = include_bytes!("../../../tests/handovers/4");

    #[test]
    fn records_of_version_0_9_0_are_read() {
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
            let services = Services::of(SERVICES, &AllSettings::defaults(SERVICES));
            connections::rehearse(services, &mut Reader::new(&mut &records[..]), (now, epoch), |_| true)
        };
        assert_eq!(rehearse(&records), Ok(false));
        assert!(rehearse(&records[..records.len() - 1]).is_err());
    }

    #[test]
    fn cut_records_are_refused() {
        assert!(Handover::read(&WRITTEN[..WRITTEN.len() - 1]).is_err());
    }
}
