//! Statistics of the pools service: names, units and help.

use poolcounter_core::stats::statistics;

statistics! {
    /// Statistics of the pools service, with the names and the order of `STATS FULL`, on which exporters depend.
    PoolStat {
        Uptime = "uptime", Uptime, "Time since the server started.", Elsewhere;
        ProcessingTime = "total processing time", Duration, "Time from LOCKED to the release, summed over all locks released.";
        AverageProcessingTime = "average processing time", Latest, "Total processing time divided by processed_count.";
        GainedTime = "gained time", Duration, "Work saved by DONE: for each waiter that got DONE, the time for which the releaser had held the lock.";
        WaitingTime = "waiting time", Duration, "Time spent in waits that ended in LOCKED.";
        WaitingTimeForMe = "waiting time for me", Duration, "Part of the waiting time spent by ACQ4ME requests.";
        WaitingTimeForAnyone = "waiting time for anyone", Duration, "Part of the waiting time spent by ACQ4ANY requests.";
        WaitingTimeForGood = "waiting time for good", Duration, "Time spent in waits that ended in DONE.";
        WastedTimeoutTime = "wasted timeout time", Duration, "Time spent in waits that ended in TIMEOUT.";
        TotalAcquired = "total_acquired", Count, "Locks granted.";
        TotalReleases = "total_releases", Count, "RELEASED replies: locks given back and waits withdrawn on request.";
        HashtableEntries = "hashtable_entries", Level, "Keys with a holder or a waiter.";
        ProcessingWorkers = "processing_workers", Level, "Locks held.";
        WaitingWorkers = "waiting_workers", Level, "Requests that wait for a lock.";
        ConnectErrors = "connect_errors", Count, "Connections that were refused, or lost before they were served.", Elsewhere;
        FailedSends = "failed_sends", Count, "Replies that could not be delivered.", Elsewhere;
        FullQueues = "full_queues", Count, "QUEUE_FULL replies.";
        LockMismatch = "lock_mismatch", Count, "LOCK_HELD replies.";
        LockWhileWaiting = "lock_while_waiting", Count, "ERROR WAIT_FOR_RESPONSE replies.";
        ReleaseMismatch = "release_mismatch", Count, "NOT_LOCKED replies.";
        ProcessedCount = "processed_count", Count, "Locks given back: released, lost with their connection, or taken back when their hold ended.";
        TakenBack = "taken_back", Count, "Locks taken back earlier than their clients asked for, by max_hold or the hold of a ceiling.";
        LostLocks = "lost_locks", Count, "Locks that ended with their connection: the holder died, gave up, or lost the lock to an operator.";
        ExpiredHolds = "expired_holds", Count, "Locks that ended because their hold was over, by hold=, max_hold or a ceiling.";
        GivenUpWaits = "given_up_waits", Count, "Waits that clients gave up, by RELEASE or the end of their connections.";
        KeptLocks = "kept_locks", Level, "Locks whose holders have ended, kept for the rest of their least time (keep=).";
        KeptTooMany = "kept_too_many", Count, "Kept locks that ended early because all kept locks together took too much memory.";
    }
}

/// Number of leading statistics in `STATS FULL`: exporters depend on its lines.
pub const IN_FULL: usize = PoolStat::TakenBack as usize;
