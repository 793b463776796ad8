//! Root jobs: the newest timestamp of each signature in a tube, kept for 28 days from its last change.

use super::commits::Commit;
use super::ids::RootId;
use poolcounter_core::id::Id;
use poolcounter_core::list::{Links, List};
use poolcounter_core::names::{Hash, Hashing, Names};
use poolcounter_core::time::{Span, Time};
use slab::Slab;

/// Time for which a root job is kept after its last change: the same as in MediaWiki.
const KEPT: Span = Span::from_secs(28 * 24 * 3600);

/// Bytes of a root job beside its names: its entry, its place in the index, and its links.
const ROOT_BYTES: usize = 120;

/// A root job.
pub(super) struct Root {
    pub tube: Box<[u8]>,
    pub signature: Box<[u8]>,
    newest: u64,
    /// Time of its last change, in microseconds since the start; negative if that was in an earlier process.
    changed: i64,
    commit: Commit,
}

/// All root jobs, in the order of their last changes.
#[derive(Default)]
pub(super) struct Roots {
    roots: Slab<Root>,
    names: Names<RootId>,
    links: Links,
    by_change: List<RootId>,
    pub bytes: usize,
}

impl Roots {
    pub fn len(&self) -> usize {
        self.roots.len()
    }

    /// Returns the bytes of a root job of this signature in a tube.
    pub fn bytes_of(tube: &[u8], signature: &[u8]) -> usize {
        ROOT_BYTES + tube.len() + signature.len()
    }

    fn find(&self, tube: &[u8], signature: &[u8]) -> Option<RootId> {
        let is_it = |id: RootId| {
            let root = &self.roots[id.index()];
            *root.tube == *tube && *root.signature == *signature
        };
        self.names.find(hash_of(&self.names.hashing(), tube, signature), is_it)
    }

    /// Returns the newest timestamp of a root job, and the commit that contains it.
    pub fn newest(&self, tube: &[u8], signature: &[u8]) -> Option<(u64, Commit)> {
        let root = &self.roots[self.find(tube, signature)?.index()];
        Some((root.newest, root.commit))
    }

    /// Returns the newest timestamp of a root job, and the time of its last change in microseconds since the start.
    pub fn newest_and_change(&self, tube: &[u8], signature: &[u8]) -> Option<(u64, i64)> {
        let root = &self.roots[self.find(tube, signature)?.index()];
        Some((root.newest, root.changed))
    }

    /// Sets the newest timestamp of a root job.
    pub fn set(&mut self, tube: &[u8], signature: &[u8], newest: u64, changed: i64, commit: Commit) -> RootId {
        if let Some(id) = self.find(tube, signature) {
            let root = &mut self.roots[id.index()];
            (root.newest, root.changed, root.commit) = (newest, changed, commit);
            self.by_change.remove(&mut self.links, id);
            self.by_change.push_back(&mut self.links, id);
            return id;
        }
        self.bytes += Roots::bytes_of(tube, signature);
        let root = Root { tube: tube.into(), signature: signature.into(), newest, changed, commit };
        let id = RootId::from_index(self.roots.insert(root));
        let hashing = self.names.hashing();
        let Roots { names, roots, .. } = self;
        names.insert(hash_of(&hashing, tube, signature), id, |id| {
            hash_of(&hashing, &roots[id.index()].tube, &roots[id.index()].signature)
        });
        self.by_change.push_back(&mut self.links, id);
        id
    }

    /// Returns a root job in the form for the store.
    pub fn record(&self, id: RootId) -> Option<(&[u8], &[u8], u64, i64)> {
        let root = self.roots.get(id.index())?;
        Some((&root.tube, &root.signature, root.newest, root.changed))
    }

    /// Returns every root job, the one with the oldest change first.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], u64, i64)> {
        self.by_change.iter(&self.links).filter_map(|id| self.record(id))
    }

    /// Returns the root jobs from a position of the table on, with their positions, in no order.
    pub fn iter_from(&self, place: usize) -> impl Iterator<Item = (usize, RootId)> {
        let places = (place..self.roots.capacity()).filter(|place| self.roots.contains(*place));
        places.map(|place| (place, RootId::from_index(place)))
    }

    /// Returns the time at which the root job with the oldest change is forgotten.
    pub fn first_end(&self) -> Option<Time> {
        let changed = self.roots[self.by_change.front()?.index()].changed;
        let end = changed.saturating_add_unsigned(KEPT.as_micros());
        Some(Time::from_micros(u64::try_from(end).unwrap_or(0)))
    }

    /// Removes and returns the root job with the oldest change.
    pub fn forget_oldest(&mut self) -> Option<Root> {
        let id = self.by_change.pop_front(&mut self.links)?;
        let root = self.roots.remove(id.index());
        self.bytes -= Roots::bytes_of(&root.tube, &root.signature);
        self.names.remove(hash_of(&self.names.hashing(), &root.tube, &root.signature), id);
        Some(root)
    }

    pub fn check(&self) {
        assert_eq!(self.roots.len(), self.names.len(), "each root has a name");
        assert_eq!(self.roots.len(), self.by_change.len() as usize, "each root is in the order of changes");
        let changes: Vec<i64> = self.iter().map(|(_, _, _, changed)| changed).collect();
        assert!(changes.is_sorted(), "roots are in the order of their changes");
    }
}

fn hash_of(hashing: &Hashing, tube: &[u8], signature: &[u8]) -> Hash {
    Hash(hashing.hash(tube).0 ^ hashing.hash(signature).0.rotate_left(1))
}
