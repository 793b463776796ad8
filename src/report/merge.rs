//! Reports of several daemons merged into one snapshot: numbers are added up, of ages and times the longest is shown, and
//! rows of a single daemon get its name.

use super::column::{Column, ColumnUnit};
use super::matrix::{Matrix, join};
use super::snapshot::{ShownCurve, ShownFigure, ShownHealth, ShownService, Snapshot, Values};
use super::tables::{Cell, Table};
use crate::shown::ShownRecent;
use std::cmp::Ordering;
use std::iter;

/// Name of the column with the name of the daemon.
const SERVER: &str = "server";
/// Number of rows of a merged table with curves.
const CURVES: usize = 20;

impl Snapshot {
    /// Adds the snapshot of the daemon `server`. `earlier` is the number of daemons that were added before.
    pub fn add(&mut self, server: &str, earlier: usize, mut told: Snapshot) {
        told.name_server(server);
        self.title = self.title.take().or(told.title);
        self.tab = self.tab.take().or(told.tab);
        join(&mut self.health, told.health, |own, told| own.title == told.title, ShownHealth::add);
        join(&mut self.services, told.services, |own, told| own.name == told.name, |own, told| own.add(earlier, told));
        let (own, told) = (&mut self.history, told.history);
        if own.series.is_empty() {
            *own = told;
        } else if (own.interval - told.interval).abs() < 1e-9 {
            let is_same = |own: &ShownCurve, told: &ShownCurve| own.service == told.service && own.name == told.name;
            join(&mut own.series, told.series, is_same, |own, told| own.add(&told));
        }
    }

    /// Adds the name of the daemon to sentences, and to each row of a single daemon.
    fn name_server(&mut self, server: &str) {
        let name = |sentence: &mut String| *sentence = format!("{server}: {sentence}");
        for health in &mut self.health {
            name(&mut health.sentence);
            health.conditions.iter_mut().for_each(|condition| name(&mut condition.sentence));
        }
        for table in self.services.iter_mut().flat_map(|service| &mut service.tables) {
            table.note.iter_mut().for_each(name);
            if !table.is_of_kinds && table.columns.iter().all(|column| column.name != SERVER) {
                let place = table.columns.len().min(1);
                let column = Column::new(SERVER, SERVER, ColumnUnit::Text, "Daemon that reports this row.");
                table.columns.insert(place, column);
                table.rows.iter_mut().for_each(|row| row.insert(place, Cell::text(server)));
            }
        }
    }
}

impl ShownHealth {
    fn add(&mut self, told: ShownHealth) {
        match told.level.cmp(&self.level) {
            Ordering::Less => {}
            Ordering::Equal => self.sentence = format!("{}; {}", self.sentence, told.sentence),
            Ordering::Greater => (self.level, self.sentence) = (told.level, told.sentence),
        }
        self.more = self.more.saturating_add(told.more);
        self.conditions.extend(told.conditions);
        self.conditions.sort_by(|a, b| b.level.cmp(&a.level).then_with(|| b.badness.total_cmp(&a.badness)));
    }
}

impl ShownService {
    fn add(&mut self, earlier: usize, told: ShownService) {
        self.is_enabled |= told.is_enabled;
        self.traffic.add(told.traffic);
        let add = |own: &mut ShownFigure, told: ShownFigure| {
            own.value = sum_or_longest(own.is_seconds && !own.is_counter)(own.value, told.value);
        };
        join(&mut self.figures, told.figures, |own, told| own.name == told.name, add);
        self.matrix = [self.matrix.take(), told.matrix].into_iter().flatten().reduce(Matrix::with);
        join(&mut self.tables, told.tables, |own, told| own.name == told.name, |own, told| own.add(earlier, told));
    }
}

/// Returns how values of two daemons are merged: the longest age or time is shown, and all else is added up.
fn sum_or_longest(is_time: bool) -> fn(f64, f64) -> f64 {
    if is_time { f64::max } else { |own, more| own + more }
}

impl ShownCurve {
    fn add(&mut self, told: &ShownCurve) {
        let add = sum_or_longest(self.unit == "seconds" && !self.is_rate);
        self.now = add(self.now as f64, told.now as f64) as u64;
        let mut values = self.values.numbers();
        add_values(&mut values, told.values.numbers(), add);
        self.values = Values::Rates(values);
    }
}

/// Adds values to other values; both end at the same time.
fn add_values(own: &mut Vec<f64>, mut more: Vec<f64>, add: fn(f64, f64) -> f64) {
    if more.len() > own.len() {
        std::mem::swap(own, &mut more);
    }
    own.iter_mut().rev().zip(more.into_iter().rev()).for_each(|(own, more)| *own = add(*own, more));
}

impl Table {
    /// Adds the rows of another daemon. The daemons take turns, each with its most important row first. A daemon of
    /// another version may have other columns.
    fn add(&mut self, earlier: usize, told: Table) {
        self.more = self.more.saturating_add(told.more);
        let notes = [self.note.take(), told.note].into_iter().flatten();
        self.note = notes.reduce(|one, other| format!("{one} {other}"));
        let place_of = |own: &Column| told.columns.iter().position(|it| (&it.name, it.unit) == (&own.name, own.unit));
        let places: Vec<Option<usize>> = self.columns.iter().map(place_of).collect();
        let (mut unseen, recent) = (ShownRecent::default(), told.recent.unwrap_or_default());
        let own = self.recent.as_mut().unwrap_or(&mut unseen);
        own.seconds = own.seconds.max(recent.seconds);
        own.curves.resize(self.rows.len(), Default::default());
        let curves = recent.curves.into_iter().chain(iter::repeat_with(Default::default));
        for (rank, (cells, curves)) in told.rows.into_iter().zip(curves).enumerate() {
            let cell = |place: &Option<usize>| place.map_or(Cell::Nothing, |at| cells[at].clone());
            let row: Vec<Cell> = places.iter().map(cell).collect();
            let same = self.rows.iter().position(|own| own.first() == row.first()).filter(|_| self.is_of_kinds);
            let Some(at) = same else {
                let at = ((rank + 1) * (earlier + 1) - 1).min(self.rows.len());
                self.rows.insert(at, row);
                own.curves.insert(at, curves);
                continue;
            };
            for ((cell, more), column) in self.rows[at].iter_mut().zip(row).zip(&self.columns) {
                cell.add(more, column);
            }
            own.curves[at].iter_mut().zip(curves).for_each(|(own, more)| add_values(own, more, sum_or_longest(false)));
        }
        own.curves.truncate(CURVES);
    }
}

impl Cell {
    /// Adds the cell of another daemon for the same row: numbers are added up, of ages and times the longest is kept, and
    /// of texts the first.
    fn add(&mut self, told: Cell, column: &Column) {
        match (&mut *self, told) {
            (Cell::Number(own), Cell::Number(more)) => *own = own.saturating_add(more),
            (Cell::Seconds(own), Cell::Seconds(more)) => *own = sum_or_longest(!column.is_counter)(*own, more),
            (Cell::Times(own), Cell::Times(more)) if more.p99 > own.p99 => *own = more,
            (Cell::Nothing, told) => *self = told,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_end_at_the_same_time() {
        let mut own = vec![1.0, 2.0];
        add_values(&mut own, vec![10.0, 20.0, 30.0], sum_or_longest(false));
        assert_eq!(own, [10.0, 21.0, 32.0]);
        add_values(&mut own, vec![40.0], sum_or_longest(true));
        assert_eq!(own, [10.0, 21.0, 40.0]);
    }
}
