//! A batch as arrays, one for each column: jobs to put, change and delete, each job once.

use super::statements as sql;
use crate::store::batch::{Batch, JobRow, Row};
use crate::store::columns::{COLUMNS, Field, Named, PLAIN, ascii};
use std::collections::BTreeMap;
use std::error::Error;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

/// Statement that writes rows, with its parameters.
pub type Change<'a> = (&'static str, Vec<&'a (dyn ToSql + Sync)>);

/// Net changes of a batch.
#[derive(Default)]
pub struct Rows<'a> {
    /// New jobs without optional values.
    plain: JobColumns<'a>,
    /// Other jobs that are new.
    full: JobColumns<'a>,
    /// Jobs that are changed, without their bodies.
    updated: JobColumns<'a>,
    /// Deleted jobs.
    deleted: Vec<i64>,
    /// Rows of each table of named values.
    named: [NamedColumns<'a>; Named::ALL.len()],
    /// Rows of the inbox that were taken.
    taken: Vec<i64>,
    /// Rows of the inbox that are refused, and the reasons.
    refused: (Vec<i64>, Vec<&'a str>),
}

/// Jobs, column by column.
#[derive(Default)]
struct JobColumns<'a> {
    columns: [Vec<Field<'a>>; COLUMNS],
    bodies: Vec<&'a [u8]>,
}

/// Names and values, and the names of rows that are deleted.
#[derive(Default)]
struct NamedColumns<'a> {
    put: (Vec<&'a str>, Vec<&'a [u8]>, Vec<&'a [u8]>),
    gone: (Vec<&'a str>, Vec<&'a [u8]>),
}

/// Outcome of a job.
#[derive(Clone, Copy)]
enum Fate<'a> {
    Put(&'a JobRow, &'a [u8]),
    Update(&'a JobRow),
    Delete,
}

impl<'a> Rows<'a> {
    /// Returns the net changes of a batch.
    pub fn of(batch: &'a Batch) -> Rows<'a> {
        let (mut jobs, mut named) = (BTreeMap::new(), BTreeMap::new());
        for row in &batch.rows {
            match row {
                Row::Put(job, body) => _ = jobs.insert(job.id, Fate::Put(job, batch.body(body))),
                Row::Update(job) => {
                    let before = jobs.get(&job.id).copied();
                    let body = if let Some(Fate::Put(_, body)) = before { Some(body) } else { None };
                    jobs.insert(job.id, body.map_or(Fate::Update(job), |body| Fate::Put(job, body)));
                }
                Row::Delete(id) => _ = jobs.insert(*id, Fate::Delete),
                Row::Named(table, name, value) => {
                    named.insert((*table, name.map(|part| batch.text(part))), value.map(|value| batch.text(value)));
                }
                Row::NextId(_) | Row::Taken(..) => {}
            }
        }
        let mut rows = Rows::of_inbox(batch);
        for (id, fate) in jobs {
            match fate {
                Fate::Put(job, body) => {
                    let job = batch.stored(job);
                    match job.is_plain() {
                        true => rows.plain.add(job.columns(PLAIN), Some(body)),
                        false => rows.full.add(job.columns(COLUMNS), Some(body)),
                    }
                }
                Fate::Update(job) => rows.updated.add(batch.stored(job).columns(COLUMNS), None),
                Fate::Delete => rows.deleted.push(id.0.cast_signed()),
            }
        }
        for ((table, [first, second]), value) in named {
            let NamedColumns { put, gone } = &mut rows.named[table as usize];
            match value {
                Some(value) => (put.0.push(ascii(first)), put.1.push(second), put.2.push(value)),
                None => (gone.0.push(ascii(first)), gone.1.push(second), ()),
            };
        }
        rows
    }

    /// Returns what a batch changes in the inbox.
    pub fn of_inbox(batch: &'a Batch) -> Rows<'a> {
        let mut changes = Rows::default();
        for row in &batch.rows {
            match row {
                Row::Taken(id, why) if why.is_empty() => changes.taken.push(*id),
                Row::Taken(id, why) => {
                    changes.refused.0.push(*id);
                    changes.refused.1.push(std::str::from_utf8(batch.text(*why)).unwrap_or_default());
                }
                _ => {}
            }
        }
        changes
    }

    /// Returns the statements that write them.
    pub fn changes(&self) -> Vec<Change<'_>> {
        let Rows { plain, full, updated, deleted, named, taken, refused } = self;
        let mut changes: Vec<Change<'_>> = Vec::new();
        let mut add = |statement: &'static str, is_empty: bool, columns| {
            changes.extend((!is_empty).then_some((statement, columns)));
        };
        add(&sql::PUT_PLAIN, plain.is_empty(), plain.params(PLAIN, true));
        add(&sql::PUT, full.is_empty(), full.params(COLUMNS, true));
        add(&sql::UPDATE, updated.is_empty(), updated.params(COLUMNS, false));
        add(sql::DELETE, deleted.is_empty(), vec![deleted]);
        for (NamedColumns { put, gone }, [put_named, delete_named]) in named.iter().zip(&*sql::NAMED) {
            add(put_named, put.0.is_empty(), vec![&put.0, &put.1, &put.2]);
            add(delete_named, gone.0.is_empty(), vec![&gone.0, &gone.1]);
        }
        add(sql::INBOX_TAKEN, taken.is_empty(), vec![taken]);
        add(sql::INBOX_REFUSE, refused.0.is_empty(), vec![&refused.0, &refused.1]);
        changes
    }
}

impl<'a> JobColumns<'a> {
    fn add(&mut self, fields: impl Iterator<Item = Field<'a>>, body: Option<&'a [u8]>) {
        self.columns.iter_mut().zip(fields).for_each(|(column, field)| column.push(field));
        self.bodies.extend(body);
    }

    fn is_empty(&self) -> bool {
        self.columns[0].is_empty()
    }

    /// Returns the first columns, and the bodies behind them.
    fn params(&self, used: usize, with_bodies: bool) -> Vec<&(dyn ToSql + Sync)> {
        let columns = self.columns[..used].iter().map(|column| column as &(dyn ToSql + Sync));
        let bodies: &(dyn ToSql + Sync) = &self.bodies;
        columns.chain(with_bodies.then_some(bodies)).collect()
    }
}

impl ToSql for Field<'_> {
    fn to_sql(&self, of: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Field::Null => Ok(IsNull::Yes),
            Field::Number(number) => number.to_sql(of, out),
            Field::Text(text) => text.to_sql(of, out),
            Field::Bytes(bytes) => bytes.to_sql(of, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}
