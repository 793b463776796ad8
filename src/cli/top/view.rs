//! What there is to see: tables of two samples, which can be sorted and filtered. It knows neither servers nor terminals.

use super::sample::Sample;
use crate::cli::terminal::printable;
use crate::pools::stats::PoolStat as Stat;
use crate::pools::wire::client::listing::{ListedClaim, ListedRow};
use crate::time::Span;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;

/// A table.
pub struct Panel {
    /// The heads of its columns. The first is text.
    pub columns: &'static [&'static str],
    /// The rows, in order.
    pub rows: Vec<Vec<Cell>>,
}

/// What stands in a table.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    /// A name.
    Text(String),
    /// How many there are.
    Count(u64),
    /// How many there were in a second.
    Rate(f64),
    /// How long something takes or took; None without any.
    Time(Option<Span>),
}

/// In which order the rows of a table stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SortOrder {
    /// By which column.
    pub column: usize,
    /// Whether the other way round than usual: names go up, numbers down.
    pub is_reversed: bool,
}

/// A server in a few words.
pub struct ServerLine {
    /// Its address.
    pub address: String,
    /// How long it has run, or what is wrong with it.
    pub state: Result<Span, String>,
}

/// Everything that can be seen.
pub struct View {
    /// The servers.
    pub servers: Vec<ServerLine>,
    /// Numbers of all servers together, with their names.
    pub totals: Vec<(&'static str, Cell)>,
    /// Types, keys and holders.
    pub panels: [Panel; PANELS],
}

/// How many tables there are.
pub const PANELS: usize = 3;
/// The orders in which the tables stand at first: what most is waited for, and what is oldest.
pub const USUAL_ORDERS: [SortOrder; PANELS] = [
    SortOrder { column: 2, is_reversed: false },
    SortOrder { column: 2, is_reversed: false },
    SortOrder { column: 1, is_reversed: false },
];

const TYPE_COLUMNS: &[&str] = &["TYPE", "WORK", "WAIT", "LOCKED/s", "DONE/s", "FULL/s", "TIMEOUT/s", "HELD"];
const KEY_COLUMNS: &[&str] = &["KEY", "WORK", "WAIT", "OLDEST"];
const HOLDER_COLUMNS: &[&str] = &["HELD KEY", "FOR", "HOLDER"];

impl View {
    /// What `now` shows, and what has happened since `before`. Only what contains `filter` is in the tables.
    pub fn of(now: &Sample, before: Option<&Sample>, filter: &str, orders: &[SortOrder; PANELS]) -> View {
        let before = before.filter(|before| before.is_comparable(now));
        let seconds = before.map_or(0.0, |before| now.at.duration_since(before.at).as_secs_f64());
        let rates = Rates { seconds };
        let total = |stat| before.map_or(0, |before| before.total(stat));
        let rate = |stat| rates.of(now.total(stat), total(stat));
        let types = types_of(now, before, &rates);
        let timeouts = types.iter().map(|row| row[6].as_rate()).sum();
        let done = types.iter().map(|row| row[4].as_rate()).sum();
        let totals = vec![
            ("working", Cell::Count(now.total(Stat::ProcessingWorkers))),
            ("waiting", Cell::Count(now.total(Stat::WaitingWorkers))),
            ("keys", Cell::Count(now.total(Stat::HashtableEntries))),
            ("locked/s", rate(Stat::TotalAcquired)),
            ("done/s", Cell::Rate(done)),
            ("full/s", rate(Stat::FullQueues)),
            ("timeout/s", Cell::Rate(timeouts)),
        ];
        let panel = |columns, rows, order| Panel::new(columns, rows, filter, order);
        View {
            servers: now
                .servers
                .iter()
                .map(|(address, figures)| ServerLine {
                    address: address.clone(),
                    state: match figures {
                        Ok(figures) => Ok(Span::from_micros(figures.of(Stat::Uptime))),
                        Err(failure) => Err(failure.behind(address)),
                    },
                })
                .collect(),
            totals,
            panels: [
                panel(TYPE_COLUMNS, types, orders[0]),
                panel(KEY_COLUMNS, now.keys.iter().map(key_row).collect(), orders[1]),
                panel(HOLDER_COLUMNS, now.holders.iter().map(holder_row).collect(), orders[2]),
            ],
        }
    }
}

impl Panel {
    fn new(columns: &'static [&'static str], mut rows: Vec<Vec<Cell>>, filter: &str, order: SortOrder) -> Panel {
        let filter = filter.to_lowercase();
        rows.retain(|row| {
            row.iter().any(|cell| matches!(cell, Cell::Text(text) if text.to_lowercase().contains(&filter)))
        });
        rows.sort_by(|a, b| {
            let by_column = a[order.column].compare(&b[order.column]);
            let by_column = if order.is_reversed { by_column.reverse() } else { by_column };
            by_column.then_with(|| a[0].compare(&b[0]))
        });
        Panel { columns, rows }
    }
}

