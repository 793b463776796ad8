//! What a service counts: one table per service, which the code, the `STATS` replies and the manual's test all read.

use crate::time::Span;
use std::fmt;
use std::marker::PhantomData;

/// One line of a service's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The name on the wire.
    pub name: &'static str,
    /// What the value means, and how it is printed.
    pub unit: Unit,
    /// One sentence for people.
    pub help: &'static str,
}

/// What a statistic's value means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Microseconds since the server started.
    Uptime,
    /// A duration in microseconds, of which more and more come together.
    Duration,
    /// A duration in microseconds, as it is now or was lately.
    Latest,
    /// A number that only grows.
    Count,
    /// A number as it is now.
    Level,
}

/// A statistic of one service's table.
pub trait Stat: Copy + 'static {
    /// Every statistic of the service, in the order in which they are printed.
    const ALL: &'static [Self];

    /// The statistic's place in that order.
    fn index(self) -> usize;

    /// Its name, unit and help.
    fn row(self) -> &'static Row;
}

/// The values of one service's table.
#[derive(Clone, PartialEq, Eq)]
pub struct Figures<S> {
    values: Vec<u64>,
    table: PhantomData<S>,
}

impl<S: Stat> Default for Figures<S> {
    fn default() -> Self {
        Figures { values: vec![0; S::ALL.len()], table: PhantomData }
    }
}

impl<S: Stat> Figures<S> {
    /// One more of something.
    pub fn count(&mut self, stat: S) {
        self.values[stat.index()] += 1;
    }

    /// A duration more. A sum that reaches its end, after half a million years of many clients together, stays there.
    pub fn add(&mut self, stat: S, span: Span) {
        let value = &mut self.values[stat.index()];
        *value = value.saturating_add(span.as_micros());
    }

    /// Adds all of what was counted elsewhere.
    pub fn merge(&mut self, other: &Figures<S>) {
        self.values.iter_mut().zip(&other.values).for_each(|(value, more)| *value = value.saturating_add(*more));
    }

    /// Sets a value that is known from elsewhere.
    pub fn set(&mut self, stat: S, value: u64) {
        self.values[stat.index()] = value;
    }

    /// A value: a number, or microseconds.
    pub fn of(&self, stat: S) -> u64 {
        self.values[stat.index()]
    }

    /// What was counted, by name, so that it can be restored where the table has other rows.
    pub fn save(&self) -> Vec<(String, u64)> {
        self.rows().map(|(row, value)| (row.name.into(), value)).collect()
    }

    /// Goes on from what was saved.
    pub fn restore(&mut self, saved: &[(String, u64)]) {
        for (value, stat) in self.values.iter_mut().zip(S::ALL) {
            let same = |(name, _): &&(String, u64)| name == stat.row().name;
            *value = saved.iter().find(same).map_or(*value, |(_, value)| *value);
        }
    }

    /// Every line of the table with its value, in order.
    pub fn rows(&self) -> impl Iterator<Item = (&'static Row, u64)> {
        S::ALL.iter().map(|stat| stat.row()).zip(self.values.iter().copied())
    }
}

impl<S: Stat> fmt::Debug for Figures<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.rows().map(|(row, value)| (row.name, value))).finish()
    }
}

/// Declares the statistics of a service: an enum and its table.
macro_rules! statistics {
    ($(#[$doc:meta])* $name:ident { $($stat:ident = $text:literal, $unit:ident, $help:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $(#[doc = $help] $stat,)* }

        impl $crate::stats::Stat for $name {
            const ALL: &'static [$name] = &[$($name::$stat,)*];

            fn index(self) -> usize {
                self as usize
            }

            fn row(self) -> &'static $crate::stats::Row {
                match self {
                    $($name::$stat => &$crate::stats::Row { name: $text, unit: $crate::stats::Unit::$unit, help: $help },)*
                }
            }
        }
    };
}
pub(crate) use statistics;

