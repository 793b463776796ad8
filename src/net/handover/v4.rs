//! The handover of version 0.9.0, which was one piece. It is turned into what is written now.

use super::{Preamble, SavedPort, SavedSocket};
use crate::net::clock::Clock;
use crate::net::connections::{Head, SavedConnection};
use crate::net::core::SavedService;
use crate::pulse::Pulse;
use crate::record::Writer;
use crate::service::{IN_ONE_PIECE, Traffic};
use crate::services::Kind;
use serde::Deserialize;
use std::io;

/// The version of these.
pub const VERSION: u32 = 4;

/// Everything that the process knew.
#[derive(Deserialize)]
struct Handover {
    clock: Clock,
    ports: Vec<SavedPort>,
    sockets: Vec<SavedSocket>,
    connections: Connections,
}

#[derive(Deserialize)]
struct Connections {
    services: Vec<Service>,
    connections: Vec<SavedConnection>,
    pulse: Pulse,
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
    write(&connections, &mut Writer::new(&mut records)).map_err(|error| error.to_string())?;
    Ok((Preamble { clock, ports, sockets, program: None, rehearsed: None }, records))
}

fn write(saved: &Connections, out: &mut Writer<'_>) -> io::Result<()> {
    out.put(&saved.services.len())?;
    for Service { kind, traffic, state } in &saved.services {
        out.put(&SavedService { kind: *kind, version: IN_ONE_PIECE, traffic: *traffic })?;
        out.put_bytes(state)?;
    }
    out.put(&Head { pulse: saved.pulse.clone(), connections: saved.connections.len() })?;
    saved.connections.iter().try_for_each(|connection| out.put(connection))
}

#[cfg(test)]
mod tests {
    use crate::net::connections;
    use crate::net::handover::Handover;
    use crate::record::Reader;
    use crate::services::{Kind, Limits, Services};
    use crate::time::{Span, Time};

    /// A daemon of version 0.9.0 wrote this with locks, waiters, counters, half requests and a client that does not read.
    const WRITTEN: &[u8] = include_bytes!("../../../tests/handovers/4");

    #[test]
    fn what_version_0_9_0_wrote_is_read() {
        let Handover { preamble, mut rest } = Handover::read(WRITTEN).expect("is read");
        let kinds: Vec<Kind> = preamble.ports.iter().map(|port| port.kind).collect();
        assert_eq!((kinds, preamble.sockets.len()), (vec![Kind::Pools, Kind::Counters, Kind::Http], 8));
        let mut records = Vec::new();
        rest.read_to_end(&mut records).expect("is in memory");
        for text in
            ["Article:k", "STATS UP", "ACQ4ME half-a-line 1 1", "alpha", "a name of more than eighteen bytes", "delta"]
        {
            assert!(records.windows(text.len()).any(|bytes| bytes == text.as_bytes()), "{text} is lost");
        }
        let (now, epoch) = (Time::START + Span::from_secs(10), preamble.clock.epoch());
        let rehearse = |records: &[u8]| {
            let services = Services::new(Limits::default());
            connections::rehearse(services, &mut Reader::new(&mut &records[..]), now, epoch)
        };
        assert_eq!(rehearse(&records), Ok(()));
        assert!(rehearse(&records[..records.len() - 1]).is_err());
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        assert!(Handover::read(&WRITTEN[..WRITTEN.len() - 1]).is_err());
    }
}
