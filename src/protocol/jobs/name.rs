//! Names of tubes and patterns of them, as values that cannot be wrong, and a table of patterns that finds those
//! matching a name, the most literal first.

use poolcounter_core::meter::Metered as _;
use std::collections::BTreeMap;

/// Limit of arrangements of `*` among the patterns of one table with the same number of parts, without restored ones;
/// enough for every pattern of five parts. A name is looked up once for each arrangement.
pub const MOST_ARRANGEMENTS: usize = 32;
/// Estimated bytes of an entry of a table, without its pattern.
const ENTRY_BYTES: usize = 64;
/// Longest name of a tube in bytes.
pub const MAX_NAME_BYTES: usize = 200;

/// Name of a tube: 1 to 200 bytes of `A-Za-z0-9-+/;.$_()`, not beginning with `-`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TubeName<'a>(&'a [u8]);

/// Name in which `*` may stand for one whole part between slashes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pattern<'a>(&'a [u8]);

impl<'a> TubeName<'a> {
    /// Tube that a new connection uses and watches.
    pub const DEFAULT: TubeName<'static> = TubeName(b"default");

    /// Returns the name; None if the bytes are no name.
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
    /// Returns the pattern; None if the bytes are no pattern.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let stars_are_parts = || parts(bytes).all(|part| part == b"*" || !part.contains(&b'*'));
        (is_name(bytes, |byte| byte == b'*' || is_name_byte(byte)) && stars_are_parts()).then_some(Pattern(bytes))
    }

    /// Returns its bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns whether a tube may match both patterns.
    pub fn overlaps(self, other: Pattern<'_>) -> bool {
        let is_alike = |(one, other): (&[u8], &[u8])| one == other || one == b"*" || other == b"*";
        parts(self.0).count() == parts(other.0).count() && parts(self.0).zip(parts(other.0)).all(is_alike)
    }

    /// Returns the only name that it matches, if it has no `*`.
    pub fn plain(self) -> Option<TubeName<'a>> {
        (!self.0.contains(&b'*')).then_some(TubeName(self.0))
    }

    /// Returns true if it matches the name.
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

/// Positions of the `*` in a pattern. Masks are ordered by the number of parts, then the most literal first, then the
/// mask with the earlier literal part.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Mask {
    parts: u8,
    stars: u8,
    /// 255 minus the position of each `*`.
    places: Vec<u8>,
}

impl Mask {
    fn of(pattern: &[u8]) -> Mask {
        let stars = parts(pattern).enumerate().filter(|(_, part)| *part == b"*");
        // Lossless: a name of 200 bytes has at most 201 parts.
        let places: Vec<u8> = stars.map(|(place, _)| 255 - place as u8).collect();
        Mask { parts: parts(pattern).count() as u8, stars: places.len() as u8, places }
    }

    /// Returns the name with `*` at the positions of this mask; None if one of these parts is empty.
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

/// Values by pattern. A search for the patterns of a name costs one look-up for each distinct arrangement of `*`.
pub struct PatternMap<V> {
    values: BTreeMap<Box<[u8]>, V>,
    /// Number of patterns with each mask, and of times that it is held.
    masks: BTreeMap<Mask, u32>,
    bytes: usize,
}

impl<V> Default for PatternMap<V> {
    fn default() -> Self {
        PatternMap { values: BTreeMap::new(), masks: BTreeMap::new(), bytes: 0 }
    }
}

impl<V> PatternMap<V> {
    /// Returns true if there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the value of exactly this pattern.
    pub fn of(&self, pattern: &[u8]) -> Option<&V> {
        self.values.get(pattern)
    }

    /// Returns the value of exactly this pattern, for changes.
    pub fn of_mut(&mut self, pattern: &[u8]) -> Option<&mut V> {
        self.values.get_mut(pattern)
    }

    /// Sets the value of a pattern, and returns the previous one.
    pub fn insert(&mut self, pattern: &[u8], value: V) -> Option<V> {
        let old = self.values.insert(pattern.into(), value);
        if old.is_none() {
            self.bytes += ENTRY_BYTES + size_of::<V>() + pattern.len();
            self.hold(pattern);
        }
        old
    }

