//! The daemon and its model side by side: both get the same actions, and all that clients see of them must be the same.
//! A difference is shown with the last actions.

use super::lately::Lately;
use super::model::{self, Model, Service};
use super::world::World;
use poolcounter_core::Span;
use poolcounter_counters::CountersSettings;
use poolcounter_pools::PoolsSettings;
use poolcounter_service::container::AllSettings;
use std::fmt;

/// Number of bytes that a failure shows of a client's request.
const LONG: usize = 500;
/// Bound of the connections that end between comparisons: fewer than the loop drops in a tick, because replies contain
/// the number of open connections.
const MOST_ENDS: usize = 32;

/// Action of clients, time and the operator.
#[derive(Clone, PartialEq, Eq)]
pub enum Action {
    /// One more client connects; its number is the next.
    Connect(Service),
    /// A client sends bytes.
    Send(usize, Vec<u8>),
    /// A client closes its sending side.
    Finish(usize),
    /// A client resets its connection.
    Reset(usize),
    /// A client takes this many more bytes of its output.
    Room(usize, usize),
    /// Microseconds pass, after everything is done that can be done at once.
    Pass(u64),
    /// Everything is done that can be done at once, and then another process takes over.
    Upgrade,
    /// Everything is done that can be done at once.
    Settle,
}

/// The daemon and its model.
pub struct Twin {
    world: World,
    model: Model,
    /// All bytes that each client received.
    received: Vec<Vec<u8>>,
    services: Vec<Service>,
    /// Clients whose connections were open at the last comparison.
    open: Vec<usize>,
    /// Number of connections that have ended since the last comparison.
    ends: usize,
    done: Lately<Action>,
}

impl Twin {
    /// Returns both without clients.
    pub fn new(limits: model::Limits) -> Self {
        let max_hold = limits.max_hold_us.map_or(Span::FOREVER, Span::from_micros);
        let max_locks = u32::try_from(limits.max_locks).expect("nobody has so many locks");
        let interval = Span::from_micros(limits.interval_us);
        let pools = PoolsSettings { max_locks, max_hold, max_line: limits.max_line, ..PoolsSettings::default() };
        // Few enough buckets to make a server quickly, and so many that names hardly ever conflict.
        let counters =
            CountersSettings { buckets: 4096, interval, max_memory: limits.max_memory, ..CountersSettings::default() };
        Twin {
            world: World::with(AllSettings::defaults(poolcounter::SERVICES).with(pools).with(counters)),
            model: Model::new(limits),
            services: Vec::new(),
            received: Vec::new(),
            open: Vec::new(),
            ends: 0,
            done: Lately::default(),
        }
    }

    /// Applies an action to both. They are compared whenever everything is done that can be done at once.
    pub fn act(&mut self, action: Action) {
        let Twin { world, model, ends, .. } = self;
        self.done.note(action.clone());
        match action {
            Action::Connect(service) => {
                self.open.push(self.received.len());
                self.received.push(Vec::new());
                self.services.push(service);
                let kind = match service {
                    Service::Pools => "pools",
                    Service::Counters => "counters",
                };
                return assert_eq!(world.connect_to(kind), model.connect(service));
            }
            Action::Send(client, bytes) => {
                model.send(client, &bytes);
                return world.send(client, &bytes);
            }
            Action::Finish(client) | Action::Reset(client) => {
                if matches!(action, Action::Finish(_)) {
                    model.finish(client);
                    world.finish(client);
                } else {
                    model.reset(client);
                    world.reset(client);
                }
                *ends += 1;
                if *ends < MOST_ENDS {
                    return;
                }
                world.settle();
                model.settle();
            }
            Action::Room(client, room) => {
                model.set_room(client, room);
                return world.set_room(client, room);
            }
            Action::Pass(us) => {
                world.advance(Span::from_micros(us));
                model.advance(us);
            }
            Action::Upgrade => {
                world.settle();
                model.settle();
                if !model.is_order_lost() {
                    world.upgrade();
                    world.settle();
                    model.upgrade();
                }
            }
            Action::Settle => {
                world.settle();
                model.settle();
            }
        }
        self.ends = 0;
        self.compare();
    }

    /// Returns the model, which is trusted about the future.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Returns whether the client's connection is still open.
    pub fn is_open(&self, client: usize) -> bool {
        self.open.contains(&client)
    }

    /// Returns all bytes that each client received.
    pub fn received(&self) -> &[Vec<u8>] {
        &self.received
    }

    /// Returns all bytes that each client of a service received.
    pub fn received_of(&self, service: Service) -> impl Iterator<Item = &[u8]> {
        let received = self.services.iter().zip(&self.received).filter(move |(own, _)| **own == service);
        received.map(|(_, received)| &received[..])
    }

    /// Returns whether no client has left anything behind.
    pub fn is_empty(&self) -> bool {
        self.world.is_empty() && self.model.is_empty()
    }

    fn compare(&mut self) {
        let Twin { world, model, received, .. } = self;
        for client in self.open.iter().copied() {
            let (told, predicted) = (world.take_received(client), model.take_received(client));
            received[client].extend(&told);
            let same = told.iter().zip(&predicted).take_while(|(told, predicted)| told == predicted).count();
            assert!(
                told == predicted,
                "client {client} was told \"{}\" rather than \"{}\", after {same} bytes on which both agree",
                told[same..].escape_ascii(),
                predicted[same..].escape_ascii()
            );
            let end = |is_ended, is_closed| match (is_ended, is_closed) {
                (_, true) => "closed",
                (true, false) => "ended",
                (false, false) => "open",
            };
            let is = end(world.is_ended(client), world.is_closed(client));
            let should_be = end(model.is_ended(client), model.is_closed(client));
            assert!(is == should_be, "the connection of client {client} is {is} rather than {should_be}");
        }
        self.open.retain(|client| !model.is_closed(*client));
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Connect(service) => write!(f, "connect to {service:?}"),
            Action::Send(client, bytes) if bytes.len() > LONG => {
                write!(f, "{client}> {}... ({} bytes)", bytes[..LONG].escape_ascii(), bytes.len())
            }
            Action::Send(client, bytes) => write!(f, "{client}> {}", bytes.escape_ascii()),
            Action::Finish(client) => write!(f, "{client}x"),
            Action::Reset(client) => write!(f, "{client}x reset"),
            Action::Room(client, usize::MAX) => write!(f, "{client} takes everything"),
            Action::Room(client, room) => write!(f, "{client} takes {room} bytes"),
            Action::Pass(us) => write!(f, "+{}.{:06}s", us / 1_000_000, us % 1_000_000),
            Action::Upgrade => write!(f, "upgrade"),
            Action::Settle => write!(f, "settle"),
        }
    }
}
