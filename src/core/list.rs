//! Queues of slab keys. The links are in a table beside the slab, so that an entry can leave the middle of its queue in
//! constant time. A table of links serves any number of queues, but an entry is in one of them at a time.

use crate::id::Id;
use crate::meter::Metered as _;
use std::marker::PhantomData;

/// Mark of a missing neighbour: the end of the queue.
const END: u32 = u32::MAX;
/// Mark of an entry in no queue. Slab keys stay far below both marks, because memory ends first.
const UNLINKED: u32 = u32::MAX - 1;

#[derive(Clone, Copy)]
struct Link {
    prev: u32,
    next: u32,
}

/// Links of every entry of a slab, by key.
#[derive(Default)]
pub struct Links {
    links: Vec<Link>,
}

/// Queue of ids, first in first out, whose links are kept in a [`Links`].
pub struct List<K> {
    head: u32,
    tail: u32,
    len: u32,
    kind: PhantomData<K>,
}

/// Queue of ids with links of its own. An id is in it at most once.
pub struct Queue<K> {
    list: List<K>,
    links: Links,
}

impl Links {
    /// Returns true if `key` is in some queue of these links.
    pub fn is_linked<K: Id>(&self, key: K) -> bool {
        self.links.get(key.index()).is_some_and(|link| link.prev != UNLINKED)
    }

    /// Makes room for the links of `more` keys.
    pub fn reserve(&mut self, more: usize) {
        self.links.reserve(more);
    }

    /// Returns the id before `key` in its queue. It must be in one.
    pub fn before<K: Id>(&self, key: K) -> Option<K> {
        id_of(self.links[key.index()].prev)
    }

    /// Returns the id after `key` in its queue. It must be in one.
    pub fn after<K: Id>(&self, key: K) -> Option<K> {
        id_of(self.links[key.index()].next)
    }

    fn at(&mut self, key: u32) -> &mut Link {
        &mut self.links[key as usize]
    }

    /// Sets the link of an entry that is in no queue.
    #[inline]
    fn link(&mut self, key: u32, link: Link) {
        match self.links.get_mut(key as usize) {
            Some(own) => {
                debug_assert!(own.prev == UNLINKED, "an entry is in one queue at a time");
                *own = link;
            }
            None => self.grow(key, link),
        }
    }

    #[cold]
    fn grow(&mut self, key: u32, link: Link) {
        self.links.resize(key as usize, Link { prev: UNLINKED, next: UNLINKED });
        self.links.push(link);
    }
}

impl<K> Default for List<K> {
    fn default() -> Self {
        List { head: END, tail: END, len: 0, kind: PhantomData }
    }
}

impl<K: Id> List<K> {
    /// Returns the number of ids in the queue.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns true if the queue has no ids.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the first id.
    pub fn front(&self) -> Option<K> {
        id_of(self.head)
    }

    /// Returns the last id.
    pub fn back(&self) -> Option<K> {
        id_of(self.tail)
    }

    /// Appends `key`, which must be in no queue of `links`.
    #[inline]
    pub fn push_back(&mut self, links: &mut Links, key: K) {
        let key = number_of(key);
        links.link(key, Link { prev: self.tail, next: END });
        match self.tail {
            END => self.head = key,
            tail => links.at(tail).next = key,
        }
        self.tail = key;
        self.len += 1;
    }

    /// Inserts `key`, which must be in no queue of `links`, before `next`, which must be in this queue.
    pub fn insert_before(&mut self, links: &mut Links, next: K, key: K) {
        let (next, key) = (number_of(next), number_of(key));
        let prev = links.at(next).prev;
        links.link(key, Link { prev, next });
        links.at(next).prev = key;
        match prev {
            END => self.head = key,
            prev => links.at(prev).next = key,
        }
        self.len += 1;
    }

    /// Removes and returns the first id.
    #[inline]
    pub fn pop_front(&mut self, links: &mut Links) -> Option<K> {
        let key = self.front()?;
        self.remove(links, key);
        Some(key)
    }

    /// Removes `key`, which must be in this queue.
    #[inline]
    pub fn remove(&mut self, links: &mut Links, key: K) {
        let key = number_of(key);
        let Link { prev, next } = std::mem::replace(links.at(key), Link { prev: UNLINKED, next: UNLINKED });
        debug_assert!(prev != UNLINKED, "only an entry of the queue can be removed");
        // Most queues have one entry.
        if self.len == 1 {
            (self.head, self.tail, self.len) = (END, END, 0);
            return;
        }
        match prev {
            END => self.head = next,
            prev => links.at(prev).next = next,
        }
        match next {
            END => self.tail = prev,
            next => links.at(next).prev = prev,
        }
        self.len -= 1;
    }

