//! Reports of servers at one moment, and the view of two such samples, as tables that can be sorted and filtered.
//! Independent of terminals.

use crate::holders::state_of;
use crate::report::{is_used, rate_text, snapshots, tables_of, text_of};
use crate::servers::rows_of;
use poolcounter_client::{Client, ListedClaim};
use poolcounter_core::text::visible;
use poolcounter_service::report::{
    Cell, Column, ColumnUnit, Emphasis, Level, ShownCurve, ShownService, Snapshot, Table,
};
use poolcounter_service::shown::duration;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Service whose keys have holders.
const POOLS: &str = "pools";
/// Head of a column of its keys.
const KEY: &str = "key";
/// Text in place of rows that the filter hides.
const HIDDEN: &str = "none with this text";

/// Table of the view.
pub struct Panel {
    /// Name, unique among all services.
    pub id: String,
    /// Index of its service.
    pub service: usize,
    /// Its columns, and its visible rows in order. The first column identifies the row.
    pub table: Table,
    /// Order of the rows.
    pub order: SortOrder,
}

/// Order of the rows of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SortOrder {
    /// Column to sort by; None for the order of the servers.
    pub column: Option<usize>,
    /// True for the reverse of the default: names descending, numbers ascending.
    pub is_reversed: bool,
}

/// Orders of tables, by their names. Other tables are in the order of the servers.
pub type Orders = HashMap<String, SortOrder>;

/// Line about a service.
pub struct ServiceLine {
    pub name: String,
    /// Sums over all servers.
    pub totals: Vec<Total>,
}

/// Sum over all servers.
pub struct Total {
    pub name: String,
    pub text: String,
    /// Emphasis of the value; none if nothing happens now.
    pub emphasis: Emphasis,
}

/// All visible contents.
pub struct View {
    /// Address of each server, with its uptime or the error.
    pub servers: Vec<(String, Result<String, String>)>,
    /// Conditions that hold, worst first.
    pub troubles: Vec<(Level, String)>,
    /// Number of further conditions, of which there are no sentences.
    pub more_troubles: usize,
    /// Used services.
    pub services: Vec<ServiceLine>,
    /// Tables of the services.
    pub panels: Vec<Panel>,
}

impl View {
    /// Returns the view of `now`, with rates since `before`. The tables have only rows that contain `filter`.
    pub fn of(now: &Sample, before: Option<&Sample>, filter: &str, orders: &Orders) -> View {
        let before = before.filter(|before| before.is_comparable(now));
        let seconds = before.map_or(0.0, |before| now.at.duration_since(before.at).as_secs_f64());
        let (sum, before_sum) = (now.sum(), before.map(Sample::sum).unwrap_or_default());
        let server = |(address, report): &(String, Result<Snapshot, String>)| {
            (address.clone(), report.as_ref().map(|report| duration(report.uptime)).map_err(String::clone))
        };
        let mut view = View {
            servers: now.servers.iter().map(server).collect(),
            troubles: troubles(&sum),
            more_troubles: sum.health.iter().map(|health| health.more).sum(),
            services: Vec::new(),
            panels: Vec::new(),
        };
        for service in &sum.services {
            let was = before_sum.services.iter().find(|was| was.name == service.name);
            view.services.push(ServiceLine::of(service, &sum, &before_sum, seconds));
            let before = was.map(tables_of).unwrap_or_default();
            for table in tables_of(service) {
                let was = before.iter().find(|was| was.name == table.name);
                let id = format!("{}.{}", service.name, table.name);
                let order = orders.get(&id).copied().unwrap_or_default();
                view.panels.push(Panel::of(id, table, was, seconds, view.services.len() - 1, filter, order));
            }
        }
        if let Some(table) = now.claims() {
            let service = view.services.iter().position(|service| service.name == POOLS).unwrap_or(0);
            let order = orders.get(KEY_TABLE).copied().unwrap_or_default();
            view.panels = vec![Panel::of(KEY_TABLE.into(), table, None, 0.0, service, filter, order)];
        }
        view
    }
}

