//! Conversations in virtual time: the daemon's own loop and services, without sockets.

use super::player::Target;
use super::protocol::Protocol;
use super::rules;
use super::script::{Guest, Scenario, Then};
use super::world::World;
use poolcounter_core::Span;
use poolcounter_counters::CountersSettings;
use poolcounter_service::container::AllSettings;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Number of bytes beyond which only the first bytes arrive alone.
const MANY: usize = 10_000;

/// Address of the guests in the rules of access, and of the operators among them, who have all rights.
pub const GUEST: &str = "192.0.2.1";
pub const OPERATOR: &str = "192.0.2.2";

/// Disturbance besides the script that must make no difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Variation {
    /// No disturbance.
    None,
    /// Every byte arrives alone; of more than 10,000 bytes, only the first bytes.
    ByteByByte,
    /// After each step the server is replaced by another that takes over.
    Upgrades,
}

/// Function that lets something happen to a server, and returns whether it ends every connection. Its word `end` comes
/// after each scenario.
pub type Happen = Box<dyn FnMut(&mut World, &str) -> Result<bool, String>>;

/// A [`World`] that plays scenarios.
pub struct VirtualTarget {
    world: World,
    protocol: Protocol,
    operators: Option<u32>,
    /// Services of the clients, if they are several.
    clients: Vec<Guest>,
    variation: Variation,
    happen: Option<Happen>,
}

/// Client of the world, with its unread output.
pub struct VirtualClient {
    number: usize,
    protocol: Protocol,
    received: VecDeque<u8>,
}

impl VirtualTarget {
    /// Returns a server with the scenario's options.
    pub fn new(protocol: Protocol, scenario: &Scenario, variation: Variation) -> Self {
        let world = World::with(settings_of(scenario));
        VirtualTarget { world, protocol, operators: scenario.operators, clients: Vec::new(), variation, happen: None }
    }

    /// Returns a server that is there, to which more can happen.
    pub fn of(protocol: Protocol, world: World, happen: Happen) -> Self {
        let (clients, variation) = (Vec::new(), Variation::None);
        VirtualTarget { world, protocol, operators: None, clients, variation, happen: Some(happen) }
    }

    /// Adds the services of the clients, whose addresses the rules of access know.
    pub fn for_clients(self, clients: &[Guest]) -> Self {
        VirtualTarget { clients: clients.to_vec(), ..self }
    }

    fn has(&self, protocol: Protocol) -> bool {
        self.protocol == protocol || self.clients.iter().any(|guest| guest.protocol == protocol)
    }

    /// Clears all jobs, which stay until they are deleted. Settings stay for good.
    fn clear_jobs(&mut self) {
        let client = match self.clients[..] {
            [] => self.world.connect_to(Protocol::Jobs.kind()),
            _ => self.world.connect_from(OPERATOR, Protocol::Jobs.kind()),
        };
        self.world.send(client, b"clear *\r\nclear */*\r\nclear */*/*\r\nquit\r\n");
        self.world.advance(Span::from_secs(1));
        self.world.finish(client);
        self.world.settle();
    }

    fn settle(&mut self) {
        self.world.settle();
        if self.variation == Variation::Upgrades {
            self.world.upgrade();
            self.world.settle();
        }
    }
}

impl Target for VirtualTarget {
    type Client = VirtualClient;

    fn connect(&mut self, number: u32) -> VirtualClient {
        let is_operator = self.operators.is_some_and(|first| number >= first);
        let service = if is_operator { "admin" } else { self.protocol.kind() };
        let (protocol, number) = match self.clients.get((number as usize).wrapping_sub(1)) {
            None => (self.protocol, self.world.connect_to(service)),
            Some(Guest { protocol, is_operator }) => {
                let ip = if *is_operator { OPERATOR } else { GUEST };
                let number = self.world.connect_from(ip, protocol.kind());
                self.world.settle();
                (*protocol, number)
            }
        };
        VirtualClient { number, protocol, received: VecDeque::new() }
    }

