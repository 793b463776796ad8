//! Life cycle of connections: turns, phase changes, and the logging of their ends.

use super::{CONFIRMED_PER_TICK, Terminator, queue};
use crate::connection::{Connection, End, Phase};
use crate::session::Session;
use crate::side::Side;
use log::{debug, info, warn};
use mio::{Interest, Token};
use poolcounter_core::{ConnId, Id, Owner, Span, Time, Timers, Wheel};
use poolcounter_server::Socket;
use std::fmt::Display;
use std::io::ErrorKind;

/// Pause before another attempt to connect to a server whose backlog was full.
const CONNECT_PAUSE: Span = Span::from_millis(20);
/// Time that a client has for reading the rest and closing its side, once the server has closed its own; as in the
/// daemon.
const LINGER: Span = Span::from_secs(5);
/// Size of the system's buffer of unread bytes of a client. A client that has disconnected is read to the end.
const RECEIVE_BUFFER: usize = 64 * 1024;

impl Terminator {
    /// Opens a connection, within the limit. Clients in their handshake have at most half of the places: beyond that,
    /// and if there is no place, the oldest unfinished handshake ends.
    pub(super) fn open(&mut self, socket: Socket, now: Time) {
        let most = self.settings.max_connections;
        if self.connections.len() >= most || self.handshakes.all.len() as usize >= (most / 2).max(1) {
            self.end_oldest_handshake();
        }
        if self.connections.len() >= most {
            return self.log_full(&"the limit of connections is reached");
        }
        let session = match Session::new(self.credentials.config.clone()) {
            Ok(session) => session,
            Err(error) => return self.log_refusal(&"a client", &error),
        };
        if self.accept_log.is_over(now) {
            info!("connections are accepted again");
        }
        let entry = self.connections.vacant_entry();
        let id = ConnId::from_index(entry.key());
        let deadline = timers(&mut self.wheel).arm(now + self.settings.setup_time, id);
        let connection = entry.insert(Connection::new(socket, session, &self.credentials, deadline));
        self.handshakes.all.push_back(id);
        let client = &mut connection.client.socket;
        // Without it more is read of a client that has closed its side, and the client is given up sooner.
        let _ = client.bound_receive_buffer(RECEIVE_BUFFER);
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.poll.registry().register(client, Token(2 * id.index()), interest) {
            debug!("{id} cannot be polled: {error}");
            self.end(id);
        }
    }

    fn end_oldest_handshake(&mut self) {
        let Some(id) = self.handshakes.all.front() else { return };
        let peer = self.connections[id.index()].peer();
        self.end(id);
        self.log_refusal(&peer, &"its handshake gives way to a newer one");
    }

    /// Gives a connection its turn.
    pub(super) fn serve(&mut self, id: ConnId) {
        let Some(connection) = self.connections.get_mut(id.index()) else { return };
        connection.is_queued = false;
        let mut result = connection.turn(&mut self.buffers);
        if result.is_ok() && connection.is_admitted() {
            result = self.admit(id);
        }
        let connection = &mut self.connections[id.index()];
        if let Err(end) = result {
            let peer = if matches!(end, End::Closed | End::Lost) { String::new() } else { connection.peer() };
            connection.say_goodbye(&mut self.buffers);
            self.end(id);
            return self.log_end(&peer, &end);
        }
        if connection.is_taken() {
            self.enter(id, Phase::Open);
            if self.server_log.is_over(self.clock.now()) {
                info!("{} takes connections again", self.settings.to);
            }
        }
        if self.connections[id.index()].is_left() {
            let deadline = timers(&mut self.wheel).arm(self.clock.now() + LINGER, id);
            self.enter(id, Phase::Lingering { deadline });
        }
        let connection = &mut self.connections[id.index()];
        if connection.has_work() {
            queue(connection, id, &mut self.ready, &mut self.handshakes);
        }
        if matches!(connection.phase, Phase::Handshake { .. }) {
            self.handshakes.note_bytes(id, connection.kept_bytes());
            self.bound_handshakes();
        }
    }

    /// Ends the handshakes that hold most bytes, until all together hold no more than they may.
    fn bound_handshakes(&mut self) {
        while let Some(id) = self.handshakes.largest_beyond() {
            let peer = self.connections[id.index()].peer();
            self.end(id);
            self.log_refusal(&peer, &"unfinished handshakes take too much memory, and its own most");
        }
    }

    /// Admits a client that has finished its handshake: connects to the server.
    fn admit(&mut self, id: ConnId) -> Result<(), End> {
        let connection = &mut self.connections[id.index()];
        connection.confirm(&self.credentials)?;
        connection.introduce()?;
        debug!("{id}: {} is let in", connection.peer());
        let until = self.clock.now() + self.settings.setup_time;
        self.connect(id, until)?;
        self.connections[id.index()].turn(&mut self.buffers)
    }

