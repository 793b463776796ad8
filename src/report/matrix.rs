//! Matrix as shown to people: visible names, seconds, and as many rows as fit.

use super::tables::{ColumnHead, NAME_BYTES, ShownCell, ShownTable};
use super::{Heat, Matrix, MatrixInfo};
use crate::shown::{Text, seconds};
use poolcounter_core::text::visible;
use poolcounter_core::time::Span;
use serde::ser::SerializeTuple;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::iter;

/// Limit of the bytes of a value on a page, as markup and as JSON; and the same for an empty value.
const HEAT_COST: usize = 90;
const NOTHING_COST: usize = 14;
/// Limit of the bytes of a name, besides three times its length.
const NAME_COST: usize = 60;

/// Matrix.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShownMatrix {
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
    pub rows: Vec<ShownLine>,
    /// Sums of the rows not shown, by column.
    pub others: Vec<ShownHeat>,
    /// Sums of all rows, by column.
    pub all: Vec<ShownHeat>,
    /// Number of rows not shown.
    pub more_rows: usize,
    /// Number of columns not shown.
    pub more_columns: usize,
}

/// Row of the matrix.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShownLine {
    /// Name.
    pub name: String,
    /// Values, by column.
    pub values: Vec<ShownHeat>,
}

/// Number of waiting things and age of the oldest in seconds: a pair in the JSON, or 0.
#[derive(Clone, Copy)]
pub struct ShownHeat(pub u64, pub f64);

impl ShownMatrix {
    /// Returns as much of a matrix as fits into `room` bytes; rows that do not fit are added to the others.
    pub fn of(matrix: &Matrix, mut room: usize) -> ShownMatrix {
        let MatrixInfo { title, help, empty, row, column, path } = *matrix.info;
        room = room.saturating_sub(matrix.columns.iter().map(|name| name_cost(name)).sum());
        let mut others = matrix.others.clone();
        let mut rows = Vec::new();
        for (name, line) in &matrix.rows {
            let cost = name_cost(name) + line.iter().map(|heat| heat_cost(*heat)).sum::<usize>();
            room = room.saturating_sub(cost);
            if room > 0 {
                rows.push(ShownLine { name: visible(name, NAME_BYTES), values: shown(line) });
            } else {
                let sums = others.iter_mut().zip(line);
                sums.for_each(|(sum, heat)| *sum = (sum.0.saturating_add(heat.0), sum.1.max(heat.1)));
            }
        }
        ShownMatrix {
            title: title.into(),
            help: help.into(),
            empty: empty.into(),
            path: path.into(),
            row: (row.0.into(), row.1.into()),
            column: (column.0.into(), column.1.into()),
            columns: matrix.columns.iter().map(|name| visible(name, NAME_BYTES)).collect(),
            more_rows: matrix.folded[0] + matrix.rows.len() - rows.len(),
            more_columns: matrix.folded[1],
            rows,
            others: shown(&others),
            all: shown(&matrix.all),
        }
    }

    /// Returns the cells as a table with a row of names, number and age for each, the oldest first.
    pub fn table(&self) -> ShownTable {
        let column = |title: &str, unit: &'static str| ColumnHead {
            title: title.to_string().into(),
            unit: unit.into(),
            ..ColumnHead::default()
        };
        let cells = self
            .rows
            .iter()
            .flat_map(|line| line.values.iter().zip(&self.columns).map(|(heat, column)| (&line.name, column, *heat)));
        let mut cells: Vec<_> = cells.filter(|(.., heat)| heat.0 > 0).collect();
        cells.sort_by(|(.., one), (.., other)| other.1.total_cmp(&one.1).then_with(|| other.0.cmp(&one.0)));
        let row = |(row, column, ShownHeat(count, age)): (&String, &String, ShownHeat)| {
            let [row, column] = [row, column].map(|name| ShownCell::Text(name.clone()));
            vec![row, column, ShownCell::Number(count), ShownCell::Seconds(age)]
        };
        ShownTable {
            name: "matrix".into(),
            title: self.title.clone(),
            empty: self.empty.clone(),
            columns: vec![
                column(&self.row.0, "name"),
                column(&self.column.0, "name"),
                column("ready", "number"),
                column("oldest", "seconds"),
            ],
            rows: cells.into_iter().map(row).collect(),
            ..ShownTable::default()
        }
    }

    /// Returns the sum of two matrices, with the names of both. The folded rows and columns of each are added to the
    /// others.
    pub fn with(mut self, other: &ShownMatrix) -> ShownMatrix {
        let width = self.columns.len();
        let new = other.columns.iter().filter(|name| !self.columns.contains(name)).cloned();
        self.columns.extend(new.collect::<Vec<_>>());
        let grown = self.columns.len();
        // The two further columns: all others, and all.
        let places: Vec<usize> =
            other.columns.iter().filter_map(|name| self.columns.iter().position(|own| own == name)).collect();
        let places: Vec<usize> = places.into_iter().chain([grown, grown + 1]).collect();
        let nothing = || vec![ShownHeat(0, 0.0); grown + 2];
        let lines = self.rows.iter_mut().map(|line| &mut line.values).chain([&mut self.others, &mut self.all]);
        lines.for_each(|values| {
            values.splice(width..width, iter::repeat_n(ShownHeat(0, 0.0), grown - width));
        });
        let add = |own: &mut Vec<ShownHeat>, more: &[ShownHeat]| {
            for (place, heat) in places.iter().zip(more) {
                own[*place] = ShownHeat(own[*place].0.saturating_add(heat.0), own[*place].1.max(heat.1));
            }
        };
        for line in &other.rows {
            match self.rows.iter_mut().find(|own| own.name == line.name) {
                Some(own) => add(&mut own.values, &line.values),
                None => {
                    let mut values = nothing();
                    add(&mut values, &line.values);
                    self.rows.push(ShownLine { name: line.name.clone(), values });
                }
            }
        }
        add(&mut self.others, &other.others);
        add(&mut self.all, &other.all);
        self.more_rows = self.more_rows.max(other.more_rows);
        self.more_columns = self.more_columns.max(other.more_columns);
        let age = |line: &ShownLine| line.values.last().map_or(0.0, |heat| heat.1);
        self.rows.sort_by(|one, other| age(other).total_cmp(&age(one)));
        self
    }
}

fn name_cost(name: &[u8]) -> usize {
    NAME_COST + 3 * visible(name, NAME_BYTES).len()
}

fn heat_cost(heat: Heat) -> usize {
    if heat == (0, Span::ZERO) { NOTHING_COST } else { HEAT_COST }
}

fn shown(line: &[Heat]) -> Vec<ShownHeat> {
    line.iter().map(|(count, age)| ShownHeat(*count, seconds(*age))).collect()
}

impl Serialize for ShownHeat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ShownHeat(count, age) = *self;
        if count == 0 {
            return serializer.serialize_u8(0);
        }
        let mut pair = serializer.serialize_tuple(2)?;
        pair.serialize_element(&count)?;
        // Rounds to tenths of a second, which keeps the JSON short.
        pair.serialize_element(&((age * 10.0).round() / 10.0))?;
        pair.end()
    }
}

impl<'de> Deserialize<'de> for ShownHeat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum ReadHeat {
            Pair(u64, f64),
            Nothing(u8),
        }
        Ok(match ReadHeat::deserialize(deserializer)? {
            ReadHeat::Pair(count, age) => ShownHeat(count, age),
            ReadHeat::Nothing(count) => ShownHeat(count.into(), 0.0),
        })
    }
}