    fn send(&mut self, client: &mut VirtualClient, bytes: &[u8], then: Then) {
        let alone = if self.variation == Variation::ByteByByte { bytes.len().min(MANY) } else { 0 };
        let (alone, together) = bytes.split_at(alone);
        for piece in alone.chunks(1).chain([together].into_iter().filter(|rest| !rest.is_empty())) {
            self.world.send(client.number, piece);
            if then == Then::Stay {
                self.settle();
            }
        }
        match then {
            Then::Stay => {}
            Then::Finish | Then::Close => self.finish(client),
        }
    }

    fn finish(&mut self, client: &mut VirtualClient) {
        self.world.finish(client.number);
        self.settle();
    }

    /// The server sees of a close only the end of the client's bytes.
    fn close(&mut self, client: &mut VirtualClient) {
        self.finish(client);
    }

    fn close_unseen(&mut self, client: &mut VirtualClient) {
        self.world.finish(client.number);
    }

    fn reset(&mut self, client: &mut VirtualClient) {
        self.world.reset(client.number);
        self.settle();
    }

    fn pass(&mut self, time: Duration) {
        let us = u64::try_from(time.as_micros()).expect("scripts end before half a million years");
        self.world.advance(Span::from_micros(us));
        self.settle();
    }

    fn happen(&mut self, words: &str) -> Result<bool, String> {
        let happen = self.happen.as_mut().ok_or_else(|| format!("\"{words}\" cannot happen here"))?;
        let ends = happen(&mut self.world, words)?;
        self.settle();
        Ok(ends)
    }

    fn reply(&mut self, client: &mut VirtualClient) -> Result<Vec<u8>, String> {
        client.received.extend(self.world.take_received(client.number));
        let reply = client.protocol.take_reply(&mut client.received);
        reply.ok_or_else(|| {
            let rest: Vec<u8> = client.received.iter().copied().collect();
            format!("no reply came, but {}", client.protocol.describe(&rest))
        })
    }

    fn rest(&mut self, client: &mut VirtualClient) -> Vec<u8> {
        client.received.extend(self.world.take_received(client.number));
        client.received.drain(..).collect()
    }

    fn is_ended(&mut self, client: &mut VirtualClient) -> bool {
        self.world.is_ended(client.number)
    }

    /// Lets the interval of the counters pass, because counters stay until then.
    fn check_empty(&mut self) -> Result<(), String> {
        if self.has(Protocol::Counters) {
            let counters: &CountersSettings = self.world.settings().get().expect("are in the registry");
            self.world.advance(counters.interval);
        }
        if self.has(Protocol::Jobs) {
            self.clear_jobs();
        }
        if self.happen.is_some() {
            self.happen("end")?;
        }
        if self.world.is_empty() { Ok(()) } else { Err("something is left of a connection".into()) }
    }

    fn tolerance(&self) -> (Duration, Duration) {
        (Duration::ZERO, Duration::ZERO)
    }
}

/// Reads the settings of a scenario as the daemon reads a configuration file. Clients are administrators, as on the same
/// machine, unless the scenario says otherwise.
fn settings_of(Scenario { options, ceiling, .. }: &Scenario) -> AllSettings {
    let mut lines = BTreeMap::from(["jobs.admin", "members.admin"].map(|key| (key.to_string(), "true")));
    for option in options.chunks(2) {
        let [name, value] = option else { panic!("{option:?}: an option of a scenario has a value") };
        let mut key = name.trim_start_matches("--").replace('-', "_");
        if ["counter_", "members_", "jobs_"].iter().any(|section| key.starts_with(section)) {
            key = key.replacen('_', ".", 1);
        }
        lines.insert(key, value);
    }
    let mut text: String = lines.into_iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
    if let Some((pattern, settings)) = ceiling.as_ref().and_then(|ceiling| ceiling.split_once(' ')) {
        text += &format!("[[pools.ceiling]]\nkey = \"{pattern}\"\n{}\n", settings.replace(',', "\n"));
    }
    let mut settings = rules::settings(&text).services;
    // Few buckets, so that a server is made quickly.
    settings.get_mut::<CountersSettings>().expect("is a service").buckets = 16;
    settings
}
