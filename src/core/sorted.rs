//! Ordered sets of small values, dense in memory: a tree whose leaves have room for 64 values. Values that come in
//! order fill them, where the nodes of a balanced tree with room for eleven stay half empty.
//!
//! An empty set takes no memory of its own, and a set that became empty keeps room for a few values, so that a queue
//! with one entry at a time allocates nothing.

use std::cmp::Ordering;
use std::slice;

/// Most values of a leaf, and most children of a branch.
const MOST: usize = 64;
/// Neighbours that have no more than this together become one.
const MERGED: usize = MOST / 2;
/// Room that a vector keeps in any case.
const KEPT: usize = 4;

/// An ordered set.
///
/// Invariant: a branch has for each child the first value of that child; no child is empty.
#[derive(Clone, Debug)]
pub struct Sorted<T> {
    root: Node<T>,
    len: usize,
}

#[derive(Clone, Debug)]
enum Node<T> {
    Leaf(Vec<T>),
    Branch(Vec<(T, Node<T>)>),
}

/// Values of a set in order.
#[derive(Clone, Debug)]
pub struct Iter<'a, T> {
    leaf: slice::Iter<'a, T>,
    /// Children that follow, those next to the leaf last.
    branches: Vec<slice::Iter<'a, (T, Node<T>)>>,
}

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Sorted { root: Node::Leaf(Vec::new()), len: 0 }
    }
}

impl<T: Copy> Sorted<T> {
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the lowest value.
    #[inline]
    pub fn first(&self) -> Option<&T> {
        match &self.root {
            Node::Leaf(values) => values.first(),
            Node::Branch(children) => children.first().map(|(first, _)| first),
        }
    }

    /// Returns the highest value.
    pub fn last(&self) -> Option<&T> {
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(values) => return values.last(),
                Node::Branch(children) => node = &children.last()?.1,
            }
        }
    }

    /// Adds a value. `place` returns the order of a value of the set relative to it. Returns false, and changes nothing,
    /// if an equal value is there.
    #[inline]
    pub fn insert_by(&mut self, value: T, place: impl Fn(&T) -> Ordering) -> bool {
        if let Node::Leaf(values) = &mut self.root
            && values.len() < MOST
        {
            let Err(at) = search(values, &place) else { return false };
            if values.capacity() == 0 {
                // Very many sets never have a second value.
                values.reserve_exact(1);
            }
            values.insert(at, value);
            self.len += 1;
            return true;
        }
        self.insert_below(value, &place)
    }

    fn insert_below(&mut self, value: T, place: &impl Fn(&T) -> Ordering) -> bool {
        let Ok(split) = self.root.insert(value, true, place) else { return false };
        if let Some(right) = split {
            let left = std::mem::replace(&mut self.root, Node::Leaf(Vec::new()));
            self.root = Node::Branch([left, right].into_iter().filter_map(Node::with_first).collect());
        }
        self.len += 1;
        true
    }

    /// Removes the value for which `place` returns [`Ordering::Equal`], and returns it. `place` returns the order of a
    /// value of the set relative to the wanted value.
    #[inline]
    pub fn remove_by(&mut self, place: impl Fn(&T) -> Ordering) -> Option<T> {
        let removed = match &mut self.root {
            Node::Leaf(values) => {
                let removed = values.remove(search(values, &place).ok()?);
                if values.capacity() > KEPT {
                    shrink(values);
                }
                removed
            }
            Node::Branch(_) => self.remove_below(&place)?,
        };
        self.len -= 1;
        Some(removed)
    }

    fn remove_below(&mut self, place: &impl Fn(&T) -> Ordering) -> Option<T> {
        let removed = self.root.remove(place)?;
        while let Node::Branch(children) = &mut self.root
            && children.len() < 2
        {
            self.root = children.pop().map_or(Node::Leaf(Vec::new()), |(_, child)| child);
        }
        Some(removed)
    }

    /// Returns the value for which `place` returns [`Ordering::Equal`].
    #[inline]
    pub fn find_by(&self, place: impl Fn(&T) -> Ordering) -> Option<&T> {
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(values) => return search(values, &place).ok().map(|at| &values[at]),
                Node::Branch(children) => node = &children[child_of(children, &place)].1,
            }
        }
    }

    /// Returns the values in order, from the first on for which `place` returns no [`Ordering::Less`].
    pub fn range_by(&self, place: impl Fn(&T) -> Ordering) -> Iter<'_, T> {
        let mut branches = Vec::new();
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(values) => {
                    let (Ok(at) | Err(at)) = search(values, &place);
                    return Iter { leaf: values[at..].iter(), branches };
                }
                Node::Branch(children) => {
                    let at = child_of(children, &place);
                    branches.push(children[at + 1..].iter());
                    node = &children[at].1;
                }
            }
        }
    }

    /// Returns the values in order.
    pub fn iter(&self) -> Iter<'_, T> {
        match &self.root {
            Node::Leaf(values) => Iter { leaf: values.iter(), branches: Vec::new() },
            Node::Branch(children) => Iter { leaf: [].iter(), branches: vec![children.iter()] },
        }
    }

    /// Returns the bytes of all nodes.
    pub fn bytes(&self) -> usize {
        self.root.bytes()
    }
}

