//! What the counters service counts. It knows nothing of what happens there.

use poolcounter_core::stats::statistics;

statistics! {
    /// What the counters service counts. Names and order are those of its Stats reply.
    CounterStat {
        Objects = "objects", Level, "Counters that there are.";
        TotalObjects = "total_objects", Count, "Counters that there ever were.", Named("objects_created");
        UsedMemory = "used_memory", Bytes, "Bytes that counters and holdings take, as --counter-max-memory reckons them.";
        Conflicts = "conflicts", Count, "Names that were compared in vain because their hashes were alike.";
        GcCount = "gc_count", Count, "How often the counters of a past interval were swept out.";
        LastGcElapsed = "last_gc_elapsed", Latest, "How long that took the last time.";
        TotalGcElapsed = "total_gc_elapsed", Duration, "How long that took altogether.";
        CurrConnections = "curr_connections", Level, "Connections that there are.", Elsewhere;
        TotalConnections = "total_connections", Count, "Connections that there ever were.", Elsewhere;
        Noop = "command:noop", Count, "Noop requests.";
        Get = "command:get", Count, "Get requests that were well-formed.";
        Acquire = "command:acquire", Count, "Acquire requests that were well-formed.";
        Release = "command:release", Count, "Release requests that were well-formed.";
        Stats = "command:stats", Count, "Stats requests.";
        Dump = "command:dump", Count, "Dump requests.";
    }
}
