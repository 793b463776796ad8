//! Matrix as shown to people: visible names, seconds, and as many rows as fit.

use super::column::{Column, ColumnUnit};
use super::tables::{Cell, Table};
use crate::shown::{Text, seconds};
use poolcounter_core::Span;
use serde::{Deserialize, Serialize};

/// Limit of the bytes of a value on a page, as markup and as JSON; and the same for an empty value.
const HEAT_COST: usize = 90;
const NOTHING_COST: usize = 14;
/// Limit of the bytes of a name, besides three times its length.
const NAME_COST: usize = 60;

/// Matrix.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Matrix {
    /// Title.
    pub title: Text,
    /// One-sentence description.
    pub help: Text,
    /// Text shown if there are no rows.
    pub empty: Text,
    /// Path of the pages about each pair, which the names follow.
    pub path: Text,
    /// Kind of the rows, and the path of the page about each.
    pub row: (Text, Text),
    /// The same for the columns.
    pub column: (Text, Text),
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows.
    pub rows: Vec<MatrixLine>,
    /// Sums of the rows not shown, by column.
    pub others: Vec<Heat>,
    /// Sums of all rows, by column.
    pub all: Vec<Heat>,
    /// Number of rows not shown.
    pub more_rows: usize,
    /// Number of columns not shown.
    pub more_columns: usize,
}

/// Row of the matrix.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MatrixLine {
    /// Name.
    pub name: String,
    /// Values, by column.
    pub values: Vec<Heat>,
}

/// Number of waiting things and age of the oldest in seconds: a pair in the JSON, or 0.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(from = "ShownHeat", into = "ShownHeat")]
pub struct Heat(pub u64, pub f64);

impl Matrix {
    /// Keeps as many rows as fit into `room` bytes; the further rows are added to the last row.
    pub fn cut(&mut self, mut room: usize) {
        room = room.saturating_sub(self.columns.iter().map(|name| name_cost(name)).sum());
        let fits = |line: &&MatrixLine| {
            room = room.saturating_sub(name_cost(&line.name) + line.values.iter().map(Heat::cost).sum::<usize>());
            room > 0
        };
        let rows = self.rows.iter().take_while(fits).count();
        for line in self.rows.drain(rows..) {
            self.more_rows += 1;
            self.others.iter_mut().zip(line.values).for_each(|(sum, heat)| sum.add(heat));
        }
    }

    /// Returns the cells as a table with a row of names, number and age for each, the oldest first.
    pub fn table(&self) -> Table {
        let column = |title: &str, unit| Column::new("", title.to_string(), unit, "");
        let cells = self
            .rows
            .iter()
            .flat_map(|line| line.values.iter().zip(&self.columns).map(|(heat, column)| (&line.name, column, *heat)));
        let mut cells: Vec<_> = cells.filter(|(.., heat)| heat.0 > 0).collect();
        cells.sort_by(|(.., one), (.., other)| other.1.total_cmp(&one.1).then_with(|| other.0.cmp(&one.0)));
        let row = |(row, column, Heat(count, age)): (&String, &String, Heat)| {
            let [row, column] = [row, column].map(|name| Cell::Text(name.clone()));
            vec![row, column, Cell::Number(count), Cell::Seconds(age)]
        };
        let columns = vec![
            column(&self.row.0, ColumnUnit::Name),
            column(&self.column.0, ColumnUnit::Name),
            column("ready", ColumnUnit::Number),
            column("oldest", ColumnUnit::Seconds),
        ];
        Table::new("matrix", self.title.clone(), columns).empty(self.empty.clone()).rows(cells.into_iter().map(row))
    }

    /// Returns true if each line has a value for each column, for the other columns, and for all.
    pub(super) fn is_sound(&self) -> bool {
        let lines = self.rows.iter().map(|line| &line.values).chain([&self.others, &self.all]);
        lines.into_iter().all(|values| values.len() == self.columns.len() + 2)
    }

    /// Returns the sum of two matrices, with the names of both. The folded rows and columns of each are added to the
    /// others.
    pub fn with(mut self, mut other: Matrix) -> Matrix {
        let mut columns = self.columns.clone();
        columns.extend(other.columns.iter().filter(|name| !self.columns.contains(name)).cloned());
        for matrix in [&mut self, &mut other] {
            let place_of = |name: &String| matrix.columns.iter().position(|own| own == name);
            let places: Vec<Option<usize>> = columns.iter().map(place_of).collect();
            let width = matrix.columns.len();
            let lines = matrix.rows.iter_mut().map(|line| &mut line.values);
            for values in lines.chain([&mut matrix.others, &mut matrix.all]) {
                // The two further columns: all others, and all.
                let rest = values.split_off(width);
                let named = places.iter().map(|place| place.map_or(Heat(0, 0.0), |at| values[at]));
                *values = named.chain(rest).collect();
            }
        }
        let add = |own: &mut Vec<Heat>, more: Vec<Heat>| own.iter_mut().zip(more).for_each(|(sum, heat)| sum.add(heat));
        let is_same = |own: &MatrixLine, told: &MatrixLine| own.name == told.name;
        join(&mut self.rows, other.rows, is_same, |own, told| add(&mut own.values, told.values));
        add(&mut self.others, other.others);
        add(&mut self.all, other.all);
        let age = |line: &MatrixLine| line.values.last().map_or(0.0, |heat| heat.1);
        self.rows.sort_by(|one, other| age(other).total_cmp(&age(one)));
        let (more_rows, more_columns) =
            (self.more_rows.max(other.more_rows), self.more_columns.max(other.more_columns));
        Matrix { columns, more_rows, more_columns, ..self }
    }
}

fn name_cost(name: &str) -> usize {
    NAME_COST + 3 * name.len()
}

impl Heat {
    fn cost(&self) -> usize {
        if self.0 == 0 { NOTHING_COST } else { HEAT_COST }
    }

    fn add(&mut self, other: Heat) {
        *self = Heat(self.0.saturating_add(other.0), self.1.max(other.1));
    }
}

impl From<(u64, Span)> for Heat {
    fn from((count, age): (u64, Span)) -> Heat {
        Heat(count, seconds(age))
    }
}

/// Form of a [`Heat`] in the JSON.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum ShownHeat {
    Pair(u64, f64),
    Nothing(u8),
}

impl From<Heat> for ShownHeat {
    fn from(Heat(count, age): Heat) -> ShownHeat {
        // Tenths of a second keep the JSON short.
        if count == 0 { ShownHeat::Nothing(0) } else { ShownHeat::Pair(count, (age * 10.0).round() / 10.0) }
    }
}

impl From<ShownHeat> for Heat {
    fn from(shown: ShownHeat) -> Heat {
        match shown {
            ShownHeat::Pair(count, age) => Heat(count, age),
            ShownHeat::Nothing(count) => Heat(count.into(), 0.0),
        }
    }
}

/// Adds each item of a daemon to the same item of the other daemons, or appends it.
pub(super) fn join<T>(own: &mut Vec<T>, told: Vec<T>, is_same: impl Fn(&T, &T) -> bool, add: impl Fn(&mut T, T)) {
    for item in told {
        match own.iter_mut().find(|own| is_same(own, &item)) {
            Some(own) => add(own, item),
            None => own.push(item),
        }
    }
}
