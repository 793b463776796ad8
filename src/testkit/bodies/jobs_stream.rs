//! Streams of bytes, cut into chunks, through the whole service.

use super::{Choices, Streams, some_bytes};
use crate::world::World;
use poolcounter_core::time::Span;
use poolcounter_jobs::JobsSettings;
use poolcounter_service::container::AllSettings;

const STREAMS: Streams = Streams {
    service: "jobs",
    begin: || {
        let (max_size, max_memory, max_tubes) = (100_000, 300_000, 20);
        let jobs = JobsSettings { max_size, max_memory, max_tubes, admin: true, ..JobsSettings::default() };
        World::with(AllSettings::defaults(poolcounter::SERVICES).with(jobs))
    },
    // A quarter of an hour.
    far_us: 1_000_000_000,
    say: put_or_bytes,
    linger: Span::from_secs(60),
    end,
    shown: without_chance,
};

/// Plays the input by several clients, and then sends it as the bytes of a single client.
pub fn run(data: &[u8]) {
    STREAMS.run(data);
}

fn put_or_bytes(turn: u8, choices: &mut Choices<'_>) -> Vec<u8> {
    if turn / 16 != 7 {
        return some_bytes(turn, choices);
    }
    let len = choices.number().min(100_001) as usize;
    format!("put {len} 0 9 {len}\r\n{}\r\n", "x".repeat(len)).into_bytes()
}

/// Clears all jobs, which stay until then. Settings stay for good.
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
}

/// Removes the lines that depend on processor time and on the process.
fn without_chance(bytes: &[u8]) -> Vec<u8> {
    let is_chance =
        |line: &&[u8]| [&b"rusage-"[..], b"pid: ", b"id: ", b"OK "].iter().any(|word| line.starts_with(word));
    let lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| !is_chance(line));
    lines.flatten().copied().collect()
}
