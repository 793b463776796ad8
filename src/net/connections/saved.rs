//! What of the connections outlives the process: all but their sockets, which the caller hands over.

use super::{Connections, LOOP};
use crate::id::{ConnId, Id};
use crate::loop_stats::LoopStats;
use crate::net::connection::{Connection, Stage, Stream};
use crate::random::Random;
use crate::record::{Reader, Unreadable, Writer};
use crate::registry::Services;
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};
use slab::Slab;
use std::io::{self, ErrorKind, Read, Write};

/// What is before the connections: the services' parts come first.
#[derive(Serialize, Deserialize)]
pub struct Head {
    pub loop_stats: LoopStats,
    /// How many follow.
    pub connections: usize,
}

/// A connection. Each is a record of its own.
#[derive(Serialize, Deserialize)]
pub struct SavedConnection {
    pub id: ConnId,
    /// The place of its service among those that are saved.
    pub service: u8,
    pub unserved: Vec<u8>,
    pub unsent: Vec<u8>,
    /// Replies in `unsent`.
    pub replies: u32,
    /// Everything that the peer sent has been read.
    pub ended: bool,
    /// Its service wants it served no more before it says so.
    pub waiting: bool,
    /// Until when it may linger, if its service has forgotten it.
    pub patience: Option<Time>,
}

/// The stream of a connection in a rehearsal: nothing comes and nothing goes.
struct Absent;

impl<S: Stream> Connections<S> {
    /// Writes everything but the streams, for a process that takes over. Nothing changes here, in case that it does not.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn save(&mut self, out: &mut Writer<'_>, now: Time) -> io::Result<()> {
        self.core.save(out, now)?;
        out.put(&Head { loop_stats: self.core.loop_stats.clone(), connections: self.slab.len() })?;
        for (index, conn) in &self.slab {
            let id = ConnId::from_index(index);
            out.put(&SavedConnection {
                id,
                // Lossless: a list of services is as short.
                service: conn.service.index() as u8,
                unserved: conn.unserved.clone(),
                unsent: self.core.output.unsent(id).to_vec(),
                replies: self.core.output.replies(id),
                ended: conn.ended,
                waiting: conn.waiting,
                patience: match &conn.stage {
                    // Whoever takes over finds again that it does not read.
                    Stage::Open | Stage::Leaving { .. } => None,
                    Stage::Closed => Some(now),
                    Stage::Lingering { patience } => Some(self.core.wheel.deadline(patience)),
                },
            })?;
        }
        Ok(())
    }

    /// The connections, in order.
    pub fn ids(&self) -> impl Iterator<Item = ConnId> {
        self.slab.iter().map(|(index, _)| ConnId::from_index(index))
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
        let services = connections.core.restore(saved, now, is_rehearsal)?;
        let head: Head = saved.take()?;
        connections.core.loop_stats = head.loop_stats;
        let mut all = Vec::new();
        let mut streams = Vec::new();
        for _ in 0..head.connections {
            let saved: SavedConnection = saved.take()?;
            let stream = stream_of(saved.id).map_err(|error| Unreadable(format!("a connection is lost: {error}")))?;
            let service = services.get(usize::from(saved.service));
            let service = *service.ok_or_else(|| Unreadable("a connection is of no service".into()))?;
            connections.idle.note_activity(saved.id, service, now);
            streams.push((saved.id.index(), Connection::new(stream, service)));
            all.push(saved);
        }
        connections.slab = Slab::from_iter(streams);
        all.into_iter().for_each(|saved| connections.restore_one(saved));
        Ok(connections)
    }

    fn restore_one(&mut self, saved: SavedConnection) {
        let id = saved.id;
        let conn = &mut self.slab[id.index()];
        conn.ended = saved.ended;
        conn.waiting = saved.waiting;
        conn.unserved = saved.unserved;
        if let Some(at) = saved.patience {
            conn.stage = Stage::Lingering { patience: self.core.wheel.of(LOOP).arm(at, id) };
            self.closing.push(id);
        } else if saved.ended || !conn.unserved.is_empty() {
            self.make_ready(id);
        }
        self.core.output.restore(id, &saved.unsent, saved.replies);
    }
}

/// Whether this program can go on from what another process saved, tried out without its sockets up to the first requests.
///
/// # Errors
///
/// When it contradicts itself.
pub fn rehearse(services: Services, saved: &mut Reader<'_>, (now, epoch): (Time, Span)) -> Result<(), Unreadable> {
    let random = Random::from_seed(0);
    let mut connections = Connections::read(services, saved, (now, epoch), random, |_| Ok(Absent), true)?;
    connections.check();
    connections.serve(&|| now);
    connections.flush(now);
    connections.check();
    Ok(())
}

impl Read for Absent {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }
}

impl Write for Absent {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Absent {
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn peer(&self) -> io::Result<String> {
        Err(ErrorKind::NotConnected.into())
    }
}
