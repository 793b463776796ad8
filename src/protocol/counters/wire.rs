//! The yrmcds counter protocol: frames to requests, replies to frames. It does not know the counters.
//!
//! A frame is a header of 12 bytes (magic, opcode, flags or status, reserved, body length, opaque) and its body. All
//! numbers are big-endian. A reply carries the opaque bytes of its request.

use super::commands::Opcode;
use super::request::{AcquireUnits, CounterRecord, CounterRefusal, ReleaseUnits};
use crate::counters::stats::CounterStat as Stat;
use poolcounter_core::Figures;

pub mod client;

/// Length of a header in bytes.
pub const HEADER_BYTES: usize = 12;
/// Longest body; no request needs a longer one.
pub const MAX_BODY_BYTES: usize = 1024 * 1024;
/// Length of the part of a body that is read: the fields of the longest request, and the longest name. The rest is
/// ignored.
pub const FIELDS_BYTES: usize = 4 + 4 + 2 + u16::MAX as usize;

/// Offset of the status in the header of a reply.
pub const STATUS_OFFSET: usize = 2;

const REQUEST_MAGIC: u8 = 0x90;
const REPLY_MAGIC: u8 = 0x91;
const OK: u8 = 0x00;

/// Opcode of the reply to an unknown opcode.
const UNKNOWN: u8 = 0x12;

/// A request of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CounterRequest<'a> {
    /// Noop.
    Noop,
    /// Consumption of the counter with this name.
    Get(&'a [u8]),
    /// Request for units.
    Acquire(AcquireUnits<'a>),
    /// Release of units.
    Release(ReleaseUnits<'a>),
    /// Statistics.
    Stats,
    /// Every counter.
    Dump,
}

/// Reason for which a frame is no request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// The body is too short for its fields, a field has a forbidden value, or the magic is wrong.
    Invalid,
    /// The opcode does not exist.
    UnknownCommand,
    /// The body is longer than [`MAX_BODY_BYTES`]: the connection ends.
    TooLong,
}

/// Header of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// True if it begins with the magic of a request.
    pub is_request: bool,
    /// Opcode, as received.
    pub opcode: u8,
    /// Length of the body in bytes.
    pub body_bytes: usize,
    /// Bytes that the reply repeats.
    pub opaque: [u8; 4],
}

impl Header {
    /// Returns the header at the front of the input; None if it is incomplete.
    pub fn parse(input: &[u8]) -> Option<Header> {
        let [magic, opcode, _flags, _reserved, a, b, c, d, opaque @ ..] = input.first_chunk::<HEADER_BYTES>()?;
        Some(Header {
            is_request: *magic == REQUEST_MAGIC,
            opcode: *opcode,
            body_bytes: u32::from_be_bytes([*a, *b, *c, *d]) as usize,
            opaque: *opaque,
        })
    }

    /// Returns the request of this header and its body. The first [`FIELDS_BYTES`] of a long body are enough.
    ///
    /// # Errors
    ///
    /// Fails if they are no request.
    pub fn request<'a>(&self, body: &'a [u8]) -> Result<CounterRequest<'a>, Malformed> {
        if self.body_bytes > MAX_BODY_BYTES {
            return Err(Malformed::TooLong);
        }
        if !self.is_request {
            return Err(Malformed::Invalid);
        }
        let mut fields = BodyFields(body);
        let request = match Opcode::of(self.opcode).ok_or(Malformed::UnknownCommand)? {
            Opcode::Noop => Some(CounterRequest::Noop),
            Opcode::Stats => Some(CounterRequest::Stats),
            Opcode::Dump => Some(CounterRequest::Dump),
            Opcode::Get => fields.name().map(CounterRequest::Get),
            Opcode::Acquire => fields.acquire().map(CounterRequest::Acquire),
            Opcode::Release => fields.release().map(CounterRequest::Release),
        };
        request.ok_or(Malformed::Invalid)
    }
}

/// Rest of a body.
struct BodyFields<'a>(&'a [u8]);

