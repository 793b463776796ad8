//! Ids: newtypes over `u32` that index a slab and the tables beside it.

use std::fmt;

/// Slab key with a type of its own, so that the id of a claim is never taken for that of a pool.
pub trait Id: Copy + Eq + fmt::Debug {
    /// Returns the id of the entry at `index`.
    fn from_index(index: usize) -> Self;

    /// Returns the index of the entry.
    fn index(self) -> usize;
}

/// Declares each [`Id`].
#[macro_export]
macro_rules! id {
    ($($(#[$doc:meta])* $name:ident)+) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        #[derive(serde::Serialize, serde::Deserialize)]
        pub struct $name(u32);

        impl $crate::id::Id for $name {
            fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).expect("memory ends long before 2^32 entries"))
            }

            fn index(self) -> usize {
                self.0 as usize
            }
        })+
    };
}
pub use id;

/// Lets a table be indexed by the ids of its entries, which are in this field of it.
#[macro_export]
macro_rules! index_by {
    ($($id:ty => $table:ident.$field:ident: $entry:ty),+) => {
        $(impl std::ops::Index<$id> for $table {
            type Output = $entry;

            #[inline]
            fn index(&self, id: $id) -> &$entry {
                &self.$field[$crate::id::Id::index(id)]
            }
        }

        impl std::ops::IndexMut<$id> for $table {
            #[inline]
            fn index_mut(&mut self, id: $id) -> &mut $entry {
                &mut self.$field[$crate::id::Id::index(id)]
            }
        })+
    };
}
pub use index_by;

/// Declares each [`Id`] so that its `Option` takes no more memory, for tables with very many entries.
#[macro_export]
macro_rules! compact_id {
    ($($(#[$doc:meta])* $name:ident)+) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[derive(serde::Serialize, serde::Deserialize)]
        pub struct $name(std::num::NonZeroU32);

        impl $crate::id::Id for $name {
            fn from_index(index: usize) -> Self {
                let number = u32::try_from(index + 1).ok().and_then(std::num::NonZeroU32::new);
                Self(number.expect("memory ends long before 2^32 entries"))
            }

            fn index(self) -> usize {
                self.0.get() as usize - 1
            }
        })+
    };
}
pub use compact_id;

id! {
    /// Id of a connection. Closing erases every reference to it, so the number is free for the next one.
    ConnId
}

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {}", self.0)
    }
}
