//! Names of tubes and patterns of them, as values that cannot be wrong, and a table of patterns that finds those that match
//! a name, the most literal first.

use std::collections::BTreeMap;

/// The longest name of a tube in bytes.
pub const MAX_NAME_BYTES: usize = 200;

/// The name of a tube: 1 to 200 bytes of `A-Za-z0-9-+/;.$_()`, not beginning with `-`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TubeName<'a>(&'a [u8]);

/// A name in which `*` may stand for one whole part between slashes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pattern<'a>(&'a [u8]);

impl<'a> TubeName<'a> {
    /// The tube that a new connection uses and watches.
    pub const DEFAULT: TubeName<'static> = TubeName(b"default");

    /// Returns the name if it is one.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        is_name(bytes, is_name_byte).then_some(TubeName(bytes))
    }

    /// Returns its bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns the pattern that matches this name alone.
    pub fn pattern(self) -> Pattern<'a> {
        Pattern(self.0)
    }
}

impl<'a> Pattern<'a> {
    /// Returns the pattern if it is one.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let stars_are_parts = || parts(bytes).all(|part| part == b"*" || !part.contains(&b'*'));
        (is_name(bytes, |byte| byte == b'*' || is_name_byte(byte)) && stars_are_parts()).then_some(Pattern(bytes))
    }

    /// Returns its bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns the only name that it matches, if it has no `*`.
    pub fn plain(self) -> Option<TubeName<'a>> {
        (!self.0.contains(&b'*')).then_some(TubeName(self.0))
    }

    /// Returns true when it matches the name.
    pub fn matches(self, name: &[u8]) -> bool {
        let mut own = parts(self.0);
        let mut other = parts(name);
        loop {
            match (own.next(), other.next()) {
                (None, None) => return true,
                (Some(b"*"), Some(part)) if !part.is_empty() => {}
                (Some(part), Some(same)) if part == same => {}
                _ => return false,
            }
        }
    }
}

fn is_name(bytes: &[u8], is_allowed: impl Fn(u8) -> bool) -> bool {
    (1..=MAX_NAME_BYTES).contains(&bytes.len()) && bytes[0] != b'-' && bytes.iter().all(|byte| is_allowed(*byte))
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-+/;.$_()".contains(&byte)
}

/// Returns the parts between slashes.
fn parts(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    name.split(|byte| *byte == b'/')
}

/// Returns the first part of a tube's name.
pub fn first_part(name: &[u8]) -> &[u8] {
    parts(name).next().unwrap_or(name)
}

/// Returns the last part of a tube's name.
pub fn last_part(name: &[u8]) -> &[u8] {
    name.rsplit(|byte| *byte == b'/').next().unwrap_or(name)
}

/// Which parts of a pattern are `*`. Masks are ordered by the number of parts, then the most literal first, then the one
/// with the earlier literal part.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Mask {
    parts: u8,
    stars: u8,
    /// 255 less the place of each `*`.
    places: Vec<u8>,
}

impl Mask {
    fn of(pattern: &[u8]) -> Mask {
        let stars = parts(pattern).enumerate().filter(|(_, part)| *part == b"*");
        // Lossless: a name of 200 bytes has 201 parts at most.
        let places: Vec<u8> = stars.map(|(place, _)| 255 - place as u8).collect();
        Mask { parts: parts(pattern).count() as u8, stars: places.len() as u8, places }
    }

    /// Returns the name with `*` in the places of this mask; None when one of them is empty.
    fn apply(&self, name: &[u8]) -> Option<Vec<u8>> {
        let mut pattern = Vec::with_capacity(name.len());
        for (place, part) in parts(name).enumerate() {
            if place > 0 {
                pattern.push(b'/');
            }
            if self.places.contains(&(255 - place as u8)) {
                if part.is_empty() {
                    return None;
                }
                pattern.push(b'*');
            } else {
                pattern.extend_from_slice(part);
            }
        }
        Some(pattern)
    }
}

/// Values by pattern. To find those that match a name costs one look-up for each distinct arrangement of `*`.
pub struct PatternMap<V> {
    values: BTreeMap<Box<[u8]>, V>,
    /// How many patterns have each mask.
    masks: BTreeMap<Mask, u32>,
}

impl<V> Default for PatternMap<V> {
    fn default() -> Self {
        PatternMap { values: BTreeMap::new(), masks: BTreeMap::new() }
    }
}