impl<'a> BodyFields<'a> {
    fn u16(&mut self) -> Option<u16> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u16::from_be_bytes(*number))
    }

    fn u32(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*number))
    }

    fn name(&mut self) -> Option<&'a [u8]> {
        let len = self.u16()?;
        self.0.get(..usize::from(len)).filter(|name| !name.is_empty())
    }

    fn acquire(&mut self) -> Option<AcquireUnits<'a>> {
        let (resources, maximum) = (self.u32()?, self.u32()?);
        let name = self.name()?;
        (0 < resources && resources <= maximum).then_some(AcquireUnits { name, resources, maximum })
    }

    fn release(&mut self) -> Option<ReleaseUnits<'a>> {
        let resources = self.u32()?;
        Some(ReleaseUnits { name: self.name()?, resources })
    }
}

fn head(header: &Header, status: u8, body_bytes: u32) -> [u8; HEADER_BYTES] {
    let [a, b, c, d] = body_bytes.to_be_bytes();
    let [e, f, g, h] = header.opaque;
    [REPLY_MAGIC, header.opcode, status, 0, a, b, c, d, e, f, g, h]
}

/// Writes a reply whose body `write` appends.
pub fn write_reply(bytes: &mut Vec<u8>, header: &Header, status: u8, write: impl FnOnce(&mut Vec<u8>)) {
    let start = bytes.len();
    bytes.extend_from_slice(&head(header, status, 0));
    write(bytes);
    let body_bytes =
        u32::try_from(bytes.len() - start - HEADER_BYTES).expect("no body is longer than a connection's output");
    bytes[start + 4..start + 8].copy_from_slice(&body_bytes.to_be_bytes());
}

/// Writes the reply to a successful request without a result.
pub fn write_ok(bytes: &mut Vec<u8>, header: &Header) {
    bytes.extend_from_slice(&head(header, OK, 0));
}

/// Writes the reply to a successful request with one number as its result.
pub fn write_number(bytes: &mut Vec<u8>, header: &Header, number: u32) {
    let mut frame = [0; HEADER_BYTES + 4];
    frame[..HEADER_BYTES].copy_from_slice(&head(header, OK, 4));
    frame[HEADER_BYTES..].copy_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&frame);
}

/// Writes the reply to a refused request.
pub fn write_refusal(bytes: &mut Vec<u8>, header: &Header, refusal: CounterRefusal) {
    let (status, text) = code_of(refusal);
    write_reply(bytes, header, status, |body| body.extend_from_slice(text.as_bytes()));
}

/// Returns the status and the text of a refusal.
fn code_of(refusal: CounterRefusal) -> (u8, &'static str) {
    match refusal {
        CounterRefusal::NotFound => (0x01, "Not found"),
        CounterRefusal::NotAvailable => (0x21, "Resource not available"),
        CounterRefusal::NotAcquired => (0x22, "Not acquired"),
        CounterRefusal::OutOfMemory => (0x82, "OutOfMemory"),
        // yrmcds does not have these. All numbers are from memcached's binary protocol.
        CounterRefusal::Denied => (0x20, "Access denied"),
        CounterRefusal::Limited => (0x86, "Too many requests"),
    }
}

/// Writes the reply to a frame that is no request.
pub fn write_malformed(bytes: &mut Vec<u8>, header: &Header, malformed: Malformed) {
    let (opcode, status, text) = match malformed {
        Malformed::Invalid | Malformed::TooLong => (header.opcode, 0x04, "Invalid arguments"),
        Malformed::UnknownCommand => (UNKNOWN, 0x81, "Unknown command"),
    };
    write_reply(bytes, &Header { opcode, ..*header }, status, |body| body.extend_from_slice(text.as_bytes()));
}

/// Writes one of the replies to a Dump.
pub fn write_record(bytes: &mut Vec<u8>, header: &Header, record: &CounterRecord<'_>) {
    write_reply(bytes, header, OK, |body| {
        body.extend_from_slice(&record.consumption.to_be_bytes());
        body.extend_from_slice(&record.peak.to_be_bytes());
        write_text(body, record.name);
    });
}

/// Writes the reply to Stats.
pub fn write_stats(bytes: &mut Vec<u8>, header: &Header, figures: &Figures<Stat>) {
    write_reply(bytes, header, OK, |body| {
        for (row, value) in figures.rows() {
            let value = value.to_string();
            body.extend_from_slice(&(row.name.len() as u16).to_be_bytes());
            body.extend_from_slice(&(value.len() as u16).to_be_bytes());
            body.extend_from_slice(row.name.as_bytes());
            body.extend_from_slice(value.as_bytes());
        }
    });
}