impl<T: Copy + Ord> Sorted<T> {
    /// Adds a value. Returns false, and changes nothing, if it is there.
    #[inline]
    pub fn insert(&mut self, value: T) -> bool {
        self.insert_by(value, |other| other.cmp(&value))
    }

    /// Removes a value, and returns whether it was there.
    #[inline]
    pub fn remove(&mut self, value: &T) -> bool {
        self.remove_by(|other| other.cmp(value)).is_some()
    }

    /// Returns whether a value is there.
    pub fn contains(&self, value: &T) -> bool {
        self.find_by(|other| other.cmp(value)).is_some()
    }

    /// Compares the nodes with each other.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self) {
        assert_eq!(self.len, self.iter().count(), "the values are counted");
        assert!(self.iter().is_sorted_by(|one, other| one < other), "the values are in order");
        self.root.check();
    }
}

impl<T: Copy> Node<T> {
    fn first(&self) -> Option<T> {
        match self {
            Node::Leaf(values) => values.first().copied(),
            Node::Branch(children) => children.first().map(|(first, _)| *first),
        }
    }

    fn with_first(self) -> Option<(T, Node<T>)> {
        Some((self.first()?, self))
    }

    fn len(&self) -> usize {
        match self {
            Node::Leaf(values) => values.len(),
            Node::Branch(children) => children.len(),
        }
    }

    /// Adds a value. Returns the right half of the node if it was full, and an error if the value is there. `is_last`
    /// is true if the node has the last values of the set.
    fn insert(&mut self, value: T, is_last: bool, place: &impl Fn(&T) -> Ordering) -> Result<Option<Node<T>>, ()> {
        match self {
            Node::Leaf(values) => {
                let Err(at) = search(values, place) else { return Err(()) };
                Ok(add(values, at, value, is_last).map(Node::Leaf))
            }
            Node::Branch(children) => {
                let at = child_of(children, place);
                let is_last_child = is_last && at + 1 == children.len();
                let (first, child) = &mut children[at];
                let split = child.insert(value, is_last_child, place)?;
                if place(first) == Ordering::Greater {
                    *first = value;
                }
                let right = split.and_then(Node::with_first);
                Ok(right.and_then(|right| add(children, at + 1, right, is_last)).map(Node::Branch))
            }
        }
    }

    fn remove(&mut self, place: &impl Fn(&T) -> Ordering) -> Option<T> {
        match self {
            Node::Leaf(values) => {
                let removed = values.remove(search(values, place).ok()?);
                shrink(values);
                Some(removed)
            }
            Node::Branch(children) => {
                let at = child_of(children, place);
                let removed = children[at].1.remove(place)?;
                match children[at].1.first() {
                    Some(first) => children[at].0 = first,
                    None => drop(children.remove(at)),
                }
                if children.get(at).is_some_and(|(_, child)| child.len() <= MERGED) {
                    merge(children, at);
                    merge(children, at.saturating_sub(1));
                }
                shrink(children);
                Some(removed)
            }
        }
    }

