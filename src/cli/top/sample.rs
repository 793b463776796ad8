//! Reports of servers at one moment, and their sums.

use crate::holders::state_of;
use crate::report::{self, Answer, Grid, GridCell, GridHead, ToldReport, ToldSeries, Tone};
use crate::terminal::printable;
use poolcounter_client::{Client, ListedClaim};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Number of rows of each table requested from each server.
const ROWS: usize = 200;
/// Text about a server without reports.
const REFUSED: &str = "it knows no reports, so there is nothing to show; poolcounter stats prints what it tells";

/// Name of the table of a key's claims.
pub const KEY_TABLE: &str = "key";

/// Reports of all servers at one moment.
pub struct Sample {
    /// Time of the sample.
    pub at: Instant,
    /// Servers by address, each with its report or error.
    pub servers: Vec<(String, Result<ToldReport, String>)>,
    /// Service to show; None for all.
    pub only: Option<String>,
    /// Key to show, with the holders and waiters of its locks.
    pub key: Option<(String, Vec<ListedClaim>)>,
}

/// Sums of a service over all servers.
pub struct Sum {
    pub name: String,
    pub connections: u64,
    pub series: Vec<SumSeries>,
    pub tables: Vec<SumTable>,
}

/// Curve, summed over all servers.
pub struct SumSeries {
    pub title: String,
    /// True if the value only grows.
    pub is_rate: bool,
    pub tone: Tone,
    pub now: f64,
}

/// Table, merged from all servers.
pub struct SumTable {
    pub id: String,
    pub title: String,
    pub empty: String,
    pub heads: Vec<GridHead>,
    /// Rows, interleaved from the servers: the first rows of all come before the second ones.
    pub rows: Vec<Vec<GridCell>>,
    /// Index of the row by its text cells, which identify it.
    places: HashMap<Vec<String>, usize>,
}

impl Sample {
    /// Asks the servers for their reports (of `only` one service, if given), and for the holders of a key, if given.
    pub fn take(client: &Client, only: Option<&str>, key: Option<&str>) -> Sample {
        let read = |answer| match answer {
            Answer::Report(report) => ToldReport::read(report).map(|mut report| {
                report.services.retain(|service| only.is_none_or(|only| service.name == only));
                report
            }),
            Answer::Refused => Err(REFUSED.into()),
        };
        let at = Instant::now();
        let answers = report::ask(client, ROWS).into_iter();
        let servers = answers.map(|(server, answer)| (server, answer.and_then(read))).collect();
        let claims =
            |key: &str| client.claims_of_each(key).into_iter().flatten().filter_map(|(_, claims)| claims.ok()?.ok());
        Sample {
            at,
            servers,
            only: only.map(String::from),
            key: key.map(|key| (key.into(), claims(key).flatten().collect())),
        }
    }

    /// Returns true if the same servers replied to both samples; otherwise there are no rates.
    pub fn is_comparable(&self, other: &Sample) -> bool {
        let answered = |sample: &Sample| sample.servers.iter().map(|(_, report)| report.is_ok()).collect::<Vec<_>>();
        answered(self) == answered(other)
    }

    /// Returns the only requested service, if a server does not serve it.
    pub fn missing_in(&self, report: &ToldReport) -> Option<&str> {
        let only = self.only.as_deref()?;
        let is_there = report.services.iter().any(|service| service.name == only && service.is_enabled);
        (!is_there).then_some(only)
    }

    /// Returns true if every server replied.
    pub fn is_complete(&self) -> bool {
        self.servers.iter().all(|(_, report)| report.is_ok())
    }

    /// Returns the claims on the requested key, as a table.
    pub fn claims(&self) -> Option<SumTable> {
        let (key, claims) = self.key.as_ref()?;
        let heads = [("state", true), ("for", false), ("client", true), ("who", true)];
        let head = |(title, is_text): (&str, bool)| GridHead {
            title: title.into(),
            is_text,
            is_counter: false,
            tone: Tone::Plain,
        };
        let row = |claim: &ListedClaim| {
            let text = |text: &str| GridCell::Text(printable(text.as_bytes()));
            let age = GridCell::seconds(Duration::from(claim.age).as_secs_f64());
            vec![text(state_of(claim)), age, text(&claim.peer), text(&claim.who)]
        };
        Some(SumTable {
            id: KEY_TABLE.into(),
            title: key.clone(),
            empty: "No holders or waiters, or the name of the key was not shown in full.".into(),
            heads: heads.map(head).into(),
            rows: claims.iter().map(row).collect(),
            places: HashMap::new(),
        })
    }

