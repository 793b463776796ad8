//! The options of the counters: how many there may be, and how long they are remembered.

use crate::options::{Endpoint, Opt, assign, listening, number};
use crate::time::Span;

/// What the options of the counters say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CountersSettings {
    /// For how many counters room is made when the first one comes.
    pub buckets: usize,
    /// The length of an interval. Intervals begin at whole multiples of it since 1970.
    pub interval: Span,
    /// How many bytes counters and holdings may take, reckoned as [`super::COUNTER_BYTES`] and [`super::HOLDING_BYTES`] each,
    /// and the names.
    pub max_memory: u64,
}

impl Default for CountersSettings {
    fn default() -> Self {
        CountersSettings { buckets: 1_000_000, interval: Span::from_secs(86_400), max_memory: 1 << 30 }
    }
}

/// Where the counters listen.
pub const LISTENING: &[Opt<Endpoint>] =
    listening!("counter", "counters", port 11215, "serve the yrmcds counter protocol too");

/// The other options.
pub const OPTIONS: &[Opt<CountersSettings>] = &[
    Opt {
        long: "counter-buckets",
        key: "counter.buckets",
        hint: "N",
        help: "counters for which there is room from the start; there can be more (default: 1000000)",
        set: |settings, value| assign(&mut settings.buckets, number(value, 1..=100_000_000)),
        ..Opt::BLANK
    },
    Opt {
        long: "counter-stats-interval",
        key: "counter.stats_interval",
        // What yrmcds really reads.
        aliases: &["counter.stat_interval"],
        hint: "SECONDS",
        help: "how long an unused counter and its maximum are remembered, at least 10 (default: 86400)",
        set: |settings, value| {
            let interval = number(value, 10..=1_000_000_000).map(Span::from_secs);
            assign(&mut settings.interval, interval)
        },
        ..Opt::BLANK
    },
    Opt {
        long: "counter-max-memory",
        key: "counter.max_memory",
        hint: "MEGABYTES",
        help: "what counters may take; beyond that they are OutOfMemory (default: 1024)",
        set: |settings, value| {
            let bytes = number(value, 1..=1_000_000).map(|megabytes: u64| megabytes << 20);
            assign(&mut settings.max_memory, bytes)
        },
        ..Opt::BLANK
    },
];
