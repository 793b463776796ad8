//! Streams of bytes, cut into chunks, through the whole service.

use super::{Streams, some_bytes};
use crate::world::World;
use poolcounter_core::time::Span;
use poolcounter_pools::PoolsSettings;

const STREAMS: Streams = Streams {
    service: "pools",
    begin: || World::new(PoolsSettings { max_line: 64, ..PoolsSettings::default() }),
    far_us: u64::MAX,
    say: some_bytes,
    linger: Span::from_secs(6),
    end: |_| {},
    shown: without_reports,
};

/// Plays the input by several clients, and then sends it as the bytes of a single client.
pub fn run(data: &[u8]) {
    STREAMS.run(data);
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
