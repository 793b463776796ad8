//! Connections in the handover to another process, without their sockets, which the caller hands over.

use super::{Connections, Dispatch, LINGER, LOOP, Table};
use crate::connection::{Connection, Phase, Place, Stream};
use poolcounter_core::proxy::Header;
use poolcounter_core::{ConnId, Id, Random, Reader, Span, Time, Unreadable, Writer};
use poolcounter_service::access::{self, SavedCounts};
use poolcounter_service::container::Services;
use poolcounter_service::contract::Then;
use poolcounter_service::report::LoopStats;
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::io::{self, ErrorKind, Read, Write};

/// Record between the services' parts and the connections.
#[derive(Serialize, Deserialize)]
struct ConnectionsHead {
    pub loop_stats: LoopStats,
    /// Denials.
    pub denied: Vec<SavedCounts>,
    /// Number of connections that follow.
    pub connections: usize,
}

/// Handover of a connection, in a record of its own.
#[derive(Serialize, Deserialize)]
struct SavedConnection {
    pub id: ConnId,
    /// Index of its service among the saved services.
    pub service: u8,
    pub unserved: Vec<u8>,
    pub unsent: Vec<u8>,
    /// Number of replies in `unsent`.
    pub replies: u32,
    /// True if everything that the peer sent has been read.
    pub eof: bool,
    /// True if its service has answered `Wait` and not resumed it.
    pub waiting: bool,
    /// End of its lingering, if its service has closed it.
    pub linger_until: Option<Time>,
    /// Client whose requests come over it.
    pub client: SavedClient,
}

/// Client whose requests come over a connection.
#[derive(Serialize, Deserialize)]
enum SavedClient {
    /// The peer itself.
    Peer,
    /// The client of a proxy that has not sent its header yet.
    Unknown,
    /// The client of a proxy, with the proxy's header.
    Behind(Header),
}

/// Stream of a connection in a rehearsal: every read and write would block.
struct NullStream;

impl<S: Stream> Connections<S> {
    /// Writes everything but the streams, for a successor. The state does not change, in case the takeover fails.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be written.
    pub fn save(&mut self, out: &mut Writer<'_>, now: Time) -> io::Result<()> {
        self.dispatch.save(out, now)?;
        out.put(&ConnectionsHead {
            loop_stats: self.dispatch.loop_stats.clone(),
            denied: self.dispatch.access.save(),
            connections: self.ids().count(),
        })?;
        for id in self.ids() {
            let conn = &self.slab[id.index()];
            out.put(&SavedConnection {
                id,
                // Lossless: a list of services is as short.
                service: conn.service.index() as u8,
                unserved: conn.unserved.as_deref().cloned().unwrap_or_default(),
                unsent: self.dispatch.output.unsent(id).to_vec(),
                replies: self.dispatch.output.replies(id),
                eof: conn.eof,
                waiting: conn.then == Then::Wait,
                linger_until: match &conn.phase {
                    // The successor parks it again.
                    Phase::Unidentified { .. } | Phase::Open | Phase::HalfClosed { .. } => None,
                    // Unsent bytes of a failed connection are never sent.
                    Phase::Closed if conn.failed => Some(now),
                    Phase::Closed => Some(now + LINGER),
                    Phase::Lingering { linger_timer } => Some(self.dispatch.wheel.deadline(linger_timer)),
                },
                client: match &conn.header {
                    Some(header) => SavedClient::Behind((**header).clone()),
                    None if conn.is_unidentified() => SavedClient::Unknown,
                    None => SavedClient::Peer,
                },
            })?;
        }
        Ok(())
    }

    /// Returns the ids of the connections that are handed over, in order: all but refused connections.
    pub fn ids(&self) -> impl Iterator<Item = ConnId> {
        let lasting = self.slab.iter().filter(|(_, conn)| conn.place != Place::Refused);
        lasting.map(|(index, _)| ConnId::from_index(index))
    }