    /// Connects to the server, or schedules another attempt.
    fn connect(&mut self, id: ConnId, until: Time) -> Result<(), End> {
        let mut wake_at = until;
        match Socket::connect(&self.settings.to) {
            Ok(mut socket) => {
                let interest = Interest::READABLE | Interest::WRITABLE;
                let registered = self.poll.registry().register(&mut socket, Token(2 * id.index() + 1), interest);
                registered.map_err(End::Unreachable)?;
                self.connections[id.index()].backend = Some(Side::new(socket));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => wake_at = self.clock.now() + CONNECT_PAUSE,
            Err(error) => return Err(End::Unreachable(error)),
        }
        let timer = timers(&mut self.wheel).arm(wake_at.min(until), id);
        self.enter(id, Phase::Connecting { timer, until });
        Ok(())
    }

    /// Fires the timers that are due.
    pub(super) fn expire(&mut self) {
        let now = self.clock.now();
        while let Some(due) = self.wheel.expire(now) {
            let id: ConnId = due.key();
            let connection = &mut self.connections[id.index()];
            match std::mem::replace(&mut connection.phase, Phase::Over) {
                Phase::Connecting { timer, until } if connection.backend.is_none() && now < until => {
                    timer.fired();
                    if let Err(end) = self.connect(id, until) {
                        self.log_end("", &end);
                    }
                }
                Phase::Handshake { deadline } => {
                    deadline.fired();
                    connection.is_queued &= !self.handshakes.end(id);
                    let peer = connection.peer();
                    self.log_refusal(&peer, &"its handshake takes too long");
                }
                Phase::Connecting { timer, .. } => {
                    timer.fired();
                    self.log_end("", &End::Unreachable(ErrorKind::TimedOut.into()));
                }
                Phase::Lingering { deadline } => deadline.fired(),
                Phase::Open | Phase::Over => unreachable!("there is no timer in these phases"),
            }
            queue(&mut self.connections[id.index()], id, &mut self.ready, &mut self.handshakes);
        }
    }

    /// Changes the phase of a connection.
    fn enter(&mut self, id: ConnId, phase: Phase) {
        let connection = &mut self.connections[id.index()];
        match std::mem::replace(&mut connection.phase, phase) {
            Phase::Handshake { deadline } => {
                timers(&mut self.wheel).cancel(deadline);
                connection.is_queued &= !self.handshakes.end(id);
            }
            Phase::Connecting { timer, .. } | Phase::Lingering { deadline: timer } => {
                timers(&mut self.wheel).cancel(timer);
            }
            Phase::Open | Phase::Over => {}
        }
    }

    /// Verifies the certificates of some connections again, and ends the connections that would not be admitted now.
    pub(super) fn confirm_some(&mut self) {
        for _ in 0..CONFIRMED_PER_TICK {
            let Some(index) = self.unconfirmed else { return };
            self.unconfirmed = Some(index + 1).filter(|next| *next < self.connections.capacity());
            let Some(connection) = self.connections.get_mut(index) else { continue };
            // Other connections are verified at the end of their handshake.
            let is_open = !matches!(connection.phase, Phase::Handshake { .. } | Phase::Over);
            if is_open && let Err(end) = connection.confirm(&self.credentials) {
                let (id, peer) = (ConnId::from_index(index), connection.peer());
                self.enter(id, Phase::Over);
                queue(&mut self.connections[index], id, &mut self.ready, &mut self.handshakes);
                self.log_end(&peer, &end);
            }
        }
    }

    /// Drops a connection, which has no turn to come but one of its handshake.
    fn end(&mut self, id: ConnId) {
        self.enter(id, Phase::Over);
        self.connections.remove(id.index());
    }

    fn log_end(&mut self, peer: &str, end: &End) {
        match end {
            End::Closed | End::Lost => {}
            End::Unreachable(_) => {
                if let Some(more) = self.server_log.due(self.clock.now()) {
                    warn!("{}: {end}{more}", self.settings.to);
                }
            }
            End::Refused(_) | End::TooLong | End::Nameless(_) => self.log_refusal(&peer, end),
        }
    }

    fn log_refusal(&mut self, peer: &dyn Display, why: &dyn Display) {
        if let Some(more) = self.refusal_log.due(self.clock.now()) {
            info!("{peer} is refused: {why}{more}");
        }
    }

    pub(super) fn log_full(&mut self, why: &dyn Display) {
        if let Some(more) = self.accept_log.due(self.clock.now()) {
            warn!("cannot accept more than {} connections now: {why}{more}", self.connections.len());
        }
    }
}

fn timers(wheel: &mut Wheel) -> Timers<'_, ConnId> {
    wheel.of(Owner(0))
}
