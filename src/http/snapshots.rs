//! Snapshots for pages: of all services, and of one thing.

use super::Http;
use super::recent::{Range, RecentOf};
use super::resource::Extent;
use super::samples::Samples;
use poolcounter_core::Span;
use poolcounter_service::contract::Telemetry;
use poolcounter_service::report::{Block, Moment, Remembered, Snapshot, View};

/// Returns the first samples that cover a range, with their interval, and the number of values in the range.
fn first_within(all: [&Samples; 2], range: Option<Range>) -> (&Samples, Span, usize) {
    let mut within = all.into_iter().filter_map(|samples| Some((samples, samples.within(range)?)));
    let (samples, (interval, most)) = within.next().expect("the last ones cover the longest range");
    (samples, interval, most)
}

impl Http {
    /// Returns the snapshot of all services, for the status page.
    pub(super) fn snapshot_of(&self, mut moment: Moment<'_>, extent: Extent, telemetry: &Telemetry<'_>) -> Snapshot {
        let (samples, interval, most) = first_within([&self.samples, &self.hour], extent.range);
        let recent = self.narrow(&mut moment, extent, telemetry);
        let values = |service: &'static str, info| samples.shown(service.as_bytes(), info, most);
        let remembered = Remembered { interval, most, values: &values, recent: &recent };
        self.finished(Snapshot::of(&moment, extent.room(), &remembered), extent)
    }

    /// Returns the snapshot for a page about one thing, with private texts if the browser is local; `None` if nothing
    /// was found.
    pub(super) fn snapshot_of_views(
        &self,
        mut moment: Moment<'_>,
        views: Vec<View>,
        extent: Extent,
        telemetry: &Telemetry<'_>,
        is_local: bool,
    ) -> Option<Snapshot> {
        // A search in several services has no curves, and all views have the same title.
        let is_one = views.len() == 1;
        let View { title, of, commands, blocks, .. } = views.into_iter().next()?;
        let tab = moment.overview.services.first().filter(|service| is_one && !service.title.is_empty());
        let tab = tab.map(|service| service.title.to_lowercase().into());
        let all = if extent.range.is_some() { [&self.things, &self.things_hour] } else { [&self.things_hour; 2] };
        let (samples, interval, most) = first_within(all, extent.range);
        let values = |_, info| samples.shown(&of, info, most);
        let recent = self.narrow(&mut moment, extent, telemetry);
        let remembered = Remembered { interval, most, values: &values, recent: &recent };
        let snapshot = Snapshot::of(&moment, extent.room(), &remembered);
        let blocks = blocks.iter().filter(|block| is_local || !block.is_private).map(Block::shown).collect();
        Some(Snapshot { title: Some(title), tab, commands, blocks, ..self.finished(snapshot, extent) })
    }

    /// Restricts the tables to the range.
    fn narrow(&self, moment: &mut Moment<'_>, extent: Extent, telemetry: &Telemetry<'_>) -> Vec<RecentOf> {
        let (Some(recent), Some(range)) = (&self.recent, extent.range) else { return Vec::new() };
        recent.narrow(range, moment.now, &mut moment.overview.services, |note| (telemetry.tally)(note))
    }

    fn finished(&self, snapshot: Snapshot, extent: Extent) -> Snapshot {
        Snapshot { is_admin: self.is_admin, range: extent.range.map(|range| range.name.into()), ..snapshot }
    }
}

/// Snapshots of everything that services report, with any number of rows, and their sums.
#[cfg(test)]
pub(crate) mod tests {
    use poolcounter_core::histogram::Histogram;
    use poolcounter_core::id::{ConnId, Id};
    use poolcounter_core::time::{Span, Time};
    use poolcounter_service::container::{AllSettings, Services};
    use poolcounter_service::contract::{Info, NoPeers, NoProcessInfo, Peers, Process};
    use poolcounter_service::report::room::{MOST_ROWS, Room};
    use poolcounter_service::report::snapshot::{Remembered, Snapshot};
    use poolcounter_service::report::{Cell, Column, ColumnUnit, Overview};
    use poolcounter_service::report::{LoopStats, Moment};

