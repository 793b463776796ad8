//! Protocols of the clients and the servers of a case: lines of text, as of the pools and the members, the frames of
//! the counters, or the protocol of the jobs.

/// Bytes of a frame before its body.
const HEADER_BYTES: usize = 12;
const REQUEST_MAGIC: u8 = 0x90;
const REPLY_MAGIC: u8 = 0x91;
const NOOP: u8 = 0x00;
const GET: u8 = 0x01;
const ACQUIRE: u8 = 0x02;
const RELEASE: u8 = 0x03;
const DUMP: u8 = 0x11;
/// Replies of the jobs that are followed by a body.
const WITH_BODY: [&[u8]; 3] = [b"RESERVED ", b"FOUND ", b"OK "];
/// Reply of the bare limit to a reserve, with a body as long as in the cases.
const RESERVED: &[u8] = b"RESERVED 1000000 100\r\n";
/// Maximum of each counter: more than any case acquires.
const MAXIMUM: u32 = 1_000_000;

/// Framing of requests and replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// One line each, of the pools.
    Lines,
    /// One line each, of the members.
    Members,
    /// Header, with the length of the body that follows.
    Frames,
    /// Line, whose last word is the length of the body that follows if there is one.
    Jobs,
}

impl Protocol {
    /// Returns the length of the reply, or frame, at the front of the bytes; None when it is incomplete.
    pub fn len(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Protocol::Lines | Protocol::Members => Some(bytes.iter().position(|byte| *byte == b'\n')? + 1),
            Protocol::Jobs => {
                let line = &bytes[..bytes.iter().position(|byte| *byte == b'\n')? + 1];
                with_body(line, bytes.len(), WITH_BODY.iter().any(|word| line.starts_with(word)))
            }
            Protocol::Frames => {
                let body_bytes = bytes.get(4..8)?.try_into().map(u32::from_be_bytes).ok()?;
                Some(HEADER_BYTES + body_bytes as usize).filter(|len| *len <= bytes.len())
            }
        }
    }

    /// Returns the length of the request at the front of the bytes; None when it is incomplete.
    pub fn request_len(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Protocol::Jobs => {
                let line = &bytes[..bytes.iter().position(|byte| *byte == b'\n')? + 1];
                with_body(line, bytes.len(), line.starts_with(b"put"))
            }
            _ => self.len(bytes),
        }
    }
}

/// Returns the length of a line with its body, if it has one; None when it is incomplete.
fn with_body(line: &[u8], there: usize, has_body: bool) -> Option<usize> {
    if !has_body {
        return Some(line.len());
    }
    let last = line.trim_ascii_end().rsplit(|byte| *byte == b' ').next()?;
    let body_bytes: usize = std::str::from_utf8(last).ok()?.parse().ok()?;
    Some(line.len() + body_bytes + 2).filter(|len| *len <= there)
}

/// Returns a request that changes nothing.
pub fn noop() -> Vec<u8> {
    request(NOOP, &[])
}

/// Returns a request for a unit.
pub fn acquire(name: &[u8]) -> Vec<u8> {
    let (resources, name) = (1_u32.to_be_bytes(), text(name));
    request(ACQUIRE, &[&resources, &MAXIMUM.to_be_bytes(), &name])
}

/// Returns a request that releases a unit.
pub fn release(name: &[u8]) -> Vec<u8> {
    request(RELEASE, &[&1_u32.to_be_bytes(), &text(name)])
}

/// Returns a request for a counter's consumption.
pub fn get(name: &[u8]) -> Vec<u8> {
    request(GET, &[&text(name)])
}

/// Returns a request for every counter.
pub fn dump() -> Vec<u8> {
    request(DUMP, &[])
}

/// Returns whether a reply has the status of success.
pub fn is_success(reply: &[u8]) -> bool {
    reply[0] == REPLY_MAGIC && reply[2] == 0
}

/// Returns whether the number in a reply is zero.
pub fn is_zero(reply: &[u8]) -> bool {
    is_success(reply) && reply[HEADER_BYTES..] == [0; 4]
}

/// Returns whether a reply has no body, as the last one of a Dump.
pub fn is_empty(reply: &[u8]) -> bool {
    reply.len() == HEADER_BYTES
}

/// Adds the reply of the bare limit to a request for jobs.
pub fn answer_job(request: &[u8], replies: &mut Vec<u8>) {
    match request[0] {
        b'p' => replies.extend_from_slice(b"INSERTED 1000000\r\n"),
        b'r' => {
            replies.extend_from_slice(RESERVED);
            replies.extend_from_slice(&[b'x'; 100]);
            replies.extend_from_slice(b"\r\n");
        }
        b'd' => replies.extend_from_slice(b"DELETED\r\n"),
        b'w' => replies.extend_from_slice(b"WATCHING 1\r\n"),
        _ => replies.extend_from_slice(b"USING default\r\n"),
    }
}

/// Adds the reply of the bare limit to any frame, as to a successful acquire or release.
pub fn answer(request: &[u8], replies: &mut Vec<u8>) {
    let body_bytes = if request[1] == ACQUIRE { 4 } else { 0 };
    replies.extend_from_slice(&[REPLY_MAGIC, request[1], 0, 0, 0, 0, 0, body_bytes]);
    replies.extend_from_slice(&request[8..HEADER_BYTES]);
    if request[1] == ACQUIRE {
        replies.extend_from_slice(&request[HEADER_BYTES..HEADER_BYTES + 4]);
    }
}

fn text(name: &[u8]) -> Vec<u8> {
    [&(name.len() as u16).to_be_bytes(), name].concat()
}

fn request(opcode: u8, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let opaque = *b"mark";
    [&[REQUEST_MAGIC, opcode, 0, 0][..], &(body.len() as u32).to_be_bytes(), &opaque, &body].concat()
}