    /// Adds the entries of the node after this one, which is as high.
    fn append(&mut self, right: Node<T>) {
        match (self, right) {
            (Node::Leaf(values), Node::Leaf(mut others)) => values.append(&mut others),
            (Node::Branch(children), Node::Branch(mut others)) => children.append(&mut others),
            _ => unreachable!("neighbours are of the same height"),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Node::Leaf(values) => values.capacity() * size_of::<T>(),
            Node::Branch(children) => {
                let own = children.capacity() * size_of::<(T, Node<T>)>();
                own + children.iter().map(|(_, child)| child.bytes()).sum::<usize>()
            }
        }
    }

    /// Returns the height of the node.
    fn check(&self) -> usize
    where
        T: Ord,
    {
        assert!(self.len() <= MOST, "a node has too many entries");
        let Node::Branch(children) = self else { return 0 };
        let heights: Vec<usize> = children.iter().map(|(_, child)| child.check()).collect();
        assert!(heights.iter().all(|height| *height == heights[0]), "children are of the same height");
        assert!(children.iter().all(|(first, child)| child.first() == Some(*first)), "the first value of a child");
        let pairs = children.windows(2).map(|pair| pair[0].1.len() + pair[1].1.len());
        pairs.for_each(|both| assert!(both > MERGED, "two neighbours are nearly empty"));
        heights[0] + 1
    }
}

/// Returns the position of a value, or where it belongs. A value behind the last, or at the first, is found at once.
#[inline]
fn search<T>(values: &[T], place: &impl Fn(&T) -> Ordering) -> Result<usize, usize> {
    match values.last().map(place) {
        None | Some(Ordering::Less) => Err(values.len()),
        Some(_) if place(&values[0]) == Ordering::Equal => Ok(0),
        Some(_) => values.binary_search_by(place),
    }
}

/// Returns the position of the child in which a value is, or belongs.
#[inline]
fn child_of<T>(children: &[(T, Node<T>)], place: &impl Fn(&T) -> Ordering) -> usize {
    match children {
        [.., (first, _)] if place(first) != Ordering::Greater => children.len() - 1,
        [_, (second, _), ..] if place(second) == Ordering::Greater => 0,
        _ => children.partition_point(|(first, _)| place(first) != Ordering::Greater).saturating_sub(1),
    }
}

/// Adds an entry to the entries of a node. Returns the right half if the node was full; behind all entries of the set,
/// the new entry alone, so that nodes are full when entries come in order.
fn add<E>(entries: &mut Vec<E>, at: usize, entry: E, is_last: bool) -> Option<Vec<E>> {
    if entries.len() < MOST {
        entries.insert(at, entry);
        return None;
    }
    if at == MOST && is_last {
        return Some(vec![entry]);
    }
    let mut right = entries.split_off(MOST / 2);
    entries.shrink_to(MOST / 2);
    match at.checked_sub(MOST / 2 + 1) {
        None => entries.insert(at, entry),
        Some(_) => right.insert(at - MOST / 2, entry),
    }
    Some(right)
}

/// Makes one of two neighbours if they have few entries.
fn merge<T: Copy>(children: &mut Vec<(T, Node<T>)>, at: usize) {
    if let Some([(_, left), (_, right)]) = children.get(at..(at + 2))
        && left.len() + right.len() <= MERGED
    {
        let (_, right) = children.remove(at + 1);
        children[at].1.append(right);
    }
}

/// Gives memory back if less than half of it is used.
#[inline]
fn shrink<E>(entries: &mut Vec<E>) {
    if entries.capacity() > 2 * KEPT.max(entries.len()) || entries.is_empty() && entries.capacity() > KEPT {
        entries.shrink_to(entries.len() + entries.len() / 2);
    }
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        loop {
            if let Some(value) = self.leaf.next() {
                return Some(value);
            }
            match self.branches.last_mut()?.next() {
                Some((_, Node::Leaf(values))) => self.leaf = values.iter(),
                Some((_, Node::Branch(children))) => self.branches.push(children.iter()),
                None => drop(self.branches.pop()),
            }
        }
    }
}

