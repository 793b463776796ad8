//! The text of a pools conversation: lines, with escapes for the bytes that have no letter.

use super::pattern::Pattern;

/// Returns the line that `text` describes, with its line feed.
pub fn line(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = unescape(text)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Returns the pattern of a line without its line feed, in which `*` stands for any text.
pub fn pattern(text: &str) -> Result<Pattern, String> {
    Ok(Pattern(unescape(text)?.split(|byte| *byte == b'*').map(<[u8]>::to_vec).collect()))
}

/// Returns the rows of a table of requests: the word before each, such as its service, and its bytes. Prose begins with
/// "#".
pub fn rows(table: &'static str) -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    table.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (word, text) = line.split_once(' ').expect("a row has a request");
        (word, unescape(text).unwrap_or_else(|wrong| panic!("{line}: {wrong}")))
    })
}

/// Replaces `\n \r \t \0 \\ \xNN` by the bytes that they stand for, and `{k*900}` by 900 times `k`.
pub fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '\\' => bytes.push(read_escape(&mut rest)?),
            '{' => {
                let wrong = || "repeated text is written {k*900}".to_string();
                let (inside, behind) = rest.split_once('}').ok_or_else(wrong)?;
                let (what, times) = inside.rsplit_once('*').ok_or_else(wrong)?;
                bytes.extend_from_slice(what.repeat(times.parse().map_err(|_| wrong())?).as_bytes());
                rest = behind;
            }
            c => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Ok(bytes)
}

/// Reads the escape sequence after a backslash.
fn read_escape(rest: &mut &str) -> Result<u8, String> {
    let (byte, len) = match rest.as_bytes() {
        [b'n', ..] => (b'\n', 1),
        [b'r', ..] => (b'\r', 1),
        [b't', ..] => (b'\t', 1),
        [b'0', ..] => (0, 1),
        [b'\\', ..] => (b'\\', 1),
        [b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            (u8::from_str_radix(&rest[1..3], 16).map_err(|error| error.to_string())?, 3)
        }
        _ => return Err(format!("\"\\{}\" is no escape", rest.chars().next().unwrap_or_default())),
    };
    *rest = &rest[len..];
    Ok(byte)
}
