//! One body per fuzz target, and the reading of choices from their input.

pub mod counters_wire;
pub mod fleet;
pub mod http;
pub mod jobs_model;
pub mod jobs_wire;
pub mod members_model;
pub mod members_wire;
pub mod pools_wire;
pub mod proxy;
pub mod simulation;
pub mod streams;
pub mod wheel;

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
