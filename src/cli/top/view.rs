//! View of two samples, as tables that can be sorted and filtered. Independent of servers and terminals.

use super::sample::{Sample, Sum, SumSeries, SumTable};
use crate::report::{GridCell, GridHead, ToldHealth, ToldReport, Tone};
use crate::terminal::printable;
use poolcounter_service::health::Level;
use std::cmp::Reverse;
use std::collections::HashMap;

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
    pub title: String,
    /// Text shown if there are no rows.
    pub empty: String,
    /// Heads of the columns. The first column identifies the row.
    pub heads: Vec<GridHead>,
    /// Order of the rows.
    pub order: SortOrder,
    /// Visible rows, in order.
    pub rows: Vec<Vec<GridCell>>,
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

/// Line about a server.
pub struct ServerLine {
    /// Address of the server.
    pub address: String,
    /// Uptime, or the error.
    pub state: Result<GridCell, String>,
    /// Only requested service, if the server does not serve it.
    pub missing: Option<String>,
}

/// Line about a service.
pub struct ServiceLine {
    pub name: String,
    /// Sums over all servers, with their names and meanings.
    pub totals: Vec<(String, GridCell, Tone)>,
}

/// All visible contents.
pub struct View {
    /// Servers.
    pub servers: Vec<ServerLine>,
    /// Sentences about conditions, worst first: one for each service of each server.
    pub troubles: Vec<(Level, String)>,
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
        let (now_sums, before_sums) = (now.sums(), before.map(Sample::sums).unwrap_or_default());
        let server = |(address, report): &(String, Result<ToldReport, String>)| ServerLine {
            address: address.clone(),
            state: report.as_ref().map(|report| GridCell::seconds(report.uptime)).map_err(String::clone),
            missing: report.as_ref().ok().and_then(|report| now.missing_in(report)).map(String::from),
        };
        let mut view = View {
            servers: now.servers.iter().map(server).collect(),
            troubles: troubles(&now.servers),
            services: Vec::new(),
            panels: Vec::new(),
        };
        for sum in now_sums {
            let was = before_sums.iter().find(|was| was.name == sum.name);
            view.services.push(ServiceLine::of(&sum, was, seconds));
            for table in sum.tables {
                let was = was.and_then(|was| was.tables.iter().find(|was| was.id == table.id));
                let order = orders.get(&table.id).copied().unwrap_or_default();
                view.panels.push(Panel::of(table, was, seconds, view.services.len() - 1, filter, order));
            }
        }
        if let Some(table) = now.claims() {
            let service = view.services.iter().position(|service| service.name == POOLS).unwrap_or(0);
            let order = orders.get(&table.id).copied().unwrap_or_default();
            view.panels = vec![Panel::of(table, None, 0.0, service, filter, order)];
        }
        view
    }
}

/// Returns the sentences about conditions, worst first.
fn troubles(servers: &[(String, Result<ToldReport, String>)]) -> Vec<(Level, String)> {
    let of = |(address, report): &(String, Result<ToldReport, String>)| {
        let health = report.iter().flat_map(|report| &report.health).filter(|health| health.level > Level::Ok);
        let server = if servers.len() > 1 { format!("{address}: ") } else { String::new() };
        let line = |health: &ToldHealth| {
            let text = format!("{} {}: {server}{}", health.level.word(), health.title, health.sentence);
            (health.level, printable(text.as_bytes()))
        };
        health.map(line).collect::<Vec<_>>()
    };
    let mut troubles: Vec<(Level, String)> = servers.iter().flat_map(of).collect();
    troubles.sort_by_key(|(level, _)| Reverse(*level));
    troubles
}

impl ServiceLine {
    fn of(sum: &Sum, was: Option<&Sum>, seconds: f64) -> ServiceLine {
        let series = sum.series.iter().map(|SumSeries { title, is_rate, tone, now }| {
            let was = was.and_then(|was| was.series.iter().find(|known| known.title == *title));
            match is_rate {
                true => (format!("{title}/s"), rate_of(*now, was.map(|was| was.now), seconds), *tone),
                false => (title.clone(), GridCell::Number(*now), *tone),
            }
        });
        let connections = ("connections".into(), GridCell::Number(sum.connections as f64), Tone::Plain);
        ServiceLine { name: sum.name.clone(), totals: [connections].into_iter().chain(series).collect() }
    }
}

impl Panel {
    /// Returns the key of a row; None in a table of other things.
    pub fn key(&self, row: usize) -> Option<&str> {
        let is_of_keys = self.id.starts_with("pools.") && self.heads.first().is_some_and(|head| head.title == KEY);
        match self.rows.get(row)?.first()? {
            GridCell::Text(key) if is_of_keys => Some(key),
            _ => None,
        }
    }

