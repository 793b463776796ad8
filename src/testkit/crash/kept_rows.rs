//! The rows that result from batches of changes, computed in the simplest way.

use poolcounter_core::time::Span;
use poolcounter_jobs::state::{Body, Commit, Saved, Stored};
use poolcounter_jobs::store::Visit;
use poolcounter_jobs::store::batch::{Batch, JobRow, Row, Text, read_setting, signed};
use poolcounter_jobs::store::page::Page;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows that result from batches.
#[derive(Default)]
pub struct KeptRows<'a> {
    jobs: BTreeMap<u64, (&'a Batch, &'a JobRow, &'a [u8])>,
    roots: BTreeMap<(Vec<u8>, Vec<u8>), (i64, u64)>,
    settings: BTreeMap<(&'static str, Vec<u8>), Vec<u8>>,
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
        let text = |text: &Text| batch.text(*text).to_vec();
        match row {
            Row::Put(job, body) => _ = self.jobs.insert(job.id.0, (batch, job, batch.body(body))),
            Row::Update(job) => {
                let (_, _, body) = self.jobs[&job.id.0];
                self.jobs.insert(job.id.0, (batch, job, body));
            }
            Row::Delete(id) => _ = self.jobs.remove(&id.0),
            Row::Root(tube, signature, newest, changed) => {
                self.roots.insert((text(tube), text(signature)), (*changed, *newest));
            }
            Row::RootGone(tube, signature) => _ = self.roots.remove(&(text(tube), text(signature))),
            Row::Setting(kind, of, Some(value)) => _ = self.settings.insert((kind, text(of)), text(value)),
            Row::Setting(kind, of, None) => _ = self.settings.remove(&(*kind, text(of))),
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
        for ((kind, of), value) in &self.settings {
            visit(Saved::Setting(read_setting(epoch, kind, of, value).ok_or("a setting makes no sense")?))?;
        }
        let mut roots: Vec<_> = self.roots.iter().collect();
        roots.sort_by_key(|(_, (changed, _))| *changed);
        for ((tube, signature), (changed, newest)) in roots {
            visit(Saved::Root(tube, signature, *newest, *changed - signed(epoch)))?;
        }
        self.jobs
            .values()
            .try_for_each(|(batch, job, body)| visit(Saved::Job(batch.record(job, epoch), body, None, None)))
    }
}
