//! One body per fuzz target.

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

use crate::random::Random;
use poolcounter_core::count::begin_near_the_end;

/// Number of clients at a time.
const CLIENTS: usize = 4;

/// Starts all counters near their overflow for every other length of the input.
fn begin(data: &[u8]) {
    begin_near_the_end(data.len() % 2 == 1);
}

/// Returns some bytes of the input, for a client to send.
fn some_bytes(_: u8, choices: &mut Random) -> Vec<u8> {
    let len = usize::from(choices.byte());
    choices.bytes(len)
}
