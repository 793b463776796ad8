//! The daemon's loop: it owns every socket and runs the tick. It knows no protocol.

use super::clock::Clock;
use super::connection::Readiness;
use super::connections::{Connections, Host};
use super::handover::VERDICT;
use super::listener::{Listener, Options};
use super::process::System;
use super::reserve::Reserve;
use super::sd_notify::{DaemonState, Notifier};
use super::signals::Signals;
use super::socket::Socket;
use super::waker::{Stopper, Waker};
use log::{info, warn};
use mio::event::Event;
use mio::{Events, Interest, Poll, Token};
use poolcounter_core::{Address, ConnId, Id, Random, Span, Time};
use poolcounter_service::access::Rule;
use poolcounter_service::container::{AllSettings, PerService, ServiceId, Services};
use poolcounter_service::contract::Info;
use poolcounter_service::health::HealthSettings;
use poolcounter_service::report::Budget;
use std::io::{self, ErrorKind};
use std::time::Duration;
use upgrade::Upgrade;

mod accept;
mod reload;
mod stop;
mod upgrade;

/// Most events taken from the kernel in one tick. The rest stays there for the next one, so this limits a tick's work.
const EVENTS_PER_TICK: usize = 1024;
const SIGNALS: Token = Token(usize::MAX);
/// Token of the waker; the token above is the upgrade's.
const WAKE: Token = Token(VERDICT.0 - 1);
/// Token of the first listener; further listeners count down from it, far above any connection's id.
const FIRST_LISTENER: usize = WAKE.0 - 1;

/// Settings of the loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Most connections of each service at a time.
    pub max_connections: PerService<u64>,
    /// Time of polling for events before sleeping. It saves the time to wake up, at the cost of a processor that is
    /// never idle.
    pub busy_poll: Span,
    /// Settings of conditions.
    pub health: HealthSettings,
    /// Rules of access; without rules, every client may send every request. None if they could not be read: then no
    /// client is admitted if there were rules before, else all are.
    pub rules: Option<Vec<Rule>>,
}

impl Policy {
    /// Returns the defaults for a list of services.
    pub fn of(list: &[&'static Info]) -> Self {
        Policy {
            max_connections: PerService::each(list, |info| info.max_connections),
            busy_poll: Span::ZERO,
            health: HealthSettings::default(),
            rules: Some(Vec::new()),
        }
    }
}

/// Event loop with everything that it serves.
pub struct Server {
    poll: Poll,
    events: Events,
    clock: Clock,
    signals: Option<Signals>,
    /// True after a signal, until it is handled.
    is_signalled: bool,
    waker: Waker,
    /// True once a signal has asked for the end, until `run` returns.
    is_stopping: bool,
    /// Time at which it ends, whatever is under way; None before the stop has begun.
    stop_deadline: Option<Time>,
    upgrade: Upgrade,
    notifier: Notifier,
    ports: Vec<Port>,
    /// True if some port is ready.
    has_backlog: bool,
    connections: Connections<Socket>,
    policy: Policy,
    /// End of the time without accepting, after the system refused a connection for lack of descriptors or memory.
    accept_paused_until: Option<Time>,
    /// Descriptors for connections of operators, if they have a listener of their own.
    operators: Reserve,
}

struct Port {
    listener: Listener,
    service: ServiceId,
    /// True while the backlog may hold connections.
    ready: bool,
}

impl Server {
    /// Returns a server without listeners.
    ///
    /// # Errors
    ///
    /// Fails if the system has no event queue left.
    #[doc(hidden)]
    pub fn new(services: Services, policy: Policy) -> io::Result<Self> {
        let clock = Clock::start();
        let connections = Connections::new(services, clock.epoch(), Random::from_system()?);
        Server::with(connections, clock, policy)
    }

    /// Returns a server for use within another program: with the default limits, for one service of a list such as
    /// `pools`, at first on one address, such as `127.0.0.1:0` for a port that is free. It touches no signals and no
    /// files; a [`Stopper`] ends it.
    ///
    /// # Errors
    ///
    /// `InvalidInput` without an [`Address`] with a port, or for an unknown service; else the system's error, such as
    /// an address in use.
    pub fn bind(list: &[&'static Info], address: &str, service: &str) -> io::Result<Self> {
        let address = Address::parse(address, 0).ok_or(ErrorKind::InvalidInput)?;
        let services = Services::of(list, &AllSettings::defaults(list).in_memory());
        let service = services.named(service).ok_or(ErrorKind::InvalidInput)?;
        let mut server = Server::new(services, Policy::of(list))?;
        server.listen(Listener::bind(&address, &Options::default())?, service)?;
        server.begin().map_err(io::Error::other)?;
        Ok(server)
    }

    fn with(mut connections: Connections<Socket>, clock: Clock, policy: Policy) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        (connections.dispatch.started, connections.dispatch.wall) = (clock.started(), clock.wall());
        connections.dispatch.process = Box::new(System);
        connections.guard(policy.rules.clone());
        connections.limit(policy.max_connections.map(|most| *most));
        connections.watch_over(policy.health);
        connections.services().attach(|service| waker.of(service));
        Ok(Server {
            poll,
            events: Events::with_capacity(EVENTS_PER_TICK),
            clock,
            signals: None,
            is_signalled: false,
            waker,
            is_stopping: false,
            stop_deadline: None,
            upgrade: Upgrade::default(),
            notifier: Notifier::default(),
            ports: Vec::new(),
            has_backlog: false,
            connections,
            policy,
            accept_paused_until: None,
            operators: Reserve::default(),
        })
    }

