//! Reports of several daemons merged into one snapshot: numbers are added up, rows of a single daemon get its name.
//! Each daemon sends durations with all counts, so that quantiles are exact over all; without the counts, the quantiles
//! are those of the slowest daemon.

use super::column::{Column, ColumnUnit, Emphasis};
use super::snapshot::{ShownCondition, ShownCurve, ShownFigure, ShownHealth, ShownService, Snapshot, Values};
use super::tables::{Cell, Table, Times};
use crate::shown::{ShownRecent, Text};
use std::collections::HashMap;

/// Name of the column with the name of the daemon.
const SERVER: &str = "server";
/// Number of rows of a merged table with curves.
const CURVES: usize = 20;

/// Work done and work refused in each second.
type Curve = [Vec<f64>; 2];

/// Snapshot to which daemons are added.
pub struct Merged {
    snapshot: Snapshot,
    /// Tables under construction, with the names of service and table.
    tables: Vec<(Text, Text, Growing)>,
}

/// Table under construction from several daemons.
#[derive(Default)]
struct Growing {
    /// Rows, each with its curve and its index in the daemon's table.
    rows: Vec<(Vec<Cell>, Curve, usize)>,
    /// Index of the row by its name.
    places: HashMap<String, usize>,
    notes: Vec<(String, String)>,
    /// Number of daemons that have this table.
    tellers: usize,
}

impl Merged {
    /// Starts with values that are not from any daemon.
    pub fn with(snapshot: Snapshot) -> Merged {
        Merged { snapshot, tables: Vec::new() }
    }

