//! Ceilings: what requests may ask for at most, by patterns of keys, and when a key refuses what would wait for too long.

use poolcounter_core::glob;
use poolcounter_core::time::Span;

/// What a request for a key may have at most; the smaller of this and what it asks for counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ceiling {
    /// Which keys it is for: `*` stands for any bytes.
    pub pattern: Box<[u8]>,
    /// How many may hold a lock at a time.
    pub workers: u32,
    /// How many may hold or wait. Those that wait already go on waiting.
    pub max_queue: u32,
    /// How long a request waits.
    pub timeout: Span,
    /// How long a lock is held.
    pub hold: Span,
    /// When requests are refused because those before them have waited for long.
    pub shedding: Option<Shedding>,
}

/// A key sheds requests once its oldest waiter has waited for too long for a while, and until it has not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shedding {
    /// How long is too long.
    pub after: Span,
    /// For how long that must have been so.
    pub interval: Span,
    /// It is counted only what would be refused.
    pub is_shadow: bool,
}

impl Ceiling {
    /// Returns a ceiling that bounds nothing.
    pub fn new(pattern: &[u8]) -> Ceiling {
        Ceiling {
            pattern: pattern.into(),
            workers: u32::MAX,
            max_queue: u32::MAX,
            timeout: Span::FOREVER,
            hold: Span::FOREVER,
            shedding: None,
        }
    }

    /// Returns whether it is for this key.
    pub fn matches(&self, key: &[u8]) -> bool {
        glob::matches(&self.pattern, key)
    }
}
