//! What several daemons tell, as one snapshot: numbers are added up, what is a daemon's own has its name beside it. Each daemon tells
//! how long things took with all counts, so that a quantile is that of all of them; of one that does not, the longest is taken.

use super::snapshot::{ShownCurve, ShownFigure, ShownRecent, ShownService, Snapshot, Spent, Text, Values};
use super::tables::{ColumnHead, ShownCell, ShownTable, ShownTimes};
use std::collections::HashMap;

/// The column with the name of a daemon.
const SERVER: ColumnHead = ColumnHead {
    name: Text::Borrowed("server"),
    title: Text::Borrowed("server"),
    help: Text::Borrowed("The daemon of which this is told."),
    unit: Text::Borrowed("text"),
    is_counter: false,
    emphasis: Text::Borrowed("none"),
    link: None,
    actions: &[],
};
/// How many rows of a merged table have curves.
const CURVES: usize = 20;

/// How much was done, and how much refused, in each second.
type Curve = [Vec<f64>; 2];

/// A snapshot that grows with each daemon.
pub struct Merged {
    snapshot: Snapshot,
    /// What there is of each table while its rows are not in their order, with the names of service and table.
    tables: Vec<(Text, Text, Growing)>,
}

/// A table that several daemons tell of.
#[derive(Default)]
struct Growing {
    /// Each row with its curve, and its place in what its daemon told.
    rows: Vec<(Vec<ShownCell>, Curve, usize)>,
    /// Where the row of a name is.
    places: HashMap<String, usize>,
    notes: Vec<(String, String)>,
    /// How many daemons have told it.
    tellers: usize,
}

impl Merged {
    /// Begins with what is no daemon's.
    pub fn with(snapshot: Snapshot) -> Merged {
        Merged { snapshot, tables: Vec::new() }
    }

    /// Adds what the daemon of that name tells.
    pub fn add(&mut self, server: &str, told: Snapshot) {
        let own = &mut self.snapshot;
        let (sums, more) = (&mut own.loop_, told.loop_);
        add_to([(&mut sums.ticks, more.ticks), (&mut sums.turns, more.turns)]);
        sums.busy += more.busy;
        sums.timers = sums.timers.saturating_add(more.timers);
        for Spent { budget, times } in more.budgets_spent {
            let known = sums.budgets_spent.iter_mut().find(|spent| spent.budget == budget);
            known.into_iter().for_each(|spent| spent.times = spent.times.saturating_add(times));
        }
        let (sums, more) = (&mut own.process, told.process);
        sums.cpu += more.cpu;
        add_to([
            (&mut sums.resident_bytes, more.resident_bytes),
            (&mut sums.open_fds, more.open_fds),
            (&mut sums.max_fds, more.max_fds),
        ]);
        own.title = own.title.take().or(told.title);
        if own.history.series.is_empty() {
            (own.history.interval, own.history.most) = (told.history.interval, told.history.most);
        }
        for curve in told.history.series {
            own.add_curve(curve, told.history.interval);
        }
        for service in told.services {
            self.add_service(server, service);
        }
    }

    fn add_service(&mut self, server: &str, told: ShownService) {
        let services = &mut self.snapshot.services;
        let place = services.iter().position(|service| service.name == told.name).unwrap_or_else(|| {
            services.push(ShownService::named(told.name.clone()));
            services.len() - 1
        });
        let own = &mut services[place];
        own.is_enabled |= told.is_enabled;
        add_to([
            (&mut own.connections, told.connections),
            (&mut own.connections_opened, told.connections_opened),
            (&mut own.connect_errors, told.connect_errors),
            (&mut own.failed_sends, told.failed_sends),
            (&mut own.received_bytes, told.received_bytes),
            (&mut own.sent_bytes, told.sent_bytes),
        ]);
        told.figures.into_iter().for_each(|figure| own.add_figure(figure));
        own.matrix = match (own.matrix.take(), told.matrix) {
            (Some(one), Some(other)) => Some(one.with(&other)),
            (one, other) => one.or(other),
        };
        for table in told.tables {
            let heading = own.tables.iter_mut().find(|own| own.name == table.name);
            let heading = match heading {
                Some(heading) => heading,
                None => {
                    own.tables.push(table.heading());
                    own.tables.last_mut().expect("was pushed just now")
                }
            };
            let is_it = |it: &&mut (Text, Text, Growing)| it.0 == own.name && it.1 == table.name;
            match self.tables.iter_mut().find(is_it) {
                Some((_, _, growing)) => growing.add(heading, server, table),
                None => {
                    let mut growing = Growing::default();
                    let names = (own.name.clone(), table.name.clone());
                    growing.add(heading, server, table);
                    self.tables.push((names.0, names.1, growing));
                }
            }
        }
    }

