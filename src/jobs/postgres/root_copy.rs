//! Copy of the root jobs in the database that a standby has in memory.

use super::copy::{Tube, Tubes};
use super::reading::PAGE_JOBS;
use crate::store::batch::{Batch, Row};
use std::collections::BTreeMap;
use std::vec::IntoIter;

/// Bytes of a root job beside its signature: its names, its values, and its share of the tree.
const ROOT_BYTES: usize = 96;

/// Tube and signature.
type Name = (Tube, Box<[u8]>);

/// Root jobs by tube and signature.
#[derive(Default)]
pub struct RootCopy {
    /// The newest timestamp, and the time of the last change.
    roots: BTreeMap<Name, (u64, i64)>,
    tubes: Tubes,
    bytes: usize,
}

impl RootCopy {
    /// Returns the number of root jobs.
    pub fn len(&self) -> usize {
        self.roots.len()
    }

    /// Returns the approximate number of bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds root jobs that were read, in place of those with their names.
    pub fn add(&mut self, batch: &Batch) {
        for row in &batch.rows {
            let Row::Root(tube, signature, newest, changed) = row else { continue };
            let tube = self.tubes.shared(batch.text(*tube));
            let signature: Box<[u8]> = batch.text(*signature).into();
            let len = signature.len();
            if self.roots.insert((tube, signature), (*newest, *changed)).is_none() {
                self.bytes += ROOT_BYTES + len;
            }
        }
    }

    /// Removes a root job, if it is there.
    pub fn remove(&mut self, tube: &[u8], signature: &[u8]) {
        let name = (self.tubes.shared(tube), signature.into());
        if self.roots.remove(&name).is_some() {
            self.bytes -= ROOT_BYTES + signature.len();
        }
    }

    /// Moves all root jobs out of the copy, in the order of their last changes.
    pub fn take(&mut self) -> GivenRoots {
        let mut roots: Vec<_> = std::mem::take(self).roots.into_iter().collect();
        roots.sort_unstable_by_key(|(_, (_, changed))| *changed);
        GivenRoots(roots.into_iter())
    }
}

/// Root jobs that are given to the loop, page by page: rows of a page take far more memory.
#[derive(Default)]
pub struct GivenRoots(IntoIter<(Name, (u64, i64))>);

impl GivenRoots {
    /// Moves the next root jobs to a page.
    pub fn give(&mut self, page: &mut Batch) {
        for ((tube, signature), (newest, changed)) in self.0.by_ref().take(PAGE_JOBS) {
            let (tube, signature) = (page.note(&tube), page.note(&signature));
            page.rows.push(Row::Root(tube, signature, newest, changed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_core::random::Random;

    #[test]
    fn roots_are_given_by_their_changes_as_they_were_added_last() {
        let mut random = Random::from_seed(8);
        let (mut copy, mut model) = (RootCopy::default(), BTreeMap::new());
        for changed in 0..30_000 {
            let name = (vec![b'a' + random.below(5) as u8], format!("s{}", random.below(1500)).into_bytes());
            if random.below(3) == 0 {
                copy.remove(&name.0, &name.1);
                model.remove(&name);
            } else {
                let mut batch = Batch::default();
                let (tube, signature) = (batch.note(&name.0), batch.note(&name.1));
                batch.rows.push(Row::Root(tube, signature, changed as u64 * 3, changed));
                copy.add(&batch);
                model.insert(name, changed);
            }
            assert_eq!((copy.len(), copy.bytes() >= copy.len() * ROOT_BYTES), (model.len(), true));
        }
        let values = |page: &Batch, row: &Row| {
            let Row::Root(tube, signature, newest, changed) = row else { panic!("it is a root job") };
            assert_eq!(*newest, *changed as u64 * 3);
            (*changed, (page.text(*tube).to_vec(), page.text(*signature).to_vec()))
        };
        let (mut given, mut found) = (copy.take(), Vec::new());
        loop {
            let mut page = Batch::default();
            given.give(&mut page);
            assert!(page.rows.len() <= PAGE_JOBS);
            if page.rows.is_empty() {
                break;
            }
            found.extend(page.rows.iter().map(|row| values(&page, row)));
        }
        assert!(found.len() > PAGE_JOBS, "one page has them all");
        let mut wanted: Vec<_> = model.into_iter().map(|(name, changed)| (changed, name)).collect();
        wanted.sort_unstable();
        assert_eq!(found, wanted);
        assert_eq!((copy.len(), copy.bytes()), (0, 0));
    }
}
