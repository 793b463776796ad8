//! Index of waiters by request. A class is the waiters of one pool or group with the same filter, for one member or for
//! several. It is found by one of the attributes of its filter, so a member finds the classes that it fits by its own
//! attributes.

use super::{Place, Turn, Waiter};
use crate::state::{PairId, Pairs};
use poolcounter_core::{Id as _, Metered as _};
use poolcounter_protocol::members::pool_settings::Filter;
use poolcounter_protocol::members::request::Attributes;
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// A class: its place, the attribute by which it is found (or the name of the only member that fits), whether its waiters
/// want several members, and what these must have.
pub(in crate::state) type Class = (Place, PairId, bool, Option<Arc<Filter>>);

/// All classes, each with its waiters.
#[derive(Default)]
pub(in crate::state) struct Classes {
    classes: BTreeMap<Class, BTreeSet<Turn>>,
    /// Number of classes by attribute.
    pairs: Pairs<u32>,
}

/// Option of a take that names a member. No attribute has this name.
const MEMBER: &[u8] = b"member";

fn class_of(waiter: &Waiter, pair: PairId) -> Class {
    (waiter.place, pair, waiter.is_several(), waiter.filter.clone())
}

impl Classes {
    /// Adds a waiter to its class, and returns the attribute by which that is found.
    pub fn insert(&mut self, turn: Turn, waiter: &Waiter) -> PairId {
        let pair = self.pair_for(waiter);
        let order = self.classes.entry(class_of(waiter, pair)).or_default();
        *self.pairs.get_mut(pair) += u32::from(order.is_empty());
        order.insert(turn);
        pair
    }

    /// Removes a waiter from its class, and with the last waiter the class.
    pub fn remove(&mut self, pair: PairId, turn: Turn, waiter: &Waiter) {
        let class = class_of(waiter, pair);
        let order = self.classes.get_mut(&class).expect("a waiter is in its class");
        order.remove(&turn);
        if order.is_empty() {
            self.classes.remove(&class);
            *self.pairs.get_mut(pair) -= 1;
            if *self.pairs.get(pair) == 0 {
                self.pairs.remove(pair);
            }
        }
    }

    /// Returns the attribute by which the class of a waiter is found: for a new class that with the fewest classes.
    fn pair_for(&mut self, waiter: &Waiter) -> PairId {
        let (owner, filter, pairs) = (waiter.place.index() as u64, waiter.filter.as_deref(), &self.pairs);
        let named = filter.and_then(|filter| filter.member.as_deref()).map(|member| (MEMBER, member));
        let attributes =
            || filter.into_iter().flat_map(|filter| &filter.attributes).map(|(name, value)| (&**name, &**value));
        let find = |(name, value): (&[u8], &[u8])| pairs.find(owner, name, value);
        let mut found = attributes().filter_map(find);
        if let Some(known) = found.find(|pair| self.classes.contains_key(&class_of(waiter, *pair))) {
            return known;
        }
        let rarest = || attributes().min_by_key(|pair| find(*pair).map(|id| *pairs.get(id)));
        let (name, value) = named.or_else(rarest).unwrap_or_default();
        self.pairs.find_or_add(owner, name, value)
    }

    /// Returns the first waiter of each class that is found by the name or an attribute of a member, or by none: of all
    /// classes that it fits, and perhaps more.
    pub fn under<'a>(
        &'a self,
        place: Place,
        member: &'a [u8],
        attributes: Option<&'a Attributes>,
    ) -> impl Iterator<Item = Turn> + 'a {
        let own = [(&b""[..], &b""[..]), (MEMBER, member)].into_iter();
        let all = own.chain(attributes.into_iter().flatten().map(|(name, value)| (&**name, &**value)));
        let pairs = all.filter_map(move |(name, value)| self.pairs.find(place.index() as u64, name, value));
        pairs.flat_map(move |pair| {
            let behind = self.classes.range((place, pair, false, None)..).metered();
            behind
                .take_while(move |((of, by, ..), _)| (*of, *by) == (place, pair))
                .filter_map(|(_, order)| order.first().copied())
        })
    }

    /// Returns the class of a place behind another one, and its first waiter.
    pub fn after(&self, place: Place, after: Option<&Class>) -> Option<(&Class, Turn)> {
        let begin = (place, PairId::from_index(0), false, None);
        let from = match after {
            Some((other, ..)) if *other > place => return None,
            Some(after) if after.0 == place => Bound::Excluded(after),
            _ => Bound::Included(&begin),
        };
        let (class, order) = self.classes.range((from, Bound::Unbounded)).metered().next()?;
        Some((class, *order.first()?)).filter(|(class, _)| class.0 == place)
    }

    /// Returns the first waiter of each class.
    pub fn firsts(&self) -> impl Iterator<Item = Turn> {
        self.classes.values().filter_map(|order| order.first().copied())
    }

    /// Compares the classes with the waiters.
    pub fn check(&self, waiters: &Slab<Waiter>) {
        let (mut classed, mut under) = (0, BTreeMap::new());
        for (class, order) in &self.classes {
            let is_right = |(rank, id): &Turn| {
                let waiter = &waiters[id.index()];
                waiter.rank == *rank && waiter.class.is_some_and(|pair| class_of(waiter, pair) == *class)
            };
            assert!(order.iter().all(is_right), "a class has its own waiters");
            *under.entry(class.1).or_insert(0) += 1;
            classed += order.len();
        }
        assert_eq!(classed, waiters.len(), "each waiter is in one class");
        assert!(self.pairs.iter().map(|(pair, classes)| (pair, *classes)).eq(under), "the classes of an attribute");
    }
}
