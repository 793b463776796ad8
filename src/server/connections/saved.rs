//! The connections in the handover to another process: all but their sockets, which the caller hands over.

use super::{Connections, Dispatch, LINGER, LOOP, Table};
use crate::connection::{Client, Connection, Phase, Place, Stream};
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::proxy::Header;
use poolcounter_core::random::Random;
use poolcounter_core::record::{Reader, Unreadable, Writer};
use poolcounter_core::time::{Span, Time};
use poolcounter_service::access::{self, SavedCounts};
use poolcounter_service::container::Services;
use poolcounter_service::loop_stats::LoopStats;
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::io::{self, ErrorKind, Read, Write};

/// The record between the services' parts and the connections.
#[derive(Serialize, Deserialize)]
pub struct ConnectionsHead {
    pub loop_stats: LoopStats,
    /// What was denied.
    pub denied: Vec<SavedCounts>,
    /// How many follow.
    pub connections: usize,
}

/// A connection. Each is a record of its own.
#[derive(Serialize, Deserialize)]
pub struct SavedConnection {
    pub id: ConnId,
    /// The index of its service among those that are saved.
    pub service: u8,
    pub unserved: Vec<u8>,
    pub unsent: Vec<u8>,
    /// Replies in `unsent`.
    pub replies: u32,
    /// Everything that the peer sent has been read.
    pub eof: bool,
    /// Its service has answered `Wait` and not resumed it yet.
    pub waiting: bool,
    /// Until when it may linger, if its service has forgotten it.
    pub linger_until: Option<Time>,
    /// Whose requests come over it.
    pub client: SavedClient,
}

/// Whose requests come over a connection.
#[derive(Serialize, Deserialize)]
pub enum SavedClient {
    /// Those of whoever has connected.
    Peer,
    /// Those of a proxy's client, about whom the proxy has said nothing yet.
    Unknown,
    /// Those of a proxy's client, about whom the proxy has said this.
    Behind(Header),
}

/// Result of a rehearsal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// True when the other process had rules of access.
    pub had_rules: bool,
    /// True when it must hand over all that its services have, and not only what suffices for a process with the same settings.
    pub need_all: bool,
}

/// The stream of a connection in a rehearsal: every read and write would block.
struct NullStream;

impl<S: Stream> Connections<S> {
    /// Writes everything but the streams, for a process that takes over. Nothing changes here, in case the takeover fails.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
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
                unserved: conn.unserved.clone(),
                unsent: self.dispatch.output.unsent(id).to_vec(),
                replies: self.dispatch.output.replies(id),
                eof: conn.eof,
                waiting: conn.waiting,
                linger_until: match &conn.phase {
                    // The process that takes over parks it again.
                    Phase::Open | Phase::HalfClosed { .. } => None,
                    // What is unsent of one that failed is never sent.
                    Phase::Closed if conn.failed => Some(now),
                    Phase::Closed => Some(now + LINGER),
                    Phase::Lingering { linger_timer } => Some(self.dispatch.wheel.deadline(linger_timer)),
                },
                client: match &conn.client {
                    Client::Peer => SavedClient::Peer,
                    Client::Unknown { .. } => SavedClient::Unknown,
                    Client::Behind(header) => SavedClient::Behind((**header).clone()),
                },
            })?;
        }
        Ok(())
    }

    /// Returns the ids of the connections that go over to another process, in order: all but those that were not let in.
    pub fn ids(&self) -> impl Iterator<Item = ConnId> {
        let lasting = self.slab.iter().filter(|(_, conn)| conn.place != Place::Refused);
        lasting.map(|(index, _)| ConnId::from_index(index))
    }

    /// Goes on from what another process saved, each connection with the stream that `stream_of` has for it. `time` is the time
    /// and, since 1970, that of the start.
    ///
    /// # Errors
    ///
    /// When it contradicts itself, or a stream is missing.
    pub fn restore(
        services: Services,
        saved: &mut Reader<'_>,
        time: (Time, Span),
        random: Random,
        stream_of: impl FnMut(ConnId) -> io::Result<S>,
    ) -> Result<Self, Unreadable> {
        Connections::read(services, saved, time, random, stream_of, false)
    }

    fn read(
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
        connections.resume(now);
        Ok(connections)
    }

    /// Counts the connections of each service that have a place.
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
            SavedClient::Behind(header) => self.slab[id.index()].client = Client::Behind(header.into()),
        }
        let conn = &mut self.slab[id.index()];
        conn.eof = saved.eof;
        conn.waiting = saved.waiting;
        conn.unserved = saved.unserved;
        if let Some(at) = saved.linger_until {
            conn.phase = Phase::Lingering { linger_timer: self.dispatch.wheel.of(LOOP).arm(at, id) };
            self.closing.push_back(id);
        } else {
            if conn.place == Place::Open {
                self.idle.note_activity(id, conn.service, now);
            }
            if saved.eof || !conn.unserved.is_empty() {
                self.make_ready(id);
            }
        }
        self.dispatch.output.restore(id, &saved.unsent, saved.replies);
    }
}

