//! The options of the counters: how many there may be, and how long they are remembered.

use poolcounter_core::time::Span;
use poolcounter_service::options::{Endpoint, Opt, assign, listening, number};

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
    /// Refused requests in a minute beyond which there is a condition.
    pub warn_refusals: u64,
}

impl Default for CountersSettings {
    fn default() -> Self {
        CountersSettings {
            buckets: 1_000_000,
            interval: Span::from_secs(86_400),
            max_memory: 1 << 30,
            warn_refusals: 1,
        }
    }
}

/// Where the counters listen.
pub const LISTENING: &[Opt<Endpoint>] = listening!(
    "counter",
    "counters",
    port 11215,
    "serve the yrmcds counter protocol too",
    "Serve the yrmcds counter protocol too; see\n.Sx COUNTERS ."
);

/// The other options.
pub const OPTIONS: &[Opt<CountersSettings>] = &[
    Opt {
        long: "counter-buckets",
        key: "counter.buckets",
        default: "1000000",
        hint: "N",
        doc_short: "counters for which there is room from the start; there can be more (default: 1000000)",
        doc_long: "
            Make room in the table for
            .Ar n
            counters when the first one comes.
            There can be more: then the table grows.
            The default is 1000000, about 10 megabytes.",
        set: |settings, value| assign(&mut settings.buckets, number(value, 1..=100_000_000)),
        ..Opt::BLANK
    },
    Opt {
        long: "counter-stats-interval",
        key: "counter.stats_interval",
        default: "86400",
        // What yrmcds really reads.
        aliases: &["counter.stat_interval"],
        hint: "SECONDS",
        doc_short: "how long an unused counter and its maximum are remembered, at least 10 (default: 86400)",
        doc_long: "
            How long a counter that nobody holds is remembered, and over how long its maximum is taken: until the end of an interval of so
            many seconds, counted from 1970, or until the memory is needed; the one longest unused is forgotten first.
            At least 10; the default is 86400.",
        set: |settings, value| {
            let interval = number(value, 10..=1_000_000_000).map(Span::from_secs);
            assign(&mut settings.interval, interval)
        },
        ..Opt::BLANK
    },
    Opt {
        long: "counter-max-memory",
        key: "counter.max_memory",
        default: "1024",
        hint: "MEGABYTES",
        doc_short: "what counters may take; beyond that they are OutOfMemory (default: 1024)",
        doc_long: "
            Memory of counters, estimated as 64 bytes plus the name per counter, and 32 bytes per holding.
            Counters that nobody holds are forgotten when more is needed; beyond that, requests that need more are answered with
            .Li OutOfMemory .
            The default is 1024.",
        set: |settings, value| {
            let bytes = number(value, 1..=1_000_000).map(|megabytes: u64| megabytes << 20);
            assign(&mut settings.max_memory, bytes)
        },
        ..Opt::BLANK
    },
    Opt {
        long: "counter-warn-refusals",
        key: "counter.warn_refusals",
        default: "1",
        hint: "N",
        doc_short: "requests refused in a minute beyond which the status warns (default: 1)",
        doc_long: "
            The status warns when more requests than this were refused in the last minute because the maximum was in use.
            The default is 1.",
        set: |settings, value| assign(&mut settings.warn_refusals, number(value, 0..=u64::MAX)),
        ..Opt::BLANK
    },
];
