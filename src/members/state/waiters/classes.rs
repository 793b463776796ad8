//! Index of waiters by request. A class is the waiters of one pool or group with the same filter, for one member or for
//! several. It is found by one of the attributes of its filter, so a member finds the classes that it fits by its own
//! attributes.

use super::{Place, Rank, Turn, Waiter};
use crate::state::{PairId, Pairs, WaiterId};
use poolcounter_core::{Id as _, Metered as _, SideTable};
use poolcounter_protocol::members::pool_settings::Filter;
use poolcounter_protocol::members::request::Attributes;
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A class: its place, the attribute by which it is found (or the name of the only member that fits), whether its waiters
/// want several members, and what these must have.
type Class = (Place, PairId, bool, Option<Arc<Filter>>);

/// All classes, each with its waiters.
#[derive(Default)]
pub(in crate::state) struct Classes {
    classes: BTreeMap<Class, BTreeSet<Turn>>,
    /// First waiter of each class of a place.
    firsts: SideTable<Place, BTreeSet<Turn>>,
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
        let before = order.first().copied();
        order.insert(turn);
        let after = order.first().copied();
        self.set_first(waiter.place, before, after);
        pair
    }

    /// Removes a waiter from its class, and with the last waiter the class.
    pub fn remove(&mut self, pair: PairId, turn: Turn, waiter: &Waiter) {
        let class = class_of(waiter, pair);
        let order = self.classes.get_mut(&class).expect("a waiter is in its class");
        let before = order.first().copied();
        order.remove(&turn);
        let after = order.first().copied();
        self.set_first(waiter.place, before, after);
        if after.is_none() {
            self.classes.remove(&class);
            *self.pairs.get_mut(pair) -= 1;
            if *self.pairs.get(pair) == 0 {
                self.pairs.remove(pair);
            }
        }
    }

    fn set_first(&mut self, place: Place, before: Option<Turn>, after: Option<Turn>) {
        if before != after {
            let firsts = self.firsts.get_mut(place);
            before.into_iter().for_each(|turn| _ = firsts.remove(&turn));
            firsts.extend(after);
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

    /// Returns the first waiter from a rank on, of the first waiters of all classes of this place.
    pub fn first_from(&self, place: Place, from: Rank) -> Option<Turn> {
        self.firsts.get(place).range((from, WaiterId::from_index(0))..).next().copied()
    }

    /// Returns the first waiter of each class.
    pub fn firsts(&self) -> impl Iterator<Item = Turn> {
        self.firsts.iter().flat_map(|(_, firsts)| firsts).copied()
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
            let first = order.first().expect("a class has waiters");
            assert!(self.firsts.get(class.0).contains(first), "the first waiter of a class is found");
            *under.entry(class.1).or_insert(0) += 1;
            classed += order.len();
        }
        let number = (waiters.len(), self.classes.len());
        assert_eq!((classed, self.firsts().count()), number, "each waiter is in one class, and each class has a first");
        assert!(self.pairs.iter().map(|(pair, classes)| (pair, *classes)).eq(under), "the classes of an attribute");
    }
}