    /// Services with tables of every kind.
    const SERVICES: &[&Info] = &[
        &poolcounter_pools::INFO,
        &poolcounter_counters::INFO,
        &poolcounter_members::INFO,
        &poolcounter_jobs::INFO,
        &crate::INFO,
        &poolcounter_admin::INFO,
    ];

    struct Long;

    impl Peers for Long {
        fn peer(&self, conn: ConnId) -> String {
            format!("[2001:db8::{}]:40000", conn.index())
        }
    }

    /// Returns the reports of all services, each table with `rows` rows of generated cells.
    pub fn overview(rows: usize, name: impl Fn(usize) -> Vec<u8>) -> Overview {
        let mut histogram = Histogram::default();
        (0..100_000).for_each(|n| histogram.record_number(n * n));
        let mut overview = Services::of(SERVICES, &AllSettings::defaults(SERVICES)).overview(Time::START, &NoPeers);
        let cell = |column: &Column, n: usize| match column.unit {
            ColumnUnit::Address if column.link.is_some() => Cell::client(ConnId::from_index(n), &Long),
            ColumnUnit::Name => Cell::text(name(n)),
            ColumnUnit::Address | ColumnUnit::Text | ColumnUnit::Key => Cell::text(format!("[2001:db8::{n}]:40000")),
            ColumnUnit::Number | ColumnUnit::Bytes => Cell::Number(u64::MAX),
            ColumnUnit::Seconds => Cell::time(Span::from_micros(123_456_789_012_345)),
            ColumnUnit::Times => Cell::times(histogram.clone()),
        };
        for table in overview.services.iter_mut().flat_map(|service| &mut service.report.tables) {
            let row = |n: usize| table.columns.iter().map(|column| cell(column, n)).collect();
            table.rows = (0..rows).map(row).collect();
            table.check();
        }
        overview
    }

