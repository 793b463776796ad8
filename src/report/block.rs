//! Texts of several lines, such as bodies and errors, as people can read them: JSON indented, and other text as it is.

use poolcounter_core::text::lines_of;
use serde::Serialize;
use serde_json::Value;

/// Number of bytes of a text that are shown.
const SHOWN_BYTES: usize = 4096;
/// Longest JSON that is indented, in bytes; no more of any text is kept.
const JSON_BYTES: usize = 65_536;

/// The beginning of a text about a thing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    title: &'static str,
    /// At most [`JSON_BYTES`] of the text, which may be any bytes.
    beginning: Vec<u8>,
    /// Length of the whole text, in bytes.
    len: usize,
    /// True if only browsers on this machine are shown it.
    pub is_private: bool,
}

/// A text that is safe to show.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ShownBlock {
    /// Its heading, which says how many bytes there are if not all are shown.
    pub title: String,
    /// Its lines.
    pub text: String,
}

impl Block {
    /// Keeps as much of `bytes` as can be shown, at most 64 KiB.
    pub fn of(title: &'static str, bytes: &[u8], is_private: bool) -> Block {
        let beginning = bytes[..bytes.len().min(JSON_BYTES)].to_vec();
        Block { title, beginning, len: bytes.len(), is_private }
    }

    /// Returns the text as it is shown.
    pub fn shown(&self) -> ShownBlock {
        let Block { title, beginning, len, .. } = self;
        let json = (*len <= JSON_BYTES && matches!(beginning.first(), Some(b'{' | b'[')))
            .then(|| serde_json::from_slice::<Value>(beginning).ok())
            .flatten()
            .map(|value| serde_json::to_vec_pretty(&value).expect("a value of JSON has a text"));
        let bytes = json.as_deref().unwrap_or(beginning);
        let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
        let is_cut = shown.len() < bytes.len();
        let text = String::from_utf8_lossy(shown);
        // The cut can be in the midst of a character.
        let text = lines_of(if is_cut { text.trim_end_matches(char::REPLACEMENT_CHARACTER) } else { &text });
        let title = if is_cut { format!("{title}: the beginning of {len} bytes") } else { (*title).into() };
        ShownBlock { title, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &[u8]) -> ShownBlock {
        Block::of("Body", bytes, false).shown()
    }

    #[test]
    fn json_is_indented() {
        assert_eq!(shown(br#"{"a":[1,"<b>"]}"#).text, "{\n  \"a\": [\n    1,\n    \"<b>\"\n  ]\n}");
        assert_eq!(shown(b"{not json").text, "{not json");
    }

    #[test]
    fn a_title_has_the_length_of_what_was_sent() {
        let json = format!("[{}1]", "1,".repeat(1000));
        let block = shown(json.as_bytes());
        assert_eq!((&*block.title, block.text.len()), ("Body: the beginning of 2003 bytes", SHOWN_BYTES));
    }

    #[test]
    fn a_large_text_is_not_copied_whole() {
        let block = Block::of("Body", &vec![b'x'; 1 << 20], false);
        assert_eq!(block.beginning.len(), JSON_BYTES);
        assert_eq!(block.shown().title, "Body: the beginning of 1048576 bytes");
    }

    #[test]
    fn text_has_its_lines_and_no_control_characters() {
        assert_eq!(shown("a\n\tb\\ \u{1b}[1m\u{202e}é".as_bytes()).text, "a\n\tb\\ ␛[1m\\u{202e}é");
    }

    #[test]
    fn other_bytes_are_replaced() {
        assert_eq!(shown(b"GET /\xff\0").text, "GET /\u{fffd}␀");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let block = shown("é".repeat(2047).as_bytes());
        assert_eq!((&*block.title, block.text.len()), ("Body", 4094));
        let block = shown(["x", &"é".repeat(2048)].concat().as_bytes());
        assert_eq!((&*block.title, block.text.len()), ("Body: the beginning of 4097 bytes", 4095));
    }
}
