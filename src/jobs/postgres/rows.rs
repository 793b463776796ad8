//! A batch as arrays, one for each column: jobs to put, change and delete, each job once.

use super::statements as sql;
use crate::store::batch::{Batch, JobRow, Row, Text};
use crate::store::columns::{COLUMNS, Field, PLAIN, ascii};
use std::collections::HashMap;
use std::error::Error;
use std::hash::Hash;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

/// Statement that writes rows, with its parameters.
pub type Change<'a> = (&'static str, Vec<&'a (dyn ToSql + Sync)>);

/// Net changes of a batch.
#[derive(Default)]
pub struct Rows<'a> {
    /// New jobs without optional values.
    pub plain: JobColumns<'a>,
    /// Other jobs that are new.
    pub full: JobColumns<'a>,
    /// Jobs that are changed, without their bodies.
    pub updated: JobColumns<'a>,
    /// Deleted jobs.
    pub deleted: Vec<i64>,
    /// Tubes and signatures of root jobs that are written or deleted.
    pub roots_gone: (Vec<&'a str>, Vec<&'a [u8]>),
    /// Root jobs.
    pub roots: RootColumns<'a>,
    /// Kinds and patterns of settings that are written or deleted.
    pub settings_gone: (Vec<&'a str>, Vec<&'a [u8]>),
    /// Settings.
    pub settings: (Vec<&'a str>, Vec<&'a [u8]>, Vec<&'a [u8]>),
    /// Rows of the inbox that were taken.
    pub taken: Vec<i64>,
    /// Rows of the inbox that are refused, and the reasons.
    pub refused: (Vec<i64>, Vec<&'a str>),
}

/// Tubes, signatures, newest timestamps and times of change.
pub type RootColumns<'a> = (Vec<&'a str>, Vec<&'a [u8]>, Vec<i64>, Vec<i64>);

/// Jobs, column by column.
#[derive(Default)]
pub struct JobColumns<'a> {
    columns: [Vec<Field<'a>>; COLUMNS],
    bodies: Vec<&'a [u8]>,
}

/// Outcome of a job.
#[derive(Clone, Copy)]
enum Fate<'a> {
    Put(&'a JobRow, &'a [u8]),
    Update(&'a JobRow),
    Delete,
}

/// Last value of each key, in the order of the first occurrences.
struct Last<K, V>(HashMap<K, usize>, Vec<(K, V)>);

impl<K: Copy + Eq + Hash, V> Last<K, V> {
    fn new() -> Self {
        Last(HashMap::new(), Vec::new())
    }

    fn set(&mut self, key: K, next: impl FnOnce(Option<&V>) -> V) {
        match self.0.get(&key) {
            Some(place) => {
                let value = next(Some(&self.1[*place].1));
                self.1[*place].1 = value;
            }
            None => {
                self.0.insert(key, self.1.len());
                self.1.push((key, next(None)));
            }
        }
    }
}

impl<'a> Rows<'a> {
    /// Returns the net changes of a batch.
    pub fn of(batch: &'a Batch) -> Rows<'a> {
        Rows::of_part(batch, &batch.rows)
    }

    /// Returns the net changes of some rows of a batch.
    pub fn of_part(batch: &'a Batch, rows: &'a [Row]) -> Rows<'a> {
        let (mut jobs, mut roots, mut settings) = (Last::new(), Last::new(), Last::new());
        let mut inbox = Rows::of_inbox(batch, rows);
        for row in rows {
            let name = |text: &Text| ascii(batch.text(*text));
            match row {
                Row::Put(job, body) => jobs.set(job.id.0, |_| Fate::Put(job, batch.body(body))),
                Row::Update(job) => jobs.set(job.id.0, |before| match before {
                    Some(Fate::Put(_, body)) => Fate::Put(job, body),
                    _ => Fate::Update(job),
                }),
                Row::Delete(id) => jobs.set(id.0, |_| Fate::Delete),
                Row::Root(tube, signature, newest, changed) => {
                    let value = Some((newest.cast_signed(), *changed));
                    roots.set((name(tube), batch.text(*signature)), |_| value);
                }
                Row::RootGone(tube, signature) => roots.set((name(tube), batch.text(*signature)), |_| None),
                Row::Setting(kind, of, value) => {
                    settings.set((*kind, batch.text(*of)), |_| value.map(|value| batch.text(value)));
                }
                Row::NextId(_) | Row::Taken(..) => {}
            }
        }
        let rows = &mut inbox;
        jobs.1.into_iter().for_each(|(id, fate)| rows.add_job(batch, id, fate));
        roots.1.into_iter().for_each(|(root, value)| rows.add_root(root, value));
        settings.1.into_iter().for_each(|(setting, value)| rows.add_setting(setting, value));
        inbox
    }

    /// Returns what some rows of a batch change in the inbox.
    pub fn of_inbox(batch: &'a Batch, rows: &'a [Row]) -> Rows<'a> {
        let mut changes = Rows::default();
        for row in rows {
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
        let Rows { plain, full, updated, deleted, roots_gone, roots, settings_gone, settings, .. } = self;
        let mut changes: Vec<Change<'_>> = Vec::new();
        let mut add = |statement: &'static str, is_empty: bool, columns| {
            changes.extend((!is_empty).then_some((statement, columns)));
        };
        add(sql::PUT_PLAIN, plain.is_empty(), plain.params(PLAIN, true));
        add(sql::PUT, full.is_empty(), full.params(COLUMNS, true));
        add(sql::UPDATE, updated.is_empty(), updated.params(COLUMNS, false));
        add(sql::DELETE, deleted.is_empty(), vec![deleted]);
        add(sql::ROOT_GONE, roots_gone.0.is_empty(), vec![&roots_gone.0, &roots_gone.1]);
        add(sql::ROOT, roots.0.is_empty(), vec![&roots.0, &roots.1, &roots.2, &roots.3]);
        add(sql::SETTING_GONE, settings_gone.0.is_empty(), vec![&settings_gone.0, &settings_gone.1]);
        add(sql::SETTING, settings.0.is_empty(), vec![&settings.0, &settings.1, &settings.2]);
        add(sql::INBOX_TAKEN, self.taken.is_empty(), vec![&self.taken]);
        add(sql::INBOX_REFUSE, self.refused.0.is_empty(), vec![&self.refused.0, &self.refused.1]);
        changes
    }

    fn add_job(&mut self, batch: &'a Batch, id: u64, fate: Fate<'a>) {
        match fate {
            Fate::Put(job, body) if job.is_plain() => self.plain.add(&batch.columns(job)[..PLAIN], Some(body)),
            Fate::Put(job, body) => self.full.add(&batch.columns(job), Some(body)),
            Fate::Update(job) => self.updated.add(&batch.columns(job), None),
            Fate::Delete => self.deleted.push(id.cast_signed()),
        }
    }

    fn add_root(&mut self, (tube, signature): (&'a str, &'a [u8]), value: Option<(i64, i64)>) {
        self.roots_gone.0.push(tube);
        self.roots_gone.1.push(signature);
        if let Some((newest, changed)) = value {
            self.roots.0.push(tube);
            self.roots.1.push(signature);
            self.roots.2.push(newest);
            self.roots.3.push(changed);
        }
    }

    fn add_setting(&mut self, (kind, pattern): (&'a str, &'a [u8]), value: Option<&'a [u8]>) {
        self.settings_gone.0.push(kind);
        self.settings_gone.1.push(pattern);
        if let Some(value) = value {
            self.settings.0.push(kind);
            self.settings.1.push(pattern);
            self.settings.2.push(value);
        }
    }
}

impl<'a> JobColumns<'a> {
    fn add(&mut self, fields: &[Field<'a>], body: Option<&'a [u8]>) {
        self.columns.iter_mut().zip(fields).for_each(|(column, field)| column.push(*field));
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
            Field::Flag(flag) => flag.to_sql(of, out),
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
