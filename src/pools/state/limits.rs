//! What the operator wants of the pools. It knows nothing of what happens in them.

use super::alerts::WINDOW;
use crate::time::Span;

/// What the operator allows every client, and wants to hear of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Places that one connection may hold or wait for.
    pub max_locks: u32,
    /// The longest that a place may be held, whatever the client asks for.
    pub max_hold: Span,
    /// The longest request in bytes, without its line feed.
    pub max_line: usize,
    /// How long a lock may be held before the operator is told.
    pub warn_hold: Span,
    /// How many requests a key may refuse in a second, over a minute, before the operator is told.
    pub warn_refusals: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_locks: 4,
            max_hold: Span::FOREVER,
            max_line: 8192,
            warn_hold: Span::from_secs(300),
            warn_refusals: 100,
        }
    }
}

impl Limits {
    /// How many requests a key may refuse in a [`WINDOW`].
    pub(super) fn refusals_in_window(&self) -> u64 {
        u64::from(self.warn_refusals) * (WINDOW.as_micros() / 1_000_000)
    }
}
