//! One body per fuzz target, and the reading of choices from their input.

pub mod counters_model;
pub mod counters_wire;
pub mod fleet;
pub mod http;
pub mod jobs_model;
pub mod jobs_wire;
pub mod members_model;
pub mod members_wire;
pub mod pools_model;
pub mod pools_wire;
pub mod proxy;
pub mod streams;
pub mod wheel;

use crate::model::Service;
use crate::twin::{Action, Twin};
use poolcounter_core::count::begin_near_the_end;

/// Number of clients at a time.
const CLIENTS: usize = 4;

/// Choices read from the fuzzer's bytes. After the last byte, everything is zero.
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// Returns the choices in these bytes.
    pub fn new(data: &'a [u8]) -> Self {
        Choices(data)
    }

    /// Returns whether all bytes are used up.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next byte.
    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// Returns the next bytes, or as many as there are.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Returns a number from any range: a mantissa of one byte, and its shift in another.
    pub fn number(&mut self) -> u64 {
        u64::from(self.byte()) << (self.byte() % 56)
    }

    /// Returns one of these things.
    pub fn pick<T: Copy>(&mut self, things: &[T]) -> T {
        things[usize::from(self.byte()) % things.len()]
    }
}

/// Starts all counters near their overflow for every other length of the input.
fn begin(data: &[u8]) {
    begin_near_the_end(data.len() % 2 == 1);
}

/// Returns some bytes of the input, for a client to send.
fn some_bytes(_: u8, choices: &mut Choices<'_>) -> Vec<u8> {
    let len = usize::from(choices.byte());
    choices.bytes(len).into()
}

/// Plays the input by clients of a service, in the daemon and in its model, and disconnects them at its end. `say`
/// returns the bytes that a client sends in its turn; time does not jump farther than `far_us`.
fn act(
    twin: &mut Twin,
    service: Service,
    far_us: u64,
    choices: &mut Choices<'_>,
    say: impl Fn(u8, &mut Choices<'_>) -> Vec<u8>,
) {
    let mut clients = 0..;
    let mut connect = |twin: &mut Twin| {
        twin.act(Action::Connect(service));
        clients.next().expect("numbers do not end")
    };
    let mut slots: Vec<usize> = (0..CLIENTS).map(|_| connect(twin)).collect();
    while !choices.is_empty() {
        let turn = choices.byte();
        let slot = usize::from(turn) % CLIENTS;
        let client = slots[slot];
        let action = match turn / 16 {
            9 | 10 => Action::Pass(choices.number().min(far_us)),
            11 => Action::Finish(client),
            12 => Action::Reset(client),
            13 => Action::Room(client, choices.pick(&[0, 1, 7, 100, usize::MAX])),
            14 => Action::Upgrade,
            15.. => Action::Settle,
            _ => Action::Send(client, say(turn, choices)),
        };
        let leaves = matches!(action, Action::Finish(_) | Action::Reset(_));
        twin.act(action);
        if leaves {
            slots[slot] = connect(twin);
        }
    }
    slots.into_iter().for_each(|client| twin.act(Action::Finish(client)));
}