impl Cell {
    /// The usual order: names up, numbers down.
    fn compare(&self, other: &Cell) -> Ordering {
        match (self, other) {
            (Cell::Text(a), Cell::Text(b)) => a.cmp(b),
            (Cell::Count(a), Cell::Count(b)) => b.cmp(a),
            (Cell::Rate(a), Cell::Rate(b)) => b.total_cmp(a),
            (Cell::Time(a), Cell::Time(b)) => b.cmp(a),
            // A column has cells of one kind.
            _ => Ordering::Equal,
        }
    }

    /// Whether it stands at the right of its column, as numbers do.
    pub fn is_number(&self) -> bool {
        !matches!(self, Cell::Text(_))
    }

    fn as_rate(&self) -> f64 {
        if let Cell::Rate(rate) = self { *rate } else { 0.0 }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Text(text) => f.write_str(text),
            Cell::Count(count) => count.fmt(f),
            Cell::Rate(rate) if *rate == 0.0 => f.write_str("0"),
            Cell::Rate(rate) if *rate < 10.0 => write!(f, "{rate:.1}"),
            Cell::Rate(rate) => write!(f, "{rate:.0}"),
            Cell::Time(None) => f.write_str("-"),
            Cell::Time(Some(span)) => f.write_str(&brief(*span)),
        }
    }
}

/// What has happened between two samples.
struct Rates {
    seconds: f64,
}

impl Rates {
    fn of(&self, now: u64, before: u64) -> Cell {
        // A server that was restarted has begun anew.
        let grown = now.saturating_sub(before) as f64;
        Cell::Rate(if self.seconds > 0.0 { grown / self.seconds } else { 0.0 })
    }
}

fn types_of(now: &Sample, before: Option<&Sample>, rates: &Rates) -> Vec<Vec<Cell>> {
    let earlier: HashMap<&[u8], &ListedRow> =
        before.iter().flat_map(|before| &before.types).map(|row| (&row.name[..], row)).collect();
    let row = |one: &ListedRow| {
        // Of a type that is new, everything has happened since.
        let was = |word| earlier.get(&one.name[..]).map_or(0, |earlier| earlier.amount(word));
        let rate = |word| if before.is_some() { rates.of(one.amount(word), was(word)) } else { Cell::Rate(0.0) };
        let given_back = one.amount("acquired").saturating_sub(one.amount("working"));
        let given_back = given_back.saturating_sub(was("acquired").saturating_sub(was("working")));
        let held = one.amount("held").saturating_sub(was("held")).checked_div(given_back);
        vec![
            Cell::Text(printable(&one.name)),
            Cell::Count(one.amount("working")),
            Cell::Count(one.amount("waiting")),
            rate("acquired"),
            rate("done"),
            rate("full"),
            rate("timeouts"),
            Cell::Time(held.map(Span::from_micros)),
        ]
    };
    now.types.iter().map(row).collect()
}

fn key_row(key: &ListedRow) -> Vec<Cell> {
    vec![
        Cell::Text(printable(&key.name)),
        Cell::Count(key.amount("working")),
        Cell::Count(key.amount("waiting")),
        Cell::Time(Some(Span::from_micros(key.amount("oldest")))),
    ]
}

fn holder_row((key, holder): &(Vec<u8>, ListedClaim)) -> Vec<Cell> {
    let text = |bytes| Cell::Text(printable(bytes));
    vec![text(key), Cell::Time(Some(holder.age)), text(holder.peer.as_bytes())]
}

