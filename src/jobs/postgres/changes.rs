//! The table of the jobs and root jobs that recent batches have changed, as its writer bounds it.

use std::collections::VecDeque;

/// Batches, and jobs and root jobs changed by them, that end a part of the table.
const PART_BATCHES: usize = 1024;
const PART_JOBS: usize = 65_536;
/// Number of parts that are kept: half a minute at the greatest load.
const PARTS: usize = 32;
/// Number of batches of earlier owners that are kept.
const KEPT_OF_OTHERS: u64 = (PARTS * PART_BATCHES) as u64;

/// Parts of the table that this process has written.
#[derive(Default)]
pub struct ChangeLog {
    /// Last batch of each part that is complete.
    ends: VecDeque<u64>,
    batches: usize,
    jobs: usize,
    /// True once the rows of earlier owners were bounded.
    has_begun: bool,
}

impl ChangeLog {
    /// Notes a batch that changes this number of jobs and root jobs. Returns the last batch to be forgotten with it; None if there is
    /// none.
    pub fn note(&mut self, batch: u64, jobs: usize) -> Option<u64> {
        (self.batches, self.jobs) = (self.batches + 1, self.jobs + jobs);
        if !std::mem::replace(&mut self.has_begun, true) {
            // An owner that ends before its parts are full forgets nothing. Many such owners would leave rows without
            // end.
            return batch.checked_sub(KEPT_OF_OTHERS);
        }
        if self.batches < PART_BATCHES && self.jobs < PART_JOBS {
            return None;
        }
        (self.batches, self.jobs) = (0, 0);
        self.ends.push_back(batch);
        if self.ends.len() > PARTS { self.ends.pop_front() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn batches_are_forgotten_in_parts_when_enough_came_behind_them() {
        let mut log = ChangeLog::default();
        let kept = (PARTS * PART_BATCHES) as u64;
        for batch in 1..=3 * kept {
            let is_end = batch % PART_BATCHES as u64 == 0 && batch > kept;
            assert_eq!(log.note(batch, 1), is_end.then(|| batch - kept), "{batch}");
        }
        let mut log = ChangeLog::default();
        let forgotten: Vec<u64> = (1..=PARTS as u64 + 3).filter_map(|batch| log.note(batch, PART_JOBS)).collect();
        assert_eq!(forgotten, [2, 3]);
    }

    #[test]
    fn owners_that_end_soon_leave_a_bounded_number_of_batches() {
        let mut kept = BTreeSet::new();
        for owner in 0..100 {
            let mut log = ChangeLog::default();
            for batch in owner * 1_000 + 1..=owner * 1_000 + 1_000 {
                kept.insert(batch);
                log.note(batch, 1).into_iter().for_each(|last| kept = kept.split_off(&(last + 1)));
            }
        }
        assert!(kept.len() as u64 <= KEPT_OF_OTHERS + 1_000, "{} batches", kept.len());
    }
}
