//! The rows that result from batches of changes, computed in the simplest way.

use poolcounter_core::Span;
use poolcounter_jobs::state::{Body, Commit, Saved, Stored};
use poolcounter_jobs::store::Visit;
use poolcounter_jobs::store::batch::{Batch, JobRow, Row, read_named};
use poolcounter_jobs::store::columns::Named;
use poolcounter_jobs::store::page::Page;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows that result from batches.
#[derive(Default)]
pub struct KeptRows<'a> {
    jobs: BTreeMap<u64, (&'a Batch, &'a JobRow, &'a [u8])>,
    named: BTreeMap<(Named, [&'a [u8]; 2]), &'a [u8]>,
    pub next_id: u64,
    committed: u64,
}

impl<'a> KeptRows<'a> {
    /// Returns the rows that result from these batches, in their order.
    pub fn of(batches: &'a [Arc<Batch>]) -> KeptRows<'a> {
        let mut kept = KeptRows::default();
        for batch in batches {
            kept.committed = kept.committed.max(batch.commit.0);
            batch.rows.iter().for_each(|row| kept.apply(batch, row));
        }
        kept
    }

    fn apply(&mut self, batch: &'a Batch, row: &'a Row) {
        match row {
            Row::Put(job, body) => _ = self.jobs.insert(job.id.0, (batch, job, batch.body(body))),
            Row::Update(job) => {
                let (_, _, body) = self.jobs[&job.id.0];
                self.jobs.insert(job.id.0, (batch, job, body));
            }
            Row::Delete(id) => _ = self.jobs.remove(&id.0),
            Row::Named(table, name, value) => {
                let key = (*table, name.map(|part| batch.text(part)));
                match value {
                    Some(value) => self.named.insert(key, batch.text(*value)),
                    None => self.named.remove(&key),
                };
            }
            Row::Taken(..) => {}
            Row::NextId(id) => self.next_id = self.next_id.max(*id),
        }
    }

    /// Returns all rows in one page, as a newly opened store does.
    pub fn page(&self) -> Page {
        self.pages(usize::MAX).remove(0)
    }

    /// Returns all rows in pages of `most` jobs; the settings and root jobs are in the first.
    pub fn pages(&self, most: usize) -> Vec<Page> {
        let (mut pages, mut jobs) = (vec![Page::first(Commit(self.committed), self.next_id)], 0);
        let visited = self.visit(Span::ZERO, &mut |saved| {
            if let (Saved::Job(..), true) = (&saved, jobs == most) {
                pages.push(Page::default());
                jobs = 0;
            }
            let rows = &mut pages.last_mut().expect("there is one").rows;
            match saved {
                Saved::Setting(setting) => rows.add(Stored::Setting(setting), Span::ZERO),
                Saved::Root(tube, signature, newest, changed) => {
                    rows.add(Stored::Root(tube, signature, newest, changed), Span::ZERO);
                }
                Saved::Job(record, body, ..) => {
                    jobs += 1;
                    rows.add(Stored::Put(record, &mut Body::Own(body.into())), Span::ZERO);
                }
                _ => {}
            }
            Ok(())
        });
        visited.expect("it has only what it was given");
        pages.last_mut().expect("there is one").is_last = true;
        pages
    }

    /// Visits all rows, as a newly opened store does.
    ///
    /// # Errors
    ///
    /// Error of the visitor, or of a setting that cannot be parsed.
    pub fn visit(&self, epoch: Span, visit: Visit<'_>) -> Result<(), &'static str> {
        let (next_id, committed) = (self.next_id, Commit(self.committed));
        visit(Saved::Meta { next_id, committed, is_draining: false, figures: Vec::new() })?;
        for ((table, name), value) in &self.named {
            visit(read_named(epoch, *table, *name, value).ok_or("a value makes no sense")?)?;
        }
        self.jobs
            .values()
            .try_for_each(|(batch, job, body)| visit(Saved::Job(batch.record(job, epoch), body, None, None)))
    }
}
