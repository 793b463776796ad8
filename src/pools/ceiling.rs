//! Ceilings: limits of requests by patterns of keys, and the conditions under which a key refuses requests that would
//! wait for too long.

use poolcounter_core::{Span, glob};

/// Limits of requests for the keys of a pattern; the smaller of a limit and the requested value applies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ceiling {
    /// Pattern of keys, in which `*` stands for any bytes.
    pub pattern: Box<[u8]>,
    /// Most holders of a lock at a time.
    pub workers: u32,
    /// Most holders and waiters together. Present waiters go on waiting.
    pub max_queue: u32,
    /// Longest wait of a request.
    pub timeout: Span,
    /// Longest hold of a lock.
    pub hold: Span,
    /// Condition for refusing requests because earlier requests have waited for long; None if the key never does.
    pub shedding: Option<Shedding>,
}

/// Condition under which a key sheds requests: its oldest waiter has waited for longer than `after`, throughout
/// `interval`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shedding {
    /// Longest wait that is not too long.
    pub after: Span,
    /// Time for which waits must have been too long.
    pub interval: Span,
    /// True if requests that would be refused are only counted.
    pub is_shadow: bool,
}

impl Ceiling {
    /// Returns a ceiling without limits.
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

    /// Returns whether its pattern matches this key.
    pub fn matches(&self, key: &[u8]) -> bool {
        glob::matches(&self.pattern, key)
    }
}
