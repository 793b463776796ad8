//! Text of a counters conversation: frames in hexadecimal with quoted names, or in words that stand for a whole frame.
//! It shares no code with the daemon.

use super::pattern::Pattern;

/// Length of a header, in bytes.
pub const HEADER_BYTES: usize = 12;
/// Opaque value of frames that are written in words.
pub const OPAQUE: [u8; 4] = [0xde, 0xad, 0xbe, 0xef];

const VERBS: [(&str, u8); 7] = [
    ("noop", 0x00),
    ("get", 0x01),
    ("acquire", 0x02),
    ("release", 0x03),
    ("stats", 0x10),
    ("dump", 0x11),
    // Opcode of replies to unknown commands only.
    ("unknown", 0x12),
];

/// Every status but that of success, with its text.
pub const STATUSES: [(u8, &str); 6] = [
    (0x01, "Not found"),
    (0x04, "Invalid arguments"),
    (0x21, "Resource not available"),
    (0x22, "Not acquired"),
    (0x81, "Unknown command"),
    (0x82, "OutOfMemory"),
];

/// Returns a request with this body.
pub fn frame(opcode: u8, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).expect("tests are short");
    [&[0x90, opcode, 0, 0][..], &len.to_be_bytes(), &OPAQUE, body].concat()
}

/// Returns a request for units.
pub fn acquire(resources: u32, maximum: u32, name: &[u8]) -> Vec<u8> {
    frame(0x02, &[&resources.to_be_bytes()[..], &maximum.to_be_bytes(), &with_len(name)].concat())
}

/// Returns a request that releases units.
pub fn release(resources: u32, name: &[u8]) -> Vec<u8> {
    frame(0x03, &[&resources.to_be_bytes()[..], &with_len(name)].concat())
}

/// Returns a request for a consumption.
pub fn get(name: &[u8]) -> Vec<u8> {
    frame(0x01, &with_len(name))
}

/// Returns a request for every counter.
pub fn dump() -> Vec<u8> {
    frame(0x11, &[])
}

/// Returns a request for statistics.
pub fn stats() -> Vec<u8> {
    frame(0x10, &[])
}

/// Returns the whole replies, one after the other.
pub fn replies(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (reply, rest) = bytes.split_at(first_len(bytes)?);
        bytes = rest;
        Some(reply)
    })
}

/// Returns the value of one item of a Stats reply.
pub fn stat(reply: &[u8], name: &str) -> u64 {
    let mut rest = &reply[HEADER_BYTES..];
    while let [a, b, c, d, items @ ..] = rest {
        let (own, value) = items.split_at(usize::from(u16::from_be_bytes([*a, *b])));
        let (value, behind) = value.split_at(usize::from(u16::from_be_bytes([*c, *d])));
        if own == name.as_bytes() {
            return std::str::from_utf8(value).ok().and_then(|value| value.parse().ok()).expect("a number");
        }
        rest = behind;
    }
    panic!("{name} is not in {}", describe(reply))
}

/// Returns the consumption, the maximum and the name in one reply to a Dump; None at its end.
pub fn record(reply: &[u8]) -> Option<(u32, u32, &[u8])> {
    let [a, b, c, d, e, f, g, h, _, _, name @ ..] = &reply[HEADER_BYTES..] else { return None };
    Some((u32::from_be_bytes([*a, *b, *c, *d]), u32::from_be_bytes([*e, *f, *g, *h]), name))
}

/// Returns the length of the frame at the front, if all of it is there.
pub fn first_len(bytes: &[u8]) -> Option<usize> {
    let [_, _, _, _, a, b, c, d, ..] = *bytes else { return None };
    let len = HEADER_BYTES + u32::from_be_bytes([a, b, c, d]) as usize;
    (bytes.len() >= len).then_some(len)
}

/// Returns the bytes of a request: `acquire 3 of 10 "foo"`, or in hexadecimal.
pub fn request(text: &str) -> Result<Vec<u8>, String> {
    let words = split(text)?;
    let Some((verb, rest)) = words.split_first() else { return Ok(Vec::new()) };
    match (verb.as_str(), rest) {
        ("noop", []) => Ok(frame(0x00, &[])),
        ("stats", []) => Ok(stats()),
        ("dump", []) => Ok(dump()),
        ("get", [name]) => Ok(get(&read_bytes(name)?)),
        ("release", [resources, name]) => Ok(release(read_number(resources)?, &read_bytes(name)?)),
        ("acquire", [resources, of, maximum, name]) if of == "of" => {
            Ok(acquire(read_number(resources)?, read_number(maximum)?, &read_bytes(name)?))
        }
        _ => Ok(words.iter().map(|word| read_bytes(word)).collect::<Result<Vec<_>, _>>()?.concat()),
    }
}