impl<'a, T: Copy> IntoIterator for &'a Sorted<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::cell::Cell;
    use std::collections::BTreeSet;

    /// Bytes of each value; 8 are the value's own.
    fn bytes_each(set: &Sorted<u64>) -> f64 {
        set.bytes() as f64 / set.len() as f64
    }

    #[test]
    fn set_is_like_that_of_the_standard_library() {
        for seed in 0..60 {
            let mut random = Random::from_seed(seed);
            let (mut set, mut model) = (Sorted::default(), BTreeSet::new());
            let range = [40, 300, 5_000, 100_000][seed as usize % 4];
            for step in 0..12_000_u64 {
                // It grows and shrinks by turns, at random, at its ends or in order.
                let grows = random.below(100) < if step / 3_000 % 2 == 0 { 80 } else { 15 };
                let at = match (seed / 4 % 5, grows) {
                    (0, _) => random.below(range),
                    (1, true) | (2, true) => 1_000_000 + step,
                    (3, true) => 1_000_000 - step,
                    (1 | 3, false) => model.first().copied().unwrap_or(0),
                    (2, false) => model.last().copied().unwrap_or(0),
                    _ => model.range(random.below(range)..).next().copied().unwrap_or(random.below(range)),
                };
                let at = if grows && seed / 4 % 5 == 4 { random.below(range) } else { at };
                if grows {
                    assert_eq!(set.insert(at), model.insert(at));
                } else {
                    assert_eq!(set.remove(&at), model.remove(&at));
                }
                assert_eq!((set.first(), set.last(), set.len()), (model.first(), model.last(), model.len()));
                if step % 97 == 0 {
                    set.check();
                    assert!(set.iter().eq(model.iter()));
                    let from = at + random.below(3);
                    assert!(set.range_by(|other| other.cmp(&from)).eq(model.range(from..)));
                    assert_eq!(set.contains(&from), model.contains(&from));
                }
            }
            while let Some(first) = set.first().copied() {
                set.remove(&first);
            }
            assert!(set.is_empty() && set.bytes() <= KEPT * 8, "{} bytes are left", set.bytes());
        }
    }

    #[test]
    fn values_are_dense_however_they_come_and_go() {
        let mut set = Sorted::default();
        (0..100_000).for_each(|value| assert!(set.insert(value)));
        assert!(bytes_each(&set) < 9.0, "{} bytes each, in order", bytes_each(&set));
        (0..100_000).filter(|value| value % 50 > 0).for_each(|value| assert!(set.remove(&value)));
        set.check();
        assert!(bytes_each(&set) < 24.0, "{} bytes each of few that are left", bytes_each(&set));
        let mut random = Random::from_seed(1);
        (0..100_000).for_each(|_| assert!(set.insert(random.below(u64::MAX))));
        assert!(bytes_each(&set) < 18.0, "{} bytes each, at random", bytes_each(&set));
    }

    /// Names are compared in places that are far from each other.
    #[test]
    fn values_at_the_ends_need_few_comparisons() {
        let (mut set, compared) = (Sorted::default(), Cell::new(0));
        let to = |value: u64| {
            let compared = &compared;
            move |other: &u64| {
                compared.set(compared.get() + 1);
                other.cmp(&value)
            }
        };
        (0..100_000).for_each(|value| assert!(set.insert_by(value, to(value))));
        let added = compared.replace(0);
        (0..100_000).for_each(|value| assert_eq!(set.remove_by(to(value)), Some(value)));
        let removed = compared.get();
        assert!(added <= 500_000 && removed <= 600_000, "{added} comparisons to add, {removed} to remove");
    }

    #[test]
    fn few_values_come_and_go_without_an_allocation() {
        let mut set = Sorted::default();
        set.insert(1);
        let bytes = set.bytes();
        for value in 2..100 {
            assert!(set.remove(&(value - 1)) && set.insert(value));
            assert_eq!(set.bytes(), bytes);
        }
    }
}