    /// Returns the snapshot, with the worst rows first.
    pub fn finish(mut self) -> Snapshot {
        for service in &mut self.snapshot.services {
            for table in &mut service.tables {
                let growing = self.tables.iter().position(|it| it.0 == service.name && it.1 == table.name);
                if let Some(place) = growing {
                    self.tables.swap_remove(place).2.finish(table);
                }
            }
        }
        self.snapshot
    }
}

impl Growing {
    /// Adds the rows that a daemon tells.
    fn add(&mut self, heading: &mut ShownTable, server: &str, table: ShownTable) {
        self.tellers += 1;
        self.notes.extend(table.note.map(|note| (server.to_string(), note)));
        heading.more =
            if heading.is_of_kinds { heading.more.max(table.more) } else { heading.more.saturating_add(table.more) };
        let recent = table.recent;
        if let (Some(own), Some(told)) = (&mut heading.recent, &recent) {
            own.seconds = own.seconds.max(told.seconds);
        }
        let mut curves = recent.map(|recent| recent.curves).unwrap_or_default().into_iter();
        // Another release may have other columns.
        let place_of = |head: &ColumnHead| {
            table.columns.iter().position(|other| other.name == head.name && other.unit == head.unit)
        };
        let places: Vec<Option<usize>> = heading.columns.iter().map(place_of).collect();
        for (rank, mut cells) in table.rows.into_iter().enumerate() {
            let mut take = |place: &Option<usize>| match place {
                Some(place) => std::mem::replace(&mut cells[*place], ShownCell::Nothing),
                None => ShownCell::Nothing,
            };
            let mut row: Vec<ShownCell> = places.iter().map(&mut take).collect();
            let curve = curves.next().unwrap_or_default();
            if !heading.is_of_kinds {
                let place = heading.columns.iter().position(|head| head.name == SERVER.name).unwrap_or_default();
                row[place] = ShownCell::Text(server.into());
                self.rows.push((row, curve, rank));
                continue;
            }
            let name = match row.first() {
                Some(ShownCell::Text(name)) => name.clone(),
                _ => String::new(),
            };
            match self.places.get(&name) {
                Some(place) => {
                    let (own, own_curve, _) = &mut self.rows[*place];
                    let columns = own.iter_mut().zip(row).zip(&heading.columns);
                    columns.for_each(|((cell, other), head)| cell.add(other, head));
                    own_curve.iter_mut().zip(curve).for_each(|(own, other)| add_values(own, other));
                }
                None => {
                    self.places.insert(name, self.rows.len());
                    self.rows.push((row, curve, rank));
                }
            }
        }
    }

    /// Returns the column with the ages by which each daemon has its rows in order, where nothing says which are worse; None if there
    /// is none, and so the rows of the daemons take turns.
    fn age_in_order(&self, columns: &[ColumnHead]) -> Option<usize> {
        let is_in_order = |place: usize| {
            let pairs = self.rows.windows(2).filter(|pair| pair[1].2 > pair[0].2);
            pairs.map(|pair| [0, 1].map(|n: usize| micros_of(&pair[n].0[place]))).all(|[one, next]| one >= next)
        };
        let has_worse = columns.iter().any(|head| head.emphasis != "none");
        let age = columns.iter().rposition(|head| head.unit == "seconds" && !head.is_counter);
        age.filter(|place| !has_worse && is_in_order(*place))
    }

