//! What the pools tell operators, as tables and series.

use super::PoolsService;
use super::state::CeilingInUse;
use super::stats::PoolStat as Stat;
use crate::report::{Cell, Column, ColumnMetric, ColumnUnit, Emphasis, Series, SeriesInfo, Table, TableInfo};
use crate::service::Peers;
use crate::time::{Span, Time};
use crate::top_keys;

/// How many keys or holders a list of the report has at most.
pub const MOST_ROWS: usize = 20;

const KEY: Column = Column {
    name: "key",
    title: "key",
    unit: ColumnUnit::Name,
    help: "The key, in the bytes of clients.",
    ..Column::BLANK
};
const WORKING: Column =
    Column { name: "working", title: "working", unit: ColumnUnit::Level, help: "Locks held.", ..Column::BLANK };
const WAITING: Column = Column {
    name: "waiting",
    title: "waiting",
    unit: ColumnUnit::Level,
    help: "Requests that wait.",
    emphasis: Emphasis::Caution,
    ..Column::BLANK
};

static TYPES: TableInfo = TableInfo {
    name: "types",
    title: "Types of work",
    help: "",
    empty: "Nobody has asked for a lock yet.",
    columns: &[
        Column {
            name: "name",
            title: "type",
            help: "What stands before the first colon of a key; other for all that came when there were too many.",
            metric: ColumnMetric::Label("type"),
            ..KEY
        },
        Column { emphasis: Emphasis::Work, ..count("acquired", "type_acquired", "Locks granted, by type of work.") },
        Column { help: "Locks held, by type of work.", metric: ColumnMetric::Each("type_working"), ..WORKING },
        Column { help: "Requests that wait, by type of work.", metric: ColumnMetric::Each("type_waiting"), ..WAITING },
        count("done", "type_done", "Waits that ended in DONE, by type of work."),
        Column { emphasis: Emphasis::Alarm, ..count("full", "type_full", "QUEUE_FULL replies, by type of work.") },
        Column {
            emphasis: Emphasis::Caution,
            ..count("timeouts", "type_timeouts", "TIMEOUT replies, by type of work.")
        },
        times("wait", "How long requests waited that waited at all, by type of work."),
        times("hold", "How long locks were held, by type of work."),
    ],
};

static BUSIEST: TableInfo = TableInfo {
    name: "busiest",
    title: "Busiest keys now",
    help: "",
    empty: "Nobody holds or waits for a lock.",
    columns: &[
        KEY,
        WORKING,
        WAITING,
        Column {
            name: "oldest",
            title: "oldest",
            unit: ColumnUnit::Age,
            help: "How long the oldest of them has been held or waited for.",
            ..Column::BLANK
        },
    ],
};

static HOTTEST: TableInfo = TableInfo {
    name: "hottest",
    title: "Hottest keys of the last hour",
    help: "What is old fades: after half an hour, an event counts half.",
    empty: "Nobody was refused, and nobody had to wait.",
    columns: &[
        KEY,
        Column {
            name: "refusals",
            title: "refused",
            unit: ColumnUnit::Level,
            help: "Requests refused lately: QUEUE_FULL and TIMEOUT.",
            emphasis: Emphasis::Alarm,
            ..Column::BLANK
        },
        Column {
            name: "waits",
            title: "waited",
            unit: ColumnUnit::Level,
            help: "Requests that waited lately.",
            emphasis: Emphasis::Caution,
            ..Column::BLANK
        },
    ],
};

static HOLDERS: TableInfo = TableInfo {
    name: "holders",
    title: "Longest holders",
    help: "",
    empty: "Nobody holds a lock.",
    columns: &[
        KEY,
        Column {
            name: "peer",
            title: "client",
            unit: ColumnUnit::Address,
            help: "The address of the client.",
            ..Column::BLANK
        },
        Column { name: "who", title: "who", unit: ColumnUnit::Name, help: "Who it says to be.", ..Column::BLANK },
        Column {
            name: "age",
            title: "for",
            unit: ColumnUnit::Age,
            help: "How long it has held the lock.",
            metric: ColumnMetric::Largest { name: "oldest_holder", help: "How long the oldest lock has been held." },
            ..Column::BLANK
        },
    ],
};

