//! Pages about one thing: a first or last part of tubes' names, a runner, all buried jobs, the whole matrix.

use super::JobQueue;
use super::report::{MOST_ROWS, SECONDS_A_MINUTE, row_of_sum, rows_of_buried};
use super::state::SumBy;
use super::state::views::{Levels, RunnerConn};
use super::tables::{BURIED, RUNNER};
use poolcounter_core::text::title_of;
use poolcounter_core::time::{Span, Time};
use poolcounter_service::contract::Peers;
use poolcounter_service::health::quoted;
use poolcounter_service::report::{Cell, Emphasis, Report, Series, SeriesInfo, Table, View};

/// Largest matrix, in first parts and last parts: as much as a person can search through.
const MOST_PARTS: [usize; 2] = [1000, 64];

/// Note of a sum without curves.
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
    /// Returns what there is to tell of one thing: `WORD/NAME` with the word for the first or the last part, `runner/NAME`, `buried`
    /// or `matrix`.
    pub(super) fn view_of(&self, path: &[u8], now: Time, peers: &dyn Peers) -> Option<View> {
        let name_after = |kind: &str| path.strip_prefix(kind.as_bytes())?.strip_prefix(b"/");
        for by in SumBy::ALL {
            if let Some(name) = name_after(self.tables.words[by as usize]) {
                return self.view_of_sum(by, name, now);
            }
        }
        if let Some(name) = name_after("runner") {
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
                let matrix = Some(self.matrix(MOST_PARTS, now));
                Some(View { title: "Jobs".into(), report: Report { matrix, ..Report::default() }, ..View::default() })
            }
            _ => None,
        }
    }

    fn view_of_sum(&self, by: SumBy, name: &[u8], now: Time) -> Option<View> {
        let (summary, tubes) = self.state.sum_with_tubes(by, name, MOST_ROWS, now)?;
        let note = (!self.state.is_followed(by, name)).then(|| NOT_FOLLOWED.to_string());
        let levels = Levels {
            ready: summary.counts[0],
            oldest_ready: summary.oldest_ready,
            put: summary.events[0].get(),
            deleted: summary.events[2].get(),
        };
        let part = self.tables.words[by as usize];
        let tables = vec![
            Table {
                info: &self.tables.tubes,
                rows: tubes.into_iter().map(|tube| row_of_sum(tube, now)).collect(),
                note: None,
            },
            Table { info: &BURIED, rows: rows_of_buried(self.state.buried_of(by, name, MOST_ROWS, now)), note: None },
            Table {
                info: &self.tables.parts[by as usize],
                rows: vec![row_of_sum((name.to_vec(), summary), now)],
                note,
            },
        ];
        let report = Report { tables, series: series_of(levels).into(), ..Report::default() };
        let commands = commands_for(by, name);
        Some(View { title: title_of(&capitalized(part), name), report, commands, ..View::default() })
    }

    /// Notes the values of which the pages of sums show curves, by the paths of these pages.
    pub(super) fn sample_sums(&self, now: Time, note: &mut dyn FnMut(&[u8], Series)) {
        let mut path = Vec::new();
        for by in SumBy::ALL {
            for (name, levels) in self.state.levels(by, now) {
                path.clear();
                path.extend_from_slice(self.tables.words[by as usize].as_bytes());
                path.push(b'/');
                path.extend_from_slice(name);
                series_of(levels).into_iter().for_each(|series| note(&path, series));
            }
        }
    }

    fn view_of_runner(&self, name: &[u8], now: Time, peers: &dyn Peers) -> View {
        let rows = self.state.conns_of_runner(name, MOST_ROWS, now).into_iter().map(|conn| row_of_conn(&conn, peers));
        let tables = vec![Table { info: &RUNNER, rows: rows.collect(), note: None }];
        let title = title_of("Runner", name);
        View { title, report: Report { tables, ..Report::default() }, ..View::default() }
    }
}

/// Returns the commands that help with the tubes of a first or a last part, if its name can be typed.
fn commands_for(by: SumBy, name: &[u8]) -> Vec<String> {
    let pattern = match by {
        SumBy::FirstPart => [name, b"/*"].concat(),
        SumBy::LastPart => [b"*/", name].concat(),
    };
    let Some(pattern) = quoted(&pattern) else { return Vec::new() };
    ["run", "kick", "pause"]
        .map(|word| {
            let behind = match word {
                "run" => " -- COMMAND",
                "pause" => " 600",
                _ => "",
            };
            format!("jobs {word} {pattern}{behind}")
        })
        .into()
}

fn series_of(levels: Levels) -> [Series; 4] {
    let Levels { ready, oldest_ready, put, deleted } = levels;
    [(&READY, ready), (&LAG, oldest_ready.as_micros() / 1_000_000), (&PUT, put), (&DONE, deleted)]
}

/// Returns the word with a capital letter.
fn capitalized(word: &str) -> String {
    word[..1].to_ascii_uppercase() + &word[1..]
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
