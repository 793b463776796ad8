//! Pages with the contents of a store. The thread makes one at a time, and the loop takes it in slices.

use super::batch::{Batch, Row};
use super::{Commit, Visit};
use crate::state::Saved;
use poolcounter_core::{Span, meter};

/// Number of rows that end a slice: about a millisecond.
pub const SLICE_ROWS: usize = 512;
/// Bytes of bodies that end a slice.
pub const SLICE_BYTES: usize = 256 * 1024;

/// Part of a store's contents, as a batch that puts it. The first has all settings.
#[derive(Default)]
pub struct Page {
    /// Last batch of the store; only in the first page.
    pub committed: Option<Commit>,
    /// Rows.
    pub rows: Batch,
    /// Share of all jobs that was read with it.
    pub share: f64,
    /// True if it is the last page.
    pub is_last: bool,
    /// Number of its rows that were visited.
    visited: usize,
}

impl Page {
    /// Returns the beginning of the first page of a store with this last batch and this number of the next job.
    pub fn first(committed: Commit, next_id: u64) -> Page {
        let mut page = Page { committed: Some(committed), ..Page::default() };
        page.rows.rows.push(Row::NextId(next_id));
        page
    }

    /// Visits the next slice as records of a handover, and returns whether that was the last of the page. `epoch` is
    /// the time of day at [`Time::START`](poolcounter_core::time::Time::START).
    ///
    /// # Errors
    ///
    /// One sentence that says what is wrong with a row.
    pub fn visit(&mut self, epoch: Span, visit: Visit<'_>) -> Result<bool, String> {
        if let Some(committed) = self.committed.take() {
            let next_id = self.rows.next_id().unwrap_or(1);
            visit(Saved::Meta { next_id, committed, is_draining: false, figures: Vec::new() })?;
        }
        let (mut rows, mut bytes) = (0, 0);
        while self.visited < self.rows.rows.len() && rows < SLICE_ROWS && bytes < SLICE_BYTES {
            meter::visit();
            (rows, bytes) = (rows + 1, bytes + self.rows.visit(&self.rows.rows[self.visited], epoch, visit)?);
            self.visited += 1;
        }
        Ok(self.visited == self.rows.rows.len())
    }
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a page of {} rows", self.rows.rows.len())
    }
}