/// Returns the pattern of a reply: `acquire: 3`, `get: Not found`, `dump: 0 3 "foo"`, or in hexadecimal. `*` stands for
/// any bytes.
pub fn reply(text: &str) -> Result<Pattern, String> {
    let verb = text.split_once(": ").and_then(|(verb, result)| {
        let (_, opcode) = VERBS.iter().find(|(name, _)| *name == verb)?;
        Some((*opcode, result))
    });
    let Some((opcode, result)) = verb else { return read_pattern(&split(text)?) };
    if let Some((status, text)) = STATUSES.iter().find(|(_, text)| *text == result) {
        return Ok(Pattern(vec![reply_frame(opcode, *status, text.as_bytes())]));
    }
    let words = split(result)?;
    let body = match (opcode, &words[..]) {
        (0x10, items) => return read_stats(items),
        (_, [ok]) if ok == "ok" => Vec::new(),
        (0x01 | 0x02, [number]) => read_number(number)?.to_be_bytes().to_vec(),
        (0x11, [consumption, peak, name]) => {
            let (consumption, peak) = (read_number(consumption)?, read_number(peak)?);
            [&consumption.to_be_bytes()[..], &peak.to_be_bytes(), &with_len(&read_bytes(name)?)].concat()
        }
        _ => return Err(format!("\"{result}\" is no such reply")),
    };
    Ok(Pattern(vec![reply_frame(opcode, 0, &body)]))
}

/// Returns frames as people read them: words of four bytes, then the text in quotes.
pub fn describe(bytes: &[u8]) -> String {
    let words: Vec<String> =
        bytes.chunks(4).map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    format!("{} ({})", words.join(" "), bytes.escape_ascii())
}

/// Returns the items of a Stats reply, each as `name=value`, where `*` stands for any value.
fn read_stats(items: &[String]) -> Result<Pattern, String> {
    let mut pieces = Vec::new();
    let mut piece = Vec::new();
    for item in items {
        let (name, value) = item.split_once('=').ok_or_else(|| format!("\"{item}\" is no name=value"))?;
        piece.extend(len_of(name));
        if value == "*" {
            pieces.extend([std::mem::take(&mut piece), name.into()]);
        } else {
            piece.extend([&len_of(value)[..], name.as_bytes(), value.as_bytes()].concat());
        }
    }
    if pieces.is_empty() {
        return Ok(Pattern(vec![reply_frame(0x10, 0, &piece)]));
    }
    pieces.push(piece);
    pieces[0].splice(0..0, OPAQUE);
    pieces.insert(0, vec![0x91, 0x10, 0, 0]);
    Ok(Pattern(pieces))
}

fn reply_frame(opcode: u8, status: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = frame(opcode, body);
    frame[0] = 0x91;
    frame[2] = status;
    frame
}

fn with_len(name: &[u8]) -> Vec<u8> {
    let len = u16::try_from(name.len()).expect("names of tests are short enough");
    [&len.to_be_bytes()[..], name].concat()
}

fn len_of(text: &str) -> [u8; 2] {
    u16::try_from(text.len()).expect("is short").to_be_bytes()
}

/// Returns the words of a text. Spaces in quotes separate none.
fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = vec![String::new()];
    let mut is_quoted = false;
    for c in text.chars() {
        is_quoted ^= c == '"';
        match words.last_mut() {
            Some(word) if c != ' ' || is_quoted => word.push(c),
            _ => words.push(String::new()),
        }
    }
    words.retain(|word| !word.is_empty());
    if is_quoted { Err("a quote does not end".into()) } else { Ok(words) }
}

fn read_number(word: &str) -> Result<u32, String> {
    word.parse().map_err(|_| format!("\"{word}\" is no number of 32 bits"))
}

fn read_pattern(words: &[String]) -> Result<Pattern, String> {
    let pieces = words.split(|word| word == "*");
    let read =
        |piece: &[String]| Ok(piece.iter().map(|word| read_bytes(word)).collect::<Result<Vec<_>, _>>()?.concat());
    Ok(Pattern(pieces.map(read).collect::<Result<_, String>>()?))
}

/// Returns the bytes of `"foo"`, `00ff`, or `{ff*1000}`.
fn read_bytes(word: &str) -> Result<Vec<u8>, String> {
    if let Some(inside) = word.strip_prefix('{').and_then(|word| word.strip_suffix('}')) {
        let (what, times) = inside.rsplit_once('*').ok_or("repeated bytes are written {ff*1000}")?;
        let times = times.parse().map_err(|_| format!("\"{times}\" is no number"))?;
        return Ok(read_bytes(what)?.repeat(times));
    }
    if let Some(text) = word.strip_prefix('"').and_then(|word| word.strip_suffix('"')) {
        return Ok(text.as_bytes().to_vec());
    }
    let pair = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let is_hex = word.len().is_multiple_of(2) && word.bytes().all(|digit| digit.is_ascii_hexdigit());
    let bytes: Option<Vec<u8>> = if is_hex { word.as_bytes().chunks(2).map(pair).collect() } else { None };
    bytes.ok_or_else(|| format!("\"{word}\" is neither hexadecimal nor quoted"))
}
