//! Streams of bytes, cut into chunks, through the whole members service.

use super::{Streams, some_bytes};
use crate::world::World;
use poolcounter_core::time::Span;
use poolcounter_counters::CountersSettings;
use poolcounter_members::MembersSettings;
use poolcounter_service::container::AllSettings;

const STREAMS: Streams = Streams {
    service: "members",
    begin: || {
        let members = MembersSettings { most: 64, admin: Some(true), ..MembersSettings::default() };
        let counters = CountersSettings { buckets: 16, ..CountersSettings::default() };
        World::with(AllSettings::defaults(poolcounter::SERVICES).with(members).with(counters))
    },
    // Culling goes on as long as time does.
    far_us: 100_000_000,
    say: some_bytes,
    linger: Span::from_secs(6),
    end: |_| {},
    shown: <[u8]>::to_vec,
};

/// Plays the input by several clients, and then sends it as the bytes of a single client.
pub fn run(data: &[u8]) {
    STREAMS.run(data);
}