    /// Restores the connections of a handover, each with the stream that `stream_of` returns for it, in earnest or in a
    /// rehearsal. The pair is the present time, and the time of day at the start since 1970.
    ///
    /// # Errors
    ///
    /// Fails if the handover contradicts itself, or a stream is missing.
    pub fn restore(
        services: Services,
        saved: &mut Reader<'_>,
        (now, epoch): (Time, Span),
        random: Random,
        mut stream_of: impl FnMut(ConnId) -> io::Result<S>,
        is_rehearsal: bool,
    ) -> Result<Self, Unreadable> {
        let mut connections = Connections::new(services, epoch, random);
        let services = connections.dispatch.restore(saved, now, is_rehearsal)?;
        let head: ConnectionsHead = saved.take()?;
        connections.dispatch.loop_stats = head.loop_stats;
        connections.denied = head.denied;
        let mut all = Vec::new();
        let mut streams = Vec::new();
        for _ in 0..head.connections {
            let saved: SavedConnection = saved.take()?;
            let stream = stream_of(saved.id).map_err(|error| Unreadable(format!("a connection is lost: {error}")))?;
            let service = services.get(usize::from(saved.service));
            let service = *service.ok_or_else(|| Unreadable("a connection is of no service".into()))?;
            streams.push((saved.id.index(), Connection::new(stream, service)));
            all.push(saved);
        }
        connections.slab = Table(Slab::from_iter(streams));
        all.into_iter().for_each(|saved| connections.restore_one(saved, now));
        connections.count_places();
        connections.begin_restoring(now);
        connections.resume(now);
        Ok(connections)
    }

    /// Counts the open connections of each service.
    fn count_places(&mut self) {
        let Dispatch { services, .. } = &mut self.dispatch;
        services.ids().for_each(|id| services[id].traffic.open = 0);
        let open = self.slab.iter().filter(|(_, conn)| conn.place == Place::Open);
        open.for_each(|(_, conn)| services[conn.service].traffic.open += 1);
    }

    fn restore_one(&mut self, saved: SavedConnection, now: Time) {
        let id = saved.id;
        match saved.client {
            SavedClient::Peer => {}
            SavedClient::Unknown => self.await_header(id, now),
            SavedClient::Behind(header) => self.slab[id.index()].header = Some(header.into()),
        }
        let conn = &mut self.slab[id.index()];
        conn.eof = saved.eof;
        conn.then = if saved.waiting { Then::Wait } else { Then::Serve };
        conn.unserved = (!saved.unserved.is_empty()).then(|| saved.unserved.into());
        if let Some(at) = saved.linger_until {
            conn.phase = Phase::Lingering { linger_timer: self.dispatch.wheel.of(LOOP).arm(at, id) };
            self.closing.push_back(id);
        } else {
            if conn.place == Place::Open {
                self.idle.note_activity(id, conn.service, now);
            }
            if saved.eof || conn.unserved.is_some() {
                self.make_ready(id);
            }
        }
        self.dispatch.output.restore(id, &saved.unsent, saved.replies);
    }
}

/// Restores a handover without its sockets, and serves the requests in it, to find out if this program can take over.
/// `has_socket` returns true once for each connection whose socket is handed over. Returns true if the other process had
/// rules of access.
///
/// # Errors
///
/// Fails if the handover contradicts itself.
pub fn rehearse(
    services: Services,
    saved: &mut Reader<'_>,
    (now, epoch): (Time, Span),
    mut has_socket: impl FnMut(ConnId) -> bool,
) -> Result<bool, Unreadable> {
    let random = Random::from_seed(0);
    let stream_of = |id| has_socket(id).then_some(NullStream).ok_or(ErrorKind::NotFound.into());
    let mut connections = Connections::restore(services, saved, (now, epoch), random, stream_of, true)?;
    connections.check();
    connections.configure(now);
    connections.serve(&|| now);
    connections.flush(now);
    connections.resume(now);
    connections.check();
    Ok(access::had_rules(&connections.denied))
}

impl Read for NullStream {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }
}

