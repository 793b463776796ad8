//! Lines of words: the common part of the protocols of the pools and of the members.

use memchr::memchr;
use poolcounter_core::Span;
use poolcounter_core::decimal::first_number;
use std::borrow::Cow;
use std::fmt;

/// Line at the front of a connection's input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line<'a> {
    /// A line without its end, and the number of its bytes with it.
    Whole(&'a [u8], usize),
    /// An incomplete line.
    Partial,
    /// More bytes than a line may have.
    TooLong,
}

/// Answer to a line that is too long; the connection ends after it.
pub const LINE_TOO_LONG: &[u8] = b"ERROR LINE_TOO_LONG\n";

/// Returns the first line of the input, which ends in LF or CR LF. The first `seen` bytes contain no end. A line may
/// have `max` bytes before its LF.
pub fn first_line(input: &[u8], seen: usize, max: usize) -> Line<'_> {
    let searched = input.len().min(max + 1);
    let seen = seen.min(searched);
    match memchr(b'\n', &input[seen..searched]).map(|at| seen + at) {
        Some(end) => Line::Whole(input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]), end + 1),
        None if input.len() > max => Line::TooLong,
        None => Line::Partial,
    }
}

/// Words of a line, which are separated by one or more spaces.
pub struct LineWords<'a>(pub &'a [u8]);

impl<'a> Iterator for LineWords<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.skip_spaces();
        let end = self.0.iter().position(|byte| *byte == b' ').unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        (end > 0).then_some(word)
    }
}

impl<'a> LineWords<'a> {
    #[inline]
    fn skip_spaces(&mut self) {
        while let [b' ', rest @ ..] = self.0 {
            self.0 = rest;
        }
    }

    /// Takes the next word if it is a key: not empty, and without NUL.
    #[inline]
    pub(crate) fn take_key(&mut self) -> Option<&'a [u8]> {
        self.skip_spaces();
        let (key, rest) = self.0.split_at(key_len(self.0));
        self.0 = rest;
        (!key.is_empty() && rest.first() != Some(&0)).then_some(key)
    }

    /// Takes the next word and returns its number, if [`parse_number`] accepts it; else the word stays.
    #[inline]
    pub(crate) fn take_number(&mut self) -> Option<u32> {
        self.skip_spaces();
        let (number, rest) = first_number(self.0)?;
        self.0 = rest;
        Some(number)
    }
}

/// Takes a word without control characters and the space behind it. It examines eight bytes at a time.
#[inline(always)]
pub(crate) fn take_plain_word<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    let mut rest = *bytes;
    while let Some((word, after)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*word);
        // The lowest byte whose highest bit is set here is the lowest up to a space.
        let ends = word.wrapping_sub(ONES * (b' ' + 1) as u64) & !word & (ONES << 7);
        if ends != 0 {
            rest = &rest[ends.trailing_zeros() as usize / 8..];
            break;
        }
        rest = after;
    }
    // Fewer than eight bytes are left, or the first ends the word.
    while let [byte, after @ ..] = rest
        && *byte > b' '
    {
        rest = after;
    }
    let word = &bytes[..bytes.len() - rest.len()];
    *bytes = rest.strip_prefix(b" ")?;
    (!word.is_empty()).then_some(word)
}

/// Takes a number of at most nine digits and the byte behind it, which must be `end`.
#[inline(always)]
pub(crate) fn take_short_number(bytes: &mut &[u8], end: u8) -> Option<u32> {
    let (first, mut rest) = bytes.split_first()?;
    let mut number = Some(u32::from(first.wrapping_sub(b'0'))).filter(|digit| *digit <= 9)?;
    while let [byte, after @ ..] = rest {
        let digit = byte.wrapping_sub(b'0');
        if *byte == end {
            *bytes = after;
            return Some(number);
        } else if digit > 9 || number > 99_999_999 {
            return None;
        }
        // Lossless: the number has at most eight digits.
        number = number.wrapping_mul(10).wrapping_add(u32::from(digit));
        rest = after;
    }
    None
}

/// Returns the number of bytes before the first space or NUL. It examines eight at a time.
#[inline]
fn key_len(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    // Space and NUL are the bytes that are zero without this bit.
    const SPACE: u64 = u64::from_ne_bytes([b' '; 8]);
    let (words, tail) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word) & !SPACE;
        // The lowest byte whose highest bit is set here is the lowest that is zero.
        let zeros = word.wrapping_sub(ONES) & !word & (ONES << 7);
        if zeros != 0 {
            return at * 8 + zeros.trailing_zeros() as usize / 8;
        }
    }
    let in_tail = tail.iter().position(|byte| matches!(*byte, b' ' | 0));
    bytes.len() - tail.len() + in_tail.unwrap_or(tail.len())
}

/// Returns the form of a key on the wire: a space becomes `%20`, as MediaWiki writes it. Other bytes are unchanged, so
/// a key that contains `%20` already names the same pool. `None`: the key is empty, or has a line feed, a carriage
/// return or a NUL, which no request can carry.
pub fn escape_key(key: &[u8]) -> Option<Cow<'_, [u8]>> {
    if key.is_empty() || key.iter().any(|byte| matches!(byte, b'\n' | b'\r' | 0)) {
        return None;
    }
    if !key.contains(&b' ') {
        return Some(Cow::Borrowed(key));
    }
    Some(Cow::Owned(key.split(|byte| *byte == b' ').collect::<Vec<_>>().join(&b"%20"[..])))
}

/// Seconds on the wire: without decimals if they are whole, because the C daemon does not read decimals, else rounded
/// up to milliseconds.
pub struct WireSeconds(pub Span);

impl fmt::Display for WireSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_micros().div_ceil(1_000);
        // The most that the protocol can express.
        let seconds = (ms / 1_000).min(u64::from(u32::MAX));
        match ms % 1_000 {
            0 => write!(f, "{seconds}"),
            ms => write!(f, "{seconds}.{ms:03}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_in_lf_or_cr_lf() {
        assert_eq!(first_line(b"a\r\nb\n", 0, 9), Line::Whole(b"a", 3));
        assert_eq!(first_line(b"a\rb\r\r\n", 0, 9), Line::Whole(b"a\rb\r", 6));
        assert_eq!(first_line(b"abc\n", 0, 3), Line::Whole(b"abc", 4));
        assert_eq!(first_line(b"abc", 0, 3), Line::Partial);
        assert_eq!(first_line(b"abcd", 0, 3), Line::TooLong);
        assert_eq!(first_line(b"abcd\n", 0, 3), Line::TooLong);
        assert_eq!(first_line(b"abc\n", 3, 3), Line::Whole(b"abc", 4));
        assert_eq!(first_line(b"abcd", 4, 3), Line::TooLong);
        assert_eq!(first_line(b"abc", 3, 9), Line::Partial);
    }

    #[test]
    fn seconds_are_rounded_up_and_whole_if_possible() {
        let text = |us| WireSeconds(Span::from_micros(us)).to_string();
        assert_eq!(
            [text(0), text(5_000_000), text(250_000), text(1_000_001), text(u64::MAX)],
            ["0", "5", "0.250", "1.001", "4294967295.552"]
        );
    }

    #[test]
    fn key_is_one_word() {
        assert_eq!(escape_key(b" a  b").as_deref(), Some(&b"%20a%20%20b"[..]));
        assert_eq!(escape_key(b"a%20b\t\xff").as_deref(), Some(&b"a%20b\t\xff"[..]));
        for key in ["", "a\n", "a\rb", "\0"] {
            assert_eq!(escape_key(key.as_bytes()), None, "{key:?}");
        }
    }
}
