//! Decimal digits in bytes of peers and of the command line as numbers and spans. It knows no protocol.

use crate::time::Span;

/// Returns the value of unsigned decimal digits; None if it is anything else. What is beyond 2^32-1 counts as 2^32-1.
pub fn parse_number(word: &[u8]) -> Option<u32> {
    let mut number = None;
    for byte in word {
        let digit = char::from(*byte).to_digit(10)?;
        number = Some(number.unwrap_or(0_u32).saturating_mul(10).saturating_add(digit));
    }
    number
}

/// Returns the value of seconds with decimals; None if it is anything else. What is finer than a millisecond is rounded up, so that nothing ends early.
pub fn parse_seconds(word: &[u8]) -> Option<Span> {
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
    fn seconds_are_exact_to_the_millisecond() {
        for (word, ms) in
            [("0", 0), ("7", 7_000), ("0.25", 250), (".5", 500), ("5.", 5_000), ("0.0001", 1), ("1.0010", 1_001)]
        {
            assert_eq!(parse_seconds(word.as_bytes()), Some(Span::from_millis(ms)), "{word}");
        }
        assert_eq!(parse_seconds(b"99999999999"), Some(Span::from_secs(u64::from(u32::MAX))));
    }
}