    /// Adds the snapshot of the daemon of this name.
    pub fn add(&mut self, server: &str, told: Snapshot) {
        let own = &mut self.snapshot;
        own.title = own.title.take().or(told.title);
        own.tab = own.tab.take().or(told.tab);
        told.health.into_iter().for_each(|health| own.add_health(server, health));
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
            services.push(ShownService { name: told.name.clone(), ..ShownService::default() });
            services.len() - 1
        });
        let own = &mut services[place];
        if own.title.is_empty() {
            (own.title, own.option) = (told.title, told.option);
        }
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
            let is_it = |it: &(Text, Text, Growing)| it.0 == own.name && it.1 == table.name;
            let place = self.tables.iter().position(is_it).unwrap_or_else(|| {
                self.tables.push((own.name.clone(), table.name.clone(), Growing::default()));
                self.tables.len() - 1
            });
            self.tables[place].2.add(heading, server, table);
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
    /// Adds the rows of a daemon.
    fn add(&mut self, heading: &mut Table, server: &str, table: Table) {
        self.tellers += 1;
        self.notes.extend(table.note.map(|note| (server.to_string(), note)));
        heading.more =
            if heading.is_of_kinds { heading.more.max(table.more) } else { heading.more.saturating_add(table.more) };
        let recent = table.recent;
        if let (Some(own), Some(told)) = (&mut heading.recent, &recent) {
            own.seconds = own.seconds.max(told.seconds);
        }
        let mut curves = recent.map(|recent| recent.curves).unwrap_or_default().into_iter();
        // A daemon of another version may have other columns.
        let place_of =
            |head: &Column| table.columns.iter().position(|other| other.name == head.name && other.unit == head.unit);
        let places: Vec<Option<usize>> = heading.columns.iter().map(place_of).collect();
        for (rank, mut cells) in table.rows.into_iter().enumerate() {
            let mut take = |place: &Option<usize>| match place {
                Some(place) => std::mem::replace(&mut cells[*place], Cell::Nothing),
                None => Cell::Nothing,
            };
            let mut row: Vec<Cell> = places.iter().map(&mut take).collect();
            let curve = curves.next().unwrap_or_default();
            if !heading.is_of_kinds {
                let place = heading.columns.iter().position(|head| head.name == SERVER).unwrap_or_default();
                row[place] = Cell::Text(server.into());
                self.rows.push((row, curve, rank));
                continue;
            }
            let name = match row.first() {
                Some(Cell::Text(name)) => name.clone(),
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

    /// Moves the rows into the table.
    fn finish(mut self, table: &mut Table) {
        if self.tellers > 1 {
            let columns = &table.columns;
            self.rows.sort_by_cached_key(|(row, _, rank)| (worst_first(columns, row), *rank));
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

/// Returns a sort key: rows with most trouble first, then those with most work, by orders of magnitude.
fn worst_first(columns: &[Column], row: &[Cell]) -> [i64; 3] {
    [Emphasis::Alarm, Emphasis::Caution, Emphasis::Work].map(|emphasis| {
        let cells = columns.iter().zip(row).filter(|(head, _)| head.emphasis == emphasis);
        let sum = cells.map(|(_, cell)| if let Cell::Number(number) = cell { *number } else { 0 });
        -i64::from(sum.fold(0, u64::saturating_add).saturating_add(1).ilog2())
    })
}

impl Table {
    /// Returns the table without rows, with a column for the daemon if rows are of a single daemon.
    fn heading(&self) -> Table {
        let recent = self.recent.as_ref().map(|recent| ShownRecent { curves: Vec::new(), ..recent.clone() });
        let mut columns = self.columns.clone();
        if !self.is_of_kinds {
            columns.retain(|column| column.name != SERVER);
            columns.insert(
                columns.len().min(1),
                Column::new(SERVER, SERVER, ColumnUnit::Text, "Daemon that reports this row."),
            );
        }
        let texts = [&self.name, &self.title, &self.help, &self.empty].map(Clone::clone);
        let [name, title, help, empty] = texts;
        Table { name, title, help, empty, columns, recent, is_of_kinds: self.is_of_kinds, ..Table::default() }
    }
}

impl Cell {
    /// Adds the cell of another daemon for the same row: numbers are added up, ages keep the longest, texts stay only
    /// if they are equal.
    fn add(&mut self, other: Cell, head: &Column) {
        match (&mut *self, other) {
            (Cell::Number(own), Cell::Number(more)) => *own = own.saturating_add(more),
            (Cell::Seconds(own), Cell::Seconds(more)) if head.is_counter => *own += more,
            (Cell::Seconds(own), Cell::Seconds(more)) => *own = own.max(more),
            (Cell::Times(own), Cell::Times(more)) => own.add(&more),
            (Cell::Nothing, other) if !head.is_text() => *self = other,
            (own, other) if *own != other && !matches!(other, Cell::Nothing) => *own = Cell::Nothing,
            _ => {}
        }
    }
}

impl Times {
    fn add(&mut self, other: &Times) {
        if let (Some(mut all), Some(more)) = (self.all.take(), &other.all) {
            all.add(more);
            *self = Times::of(all);
        } else if other.p99 > self.p99 {
            *self = other.clone();
        }
    }
}

impl ShownService {
    /// Adds a figure: levels and counts are added up, spans that do not only grow keep the longest.
    fn add_figure(&mut self, told: ShownFigure) {
        match self.figures.iter_mut().find(|figure| figure.name == told.name) {
            Some(own) if own.is_seconds && !own.is_counter => own.value = own.value.max(told.value),
            Some(own) => own.value += told.value,
            None => self.figures.push(told),
        }
    }
}

impl Snapshot {
    /// Adds the health of a service at this daemon.
    fn add_health(&mut self, server: &str, told: ShownHealth) {
        let of = |sentence: &str| format!("{server}: {sentence}");
        let conditions = told.conditions.into_iter().map(|it| ShownCondition { sentence: of(&it.sentence), ..it });
        let health = ShownHealth { sentence: of(&told.sentence), conditions: conditions.collect(), ..told };
        let Some(own) = self.health.iter_mut().find(|own| own.title == health.title) else {
            return self.health.push(health);
        };
        own.add(health);
    }

    /// Adds a curve, unless its interval differs.
    fn add_curve(&mut self, told: ShownCurve, interval: f64) {
        if (self.history.interval - interval).abs() > 1e-9 {
            return;
        }
        let is_it = |curve: &&mut ShownCurve| (&curve.service, &curve.name) == (&told.service, &told.name);
        let Some(own) = self.history.series.iter_mut().find(is_it) else { return self.history.series.push(told) };
        // Times are not added: the longer one is shown.
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
    /// Returns the values as floating-point numbers.
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

/// Adds values to others; both end at the same time.
fn add_aligned<T: Copy>(own: &mut Vec<T>, mut more: Vec<T>, add: impl Fn(T, T) -> T) {
    if more.len() > own.len() {
        std::mem::swap(own, &mut more);
    }
    own.iter_mut().rev().zip(more.into_iter().rev()).for_each(|(own, more)| *own = add(*own, more));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_end_at_the_same_time() {
        let mut own = vec![1.0, 2.0];
        add_values(&mut own, vec![10.0, 20.0, 30.0]);
        assert_eq!(own, [10.0, 21.0, 32.0]);
    }
}
