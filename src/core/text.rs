//! Bytes of peers as text that is safe to show: valid, visible, and of limited length. It knows neither the source of
//! the bytes nor the reader of the text.

use std::borrow::Cow;
use std::ops::RangeInclusive;

/// Characters that are no control characters and yet cannot be seen, or change the look of those around them, in order:
/// the default ignorable code points of Unicode, marks of the direction of writing, separators of lines and paragraphs,
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

/// Beginning of the number that the standard library appends to the text of an error of the system.
const OS_ERROR: &str = " (os error ";

/// Returns the text of errors without the numbers of the system, such as ` (os error 111)`.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(OS_ERROR) {
        return text.into();
    }
    let mut parts = text.split(OS_ERROR);
    let mut plain = parts.next().unwrap_or_default().to_string();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.parse::<i32>().is_ok() => plain += rest,
            _ => plain.extend([OS_ERROR, part]),
        }
    }
    plain.into()
}

/// Returns a value with stars in place of the passwords of a URL (`//USER:PASSWORD@`), and of `password=` in a URL or
/// in libpq's form.
pub fn without_passwords(value: &str) -> String {
    let mut shown = value.to_string();
    if let Some(start) = shown.find("://").map(|at| at + 3) {
        let end = shown[start..].find(['/', '"', '\'']).map_or(shown.len(), |at| start + at);
        // A slash in the password ends what can be the user and the server.
        let at = shown[start..end].rfind('@').or_else(|| shown[start..].rfind('@')).map(|at| start + at);
        if let Some(at) = at
            && let Some(colon) = shown[start..at].find(':')
        {
            shown.replace_range(start + colon + 1..at, "***");
        }
    }
    const NAME: &str = "password=";
    let mut from = 0;
    while let Some(start) = shown[from..].to_ascii_lowercase().find(NAME).map(|at| from + at + NAME.len()) {
        let quote = shown[start..].chars().next().filter(|first| matches!(first, '\'' | '"'));
        let end = match quote {
            Some(quote) => shown[start + 1..].find(quote).map(|at| start + at + 2),
            None => {
                shown[start..].find(|c: char| c.is_whitespace() || matches!(c, '&' | '"' | '\'')).map(|at| start + at)
            }
        };
        shown.replace_range(start..end.unwrap_or(shown.len()), "***");
        from = start;
    }
    shown
}

/// Returns whether a terminal, a page or a log may show the character as it is.
pub fn is_visible(c: char) -> bool {
    // Most text needs no search in the table.
    c.is_ascii_graphic() || c == ' ' || !(c.is_control() || INVISIBLE.iter().any(|range| range.contains(&c)))
}

/// Returns the bytes as text of at most `most` bytes, with an ellipsis if they are more. Invalid UTF-8 and invisible
/// characters are shown as escapes, and so is the backslash: before it is cut off, no text stands for two names.
pub fn visible(bytes: &[u8], most: usize) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid().chars().map(Ok);
        let invalid = chunk.invalid().iter().map(Err);
        for piece in valid.chain(invalid) {
            let end = text.len();
            match piece {
                Ok('\\') => text.push_str("\\\\"),
                Ok(c) if is_visible(c) => text.push(c),
                Ok(c) => text.extend(c.escape_unicode()),
                Err(byte) => text += &format!("\\x{byte:02x}"),
            }
            if text.len() > most {
                text.truncate(end);
                text.push('…');
                return text;
            }
        }
    }
    text
}

/// Returns at most `most` bytes of a text that is visible already, with an ellipsis if it has more.
pub fn cut(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    format!("{}…", &text[..end]).into()
}

/// Returns the bytes as one word of a shell: as they are if no shell changes them, else in single quotes.
pub fn shell_word(bytes: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b":/_-.,@+".contains(byte);
    if !bytes.is_empty() && bytes.iter().all(is_plain) {
        return bytes.into();
    }
    // A single quote ends the quotes, stands alone behind a backslash, and starts them again.
    let parts: Vec<&[u8]> = bytes.split(|byte| *byte == b'\'').collect();
    [b"'", &*parts.join(&br"'\''"[..]), b"'"].concat()
}

/// Returns the bytes as text like that of [`visible`], at any length.
pub fn escaped(bytes: &[u8]) -> String {
    visible(bytes, usize::MAX)
}

/// Returns a text of several lines: line feeds and tabs stay, and so does the backslash. Other control characters are
/// shown by their pictures, and other characters that cannot be seen by escapes.
pub fn lines_of(text: &str) -> String {
    let mut lines = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => lines.push(c),
            '\0'..='\u{1f}' => lines.push(char::from_u32(0x2400 + u32::from(c)).expect("each has its picture")),
            c if is_visible(c) => lines.push(c),
            c => lines.extend(c.escape_unicode()),
        }
    }
    lines
}

/// Most bytes of a name in a title.
const TITLE_BYTES: usize = 200;

/// Returns the title of an object of this kind and name.
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
            // A backslash stands for itself before another, and before anything that is no escape.
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
    fn passwords_are_not_shown() {
        for (value, shown) in [
            ("\"sqlite:/d/jobs.db\"", "\"sqlite:/d/jobs.db\""),
            ("'postgres://u:p:w@h:5432/d'", "'postgres://u:***@h:5432/d'"),
            ("\"postgres://u@h:5432/d\"", "\"postgres://u@h:5432/d\""),
            ("\"postgres:postgresql://u:p@h\"", "\"postgres:postgresql://u:***@h\""),
            ("postgres://u:p/w@h/d", "postgres://u:***@h/d"),
            ("postgres://h/d?user=u&password=secret&sslmod=x", "postgres://h/d?user=u&password=***&sslmod=x"),
            (
                "postgres:host=h Password='a b' sslpassword=c user=u",
                "postgres:host=h Password=*** sslpassword=*** user=u",
            ),
            ("password=", "password=***"),
        ] {
            assert_eq!(without_passwords(value), shown);
        }
    }

    #[test]
    fn errors_have_no_numbers_of_the_system() {
        let refused = std::io::Error::from_raw_os_error(111).to_string();
        assert!(refused.ends_with(" (os error 111)"), "{refused}");
        assert_eq!(plain(&format!("a: {refused}; b: {refused}")), "a: Connection refused; b: Connection refused");
        for text in ["", "nothing", "a (os error x) b", "a (os error 2"] {
            assert_eq!(plain(text), text);
        }
    }

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
    fn word_is_quoted_unless_plain() {
        let words: [(&[u8], &[u8]); 6] = [
            (b"a:b/c", b"a:b/c"),
            (b"", b"''"),
            (b"$(x)", b"'$(x)'"),
            (b"it's", br"'it'\''s'"),
            (b"'", br"''\'''"),
            (b"\xff\r", b"'\xff\r'"),
        ];
        for (bytes, word) in words {
            assert_eq!(shell_word(bytes), word);
        }
    }

    #[test]
    fn table_is_in_order() {
        assert!(INVISIBLE.iter().is_sorted_by(|a, b| a.end() < b.start()));
    }
}