impl Write for NullStream {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for NullStream {
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn peer(&self) -> io::Result<String> {
        Err(ErrorKind::NotConnected.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::Handover;
    use crate::services::SERVICES;
    use poolcounter_service::container::AllSettings;
    use poolcounter_service::contract::NoPeers;
    use std::collections::HashSet;

    /// Handover of a daemon with locks, units, members and reserved jobs, with waiters, partial requests and clients
    /// that do not read.
    const WRITTEN: &[u8] = include_bytes!("../../../tests/handovers/1.0.0");

    /// Restores the connections of the file without its last bytes.
    fn restored(cut: usize) -> Result<Connections<NullStream>, Unreadable> {
        let Handover { preamble, mut rest } = Handover::read(WRITTEN).expect("is read");
        let (now, epoch) = (Time::START + Span::from_secs(10), preamble.clock.epoch());
        let mut records = Vec::new();
        rest.read_to_end(&mut records).expect("is in memory");
        let mut records = &records[..records.len() - cut];
        let (services, random) =
            (Services::of(SERVICES, &AllSettings::defaults(SERVICES).in_memory()), Random::from_seed(0));
        Connections::restore(services, &mut Reader::new(&mut records), (now, epoch), random, |_| Ok(NullStream), false)
    }

    #[test]
    fn a_written_handover_is_restored() {
        let mut connections = restored(0).expect("is read");
        connections.check();
        let now = Time::START + Span::from_secs(10);
        let figure = |connections: &Connections<NullStream>, service: &str, name: &str| {
            let services = &connections.dispatch.services;
            let id = services.named(service).expect("is a service");
            let report = services[id].service.report(now, &services[id].traffic, &NoPeers);
            let found = report.figures.iter().find(|(row, _)| row.name == name);
            found.unwrap_or_else(|| panic!("{service} has no {name}")).1
        };
        let wanted = [
            ("pools", "processing_workers", 2),
            ("pools", "waiting_workers", 3),
            ("counters", "objects", 3),
            ("members", "in_use", 3),
            ("members", "waiting", 1),
            ("members", "starting", 1),
            ("jobs", "current-jobs-ready", 2),
            ("jobs", "current-jobs-reserved", 1),
            ("jobs", "current-jobs-delayed", 2),
            ("jobs", "current-jobs-buried", 1),
            ("jobs", "current-waiting", 1),
        ];
        assert_eq!(wanted.map(|(service, name, _)| (service, name, figure(&connections, service, name))), wanted);
        connections.serve(&|| now);
        connections.flush(now);
        connections.check();
    }

    /// Rehearses a handover of idle connections with these indices and sockets.
    fn rehearse_with(indices: &[usize], sockets: &[usize]) -> Result<bool, Unreadable> {
        let now = Time::START + Span::from_secs(10);
        let services = || Services::of(SERVICES, &AllSettings::defaults(SERVICES));
        let mut connections = Connections::<NullStream>::new(services(), Span::ZERO, Random::from_seed(0));
        let mut records = Vec::new();
        let mut out = Writer::new(&mut records);
        connections.dispatch.save(&mut out, now).expect("is in memory");
        let loop_stats = connections.dispatch.loop_stats.clone();
        out.put(&ConnectionsHead { loop_stats, denied: Vec::new(), connections: indices.len() }).expect("is in memory");
        for &index in indices {
            let connection = SavedConnection {
                id: ConnId::from_index(index),
                service: 0,
                unserved: Vec::new(),
                unsent: Vec::new(),
                replies: 0,
                eof: false,
                waiting: false,
                linger_until: None,
                client: SavedClient::Peer,
            };
            out.put(&connection).expect("is in memory");
        }
        let mut sockets: HashSet<usize> = sockets.iter().copied().collect();
        let has_socket = |id: ConnId| sockets.remove(&id.index());
        rehearse(services(), &mut Reader::new(&mut &records[..]), (now, Span::ZERO), has_socket)
    }

    #[test]
    fn each_connection_has_one_socket() {
        assert_eq!(rehearse_with(&[0, 2], &[2, 0]), Ok(false));
        assert!(rehearse_with(&[0, 2], &[0]).is_err(), "a socket is missing");
        assert!(rehearse_with(&[0, 2, 2], &[0, 2]).is_err(), "two connections have one number");
    }

    #[test]
    fn cut_records_are_refused() {
        assert!(restored(1).is_err());
    }
}
