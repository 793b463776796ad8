//! Loop of the terminator: it owns the sockets, and gives each connection its turns. It knows nothing of TLS but the
//! time of its handshakes.

use super::Settings;
use super::certificates::Credentials;
use super::connection::{Buffers, Connection, Phase};
use log::{info, warn};
use mio::event::Event;
use mio::{Events, Poll, Registry, Token};
use nix::sys::signal::Signal;
use poolcounter_core::time::earliest;
use poolcounter_core::{ConnId, Id, LogLimit, Span, Time, Wheel};
use poolcounter_server::{
    Address, Clock, DaemonState, Listener, Notifier, Receiver, Signals, VERDICT, poll, readiness_of,
};
use slab::Slab;
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use upgrade::Upgrade;

mod handshakes;
mod turns;
pub mod upgrade;

use handshakes::Handshakes;

/// Most events taken from the kernel in one tick.
const EVENTS_PER_TICK: usize = 1024;
/// Most connections accepted from one port in one tick.
const ACCEPTS_PER_TICK: usize = 256;
/// Most turns of handshakes in one tick. A turn may take a millisecond of processor time, and other connections are
/// served in between.
const HANDSHAKES_PER_TICK: usize = 16;
/// Most connections whose certificates are verified again in one tick after a reload. Each takes a tenth of a
/// millisecond or two.
const CONFIRMED_PER_TICK: usize = 16;
/// Time for which no connection is accepted after the system refused one for lack of descriptors or memory.
const ACCEPT_PAUSE: Span = Span::from_millis(100);

const SIGNALS: Token = Token(usize::MAX);
/// Token of the first listener; further listeners count down from it, far above the tokens of connections, which have
/// two each.
const FIRST_LISTENER: usize = VERDICT.0 - 1;

/// Loop with all connections.
pub struct Terminator {
    pub(super) poll: Poll,
    events: Events,
    pub(super) clock: Clock,
    pub(super) signals: Option<Caught>,
    pub(super) is_signalled: bool,
    /// True once a signal has asked for the end, until `run` returns.
    pub(super) is_stopping: bool,
    pub(super) notifier: Notifier,
    pub(super) ports: Vec<Port>,
    pub(super) connections: Slab<Connection>,
    /// Connections with a turn to come, except connections in their handshake.
    ready: VecDeque<ConnId>,
    handshakes: Handshakes,
    wheel: Wheel,
    buffers: Buffers,
    settings: Settings,
    credentials: Arc<Credentials>,
    /// Number of the first connection that must still be verified with credentials that were read again; None if all
    /// are.
    unconfirmed: Option<usize>,
    upgrade: Upgrade,
    accept_paused_until: Option<Time>,
    accept_log: LogLimit,
    refusal_log: LogLimit,
    server_log: LogLimit,
}

/// Signals that are handled.
pub(super) struct Caught {
    pub usual: Signals,
    reload: Receiver,
    child: Receiver,
}

impl Caught {
    /// Registers the signals of a copy of the process, whose poll still has the signals of the process.
    fn register_again(&self, registry: &Registry) -> io::Result<()> {
        self.usual.register_again(registry, SIGNALS)?;
        self.reload.register_again(registry, SIGNALS)?;
        self.child.register_again(registry, SIGNALS)
    }
}

pub(super) struct Port {
    pub listener: Listener,
    /// True while the backlog may hold connections.
    ready: bool,
}

impl Terminator {
    /// Returns a terminator without listeners.
    ///
    /// # Errors
    ///
    /// One sentence: a certificate cannot be read, or the system has no event queue left.
    pub fn new(settings: Settings) -> Result<Terminator, String> {
        let credentials = settings.files.read()?;
        let poll = Poll::new().map_err(|error| format!("cannot wait for events: {error}"))?;
        Ok(Terminator {
            poll,
            events: Events::with_capacity(EVENTS_PER_TICK),
            clock: Clock::start(),
            signals: None,
            is_signalled: false,
            is_stopping: false,
            notifier: Notifier::default(),
            ports: Vec::new(),
            connections: Slab::new(),
            ready: VecDeque::new(),
            handshakes: Handshakes::default(),
            wheel: Wheel::default(),
            buffers: Buffers::default(),
            settings,
            credentials,
            unconfirmed: None,
            upgrade: Upgrade::default(),
            accept_paused_until: None,
            accept_log: LogLimit::default(),
            refusal_log: LogLimit::default(),
            server_log: LogLimit::default(),
        })
    }

    /// Adds a listener.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot poll it.
    pub fn listen(&mut self, mut listener: Listener) -> io::Result<()> {
        listener.register(self.poll.registry(), Token(FIRST_LISTENER - self.ports.len()))?;
        self.ports.push(Port { listener, ready: false });
        Ok(())
    }

    /// Limits its connections to this number, at a time.
    pub fn limit_connections(&mut self, most: u64) {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        self.settings.max_connections = self.settings.max_connections.min(most);
    }

    /// Returns the addresses of its listeners.
    pub fn addresses(&self) -> Vec<Address> {
        self.ports.iter().filter_map(|port| port.listener.address().ok()).collect()
    }

