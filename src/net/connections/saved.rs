//! What of the connections outlives the process: all but their sockets, which the caller hands over.

use super::{Connections, LOOP};
use crate::id::{ConnId, Id};
use crate::net::connection::{Connection, Stage, Stream};
use crate::net::dispatch::{Dispatch, SavedService};
use crate::pulse::Pulse;
use crate::random::Random;
use crate::registry::Services;
use crate::service::Unreadable;
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};
use std::io;

/// The connections and the services, between two ticks.
#[derive(Serialize, Deserialize)]
pub struct Saved {
    services: Vec<SavedService>,
    connections: Vec<SavedConnection>,
    pulse: Pulse,
}

#[derive(Serialize, Deserialize)]
struct SavedConnection {
    id: ConnId,
    /// The place of its service among those that are saved.
    service: u8,
    unserved: Vec<u8>,
    unsent: Vec<u8>,
    /// Replies in `unsent`.
    replies: u32,
    /// Everything that the peer sent has been read.
    ended: bool,
    /// Its service wants it served no more before it says so.
    waiting: bool,
    /// Until when it may linger, if its service has forgotten it.
    patience: Option<Time>,
}

impl<S: Stream> Connections<S> {
    /// Everything but the streams, for a process that takes over. Nothing changes here, in case that it does not.
    pub fn save(&mut self, now: Time) -> Saved {
        let services = self.core.save(now);
        let connections = self.slab.iter().map(|(index, conn)| (ConnId::from_index(index), conn));
        let connections = connections.map(|(id, conn)| SavedConnection {
            id,
            service: conn.service.index() as u8,
            unserved: conn.unserved.to_vec(),
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
        });
        Saved { services, connections: connections.collect(), pulse: self.core.pulse.clone() }
    }

    /// Goes on from what another process saved, each connection with the stream that `stream_of` has for it.
    ///
    /// # Errors
    ///
    /// When it contradicts itself, or a stream is missing.
    pub fn restore(
        services: Services,
        saved: Saved,
        now: Time,
        epoch: Span,
        random: Random,
        mut stream_of: impl FnMut(ConnId) -> io::Result<S>,
    ) -> Result<Self, Unreadable> {
        let mut connections = Connections::new(services, epoch, random);
        connections.core.restore(&saved.services, now)?;
        connections.core.pulse = saved.pulse;
        let streams: io::Result<Vec<_>> =
            saved.connections.iter().map(|saved| Ok((saved.id, stream_of(saved.id)?))).collect();
        let streams = streams.map_err(|error| Unreadable(format!("a connection is lost: {error}")))?;
        let slots = streams.into_iter().zip(&saved.connections);
        let services = &connections.core.services;
        let ids: Vec<_> = saved.services.iter().map(|saved| services.named(&saved.name)).collect();
        let service_of = |place: u8| ids.get(usize::from(place)).copied().flatten();
        let restored: Option<Vec<_>> = slots
            .map(|((id, stream), saved)| Some((id.index(), Connection::new(stream, service_of(saved.service)?))))
            .collect();
        connections.slab = restored.ok_or_else(|| Unreadable("there is no such service".into()))?.into_iter().collect();
        for saved in saved.connections {
            connections.restore_one(saved);
        }
        Ok(connections)
    }

    fn restore_one(&mut self, saved: SavedConnection) {
        let id = saved.id;
        let conn = &mut self.slab[id.index()];
        conn.ended = saved.ended;
        conn.waiting = saved.waiting;
        conn.unserved = saved.unserved.into();
        if let Some(at) = saved.patience {
            conn.stage = Stage::Lingering { patience: self.core.wheel.of(LOOP).arm(at, id) };
            self.closing.push(id);
        } else if saved.ended || !conn.unserved.is_empty() {
            self.make_ready(id);
        }
        self.core.output.restore(id, &saved.unsent, saved.replies);
    }
}

impl Saved {
    /// The connections, in order.
    pub fn ids(&self) -> impl Iterator<Item = ConnId> {
        self.connections.iter().map(|saved| saved.id)
    }

    /// Whether this program can go on from here, tried out on services without connections.
    ///
    /// # Errors
    ///
    /// When it contradicts itself.
    pub fn rehearse(&self, services: Services, now: Time) -> Result<(), Unreadable> {
        let mut core = Dispatch::new(services, Span::ZERO, Random::from_seed(0));
        core.restore(&self.services, now)?;
        core.check();
        Ok(())
    }
}
