//! Streams of bytes, cut into chunks, through the whole service.

use super::{Streams, some_bytes};
use crate::world::World;
use poolcounter_core::time::Span;
use poolcounter_counters::CountersSettings;
use poolcounter_service::container::AllSettings;

const INTERVAL: Span = Span::from_secs(10);

const STREAMS: Streams = Streams {
    service: "counters",
    begin: || {
        let counters =
            CountersSettings { buckets: 1024, interval: INTERVAL, max_memory: 1_000, ..CountersSettings::default() };
        World::with(AllSettings::defaults(poolcounter::SERVICES).with(counters))
    },
    // A hundred intervals.
    far_us: 1_000_000_000,
    say: some_bytes,
    linger: INTERVAL,
    // Counters stay until their interval is over.
    end: |world| world.advance(INTERVAL),
    shown: <[u8]>::to_vec,
};

/// Plays the input by several clients, and then sends it as the bytes of a single client.
pub fn run(data: &[u8]) {
    STREAMS.run(data);
}
