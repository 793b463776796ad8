//! Statistics of the members service, for each pool: names, units and help.

use self::MemberStat as Stat;
use poolcounter_core::stats::statistics;
use poolcounter_core::{Count, Figures, Histogram};
use serde::{Deserialize, Serialize};

statistics! {
    /// Statistics of a pool of members.
    MemberStat {
        Takes = "takes", Count, "Members handed out.";
        AtCapacity = "misses:at_capacity", Count, "Takes refused because the pool had its maximum of members and none was free.";
        Starting = "misses:starting", Count, "Takes refused while a start was under way.";
        NoProvider = "misses:no_provider", Count, "Takes refused because no provider could start a member.";
        QueueFull = "misses:queue_full", Count, "Takes refused because too many waited.";
        Limit = "misses:limit", Count, "Takes refused because the consumer held its maximum of members.";
        Timeout = "misses:timeout", Count, "Takes whose wait ran out.";
        MaxAge = "ended:max_age", Count, "Members culled because they were idle for too long.";
        MaxLifetime = "ended:max_lifetime", Count, "Members replaced because of their age.";
        MaxUses = "ended:max_uses", Count, "Members replaced because of the number of their takes.";
        Died = "ended:died", Count, "Members that died: DEAD, or a check that was not answered.";
        Failed = "ended:failed", Count, "Members returned as failed, lost with their consumer, or not cleaned in clean_attempts.";
        Reconfigured = "ended:reconfigured", Count, "Members stopped because their pool was made smaller, removed, or no longer has them.";
        HeldTooLong = "ended:held_too_long", Count, "Members taken back because they were held for too long.";
        ProviderLost = "ended:provider_lost", Count, "Members that were lost with their provider.";
        LeaseLost = "leases_ended:lost", Count, "Leases that ended with the connection of their holder.";
        LeaseExpired = "leases_ended:expired", Count, "Leases that ran out.";
        LeaseTakenBack = "leases_ended:taken_back", Count, "Leases that operators took back.";
        LeaseHeldTooLong = "leases_ended:held_too_long", Count, "Leases that ended after max_hold.";
        LeaseWithdrawn = "leases_ended:withdrawn", Count, "Leases that ended because their member was withdrawn or deleted.";
        LeaseDied = "leases_ended:died", Count, "Leases that ended because their member died.";
        LeaseProviderLost = "leases_ended:provider_lost", Count, "Leases that ended because the provider was lost.";
        LeaseRemoved = "leases_ended:removed", Count, "Leases that ended because their pool was removed.";
        StartsFailed = "starts_failed", Count, "Starts that failed, including late ones.";
        StartsLate = "starts_late", Count, "Starts that were not answered in time.";
        CleaningsFailed = "cleanings_failed", Count, "Cleanings that failed.";
        LongHolds = "long_holds", Count, "Members held for longer than warn_hold.";
    }
}

/// Statistics of takes without a member, by reason.
pub const MISSES: [MemberStat; 6] =
    [Stat::AtCapacity, Stat::Starting, Stat::NoProvider, Stat::QueueFull, Stat::Limit, Stat::Timeout];

/// Returns the number of takes without a member.
pub fn misses_of(figures: &Figures<MemberStat>) -> u64 {
    MISSES.iter().map(|stat| Count::from(figures.of(*stat))).sum::<Count>().get()
}

statistics! {
    /// Levels of all pools together.
    Levels {
        Connections = "connections", Level, "Open connections.";
        Pools = "pools", Level, "Pools.";
        Members = "members", Level, "Members.";
        InUse = "in_use", Level, "Members in use.";
        Free = "free", Level, "Members that are free or being checked.";
        Starting = "starting", Level, "Starts under way.";
        Stopping = "stopping", Level, "Members that are being stopped.";
        Cleaning = "cleaning", Level, "Members that are being cleaned, or wait for that.";
        Quarantined = "quarantined", Level, "Members in quarantine.";
        Waiting = "waiting", Level, "Waiting takes.";
        NotKept = "not_kept", Level, "1 while fixed members and tokens are not given out because they cannot be kept, else 0.";
    }
}

/// Durations in a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Times from a take that waited to its member.
    pub wait: Histogram,
    /// Times from a take to the end of its lease.
    pub hold: Histogram,
    /// Times from a start to its answer STARTED.
    pub start: Histogram,
    /// Times from a request to clean to its answer CLEANED.
    pub clean: Histogram,
}
