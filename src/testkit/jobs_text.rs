//! The text of a jobs conversation: lines that end in CR LF, with bodies.

use super::lines;
use super::pattern::Pattern;
use std::collections::VecDeque;

const CRLF: &[u8] = b"\r\n";

/// Returns the request that `text` describes, with its end.
pub fn request(text: &str) -> Result<Vec<u8>, String> {
    Ok([&lines::unescape(text)?, CRLF].concat())
}

/// Returns the pattern of a reply without its end, in which `*` stands for any text. `OK: a; b` is an OK whose lines
/// include a and b.
pub fn reply(text: &str) -> Result<Pattern, String> {
    let Some(lines) = text.strip_prefix("OK: ") else { return lines::pattern(text) };
    let mut pieces = vec![b"OK ".to_vec()];
    for line in lines.split("; ") {
        let mut parts = lines::unescape(line)?.split(|byte| *byte == b'*').map(<[u8]>::to_vec).collect::<Vec<_>>();
        parts.last_mut().expect("a split has a part").push(b'\n');
        pieces.extend(parts);
    }
    pieces.push(Vec::new());
    Ok(Pattern(pieces))
}

/// Takes the first whole reply from the received bytes: a line, and the body that it announces, without the end.
pub fn take_reply(received: &mut VecDeque<u8>) -> Option<Vec<u8>> {
    let bytes = received.make_contiguous();
    let head = bytes.windows(CRLF.len()).position(|two| two == CRLF)?;
    let line = String::from_utf8_lossy(&bytes[..head]);
    let mut words = line.split(' ');
    let body = match words.next() {
        Some("OK" | "RESERVED" | "FOUND") => words.next_back()?.parse().ok().map(|len: usize| CRLF.len() + len),
        _ => None,
    };
    let end = head + body.unwrap_or(0);
    if bytes.len() < end + CRLF.len() {
        return None;
    }
    let reply = received.drain(..end).collect();
    received.drain(..CRLF.len());
    Some(reply)
}

/// Takes the first whole reply from the received bytes, as text with a space before its body.
pub fn take_text(received: &mut VecDeque<u8>) -> Option<String> {
    let reply = take_reply(received)?;
    Some(String::from_utf8_lossy(&reply).replacen("\r\n", " ", 1).trim_end().into())
}
