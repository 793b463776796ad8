//! The daemon and its model side by side: whatever is done to one is done to the other, and all that clients see of them
//! must be the same. Whoever differs is shown with what was done last.

use super::model::{self, Model};
use super::world::World;
use poolcounter::pools::Limits;
use poolcounter::time::Span;
use std::collections::VecDeque;
use std::fmt;

/// How many of the last actions are shown.
const SHOWN: usize = 20;

/// What clients, time and the operator do.
#[derive(Clone, PartialEq, Eq)]
pub enum Action {
    /// One more client, the number of which is the next.
    Connect,
    /// A client sends bytes.
    Send(usize, Vec<u8>),
    /// A client closes its sending side.
    Finish(usize),
    /// A client dies.
    Reset(usize),
    /// A client takes so many more bytes of what it is told.
    Room(usize, usize),
    /// Microseconds pass, after everything is done that can be done at once.
    Pass(u64),
    /// Everything is done that can be done at once, and then another process takes over.
    Upgrade,
    /// Everything is done that can be done at once.
    Settle,
}

/// Both.
pub struct Twin {
    world: World,
    model: Model,
    /// Everything that each client received.
    received: Vec<Vec<u8>>,
    /// Whose connections were not closed when both were compared the last time.
    open: Vec<usize>,
    /// The last actions, with a number for each.
    done: VecDeque<(usize, Action)>,
    count: usize,
    /// How to have the same again, for the message.
    replay: String,
}

impl Twin {
    /// Both without clients. `replay` tells people how to repeat what comes.
    pub fn new(limits: model::Limits, replay: String) -> Self {
        let max_hold = limits.max_hold_us.map_or(Span::FOREVER, Span::from_micros);
        let max_locks = u32::try_from(limits.max_locks).expect("nobody has so many locks");
        Twin {
            world: World::new(Limits { max_locks, max_hold, max_line: limits.max_line, ..Limits::default() }),
            model: Model::new(limits),
            received: Vec::new(),
            open: Vec::new(),
            done: VecDeque::new(),
            count: 0,
            replay,
        }
    }

    /// Does the same to both. They are compared whenever everything is done that can be done at once.
    pub fn act(&mut self, action: Action) {
        let Twin { world, model, .. } = self;
        self.count += 1;
        self.done.push_back((self.count, action.clone()));
        if self.done.len() > SHOWN {
            self.done.pop_front();
        }
        match action {
            Action::Connect => {
                self.open.push(self.received.len());
                self.received.push(Vec::new());
                return assert_eq!(world.connect(), model.connect());
            }
            Action::Send(client, bytes) => {
                model.send(client, &bytes);
                return world.send(client, &bytes);
            }
            Action::Finish(client) => {
                model.finish(client);
                return world.finish(client);
            }
            Action::Reset(client) => {
                model.reset(client);
                return world.reset(client);
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
                world.upgrade();
                world.settle();
                model.settle();
                model.upgrade();
            }
            Action::Settle => {
                world.settle();
                model.settle();
            }
        }
        self.compare();
    }

    /// The model, whose word is taken for what will come.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Whether the client's connection is still there.
    pub fn is_open(&self, client: usize) -> bool {
        self.open.contains(&client)
    }

    /// Everything that each client received.
    pub fn received(&self) -> &[Vec<u8>] {
        &self.received
    }

    /// Whether nobody has left anything behind.
    pub fn is_empty(&self) -> bool {
        self.world.is_empty() && self.model.is_empty()
    }

    fn compare(&mut self) {
        let Twin { world, model, received, .. } = self;
        for client in self.open.iter().copied() {
            let (told, predicted) = (world.take_received(client), model.take_received(client));
            let same = told.iter().zip(&predicted).take_while(|(one, other)| one == other).count();
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
            received[client].extend(told);
        }
        self.open.retain(|client| !model.is_closed(*client));
    }
}

/// A test that fails says how it came to that, wherever it fails.
impl Drop for Twin {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}; the last of {} actions:", self.replay, self.count);
            for (number, action) in &self.done {
                eprintln!("{number:6}  {action}");
            }
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Connect => write!(f, "connect"),
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