static CEILINGS: TableInfo = TableInfo {
    name: "ceilings",
    title: "Ceilings",
    help: "What requests may have at most. What they were cut down to, and what was shed, is counted since the last start or upgrade.",
    empty: "There are none.",
    columns: &[
        Column {
            name: "key",
            title: "keys",
            help: "The pattern of their keys.",
            metric: ColumnMetric::Label("pattern"),
            ..KEY
        },
        bound("workers", "Locks of a key at a time."),
        bound("max_queue", "Locks and waits of a key at a time."),
        Column { unit: ColumnUnit::Age, ..bound("timeout", "How long a request waits.") },
        Column { unit: ColumnUnit::Age, ..bound("hold", "How long a lock is held.") },
        Column { unit: ColumnUnit::Age, title: "sheds after", ..bound("shed_after", "How long the oldest may wait.") },
        Column {
            title: "lowered",
            emphasis: Emphasis::Caution,
            ..count("lowered", "ceiling_lowered", "Requests that asked for more than their ceiling allows.")
        },
        Column {
            title: "shed",
            emphasis: Emphasis::Alarm,
            ..count("shed", "ceiling_shed", "Requests refused because those before them waited for too long.")
        },
        Column {
            title: "would shed",
            emphasis: Emphasis::Caution,
            ..count(
                "would_shed",
                "ceiling_would_shed",
                "Requests that would have been refused for that, with shed_shadow.",
            )
        },
    ],
};

static ACQUIRED: SeriesInfo = SeriesInfo {
    name: "acquired",
    title: "Locks granted",
    unit: "per second",
    is_rate: true,
    emphasis: Emphasis::None,
};
static HELD: SeriesInfo =
    SeriesInfo { name: "working", title: "Working", unit: "locks held", is_rate: false, emphasis: Emphasis::Work };
static WAITERS: SeriesInfo =
    SeriesInfo { name: "waiting", title: "Waiting", unit: "requests", is_rate: false, emphasis: Emphasis::Caution };
static REFUSED: SeriesInfo = SeriesInfo {
    name: "refused",
    title: "Refused, queue full",
    unit: "per second",
    is_rate: true,
    emphasis: Emphasis::Alarm,
};

const fn count(name: &'static str, metric: &'static str, help: &'static str) -> Column {
    Column {
        name,
        title: name,
        unit: ColumnUnit::Count,
        help,
        metric: ColumnMetric::Each(metric),
        emphasis: Emphasis::None,
    }
}

const fn bound(name: &'static str, help: &'static str) -> Column {
    Column { name, title: name, unit: ColumnUnit::Level, help, ..Column::BLANK }
}

const fn times(name: &'static str, help: &'static str) -> Column {
    Column {
        name,
        title: name,
        unit: ColumnUnit::Times,
        help,
        metric: ColumnMetric::Each(name),
        emphasis: Emphasis::None,
    }
}

impl PoolsService {
    /// Tells how the pools stand, without allocating.
    pub(super) fn standing(&self) -> [Series; 4] {
        let state = &self.state;
        [
            (&ACQUIRED, state.count_of(Stat::TotalAcquired)),
            (&HELD, state.working()),
            (&WAITERS, state.waiting()),
            (&REFUSED, state.count_of(Stat::FullQueues)),
        ]
    }

    /// Returns the pools as they are now, and what has happened in them. Each table has [`MOST_ROWS`] rows at most, but for
    /// that of the types, of which there are 257 at most; keys are cut to [`top_keys::KEY_BYTES`].
    pub(super) fn tables(&self, now: Time, peers: &dyn Peers) -> Vec<Table> {
        let state = &self.state;
        let busiest = state.busiest(MOST_ROWS).into_iter().map(|busy| {
            let [working, waiting] = [busy.working, busy.waiting].map(|count| Cell::Number(count.into()));
            vec![Cell::Name(top_keys::truncated(busy.key).into()), working, waiting, Cell::Time(now.since(busy.since))]
        });
        let hottest = state.hottest(MOST_ROWS, now).into_iter();
        let hottest =
            hottest.map(|hot| vec![Cell::Name(hot.key.into()), Cell::Number(hot.refusals), Cell::Number(hot.waits)]);
        let holders = state.longest_holders(MOST_ROWS).into_iter().map(|client| {
            let (peer, age) = (peers.peer(client.conn), now.since(client.since));
            let who = if client.who.is_empty() { Cell::Nothing } else { Cell::Name(client.who.into()) };
            vec![Cell::Name(top_keys::truncated(client.key).into()), Cell::Text(peer), who, Cell::Time(age)]
        });
        let error = state.hottest_error(now);
        let note = (error > 0).then(|| format!("A key may have had up to {error} more."));
        vec![
            Table { info: &TYPES, rows: state.types().into_iter().map(row_of_type).collect(), note: None },
            Table { info: &BUSIEST, rows: busiest.collect(), note: None },
            Table { info: &HOTTEST, rows: hottest.collect(), note },
            Table { info: &HOLDERS, rows: holders.collect(), note: None },
            Table { info: &CEILINGS, rows: state.ceilings().iter().map(row_of_ceiling).collect(), note: None },
        ]
    }
}

