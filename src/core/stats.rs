//! Statistics of a service: one table per service, which its code, its replies, metrics and the manual's test all read.
//! Each table is in the directory of its service; this module has the macro that makes it.

use crate::count::Count;
use crate::time::Span;
use std::fmt;
use std::marker::PhantomData;

/// One statistic of a service's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Name on the wire.
    pub name: &'static str,
    /// Unit of the value, and its format.
    pub unit: Unit,
    /// A sentence for people.
    pub help: &'static str,
    /// Name of the metric.
    pub metric: Metric,
}

/// Name of a statistic's metric: `poolcounter_`, its service, this, and a suffix for its unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Metric {
    /// Its own name, with `_` between words and without the words of the suffix: `total`, `time` and `count`.
    Derived,
    /// Another name, because a metric has its own name already.
    Named(&'static str),
    /// None: every service has a metric for that.
    Elsewhere,
}

/// Unit of a statistic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// Microseconds since the server started.
    Uptime,
    /// Sum of durations in microseconds.
    Duration,
    /// Duration in microseconds, as it is now or was lately.
    Latest,
    /// Number that only grows.
    Count,
    /// Number as it is now.
    Level,
    /// Number of bytes as it is now.
    Bytes,
}

impl Unit {
    /// Returns whether a value is a number of microseconds.
    pub fn is_time(self) -> bool {
        matches!(self, Unit::Uptime | Unit::Duration | Unit::Latest)
    }

    /// Returns whether a value only grows.
    pub fn is_counter(self) -> bool {
        matches!(self, Unit::Duration | Unit::Count)
    }
}

/// Statistics of one service's table.
pub trait Stat: Copy + 'static {
    /// Every statistic of the service, in the order in which they are printed.
    const ALL: &'static [Self];

    /// Returns the statistic's position in that order.
    fn index(self) -> usize;

    /// Returns its name, unit and help.
    fn row(self) -> &'static Row;
}

/// Values of one service's table.
#[derive(Clone, PartialEq, Eq)]
pub struct Figures<S> {
    values: Vec<Count>,
    table: PhantomData<S>,
}

impl<S: Stat> Default for Figures<S> {
    fn default() -> Self {
        Figures { values: vec![Count::default(); S::ALL.len()], table: PhantomData }
    }
}

impl<S: Stat> Figures<S> {
    /// Counts one more event.
    pub fn count(&mut self, stat: S) {
        self.values[stat.index()].bump();
    }

    /// Counts `number` more events.
    pub fn count_many(&mut self, stat: S, number: u64) {
        self.values[stat.index()] += number;
    }

    /// Adds a duration.
    pub fn add(&mut self, stat: S, span: Span) {
        self.values[stat.index()] += span.as_micros();
    }

    /// Adds all values of other figures.
    pub fn merge(&mut self, other: &Figures<S>) {
        self.values.iter_mut().zip(&other.values).for_each(|(value, more)| *value += *more);
    }

    /// Sets a value that is counted elsewhere.
    pub fn set(&mut self, stat: S, value: u64) {
        self.values[stat.index()] = value.into();
    }

    /// Returns a value: a number, or microseconds.
    pub fn of(&self, stat: S) -> u64 {
        self.values[stat.index()].get()
    }

    /// Returns the values by name, so that they can be restored to a table with other rows.
    pub fn save(&self) -> Vec<(String, u64)> {
        self.rows().map(|(row, value)| (row.name.into(), value)).collect()
    }

    /// Restores saved values; statistics that were not saved keep theirs.
    pub fn restore(&mut self, saved: &[(String, u64)]) {
        for (value, stat) in self.values.iter_mut().zip(S::ALL) {
            let same = |(name, _): &&(String, u64)| name == stat.row().name;
            *value = saved.iter().find(same).map_or(*value, |(_, value)| Count::from(*value));
        }
    }

    /// Returns every row of the table with its value, in order.
    pub fn rows(&self) -> impl Iterator<Item = (&'static Row, u64)> {
        S::ALL.iter().map(|stat| stat.row()).zip(self.values.iter().map(|value| value.get()))
    }
}

impl<S: Stat> fmt::Debug for Figures<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.rows().map(|(row, value)| (row.name, value))).finish()
    }
}

/// Declares the statistics of a service: an enum and its table. A fourth item in a line is its [`Metric`], if that is
/// not derived.
#[macro_export]
macro_rules! statistics {
    ($(#[$doc:meta])* $name:ident { $($stat:ident = $text:literal, $unit:ident, $help:literal $(, $metric:expr)?;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $(#[doc = $help] $stat,)* }

        impl $crate::stats::Stat for $name {
            const ALL: &'static [$name] = &[$($name::$stat,)*];

            fn index(self) -> usize {
                self as usize
            }

            fn row(self) -> &'static $crate::stats::Row {
                #[allow(unused_imports, reason = "some tables name no metric")]
                use $crate::stats::Metric::*;
                match self {
                    $($name::$stat => {
                        const METRIC: $crate::stats::Metric = [$($metric,)? Derived][0];
                        &$crate::stats::Row { name: $text, unit: $crate::stats::Unit::$unit, help: $help, metric: METRIC }
                    })*
                }
            }
        }
    };
}
pub use statistics;

#[cfg(test)]
mod tests {
    use super::*;

    statistics! {
        /// A table.
        Sums {
            Gained = "gained time", Duration, "A sum.";
            Bare = "bare", Count, "A number.", Named("dressed");
        }
    }

    #[test]
    fn line_may_name_its_metric() {
        assert_eq!(
            Sums::ALL.iter().map(|stat| stat.row().metric).collect::<Vec<_>>(),
            [Metric::Derived, Metric::Named("dressed")]
        );
    }

    /// The waits of many clients add up faster than time passes, and no sum may end the process.
    #[test]
    fn sum_stays_at_its_end() {
        let mut figures: Figures<Sums> = Figures::default();
        figures.add(Sums::Gained, Span::from_micros(u64::MAX - 1));
        assert_eq!(figures.of(Sums::Gained), u64::MAX - 1);
        figures.add(Sums::Gained, Span::from_secs(1));
        assert_eq!(figures.of(Sums::Gained), u64::MAX);
    }
}