/// Returns the sentences about conditions, worst first.
fn troubles(sum: &Snapshot) -> Vec<(Level, String)> {
    let all = sum.health.iter().flat_map(|health| health.conditions.iter().map(|on| (&health.title, on)));
    let mut on: Vec<_> = all.filter(|(_, on)| on.level > Level::Ok).collect();
    on.sort_by(|(_, a), (_, b)| (b.level, b.badness).partial_cmp(&(a.level, a.badness)).unwrap_or(Ordering::Equal));
    on.iter().map(|(title, on)| (on.level, format!("{} {title}: {}", on.level.word(), on.sentence))).collect()
}

impl ServiceLine {
    fn of(service: &ShownService, now: &Snapshot, before: &Snapshot, seconds: f64) -> ServiceLine {
        let total = |curve: &ShownCurve| {
            let mut all = before.history.series.iter();
            let was = all.find(|was| (&was.service, &was.name) == (&curve.service, &curve.name));
            let (name, value) = match curve.is_rate {
                true => {
                    (format!("{}/s", curve.title), rate_of(curve.now as f64, was.map(|was| was.now as f64), seconds))
                }
                false => (curve.title.to_string(), Some(curve.now as f64)),
            };
            let is_now = (curve.is_rate || curve.emphasis == Emphasis::Caution) && value > Some(0.0);
            let emphasis = if is_now { curve.emphasis } else { Emphasis::None };
            let text =
                value.map_or("-".into(), |value| if curve.is_rate { rate_text(value) } else { value.to_string() });
            Total { name, text, emphasis }
        };
        let series = now.history.series.iter().filter(|series| series.service == service.name).map(total);
        let (text, emphasis) = (service.traffic.open.to_string(), Emphasis::None);
        let connections = Total { name: "connections".into(), text, emphasis };
        ServiceLine { name: service.name.to_string(), totals: [connections].into_iter().chain(series).collect() }
    }
}

impl Panel {
    /// Returns the key of a row; None in a table of other things.
    pub fn key(&self, row: usize) -> Option<&str> {
        let is_of_keys =
            self.id.starts_with("pools.") && self.table.columns.first().is_some_and(|head| head.title == KEY);
        match self.table.rows.get(row)?.first()? {
            Cell::Text(key) if is_of_keys => Some(key),
            _ => None,
        }
    }

    fn of(
        id: String,
        mut table: Table,
        was: Option<&Table>,
        seconds: f64,
        service: usize,
        filter: &str,
        order: SortOrder,
    ) -> Panel {
        let before: HashMap<_, _> =
            was.iter().flat_map(|was| was.rows.iter().map(|row| (names_of(row, &was.columns), row))).collect();
        let filter = filter.to_lowercase();
        if !table.rows.is_empty() {
            table.empty = HIDDEN.into();
        }
        table.rows.retain(|row| names_of(row, &table.columns).iter().any(|name| name.to_lowercase().contains(&filter)));
        for row in &mut table.rows {
            let was = before.get(&names_of(row, &table.columns));
            for at in (0..row.len()).filter(|at| table.columns[*at].is_counter) {
                if let Some(now) = value_of(&row[at]) {
                    let was = was.and_then(|was| value_of(was.get(at)?));
                    row[at] = rate_of(now, was, seconds).map_or(Cell::Nothing, Cell::Seconds);
                }
            }
        }
        for column in table.columns.iter_mut().filter(|column| column.is_counter) {
            (column.title, column.unit) = (format!("{}/s", column.title).into(), ColumnUnit::Number);
        }
        if let Some(column) = order.column.filter(|column| *column < table.columns.len()) {
            table.rows.sort_by(|a, b| compare(&a[column], &b[column]).then_with(|| compare(&a[0], &b[0])));
        }
        if order.is_reversed {
            table.rows.reverse();
        }
        Panel { id, service, table, order }
    }
}

/// Returns the cells of a row in columns of text, which identify it.
fn names_of(row: &[Cell], columns: &[Column]) -> Vec<String> {
    let cells = row.iter().zip(columns).filter(|(_, column)| column.is_text());
    cells.map(|(cell, column)| text_of(cell, column)).collect()
}

