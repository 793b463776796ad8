//! A batch as arrays, one for each column: what is to be put, changed and deleted, each job once.

use crate::state::Until;
use crate::store::batch::{Batch, JobRow, Row, Text};
use std::collections::HashMap;
use std::hash::Hash;

/// What a batch comes to.
#[derive(Default)]
pub struct Rows<'a> {
    /// Jobs that have no more than what each job has.
    pub plain: JobColumns<'a>,
    /// Other jobs that are new.
    pub full: JobColumns<'a>,
    /// Jobs that are changed, without their bodies.
    pub updated: JobColumns<'a>,
    /// Jobs that are gone.
    pub deleted: Vec<i64>,
    /// Tubes and signatures of root jobs that are written or gone.
    pub roots_gone: (Vec<&'a str>, Vec<&'a [u8]>),
    /// Root jobs.
    pub roots: RootColumns<'a>,
    /// Kinds and patterns of settings that are written or gone.
    pub settings_gone: (Vec<&'a str>, Vec<&'a [u8]>),
    /// Settings.
    pub settings: (Vec<&'a str>, Vec<&'a [u8]>, Vec<&'a [u8]>),
}

/// Tubes, signatures, newest timestamps and when they changed.
pub type RootColumns<'a> = (Vec<&'a str>, Vec<&'a [u8]>, Vec<i64>, Vec<i64>);

/// Jobs, column by column.
#[derive(Default)]
pub struct JobColumns<'a> {
    /// Their numbers.
    pub id: Vec<i64>,
    /// Their tubes.
    pub tube: Vec<&'a str>,
    /// `pri`, `delay`, `ttr` and `created`.
    pub first: [Vec<i64>; 4],
    /// Until when they are delayed.
    pub delayed_until: Vec<Option<i64>>,
    /// Whether they are buried.
    pub buried: Vec<bool>,
    /// `reserves`, `timeouts`, `releases`, `buries`, `kicks` and `attempts`.
    pub counts: [Vec<i64>; 6],
    /// Their keys.
    pub key: Vec<Option<&'a [u8]>>,
    /// Whether these keep others out until they are deleted.
    pub until_deleted: Vec<bool>,
    /// The signatures of their root jobs.
    pub root: Vec<Option<&'a [u8]>>,
    /// And the timestamps.
    pub root_timestamp: Vec<Option<i64>>,
    /// Their groups.
    pub group: Vec<Option<&'a [u8]>>,
    /// The texts of their last failures.
    pub error: Vec<Option<&'a [u8]>>,
    /// Their bodies.
    pub body: Vec<&'a [u8]>,
}

/// Outcome of a job.
#[derive(Clone, Copy)]
enum Fate<'a> {
    Put(&'a JobRow, &'a [u8]),
    Update(&'a JobRow),
    Delete,
}

/// The last word about each, in the order of the first.
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
    /// Returns what a batch comes to.
    pub fn of(batch: &'a Batch) -> Rows<'a> {
        Rows::of_part(batch, &batch.rows)
    }

    /// Returns what some rows of a batch come to.
    pub fn of_part(batch: &'a Batch, rows: &'a [Row]) -> Rows<'a> {
        let (mut jobs, mut roots, mut settings) = (Last::new(), Last::new(), Last::new());
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
                Row::NextId(_) => {}
            }
        }
        let mut rows = Rows::default();
        jobs.1.into_iter().for_each(|(id, fate)| rows.add_job(batch, id, fate));
        roots.1.into_iter().for_each(|(root, value)| rows.add_root(root, value));
        settings.1.into_iter().for_each(|(setting, value)| rows.add_setting(setting, value));
        rows
    }

    fn add_job(&mut self, batch: &'a Batch, id: u64, fate: Fate<'a>) {
        match fate {
            Fate::Put(job, body) if job.is_plain() => {
                self.plain.add(batch, job);
                self.plain.body.push(body);
            }
            Fate::Put(job, body) => {
                self.full.add(batch, job);
                self.full.add_rest(batch, job);
                self.full.body.push(body);
            }
            Fate::Update(job) => {
                self.updated.add(batch, job);
                self.updated.add_rest(batch, job);
            }
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
    /// Adds what each job has.
    fn add(&mut self, batch: &'a Batch, job: &JobRow) {
        self.id.push(job.id.0.cast_signed());
        self.tube.push(ascii(batch.text(job.tube)));
        let numbers = [job.pri.into(), job.delay.into(), job.ttr.into(), job.created];
        self.first.iter_mut().zip(numbers).for_each(|(column, number)| column.push(number));
        self.delayed_until.push(job.delayed_until);
    }

    /// Adds what few jobs have.
    fn add_rest(&mut self, batch: &'a Batch, job: &JobRow) {
        let some = |text: Text| (!text.is_empty()).then(|| batch.text(text));
        let history = &job.history;
        let numbers =
            [job.reserves, history.timeouts, history.releases, history.buries, history.kicks, history.attempts];
        self.buried.push(job.is_buried);
        self.counts.iter_mut().zip(numbers).for_each(|(column, number)| column.push(number.get().into()));
        self.key.push(some(job.key));
        self.until_deleted.push(job.until == Until::Deleted);
        self.root.push(job.root.map(|(signature, _)| batch.text(signature)));
        self.root_timestamp.push(job.root.map(|(_, timestamp)| timestamp.cast_signed()));
        self.group.push(some(job.group));
        self.error.push(some(job.error));
    }
}

/// The names of tubes have no other bytes.
fn ascii(name: &[u8]) -> &str {
    std::str::from_utf8(name).unwrap_or_default()
}