    fn of(
        table: SumTable,
        was: Option<&SumTable>,
        seconds: f64,
        service: usize,
        filter: &str,
        order: SortOrder,
    ) -> Panel {
        let filter = filter.to_lowercase();
        let is_shown = |row: &&Vec<GridCell>| {
            row.iter().any(|cell| matches!(cell, GridCell::Text(text) if text.to_lowercase().contains(&filter)))
        };
        let rates = |row: &Vec<GridCell>| {
            let was = was.and_then(|was| was.like(row));
            let cells = row.iter().zip(&table.heads).enumerate();
            let cell = |(at, (cell, head)): (usize, (&GridCell, &GridHead))| match (cell.value(), head.is_counter) {
                (Some(now), true) => rate_of(now, was.and_then(|was| was.get(at)?.value()), seconds),
                _ => cell.clone(),
            };
            cells.map(cell).collect()
        };
        let mut rows: Vec<Vec<GridCell>> = table.rows.iter().filter(is_shown).map(rates).collect();
        if let Some(column) = order.column.filter(|column| *column < table.heads.len()) {
            rows.sort_by(|a, b| a[column].compare(&b[column]).then_with(|| a[0].compare(&b[0])));
        }
        if order.is_reversed {
            rows.reverse();
        }
        let empty = if table.rows.is_empty() { table.empty } else { HIDDEN.into() };
        let heads = table.heads.into_iter().map(|head| match head.is_counter {
            true => GridHead { title: format!("{}/s", head.title), ..head },
            false => head,
        });
        Panel { id: table.id, service, title: table.title, empty, heads: heads.collect(), order, rows }
    }
}

/// Returns the growth per second; empty if unknown.
fn rate_of(now: f64, was: Option<f64>, seconds: f64) -> GridCell {
    match was {
        // A restarted server has started to count again.
        Some(was) if seconds > 0.0 => GridCell::Rate((now - was).max(0.0) / seconds),
        _ => GridCell::Nothing,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::time::{Duration, Instant};

    /// Returns the report of a server: a service with two tables, and an unused one.
    fn report(acquired: u64, jobs: &[(&str, u64, u64, f64)], locks: &[(&str, f64)]) -> ToldReport {
        let column = |name: &str, unit: &str, is_counter: bool| json!({ "name": name, "title": name, "unit": unit, "help": "", "is_counter": is_counter, "emphasis": "none" });
        let heading = |name: &str, title: &str, columns: Value| {
            let empty = format!("No {name}.");
            json!({ "name": name, "title": title, "help": "", "empty": empty, "note": null, "more": 0, "columns": columns })
        };
        let service = |name: &str, opened: u64, tables: Value| {
            json!({ "name": name, "connections": opened, "connections_opened": opened, "figures": [
                { "name": "uptime", "help": "", "value": 90_061.5, "is_seconds": true }
            ], "tables": tables })
        };
        let jobs_columns =
            [("type", "name", false), ("ready", "number", false), ("done", "number", true), ("wait", "times", false)];
        let jobs_columns = jobs_columns.map(|(name, unit, is_counter)| column(name, unit, is_counter));
        let locks_columns = [column("key", "name", false), column("for", "seconds", false)];
        let tables = json!([
            heading("jobs", "Jobs by type", jobs_columns.into()),
            heading("locks", "Longest locks", locks_columns.into())
        ]);
        let jobs = jobs.iter().map(|(name, ready, done, p50)| {
            let wait = json!({ "p50": p50, "p99": null, "p50_is_over": false, "p99_is_over": false });
            json!({ "type": name, "ready": ready, "done": done, "wait": wait })
        });
        let locks = locks.iter().map(|(key, age)| json!({ "key": key, "for": age }));
        let series = |title: &str, is_rate: bool, now: u64| json!({ "service": "work", "name": "x", "title": title, "unit": "", "is_rate": is_rate, "now": now, "values": [] });
        ToldReport::read(json!({
            "version": "9", "uptime": 90_061.5, "started_at": 0.0,
            "services": [service("work", 3, tables), service("idle", 0, json!([heading("none", "None", json!([]))]))],
            "work": { "jobs": jobs.collect::<Value>(), "locks": locks.collect::<Value>() },
            "history": { "series": [series("Done", true, acquired), series("Ready", false, 7)] },
        }))
        .expect("is a report")
    }

    /// Returns two samples, two seconds apart, with one of two servers alive.
    pub fn samples() -> (Sample, Sample) {
        let at = Instant::now();
        let dead = || ("10.0.0.6".to_string(), Err("10.0.0.6:7531: it does not answer".to_string()));
        let before = report(100, &[("Article", 2, 90, 0.1)], &[]);
        let jobs = [("Article", 8, 131, 0.25), ("File:\u{1b}[2J", 9, 4, 1.5)];
        let now = report(150, &jobs, &[("Article:a", 75.5), ("Article:b", 0.005)]);
        let sample =
            |at, report| Sample { at, servers: vec![("10.0.0.5".into(), Ok(report)), dead()], only: None, key: None };
        (sample(at, before), sample(at + Duration::from_secs(2), now))
    }

    fn texts(panel: &Panel) -> Vec<String> {
        panel.rows.iter().map(|row| row.iter().map(GridCell::to_string).collect::<Vec<_>>().join("|")).collect()
    }

    fn totals(view: &View) -> Vec<String> {
        view.services[0].totals.iter().map(|(name, cell, _)| format!("{cell} {name}")).collect()
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
        let heads: Vec<&str> = view.panels[0].heads.iter().map(|head| &*head.title).collect();
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

    /// Numbers are added up, the longer time counts, and the first rows of all servers come first.
    #[test]
    fn servers_are_one() {
        let (mut before, mut now) = samples();
        let other = |done| report(9, &[("Page", 1, 1, 0.5), ("Article", 1, done, 0.125)], &[("Article:b", 7.0)]);
        before.servers[1].1 = Ok(other(10));
        now.servers[1].1 = Ok(other(30));
        let view = View::of(&now, Some(&before), "", &Orders::new());
        assert_eq!(texts(&view.panels[0]), ["Article|9|30|250 ms|-", "Page|1|0|500 ms|-", FILE]);
        assert_eq!(texts(&view.panels[1]), ["Article:a|1 min 15 s", "Article:b|7.0 s"]);
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
