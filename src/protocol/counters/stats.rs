//! Statistics of the counters service: names, units and help.

use poolcounter_core::stats::statistics;

statistics! {
    /// Statistics of the counters service, with the names and the order of its Stats reply.
    CounterStat {
        Objects = "objects", Level, "Counters in memory.";
        TotalObjects = "total_objects", Count, "Counters ever created.", Named("objects_created");
        UsedMemory = "used_memory", Bytes, "Bytes of counters and holdings, as estimated for --counter-max-memory.";
        Conflicts = "conflicts", Count, "Comparisons of different names with equal hashes.";
        GcCount = "gc_count", Count, "Sweeps that removed the unused counters of a past interval.";
        LastGcElapsed = "last_gc_elapsed", Latest, "Duration of the last sweep.";
        TotalGcElapsed = "total_gc_elapsed", Duration, "Total duration of all sweeps.";
        CurrConnections = "curr_connections", Level, "Open connections.", Elsewhere;
        TotalConnections = "total_connections", Count, "Connections ever accepted.", Elsewhere;
        Noop = "command:noop", Count, "Noop requests.";
        Get = "command:get", Count, "Well-formed Get requests.";
        Acquire = "command:acquire", Count, "Well-formed Acquire requests.";
        Release = "command:release", Count, "Well-formed Release requests.";
        Stats = "command:stats", Count, "Stats requests.";
        Dump = "command:dump", Count, "Dump requests.";
    }
}
