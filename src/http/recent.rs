//! Counts of the last minute, five minutes and hour: marks of totals at some ages, and the totals now. Marks are taken
//! when the loop runs anyway; without events nothing was counted.

use poolcounter_core::text::visible;
use poolcounter_core::{Histogram, Span, Time};
use poolcounter_service::report::{Cell, Column, Counted, Emphasis, NAME_BYTES, ServiceReport, Table, Times};
use poolcounter_service::shown::{ShownRecent, Text};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Recent period that the page can show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// Name in addresses.
    pub name: &'static str,
    /// Name for people, after "the last".
    pub title: &'static str,
    pub span: Span,
}

/// All ranges, in the order of [`Recent`].
pub const RANGES: [Range; 3] = [
    Range { name: "1m", title: "minute", span: Span::from_secs(60) },
    Range { name: "5m", title: "5 minutes", span: Span::from_secs(300) },
    Range { name: "1h", title: "hour", span: Span::from_secs(3600) },
];

/// Number of marks in a range, which is thus up to a fifteenth longer than its name says, and of points in a curve.
const POINTS: u64 = 15;
/// Number of rows of a table with curves: the rows that are not folded.
const CURVES: usize = 20;

/// Period of a table, with the names of its service and its own.
pub type RecentOf = (&'static str, Text, ShownRecent);

/// Shortest part of a curve that is shown, in seconds.
const SHORTEST_PART: f64 = 2.0;

/// Marks of totals, for each range.
#[derive(Default)]
pub struct Recent([Marks; RANGES.len()]);

/// Marks of one range, oldest first, and the time of the next.
#[derive(Default)]
struct Marks {
    next: Time,
    marks: VecDeque<Mark>,
}

/// Totals at one time. Ranges share marks taken at the same time.
#[derive(Clone)]
struct Mark {
    at: Time,
    /// Serialised [`Row`]s one after the other, to save memory.
    rows: Arc<[u8]>,
}

/// Totals of one row of a table. The times are [`Histogram`]s, deserialised only on demand.
#[derive(Serialize, Deserialize)]
struct Row<'a> {
    service: &'a str,
    table: &'a str,
    /// Name as it is shown.
    name: &'a str,
    counts: Vec<u64>,
    times: &'a [u8],
}

/// Mark with its rows, as far as readable.
struct ReadMark<'a> {
    at: Time,
    rows: Vec<Row<'a>>,
}

impl Recent {
    /// Records the totals if a mark is due, and returns the time of the next. `tell` is called for each row, with the
    /// name of its service.
    pub fn note(&mut self, now: Time, tell: impl Fn(&mut dyn FnMut(&'static str, Counted<'_>))) -> Time {
        let mut taken: Option<Arc<[u8]>> = None;
        for (marks, range) in self.0.iter_mut().zip(RANGES) {
            if now >= marks.next {
                let rows = taken.get_or_insert_with(|| rows_of(&tell));
                marks.push(now, range.interval(), rows);
            }
        }
        self.0.iter().map(|marks| marks.next).min().unwrap_or(Time::NEVER)
    }

    /// Restricts the tables to a range, as far as it is recorded, with the worst rows first. Returns the periods of
    /// these tables, with curves for the first rows.
    pub fn narrow(
        &self,
        range: Range,
        now: Time,
        services: &mut [ServiceReport],
        tell: impl Fn(&mut dyn FnMut(&'static str, Counted<'_>)),
    ) -> Vec<RecentOf> {
        let place = RANGES.iter().position(|other| *other == range).unwrap_or(0);
        let marks = self.0[place].since(now, range);
        let Some(base) = marks.first() else { return Vec::new() };
        let mut tallied = BTreeSet::new();
        tell(&mut |service, counted| {
            tallied.insert((service, counted.table.to_string()));
        });
        let mut narrowed = Vec::new();
        for ServiceReport { name: service, report, .. } in services {
            for table in report.tables.iter_mut().filter(|table| tallied.contains(&(*service, table.name.to_string())))
            {
                table.rows.iter_mut().enumerate().for_each(|(n, row)| {
                    if let Some(before) = base.find(service, &table.name, row, n) {
                        subtract(table.columns.iter().zip(row), before);
                    }
                });
                sort_worst_first(table);
                let curves = curves_of(service, table, &marks, now);
                let seconds = seconds(now.since(base.at));
                narrowed.push((*service, table.name.clone(), ShownRecent { seconds, curves }));
            }
        }
        narrowed
    }
}