    /// Returns the sums of each used service over all servers.
    pub fn sums(&self) -> Vec<Sum> {
        let mut sums: Vec<Sum> = Vec::new();
        let mut rows: HashMap<String, Vec<(usize, Vec<GridCell>)>> = HashMap::new();
        for report in self.servers.iter().filter_map(|(_, report)| report.as_ref().ok()) {
            for service in &report.services {
                let tables = report.tables(service);
                let is_meant = self.only.is_some() && service.is_enabled;
                if !service.is_used(&tables) && !is_meant {
                    continue;
                }
                let sum = match sums.iter().position(|sum| sum.name == service.name) {
                    Some(known) => &mut sums[known],
                    None => {
                        sums.push(Sum::new(&service.name));
                        sums.last_mut().expect("it was pushed")
                    }
                };
                sum.connections = sum.connections.saturating_add(service.connections);
                report.series(service).for_each(|series| sum.add_series(series));
                for table in tables {
                    sum.head(&table);
                    rows.entry(table.id).or_default().extend(table.rows.into_iter().enumerate());
                }
            }
        }
        for table in sums.iter_mut().flat_map(|sum| &mut sum.tables) {
            let mut rows = rows.remove(&table.id).unwrap_or_default();
            rows.sort_by_key(|(rank, _)| *rank);
            rows.into_iter().for_each(|(_, row)| table.add(row));
        }
        sums
    }
}

impl Sum {
    fn new(name: &str) -> Sum {
        Sum { name: name.into(), connections: 0, series: Vec::new(), tables: Vec::new() }
    }

    fn add_series(&mut self, series: &ToldSeries) {
        match self.series.iter_mut().find(|known| known.title == series.title) {
            Some(known) => known.now += series.now,
            None => self.series.push(SumSeries {
                title: series.title.clone(),
                is_rate: series.is_rate,
                tone: series.tone(),
                now: series.now,
            }),
        }
    }

    /// Adds the heads of a table, unless another server has it.
    fn head(&mut self, grid: &Grid) {
        if self.tables.iter().all(|table| table.id != grid.id) {
            let (id, title, empty) = (grid.id.clone(), grid.title.clone(), grid.empty.clone());
            let (rows, places) = (Vec::new(), HashMap::new());
            self.tables.push(SumTable { id, title, empty, heads: grid.heads.clone(), rows, places });
        }
    }
}

impl SumTable {
    /// Returns the row with the same text cells.
    pub fn like(&self, row: &[GridCell]) -> Option<&Vec<GridCell>> {
        Some(&self.rows[*self.places.get(&texts_of(row))?])
    }

    fn add(&mut self, row: Vec<GridCell>) {
        // Servers of different releases may have different columns.
        if row.len() != self.heads.len() {
            return;
        }
        let place = *self.places.entry(texts_of(&row)).or_insert(self.rows.len());
        let Some(known) = self.rows.get_mut(place) else { return self.rows.push(row) };
        for ((known, more), head) in known.iter_mut().zip(row).zip(&self.heads) {
            *known = sum_of(known, more, head);
        }
    }
}

/// Returns the merged cell of two servers. Counts are added up; of ages and medians the larger one is kept.
fn sum_of(one: &GridCell, other: GridCell, head: &GridHead) -> GridCell {
    match (one, &other) {
        (GridCell::Number(a), GridCell::Number(b)) => GridCell::Number(a + b),
        (GridCell::Time { seconds: a, .. }, GridCell::Time { seconds: b, .. }) if head.is_counter => {
            GridCell::seconds(a + b)
        }
        (GridCell::Time { .. }, GridCell::Time { .. }) if other.value() > one.value() => other,
        (GridCell::Nothing, _) => other,
        _ => one.clone(),
    }
}

fn texts_of(row: &[GridCell]) -> Vec<String> {
    row.iter().filter_map(|cell| if let GridCell::Text(text) = cell { Some(text.clone()) } else { None }).collect()
}