fn write_text(bytes: &mut Vec<u8>, text: &[u8]) {
    let len = u16::try_from(text.len()).expect("names come in frames whose length field is as wide");
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(|byte| *byte != b' ').collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("is ASCII"), 16).expect("is hex");
        digits.chunks(2).map(byte).collect()
    }

    fn frame(head: &str, body: &str) -> Vec<u8> {
        [bytes_of(head), body.as_bytes().to_vec()].concat()
    }

    fn header(opcode: u8) -> Header {
        let frame = [0x90, opcode, 0, 0, 0, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef];
        Header::parse(&frame).expect("is a header")
    }

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes);
        bytes
    }

    #[test]
    fn replies_are_those_of_the_specification() {
        let replies = [
            (written(|bytes| write_ok(bytes, &header(0))), frame("91000000 00000000 deadbeef", "")),
            (
                written(|bytes| write_refusal(bytes, &header(1), CounterRefusal::NotFound)),
                frame("91010100 00000009 deadbeef", "Not found"),
            ),
            (written(|bytes| write_number(bytes, &header(2), 3)), frame("91020000 00000004 deadbeef 00000003", "")),
            (
                written(|bytes| write_refusal(bytes, &header(2), CounterRefusal::NotAvailable)),
                frame("91022100 00000016 deadbeef", "Resource not available"),
            ),
            (
                written(|bytes| write_refusal(bytes, &header(3), CounterRefusal::NotAcquired)),
                frame("91032200 0000000c deadbeef", "Not acquired"),
            ),
            (
                written(|bytes| write_malformed(bytes, &header(1), Malformed::Invalid)),
                frame("91010400 00000011 deadbeef", "Invalid arguments"),
            ),
            (
                written(|bytes| write_malformed(bytes, &header(4), Malformed::UnknownCommand)),
                frame("91128100 0000000f deadbeef", "Unknown command"),
            ),
            (
                written(|bytes| {
                    write_record(bytes, &header(0x11), &CounterRecord { name: b"foo", consumption: 0, peak: 3 });
                }),
                frame("91110000 0000000d deadbeef 00000000 00000003 0003", "foo"),
            ),
            (written(|bytes| write_ok(bytes, &header(0x11))), frame("91110000 00000000 deadbeef", "")),
        ];
        for (written, specified) in replies {
            assert_eq!(written, specified, "{} {}", written.escape_ascii(), specified.escape_ascii());
        }
    }

    #[test]
    fn requests_have_their_fields() {
        let acquire = bytes_of("00000003 0000000a 0003 666f6f ffff");
        let wanted = AcquireUnits { name: b"foo", resources: 3, maximum: 10 };
        assert_eq!(header(2).request(&acquire), Ok(CounterRequest::Acquire(wanted)));
        let release = bytes_of("00000000 0001 6b");
        assert_eq!(header(3).request(&release), Ok(CounterRequest::Release(ReleaseUnits { name: b"k", resources: 0 })));
        assert_eq!(header(1).request(&bytes_of("0002 6b6b6b")), Ok(CounterRequest::Get(b"kk")));
        assert_eq!(header(0x10).request(b"anything"), Ok(CounterRequest::Stats));
    }

    #[test]
    fn malformed_frames_are_distinguished() {
        for (opcode, body) in [
            (1, ""),
            (1, "00"),
            (1, "0000"),
            (1, "0002 6b"),
            (2, "00000000 0000000a 0001 6b"),
            (2, "0000000b 0000000a 0001 6b"),
            (2, "00000001 0000000a 0000"),
            (2, "00000001 00000001 00"),
            (3, "00000001"),
            (3, "00000001 0000"),
        ] {
            assert_eq!(header(opcode).request(&bytes_of(body)), Err(Malformed::Invalid), "{opcode} {body}");
        }
        assert_eq!(header(4).request(b""), Err(Malformed::UnknownCommand));
        let foreign = Header { is_request: false, ..header(0) };
        assert_eq!(foreign.request(b""), Err(Malformed::Invalid));
        let endless = Header { body_bytes: MAX_BODY_BYTES + 1, ..header(0) };
        assert_eq!(endless.request(b""), Err(Malformed::TooLong));
        assert_eq!(Header::parse(&[0x90; 11]), None);
    }
}
