//! Streams of bytes, cut into chunks, through the whole service.

use super::{Choices, assert_same_when_cut, begin, converse, some_bytes};
use crate::world::World;
use poolcounter_core::time::Span;
use poolcounter_pools::PoolsSettings;

/// Plays the input by several clients, and then sends it as the bytes of a single client.
pub fn run(data: &[u8]) {
    begin(data);
    converse_all(&mut Choices::new(data));
    assert_same_when_cut(data, converse_alone);
}

fn converse_all(choices: &mut Choices<'_>) {
    let mut world = World::new(PoolsSettings { max_line: 64, ..PoolsSettings::default() });
    converse(&mut world, "pools", u64::MAX, choices, some_bytes);
    // Clients that do not read are disconnected after some seconds.
    world.advance(Span::from_secs(6));
    assert!(world.is_empty(), "something is left of somebody");
}

/// Returns the output to one client that sends chunks of some sizes, and takes `room` more bytes after each.
fn converse_alone(data: &[u8], sizes: &mut dyn FnMut() -> usize, room: usize) -> Vec<u8> {
    let mut world = World::new(PoolsSettings { max_line: 64, ..PoolsSettings::default() });
    let client = world.connect();
    world.send_in_chunks(client, data, sizes, room);
    assert!(world.is_empty(), "something is left of somebody");
    without_reports(&world.take_received(client))
}

/// Returns the output without the documents of `STATS REPORT`, which count bytes and turns of the loop.
fn without_reports(mut output: &[u8]) -> Vec<u8> {
    let find = |bytes: &[u8], mark: &[u8]| bytes.windows(mark.len()).position(|part| part == mark);
    let mut kept = Vec::new();
    while let Some(begin) = find(output, b"{\"version\":") {
        kept.extend_from_slice(&output[..begin]);
        output = &output[begin..];
        output = &output[find(output, b"\n\n").map_or(output.len(), |end| end + 2)..];
    }
    kept.extend_from_slice(output);
    kept
}