fn row_of_ceiling(CeilingInUse { ceiling, lowered, shed }: &CeilingInUse) -> Vec<Cell> {
    let number = |number: u32| if number == u32::MAX { Cell::Nothing } else { Cell::Number(number.into()) };
    let time = |span| if span == Span::FOREVER { Cell::Nothing } else { Cell::Time(span) };
    let after = ceiling.shedding.map_or(Span::FOREVER, |shedding| shedding.after);
    let is_shadow = ceiling.shedding.is_some_and(|shedding| shedding.is_shadow);
    let [shed, would_shed] = if is_shadow { [0, *shed] } else { [*shed, 0] };
    vec![
        Cell::Name(ceiling.pattern.clone().into()),
        number(ceiling.workers),
        number(ceiling.max_queue),
        time(ceiling.timeout),
        time(ceiling.hold),
        time(after),
        Cell::Number(*lowered),
        Cell::Number(shed),
        Cell::Number(would_shed),
    ]
}

fn row_of_type(one: &super::WorkType) -> Vec<Cell> {
    vec![
        Cell::Name(one.name.clone()),
        Cell::Number(one.acquired),
        Cell::Number(one.working()),
        Cell::Number(one.waiting()),
        Cell::Number(one.done),
        Cell::Number(one.full),
        Cell::Number(one.timeouts),
        Cell::Times(one.waits.clone()),
        Cell::Times(one.holds.clone()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{ConnId, Id};
    use crate::registry::tests::report_after_lines;
    use crate::report::Report;
    use crate::service::Traffic;

    struct Numbers;

    impl Peers for Numbers {
        fn peer(&self, conn: ConnId) -> String {
            format!("peer{}", conn.index())
        }
    }

    fn at(seconds: u64) -> Time {
        Time::START + Span::from_secs(seconds)
    }

    /// Has each connection say a line at a second of its own, and reports some time afterwards.
    fn report_after(lines: &[&str], seconds: u64) -> Report {
        let traffic = Traffic { connect_errors: 7, ..Traffic::default() };
        let lines = lines.iter().enumerate().map(|(n, line)| (at(n as u64), n, line.to_string()));
        report_after_lines("pools", lines, at(seconds), &traffic, &Numbers)
    }

    #[test]
    fn a_report_tells_who_holds_what() {
        let report = report_after(
            &[
                "ACQ4ME a:1 1 9 9\n",
                "ACQ4ME b:2 1 2 9 who=web1:7\n",
                "ACQ4ANY b:2 1 2 9\n",
                "ACQ4ME b:2 1 2 9\n",
                "ACQ4ME a:1 1 9 0\n",
                "ACQ4ME a:3 1 9 0\nRELEASE\n",
            ],
            10,
        );
        let figure = |name| report.figures.iter().find(|(row, _)| row.name == name).map(|(_, value)| *value);
        assert_eq!((figure("processing_workers"), figure("connect_errors")), (Some(2), Some(7)));
        report.tables.iter().for_each(Table::check);
        let name = |text: &str| Cell::Name(text.into());
        let (number, age) = (Cell::Number, |s| Cell::Time(Span::from_secs(s)));
        let names: Vec<&str> = report.tables.iter().map(|table| table.info.name).collect();
        assert_eq!(names, ["types", "busiest", "hottest", "holders", "ceilings"]);
        let rows = |table: usize| &report.tables[table].rows;
        let types: Vec<_> = rows(0).iter().map(|row| [&row[0], &row[1], &row[6]]).collect();
        assert_eq!(types, [[&name("a"), &number(2), &number(1)], [&name("b"), &number(1), &number(0)]]);
        let busiest = [("b:2", 1, 9), ("a:1", 0, 10)];
        let busiest = busiest.map(|(key, waiting, s)| vec![name(key), number(1), number(waiting), age(s)]);
        assert_eq!(*rows(1), busiest);
        let hottest = [("b:2", 1, 1), ("a:1", 1, 0)];
        assert_eq!(*rows(2), hottest.map(|(key, refusals, waits)| vec![name(key), number(refusals), number(waits)]));
        assert_eq!(report.tables[2].note, None);
        let holders = [("a:1", "peer0", Cell::Nothing, 10), ("b:2", "peer1", name("web1:7"), 9)];
        let holders = holders.map(|(key, peer, who, s)| vec![name(key), Cell::Text(peer.into()), who, age(s)]);
        assert_eq!(*rows(3), holders);
    }

    #[test]
    fn a_report_has_a_bound() {
        let lines: Vec<String> = (0..100).map(|n| format!("ACQ4ME {n}{} 1 9 0\n", "k".repeat(2_000))).collect();
        let report = report_after(&lines.iter().map(String::as_str).collect::<Vec<_>>(), 100);
        for table in [1, 3] {
            let rows = &report.tables[table].rows;
            assert_eq!(rows.len(), MOST_ROWS);
            assert!(rows.iter().all(|row| matches!(&row[0], Cell::Name(key) if key.len() == top_keys::KEY_BYTES)));
        }
        let age = |row: &Vec<Cell>| if let Cell::Time(age) = row[3] { age } else { Span::ZERO };
        assert!(report.tables[3].rows.iter().map(age).is_sorted_by(|one, next| one > next));
    }
}
