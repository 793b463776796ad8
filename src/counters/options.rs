//! Options of the counters: limits of their memory, and the time for which they are kept.

use poolcounter_core::Span;
use poolcounter_service::options::{Endpoint, Opt, assign, listening, number, option_table};

/// Settings of the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CountersSettings {
    /// Number of counters for which room is made when the first one is created.
    pub buckets: usize,
    /// Length of an interval. Intervals begin at whole multiples of it since 1970.
    pub interval: Span,
    /// Most bytes of counters and holdings: [`super::COUNTER_BYTES`] and [`super::HOLDING_BYTES`] each, and the names.
    pub max_memory: u64,
    /// Refused requests in a minute beyond which there is a condition.
    pub warn_refusals: u64,
}

impl Default for CountersSettings {
    fn default() -> Self {
        let interval = Span::from_secs(86_400);
        CountersSettings { buckets: 1_000_000, interval, max_memory: 1 << 30, warn_refusals: 1 }
    }
}

/// Listening options of the counters.
pub const LISTENING: &[Opt<Endpoint>] = listening!(
    "counter",
    "counters",
    port 11215,
    "Serve the yrmcds counter protocol too. See SERVICES in poolcounter(8)."
);

/// The other options.
pub const OPTIONS: &[Opt<CountersSettings>] = option_table!(CountersSettings;
    "--counter-buckets N",
        "Initial size of the table of counters, which grows when needed (default: 1000000). The table is made for N \
         counters when the first one is created; 1000000 take about 10 megabytes.",
        |settings, value| assign(&mut settings.buckets, number(value, 1..=100_000_000)),
        in_file("counter.buckets", "1000000");
    => Opt {
        // The key that yrmcds really reads.
        aliases: &["counter.stat_interval"],
        ..Opt::<CountersSettings>::new(
            "--counter-stats-interval SECONDS",
            "Length of an interval: time for which an unused counter and its maximum are kept, at least 10 (default: \
             86400). Intervals are counted from 1970. A counter without holders is forgotten at the end of the interval \
             in which it was last used, or earlier if the memory is needed, the one longest unused first. The maximum \
             of a counter is that of one interval.",
            |settings, value| assign(&mut settings.interval, number(value, 10..=1_000_000_000).map(Span::from_secs)),
        )
        .in_file("counter.stats_interval", "86400")
    };
    "--counter-max-memory MEGABYTES",
        "Maximum memory of counters; above it, requests are answered OutOfMemory (default: 1024). The memory is \
         estimated as 64 bytes plus the name for each counter, and 32 bytes for each holding. Counters without holders \
         are forgotten first when more is needed.",
        |settings, value| {
            let bytes = number(value, 1..=1_000_000).map(|megabytes: u64| megabytes << 20);
            assign(&mut settings.max_memory, bytes)
        }, in_file("counter.max_memory", "1024");
    "--counter-warn-refusals N",
        "Number of refused requests in a minute above which the status warns (default: 1). Only requests count that \
         were refused because the maximum was in use.",
        |settings, value| assign(&mut settings.warn_refusals, number(value, 0..=u64::MAX)),
        in_file("counter.warn_refusals", "1");
);
