//! Reports of several daemons merged into one snapshot: numbers are added up, rows of a single daemon get its name.
//! Each daemon sends durations with all counts, so that quantiles are exact over all; without the counts, the quantiles
//! of the slowest daemon are shown.

use super::column::{Column, ColumnUnit, Emphasis};
use super::snapshot::{ShownCondition, ShownCurve, ShownHealth, ShownService, Snapshot, Values};
use super::tables::{Cell, Table, Times};
use crate::shown::ShownRecent;
use std::collections::HashMap;

/// Name of the column with the name of the daemon.
const SERVER: &str = "server";
/// Number of rows of a merged table with curves.
const CURVES: usize = 20;

impl Snapshot {
    /// Adds the snapshot of the daemon `server`. `earlier` is the number of daemons that were added before.
    pub fn add(&mut self, server: &str, earlier: usize, told: Snapshot) {
        self.title = self.title.take().or(told.title);
        self.tab = self.tab.take().or(told.tab);
        told.health.into_iter().for_each(|health| self.add_health(server, health));
        if self.history.series.is_empty() {
            (self.history.interval, self.history.most) = (told.history.interval, told.history.most);
        }
        if (self.history.interval - told.history.interval).abs() < 1e-9 {
            told.history.series.into_iter().for_each(|curve| self.add_curve(curve));
        }
        for mut service in told.services {
            service.tables.iter_mut().for_each(|table| table.name_server(server));
            match self.services.iter_mut().find(|own| own.name == service.name) {
                Some(own) => own.add(earlier, service),
                None => self.services.push(service),
            }
        }
    }
}

impl ShownService {
    fn add(&mut self, earlier: usize, told: ShownService) {
        self.is_enabled |= told.is_enabled;
        let sums = [
            (&mut self.connections, told.connections),
            (&mut self.connections_opened, told.connections_opened),
            (&mut self.connect_errors, told.connect_errors),
            (&mut self.failed_sends, told.failed_sends),
            (&mut self.received_bytes, told.received_bytes),
            (&mut self.sent_bytes, told.sent_bytes),
        ];
        sums.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
        for figure in told.figures {
            match self.figures.iter_mut().find(|own| own.name == figure.name) {
                // Spans that do not only grow keep the longest.
                Some(own) if own.is_seconds && !own.is_counter => own.value = own.value.max(figure.value),
                Some(own) => own.value += figure.value,
                None => self.figures.push(figure),
            }
        }
        self.matrix = match (self.matrix.take(), told.matrix) {
            (Some(one), Some(other)) => Some(one.with(&other)),
            (one, other) => one.or(other),
        };
        for table in told.tables {
            match self.tables.iter_mut().find(|own| own.name == table.name) {
                Some(own) => own.add(earlier, table),
                None => self.tables.push(table),
            }
        }
    }
}

impl Table {
    /// Adds the name of the daemon to the note, and to each row of a single daemon.
    fn name_server(&mut self, server: &str) {
        self.note = self.note.take().map(|note| format!("{server}: {note}"));
        if !self.is_of_kinds && self.columns.iter().all(|column| column.name != SERVER) {
            let place = self.columns.len().min(1);
            let column = Column::new(SERVER, SERVER, ColumnUnit::Text, "Daemon that reports this row.");
            self.columns.insert(place, column);
            self.rows.iter_mut().for_each(|row| row.insert(place, Cell::text(server)));
        }
    }

    /// Adds the rows of another daemon, with the worst rows first, and rows that are as bad by their places. A daemon of
    /// another version may have other columns.
    fn add(&mut self, earlier: usize, mut told: Table) {
        let places: Vec<_> = self
            .columns
            .iter()
            .map(|head| told.columns.iter().position(|it| it.name == head.name && it.unit == head.unit))
            .collect();
        self.more = if self.is_of_kinds { self.more.max(told.more) } else { self.more.saturating_add(told.more) };
        self.note = match (self.note.take(), told.note) {
            (Some(one), Some(other)) => Some(format!("{one} {other}")),
            (one, other) => one.or(other),
        };
        let curves = |recent: &mut Option<ShownRecent>| {
            let curves = recent.as_mut().map(|recent| std::mem::take(&mut recent.curves)).unwrap_or_default();
            curves.into_iter().chain(std::iter::repeat_with(Default::default))
        };
        let (own_curves, told_curves) = (curves(&mut self.recent), curves(&mut told.recent));
        let own = std::mem::take(&mut self.rows).into_iter().zip(own_curves).enumerate();
        let mut rows: Vec<_> = own.map(|(n, (row, curve))| (n / earlier.max(1), row, curve)).collect();
        let mut names: HashMap<String, usize> = HashMap::new();
        if self.is_of_kinds {
            names.extend(rows.iter().enumerate().filter_map(|(n, (_, row, _))| Some((name_of(row)?, n))));
        }
        for (rank, (mut cells, curve)) in told.rows.into_iter().zip(told_curves).enumerate() {
            let take = |place: &Option<usize>| {
                place.map_or(Cell::Nothing, |at| std::mem::replace(&mut cells[at], Cell::Nothing))
            };
            let row: Vec<Cell> = places.iter().map(take).collect();
            match name_of(&row).and_then(|name| names.get(&name)) {
                Some(place) => {
                    let (_, own, own_curve) = &mut rows[*place];
                    let columns = own.iter_mut().zip(row).zip(&self.columns);
                    columns.for_each(|((cell, other), head)| cell.add(other, head));
                    own_curve.iter_mut().zip(curve).for_each(|(own, other)| add_values(own, other));
                }
                None => rows.push((rank, row, curve)),
            }
        }
        rows.sort_by_cached_key(|(rank, row, _)| (worst_first(&self.columns, row), *rank));
        if let (Some(own), Some(told)) = (&mut self.recent, &told.recent) {
            own.seconds = own.seconds.max(told.seconds);
            own.curves = rows.iter_mut().take(CURVES).map(|(.., curve)| std::mem::take(curve)).collect();
        }
        self.rows = rows.into_iter().map(|(_, row, _)| row).collect();
    }
}

fn name_of(row: &[Cell]) -> Option<String> {
    if let Some(Cell::Text(name)) = row.first() { Some(name.clone()) } else { None }
}

/// Returns a sort key: rows with most trouble first, then those with most work, by orders of magnitude.
fn worst_first(columns: &[Column], row: &[Cell]) -> [i64; 3] {
    [Emphasis::Alarm, Emphasis::Caution, Emphasis::Work].map(|emphasis| {
        let cells = columns.iter().zip(row).filter(|(head, _)| head.emphasis == emphasis);
        let sum = cells.map(|(_, cell)| if let Cell::Number(number) = cell { *number } else { 0 });
        -i64::from(sum.fold(0, u64::saturating_add).saturating_add(1).ilog2())
    })
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

    fn add_curve(&mut self, told: ShownCurve) {
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
