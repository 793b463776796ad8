//! Text as markup.

use std::borrow::Cow;

/// Returns the text escaped for HTML.
pub fn html(text: &str) -> Cow<'_, str> {
    escape(text, |byte| match byte {
        b'&' => Some("&amp;"),
        b'<' => Some("&lt;"),
        b'>' => Some("&gt;"),
        b'"' => Some("&quot;"),
        b'\'' => Some("&#39;"),
        _ => None,
    })
}

/// Returns the text escaped for the value of a label in the Prometheus text format.
pub fn label(text: &str) -> Cow<'_, str> {
    escape(text, |byte| match byte {
        b'\\' => Some("\\\\"),
        b'"' => Some("\\\""),
        b'\n' => Some("\\n"),
        _ => None,
    })
}

/// Returns the text with some ASCII characters replaced. Most texts have none of them.
fn escape(text: &str, replacement: impl Fn(u8) -> Option<&'static str>) -> Cow<'_, str> {
    let (mut escaped, mut copied) = (String::new(), 0);
    for (at, byte) in text.bytes().enumerate() {
        if let Some(replacement) = replacement(byte) {
            escaped.extend([&text[copied..at], replacement]);
            copied = at + 1;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    escaped.push_str(&text[copied..]);
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_shown_as_it_is() {
        assert_eq!(html("<script>&\"'"), "&lt;script&gt;&amp;&quot;&#39;");
        assert_eq!(html("é<日"), "é&lt;日");
        assert!(matches!(html("日本語"), Cow::Borrowed("日本語")));
        assert_eq!(label("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