impl Range {
    /// Returns the range of this name.
    pub fn named(name: &str) -> Option<Range> {
        RANGES.into_iter().find(|range| range.name == name)
    }

    /// Returns the number of values in the range at this interval.
    pub fn points(self, interval: Span) -> usize {
        // Lossless: an hour has few.
        (self.span.as_micros() / interval.as_micros()) as usize
    }

    /// Returns the time between two marks.
    fn interval(self) -> Span {
        Span::from_micros(self.span.as_micros() / POINTS)
    }
}

impl Marks {
    /// Adds a mark for each time at which one was due: nothing was counted between them.
    fn push(&mut self, now: Time, interval: Span, rows: &Arc<[u8]>) {
        // The totals before the first mark are unknown.
        if self.marks.is_empty() {
            self.next = now;
        }
        let due = 1 + now.since(self.next).as_micros() / interval.as_micros();
        let at = |n: u64| self.next + Span::from_micros(n.saturating_mul(interval.as_micros()));
        // One more than there are points, for the start of the first point, and one for the point in progress.
        let most = POINTS as usize + 2;
        self.marks.extend((due.saturating_sub(most as u64)..due).map(|n| Mark { at: at(n), rows: Arc::clone(rows) }));
        self.marks.drain(..self.marks.len().saturating_sub(most));
        self.next = at(due);
    }

    /// Returns the marks since the start of the range, or all if they start later.
    fn since(&self, now: Time, range: Range) -> Vec<ReadMark<'_>> {
        let first = self.marks.iter().rposition(|mark| mark.at + range.span <= now).unwrap_or(0);
        self.marks.iter().skip(first).map(ReadMark::of).collect()
    }
}

impl<'a> ReadMark<'a> {
    fn of(mark: &'a Mark) -> Self {
        let mut rest = &mark.rows[..];
        let rows = std::iter::from_fn(|| {
            let (row, behind) = postcard::take_from_bytes(rest).ok()?;
            rest = behind;
            Some(row)
        });
        ReadMark { at: mark.at, rows: rows.collect() }
    }

    /// Returns the totals of a row in a mark; None if it was not there. `place` is the index to try first.
    fn find(&self, service: &str, table: &str, row: &[Cell], place: usize) -> Option<&Row<'a>> {
        let Some(Cell::Text(name)) = row.first() else { return None };
        let is_it = |row: &&Row<'_>| row.service == service && row.table == table && row.name == name;
        self.rows.get(place).filter(is_it).or_else(|| self.rows.iter().find(is_it))
    }
}

/// Returns the serialised rows of a mark.
fn rows_of(tell: &impl Fn(&mut dyn FnMut(&'static str, Counted<'_>))) -> Arc<[u8]> {
    let mut bytes = Vec::new();
    let plain = "plain values are written into a vector";
    tell(&mut |service, Counted { table, name, counts, times }| {
        let times = &postcard::to_allocvec(times).expect(plain);
        let row = Row { service, table, name: &visible(name, NAME_BYTES), counts: counts.into(), times };
        bytes = postcard::to_extend(&row, std::mem::take(&mut bytes)).expect(plain);
    });
    bytes.into()
}

/// Subtracts earlier totals from the cells of a row.
fn subtract<'a>(cells: impl Iterator<Item = (&'a Column, &'a mut Cell)>, before: &Row<'_>) {
    let mut counts = before.counts.iter();
    let mut times = postcard::from_bytes::<Vec<Histogram>>(before.times).unwrap_or_default().into_iter();
    for (column, cell) in cells {
        match cell {
            Cell::Number(number) if column.is_counter => {
                *number = number.saturating_sub(counts.next().copied().unwrap_or(0));
            }
            Cell::Times(Times { all: Some(all), .. }) => {
                *cell = Cell::times(all.since(&times.next().unwrap_or_default()));
            }
            _ => {}
        }
    }
}