/// Compares in the default order: names ascending, numbers descending.
fn compare(one: &Cell, other: &Cell) -> Ordering {
    match (one, other) {
        (Cell::Text(a), Cell::Text(b)) => a.cmp(b),
        // An unknown value is less than any number.
        (a, b) => value_of(b).unwrap_or(-1.0).total_cmp(&value_of(a).unwrap_or(-1.0)),
    }
}

/// Returns the growth per second, if known.
fn rate_of(now: f64, was: Option<f64>, seconds: f64) -> Option<f64> {
    // A restarted server has started to count again.
    was.filter(|_| seconds > 0.0).map(|was| (now - was).max(0.0) / seconds)
}

/// Returns the number in a cell, if any.
pub fn value_of(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::Number(number) => Some(*number as f64),
        Cell::Seconds(value) => Some(*value),
        _ => None,
    }
}

/// Number of rows of each table requested from each server.
const ROWS: usize = 200;

/// Name of the table of a key's claims.
pub const KEY_TABLE: &str = "key";

/// Reports of all servers at one moment.
pub struct Sample {
    /// Time of the sample.
    pub at: Instant,
    /// Servers by address, each with its report or error.
    pub servers: Vec<(String, Result<Snapshot, String>)>,
    /// Key to show, with the holders and waiters of its locks.
    pub key: Option<(String, Vec<ListedClaim>)>,
}

impl Sample {
    /// Asks the servers for their reports, and for the holders of a key, if given.
    pub fn take(client: &Client, key: Option<&str>) -> Sample {
        let (at, servers) = (Instant::now(), snapshots(client, ROWS));
        let claims = |key: &str| rows_of(client.claims_of_each(key).unwrap_or_default()).collect();
        Sample { at, servers, key: key.map(|key| (key.into(), claims(key))) }
    }

    /// Returns true if the same servers replied to both samples; otherwise there are no rates.
    pub fn is_comparable(&self, other: &Sample) -> bool {
        let answered = |sample: &Sample| sample.servers.iter().map(|(_, report)| report.is_ok()).collect::<Vec<_>>();
        answered(self) == answered(other)
    }

    /// Returns the claims on the requested key, as a table.
    pub fn claims(&self) -> Option<Table> {
        let (key, claims) = self.key.as_ref()?;
        let column = |title: &'static str, unit| Column::new("", title, unit, "");
        let text = |title| column(title, ColumnUnit::Text);
        let columns = vec![text("state"), column("for", ColumnUnit::Seconds), text("client"), text("who")];
        let row = |claim: &ListedClaim| {
            let text = |text: &str| Cell::Text(visible(text.as_bytes(), usize::MAX));
            let age = Cell::Seconds(Duration::from(claim.age).as_secs_f64());
            vec![text(state_of(claim)), age, text(&claim.peer), text(&claim.who)]
        };
        let empty = "No holders or waiters, or the name of the key was not shown in full.";
        Some(Table::new("", key.clone(), columns).empty(empty).rows(claims.iter().map(row)))
    }