    pub fn of_overview(overview: Overview, loop_stats: &LoopStats) -> Moment<'_> {
        let (now, epoch) = (Time::START, Span::ZERO);
        Moment {
            now,
            started: now,
            epoch,
            overview,
            loop_stats,
            health: Vec::new(),
            past: Vec::new(),
            usage: NoProcessInfo.usage(),
            timers: 0,
        }
    }

    /// Clients read lines of at most 64 KiB, and an empty one is the end.
    #[test]
    fn lines_are_short_and_the_same_json() {
        let overview = overview(257, |n| [format!("{n}").as_bytes(), &b"\\\n".repeat(100)].concat());
        let room = Room { rows: MOST_ROWS, bytes: usize::MAX };
        let snapshot = Snapshot::of(&of_overview(overview, &LoopStats::default()), room, &Remembered::NOTHING);
        let mut bytes = Vec::new();
        snapshot.write_lines(&mut bytes);
        let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        assert!(lines.len() > 1_000 && lines.iter().all(|line| (1..=16_384).contains(&line.len())), "{}", lines.len());
        let values = [&bytes[..], snapshot.to_json().as_bytes()].map(serde_json::from_slice::<serde_json::Value>);
        assert_eq!(values[0].as_ref().expect("is JSON"), values[1].as_ref().expect("is JSON"));
    }

    mod merged {
        use super::*;
        use poolcounter_service::health::{ConditionOn, HealthLine};
        use poolcounter_service::report::matrix::{Heat, Matrix, MatrixLine};
        use poolcounter_service::report::{Condition, ConditionInfo, Level};
        use serde_json::Value;

        const SERVICES: [&str; 5] = ["pools", "counters", "members", "jobs", "admin"];

        fn told(overview: Overview) -> Snapshot {
            let room = Room { rows: MOST_ROWS, bytes: usize::MAX };
            let json =
                Snapshot::of(&of_overview(overview, &LoopStats::default()), room, &Remembered::NOTHING).to_json();
            Snapshot::read(json.as_bytes(), &SERVICES).expect("is what a daemon tells")
        }

        /// Returns two rows per table, with this number everywhere, and as many durations of `micros`.
        fn with_numbers(number: u64, micros: u64) -> Overview {
            let mut overview = overview(2, |n| format!("name{n}").into_bytes());
            let mut times = Histogram::default();
            (0..number).for_each(|_| times.record_number(micros));
            let tables = overview.services.iter_mut().flat_map(|service| &mut service.report.tables);
            for cell in tables.flat_map(|table| table.rows.iter_mut().flatten()) {
                match cell {
                    Cell::Number(cell) => *cell = number,
                    Cell::Times(_) => *cell = Cell::times(times.clone()),
                    _ => {}
                }
            }
            overview
        }

        fn merger(all: Vec<(&str, Snapshot)>) -> Snapshot {
            let mut own = told(Overview::default());
            own.services.clear();
            all.into_iter().enumerate().for_each(|(n, (server, told))| own.add(server, n, told));
            own
        }

        fn merged(all: Vec<(&str, Snapshot)>) -> Value {
            serde_json::from_str(&merger(all).to_json()).expect("is JSON")
        }

        /// Returns one service with all parts of a snapshot: tables, a matrix, and a line of health with a condition.
        fn with_everything() -> Snapshot {
            static SLOW: ConditionInfo = ConditionInfo::warning("slow", "It is slow.");
            let mut overview = with_numbers(3, 70);
            overview.services.truncate(1);
            let heat = |n| vec![Heat(n, n as f64); 3];
            overview.services[0].report.matrix = Some(Matrix {
                title: "m".into(),
                path: "/m/".into(),
                row: ("r".into(), "/r/".into()),
                column: ("c".into(), "/c/".into()),
                columns: vec!["c".into()],
                rows: vec![MatrixLine { name: "r".into(), values: heat(1) }],
                others: heat(2),
                all: heat(3),
                more_rows: 4,
                more_columns: 5,
                ..Matrix::default()
            });
            let condition = Condition::of_service(&SLOW, "/locks", "slow".into());
            let health = vec![HealthLine {
                title: "Locks",
                level: Level::Warning,
                standing: "stands".into(),
                conditions: vec![ConditionOn { condition, since: Time::START, until: None }],
                more: 6,
            }];
            let loop_stats = LoopStats::default();
            let moment = Moment { health, ..of_overview(overview, &loop_stats) };
            let room = Room { rows: MOST_ROWS, bytes: usize::MAX };
            Snapshot::of(&moment, room, &Remembered::NOTHING)
        }

        #[test]
        fn kinds_are_added_up_and_the_rest_has_its_server() {
            let all = merged(vec![("a", told(with_numbers(90, 1_000))), ("b", told(with_numbers(10, 2_000_000)))]);
            let types = all["pools"]["types"].as_array().expect("is a list");
            assert_eq!((types.len(), &types[0]["acquired"]), (2, &100.into()));
            let (p50, p99) = (types[0]["wait"]["p50"].as_f64(), types[0]["wait"]["p99"].as_f64());
            assert!(p50 == p99 && p99.is_some_and(|s| s > 1.5), "of the slowest daemon: {}", types[0]["wait"]);
            let busiest = all["pools"]["busiest"].as_array().expect("is a list");
            let rows: Vec<_> = busiest.iter().map(|row| (&row["key"], &row["server"], &row["working"])).collect();
            assert_eq!(rows.len(), 4);
            assert_eq!(
                rows.iter().filter(|(_, server, working)| (*server, *working) == (&"a".into(), &90.into())).count(),
                2
            );
            assert!(busiest.iter().all(|row| row["oldest"].is_f64()), "{busiest:?}");
            let servers: Vec<_> = rows.iter().map(|row| row.1.as_str().unwrap_or_default()).collect();
            assert_eq!(servers, ["a", "b", "a", "b"], "the daemons take turns");
        }

        /// Daemons use the same texts, so the merged report of a single one changes only by its name.
        #[test]
        fn one_alone_is_as_it_is() {
            let one = told(with_numbers(3, 70));
            let alone: Value = serde_json::from_str(&one.to_json()).expect("is JSON");
            let all = merged(vec![("a", one)]);
            for service in SERVICES {
                for (name, rows) in alone[service].as_object().into_iter().flatten() {
                    let with_server = |row: &Value| {
                        let mut row = row.clone();
                        if all[service][name][0].get("server").is_some() {
                            row["server"] = "a".into();
                        }
                        row
                    };
                    let rows: Vec<Value> = rows.as_array().expect("is a list").iter().map(with_server).collect();
                    assert_eq!(all[service][name], Value::from(rows), "{service} {name}");
                }
            }
            assert_eq!(alone["history"]["series"], all["history"]["series"]);
        }

        /// An impostor of a daemon can send anything.
        #[test]
        fn hostile_names_are_harmless_on_every_page() {
            let whole = told(with_numbers(3, 70)).to_json();
            for (from, to) in [
                (r#""link":"/pools/type/""#, r#""link":"javascript:alert(1)//""#),
                (r#""link":"/pools/type/""#, r#""link":"//elsewhere/""#),
                (r#""link":"/pools/type/""#, r#""link":"/\"><script>""#),
                (r#""acquired":3"#, r#""acquired":18446744073709551615"#),
                (r#""acquired":3"#, r#""acquired":"x""#),
                (r#""acquired":3"#, r#""acquired":{"a":[]}"#),
                (r#""connections":0"#, r#""connections":18446744073709551615"#),
                (r#""name":"pools","ti"#, r#""name":"history","ti"#),
                (r#""name":"pools","ti"#, r#""name":"http","ti"#),
            ] {
                assert!(whole.contains(from), "{from}");
                let json = whole.replace(from, to);
                let read = || Snapshot::read(json.as_bytes(), &SERVICES).expect("is read");
                let all = merged(vec![("a", read()), ("b", read()), ("c", told(with_numbers(1, 1)))]);
                let text = all.to_string();
                for harm in ["alert", "elsewhere", "<script>"] {
                    assert!(!text.contains(harm), "{to}");
                }
                assert!(all["history"]["series"].is_array() && all.get("http").is_none(), "{to}");
            }
            for json in ["", "{}", "[]", "null", "\u{0}", &"[".repeat(100_000), &whole[..whole.len() / 2]] {
                assert!(Snapshot::read(json.as_bytes(), &SERVICES).is_err());
            }
        }

        /// Visits each place in JSON; of a list only those in its first two items.
        fn places(value: &Value, at: &str, all: &mut Vec<String>) {
            all.push(at.into());
            match value {
                Value::Object(fields) => {
                    fields.iter().for_each(|(name, value)| places(value, &format!("{at}/{name}"), all));
                }
                Value::Array(items) => {
                    (0..items.len().min(2)).for_each(|n| places(&items[n], &format!("{at}/{n}"), all));
                }
                _ => {}
            }
        }

        /// Another release, a fault or an attacker may send any value in any place.
        #[test]
        fn any_answer_of_a_server_is_survived() {
            let json = with_everything().to_json();
            let json: Value = serde_json::from_str(&json).expect("is JSON");
            let mut all = Vec::new();
            places(&json, "", &mut all);
            let strange = ["", "seconds-of-later", "server", "\u{202e}\u{1b}]0;x\u{7}\u{9b}31m\u{0}"].map(Value::from);
            let numbers = [Value::from(u64::MAX), Value::from(i64::MIN), Value::from(1e308), Value::from(-0.5)];
            let others = [Value::Null, true.into(), Value::Array(vec![0.into(); 1000]), serde_json::json!({"a": []})];
            let values: Vec<Value> = strange.into_iter().chain(numbers).chain(others).collect();
            for place in &all[1..] {
                for value in values.iter().map(Some).chain([None]) {
                    let mut changed = json.clone();
                    match value {
                        Some(value) => *changed.pointer_mut(place).expect("is there") = value.clone(),
                        None => {
                            let (parent, name) = place.rsplit_once('/').expect("is below something");
                            match changed.pointer_mut(parent).expect("is there") {
                                Value::Object(fields) => drop(fields.remove(name)),
                                Value::Array(items) => drop(items.remove(name.parse().expect("is a number"))),
                                other => panic!("{other} has nothing in it"),
                            }
                        }
                    }
                    let text = changed.to_string();
                    let read = || Snapshot::read(text.as_bytes(), &SERVICES).ok();
                    let both = [read(), read(), Snapshot::read(json.to_string().as_bytes(), &SERVICES).ok()];
                    // As few rows as are cut in the page.
                    let room = Room { rows: 1, bytes: usize::MAX };
                    let all = merger(both.into_iter().flatten().map(|told| ("a", told)).collect()).cut(room);
                    let all = all.to_json();
                    assert!(!all.contains(['\u{202e}', '\u{9b}', '\u{1b}']), "{place}: {value:?}");
                }
            }
        }
    }
}
