//! Patterns of replies in scripts.

/// A reply in which any bytes may stand between the pieces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern(pub Vec<Vec<u8>>);

impl Pattern {
    /// Returns whether `reply` matches the pattern.
    pub fn matches(&self, reply: &[u8]) -> bool {
        let [first, middle @ .., last] = &self.0[..] else { return self.0.concat() == reply };
        let Some(mut rest) = reply.strip_prefix(&first[..]) else { return false };
        for piece in middle {
            let found = (0..=rest.len()).find(|at| rest[*at..].starts_with(piece));
            let Some(at) = found else { return false };
            rest = &rest[at + piece.len()..];
        }
        rest.ends_with(last)
    }
}