    /// Returns the ids, from the first to the last.
    pub fn iter<'a>(&self, links: &'a Links) -> impl Iterator<Item = K> + use<'a, K> {
        walk(self.head, |key| links.links[key as usize].next)
    }

    /// Returns the ids, from the last to the first.
    pub fn iter_back<'a>(&self, links: &'a Links) -> impl Iterator<Item = K> + use<'a, K> {
        walk(self.tail, |key| links.links[key as usize].prev)
    }
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Queue { list: List::default(), links: Links::default() }
    }
}

impl<K: Id> Queue<K> {
    /// Returns the first entry.
    pub fn front(&self) -> Option<K> {
        self.list.front()
    }

    /// Returns the number of ids in the queue.
    pub fn len(&self) -> u32 {
        self.list.len()
    }

    /// Returns true if the queue has no ids.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns true if `key` is in the queue.
    #[inline]
    pub fn contains(&self, key: K) -> bool {
        self.links.is_linked(key)
    }

    /// Appends `key`, unless it is in the queue.
    #[inline]
    pub fn push_back(&mut self, key: K) {
        if !self.links.is_linked(key) {
            self.list.push_back(&mut self.links, key);
        }
    }

    /// Inserts `key` at the front, unless it is in the queue.
    pub fn push_front(&mut self, key: K) {
        match self.list.front() {
            _ if self.links.is_linked(key) => {}
            Some(first) => self.list.insert_before(&mut self.links, first, key),
            None => self.list.push_back(&mut self.links, key),
        }
    }

    /// Removes and returns the first id.
    #[inline]
    pub fn pop_front(&mut self) -> Option<K> {
        self.list.pop_front(&mut self.links)
    }

    /// Removes `key`, if it is in the queue.
    #[inline]
    pub fn remove(&mut self, key: K) {
        if self.links.is_linked(key) {
            self.list.remove(&mut self.links, key);
        }
    }

    /// Returns the ids, from the first to the last.
    pub fn iter(&self) -> impl Iterator<Item = K> {
        self.list.iter(&self.links)
    }
}

fn walk<K: Id>(start: u32, step: impl Fn(u32) -> u32) -> impl Iterator<Item = K> {
    std::iter::successors(id_of(start), move |key: &K| id_of(step(number_of(*key)))).metered()
}

fn id_of<K: Id>(number: u32) -> Option<K> {
    (number != END).then(|| K::from_index(number as usize))
}

fn number_of<K: Id>(key: K) -> u32 {
    // Lossless: every Id is made from a u32.
    key.index() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ConnId;
    use std::collections::VecDeque;

    fn id(n: usize) -> ConnId {
        ConnId::from_index(n)
    }

    /// Two queues over one table of links behave like two plain deques.
    #[test]
    fn behaves_like_a_deque() {
        let mut links = Links::default();
        let mut lists = [List::default(), List::default()];
        let mut model = [VecDeque::new(), VecDeque::new()];
        let mut seed = 1_u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let which = (seed >> 40) as usize % 2;
            let key = id((seed >> 33) as usize % 50);
            match (seed >> 60, model.iter().position(|m| m.contains(&key))) {
                (0..=9, None) => {
                    lists[which].push_back(&mut links, key);
                    model[which].push_back(key);
                }
                (10, None) if !model[which].is_empty() => {
                    let place = (seed >> 20) as usize % model[which].len();
                    lists[which].insert_before(&mut links, model[which][place], key);
                    model[which].insert(place, key);
                }
                (10..=12, _) => assert_eq!(lists[which].pop_front(&mut links), model[which].pop_front()),
                (_, Some(holder)) => {
                    lists[holder].remove(&mut links, key);
                    model[holder].retain(|k| *k != key);
                }
                (_, None) => assert!(!links.is_linked(key)),
            }
            for (list, model) in lists.iter().zip(&model) {
                assert_eq!(list.len() as usize, model.len());
                assert!(list.iter(&links).eq(model.iter().copied()));
                assert!(list.iter_back(&links).eq(model.iter().rev().copied()));
                assert_eq!((list.front(), list.back()), (model.front().copied(), model.back().copied()));
                assert!(model.iter().all(|key| links.is_linked(*key)));
                for (key, next) in model.iter().zip(model.iter().skip(1)) {
                    assert_eq!((links.after(*key), links.before(*next)), (Some(*next), Some(*key)));
                }
            }
        }
    }
}
