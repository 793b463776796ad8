//! Root jobs: the newest timestamp of each signature in a tube, kept for 28 days from its last change. A key that is kept
//! for a time is in the same table: its signature begins with a space, as no signature of a client does, its timestamp is the
//! number of its job, and its last change is 28 days before its end.

use super::State;
use super::commits::Commit;
use super::ids::RootId;
use super::job::{JobId, micros};
use poolcounter_core::names::{Hash, Hashing};
use poolcounter_core::{Id, Names, Span, Time};
use slab::Slab;
use std::collections::BTreeSet;

/// Time for which a root job is kept after its last change: the same as in MediaWiki.
const KEPT: Span = Span::from_secs(28 * 24 * 3600);

/// Bytes of a root job beside its names: its entry, and its places in the indexes.
const ROOT_BYTES: usize = 140;

/// First byte of the signature of a key.
const KEY: u8 = b' ';

/// A root job.
pub(super) struct Root {
    pub tube: Box<[u8]>,
    pub signature: Box<[u8]>,
    newest: u64,
    /// Time of its last change, in microseconds since the start; negative if that was in an earlier process.
    changed: i64,
    commit: Commit,
}

/// A key that is kept for a time.
pub(super) struct KeptKey {
    /// Job for which it is kept.
    pub job: JobId,
    /// End, in microseconds since the start.
    pub until: i64,
    pub commit: Commit,
}

/// All root jobs, in the order of their last changes.
#[derive(Default)]
pub(super) struct Roots {
    roots: Slab<Root>,
    names: Names<RootId>,
    by_change: BTreeSet<(i64, RootId)>,
    /// Number of kept keys among them.
    pub keys: usize,
    pub bytes: usize,
}

/// Returns the signature of a key.
pub(super) fn signature_of_key(key: &[u8]) -> Box<[u8]> {
    [&[KEY], key].concat().into()
}

/// Returns whether a signature is that of a key.
pub fn is_signature_of_key(signature: &[u8]) -> bool {
    signature.first() == Some(&KEY)
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

    /// Sets the newest timestamp of a root job.
    pub fn set(&mut self, tube: &[u8], signature: &[u8], newest: u64, changed: i64, commit: Commit) -> RootId {
        if let Some(id) = self.find(tube, signature) {
            let root = &mut self.roots[id.index()];
            self.by_change.remove(&(root.changed, id));
            (root.newest, root.changed, root.commit) = (newest, changed, commit);
            self.by_change.insert((changed, id));
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
        self.by_change.insert((changed, id));
        self.keys += usize::from(is_signature_of_key(signature));
        id
    }

    /// Keeps a key of a tube for a job until a moment in microseconds since the start.
    pub fn keep_key(&mut self, tube: &[u8], key: &[u8], kept: &KeptKey) -> RootId {
        let changed = kept.until.saturating_sub_unsigned(KEPT.as_micros());
        self.set(tube, &signature_of_key(key), kept.job.0, changed, kept.commit)
    }

    /// Returns a key of a tube that is kept at this moment.
    pub fn kept_key(&self, tube: &[u8], key: &[u8], now: i64) -> Option<KeptKey> {
        let id = if self.keys > 0 { self.find(tube, &signature_of_key(key)) } else { None };
        let root = &self.roots[id?.index()];
        let until = root.changed.saturating_add_unsigned(KEPT.as_micros());
        (until > now).then_some(KeptKey { job: JobId(root.newest), until, commit: root.commit })
    }

    /// Forgets a key, and returns its signature.
    pub fn forget_key(&mut self, tube: &[u8], key: &[u8]) -> Option<Root> {
        self.find(tube, &signature_of_key(key)).map(|id| self.remove(id))
    }

    /// Returns a root job in the form for the store.
    pub fn record(&self, id: RootId) -> Option<(&[u8], &[u8], u64, i64)> {
        let root = self.roots.get(id.index())?;
        Some((&root.tube, &root.signature, root.newest, root.changed))
    }

    /// Returns every root job, the one with the oldest change first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8], u64, i64)> {
        self.by_change.iter().filter_map(|(_, id)| self.record(*id))
    }

    /// Returns the root jobs from a position of the table on, with their positions, in no order.
    pub fn iter_from(&self, place: usize) -> impl Iterator<Item = (usize, RootId)> {
        let places = (place..self.roots.capacity()).filter(|place| self.roots.contains(*place));
        places.map(|place| (place, RootId::from_index(place)))
    }

    /// Returns the time at which the root job with the oldest change is forgotten.
    pub fn first_end(&self) -> Option<Time> {
        let (changed, _) = self.by_change.first()?;
        let end = changed.saturating_add_unsigned(KEPT.as_micros());
        Some(Time::from_micros(u64::try_from(end).unwrap_or(0)))
    }

    /// Removes and returns the root job with the oldest change.
    pub fn forget_oldest(&mut self) -> Option<Root> {
        let (_, id) = *self.by_change.first()?;
        Some(self.remove(id))
    }

    fn remove(&mut self, id: RootId) -> Root {
        let root = self.roots.remove(id.index());
        self.by_change.remove(&(root.changed, id));
        self.keys -= usize::from(is_signature_of_key(&root.signature));
        self.bytes -= Roots::bytes_of(&root.tube, &root.signature);
        self.names.remove(hash_of(&self.names.hashing(), &root.tube, &root.signature), id);
        root
    }

    pub fn check(&self) {
        assert_eq!(self.roots.len(), self.names.len(), "each root has a name");
        let changes = self.roots.iter().map(|(place, root)| (root.changed, RootId::from_index(place)));
        assert_eq!(self.by_change, changes.collect(), "each root is in the order of changes");
        let keys = self.roots.iter().filter(|(_, root)| is_signature_of_key(&root.signature)).count();
        assert_eq!(self.keys, keys, "keys are counted");
    }
}

impl State {
    /// Returns the newest timestamp of a root job, and the time since its last change.
    pub fn newest_of_root(&self, tube: &[u8], signature: &[u8], now: Time) -> Option<(u64, Span)> {
        let id = self.roots.find(tube, signature).filter(|_| !is_signature_of_key(signature))?;
        let Root { newest, changed, .. } = &self.roots.roots[id.index()];
        let since = micros(now).saturating_sub(*changed);
        Some((*newest, Span::from_micros(u64::try_from(since).unwrap_or(0))))
    }
}

fn hash_of(hashing: &Hashing, tube: &[u8], signature: &[u8]) -> Hash {
    Hash(hashing.hash(tube).0 ^ hashing.hash(signature).0.rotate_left(1))
}
