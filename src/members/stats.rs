//! What the members service counts, in each pool. It knows nothing of what happens there.

use poolcounter_core::count::Count;
use poolcounter_core::histogram::Histogram;
use poolcounter_core::stats::{Figures, statistics};
use serde::{Deserialize, Serialize};

statistics! {
    /// What is counted of a pool of members.
    MemberStat {
        Takes = "takes", Count, "Members handed out.";
        AtCapacity = "misses:at_capacity", Count, "Takes refused because the pool had as many members as it may have.";
        Starting = "misses:starting", Count, "Takes refused while a start was under way.";
        NoProvider = "misses:no_provider", Count, "Takes refused because there was no provider to start a member.";
        QueueFull = "misses:queue_full", Count, "Takes refused because too many waited.";
        Limit = "misses:limit", Count, "Takes refused because the consumer held as many members as it may hold.";
        Timeout = "misses:timeout", Count, "Takes whose wait ran out.";
        MaxAge = "ended:max_age", Count, "Members culled because they were idle for too long.";
        MaxLifetime = "ended:max_lifetime", Count, "Members replaced because of their age.";
        MaxUses = "ended:max_uses", Count, "Members replaced because of the number of their takes.";
        Died = "ended:died", Count, "Members that died: DEAD, or a check that was not answered.";
        Failed = "ended:failed", Count, "Members that were returned as failed, lost with their consumer, or not cleaned.";
        Reconfigured = "ended:reconfigured", Count, "Members stopped because their pool was made smaller, removed, or no longer has them.";
        HeldTooLong = "ended:held_too_long", Count, "Members taken back because they were held for too long.";
        ProviderLost = "ended:provider_lost", Count, "Members that were lost with their provider.";
        StartsFailed = "starts_failed", Count, "Starts that failed, late ones too.";
        StartsLate = "starts_late", Count, "Starts that were not answered in time.";
        LongHolds = "long_holds", Count, "Members held for longer than warn_hold.";
    }
}

/// Why takes had no member.
pub const MISSES: [MemberStat; 6] = [
    MemberStat::AtCapacity,
    MemberStat::Starting,
    MemberStat::NoProvider,
    MemberStat::QueueFull,
    MemberStat::Limit,
    MemberStat::Timeout,
];

/// Returns how many takes had no member.
pub fn misses_of(figures: &Figures<MemberStat>) -> u64 {
    MISSES.iter().map(|stat| Count::from(figures.of(*stat))).sum::<Count>().get()
}

statistics! {
    /// What there is, in all pools.
    Levels {
        Connections = "connections", Level, "Connections that there are.";
        Pools = "pools", Level, "Pools that there are.";
        Members = "members", Level, "Members that there are.";
        InUse = "in_use", Level, "Members that are held.";
        Free = "free", Level, "Members that are free or checked.";
        Starting = "starting", Level, "Starts under way.";
        Stopping = "stopping", Level, "Members that are being stopped.";
        Cleaning = "cleaning", Level, "Members that are cleaned or wait for it.";
        Quarantined = "quarantined", Level, "Members that are kept out.";
        Waiting = "waiting", Level, "Takes that wait.";
    }
}

/// How long things took in a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// From a take that waited to its member.
    pub wait: Histogram,
    /// From a take to the end of its lease.
    pub hold: Histogram,
    /// From a start to its answer STARTED.
    pub start: Histogram,
    /// From a request to clean to its answer CLEANED.
    pub clean: Histogram,
}
