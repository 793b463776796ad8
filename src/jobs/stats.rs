//! Statistics of the jobs. Names and order are the same as in beanstalkd's `stats`, on which exporters depend;
//! statistics that beanstalkd does not have come last.

use poolcounter_core::stats::statistics;

statistics! {
    /// Figures of the state machine. Figures of the process and its connections are added in the answer to `stats`.
    Jobs {
        Urgent = "current-jobs-urgent", Level, "Ready jobs with a priority number below 1024.";
        Ready = "current-jobs-ready", Level, "Jobs that wait for a runner.";
        Reserved = "current-jobs-reserved", Level, "Jobs that runners hold.";
        Delayed = "current-jobs-delayed", Level, "Jobs whose delay is not over.";
        Buried = "current-jobs-buried", Level, "Jobs that wait for a kick.";
        Put = "cmd-put", Count, "Jobs put, with or without options.";
        Peek = "cmd-peek", Count, "peek commands.";
        PeekReady = "cmd-peek-ready", Count, "peek-ready commands.";
        PeekDelayed = "cmd-peek-delayed", Count, "peek-delayed commands.";
        PeekBuried = "cmd-peek-buried", Count, "peek-buried commands.";
        Reserve = "cmd-reserve", Count, "reserve commands.";
        ReserveWithTimeout = "cmd-reserve-with-timeout", Count, "reserve-with-timeout commands.";
        Delete = "cmd-delete", Count, "delete commands.";
        Release = "cmd-release", Count, "release commands.";
        Use = "cmd-use", Count, "use commands.";
        Watch = "cmd-watch", Count, "watch commands.";
        Ignore = "cmd-ignore", Count, "ignore commands.";
        Bury = "cmd-bury", Count, "bury commands.";
        Kick = "cmd-kick", Count, "kick commands.";
        Touch = "cmd-touch", Count, "touch commands.";
        Stats = "cmd-stats", Count, "stats commands.";
        StatsJob = "cmd-stats-job", Count, "stats-job commands.";
        StatsTube = "cmd-stats-tube", Count, "stats-tube commands.";
        ListTubes = "cmd-list-tubes", Count, "list-tubes commands.";
        ListTubeUsed = "cmd-list-tube-used", Count, "list-tube-used commands.";
        ListTubesWatched = "cmd-list-tubes-watched", Count, "list-tubes-watched commands.";
        PauseTube = "cmd-pause-tube", Count, "pause-tube commands.";
        Timeouts = "job-timeouts", Count, "Reservations whose TTR ran out.";
        TotalJobs = "total-jobs", Count, "Jobs ever created.";
        Tubes = "current-tubes", Level, "Tubes that have a job, or are used or watched by name.";
        Waiting = "current-waiting", Level, "Connections that wait in a reserve.";
        PutJob = "cmd-put-job", Count, "put-job commands.";
        PutMany = "cmd-put-many", Count, "put-many commands.";
        ReserveMany = "cmd-reserve-many", Count, "reserve-many commands.";
        ReserveJob = "cmd-reserve-job", Count, "reserve-job commands.";
        KickJob = "cmd-kick-job", Count, "kick-job commands.";
        Fail = "cmd-fail", Count, "fail commands.";
        Duplicates = "duplicates", Count, "Jobs that were not queued because a job with their key waited already.";
        Superseded = "superseded", Count, "Leaves of superseded root jobs that were refused or dropped.";
        LostReservations = "lost-reservations", Count, "Reservations that ended because their connection was lost.";
        DeadLetters = "dead-letters", Count, "Jobs moved to a dead-letter tube.";
        UsedMemory = "used-memory", Level, "Bytes of jobs, root jobs, tubes, groups, settings and connections, as estimated for --jobs-max-memory.";
        Roots = "current-roots", Level, "Root jobs in memory.";
        Batches = "store-batches", Count, "Batches of changes handed to the store.";
        Changes = "store-changes", Count, "Changes in these batches.";
        Uncommitted = "store-uncommitted", Level, "Changes that are not committed yet.";
        UncommittedBytes = "store-uncommitted-bytes", Level, "Approximate size of the uncommitted changes, in bytes.";
        OldestUncommitted = "store-oldest-uncommitted", Latest, "Time for which the oldest uncommitted change has waited.";
        LastBatch = "store-last-batch", Level, "Changes in the last batch that was committed.";
        FileBytes = "store-file-bytes", Level, "Bytes of the store's files.";
        Checkpoints = "store-checkpoints", Count, "Checkpoints: moves of the store's log into its file.";
        Rewrites = "store-rewrites", Count, "Times that the whole store was written anew.";
        Fault = "store-fault", Level, "1 while the store fails, else 0.";
        Owner = "store-owner", Level, "1 if this daemon serves the jobs of a store that several share, else 0.";
        Epoch = "store-epoch", Level, "Number of the take-over by which the owner of a shared store became it.";
        Groups = "current-groups", Level, "Groups that have a job.";
        Retrying = "current-jobs-retrying", Level, "Delayed jobs that have failed and wait for their next attempt.";
        Expired = "expired", Count, "Jobs deleted because they were buried for longer than --jobs-bury-ttl.";
        OldestReady = "oldest-ready", Latest, "Time for which the oldest ready job has been ready; 0 if none is.";
        KeptKeys = "current-kept-keys", Level, "Keys that are kept for a time, whatever becomes of their jobs.";
    }
}
