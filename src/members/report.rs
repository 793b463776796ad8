//! What the members tell operators, as tables: how the pools stand, and what happened in them.

use super::Members;
use super::state::{MemberRow, PoolReport};
use super::stats::{Levels, MemberStat as Stat, misses_of};
use poolcounter_core::stats::Figures;
use poolcounter_core::text::{title_of, unescaped};
use poolcounter_core::time::Time;
use poolcounter_core::top_keys;
use poolcounter_service::contract::{Peers, Traffic};
use poolcounter_service::health::quoted;
use poolcounter_service::report::{
    Cell, Column, ColumnMetric, ColumnUnit, Counted, Emphasis, Report, Series, SeriesInfo, Table, TableInfo, View,
};
use std::sync::LazyLock;

/// How many pools are told of: more than a page has room for, and few enough that a report of 65,536 pools is made quickly.
pub const MOST_ROWS: usize = 256;

/// How many members of one pool are told of.
const MOST_MEMBERS: usize = 200;

/// Events in a pool, in the order of the columns: the statistic, its heading, and how much it matters.
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

/// Word for the rows of tables, and label of the metrics.
const POOL: &str = "pool";

const NAME: Column = Column {
    name: "name",
    title: "pool",
    unit: ColumnUnit::Linked("/members/pool/"),
    help: "The name of the pool, in the bytes of clients.",
    metric: ColumnMetric::Label(POOL),
    emphasis: Emphasis::None,
};

static STANDING: LazyLock<TableInfo> = LazyLock::new(|| TableInfo {
    name: "pools",
    title: "Pools of members",
    help: "Those with the most takes come first, or of a range the worst.",
    empty: "There is no pool.",
    is_of_kinds: true,
    columns: Column::kept(vec![
        NAME,
        Column {
            name: "group",
            title: "group",
            unit: ColumnUnit::Name,
            help: "The group of the pool.",
            ..Column::BLANK
        },
        Column::level("max", "max", "pool_max", "Members that there may be, by pool."),
        Column::of(Levels::InUse, POOL, "in use", Emphasis::Work),
        Column::of(Levels::Free, POOL, "free", Emphasis::None),
        Column::of(Levels::Starting, POOL, "starting", Emphasis::None),
        Column::of(Levels::Stopping, POOL, "stopping", Emphasis::None),
        Column::of(Levels::Cleaning, POOL, "cleaning", Emphasis::None),
        Column::of(Levels::Quarantined, POOL, "kept out", Emphasis::Alarm),
        Column {
            emphasis: Emphasis::Caution,
            ..Column::level("queued", "queued", "pool_queued", "Takes that wait, by pool.")
        },
        Column::of(Stat::Takes, POOL, "takes", Emphasis::Work),
        Column {
            emphasis: Emphasis::Caution,
            ..Column::count("misses", "misses", "pool_misses", "Takes that had no member, by pool.")
        },
        Column::times("wait", "pool_wait", "How long takes waited that waited for their member, by pool."),
        Column::times("hold", "pool_hold", "How long members were held, by pool."),
    ]),
});

static HISTORY: LazyLock<TableInfo> = LazyLock::new(|| {
    let events = EVENTS.iter().map(|(stat, title, emphasis)| Column::of(*stat, POOL, title, *emphasis));
    let times = [
        Column::times("start", "pool_start", "How long starts took, by pool."),
        Column::times("clean", "pool_clean", "How long it took to clean members, by pool."),
    ];
    TableInfo {
        name: "events",
        title: "What happened in the pools of members",
        help: "Why takes had no member, why members ended, and how starts went.",
        empty: "There is no pool.",
        is_of_kinds: true,
        columns: Column::kept([NAME].into_iter().chain(events).chain(times).collect()),
    }
});

static MEMBERS: TableInfo = TableInfo {
    name: "members",
    title: "Members",
    help: "",
    empty: "The pool has no member.",
    is_of_kinds: false,
    columns: &[
        Column { name: "name", title: "member", unit: ColumnUnit::Name, help: "Its name.", ..Column::BLANK },
        Column { name: "state", title: "state", unit: ColumnUnit::Text, help: "What it does.", ..Column::BLANK },
        Column { name: "holder", title: "holder", unit: ColumnUnit::Text, help: "Who holds it.", ..Column::BLANK },
        Column {
            name: "age",
            title: "age",
            unit: ColumnUnit::Age,
            help: "How long there has been such a member.",
            ..Column::BLANK
        },
        Column {
            name: "idle",
            title: "idle",
            unit: ColumnUnit::Age,
            help: "How long it has not been in use.",
            ..Column::BLANK
        },
        Column {
            name: "uses",
            title: "uses",
            unit: ColumnUnit::Level,
            help: "How often it was taken.",
            ..Column::BLANK
        },
    ],
};

