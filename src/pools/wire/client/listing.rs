//! Reads the lines of `STATS KEYS`, `STATS TYPES` and `STATS HOLDERS`.
//!
//! Amounts are read by their words, so that a later server may add some.

use super::parse_duration;
use crate::time::Span;

/// A key or a type with its amounts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedRow {
    /// The key or the type, in the bytes of clients.
    pub name: Vec<u8>,
    /// The amounts, in the order of the line: `3 working` is the amount of `working`.
    pub amounts: Vec<(String, Amount)>,
}

/// How many, or how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Amount {
    /// A number of things.
    Count(u64),
    /// A time.
    Time(Span),
}

/// A holder or waiter of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedClaim {
    /// Its address.
    pub peer: String,
    /// Its state: `working`, or `waiting_for_me` and the like.
    pub state: String,
    /// For how long.
    pub age: Span,
}

impl ListedRow {
    /// Returns the row in a line of the keys or types; None if it is no such line, such as the one that says how many more there are.
    pub fn parse(line: &[u8]) -> Option<ListedRow> {
        let (name, amounts) = split_once(line, b' ')?;
        let amounts = std::str::from_utf8(amounts).ok()?.split(", ").map(parse_amount).collect::<Option<_>>()?;
        Some(ListedRow { name: name.strip_suffix(b":")?.to_vec(), amounts })
    }

    /// Returns the amount of this word: a number, or microseconds; 0 if the line does not have it.
    pub fn amount(&self, word: &str) -> u64 {
        let amount = self.amounts.iter().find(|(of, _)| of == word);
        amount.map_or(0, |(_, amount)| match amount {
            Amount::Count(count) => *count,
            Amount::Time(span) => span.as_micros(),
        })
    }

    /// Adds the row of another server for the same key or type: numbers add up, and so do times, but of `oldest` the longer counts.
    pub fn add(&mut self, other: &ListedRow) {
        for (word, amount) in &mut self.amounts {
            let more = other.amount(word);
            match amount {
                Amount::Count(count) => *count = count.saturating_add(more),
                Amount::Time(span) if word == "oldest" => *span = Span::from_micros(span.as_micros().max(more)),
                Amount::Time(span) => *span += Span::from_micros(more),
            }
        }
    }
}

impl ListedClaim {
    /// Returns the claim in a line of `STATS HOLDERS`; None if it is no such line.
    pub fn parse(line: &[u8]) -> Option<ListedClaim> {
        let mut words = std::str::from_utf8(line).ok()?.rsplitn(3, ' ');
        let (age, state, peer) = (words.next()?, words.next()?, words.next()?);
        let age = Span::from_micros(parse_duration(age)?);
        Some(ListedClaim { peer: peer.into(), state: state.into(), age })
    }
}

/// Returns how many more there are than the list has, if this line says so.
pub fn parse_more(line: &[u8]) -> Option<u64> {
    std::str::from_utf8(line).ok()?.strip_prefix("and ")?.strip_suffix(" more")?.parse().ok()
}

fn parse_amount(text: &str) -> Option<(String, Amount)> {
    let (first, second) = text.split_once(' ')?;
    match first.parse() {
        Ok(count) => Some((second.into(), Amount::Count(count))),
        Err(_) => Some((first.into(), Amount::Time(Span::from_micros(parse_duration(second)?)))),
    }
}

fn split_once(line: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let index = line.iter().position(|byte| *byte == at)?;
    Some((&line[..index], &line[index + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_is_read() {
        let key = ListedRow::parse(b"Article:x\xff:y: 1 working, 22 waiting, oldest 7200.000001s").expect("is a line");
        assert_eq!(key.name, b"Article:x\xff:y");
        assert_eq!((key.amount("working"), key.amount("waiting"), key.amount("oldest")), (1, 22, 7_200_000_001));
        assert_eq!(key.amount("unheard of"), 0);
        assert_eq!(key.amounts[1], ("waiting".into(), Amount::Count(22)));
        let mut both = key.clone();
        both.add(&ListedRow::parse(b"Article:x\xff:y: 3 working, 0 waiting, oldest 1.0s").expect("is a line"));
        assert_eq!((both.amount("working"), both.amount("waiting")), (4, 22));
        assert_eq!(both.amount("oldest"), 7_200_000_001);
        assert_eq!(parse_more(b"and 17 more"), Some(17));
        let client = ListedClaim::parse(b"[::1]:5000 waiting_for_me 3.250000s").expect("is a line");
        let expected =
            ListedClaim { peer: "[::1]:5000".into(), state: "waiting_for_me".into(), age: Span::from_millis(3_250) };
        assert_eq!(client, expected);
    }

    #[test]
    fn other_lines_are_none() {
        for line in [&b""[..], b"and 3 more", b"k 1 working", b"k: working", b"k: oldest x", b"\xff", b"k: \xff y"] {
            assert_eq!(ListedRow::parse(line), None, "{}", line.escape_ascii());
        }
        for line in [&b""[..], b"and 3 more", b"a working s", b"working 3s", b"\xff working 3s"] {
            assert_eq!(ListedClaim::parse(line), None, "{}", line.escape_ascii());
        }
        assert_eq!(parse_more(b"and: 3 working"), None);
    }
}
