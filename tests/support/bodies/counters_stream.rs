//! Streams of bytes, cut into chunks, through the whole service.

use super::{Choices, assert_same_when_cut};
use crate::support::world::World;
use poolcounter::counters::CountersSettings;
use poolcounter::registry::AllSettings;
use poolcounter::time::Span;

const CLIENTS: usize = 4;
const INTERVAL: Span = Span::from_secs(10);
/// Time does not jump farther: a hundred intervals.
const FAR_US: u64 = 1_000_000_000;

/// Several clients as the input says, and then the input as what one client says.
pub fn run(data: &[u8]) {
    converse(&mut Choices::new(data));
    assert_same_when_cut(data, converse_alone);
}

fn new_world() -> World {
    let counters = CountersSettings { buckets: 1024, interval: INTERVAL, max_memory: 1_000 };
    World::with(AllSettings::default().with(counters))
}

fn converse(choices: &mut Choices<'_>) {
    let mut world = new_world();
    let mut clients: Vec<usize> = (0..CLIENTS).map(|_| world.connect_to("counters")).collect();
    while !choices.is_empty() {
        let turn = choices.byte();
        let slot = usize::from(turn) % CLIENTS;
        let client = clients[slot];
        match turn / 16 {
            0..=7 => {
                let len = usize::from(choices.byte());
                world.send(client, choices.bytes(len));
            }
            8 => world.advance(Span::from_micros(choices.number().min(FAR_US))),
            9 => world.set_room(client, choices.number() as usize),
            10 => {
                world.finish(client);
                clients[slot] = world.connect_to("counters");
            }
            11 => {
                world.reset(client);
                clients[slot] = world.connect_to("counters");
            }
            12 => {
                world.settle();
                world.upgrade_within(Span::from_micros(choices.number().min(FAR_US)));
            }
            13 => world.tick_slowly(Span::from_micros(choices.number().min(FAR_US))),
            _ => world.tick(),
        }
    }
    clients.iter().for_each(|client| world.finish(*client));
    // Whoever does not read is given up after some seconds, and counters stay until their interval is over.
    world.advance(INTERVAL + INTERVAL);
    assert!(world.is_empty(), "something is left of somebody");
}

/// What one client receives that sends chunks of some sizes, and takes so many bytes after each.
fn converse_alone(data: &[u8], sizes: &mut dyn FnMut() -> usize, room: usize) -> Vec<u8> {
    let mut world = new_world();
    let client = world.connect_to("counters");
    world.send_in_chunks(client, data, sizes, room);
    world.advance(INTERVAL);
    assert!(world.is_empty(), "something is left of somebody");
    without_chance(world.take_received(client))
}

/// How many names were compared in vain is a matter of chance.
fn without_chance(mut bytes: Vec<u8>) -> Vec<u8> {
    const ITEM: &[u8] = b"\0\x01conflicts";
    for at in ITEM.len()..bytes.len() {
        if bytes[..at].ends_with(ITEM) && bytes[at].is_ascii_digit() {
            bytes[at] = b'0';
        }
    }
    bytes
}