/// Returns the sum of the numbers of a row in the included columns.
fn sum_of(row: &[Cell], columns: &[Column], include: impl Fn(&Column) -> bool) -> u64 {
    let cells = row.iter().zip(columns).filter(|(_, column)| include(column));
    cells.map(|(cell, _)| if let Cell::Number(number) = cell { *number } else { 0 }).fold(0, u64::saturating_add)
}

/// Sorts the rows with most trouble first, then the rows with most work.
fn sort_worst_first(table: &mut Table) {
    let columns = &table.columns;
    let size = |row: &[Cell], emphasis| sum_of(row, columns, |column| column.emphasis == emphasis);
    let all = [Emphasis::Alarm, Emphasis::Caution, Emphasis::Work];
    // By orders of magnitude, so that most rows keep their place from one view to the next.
    let key = |row: &[Cell]| Reverse(all.map(|emphasis| size(row, emphasis).saturating_add(1).ilog2()));
    let name = |row: &[Cell]| if let Some(Cell::Text(name)) = row.first() { name.clone() } else { String::new() };
    table.rows.sort_by_cached_key(|row| (key(row), name(row)));
}

/// Returns for the first rows the work done and refused per second, from one mark to the next.
fn curves_of(service: &str, table: &Table, marks: &[ReadMark<'_>], now: Time) -> Vec<[Vec<f64>; 2]> {
    let columns = &table.columns;
    let counted: Vec<Emphasis> =
        columns.iter().filter(|column| column.is_counter).map(|column| column.emphasis).collect();
    let at = |row: &[Cell], emphasis: Emphasis, mark: &ReadMark<'_>| -> u64 {
        let counts = mark.find(service, &table.name, row, 0).map_or(&[][..], |before| &before.counts);
        let counts = counts.iter().zip(&counted).filter(|(_, own)| **own == emphasis);
        counts.fold(0, |sum, (count, _)| sum.saturating_add(*count))
    };
    let times = marks.iter().map(|mark| mark.at).chain([now]).map(|at| seconds(at.since(Time::START)));
    let times: Vec<f64> = times.collect();
    let curve = |row: &[Cell], emphasis: Emphasis| {
        let mut values: Vec<u64> = marks.iter().map(|mark| at(row, emphasis, mark)).collect();
        let since = sum_of(row, columns, |column| column.emphasis == emphasis && column.is_counter);
        values.push(values[0].saturating_add(since));
        rates(&values, &times)
    };
    let rows = table.rows.iter().take(CURVES);
    rows.map(|row| [Emphasis::Work, Emphasis::Alarm].map(|emphasis| curve(row, emphasis))).collect()
}

/// Returns the growth of a value per second between these times, without parts that are too short to be meaningful.
fn rates(values: &[u64], times: &[f64]) -> Vec<f64> {
    let pairs = values.windows(2).zip(times.windows(2)).filter(|(_, times)| times[1] - times[0] >= SHORTEST_PART);
    let rate = |(values, times): (&[u64], &[f64])| values[1].saturating_sub(values[0]) as f64 / (times[1] - times[0]);
    pairs.map(|pair| (rate(pair) * 100.0).round() / 100.0).collect()
}

