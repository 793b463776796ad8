//! Streams of bytes, cut into chunks, through the whole members service.

use super::{Choices, assert_same_when_cut};
use crate::support::world::World;
use poolcounter::counters::CountersSettings;
use poolcounter::members::MembersSettings;
use poolcounter::registry::AllSettings;
use poolcounter::time::Span;

const CLIENTS: usize = 4;

/// Several clients as the input says, and then the input as what one client says.
pub fn run(data: &[u8]) {
    converse(&mut Choices::new(data));
    assert_same_when_cut(data, converse_alone);
}

fn world() -> World {
    let members = MembersSettings { most: 64, admin: Some(true), ..MembersSettings::default() };
    let counters = CountersSettings { buckets: 16, ..CountersSettings::default() };
    World::with(AllSettings::default().with(members).with(counters))
}

fn converse(choices: &mut Choices<'_>) {
    let mut world = world();
    let mut clients: Vec<usize> = (0..CLIENTS).map(|_| world.connect_to("members")).collect();
    while !choices.is_empty() {
        let turn = choices.byte();
        let slot = usize::from(turn) % CLIENTS;
        let client = clients[slot];
        match turn / 16 {
            0..=7 => {
                let len = usize::from(choices.byte());
                world.send(client, choices.bytes(len));
            }
            // Culling goes on as long as time does, so not too far.
            8 => world.advance(Span::from_micros(choices.number() % 100_000_000)),
            9 => world.set_room(client, choices.number() as usize),
            10 => {
                world.finish(client);
                clients[slot] = world.connect_to("members");
            }
            11 => {
                world.reset(client);
                clients[slot] = world.connect_to("members");
            }
            12 => {
                world.settle();
                world.upgrade();
            }
            13 => world.tick_slowly(Span::from_micros(choices.number() % 1_000_000)),
            _ => world.tick(),
        }
    }
    clients.iter().for_each(|client| world.finish(*client));
    // Whoever does not read is given up after some seconds.
    world.advance(Span::from_secs(6));
    assert!(world.is_empty(), "something is left of somebody");
}

/// What one client receives that sends chunks of some sizes, and takes so many bytes after each.
fn converse_alone(data: &[u8], sizes: &mut dyn FnMut() -> usize, room: usize) -> Vec<u8> {
    let mut world = world();
    let client = world.connect_to("members");
    world.send_in_chunks(client, data, sizes, room);
    assert!(world.is_empty(), "something is left of somebody");
    world.take_received(client)
}
