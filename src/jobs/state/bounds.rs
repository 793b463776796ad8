//! Limits of the service.

use poolcounter_core::Span;

/// Limits of the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The longest body in bytes.
    pub max_size: u32,
    /// Largest number of tubes.
    pub max_tubes: usize,
    /// Bytes that jobs may take.
    pub max_memory: usize,
    /// Time after which a buried job is deleted.
    pub bury_ttl: Span,
    /// Changes, and bytes of these, that may wait for a commit before connections that make more are not read.
    pub queue: (usize, usize),
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds {
            max_size: 65_535,
            max_tubes: 1 << 20,
            max_memory: usize::MAX,
            bury_ttl: Span::FOREVER,
            queue: (usize::MAX, usize::MAX),
        }
    }
}