    /// Returns whether a pattern may be added: it has no `*`, or there are not yet too many arrangements.
    pub fn has_room_for(&self, pattern: &[u8]) -> bool {
        let mask = Mask::of(pattern);
        mask.stars == 0 || self.masks.contains_key(&mask) || self.masks_of(mask.parts).count() < MOST_ARRANGEMENTS
    }

    /// Keeps room for a pattern, as if it were there.
    pub fn hold(&mut self, pattern: &[u8]) {
        *self.masks.entry(Mask::of(pattern)).or_insert(0) += 1;
    }

    /// Ends a [`PatternMap::hold`] of a pattern.
    pub fn let_go(&mut self, pattern: &[u8]) {
        let mask = Mask::of(pattern);
        let count = self.masks.get_mut(&mask).expect("each pattern was counted under its mask");
        *count -= 1;
        if *count == 0 {
            self.masks.remove(&mask);
        }
    }

    /// Returns the bytes that the table takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes a pattern, and returns its value.
    pub fn remove(&mut self, pattern: &[u8]) -> Option<V> {
        let value = self.values.remove(pattern)?;
        self.bytes -= ENTRY_BYTES + size_of::<V>() + pattern.len();
        self.let_go(pattern);
        Some(value)
    }

    /// Returns the values of the patterns that match a name, the most literal first.
    pub fn matching<'s>(&'s self, name: &'s [u8]) -> impl Iterator<Item = &'s V> {
        self.entries(name).map(|(_, value)| value)
    }

    /// Returns the patterns that match a name with their values, the most literal first.
    pub fn entries<'s>(&'s self, name: &'s [u8]) -> impl Iterator<Item = (&'s [u8], &'s V)> {
        let entries = self.masks_of(parts(name).count() as u8).filter_map(|mask| match mask.stars {
            0 => self.values.get_key_value(name),
            _ => self.values.get_key_value(&*mask.apply(name)?),
        });
        entries.map(|(pattern, value)| (&**pattern, value))
    }

    /// Returns the masks of patterns with this number of parts, the most literal first.
    fn masks_of(&self, parts: u8) -> impl Iterator<Item = &Mask> {
        let first = Mask { parts, stars: 0, places: Vec::new() };
        self.masks.range(first..).map(|(mask, _)| mask).take_while(move |mask| mask.parts == parts).metered()
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
    fn names_and_patterns_are_distinguished() {
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
    fn a_name_without_a_slash_is_its_own_first_and_last_part() {
        let ends = |name: &'static [u8]| [first_part(name), last_part(name)];
        assert_eq!(ends(b"enwiki/x/refreshLinks"), [b"enwiki".as_slice(), b"refreshLinks"]);
        assert_eq!(ends(b"default"), [b"default"; 2]);
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
        assert!(map.is_empty() && map.masks.is_empty() && map.bytes() == 0);
    }

    #[test]
    fn a_name_is_looked_up_for_few_arrangements() {
        let mut map = PatternMap::default();
        let arrangement = |bits: u32| {
            let parts: Vec<&str> = (0..8).map(|place| if bits >> place & 1 == 1 { "*" } else { "a" }).collect();
            parts.join("/").into_bytes()
        };
        for pattern in (1..256).map(arrangement) {
            if map.has_room_for(&pattern) {
                map.insert(&pattern, ());
            }
        }
        assert_eq!(map.matching(b"a/a/a/a/a/a/a/a").count(), MOST_ARRANGEMENTS);
        assert!(map.has_room_for(b"b/b/b/b/b/b/b/b") && map.has_room_for(b"*/*") && map.has_room_for(&arrangement(1)));
        map.hold(b"*/b");
        assert!(map.matching(b"c/b").next().is_none());
        map.let_go(b"*/b");
        assert_eq!(map.masks.len(), MOST_ARRANGEMENTS);
    }
}
