//! Streams of bytes, cut into chunks, through the whole members service.

use super::{Choices, assert_same_when_cut, begin, converse, some_bytes};
use crate::world::World;
use poolcounter_core::time::Span;
use poolcounter_counters::CountersSettings;
use poolcounter_members::MembersSettings;
use poolcounter_service::container::AllSettings;

/// Longest jump of time: culling goes on as long as time does.
const FAR_US: u64 = 100_000_000;

/// Plays the input by several clients, and then sends it as the bytes of a single client.
pub fn run(data: &[u8]) {
    begin(data);
    converse_all(&mut Choices::new(data));
    assert_same_when_cut(data, converse_alone);
}

fn world() -> World {
    let members = MembersSettings { most: 64, admin: Some(true), ..MembersSettings::default() };
    let counters = CountersSettings { buckets: 16, ..CountersSettings::default() };
    World::with(AllSettings::defaults(poolcounter::SERVICES).with(members).with(counters))
}

fn converse_all(choices: &mut Choices<'_>) {
    let mut world = world();
    converse(&mut world, "members", FAR_US, choices, some_bytes);
    // Clients that do not read are disconnected after some seconds.
    world.advance(Span::from_secs(6));
    assert!(world.is_empty(), "something is left of somebody");
}

/// Returns the output to one client that sends chunks of some sizes, and takes `room` more bytes after each.
fn converse_alone(data: &[u8], sizes: &mut dyn FnMut() -> usize, room: usize) -> Vec<u8> {
    let mut world = world();
    let client = world.connect_to("members");
    world.send_in_chunks(client, data, sizes, room);
    assert!(world.is_empty(), "something is left of somebody");
    world.take_received(client)
}
