//! Bytes of peers as text that is safe to show: valid, visible, and no longer than it may be. It knows neither who wrote the
//! bytes nor who shows the text.

use std::ops::RangeInclusive;

/// Characters that are not control characters and yet cannot be seen, or change how those around them are seen, in order:
/// the default ignorable code points of Unicode, what turns the direction of writing, separators of lines and paragraphs,
/// annotations, and a Braille pattern without dots.
const INVISIBLE: [RangeInclusive<char>; 18] = [
    '\u{ad}'..='\u{ad}',
    '\u{34f}'..='\u{34f}',
    '\u{61c}'..='\u{61c}',
    '\u{115f}'..='\u{1160}',
    '\u{17b4}'..='\u{17b5}',
    '\u{180b}'..='\u{180f}',
    '\u{200b}'..='\u{200f}',
    '\u{2028}'..='\u{202e}',
    '\u{2060}'..='\u{206f}',
    '\u{2800}'..='\u{2800}',
    '\u{3164}'..='\u{3164}',
    '\u{fe00}'..='\u{fe0f}',
    '\u{feff}'..='\u{feff}',
    '\u{ffa0}'..='\u{ffa0}',
    '\u{fff0}'..='\u{fffb}',
    '\u{1bca0}'..='\u{1bca3}',
    '\u{1d173}'..='\u{1d17a}',
    '\u{e0000}'..='\u{e0fff}',
];

/// Whether a terminal, a page or a log may show the character as it is.
pub fn is_visible(c: char) -> bool {
    // Most text needs no look at the table.
    c.is_ascii_graphic() || c == ' ' || !(c.is_control() || INVISIBLE.iter().any(|range| range.contains(&c)))
}

/// The bytes as text of at most `most` bytes, and an ellipsis if they are more. What is no valid UTF-8 or cannot be
/// seen is shown as an escape, and so is the backslash: before it is cut off, no text stands for two names.
pub fn visible(bytes: &[u8], most: usize) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid().chars().map(Piece::of);
        let invalid = chunk.invalid().iter().map(|byte| Piece::Escape(format!("\\x{byte:02x}")));
        for piece in valid.chain(invalid) {
            let len = match &piece {
                Piece::Char(c) => c.len_utf8(),
                Piece::Escape(escape) => escape.len(),
            };
            if text.len() + len > most {
                text.push('…');
                return text;
            }
            match piece {
                Piece::Char(c) => text.push(c),
                Piece::Escape(escape) => text.push_str(&escape),
            }
        }
    }
    text
}

/// What stands for a character or a byte.
enum Piece {
    Char(char),
    Escape(String),
}

impl Piece {
    fn of(c: char) -> Piece {
        match c {
            '\\' => Piece::Escape("\\\\".into()),
            c if is_visible(c) => Piece::Char(c),
            c => Piece::Escape(c.escape_unicode().to_string()),
        }
    }
}

/// The bytes as text like that of [`visible`], whole.
pub fn escaped(bytes: &[u8]) -> String {
    visible(bytes, usize::MAX)
}

/// Most bytes of a name in a title.
const TITLE_BYTES: usize = 200;

/// Returns the title of the thing of this kind and name.
pub fn title_of(kind: &str, name: &[u8]) -> String {
    format!("{kind} {}", visible(name, TITLE_BYTES))
}

/// Returns the bytes that [`escaped`] shows as this text.
pub fn unescaped(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let escape = &rest[at..];
        let byte = escape.strip_prefix("\\x").and_then(|it| u8::from_str_radix(it.get(..2)?, 16).ok());
        let code = escape.strip_prefix("\\u{").and_then(|it| it.split_once('}'));
        let c = code.and_then(|(code, rest)| Some((char::from_u32(u32::from_str_radix(code, 16).ok()?)?, rest)));
        rest = if let Some(byte) = byte {
            bytes.push(byte);
            &escape[4..]
        } else if let Some((c, rest)) = c {
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            rest
        } else {
            // A backslash stands for itself before another, and before what is no escape.
            bytes.push(b'\\');
            escape.strip_prefix("\\\\").unwrap_or(&escape[1..])
        };
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_is_unescaped_as_it_was() {
        for bytes in
            [&b"plain:k"[..], b"a\\b\\x41\\", b"\xff\xc3(\x1b", "\u{202e}\u{e9}\u{65e5}\\u{41}".as_bytes(), b""]
        {
            assert_eq!(unescaped(&escaped(bytes)), bytes);
        }
        assert_eq!(unescaped("\\q\\x4\\u{110000}\\"), b"\\q\\x4\\u{110000}\\", "these are no escapes");
    }

    #[test]
    fn invisible_text_is_escaped() {
        assert_eq!(visible("Grüße:日本".as_bytes(), 64), "Grüße:日本");
        assert_eq!(visible(b"a\xff\xc3b\t\\x\x7f", 64), "a\\xff\\xc3b\\u{9}\\\\x\\u{7f}");
        assert_eq!(visible("left\u{202e}thgir".as_bytes(), 64), "left\\u{202e}thgir");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(visible(b"abc", 3), "abc");
        assert_eq!(visible(b"abcd", 3), "abc…");
        assert_eq!(visible("aüü".as_bytes(), 4), "aü…");
        assert_eq!(visible(b"ab\xff", 5), "ab…");
        assert_eq!(visible(&[0xff; 1000], 64).len(), 64 + '…'.len_utf8());
    }

    #[test]
    fn characters_that_hide_or_turn_text_are_invisible() {
        for c in
            ['\u{0}', '\u{7f}', '\u{85}', '\u{9b}', '\u{ad}', '\u{61c}', '\u{200b}', '\u{200d}', '\u{202e}', '\u{2066}']
        {
            assert!(!is_visible(c), "{c:?}");
        }
        for c in ['\u{2029}', '\u{2060}', '\u{3164}', '\u{fe0f}', '\u{feff}', '\u{fffb}', '\u{e0041}'] {
            assert!(!is_visible(c), "{c:?}");
        }
        assert!("aZ 09~\u{a0}éß日本ع\u{301}\u{fffd}🙂".chars().all(is_visible));
    }

    #[test]
    fn the_table_is_in_order() {
        assert!(INVISIBLE.iter().is_sorted_by(|a, b| a.end() < b.start()));
    }
}