/// A span in two units at most.
pub fn brief(span: Span) -> String {
    let ms = span.as_micros() / 1_000;
    let s = ms / 1_000;
    match s {
        0 => format!("{ms} ms"),
        1..60 => format!("{s}.{} s", ms % 1_000 / 100),
        60..3_600 => format!("{} m {} s", s / 60, s % 60),
        3_600..86_400 => format!("{} h {} m", s / 3_600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86_400, s / 3_600 % 24),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::client::{Failure, Fault};
    use crate::stats::Figures;
    use std::time::{Duration, Instant};

    fn rows_of(lines: &[&str]) -> Vec<ListedRow> {
        lines.iter().map(|line| ListedRow::parse(line.as_bytes()).expect("is a line")).collect()
    }

    fn figures(acquired: u64, full: u64) -> Figures<Stat> {
        let mut figures = Figures::default();
        figures.set(Stat::Uptime, 90_061_000_000);
        figures.set(Stat::TotalAcquired, acquired);
        figures.set(Stat::FullQueues, full);
        figures.set(Stat::ProcessingWorkers, 3);
        figures.set(Stat::WaitingWorkers, 9);
        figures
    }

    fn silent() -> Failure {
        Failure { address: "10.0.0.6:7531".into(), fault: Fault::Silent }
    }

    /// Two seconds with one of two servers.
    pub fn samples() -> (Sample, Sample) {
        let at = Instant::now();
        let dead = || ("10.0.0.6".to_string(), Err(silent()));
        let before = Sample {
            at,
            servers: vec![("10.0.0.5".into(), Ok(figures(100, 7))), dead()],
            keys: Vec::new(),
            types: rows_of(&[
                "Article: 1 working, 0 waiting, 90 acquired, 5 done, 7 full, 0 timeouts, waited 0.0s, held 10.0s",
            ]),
            holders: Vec::new(),
        };
        let now = Sample {
            at: at + Duration::from_secs(2),
            servers: vec![("10.0.0.5".into(), Ok(figures(150, 8))), dead()],
            keys: rows_of(&[
                "Article:a: 1 working, 8 waiting, oldest 75.000000s",
                "Article:b: 1 working, 0 waiting, oldest 0.005000s",
                "File:\u{1b}[2J: 1 working, 1 waiting, oldest 3.250000s",
            ]),
            types: rows_of(&[
                "Article: 2 working, 8 waiting, 131 acquired, 9 done, 8 full, 1 timeouts, waited 0.0s, held 14.0s",
                "File: 1 working, 1 waiting, 9 acquired, 0 done, 0 full, 0 timeouts, waited 0.0s, held 8.0s",
            ]),
            holders: vec![
                (b"Article:a".to_vec(), ListedClaim::parse(b"10.1.0.1:5000 working 75.000000s").expect("is a line")),
                (b"Article:b".to_vec(), ListedClaim::parse(b"10.1.0.2:5000 working 0.005000s").expect("is a line")),
            ],
        };
        (before, now)
    }

    fn texts(panel: &Panel) -> Vec<String> {
        panel.rows.iter().map(|row| row.iter().map(Cell::to_string).collect::<Vec<_>>().join("|")).collect()
    }

    #[test]
    fn what_has_happened_is_told_by_second() {
        let (before, now) = samples();
        let view = View::of(&now, Some(&before), "", &USUAL_ORDERS);
        let totals: Vec<String> = view.totals.iter().map(|(name, cell)| format!("{cell} {name}")).collect();
        assert_eq!(
            totals,
            ["3 working", "9 waiting", "0 keys", "25 locked/s", "2.0 done/s", "0.5 full/s", "0.5 timeout/s"]
        );
        assert_eq!(texts(&view.panels[0]), ["Article|2|8|20|2.0|0.5|0.5|100 ms", "File|1|1|4.5|0|0|0|1.0 s"]);
        assert_eq!(texts(&view.panels[2]), ["Article:a|1 m 15 s|10.1.0.1:5000", "Article:b|5 ms|10.1.0.2:5000"]);
        let first = View::of(&now, None, "", &USUAL_ORDERS);
        assert_eq!(texts(&first.panels[0])[0], "Article|2|8|0|0|0|0|108 ms");
        assert_eq!(first.totals[3].1, Cell::Rate(0.0));
    }

    #[test]
    fn a_server_that_comes_back_makes_no_rate() {
        let (before, mut now) = samples();
        now.servers[1].1 = Ok(figures(1_000_000, 0));
        assert_eq!(View::of(&now, Some(&before), "", &USUAL_ORDERS).totals[3].1, Cell::Rate(0.0));
        // One that was restarted has counted less than before.
        now.servers[1].1 = Err(silent());
        now.servers[0].1 = Ok(figures(3, 0));
        assert_eq!(View::of(&now, Some(&before), "", &USUAL_ORDERS).totals[3].1, Cell::Rate(0.0));
    }

    #[test]
    fn rows_are_sorted_and_filtered() {
        let (_, now) = samples();
        let keys = |column, is_reversed, filter| {
            let orders = [SortOrder { column, is_reversed }; PANELS];
            let view =
                View::of(&now, None, filter, &orders.map(|order| SortOrder { column: order.column.min(2), ..order }));
            texts(&view.panels[1])
        };
        let (a, b, file) = ("Article:a|1|8|1 m 15 s", "Article:b|1|0|5 ms", "File:\\u{1b}[2J|1|1|3.2 s");
        assert_eq!(keys(0, false, ""), [a, b, file]);
        assert_eq!(keys(0, true, ""), [file, b, a]);
        assert_eq!(keys(2, false, ""), [a, file, b]);
        assert_eq!(keys(1, true, ""), [a, b, file], "what is equal stands by name");
        assert_eq!(keys(2, false, "ARTICLE"), [a, b]);
        assert_eq!(keys(2, false, "nothing"), [""; 0]);
    }

    #[test]
    fn spans_are_brief() {
        for (s, text) in
            [(0, "0 ms"), (1, "1.0 s"), (59, "59.0 s"), (61, "1 m 1 s"), (7_260, "2 h 1 m"), (90_000, "1 d 1 h")]
        {
            assert_eq!(brief(Span::from_secs(s)), text);
        }
        assert_eq!(brief(Span::from_micros(3_999_999)), "3.9 s");
    }
}
