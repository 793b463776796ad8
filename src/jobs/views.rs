//! What the jobs tell of one thing by itself: a wiki, a type, a runner, all buried jobs, the whole matrix.

use super::JobQueue;
use super::report::{MOST_ROWS, SECONDS_A_MINUTE, row_of_sum, rows_of_buried};
use super::state::SumBy;
use super::state::curves::{INTERVAL, KEPT, Point};
use super::state::views::RunnerConn;
use super::tables::{BURIED, RUNNER, TUBES, TYPES, WIKIS};
use poolcounter_core::text::title_of;
use poolcounter_core::time::{Span, Time};
use poolcounter_service::contract::Peers;
use poolcounter_service::report::{Cell, Emphasis, Report, SeriesInfo, Table, View};

/// The largest matrix: as much as a person can search through.
const MOST_WIKIS: usize = 1000;
const MOST_TYPES: usize = 64;

/// What is said of a wiki or a type without a curve.
const NOT_FOLLOWED: &str = "Only the 256 with the most puts are followed with curves.";

static READY: SeriesInfo =
    SeriesInfo { name: "ready", title: "Ready", unit: "jobs", is_rate: false, emphasis: Emphasis::Caution };
static LAG: SeriesInfo =
    SeriesInfo { name: "lag", title: "Oldest ready", unit: "seconds", is_rate: false, emphasis: Emphasis::Alarm };
static PUT: SeriesInfo =
    SeriesInfo { name: "put", title: "Put", unit: "per minute", is_rate: true, emphasis: Emphasis::None };
static DONE: SeriesInfo =
    SeriesInfo { name: "done", title: "Deleted", unit: "per minute", is_rate: true, emphasis: Emphasis::Work };

impl JobQueue {
    /// Returns what there is to tell of one thing: `wiki/NAME`, `type/NAME`, `runner/NAME`, `buried` or `matrix`.
    pub(super) fn view_of(&self, path: &[u8], now: Time, peers: &dyn Peers) -> Option<View> {
        let name_after = |kind: &str| path.strip_prefix(kind.as_bytes());
        if let Some(name) = name_after("wiki/") {
            return self.view_of_sum(SumBy::Wiki, name, now);
        }
        if let Some(name) = name_after("type/") {
            return self.view_of_sum(SumBy::Type, name, now);
        }
        if let Some(name) = name_after("runner/") {
            return Some(self.view_of_runner(name, now, peers));
        }
        match path {
            b"buried" => {
                let rows = rows_of_buried(self.state.buried(MOST_ROWS, now));
                let tables = vec![Table { info: &BURIED, rows, note: None }];
                Some(View {
                    title: "Buried jobs".into(),
                    report: Report { tables, ..Report::default() },
                    ..View::default()
                })
            }
            b"matrix" => {
                let matrix = Some(self.matrix(MOST_WIKIS, MOST_TYPES, now));
                Some(View { title: "Jobs".into(), report: Report { matrix, ..Report::default() }, ..View::default() })
            }
            _ => None,
        }
    }

    fn view_of_sum(&self, by: SumBy, name: &[u8], now: Time) -> Option<View> {
        let (summary, tubes) = self.state.sum_with_tubes(by, name, MOST_ROWS, now)?;
        let curve = self.state.curve_of(by, name, now);
        let (kind, info) = if by == SumBy::Wiki { ("Wiki", &WIKIS) } else { ("Type", &TYPES) };
        let note = curve.is_none().then(|| NOT_FOLLOWED.to_string());
        let now_values = [
            summary.counts[0],
            summary.oldest_ready.as_micros() / 1_000_000,
            summary.events[0].get(),
            summary.events[2].get(),
        ];
        let tables = vec![
            Table { info: &TUBES, rows: tubes.into_iter().map(|tube| row_of_sum(tube, now)).collect(), note: None },
            Table { info: &BURIED, rows: rows_of_buried(self.state.buried_of(by, name, MOST_ROWS, now)), note: None },
            Table { info, rows: vec![row_of_sum((name.to_vec(), summary), now)], note },
        ];
        let series = [&READY, &LAG, &PUT, &DONE].into_iter().zip(now_values).collect();
        let points = curve.unwrap_or_default();
        let per_minute = |count: u32| f64::from(count) * SECONDS_A_MINUTE / (INTERVAL.as_micros() as f64 / 1e6);
        let values = |of: &dyn Fn(&Point) -> f64| points.iter().map(of).collect();
        Some(View {
            title: title_of(kind, name),
            report: Report { tables, series, ..Report::default() },
            values: vec![
                values(&|point| point.ready.into()),
                values(&|point| point.lag.into()),
                values(&|point| per_minute(point.put)),
                values(&|point| per_minute(point.deleted)),
            ],
            interval: INTERVAL,
            most: KEPT,
        })
    }

    fn view_of_runner(&self, name: &[u8], now: Time, peers: &dyn Peers) -> View {
        let rows = self.state.conns_of_runner(name, MOST_ROWS, now).into_iter().map(|conn| row_of_conn(&conn, peers));
        let tables = vec![Table { info: &RUNNER, rows: rows.collect(), note: None }];
        let title = title_of("Runner", name);
        View { title, report: Report { tables, ..Report::default() }, ..View::default() }
    }
}

fn row_of_conn(conn: &RunnerConn<'_>, peers: &dyn Peers) -> Vec<Cell> {
    let [reserved, deleted] = conn.rates.map(|rate| Cell::Number((rate * SECONDS_A_MINUTE).round() as u64));
    let (job, tube, busy) =
        conn.job.map_or((Cell::Nothing, Cell::Nothing, Cell::Nothing), |(id, tube, span): (_, _, Span)| {
            (Cell::Text(id.0.to_string()), Cell::Name(tube.into()), Cell::Time(span))
        });
    let state = match (conn.held, conn.is_waiting) {
        (1.., _) => "works",
        (0, true) => "waits",
        (0, false) => "idle",
    };
    let ends = [Cell::Number(conn.held), reserved, deleted, Cell::Number(conn.failures)];
    [Cell::Text(peers.peer(conn.conn)), Cell::Text(state.into()), job, tube, busy].into_iter().chain(ends).collect()
}