    /// Adds a listener, whose connections `service` serves.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot poll it.
    #[doc(hidden)]
    pub fn listen(&mut self, mut listener: Listener, service: ServiceId) -> io::Result<()> {
        if listener.is_open() {
            listener.register(self.poll.registry(), Token(FIRST_LISTENER - self.ports.len()))?;
        }
        self.ports.push(Port { listener, service, ready: false });
        Ok(())
    }

    /// Closes or opens listeners as the services ask for.
    #[cold]
    fn close_and_open_listeners(&mut self) {
        for (service, is_wanted) in std::mem::take(&mut self.connections.dispatch.listening) {
            for port in (0..self.ports.len()).filter(|port| self.ports[*port].service == service).collect::<Vec<_>>() {
                let result = if is_wanted { self.open_port(port) } else { self.close_port(port) };
                if let Err(error) = result {
                    let name = self.connections.services()[service].info.name;
                    warn!("a listener of the {name} is not {}: {error}", if is_wanted { "opened" } else { "closed" });
                }
            }
        }
    }

    fn close_port(&mut self, port: usize) -> io::Result<()> {
        let Port { listener, service, ready } = &mut self.ports[port];
        if !listener.is_open() {
            return Ok(());
        }
        *ready = false;
        let (service, is_proxied) = (*service, listener.is_proxied());
        self.accept_backlog(|server| server.ports[port].listener.accept(), service, is_proxied);
        let listener = &mut self.ports[port].listener;
        listener.close()?;
        if listener.is_open() { Ok(()) } else { listener.deregister(self.poll.registry()) }
    }

    fn open_port(&mut self, port: usize) -> io::Result<()> {
        let Port { listener, .. } = &mut self.ports[port];
        if listener.is_open() {
            return Ok(());
        }
        listener.reopen()?;
        listener.register(self.poll.registry(), Token(FIRST_LISTENER - port))
    }

    /// Applies the settings of the services. To be called once, before [`Server::run`].
    pub fn configure(&mut self) {
        self.connections.configure(self.clock.now());
    }

    /// Opens the stores of the services with listeners. To be called once, before [`Server::run`].
    ///
    /// # Errors
    ///
    /// One sentence that names the service, and the reason.
    #[doc(hidden)]
    pub fn begin(&mut self) -> Result<(), String> {
        let ports = &self.ports;
        let begun =
            self.connections.begin(|service| ports.iter().any(|port| port.service == service), self.clock.now());
        // Stores come first: clients may have left only the descriptors of the previous process's stores.
        if self.signals.is_some() {
            self.upgrade.reserve();
        }
        begun
    }

    /// Returns a handle that ends [`Server::run`] from another thread.
    pub fn stopper(&self) -> Stopper {
        self.waker.stopper()
    }

    /// Returns the addresses of the listeners of a service, such as `pools`.
    pub fn addresses(&self, service: &str) -> Vec<Address> {
        let service = self.connections.named(service);
        let ports = self.ports.iter().filter(|port| Some(port.service) == service);
        ports.filter_map(|port| port.listener.address().ok()).collect()
    }

    /// Serves until a signal or a [`Stopper`] asks it to stop.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot wait for events any more.
    pub fn run(&mut self) -> io::Result<()> {
        self.notify_supervisor(DaemonState::Ready);
        loop {
            Connections::tick(self)?;
            if !self.connections.dispatch.listening.is_empty() {
                self.close_and_open_listeners();
            }
            self.continue_upgrade();
            if self.may_stop() {
                self.ports.drain(..).for_each(|port| port.listener.retire());
                return Ok(());
            }
        }
    }

    fn notify_supervisor(&mut self, status: DaemonState) {
        self.notifier.notify(status, self.clock.now());
    }

    /// Handles the signals that have come, and returns true if one asks for the end.
    fn take_signals(&mut self) -> bool {
        self.is_signalled = false;
        let Some(signals) = &mut self.signals else { return false };
        let stop_asked = signals.stop.has_come();
        if signals.drain.has_come() {
            info!("services that can be drained refuse new work");
            self.connections.drain(self.clock.now());
        }
        if !stop_asked {
            self.upgrade.is_asked = true;
            self.begin_asked_upgrade();
        }
        stop_asked
    }