    /// Puts the rows into the table.
    fn finish(mut self, table: &mut ShownTable) {
        if self.tellers > 1 {
            let (columns, age) = (&table.columns, self.age_in_order(&table.columns));
            let longest_first = |row: &[ShownCell], place: usize| u64::MAX - micros_of(&row[place]);
            self.rows.sort_by_cached_key(|(row, _, rank)| {
                (worst_first(columns, row), age.map_or(*rank as u64, |place| longest_first(row, place)))
            });
        }
        self.notes.dedup_by(|one, other| one.1 == other.1);
        table.note = match &self.notes[..] {
            [] => None,
            [(_, only)] => Some(only.clone()),
            several => {
                Some(several.iter().map(|(server, note)| format!("{server}: {note}")).collect::<Vec<_>>().join(" "))
            }
        };
        if let Some(recent) = &mut table.recent {
            recent.curves = self.rows.iter_mut().take(CURVES).map(|row| std::mem::take(&mut row.1)).collect();
        }
        table.rows = self.rows.into_iter().map(|(row, _, _)| row).collect();
    }
}

fn micros_of(cell: &ShownCell) -> u64 {
    // Lossless: what is behind a microsecond does not matter, and nothing is as old as the largest number.
    if let ShownCell::Seconds(age) = cell { (age * 1e6) as u64 } else { 0 }
}

/// Returns a key by which the rows with most trouble come first, then those with most work, by orders of magnitude.
fn worst_first(columns: &[ColumnHead], row: &[ShownCell]) -> [i64; 3] {
    ["alarm", "caution", "work"].map(|emphasis| {
        let cells = columns.iter().zip(row).filter(|(head, _)| head.emphasis == emphasis);
        let sum = cells.map(|(_, cell)| if let ShownCell::Number(number) = cell { *number } else { 0 });
        -i64::from(sum.fold(0, u64::saturating_add).saturating_add(1).ilog2())
    })
}

impl ShownTable {
    /// Returns the table without rows, with a column for the daemon of each where that matters.
    fn heading(&self) -> ShownTable {
        let recent = self.recent.as_ref().map(|recent| ShownRecent { curves: Vec::new(), ..recent.clone() });
        let mut columns = self.columns.clone();
        if !self.is_of_kinds {
            columns.retain(|column| column.name != SERVER.name);
            columns.insert(columns.len().min(1), SERVER.clone());
        }
        let texts = [&self.name, &self.title, &self.help, &self.empty].map(Clone::clone);
        let [name, title, help, empty] = texts;
        ShownTable {
            name,
            title,
            help,
            empty,
            columns,
            recent,
            is_of_kinds: self.is_of_kinds,
            note: None,
            more: 0,
            rows: Vec::new(),
        }
    }
}

impl ShownCell {
    /// Adds what another daemon tells of the same: numbers are summed up, of ages the longest stays, of texts those that are alike.
    fn add(&mut self, other: ShownCell, head: &ColumnHead) {
        match (&mut *self, other) {
            (ShownCell::Number(own), ShownCell::Number(more)) => *own = own.saturating_add(more),
            (ShownCell::Seconds(own), ShownCell::Seconds(more)) if head.is_counter => *own += more,
            (ShownCell::Seconds(own), ShownCell::Seconds(more)) => *own = own.max(more),
            (ShownCell::Times(own), ShownCell::Times(more)) => own.add(&more),
            (ShownCell::Nothing, other) if !head.is_text() => *self = other,
            (own, other) if *own != other && !matches!(other, ShownCell::Nothing) => *own = ShownCell::Nothing,
            _ => {}
        }
    }
}

impl ShownTimes {
    fn add(&mut self, other: &ShownTimes) {
        if let (Some(mut all), Some(more)) = (self.all.take(), &other.all) {
            all.add(more);
            *self = ShownTimes { all: Some(all.clone()), ..ShownTimes::of(&all) };
            return;
        }
        let longest = |own: (Option<f64>, bool), other: (Option<f64>, bool)| {
            if (other.1, other.0.unwrap_or(-1.0)) > (own.1, own.0.unwrap_or(-1.0)) { other } else { own }
        };
        (self.p50, self.p50_is_over) = longest((self.p50, self.p50_is_over), (other.p50, other.p50_is_over));
        (self.p99, self.p99_is_over) = longest((self.p99, self.p99_is_over), (other.p99, other.p99_is_over));
    }
}

impl ShownService {
    fn named(name: Text) -> ShownService {
        ShownService {
            name,
            is_enabled: false,
            connections: 0,
            connections_opened: 0,
            connect_errors: 0,
            failed_sends: 0,
            received_bytes: 0,
            sent_bytes: 0,
            figures: Vec::new(),
            tables: Vec::new(),
            matrix: None,
        }
    }

