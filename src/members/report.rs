//! Report of the members, as tables: the levels of the pools, and their events.

use super::Members;
use super::state::PoolReport;
use super::stats::{Levels, MemberStat as Stat, misses_of};
use poolcounter_core::text::escaped;
use poolcounter_core::{Figures, Time, top_keys};
use poolcounter_service::contract::{Observe, Peers, Traffic};
use poolcounter_service::report::{
    Cell, Column, ColumnUnit, Counted, Emphasis, Look, Report, Series, SeriesInfo, Table, View,
};

/// Most pools in a table: more than a page has room for, and few enough that a report of 65,536 pools is made quickly.
pub const MOST_ROWS: usize = 256;

/// Events in a pool, in the order of the columns: the statistic, its heading, and its emphasis.
const EVENTS: [(Stat, &str, Emphasis); 17] = [
    (Stat::AtCapacity, "full", Emphasis::None),
    (Stat::Starting, "starting", Emphasis::None),
    (Stat::NoProvider, "no provider", Emphasis::None),
    (Stat::QueueFull, "queue full", Emphasis::None),
    (Stat::Limit, "limit", Emphasis::None),
    (Stat::Timeout, "timeout", Emphasis::None),
    (Stat::MaxAge, "idle", Emphasis::None),
    (Stat::MaxLifetime, "old", Emphasis::None),
    (Stat::MaxUses, "used up", Emphasis::None),
    (Stat::Died, "died", Emphasis::Alarm),
    (Stat::Failed, "failed", Emphasis::Alarm),
    (Stat::Reconfigured, "reconfigured", Emphasis::None),
    (Stat::HeldTooLong, "held too long", Emphasis::Alarm),
    (Stat::ProviderLost, "provider lost", Emphasis::Alarm),
    (Stat::StartsFailed, "starts failed", Emphasis::Alarm),
    (Stat::StartsLate, "starts late", Emphasis::Alarm),
    (Stat::LongHolds, "long holds", Emphasis::Alarm),
];

/// Levels of a pool in the order of its figures, behind the maximum.
const LEVELS: [Levels; 6] =
    [Levels::InUse, Levels::Free, Levels::Starting, Levels::Stopping, Levels::Cleaning, Levels::Quarantined];

/// Names of the tables.
const STANDING: &str = "pools";
const HISTORY: &str = "events";
/// Word for the rows of tables, and label of the metrics.
const POOL: &str = "pool";

fn name_column() -> Column {
    Column::linked("name", "pool", "/members/pool/", "Name of the pool, as clients send it.").label(POOL)
}

pub(super) fn standing_table() -> Table {
    let columns = vec![
        name_column(),
        Column::new("group", "group", ColumnUnit::Name, "Group of the pool."),
        Column::level("max", "max", "pool_max", "Maximum number of members, by pool."),
        Column::of(Levels::InUse, POOL, "in use").marked(Emphasis::Work),
        Column::of(Levels::Free, POOL, "free"),
        Column::of(Levels::Starting, POOL, "starting"),
        Column::of(Levels::Stopping, POOL, "stopping"),
        Column::of(Levels::Cleaning, POOL, "cleaning"),
        Column::of(Levels::Quarantined, POOL, "kept out").marked(Emphasis::Alarm),
        Column::level("queued", "queued", "pool_queued", "Waiting takes, by pool.").marked(Emphasis::Caution),
        Column::of(Stat::Takes, POOL, "takes").marked(Emphasis::Work),
        Column::count("misses", "misses", "pool_misses", "Takes without a member, by pool.").marked(Emphasis::Caution),
        Column::times("wait", "pool_wait", "Waiting time of takes that had to wait, by pool."),
        Column::times("hold", "pool_hold", "Time for which members were held, by pool."),
    ];
    Table::new(STANDING, "Pools of members", columns)
        .help("Sorted by number of takes (in a time range: worst first).")
        .empty("No pools. A pool is declared in the configuration file, or with: poolcounter members pool POOL 0 MAX")
        .of_kinds()
}

pub(super) fn history_table() -> Table {
    let events = EVENTS.iter().map(|(stat, title, emphasis)| Column::of(*stat, POOL, title).marked(*emphasis));
    let times = [
        Column::times("start", "pool_start", "Duration of starts, by pool."),
        Column::times("clean", "pool_clean", "Duration of the cleaning of members, by pool."),
    ];
    let columns = [name_column()].into_iter().chain(events).chain(times).collect();
    Table::new(HISTORY, "Events in pools of members", columns)
        .help("Reasons of takes without a member, reasons of ends of members, and outcomes of starts.")
        .empty("")
        .of_kinds()
}