    /// Marks the connections and listeners of the events: closed connections first. A connection's position among the
    /// events is that of its first event since the last poll, which may have been room to write, so that its request
    /// can come before the end of another that is older.
    fn mark_events(&mut self) {
        let last_connection = FIRST_LISTENER - self.ports.len();
        let has_ended = self.events.iter().any(has_hangup);
        if has_ended {
            let ended = self.events.iter().filter(|event| has_hangup(event) && event.token().0 <= last_connection);
            for event in ended {
                self.connections.mark(ConnId::from_index(event.token().0), readiness_of(event));
            }
        }
        let mut count = 0;
        for event in &self.events {
            count += 1;
            match event.token() {
                Token(index) if index <= last_connection => {
                    let (readable, writable) = (event.is_readable(), event.is_writable());
                    let open = Readiness { readable, writable, ..Readiness::default() };
                    let readiness = if has_ended { readiness_of(event) } else { open };
                    self.connections.mark(ConnId::from_index(index), readiness);
                }
                SIGNALS => self.is_signalled = true,
                VERDICT => self.upgrade.is_readable = true,
                WAKE => {
                    let services = self.connections.services().ids();
                    self.waker.take(services).for_each(|service| self.connections.mark_completed(service));
                }
                Token(index) => {
                    self.ports[FIRST_LISTENER - index].ready = true;
                    self.has_backlog = true;
                }
            }
        }
        if count == EVENTS_PER_TICK {
            self.connections.loop_stats().count_spent(Budget::Events);
        }
    }

    /// Polls for events without sleeping, for the set time but no longer than it might sleep. Returns the time if there
    /// were none, and None if there are some.
    fn busy_poll_events(&mut self, begun: Time) -> io::Result<Option<Time>> {
        let longest = self.poll_timeout(begun).map_or(Span::FOREVER, Span::from);
        let time = self.policy.busy_poll.min(longest);
        let mut now = begun;
        while now.since(begun) < time {
            poll(&mut self.poll, &mut self.events, Some(Duration::ZERO))?;
            if !self.events.is_empty() {
                return Ok(None);
            }
            now = self.clock.now();
        }
        Ok(Some(now))
    }

    /// Returns the time for which the poll may sleep; None without a limit.
    #[inline(always)]
    fn poll_timeout(&self, now: Time) -> Option<Duration> {
        let mut first =
            self.connections.next_work().unwrap_or(Time::NEVER).min(self.connections.dispatch.health.board.wake_at);
        let mut note = |at: Option<Time>| first = at.map_or(first, |at| at.min(first));
        note(self.has_backlog.then(|| self.accept_paused_until.unwrap_or_default()));
        note(self.upgrade_deadline().or(self.stop_deadline));
        note(self.notifier.next_deadline());
        (first < Time::NEVER).then(|| first.since(now).into())
    }

    fn register_connection(&mut self, id: ConnId) -> io::Result<()> {
        let socket = self.connections.stream(id).ok_or(ErrorKind::NotFound)?;
        self.poll.registry().register(socket, Token(id.index()), Interest::READABLE | Interest::WRITABLE)
    }

    /// Registers the connections of a handover with the poll, before anything else, and notes the events that came
    /// while no process polled. The order of events in a new queue is meaningless. The second poll finds the ends that
    /// came while the first had already passed by their connections, before requests that it still found.
    fn register_all(&mut self, ids: &[ConnId]) -> io::Result<()> {
        ids.iter().try_for_each(|id| self.register_connection(*id))?;
        let mut events = Events::with_capacity(ids.len().max(1));
        let mut found = Vec::with_capacity(ids.len());
        for _ in 0..2 {
            poll(&mut self.poll, &mut events, Some(Duration::ZERO))?;
            found.extend(events.iter().map(|event| (ConnId::from_index(event.token().0), readiness_of(event))));
        }
        self.connections.mark_unordered(found);
        Ok(())
    }
}

impl Host for Server {
    type Stream = Socket;

    fn connections(&mut self) -> &mut Connections<Socket> {
        &mut self.connections
    }

    fn clock(&self) -> impl Fn() -> Time + use<> {
        let clock = self.clock;
        move || clock.now()
    }

    fn wall(&self) -> impl Fn() -> Option<Span> + use<> {
        let clock = self.clock;
        move || Some(clock.wall())
    }

    fn wait(&mut self, now: Time) -> io::Result<()> {
        self.notifier.notify_due(now);
        let looked = if self.policy.busy_poll == Span::ZERO { Some(now) } else { self.busy_poll_events(now)? };
        if let Some(now) = looked {
            let timeout = self.poll_timeout(now);
            poll(&mut self.poll, &mut self.events, timeout)?;
        }
        self.mark_events();
        Ok(())
    }

    /// Accepts connections from the backlogs until these are empty or the tick's budget is spent.
    fn accept(&mut self) {
        if self.has_backlog {
            self.accept_ready();
        }
    }
}

/// Waits for events. A signal ends the wait without any.
pub fn poll(poll: &mut Poll, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
    match poll.poll(events, timeout) {
        Err(error) if error.kind() == ErrorKind::Interrupted => events.clear(),
        result => result?,
    }
    Ok(())
}

/// Returns the readiness in an event of the poll.
pub fn readiness_of(event: &Event) -> Readiness {
    Readiness {
        readable: event.is_readable(),
        writable: event.is_writable(),
        hangup: has_hangup(event),
        lost: event.is_write_closed() || event.is_error(),
    }
}

fn has_hangup(event: &Event) -> bool {
    event.is_read_closed() || event.is_write_closed() || event.is_error()
}
