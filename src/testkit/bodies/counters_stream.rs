//! Streams of bytes, cut into chunks, through the whole service.

use super::{Choices, assert_same_when_cut, begin, converse, some_bytes};
use crate::world::World;
use poolcounter_core::time::Span;
use poolcounter_counters::CountersSettings;
use poolcounter_service::container::AllSettings;

const INTERVAL: Span = Span::from_secs(10);
/// Longest jump of time: a hundred intervals.
const FAR_US: u64 = 1_000_000_000;

/// Plays the input by several clients, and then sends it as the bytes of a single client.
pub fn run(data: &[u8]) {
    begin(data);
    converse_all(&mut Choices::new(data));
    assert_same_when_cut(data, converse_alone);
}

fn new_world() -> World {
    let counters =
        CountersSettings { buckets: 1024, interval: INTERVAL, max_memory: 1_000, ..CountersSettings::default() };
    World::with(AllSettings::defaults(poolcounter::SERVICES).with(counters))
}

fn converse_all(choices: &mut Choices<'_>) {
    let mut world = new_world();
    converse(&mut world, "counters", FAR_US, choices, some_bytes);
    // Clients that do not read are disconnected after some seconds, and counters stay until their interval is over.
    world.advance(INTERVAL + INTERVAL);
    assert!(world.is_empty(), "something is left of somebody");
}

/// Returns the output to one client that sends chunks of some sizes, and takes `room` more bytes after each.
fn converse_alone(data: &[u8], sizes: &mut dyn FnMut() -> usize, room: usize) -> Vec<u8> {
    let mut world = new_world();
    let client = world.connect_to("counters");
    world.send_in_chunks(client, data, sizes, room);
    world.advance(INTERVAL);
    assert!(world.is_empty(), "something is left of somebody");
    world.take_received(client)
}