    /// Adds a figure: levels and counts are summed up, of spans that do not only grow the longest stays.
    fn add_figure(&mut self, told: ShownFigure) {
        match self.figures.iter_mut().find(|figure| figure.name == told.name) {
            Some(own) if own.is_seconds && !own.is_counter => own.value = own.value.max(told.value),
            Some(own) => own.value += told.value,
            None => self.figures.push(told),
        }
    }
}

impl Snapshot {
    /// Adds a curve, unless its values are at other distances.
    fn add_curve(&mut self, told: ShownCurve, interval: f64) {
        if (self.history.interval - interval).abs() > 1e-9 {
            return;
        }
        let is_it = |curve: &&mut ShownCurve| (&curve.service, &curve.name) == (&told.service, &told.name);
        let Some(own) = self.history.series.iter_mut().find(is_it) else { return self.history.series.push(told) };
        // The longest of two times is that of both together.
        let is_time = own.unit == "seconds" && !own.is_rate;
        own.now = if is_time { own.now.max(told.now) } else { own.now.saturating_add(told.now) };
        match (&mut own.values, told.values) {
            (Values::Levels(own), Values::Levels(more)) => {
                add_aligned(own, more, |own, more| if is_time { own.max(more) } else { own.saturating_add(more) });
            }
            (own, more) => {
                let mut sum = own.numbers();
                add_values(&mut sum, more.numbers());
                *own = Values::Rates(sum);
            }
        }
    }
}

impl Values {
    /// Returns the values as numbers of whatever kind.
    pub fn numbers(&self) -> Vec<f64> {
        match self {
            Values::Levels(values) => values.iter().map(|value| *value as f64).collect(),
            Values::Rates(values) => values.clone(),
        }
    }
}

fn add_to<const N: usize>(sums: [(&mut u64, u64); N]) {
    sums.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
}

fn add_values(own: &mut Vec<f64>, more: Vec<f64>) {
    add_aligned(own, more, |own, more| own + more);
}

