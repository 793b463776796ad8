//! Statistics of the jobs. Names and order are those of beanstalkd's `stats`, on which exporters depend; those that
//! beanstalkd does not have come last.

use poolcounter_core::stats::statistics;

statistics! {
    /// The figures of the state machine. What the process and its connections count is added where `stats` is answered.
    Jobs {
        Urgent = "current-jobs-urgent", Level, "Ready jobs whose priority is below 1024.";
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
        TotalJobs = "total-jobs", Count, "Jobs that there ever were.";
        Tubes = "current-tubes", Level, "Tubes that have a job, or are used or watched by name.";
        Waiting = "current-waiting", Level, "Connections that wait in a reserve.";
        PutJob = "cmd-put-job", Count, "put-job commands.";
        PutMany = "cmd-put-many", Count, "put-many commands.";
        ReserveMany = "cmd-reserve-many", Count, "reserve-many commands.";
        ReserveJob = "cmd-reserve-job", Count, "reserve-job commands.";
        KickJob = "cmd-kick-job", Count, "kick-job commands.";
        Fail = "cmd-fail", Count, "fail commands.";
        Duplicates = "duplicates", Count, "Jobs that were not queued because their key waited already.";
        Superseded = "superseded", Count, "Leaves of superseded root jobs that were refused or dropped.";
        LostReservations = "lost-reservations", Count, "Reservations that ended because their connection was lost.";
        DeadLetters = "dead-letters", Count, "Jobs moved to a dead-letter tube.";
        UsedMemory = "used-memory", Level, "Bytes that jobs and root jobs take, as --jobs-max-memory reckons them.";
        Roots = "current-roots", Level, "Root jobs that are remembered.";
        Batches = "store-batches", Count, "Batches of changes handed to the store.";
        Changes = "store-changes", Count, "Changes in them.";
        Uncommitted = "store-uncommitted", Level, "Changes that are not committed yet.";
        UncommittedBytes = "store-uncommitted-bytes", Level, "About how many bytes these are.";
        OldestUncommitted = "store-oldest-uncommitted", Latest, "How long the oldest of them has waited.";
        LastBatch = "store-last-batch", Level, "Changes in the last batch that was committed.";
        FileBytes = "store-file-bytes", Level, "Bytes of the store's files.";
        Checkpoints = "store-checkpoints", Count, "How often the store's log was brought into its file.";
        Rewrites = "store-rewrites", Count, "How often the store was written anew.";
        Fault = "store-fault", Level, "1 while the store fails, else 0.";
        Owner = "store-owner", Level, "1 if this daemon serves the jobs of a store that several share, else 0.";
        Epoch = "store-epoch", Level, "The number of the take-over by which such a store has its owner.";
        Groups = "current-groups", Level, "Groups that some job belongs to.";
        OldestReady = "oldest-ready", Latest, "How long the ready job that is ready for longest has been so; 0 if none is.";
    }
}
