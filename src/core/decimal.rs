//! Decimal digits in bytes of peers and of the command line as numbers and spans. It knows no protocol.

use crate::time::Span;

/// Largest number; larger numbers count as this.
const MOST: u64 = u32::MAX as u64;

/// Returns the value of unsigned decimal digits; None for other text. Values above 2^32-1 count as 2^32-1.
pub fn parse_number(word: &[u8]) -> Option<u32> {
    let (number, rest) = first_number(word)?;
    rest.is_empty().then_some(number)
}

/// Returns the value of the digits before the first space, as [`parse_number`] does, and the bytes from there on; None
/// if there is anything but digits before it.
#[inline]
pub fn first_number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (mut number, mut rest) = (0_u64, bytes.iter());
    let mut byte = *rest.next()?;
    loop {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = (number * 10 + u64::from(digit)).min(MOST);
        match rest.as_slice().first() {
            // Lossless: it is at most the largest number.
            None | Some(b' ') => return Some((number as u32, rest.as_slice())),
            Some(next) => byte = *next,
        }
        rest.next();
    }
}

/// Most decimal digits of a number.
pub const MOST_DIGITS: usize = u64::MAX.ilog10() as usize + 1;
/// Digits of the numbers below 100.
const PAIRS: [[u8; 2]; 100] = pairs();

/// Appends the decimal digits of a number. It is faster than general formatting, for replies that are sent all the
/// time.
pub fn push_number(bytes: &mut Vec<u8>, number: u64) {
    let mut digits = [0; MOST_DIGITS];
    let start = write_number(&mut digits, number);
    bytes.extend_from_slice(&digits[start..]);
}

/// Writes the decimal digits of a number to the end of `space`, which must have room for them, and returns the index of
/// the first one.
#[inline]
pub fn write_number(space: &mut [u8], mut number: u64) -> usize {
    let mut first = space.len();
    while number >= 10 {
        first -= 2;
        space[first..first + 2].copy_from_slice(&PAIRS[(number % 100) as usize]);
        number /= 100;
    }
    if number > 0 || first == space.len() {
        first -= 1;
        // Lossless: it is one digit.
        space[first] = b'0' + number as u8;
    }
    first
}

const fn pairs() -> [[u8; 2]; 100] {
    let (mut pairs, mut number) = ([[0; 2]; 100], 0);
    while number < pairs.len() {
        // Lossless: each is one digit.
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
}

/// Returns the value of seconds with decimals; None for other text. Finer parts than a millisecond are rounded up, so
/// that no wait ends early.
pub fn parse_seconds(word: &[u8]) -> Option<Span> {
    // Most have no decimals.
    if let Some(seconds) = parse_number(word) {
        return Some(Span::from_secs(u64::from(seconds)));
    }
    let (whole, decimals) = match word.iter().position(|byte| *byte == b'.') {
        Some(point) => (&word[..point], &word[point + 1..]),
        None => (word, &[][..]),
    };
    if whole.is_empty() && decimals.is_empty() || !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let seconds = if whole.is_empty() { 0 } else { parse_number(whole)? };
    let (exact, finer) = decimals.split_at(decimals.len().min(3));
    let ms = exact.iter().fold(0, |ms, digit| ms * 10 + u64::from(digit - b'0')) * [1, 100, 10, 1][exact.len()];
    let round_up = u64::from(finer.iter().any(|digit| *digit != b'0'));
    Some(Span::from_secs(u64::from(seconds)) + Span::from_millis(ms + round_up))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_they_are_formatted() {
        let powers = (0..20).map(|digits| 10_u64.pow(digits)).flat_map(|power| [power - 1, power, power + 1]);
        for number in powers.chain([7, 99, 1_234_567_890, u64::MAX - 1, u64::MAX]) {
            let mut bytes = b"x".to_vec();
            push_number(&mut bytes, number);
            assert_eq!(bytes, format!("x{number}").into_bytes());
        }
    }

    #[test]
    fn seconds_are_exact_to_the_millisecond() {
        for (word, ms) in
            [("0", 0), ("7", 7_000), ("0.25", 250), (".5", 500), ("5.", 5_000), ("0.0001", 1), ("1.0010", 1_001)]
        {
            assert_eq!(parse_seconds(word.as_bytes()), Some(Span::from_millis(ms)), "{word}");
        }
        assert_eq!(parse_seconds(b"99999999999"), Some(Span::from_secs(u64::from(u32::MAX))));
    }
}
