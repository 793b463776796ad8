//! A batch as arrays, one for each column: jobs to put, change and delete, each job once.

use super::statements as sql;
use crate::state::Until;
use crate::store::batch::{Batch, JobRow, Row, Text};
use std::collections::HashMap;
use std::hash::Hash;
use tokio_postgres::types::ToSql;

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
    /// Their numbers.
    pub id: Vec<i64>,
    /// Their tubes.
    pub tube: Vec<&'a str>,
    /// `pri`, `delay`, `ttr` and `created`.
    pub first: [Vec<i64>; 4],
    /// Ends of their delays.
    pub delayed_until: Vec<Option<i64>>,
    /// True for each buried job.
    pub buried: Vec<bool>,
    /// `reserves`, `timeouts`, `releases`, `buries`, `kicks` and `attempts`.
    pub counts: [Vec<i64>; 6],
    /// Their keys.
    pub key: Vec<Option<&'a [u8]>>,
    /// True for each job whose key is kept until it is deleted.
    pub until_deleted: Vec<bool>,
    /// The signatures of their root jobs.
    pub root: Vec<Option<&'a [u8]>>,
    /// Timestamps of their root jobs.
    pub root_timestamp: Vec<Option<i64>>,
    /// Their groups.
    pub group: Vec<Option<&'a [u8]>>,
    /// The texts of their last failures.
    pub error: Vec<Option<&'a [u8]>>,
    /// Where dead letters come from.
    pub origin: Vec<Option<&'a [u8]>>,
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
        add(sql::PUT_PLAIN, plain.id.is_empty(), [plain.first(), vec![&plain.body]].concat());
        add(sql::PUT, full.id.is_empty(), [full.first(), full.rest(), vec![&full.body]].concat());
        add(sql::UPDATE, updated.id.is_empty(), [updated.first(), updated.rest()].concat());
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
    /// Adds the values that every job has.
    fn add(&mut self, batch: &'a Batch, job: &JobRow) {
        self.id.push(job.id.0.cast_signed());
        self.tube.push(ascii(batch.text(job.tube)));
        let numbers = [job.pri.into(), job.delay.into(), job.ttr.into(), job.created];
        self.first.iter_mut().zip(numbers).for_each(|(column, number)| column.push(number));
        self.delayed_until.push(job.delayed_until);
    }

    /// Adds the values that few jobs have.
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
        self.origin.push(some(job.origin));
    }

    fn first(&self) -> Vec<&(dyn ToSql + Sync)> {
        let [pri, delay, ttr, created] = &self.first;
        vec![&self.id, &self.tube, pri, delay, ttr, created, &self.delayed_until]
    }

    fn rest(&self) -> Vec<&(dyn ToSql + Sync)> {
        let [reserves, timeouts, releases, buries, kicks, attempts] = &self.counts;
        vec![
            &self.buried,
            reserves,
            timeouts,
            releases,
            buries,
            kicks,
            attempts,
            &self.key,
            &self.until_deleted,
            &self.root,
            &self.root_timestamp,
            &self.group,
            &self.error,
            &self.origin,
        ]
    }
}

/// Returns the name of a tube as text. Names of tubes are ASCII.
fn ascii(name: &[u8]) -> &str {
    std::str::from_utf8(name).unwrap_or_default()
}