    /// Returns the report of the only server that answered, or the sum of the reports, with the used services.
    pub fn sum(&self) -> Snapshot {
        let answered = self.servers.iter().filter_map(|(server, report)| Some((server, report.as_ref().ok()?)));
        let answered: Vec<(&String, &Snapshot)> = answered.collect();
        let mut sum = match &answered[..] {
            [(_, only)] => (*only).clone(),
            several => {
                let mut sum = Snapshot::default();
                several.iter().enumerate().for_each(|(n, (server, report))| sum.add(server, n, (*report).clone()));
                sum
            }
        };
        sum.services.retain(is_used);
        sum
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::report::texts_of;
    use poolcounter_core::text::visible;
    use poolcounter_service::contract::Traffic;
    use poolcounter_service::report::snapshot::{ShownCondition, ShownFigure, ShownHealth, ShownHistory, Values};
    use poolcounter_service::report::tables::Times;
    use std::time::{Duration, Instant};

    /// Returns the report of a server: a service with two tables, and an unused one.
    fn report(acquired: u64, jobs: &[(&str, u64, u64, f64)], locks: &[(&str, f64)]) -> Snapshot {
        let column = |name: &'static str, unit| Column::new(name, name, unit, "");
        let table = |name: &'static str, title: &'static str, columns| {
            Table::new(name, title, columns).empty(format!("No {name}."))
        };
        let text = |text: &str| Cell::Text(visible(text.as_bytes(), 100));
        let jobs = jobs.iter().map(|(name, ready, done, p50)| {
            let times = Times { p50: Some(*p50), p99: None, p50_is_over: false, p99_is_over: false, all: None };
            vec![text(name), Cell::Number(*ready), Cell::Number(*done), Cell::Times(times)]
        });
        let locks = locks.iter().map(|(key, age)| vec![text(key), Cell::Seconds(*age)]);
        let jobs_columns = vec![
            column("type", ColumnUnit::Name),
            column("ready", ColumnUnit::Number),
            Column { is_counter: true, ..column("done", ColumnUnit::Number) },
            column("wait", ColumnUnit::Times),
        ];
        let locks_columns = vec![column("key", ColumnUnit::Name), column("for", ColumnUnit::Seconds)];
        let tables = vec![
            table("jobs", "Jobs by type", jobs_columns).of_kinds().rows(jobs),
            table("locks", "Longest locks", locks_columns).rows(locks),
        ];
        let service = |name: &'static str, connections: u64, tables| ShownService {
            name: name.into(),
            is_enabled: true,
            traffic: Traffic { open: connections, opened: connections.into(), ..Traffic::default() },
            figures: vec![ShownFigure::default()],
            tables,
            ..ShownService::default()
        };
        let curve = |title: &'static str, is_rate: bool, now: u64| ShownCurve {
            service: "work".into(),
            name: title.into(),
            title: title.into(),
            unit: "".into(),
            is_rate,
            emphasis: Emphasis::None,
            now,
            values: Values::Levels(Vec::new()),
        };
        let series = vec![curve("Done", true, acquired), curve("Ready", false, 7)];
        Snapshot {
            uptime: 90_061.5,
            services: vec![service("work", 3, tables), service("idle", 0, vec![table("none", "None", Vec::new())])],
            history: ShownHistory { series, ..ShownHistory::default() },
            ..Snapshot::default()
        }
    }

    /// Returns two samples, two seconds apart, with one of two servers alive.
    pub fn samples() -> (Sample, Sample) {
        let at = Instant::now();
        let dead = || ("10.0.0.6".to_string(), Err("10.0.0.6:7531: it does not answer".to_string()));
        let before = report(100, &[("Article", 2, 90, 0.1)], &[]);
        let jobs = [("Article", 8, 131, 0.25), ("File:\u{1b}[2J", 9, 4, 1.5)];
        let now = report(150, &jobs, &[("Article:a", 75.5), ("Article:b", 0.005)]);
        let sample = |at, report| Sample { at, servers: vec![("10.0.0.5".into(), Ok(report)), dead()], key: None };
        (sample(at, before), sample(at + Duration::from_secs(2), now))
    }

    fn texts(panel: &Panel) -> Vec<String> {
        texts_of(&panel.table)[1..].iter().map(|row| row.join("|")).collect()
    }

    fn totals(view: &View) -> Vec<String> {
        view.services[0].totals.iter().map(|total| format!("{} {}", total.text, total.name)).collect()
    }

    const FILE: &str = "File:\\u{1b}[2J|9|-|1.5 s|-";

    #[test]
    fn events_are_shown_by_second() {
        let (before, now) = samples();
        let view = View::of(&now, Some(&before), "", &Orders::new());
        assert_eq!((view.services.len(), view.panels.len()), (1, 2), "what nobody uses is left out");
        assert_eq!(totals(&view), ["3 connections", "25 Done/s", "7 Ready"]);
        assert_eq!(texts(&view.panels[0]), ["Article|8|20|250 ms|-", FILE], "what is new has no rate yet");
        assert_eq!(texts(&view.panels[1]), ["Article:a|1 min 15 s", "Article:b|5 ms"]);
        let heads: Vec<&str> = view.panels[0].table.columns.iter().map(|head| &*head.title).collect();
        assert_eq!(heads, ["type", "ready", "done/s", "wait p50", "wait p99"]);
        let first = View::of(&now, None, "", &Orders::new());
        assert_eq!(texts(&first.panels[0]), ["Article|8|-|250 ms|-", FILE]);
        assert_eq!(totals(&first), ["3 connections", "- Done/s", "7 Ready"]);
    }

    #[test]
    fn a_server_that_comes_back_makes_no_rate() {
        let (before, mut now) = samples();
        now.servers[1].1 = Ok(report(1_000_000, &[], &[]));
        assert_eq!(
            totals(&View::of(&now, Some(&before), "", &Orders::new())),
            ["6 connections", "- Done/s", "14 Ready"]
        );
        // A restarted server has lower counts than before.
        now.servers[1].1 = Err("it does not answer".into());
        now.servers[0].1 = Ok(report(3, &[], &[]));
        assert_eq!(
            totals(&View::of(&now, Some(&before), "", &Orders::new())),
            ["3 connections", "0 Done/s", "7 Ready"]
        );
    }

    #[test]
    fn every_condition_has_a_line() {
        let (_, mut now) = samples();
        let condition = |level, badness, sentence: &str| ShownCondition {
            name: "c".into(),
            level,
            subject: String::new(),
            sentence: sentence.into(),
            badness,
            since: 1.0,
            until: None,
            link: "/".into(),
            command: String::new(),
        };
        let conditions = vec![
            condition(Level::Critical, 2.0, "a"),
            condition(Level::Warning, 9.0, "b"),
            condition(Level::Ok, 9.0, "is over"),
        ];
        let health = |title: &'static str, conditions, more| ShownHealth {
            title: title.into(),
            level: Level::Critical,
            sentence: String::new(),
            conditions,
            more,
        };
        let report = now.servers[0].1.as_mut().expect("it answers");
        report.health =
            vec![health("Jobs", conditions, 1), health("Locks", vec![condition(Level::Critical, 3.0, "d")], 2)];
        let view = View::of(&now, None, "", &Orders::new());
        let sentences: Vec<&str> = view.troubles.iter().map(|(_, sentence)| &**sentence).collect();
        assert_eq!(sentences, ["critical Locks: d", "critical Jobs: a", "warning Jobs: b"]);
        assert_eq!(view.more_troubles, 3);
    }

    /// Numbers are added up, the longer time counts, and the first rows of all servers come first.
    #[test]
    fn servers_are_one() {
        let (mut before, mut now) = samples();
        let other = |done| report(9, &[("Page", 1, 1, 0.5), ("Article", 1, done, 0.125)], &[("Article:b", 7.0)]);
        before.servers[1].1 = Ok(other(10));
        now.servers[1].1 = Ok(other(30));
        let view = View::of(&now, Some(&before), "", &Orders::new());
        assert_eq!(texts(&view.panels[0]), ["Article|9|30|250 ms|-", "Page|1|0|500 ms|-", FILE]);
        assert_eq!(
            texts(&view.panels[1]),
            ["Article:a|10.0.0.5|1 min 15 s", "Article:b|10.0.0.6|7.0 s", "Article:b|10.0.0.5|5 ms"]
        );
    }

    #[test]
    fn rows_are_sorted_and_filtered() {
        let (_, now) = samples();
        let types = |column, is_reversed, filter| {
            let orders = Orders::from([("work.jobs".into(), SortOrder { column, is_reversed })]);
            texts(&View::of(&now, None, filter, &orders).panels[0])
        };
        let article = "Article|8|-|250 ms|-";
        assert_eq!(types(None, false, ""), [article, FILE]);
        assert_eq!(types(None, true, ""), [FILE, article]);
        assert_eq!(types(Some(0), true, ""), [FILE, article]);
        assert_eq!(types(Some(1), false, ""), [FILE, article]);
        assert_eq!(types(Some(2), false, ""), [article, FILE], "what is equal stands by name");
        assert_eq!(types(Some(99), false, "ARTICLE"), [article]);
        assert_eq!(types(Some(1), false, "nothing"), [""; 0]);
    }
}
