//! Rows beside the slab of another owner, by its ids.

use crate::id::Id;
use std::marker::PhantomData;

/// Table of one row for each id. A row is at its default until it is written, and must be cleared when its id is freed.
#[derive(Debug)]
pub struct SideTable<K, T> {
    rows: Vec<T>,
    blank: T,
    key: PhantomData<K>,
}

impl<K, T: Default> Default for SideTable<K, T> {
    fn default() -> Self {
        SideTable { rows: Vec::new(), blank: T::default(), key: PhantomData }
    }
}

impl<K: Id, T: Default> SideTable<K, T> {
    /// Returns the row of an id.
    #[inline]
    pub fn get(&self, id: K) -> &T {
        self.rows.get(id.index()).unwrap_or(&self.blank)
    }

    /// Returns the row of an id, for changes.
    #[inline]
    pub fn get_mut(&mut self, id: K) -> &mut T {
        if id.index() >= self.rows.len() {
            self.grow(id);
        }
        &mut self.rows[id.index()]
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, id: K) {
        self.rows.resize_with(id.index() + 1, T::default);
    }

    /// Sets the row of an id back to its default.
    pub fn clear(&mut self, id: K) {
        if let Some(row) = self.rows.get_mut(id.index()) {
            *row = T::default();
        }
    }

    /// Returns a number above every id whose row was ever written.
    pub fn slots(&self) -> usize {
        self.rows.len()
    }

    /// Returns every row that was ever written.
    pub fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        self.rows.iter().enumerate().map(|(index, row)| (K::from_index(index), row))
    }
}
