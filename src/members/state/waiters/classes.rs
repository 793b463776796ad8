//! Index of waiters by request. A class is the waiters of one pool or group with the same filter, for one member or for
//! several. It is indexed by one of the attributes of its filter, so a member finds the classes that it fits by its own
//! attributes.

use super::{ClassId, Place, Turn, Waiter};
use crate::state::{PairId, Pairs};
use poolcounter_core::id::Id as _;
use poolcounter_core::list::{Links, List};
use poolcounter_core::meter::Metered as _;
use poolcounter_core::names::{Hash, Names};
use poolcounter_protocol::members::pool_settings::Filter;
use poolcounter_protocol::members::request::Attributes;
use slab::Slab;
use std::collections::BTreeSet;
use std::ops::Bound;

/// A class in the order in which classes are gone through.
pub(in crate::state) type Cursor = (Place, ClassId);

struct Class {
    place: Place,
    hash: Hash,
    /// Attribute by which it is indexed, or name of the only member that fits.
    pair: PairId,
    order: BTreeSet<Turn>,
}

/// All classes.
#[derive(Default)]
pub(super) struct Classes {
    classes: Slab<Class>,
    by_request: Names<ClassId>,
    by_place: BTreeSet<Cursor>,
    pairs: Pairs<List<ClassId>>,
    links: Links,
}

/// Option of a take that names a member. No attribute has this name.
const MEMBER: &[u8] = b"member";

impl Place {
    fn number(self) -> u64 {
        match self {
            Place::Pool(pool) => pool.index() as u64,
            Place::Group(group) => 1 << 32 | group.index() as u64,
        }
    }
}

impl Classes {
    /// Adds a waiter to its class, and returns the class.
    pub fn insert(&mut self, turn: Turn, waiters: &Slab<Waiter>) -> ClassId {
        let waiter = &waiters[turn.1.index()];
        let (place, hash) = (waiter.place, self.hash(waiter));
        let about = |waiter: &Waiter| (waiter.place, waiter.is_several());
        let is_same = |class: ClassId| {
            let first = &waiters[self.first(class).1.index()];
            about(first) == about(waiter) && first.filter == waiter.filter
        };
        let class = self.by_request.find(hash, is_same).unwrap_or_else(|| {
            let pair = self.pair_for(place, waiter.filter.as_deref());
            let class = Class { place, hash, pair, order: BTreeSet::new() };
            let id = ClassId::from_index(self.classes.insert(class));
            let classes = &self.classes;
            self.by_request.insert(hash, id, |id| classes[id.index()].hash);
            self.by_place.insert((place, id));
            self.pairs.get_mut(pair).push_back(&mut self.links, id);
            id
        });
        self.classes[class.index()].order.insert(turn);
        class
    }

    /// Removes a waiter from its class, and with the last waiter the class.
    pub fn remove(&mut self, id: ClassId, turn: Turn) {
        let class = &mut self.classes[id.index()];
        class.order.remove(&turn);
        if class.order.is_empty() {
            let Class { place, hash, pair, .. } = self.classes.remove(id.index());
            self.by_request.remove(hash, id);
            self.by_place.remove(&(place, id));
            let list = self.pairs.get_mut(pair);
            list.remove(&mut self.links, id);
            if list.is_empty() {
                self.pairs.remove(pair);
            }
        }
    }

    /// Returns the attribute with the fewest classes.
    fn pair_for(&mut self, place: Place, filter: Option<&Filter>) -> PairId {
        let (owner, pairs) = (place.number(), &self.pairs);
        let classes = |(name, value): &(&[u8], &[u8])| pairs.find(owner, name, value).map(|id| pairs.get(id).len());
        let named = filter.and_then(|filter| filter.member.as_deref());
        let attributes = filter.into_iter().flat_map(|filter| &filter.attributes);
        let rarest = attributes.map(|(name, value)| (&**name, &**value)).min_by_key(classes);
        let (name, value) = named.map(|member| (MEMBER, member)).or(rarest).unwrap_or_default();
        self.pairs.find_or_add(owner, name, value)
    }

    fn hash(&self, waiter: &Waiter) -> Hash {
        let hash = |bytes: &[u8]| self.by_request.hash(bytes).0;
        let mut all = waiter.place.number() << 1 ^ u64::from(waiter.is_several());
        let named = waiter.filter.as_ref().and_then(|filter| filter.member.as_deref());
        let attributes = waiter.filter.iter().flat_map(|filter| &filter.attributes);
        let words = attributes.flat_map(|(name, value)| [&**name, &**value]).chain(named);
        words.for_each(|word| all = all.rotate_left(5).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash(word));
        Hash(all.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns the first waiter of a class.
    pub fn first(&self, id: ClassId) -> Turn {
        *self.classes[id.index()].order.first().expect("a class has waiters")
    }

    /// Returns the classes indexed by the name or an attribute of a member, or by none: all classes that it fits, and
    /// perhaps more.
    pub fn under<'a>(
        &'a self,
        place: Place,
        member: &'a [u8],
        attributes: Option<&'a Attributes>,
    ) -> impl Iterator<Item = ClassId> + 'a {
        let own = [(&b""[..], &b""[..]), (MEMBER, member)].into_iter();
        let all = own.chain(attributes.into_iter().flatten().map(|(name, value)| (&**name, &**value)));
        let pairs = all.filter_map(move |(name, value)| self.pairs.find(place.number(), name, value));
        pairs.flat_map(|pair| self.pairs.get(pair).iter(&self.links))
    }

    /// Returns the class of a place behind another one.
    pub fn after(&self, place: Place, after: Option<Cursor>) -> Option<Cursor> {
        let from = match after {
            Some((other, _)) if other > place => return None,
            Some(after) if after.0 == place => Bound::Excluded(after),
            _ => Bound::Included((place, ClassId::from_index(0))),
        };
        self.by_place.range((from, Bound::Unbounded)).metered().next().copied().filter(|(of, _)| *of == place)
    }

    /// Compares the indexes with the classes, and these with the waiters.
    pub fn check(&self, waiters: &Slab<Waiter>) {
        let mut classed = 0;
        for (index, class) in &self.classes {
            let id = ClassId::from_index(index);
            let first = &waiters[self.first(id).1.index()];
            let is_right = |(rank, waiter): &Turn| {
                let waiter = &waiters[waiter.index()];
                let is_alike = waiter.is_several() == first.is_several() && waiter.filter == first.filter;
                (waiter.class, waiter.rank, waiter.place) == (Some(id), *rank, class.place) && is_alike
            };
            assert!(class.order.iter().all(is_right), "a class has its own waiters");
            let is_found = self.pairs.get(class.pair).iter(&self.links).any(|other| other == id);
            assert!(is_found && self.by_place.contains(&(class.place, id)), "a class is found");
            classed += class.order.len();
        }
        assert_eq!(classed, waiters.len(), "each waiter is in one class");
        let under: usize = self.pairs.iter().map(|(_, list)| list.len() as usize).sum();
        let (all, requests) = (self.classes.len(), self.by_request.len());
        assert_eq!((under, self.by_place.len(), requests), (all, all, all), "each class is in each index");
    }
}