    /// Handles signals: SIGTERM and SIGINT end [`Terminator::run`], SIGHUP reads the certificates again, and SIGUSR1
    /// begins an upgrade. From now on the supervisor is notified of the state.
    ///
    /// # Errors
    ///
    /// Fails if no descriptors are left.
    pub fn handle_signals(&mut self) -> io::Result<()> {
        let registry = self.poll.registry();
        self.signals = Some(Caught {
            reload: Receiver::listen(&[Signal::SIGHUP], registry, SIGNALS)?,
            child: Receiver::listen(&[Signal::SIGCHLD], registry, SIGNALS)?,
            usual: Signals::listen(registry, SIGNALS)?,
        });
        self.notifier = Notifier::from_environment();
        // A child may have ended before SIGCHLD was handled.
        self.upgrade.reap_children();
        Ok(())
    }

    /// Serves until a signal asks it to stop, or the last connection ends after an upgrade.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot wait for events any more.
    pub fn run(&mut self) -> io::Result<()> {
        self.notify_supervisor(DaemonState::Ready);
        loop {
            self.tick()?;
            self.continue_upgrade();
            self.is_stopping |= self.is_signalled && self.take_signals();
            if self.is_stopping || self.upgrade.is_detached && self.connections.is_empty() {
                self.notify_supervisor(DaemonState::Stopping);
                self.upgrade.end();
                return Ok(());
            }
        }
    }

    pub(super) fn notify_supervisor(&mut self, state: DaemonState) {
        self.notifier.notify(state, self.clock.now());
    }

    fn tick(&mut self) -> io::Result<()> {
        self.wait()?;
        self.accept();
        for _ in 0..self.ready.len() {
            self.ready.pop_front().into_iter().for_each(|id| self.serve(id));
        }
        for _ in 0..HANDSHAKES_PER_TICK {
            self.handshakes.turns.pop_front().into_iter().for_each(|id| self.serve(id));
        }
        self.confirm_some();
        self.expire();
        Ok(())
    }

    /// Handles the signals that have come, and returns true if one asks for the end.
    fn take_signals(&mut self) -> bool {
        self.is_signalled = false;
        let Some(Caught { usual, reload, child }) = &mut self.signals else { return false };
        let stop_asked = usual.stop.has_come();
        let upgrade_asked = !stop_asked && self.upgrade.can_begin() && usual.upgrade.has_come();
        let (reload_asked, child_ended) = (reload.has_come(), child.has_come());
        if child_ended {
            self.upgrade.reap_children();
        }
        if reload_asked {
            self.upgrade.pass_on_reload();
            self.reload();
        }
        if upgrade_asked {
            self.begin_upgrade();
        }
        stop_asked
    }

    /// Reads the certificates again: for new connections, and to verify the present connections again.
    fn reload(&mut self) {
        match self.settings.files.read() {
            Ok(credentials) => {
                (self.credentials, self.unconfirmed) = (credentials, Some(0));
                info!("the certificates were read again");
            }
            Err(sentence) => warn!("the certificates stay as they were: {sentence}"),
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        let now = self.clock.now();
        self.notifier.notify_due(now);
        let timeout = self.next_work().map(|at| Duration::from(at.since(now)));
        poll(&mut self.poll, &mut self.events, timeout)?;
        for event in &self.events {
            match event.token() {
                SIGNALS => self.is_signalled = true,
                VERDICT => self.upgrade.is_readable = true,
                Token(index) if index > FIRST_LISTENER - self.ports.len() => {
                    self.ports[FIRST_LISTENER - index].ready = true;
                }
                Token(index) => {
                    let id = ConnId::from_index(index / 2);
                    if let Some(connection) = self.connections.get_mut(id.index()) {
                        note(connection, index % 2 == 1, event);
                        queue(connection, id, &mut self.ready, &mut self.handshakes);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the time of the next work without an event; [`Time::START`] for at once.
    fn next_work(&self) -> Option<Time> {
        if !self.ready.is_empty() || !self.handshakes.turns.is_empty() || self.unconfirmed.is_some() {
            return Some(Time::START);
        }
        let backlog = self.ports.iter().any(|port| port.ready).then(|| self.accept_paused_until.unwrap_or_default());
        let others = earliest(self.upgrade.deadline(), self.notifier.next_deadline());
        earliest(earliest(backlog, self.wheel.next()), others)
    }

    /// Accepts connections from the backlogs until these are empty or the tick's budget is spent.
    fn accept(&mut self) {
        let now = self.clock.now();
        if self.accept_paused_until.is_some_and(|until| now < until) {
            return;
        }
        for port in 0..self.ports.len() {
            let mut budget = ACCEPTS_PER_TICK;
            while self.ports[port].ready && budget > 0 {
                budget -= 1;
                match self.ports[port].listener.accept() {
                    Ok(socket) => self.open(socket, now),
                    Err(error) => match error.kind() {
                        ErrorKind::WouldBlock => self.ports[port].ready = false,
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset => {}
                        _ => {
                            self.accept_paused_until = Some(now + ACCEPT_PAUSE);
                            return self.log_full(&error);
                        }
                    },
                }
            }
        }
    }
}

fn note(connection: &mut Connection, is_backend: bool, event: &Event) {
    let side = if is_backend { connection.backend.as_mut() } else { Some(&mut connection.client) };
    side.into_iter().for_each(|side| side.note(readiness_of(event)));
}

fn queue(connection: &mut Connection, id: ConnId, ready: &mut VecDeque<ConnId>, handshakes: &mut Handshakes) {
    if connection.is_queued {
        return;
    }
    connection.is_queued = true;
    if let Phase::Handshake { .. } = connection.phase { handshakes.turns.push_back(id) } else { ready.push_back(id) }
}