static IN_USE: SeriesInfo = SeriesInfo::level("in_use", "Members in use", "members", Emphasis::Work);
static WAITING: SeriesInfo = SeriesInfo::level("waiting", "Waiting takes", "takes", Emphasis::Caution);

impl Members {
    /// Returns the levels as they are now.
    fn levels(&self, traffic: &Traffic) -> Figures<Levels> {
        let mut levels = Figures::default();
        levels.set(Levels::Connections, traffic.open);
        let [pools, members, _, waiting] = self.state.totals();
        levels.set(Levels::Pools, pools);
        levels.set(Levels::Members, members);
        for of in self.state.pools_after(None).map(|row| row.figures) {
            for (level, (_, part)) in LEVELS.into_iter().zip(of.rows().into_iter().skip(1)) {
                levels.set(level, levels.of(level) + u64::from(part));
            }
        }
        levels.set(Levels::Waiting, waiting);
        levels.set(Levels::NotKept, self.keeping.fault().is_some().into());
        levels
    }

    /// Returns all pools, those with most takes first; none if there are more than rows, as the rows would change.
    fn followed(&self) -> Vec<PoolReport<'_>> {
        let [pools, ..] = self.state.totals();
        if pools > MOST_ROWS as u64 { Vec::new() } else { self.state.busiest(&|_| true, MOST_ROWS) }
    }
}

impl Observe for Members {
    fn look(&mut self, look: &mut Look<'_>) {
        self.note_conditions(look);
    }

    fn at_risk(&self) -> u64 {
        let [_, _, in_use, waiting] = self.state.totals();
        in_use + waiting
    }

    fn unhealthy_reason(&self) -> Option<&'static str> {
        self.keeping.is_unreadable().then_some("the members cannot be read")
    }

    /// Returns the figures, and tables of at most `MOST_ROWS` pools, whose names are cut to [`top_keys::KEY_BYTES`].
    fn report(&self, _: Time, traffic: &Traffic, _: &dyn Peers) -> Report {
        let figures = self.state.counted_in_all();
        let figures = self.levels(traffic).rows().chain(figures.rows()).collect();
        let pools = self.state.busiest(&|_| true, MOST_ROWS);
        let standing = standing_table().rows(pools.iter().map(standing_of));
        let tables = vec![standing, history_table().rows(pools.iter().map(history_of))];
        Report { figures, tables, ..Report::default() }
    }

    fn sample(&self, note: &mut dyn FnMut(Series)) {
        let [_, _, in_use, waiting] = self.state.totals();
        [(&IN_USE, in_use), (&WAITING, waiting)].into_iter().for_each(note);
    }

    fn view(&self, path: &[u8], now: Time, peers: &dyn Peers) -> Option<View> {
        self.view_of(path, now, peers)
    }

    fn sample_things(&self, _: Time, note: &mut dyn FnMut(&[u8], Series)) {
        for pool in self.followed() {
            let path = [b"pool/", escaped(pool.row.name).as_bytes()].concat();
            series_of(&pool).into_iter().for_each(|series| note(&path, series));
        }
    }

    fn tally(&self, note: &mut dyn FnMut(Counted<'_>)) {
        for PoolReport { row, figures, times, .. } in self.followed() {
            let name = top_keys::truncated(row.name);
            let counts = &[figures.of(Stat::Takes), misses_of(figures)];
            note(Counted { table: STANDING, name, counts, times: &[&times.wait, &times.hold] });
            let counts: Vec<u64> = EVENTS.iter().map(|(stat, ..)| figures.of(*stat)).collect();
            note(Counted { table: HISTORY, name, counts: &counts, times: &[&times.start, &times.clean] });
        }
    }
}

pub(super) fn series_of(pool: &PoolReport<'_>) -> [Series; 2] {
    let figures = pool.row.figures;
    [(&IN_USE, figures.in_use.into()), (&WAITING, figures.queued.into())]
}

pub(super) fn standing_of(pool: &PoolReport<'_>) -> Vec<Cell> {
    let PoolReport { row, figures, times, .. } = pool;
    let group = row.group.map_or(Cell::Nothing, name_of);
    // The last figure is the maximum of the queue.
    let levels = row.figures.rows().into_iter().take(8).map(|(_, level)| level.into());
    let counts = [figures.of(Stat::Takes), misses_of(figures)];
    let numbers = levels.chain(counts).map(Cell::Number);
    let times = [&times.wait, &times.hold].map(|times| Cell::times(times.clone()));
    [name_of(row.name), group].into_iter().chain(numbers).chain(times).collect()
}