/// Restores what another process saved without its sockets, and serves the requests in it, to find out whether this program
/// can take over.
///
/// # Errors
///
/// When it contradicts itself.
pub fn rehearse(services: Services, saved: &mut Reader<'_>, (now, epoch): (Time, Span)) -> Result<Found, Unreadable> {
    let random = Random::from_seed(0);
    let mut connections = Connections::read(services, saved, (now, epoch), random, |_| Ok(NullStream), true)?;
    let need_all = connections.services().need_all();
    connections.check();
    connections.configure(now);
    connections.serve(&|| now);
    connections.flush(now);
    connections.resume(now);
    connections.check();
    Ok(Found { had_rules: access::had_rules(&connections.denied), need_all })
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
    use crate::SERVICES;
    use crate::handover::Handover;
    use poolcounter_service::container::AllSettings;
    use poolcounter_service::contract::NoPeers;

    /// A daemon wrote this with locks, units, members and jobs held, with waiters, half requests and clients that do not read.
    const WRITTEN: [&[u8]; 2] =
        [include_bytes!("../../../tests/handovers/5"), include_bytes!("../../../tests/handovers/6")];

    /// Goes on from a file, and returns the connections.
    fn restored(written: &'static [u8], cut: usize) -> Result<Connections<NullStream>, Unreadable> {
        let Handover { preamble, mut rest } = Handover::read(written).expect("is read");
        let (now, epoch) = (Time::START + Span::from_secs(10), preamble.clock.epoch());
        let mut records = Vec::new();
        rest.read_to_end(&mut records).expect("is in memory");
        let mut records = &records[..records.len() - cut];
        let (services, random) = (Services::of(SERVICES, &AllSettings::defaults(SERVICES)), Random::from_seed(0));
        Connections::restore(services, &mut Reader::new(&mut records), (now, epoch), random, |_| Ok(NullStream))
    }

    #[test]
    fn records_of_versions_5_and_6_are_restored() {
        WRITTEN.into_iter().for_each(goes_on);
    }

    fn goes_on(written: &'static [u8]) {
        let mut connections = restored(written, 0).expect("is read");
        connections.check();
        let now = Time::START + Span::from_secs(10);
        let figure = |connections: &Connections<NullStream>, service: &str, name: &str| {
            let services = &connections.dispatch.services;
            let id = services.named(service).expect("is a service");
            let report = services[id].service.report(now, &services[id].traffic, &NoPeers);
            let found = report.figures.iter().find(|(row, _)| row.name == name);
            found.unwrap_or_else(|| panic!("{service} has no {name}")).1
        };
        for (service, name, value) in [
            ("pools", "processing_workers", 2),
            ("pools", "waiting_workers", 3),
            ("counters", "objects", 3),
            ("members", "in_use", 3),
            ("members", "waiting", 2),
            ("members", "starting", 1),
            ("jobs", "current-jobs-ready", 1),
            ("jobs", "current-jobs-reserved", 1),
            ("jobs", "current-jobs-delayed", 1),
            ("jobs", "current-jobs-buried", 1),
            ("jobs", "current-waiting", 1),
        ] {
            assert_eq!(figure(&connections, service, name), value, "{service}: {name}");
        }
        connections.serve(&|| now);
        connections.flush(now);
        connections.check();
    }

    #[test]
    fn cut_records_are_refused() {
        assert!(WRITTEN.into_iter().all(|written| restored(written, 1).is_err()));
    }
}