static IN_USE: SeriesInfo =
    SeriesInfo { name: "in_use", title: "Members in use", unit: "members", is_rate: false, emphasis: Emphasis::Work };
static WAITING: SeriesInfo = SeriesInfo {
    name: "waiting",
    title: "Takes that wait",
    unit: "takes",
    is_rate: false,
    emphasis: Emphasis::Caution,
};

impl Members {
    /// Returns the values that are remembered for curves.
    pub(super) fn series(&self) -> [Series; 2] {
        [(&IN_USE, self.state.in_use() as u64), (&WAITING, self.state.waiting() as u64)]
    }

    /// What was counted, and the levels as they are now.
    pub(super) fn levels(&self, traffic: &Traffic) -> Figures<Levels> {
        let mut levels = Figures::default();
        levels.set(Levels::Connections, traffic.open);
        let (members, pools) = self.state.len();
        levels.set(Levels::Pools, pools as u64);
        levels.set(Levels::Members, members as u64);
        let mut all = [0; 6];
        for of in self.state.pools_after(None).map(|row| row.figures) {
            let parts = [of.in_use, of.free, of.starting, of.stopping, of.cleaning, of.quarantined];
            all.iter_mut().zip(parts).for_each(|(sum, part)| *sum += u64::from(part));
        }
        let [in_use, free, starting, stopping, cleaning, quarantined] = all;
        levels.set(Levels::InUse, in_use);
        levels.set(Levels::Free, free);
        levels.set(Levels::Starting, starting);
        levels.set(Levels::Stopping, stopping);
        levels.set(Levels::Cleaning, cleaning);
        levels.set(Levels::Quarantined, quarantined);
        levels.set(Levels::Waiting, self.state.waiting() as u64);
        levels
    }

    /// Returns what there is to tell of one pool, `pool/NAME`, in text as it is shown elsewhere.
    pub(super) fn view_of(&self, path: &[u8], now: Time, peers: &dyn Peers) -> Option<View> {
        let name = path.strip_prefix(b"pool/")?;
        let name = str::from_utf8(name).map_or_else(|_| name.to_vec(), unescaped);
        let pool = self.state.report_of_name(&name).ok()?;
        let members = self.state.members_after(&name, None, now, |conn| peers.peer(conn)).ok()?;
        let rows: Vec<Vec<Cell>> = members.take(MOST_MEMBERS).map(|row| row_of_member(&row)).collect();
        let note = (rows.len() == MOST_MEMBERS).then(|| format!("The first {MOST_MEMBERS} by name are told of."));
        let tables = vec![
            Table { info: &STANDING, rows: vec![standing_of(&pool)], note: None },
            Table { info: &MEMBERS, rows, note },
            Table { info: &HISTORY, rows: vec![history_of(&pool)], note: None },
        ];
        let title = title_of("Pool", &name);
        let command = |words: &str, behind: &str| quoted(&name).map(|pool| format!("members {words}{pool}{behind}"));
        let commands = [command("", ""), command("", " --waiting"), command("repair ", " MEMBER")];
        let commands = commands.into_iter().flatten().collect();
        Some(View { title, report: Report { tables, ..Report::default() }, commands, ..View::default() })
    }