impl<V> PatternMap<V> {
    /// Returns true when there is no pattern.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the value of exactly this pattern.
    pub fn of(&self, pattern: &[u8]) -> Option<&V> {
        self.values.get(pattern)
    }

    /// Returns the value of exactly this pattern.
    pub fn of_mut(&mut self, pattern: &[u8]) -> Option<&mut V> {
        self.values.get_mut(pattern)
    }

    /// Sets the value of a pattern, and returns the one that it had.
    pub fn insert(&mut self, pattern: &[u8], value: V) -> Option<V> {
        let old = self.values.insert(pattern.into(), value);
        if old.is_none() {
            *self.masks.entry(Mask::of(pattern)).or_insert(0) += 1;
        }
        old
    }

    /// Takes a pattern out.
    pub fn remove(&mut self, pattern: &[u8]) -> Option<V> {
        let value = self.values.remove(pattern)?;
        let mask = Mask::of(pattern);
        let count = self.masks.get_mut(&mask).expect("each pattern was counted under its mask");
        *count -= 1;
        if *count == 0 {
            self.masks.remove(&mask);
        }
        Some(value)
    }

    /// Returns the values of the patterns that match a name, the most literal first.
    pub fn matching<'s>(&'s self, name: &'s [u8]) -> impl Iterator<Item = &'s V> {
        let count = parts(name).count() as u8;
        let first = Mask { parts: count, stars: 0, places: Vec::new() };
        let same = self.masks.range(first..).map(|(mask, _)| mask).take_while(move |mask| mask.parts == count);
        same.filter_map(|mask| match mask.stars {
            0 => self.values.get(name),
            _ => self.values.get(&*mask.apply(name)?),
        })
    }

    /// Returns every pattern with its value, in the order of their bytes.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &V)> {
        self.values.iter().map(|(pattern, value)| (&**pattern, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_patterns_are_told_apart() {
        for name in ["default", "enwiki/refreshLinks", "a;b.c$d_e(f)+g-h", "0", "/", "a//b"] {
            assert!(TubeName::parse(name.as_bytes()).is_some(), "{name}");
        }
        for name in ["", "-a", "a b", "a*b", "ä", "*", "a\0", &"x".repeat(201)] {
            assert!(TubeName::parse(name.as_bytes()).is_none(), "{name}");
        }
        for pattern in ["*", "*/*", "enwiki/*", "*/sendMail", "a/*/b", "a//*"] {
            assert!(Pattern::parse(pattern.as_bytes()).is_some_and(|pattern| pattern.plain().is_none()), "{pattern}");
        }
        for pattern in ["a*", "**", "*/b*", "-*", "*a/b"] {
            assert!(Pattern::parse(pattern.as_bytes()).is_none(), "{pattern}");
        }
    }

    #[test]
    fn a_star_is_one_whole_part() {
        let matches = |pattern: &str, name: &str| {
            Pattern::parse(pattern.as_bytes()).expect("is a pattern").matches(name.as_bytes())
        };
        assert!(matches("*/sendMail", "enwiki/sendMail") && matches("*/*", "a/b") && matches("*", "default"));
        assert!(!matches("*", "a/b") && !matches("*/*", "a/") && !matches("*/*", "a/b/c") && !matches("a/*", "b/a"));
    }

    #[test]
    fn the_most_literal_comes_first() {
        let mut map = PatternMap::default();
        let patterns = ["*/*/*", "a/*/*", "*/b/*", "*/*/c", "a/b/*", "a/*/c", "*/b/c", "a/b/c", "x/*/*", "*/*", "*"];
        for pattern in patterns {
            assert_eq!(map.insert(pattern.as_bytes(), pattern), None);
        }
        let found: Vec<_> = map.matching(b"a/b/c").copied().collect();
        assert_eq!(found, ["a/b/c", "a/b/*", "a/*/c", "*/b/c", "a/*/*", "*/b/*", "*/*/c", "*/*/*"]);
        assert_eq!(map.matching(b"a//c").copied().collect::<Vec<_>>(), [""; 0]);
        for pattern in patterns {
            assert_eq!(map.remove(pattern.as_bytes()), Some(pattern));
        }
        assert!(map.is_empty() && map.masks.is_empty());
    }
}
