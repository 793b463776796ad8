//! Texts, seconds and recent curves, used by all parts of the page.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use poolcounter_core::Span;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Characters that are escaped in a part of a path, including dots, so that no name ends the path with `.json`.
const IN_PATHS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// Text of the program, or received from another daemon.
pub type Text = Cow<'static, str>;

/// Period of the counts and times of a table.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ShownRecent {
    /// Length of the period in seconds.
    pub seconds: f64,
    /// Work done and refused in each second, oldest first, for the first rows.
    pub curves: Vec<[Vec<f64>; 2]>,
}

/// Returns a span in seconds.
pub fn seconds(span: Span) -> f64 {
    span.as_micros() as f64 / 1e6
}

/// Returns the path of the thing with this name, below another path.
pub fn path_to(path: &str, name: &str) -> String {
    format!("{path}{}", utf8_percent_encode(name, IN_PATHS))
}

/// Returns a number with commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns seconds in a suitable unit: `2.5 s`, `12 min 3 s`, `2 h`.
pub fn duration(seconds: f64) -> String {
    // Lossless: fractions of a second no longer matter.
    let whole = seconds as u64;
    let pair = |large: u64, name: &str, small: u64, smaller: &str| match small {
        0 => format!("{large} {name}"),
        small => format!("{large} {name} {small} {smaller}"),
    };
    match seconds {
        0.0 => "0 s".into(),
        ..0.001 => format!("{:.0} µs", seconds * 1e6),
        ..1.0 => format!("{:.0} ms", seconds * 1e3),
        ..10.0 => format!("{seconds:.1} s"),
        ..60.0 => format!("{seconds:.0} s"),
        ..3600.0 => pair(whole / 60, "min", whole % 60, "s"),
        ..86_400.0 => pair(whole / 3600, "h", whole / 60 % 60, "min"),
        _ => pair(whole / 86_400, "d", whole / 3600 % 24, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        let spans = [0.0, 0.000_02, 0.004, 2.5, 42.0, 120.0, 125.0, 7_300.0, 200_000.0].map(duration);
        assert_eq!(spans, ["0 s", "20 µs", "4 ms", "2.5 s", "42 s", "2 min", "2 min 5 s", "2 h 1 min", "2 d 7 h"]);
    }

    #[test]
    fn names_are_safe_in_paths() {
        assert_eq!(path_to("/pools/key/", "a:b c\\.j\"<"), "/pools/key/a%3Ab%20c%5C%2Ej%22%3C");
    }
}
