//! Handover of everything that a store was ever given, once more in slices, while jobs go on changing.
//!
//! A slice has its jobs as they are when it is taken. Jobs that are in no batch yet are left out, because the batches
//! after it bring them whole; later changes of jobs in the slice come with these batches, too. A job never moves in its
//! table, so each is in one slice, or is removed.

use super::ids::RootId;
use super::job::{Job, JobId};
use super::{State, Stored};
use poolcounter_core::Metered as _;

/// Number of root jobs in a slice.
const ROOTS_AT_ONCE: usize = 1024;
/// Bytes of bodies that end a slice.
const BYTES_AT_ONCE: usize = 1024 * 1024;
/// Largest number of pages of the table of jobs in a slice.
const PAGES_AT_ONCE: usize = 4;

/// Progress of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SnapshotPlace {
    /// At the beginning.
    #[default]
    Start,
    /// Before the root jobs from this position of their table on.
    Roots(usize),
    /// Before this page of the table of jobs, and behind this job of it.
    Jobs(usize, JobId),
}

impl State {
    /// Hands over the next slice, and returns the position of the one after it; None after the last.
    pub fn snapshot(&mut self, place: SnapshotPlace, visit: &mut dyn FnMut(Stored<'_>)) -> Option<SnapshotPlace> {
        match place {
            SnapshotPlace::Start => {
                visit(Stored::NextId(self.stored_next_id()));
                self.all_settings().for_each(|setting| visit(Stored::Setting(setting)));
                Some(SnapshotPlace::Roots(0))
            }
            SnapshotPlace::Roots(first) => Some(self.snapshot_roots(first, visit)),
            SnapshotPlace::Jobs(page, after) => self.snapshot_jobs(page, after, visit),
        }
    }

    fn snapshot_roots(&self, first: usize, visit: &mut dyn FnMut(Stored<'_>)) -> SnapshotPlace {
        let some: Vec<(usize, RootId)> = self.roots.iter_from(first).metered().take(ROOTS_AT_ONCE + 1).collect();
        for (_, root) in some.iter().take(ROOTS_AT_ONCE) {
            let (tube, signature, newest, changed) = self.roots.record(*root).expect("it is in the table");
            visit(Stored::Root(tube, signature, newest, changed));
        }
        some.get(ROOTS_AT_ONCE).map_or(SnapshotPlace::Jobs(0, JobId(0)), |(next, _)| SnapshotPlace::Roots(*next))
    }

    /// Hands over jobs from page `first` on, of that the jobs with greater numbers than `after`, and returns the position of
    /// the next slice; None after the last.
    fn snapshot_jobs(
        &mut self,
        first: usize,
        after: JobId,
        visit: &mut dyn FnMut(Stored<'_>),
    ) -> Option<SnapshotPlace> {
        let mut bytes = 0;
        for page in first..first + PAGES_AT_ONCE {
            if page >= self.jobs.pages() {
                return None;
            }
            let is_next = |job: &Job| job.is_stored && (page > first || job.id > after);
            let next = self.jobs.of_page(page).metered().filter(|(_, job)| is_next(job));
            let mut keys: Vec<_> = next.map(|(key, job)| (job.id, key)).collect();
            // In this order a table grows at its end.
            keys.sort_unstable();
            for (id, key) in keys {
                bytes += self.jobs[key].body.bytes().len();
                self.hand_over_whole(key, visit);
                if bytes >= BYTES_AT_ONCE {
                    return Some(SnapshotPlace::Jobs(page, id));
                }
            }
        }
        Some(SnapshotPlace::Jobs(first + PAGES_AT_ONCE, JobId(0)))
    }
}