    /// Notes what was counted in each pool; nothing if not all pools are told of, as others would come and go among these.
    pub(super) fn tally_pools(&self, note: &mut dyn FnMut(Counted<'_>)) {
        if self.state.len().1 > MOST_ROWS {
            return;
        }
        for PoolReport { row, figures, times } in self.state.busiest(MOST_ROWS) {
            let name = top_keys::truncated(row.name);
            let counts = &[figures.of(Stat::Takes), misses_of(figures)];
            note(Counted { table: STANDING.name, name, counts, times: &[&times.wait, &times.hold] });
            let counts: Vec<u64> = EVENTS.iter().map(|(stat, ..)| figures.of(*stat)).collect();
            note(Counted { table: HISTORY.name, name, counts: &counts, times: &[&times.start, &times.clean] });
        }
    }

    /// Returns the pools as they are now, and what happened in them: of [`MOST_ROWS`] pools at most, whose names are cut to
    /// [`top_keys::KEY_BYTES`].
    pub(super) fn tables(&self) -> Vec<Table> {
        let pools = self.state.busiest(MOST_ROWS);
        vec![
            Table { info: &STANDING, rows: pools.iter().map(standing_of).collect(), note: None },
            Table { info: &HISTORY, rows: pools.iter().map(history_of).collect(), note: None },
        ]
    }
}

fn row_of_member(row: &MemberRow<'_>) -> Vec<Cell> {
    let holder = if row.holder == "-" { Cell::Nothing } else { Cell::Text(row.holder.clone()) };
    let [age, idle] = [row.age, row.idle].map(Cell::Time);
    vec![name_of(row.name), Cell::Text(row.state.into()), holder, age, idle, Cell::Number(row.uses.into())]
}

fn standing_of(pool: &PoolReport<'_>) -> Vec<Cell> {
    let PoolReport { row, figures, times } = pool;
    let group = row.group.map_or(Cell::Nothing, name_of);
    let of = row.figures;
    let levels =
        [of.max, of.in_use, of.free, of.starting, of.stopping, of.cleaning, of.quarantined, of.queued].map(u64::from);
    let counts = [figures.of(Stat::Takes), misses_of(figures)];
    let numbers = levels.into_iter().chain(counts).map(Cell::Number);
    let times = [&times.wait, &times.hold].map(|times| Cell::Times(times.clone()));
    [name_of(row.name), group].into_iter().chain(numbers).chain(times).collect()
}

fn history_of(pool: &PoolReport<'_>) -> Vec<Cell> {
    let PoolReport { row, figures, times } = pool;
    let counts = EVENTS.iter().map(|(stat, ..)| Cell::Number(figures.of(*stat)));
    let times = [&times.start, &times.clean].map(|times| Cell::Times(times.clone()));
    std::iter::once(name_of(row.name)).chain(counts).chain(times).collect()
}

fn name_of(name: &[u8]) -> Cell {
    Cell::Name(top_keys::truncated(name).into())
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

    /// Has connections say a line each, a second apart, and reports afterwards.
    fn report_after(lines: &[(usize, String)]) -> Report {
        let at = |n| Time::START + Span::from_secs(n as u64);
        let lines = lines.iter().enumerate().map(|(n, (conn, line))| (at(n), *conn, format!("{line}\n")));
        report_after_lines(&crate::INFO, lines, Time::START, &Traffic::default(), &Here)
    }

    fn cell<'a>(table: &'a Table, row: usize, name: &str) -> &'a Cell {
        let at = table.info.columns.iter().position(|column| column.name == name).expect("is a column");
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
            (1, "ADD a m2"),
            (3, "TAKE a"),
            (3, "TAKE a"),
            (4, "TAKE a 9"),
            // The clock stands at 0, and so does the number of the first lease.
            (2, "RETURN 0"),
            (1, "CLEANED m1"),
            (1, "DEAD m1"),
        ];
        let report = report_after(&lines.map(|(conn, line)| (conn, line.to_string())));
        report.tables.iter().for_each(Table::check);
        let [standing, history] = &report.tables[..] else { panic!("{} tables", report.tables.len()) };
        assert_eq!((standing.info.name, history.info.name), ("pools", "events"));
        assert_eq!(cell(standing, 0, "name"), &Cell::Name(b"a".into()));
        assert_eq!(cell(standing, 0, "group"), &Cell::Name(b"g".into()));
        assert_eq!(cell(standing, 1, "name"), &Cell::Name(b"idle".into()));
        assert_eq!(cell(standing, 1, "group"), &Cell::Nothing);
        let number = |table, name| match cell(table, 0, name) {
            Cell::Number(number) => *number,
            other => panic!("{name}: {other:?}"),
        };
        let standing_now = ["max", "in_use", "free", "starting", "stopping", "cleaning", "queued", "takes", "misses"];
        assert_eq!(standing_now.map(|name| number(standing, name)), [3, 1, 0, 2, 0, 0, 0, 3, 1]);
        let events = ["starting", "at_capacity", "died", "failed", "starts_failed"];
        assert_eq!(events.map(|name| number(history, name)), [1, 0, 1, 0, 0]);
        let recorded = |table, name| match cell(table, 0, name) {
            Cell::Times(times) => times.count(),
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!([recorded(standing, "wait"), recorded(standing, "hold")], [2, 2]);
        assert_eq!([recorded(history, "start"), recorded(history, "clean")], [1, 1]);
    }

    #[test]
    fn a_report_has_a_bound() {
        let pools = (0..MOST_ROWS + 9).map(|n| (0, format!("POOL p{n:03}{} 0 1", "x".repeat(200))));
        let busy = format!("TAKE p{:03}{}", MOST_ROWS + 8, "x".repeat(200));
        let report = report_after(&pools.chain([(0, busy)]).collect::<Vec<_>>());
        for table in &report.tables {
            assert_eq!(table.rows.len(), MOST_ROWS);
        }
        assert!(matches!(cell(&report.tables[0], 0, "name"), Cell::Name(name) if name.starts_with(b"p264")));
        assert!(matches!(cell(&report.tables[0], 1, "name"), Cell::Name(name) if name.starts_with(b"p000")));
    }
}