pub(super) fn history_of(pool: &PoolReport<'_>) -> Vec<Cell> {
    let PoolReport { row, figures, times, .. } = pool;
    let counts = EVENTS.iter().map(|(stat, ..)| Cell::Number(figures.of(*stat)));
    let times = [&times.start, &times.clean].map(|times| Cell::times(times.clone()));
    std::iter::once(name_of(row.name)).chain(counts).chain(times).collect()
}

pub(super) fn name_of(name: &[u8]) -> Cell {
    Cell::text(top_keys::truncated(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_core::id::{ConnId, Id};
    use poolcounter_core::time::Span;
    use poolcounter_service::container::tests::report_after_lines;

    struct Here;

    impl Peers for Here {
        fn peer(&self, conn: ConnId) -> String {
            format!("peer{}", conn.index())
        }

        fn is_local(&self, _: ConnId) -> bool {
            true
        }
    }

    /// Sends a line on each connection, a second apart, and returns a report afterwards.
    fn report_after(lines: &[(usize, String)]) -> Report {
        let at = |n| Time::START + Span::from_secs(n as u64);
        let lines = lines.iter().enumerate().map(|(n, (conn, line))| (at(n), *conn, format!("{line}\n")));
        report_after_lines(&crate::INFO, lines, Time::START, &Traffic::default(), &Here)
    }

    fn cell<'a>(table: &'a Table, row: usize, name: &str) -> &'a Cell {
        let at = table.columns.iter().position(|column| column.name == name).expect("is a column");
        &table.rows[row][at]
    }

    #[test]
    fn a_report_tells_how_pools_stand_and_what_happened() {
        let lines = [
            (0, "POOL idle 0 1"),
            (0, "POOL a 0 3 group=g clean_timeout=9"),
            (1, "PROVIDE a"),
            (2, "TAKE a 9"),
            (1, "STARTED 1 m1 host=x"),
            (3, "TAKE a"),
            (1, "STARTED 2 m2"),
            (3, "TAKE a"),
            (4, "TAKE a 9"),
            // The clock is at 0, and so is the number of the first lease.
            (2, "RETURN 0"),
            (1, "CLEANED m1"),
            (1, "DEAD m1"),
        ];
        let report = report_after(&lines.map(|(conn, line)| (conn, line.to_string())));
        report.tables.iter().for_each(Table::check);
        let [standing, history] = &report.tables[..] else { panic!("{} tables", report.tables.len()) };
        assert_eq!((&*standing.name, &*history.name), ("pools", "events"));
        assert_eq!(cell(standing, 0, "name"), &Cell::text("a"));
        assert_eq!(cell(standing, 0, "group"), &Cell::text("g"));
        assert_eq!(cell(standing, 1, "name"), &Cell::text("idle"));
        assert_eq!(cell(standing, 1, "group"), &Cell::Nothing);
        let number = |table, name| match cell(table, 0, name) {
            Cell::Number(number) => *number,
            other => panic!("{name}: {other:?}"),
        };
        let standing_now = ["max", "in_use", "free", "starting", "stopping", "cleaning", "queued", "takes", "misses"];
        assert_eq!(standing_now.map(|name| number(standing, name)), [3, 1, 0, 1, 0, 0, 0, 3, 1]);
        let events = ["starting", "at_capacity", "died", "failed", "starts_failed"];
        assert_eq!(events.map(|name| number(history, name)), [1, 0, 1, 0, 0]);
        let recorded = |table, name| match cell(table, 0, name) {
            Cell::Times(times) => times.all.as_ref().map_or(0, poolcounter_core::histogram::Histogram::count),
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!([recorded(standing, "wait"), recorded(standing, "hold")], [2, 2]);
        assert_eq!([recorded(history, "start"), recorded(history, "clean")], [2, 1]);
    }

    #[test]
    fn a_report_has_a_bound() {
        let pools = (0..MOST_ROWS + 9).map(|n| (0, format!("POOL p{n:03}{} 0 1", "x".repeat(200))));
        let busy = format!("TAKE p{:03}{}", MOST_ROWS + 8, "x".repeat(200));
        let report = report_after(&pools.chain([(0, busy)]).collect::<Vec<_>>());
        for table in &report.tables {
            assert_eq!(table.rows.len(), MOST_ROWS);
        }
        assert!(matches!(cell(&report.tables[0], 0, "name"), Cell::Text(name) if name.starts_with("p264")));
        assert!(matches!(cell(&report.tables[0], 1, "name"), Cell::Text(name) if name.starts_with("p000")));
    }
}
