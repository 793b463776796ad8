//! Streams of bytes, cut into chunks, through the whole service.

use super::{Choices, assert_same_when_cut, begin, converse, some_bytes};
use crate::world::World;
use poolcounter_core::time::Span;
use poolcounter_jobs::JobsSettings;
use poolcounter_service::container::AllSettings;

/// Longest jump of time: a quarter of an hour.
const FAR_US: u64 = 1_000_000_000;

/// Plays the input by several clients, and then sends it as the bytes of a single client.
pub fn run(data: &[u8]) {
    begin(data);
    converse_all(&mut Choices::new(data));
    assert_same_when_cut(data, converse_alone);
}

fn new_world() -> World {
    let jobs =
        JobsSettings { max_size: 100_000, max_memory: 300_000, max_tubes: 20, admin: true, ..JobsSettings::default() };
    World::with(AllSettings::defaults(poolcounter::SERVICES).with(jobs))
}

fn converse_all(choices: &mut Choices<'_>) {
    let mut world = new_world();
    converse(&mut world, "jobs", FAR_US, choices, |turn, choices| match turn / 16 {
        7 => {
            let len = choices.number().min(100_001) as usize;
            format!("put {len} 0 9 {len}\r\n{}\r\n", "x".repeat(len)).into_bytes()
        }
        _ => some_bytes(turn, choices),
    });
    end(&mut world);
}

/// Returns the output to one client that sends chunks of some sizes, and takes `room` more bytes after each.
fn converse_alone(data: &[u8], sizes: &mut dyn FnMut() -> usize, room: usize) -> Vec<u8> {
    let mut world = new_world();
    let client = world.connect_to("jobs");
    world.send_in_chunks(client, data, sizes, room);
    world.advance(Span::from_secs(60));
    let received = world.take_received(client);
    end(&mut world);
    without_chance(&received)
}

/// Ends the conversation. Clients that do not read are disconnected after some seconds; jobs stay until they are
/// cleared, settings for good.
fn end(world: &mut World) {
    world.advance(Span::from_secs(60));
    let client = world.connect_to("jobs");
    world.send(client, b"list-tubes\r\n");
    world.settle();
    let list = world.take_received(client);
    let names = list.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"- "));
    let clears: Vec<Vec<u8>> = names.map(|name| [b"clear ", name, b"\r\n"].concat()).collect();
    world.send(client, &clears.concat());
    world.advance(Span::from_secs(60));
    world.finish(client);
    world.advance(Span::from_secs(60));
    assert!(world.is_empty(), "something is left of somebody");
}

/// Removes the lines that depend on processor time and on the process.
fn without_chance(bytes: &[u8]) -> Vec<u8> {
    let is_chance =
        |line: &&[u8]| [&b"rusage-"[..], b"pid: ", b"id: ", b"OK "].iter().any(|word| line.starts_with(word));
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| !is_chance(line));
    lines.flatten().copied().collect()
}
