//! Index of attributes: a name with its value, once for each owner that knows it.

use super::PairId;
use poolcounter_core::names::Hash;
use poolcounter_core::{Id as _, Metered as _, Names};
use slab::Slab;

/// A name with its value, and the owner's data for it.
struct Pair<T> {
    owner: u64,
    /// Name, `=`, which no name contains, and value.
    text: Box<[u8]>,
    hash: Hash,
    kept: T,
}

/// All pairs of all owners.
pub(super) struct Pairs<T> {
    pairs: Slab<Pair<T>>,
    names: Names<PairId>,
}

impl<T> Default for Pairs<T> {
    fn default() -> Self {
        Pairs { pairs: Slab::new(), names: Names::default() }
    }
}

impl<T: Default> Pairs<T> {
    pub fn iter(&self) -> impl Iterator<Item = (PairId, &T)> {
        self.pairs.iter().metered().map(|(index, pair)| (PairId::from_index(index), &pair.kept))
    }

    #[inline]
    pub fn get(&self, id: PairId) -> &T {
        &self.pairs[id.index()].kept
    }

    #[inline]
    pub fn get_mut(&mut self, id: PairId) -> &mut T {
        &mut self.pairs[id.index()].kept
    }

    fn hash(&self, owner: u64, name: &[u8], value: &[u8]) -> Hash {
        let [name, value] = [name, value].map(|part| self.names.hash(part).0);
        Hash(name.rotate_left(32).wrapping_add(value) ^ owner.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn find(&self, owner: u64, name: &[u8], value: &[u8]) -> Option<PairId> {
        if self.pairs.is_empty() {
            return None;
        }
        self.names.find(self.hash(owner, name, value), |id| {
            let pair = &self.pairs[id.index()];
            let rest = pair.text.strip_prefix(name).and_then(|rest| rest.strip_prefix(b"="));
            pair.owner == owner && rest == Some(value)
        })
    }

    /// Returns a pair, and adds it if it is new.
    pub fn find_or_add(&mut self, owner: u64, name: &[u8], value: &[u8]) -> PairId {
        self.find(owner, name, value).unwrap_or_else(|| {
            let hash = self.hash(owner, name, value);
            let text = [name, b"=", value].concat().into();
            let id = PairId::from_index(self.pairs.insert(Pair { owner, text, hash, kept: T::default() }));
            let pairs = &self.pairs;
            self.names.insert(hash, id, |id| pairs[id.index()].hash);
            id
        })
    }

    pub fn remove(&mut self, id: PairId) {
        let pair = self.pairs.remove(id.index());
        self.names.remove(pair.hash, id);
    }
}