/// Adds values to others, of which the last are of the same time.
fn add_aligned<T: Copy>(own: &mut Vec<T>, mut more: Vec<T>, add: impl Fn(T, T) -> T) {
    if more.len() > own.len() {
        std::mem::swap(own, &mut more);
    }
    own.iter_mut().rev().zip(more.into_iter().rev()).for_each(|(own, more)| *own = add(*own, more));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Histogram;
    use crate::loop_stats::LoopStats;
    use crate::report::room::{MOST_ROWS, Room};
    use crate::report::snapshot::Remembered;
    use crate::report::snapshot::tests::{of_overview, overview};
    use crate::report::{Cell, Overview};
    use serde_json::Value;

    const SERVICES: [&str; 5] = ["pools", "counters", "members", "jobs", "admin"];

    fn told(overview: Overview) -> Snapshot {
        let room = Room { rows: MOST_ROWS, bytes: usize::MAX, has_all_times: true };
        let json = Snapshot::of(&of_overview(overview, &LoopStats::default()), room, &Remembered::NOTHING).to_json();
        Snapshot::read(json.as_bytes(), &SERVICES).expect("is what a daemon tells")
    }

    /// Two rows of each table, with so many of everything, which took so long.
    fn with_numbers(number: u64, micros: u64) -> Overview {
        let mut overview = overview(2, |n| format!("name{n}").into_bytes());
        let mut times = Histogram::default();
        (0..number).for_each(|_| times.record_number(micros));
        let tables = overview.services.iter_mut().flat_map(|service| &mut service.report.tables);
        for cell in tables.flat_map(|table| table.rows.iter_mut().flatten()) {
            match cell {
                Cell::Number(cell) => *cell = number,
                Cell::Times(cell) => cell.clone_from(&times),
                _ => {}
            }
        }
        overview
    }

    fn merged(all: Vec<(&str, Snapshot)>) -> Value {
        let mut own = told(Overview::default());
        own.services.clear();
        let mut merged = Merged::with(own);
        all.into_iter().for_each(|(server, told)| merged.add(server, told));
        serde_json::from_str(&merged.finish().to_json()).expect("is JSON")
    }

    #[test]
    fn kinds_are_added_up_and_the_rest_has_its_server() {
        let all = merged(vec![("a", told(with_numbers(90, 1_000))), ("b", told(with_numbers(10, 2_000_000)))]);
        let types = all["pools"]["types"].as_array().expect("is a list");
        assert_eq!((types.len(), &types[0]["acquired"]), (2, &100.into()));
        let (p50, p99) = (types[0]["wait"]["p50"].as_f64(), types[0]["wait"]["p99"].as_f64());
        assert!(p50.is_some_and(|s| s < 0.002) && p99.is_some_and(|s| s > 1.5), "of all times: {}", types[0]["wait"]);
        let busiest = all["pools"]["busiest"].as_array().expect("is a list");
        let rows: Vec<_> = busiest.iter().map(|row| (&row["key"], &row["server"], &row["working"])).collect();
        assert_eq!(rows.len(), 4);
        assert_eq!(
            rows.iter().filter(|(_, server, working)| (*server, *working) == (&"a".into(), &90.into())).count(),
            2
        );
        assert!(busiest.iter().all(|row| row["oldest"].is_f64()), "{busiest:?}");
        assert!(rows[0].1 == "a" && rows[1].1 == "a" && rows[2].1 == "b", "the worst come first: {rows:?}");
    }

    /// A daemon tells of the same in the same words, so that of one alone nothing is changed but for its name.
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

    #[test]
    fn curves_end_at_the_same_time() {
        let mut own = vec![1.0, 2.0];
        add_values(&mut own, vec![10.0, 20.0, 30.0]);
        assert_eq!(own, [10.0, 21.0, 32.0]);
    }

    /// Whoever can answer in the place of a daemon can tell anything.
    #[test]
    fn what_is_told_can_do_no_harm() {
        let whole = told(with_numbers(3, 70)).to_json();
        for (from, to) in [
            (r#""link":"/pools/type/""#, r#""link":"javascript:alert(1)//""#),
            (r#""link":"/pools/type/""#, r#""link":"//elsewhere/""#),
            (r#""link":"/pools/type/""#, r#""link":"/\"><script>""#),
            (r#""name":"types""#, r#""name":"a b\" onload=\"""#),
            (r#""unit":"number""#, r#""unit":"novel""#),
            (r#""acquired":3"#, r#""acquired":18446744073709551615"#),
            (r#""acquired":3"#, r#""acquired":"x""#),
            (r#""acquired":3"#, r#""acquired":{"a":[]}"#),
            (r#""counts":["#, r#""counts":[18446744073709551615,"#),
            (r#""connections":0"#, r#""connections":18446744073709551615"#),
            (r#""name":"pools","is_en"#, r#""name":"history","is_en"#),
            (r#""name":"pools","is_en"#, r#""name":"http","is_en"#),
        ] {
            assert!(whole.contains(from), "{from}");
            let json = whole.replace(from, to);
            let read = || Snapshot::read(json.as_bytes(), &SERVICES).expect("is read");
            let all = merged(vec![("a", read()), ("b", read()), ("c", told(with_numbers(1, 1)))]);
            let text = all.to_string();
            for harm in ["alert", "elsewhere", "<script>", "onload", "novel"] {
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

    /// What another release, a fault or somebody on the way may say in the place of anything.
    #[test]
    fn an_answer_with_anything_in_any_place_ends_nothing() {
        let whole = told(with_numbers(3, 70));
        let json = Snapshot { services: whole.services.into_iter().take(1).collect(), ..whole }.to_json();
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
                let all = merged(both.into_iter().flatten().map(|told| ("a", told)).collect()).to_string();
                assert!(!all.contains(['\u{202e}', '\u{9b}', '\u{1b}']), "{place}: {value:?}");
            }
        }
    }

    /// Each column has a unit that is not known.
    #[test]
    fn a_table_without_a_known_column_is_left_out() {
        let json = told(with_numbers(3, 70)).to_json().replace("\"unit\":\"", "\"unit\":\"later-");
        let read = || Snapshot::read(json.as_bytes(), &SERVICES).expect("is read");
        let all = merged(vec![("a", read()), ("b", told(with_numbers(1, 1))), ("c", read())]);
        assert_eq!(all["pools"]["types"].as_array().map(Vec::len), Some(2));
    }
}