statistics! {
    /// What the pools service counts. Names and order are those of `STATS FULL`, on which exporters depend.
    Pools {
        Uptime = "uptime", Uptime, "Time since the server started.";
        ProcessingTime = "total processing time", Duration, "Time from LOCKED to the giving back, summed over all locks given back.";
        AverageProcessingTime = "average processing time", Latest, "The total processing time divided by processed_count.";
        GainedTime = "gained time", Duration, "Work that waiters sent DONE did not have to do: for each, how long the releaser had been working.";
        WaitingTime = "waiting time", Duration, "Time spent in waits that ended in LOCKED.";
        WaitingTimeForMe = "waiting time for me", Duration, "The part of the waiting time that ACQ4ME requests spent.";
        WaitingTimeForAnyone = "waiting time for anyone", Duration, "The part of the waiting time that ACQ4ANY requests spent.";
        WaitingTimeForGood = "waiting time for good", Duration, "Time spent in waits that ended in DONE.";
        WastedTimeoutTime = "wasted timeout time", Duration, "Time spent in waits that ended in TIMEOUT.";
        TotalAcquired = "total_acquired", Count, "Locks granted.";
        TotalReleases = "total_releases", Count, "RELEASED replies: locks given back and waits withdrawn on request.";
        HashtableEntries = "hashtable_entries", Level, "Keys that somebody holds or waits for.";
        ProcessingWorkers = "processing_workers", Level, "Locks held.";
        WaitingWorkers = "waiting_workers", Level, "Requests that wait for a lock.";
        ConnectErrors = "connect_errors", Count, "Connections that could not be accepted or served.";
        FailedSends = "failed_sends", Count, "Replies that could not be delivered.";
        FullQueues = "full_queues", Count, "QUEUE_FULL replies.";
        LockMismatch = "lock_mismatch", Count, "LOCK_HELD replies.";
        LockWhileWaiting = "lock_while_waiting", Count, "ERROR WAIT_FOR_RESPONSE replies.";
        ReleaseMismatch = "release_mismatch", Count, "NOT_LOCKED replies.";
        ProcessedCount = "processed_count", Count, "Locks given back: released, lost with their connection, or taken back when their hold ended.";
    }
}

statistics! {
    /// What the counters service counts. Names and order are those of its Stats reply.
    Counters {
        Objects = "objects", Level, "Counters that there are.";
        TotalObjects = "total_objects", Count, "Counters that there ever were.";
        UsedMemory = "used_memory", Level, "Bytes that counters and holdings take, as --counter-max-memory reckons them.";
        Conflicts = "conflicts", Count, "Names that were compared in vain because their hashes were alike.";
        GcCount = "gc_count", Count, "How often the counters of a past interval were swept out.";
        LastGcElapsed = "last_gc_elapsed", Latest, "How long that took the last time.";
        TotalGcElapsed = "total_gc_elapsed", Duration, "How long that took altogether.";
        CurrConnections = "curr_connections", Level, "Connections that there are.";
        TotalConnections = "total_connections", Count, "Connections that there ever were.";
        Noop = "command:noop", Count, "Noop requests.";
        Get = "command:get", Count, "Get requests that were well-formed.";
        Acquire = "command:acquire", Count, "Acquire requests that were well-formed.";
        Release = "command:release", Count, "Release requests that were well-formed.";
        Stats = "command:stats", Count, "Stats requests.";
        Dump = "command:dump", Count, "Dump requests.";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waiters together gain more time than passes, and no sum may end the process.
    #[test]
    fn a_sum_stays_at_its_end() {
        let mut figures: Figures<Pools> = Figures::default();
        figures.add(Pools::GainedTime, Span::from_micros(u64::MAX - 1));
        assert_eq!(figures.of(Pools::GainedTime), u64::MAX - 1);
        figures.add(Pools::GainedTime, Span::from_secs(1));
        assert_eq!(figures.of(Pools::GainedTime), u64::MAX);
    }
}
