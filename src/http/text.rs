//! Bytes of peers as text that is safe to show: valid, visible, and no longer than it may be.

/// The bytes as text of at most `most` bytes, and an ellipsis if they are more. What is no valid UTF-8, a control character,
/// or one that turns the direction of writing, is shown as an escape, and so is the backslash: before it is cut off, no text
/// stands for two names.
pub fn visible(bytes: &[u8], most: usize) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid().chars().map(|c| match c {
            '\\' => "\\\\".into(),
            c if is_visible(c) => c.to_string(),
            c => c.escape_unicode().to_string(),
        });
        let invalid = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}"));
        for piece in valid.chain(invalid) {
            if text.len() + piece.len() > most {
                text.push('…');
                return text;
            }
            text.push_str(&piece);
        }
    }
    text
}

fn is_visible(c: char) -> bool {
    let turns_direction = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !(c.is_control() || turns_direction || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}'))
}

/// The text as HTML that shows it.
pub fn html(text: &str) -> String {
    escape(text, |c| match c {
        '&' => Some("&amp;"),
        '<' => Some("&lt;"),
        '>' => Some("&gt;"),
        '"' => Some("&quot;"),
        '\'' => Some("&#39;"),
        _ => None,
    })
}

/// The text as the value of a label in the Prometheus text format.
pub fn label(text: &str) -> String {
    escape(text, |c| match c {
        '\\' => Some("\\\\"),
        '"' => Some("\\\""),
        '\n' => Some("\\n"),
        _ => None,
    })
}

fn escape(text: &str, replacement: impl Fn(char) -> Option<&'static str>) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match replacement(c) {
            Some(replacement) => escaped.push_str(replacement),
            None => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_shown_is_escaped() {
        assert_eq!(visible("Grüße:日本".as_bytes(), 64), "Grüße:日本");
        assert_eq!(visible(b"a\xff\xc3b\t\\x\x7f", 64), "a\\xff\\xc3b\\u{9}\\\\x\\u{7f}");
        assert_eq!(visible("left\u{202e}thgir".as_bytes(), 64), "left\\u{202e}thgir");
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        assert_eq!(visible(b"abc", 3), "abc");
        assert_eq!(visible(b"abcd", 3), "abc…");
        assert_eq!(visible("aüü".as_bytes(), 4), "aü…");
        assert_eq!(visible(b"ab\xff", 5), "ab…");
        assert_eq!(visible(&[0xff; 1000], 64).len(), 64 + '…'.len_utf8());
    }

    #[test]
    fn markup_is_shown_as_it_is() {
        assert_eq!(html("<script>&\"'"), "&lt;script&gt;&amp;&quot;&#39;");
        assert_eq!(label("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
