//! Streams of bytes, cut into chunks, through the whole service.

use super::{Choices, assert_same_when_cut};
use crate::support::world::World;
use poolcounter::jobs::JobsSettings;
use poolcounter::registry::AllSettings;
use poolcounter::time::Span;

const CLIENTS: usize = 4;
/// Time does not jump farther: a quarter of an hour.
const FAR_US: u64 = 1_000_000_000;

/// Several clients as the input says, and then the input as what one client says.
pub fn run(data: &[u8]) {
    converse(&mut Choices::new(data));
    assert_same_when_cut(data, converse_alone);
}

fn new_world() -> World {
    let jobs =
        JobsSettings { max_size: 100_000, max_memory: 300_000, max_tubes: 20, admin: true, ..JobsSettings::default() };
    World::with(AllSettings::default().with(jobs))
}

fn converse(choices: &mut Choices<'_>) {
    let mut world = new_world();
    let mut clients: Vec<usize> = (0..CLIENTS).map(|_| world.connect_to("jobs")).collect();
    while !choices.is_empty() {
        let turn = choices.byte();
        let slot = usize::from(turn) % CLIENTS;
        let client = clients[slot];
        match turn / 16 {
            0..=6 => {
                let len = usize::from(choices.byte());
                world.send(client, choices.bytes(len));
            }
            7 => {
                let len = choices.number().min(100_001) as usize;
                world.send(client, format!("put {len} 0 9 {len}\r\n{}\r\n", "x".repeat(len)).as_bytes());
            }
            8 => world.advance(Span::from_micros(choices.number().min(FAR_US))),
            9 => world.set_room(client, choices.number() as usize),
            10 => {
                world.finish(client);
                clients[slot] = world.connect_to("jobs");
            }
            11 => {
                world.reset(client);
                clients[slot] = world.connect_to("jobs");
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
    end(&mut world);
}

/// What one client receives that sends chunks of some sizes, and takes so many bytes after each.
fn converse_alone(data: &[u8], sizes: &mut dyn FnMut() -> usize, room: usize) -> Vec<u8> {
    let mut world = new_world();
    let client = world.connect_to("jobs");
    world.send_in_chunks(client, data, sizes, room);
    world.advance(Span::from_secs(60));
    let received = world.take_received(client);
    end(&mut world);
    without_chance(&received)
}

/// Whoever does not read is given up after some seconds. Jobs stay until they are cleared, settings for good.
fn end(world: &mut World) {
    world.advance(Span::from_secs(60));
    let client = world.connect_to("jobs");
    let clear = |depth: usize| format!("clear {}\r\n", vec!["*"; depth].join("/"));
    // A name has 200 bytes at most, and each of its parts one at least.
    let clears: Vec<String> = (1..=100).map(clear).collect();
    world.send(client, clears.concat().as_bytes());
    world.advance(Span::from_secs(60));
    world.finish(client);
    world.advance(Span::from_secs(60));
    assert!(world.is_empty(), "something is left of somebody");
}

/// Processor time and the process are not a matter of what is said.
fn without_chance(bytes: &[u8]) -> Vec<u8> {
    let is_chance =
        |line: &&[u8]| [&b"rusage-"[..], b"pid: ", b"id: ", b"OK "].iter().any(|word| line.starts_with(word));
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| !is_chance(line));
    lines.flatten().copied().collect()
}