fn seconds(span: Span) -> f64 {
    span.as_micros() as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_service::contract::Traffic;
    use poolcounter_service::report::{ColumnUnit, Report};
    use std::cell::RefCell;

    fn table() -> Table {
        let count = || Column { is_counter: true, ..Column::new("", "", ColumnUnit::Number, "") };
        let columns = vec![
            Column::new("", "", ColumnUnit::Name, ""),
            count().marked(Emphasis::Work),
            count().marked(Emphasis::Alarm),
            Column::new("", "", ColumnUnit::Times, ""),
        ];
        Table::new("table", "", columns)
    }

    /// Names with the numbers of work done, refusals and durations; the period in seconds; a curve.
    type Narrowed = (Vec<(u8, u64, u64, u64)>, f64, Vec<f64>);

    /// Totals of two rows.
    #[derive(Default)]
    struct Counts(RefCell<[(u64, u64, Histogram); 2]>);

    impl Counts {
        fn add(&self, row: usize, work: u64, refused: u64, took: Span) {
            let mut counts = self.0.borrow_mut();
            counts[row].0 += work;
            counts[row].1 += refused;
            counts[row].2.record(took);
        }

        fn tell(&self, note: &mut dyn FnMut(&'static str, Counted<'_>)) {
            for ((work, refused, times), name) in self.0.borrow().iter().zip([b"a", b"b"]) {
                note("one", Counted { table: "table", name, counts: &[*work, *refused], times: &[times] });
            }
        }

        /// Returns the names of the rows with their work done, refusals and number of durations, the period in seconds,
        /// and the curve of refusals of the first row.
        fn narrowed(&self, recent: &Recent, range: &str, s: u64) -> Narrowed {
            let row = |((work, refused, times), name): (&(u64, u64, Histogram), _)| {
                vec![Cell::text([name]), Cell::Number(*work), Cell::Number(*refused), Cell::times(times.clone())]
            };
            let table = table().rows(self.0.borrow().iter().zip([b'a', b'b']).map(row));
            let report = Report { tables: vec![table], ..Report::default() };
            let mut services = [ServiceReport {
                name: "one",
                title: "",
                option: "",
                traffic: Traffic::default(),
                is_enabled: true,
                report,
            }];
            let range = Range::named(range).expect("is one");
            let narrowed = recent.narrow(range, at(s), &mut services, |note| self.tell(note));
            let [(_, _, shown)] = &narrowed[..] else { panic!("one table") };
            let rows = services[0].report.tables[0].rows.iter().map(|row| match &row[..] {
                [
                    Cell::Text(name),
                    Cell::Number(work),
                    Cell::Number(refused),
                    Cell::Times(Times { all: Some(times), .. }),
                ] => (name.as_bytes()[0], *work, *refused, times.count()),
                other => panic!("{other:?}"),
            });
            (rows.collect(), shown.seconds, shown.curves[0][1].clone())
        }
    }

    fn at(s: u64) -> Time {
        Time::START + Span::from_secs(s)
    }

    #[test]
    fn only_recent_counts_are_shown() {
        let (mut recent, counts) = (Recent::default(), Counts::default());
        counts.add(0, 1_000, 500, Span::from_secs(9));
        for s in 0..=400 {
            recent.note(at(s), |note| counts.tell(note));
            counts.add(0, 1, 0, Span::from_millis(1));
            if s >= 390 {
                counts.add(1, 0, 2, Span::from_millis(1));
            }
        }
        let (rows, seconds, curve) = counts.narrowed(&recent, "1m", 400);
        assert_eq!((rows, seconds), (vec![(b'b', 0, 22, 11), (b'a', 61, 0, 61)], 60.0), "the worst comes first");
        assert_eq!((curve.len(), curve[0], curve[14]), (15, 0.0, 2.0));
        let (rows, seconds, _) = counts.narrowed(&recent, "5m", 400);
        assert_eq!((rows[1], seconds), ((b'a', 301, 0, 301), 300.0));
        let (rows, seconds, _) = counts.narrowed(&recent, "1h", 400);
        assert_eq!((rows[1], seconds), ((b'a', 401, 0, 401), 400.0), "what was before the first mark is not known");
    }

    /// Without events the loop does not wake up.
    #[test]
    fn silence_is_known_afterwards() {
        let (mut recent, counts) = (Recent::default(), Counts::default());
        assert_eq!(recent.note(at(0), |note| counts.tell(note)), at(4));
        counts.add(0, 7, 0, Span::ZERO);
        assert!(recent.note(at(100_000), |note| counts.tell(note)) > at(100_000));
        counts.add(0, 1, 0, Span::ZERO);
        for range in ["1m", "5m", "1h"] {
            assert_eq!(counts.narrowed(&recent, range, 100_001).0[0].1, 1, "{range}");
        }
    }
}
