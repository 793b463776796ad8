//! The client's side of the protocol: requests to frames, frames to replies. The server has the same codes and texts.

use super::{CounterRequest, FIELDS_BYTES, HEADER_BYTES, OK, REPLY_MAGIC, REQUEST_MAGIC, UNKNOWN, code_of, write_text};
use crate::counters::commands::Opcode;
use crate::counters::request::{AcquireUnits, CounterRecord, CounterRefusal, ReleaseUnits};
use crate::counters::stats::CounterStat as Stat;
use poolcounter_core::{Figures, Stat as _};

/// Opaque bytes of requests. A client makes one request at a time, so it need not tell replies apart.
const OPAQUE: [u8; 4] = [0; 4];

const REFUSALS: [CounterRefusal; 4] =
    [CounterRefusal::NotFound, CounterRefusal::NotAvailable, CounterRefusal::NotAcquired, CounterRefusal::OutOfMemory];

/// Header of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyHeader {
    /// Length of the body in bytes.
    pub body_bytes: usize,
    status: u8,
}

/// Content of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CounterReply<'a> {
    /// The request succeeded; with the body, whose content depends on the request.
    Success(&'a [u8]),
    /// The request was understood and fails.
    Refusal(CounterRefusal),
    /// The request was not understood, with this status and these words.
    Malformed(u8, &'a [u8]),
}

/// Writes a request, whose name must have 1 to 65535 bytes.
///
/// # Panics
///
/// Panics if its name is longer.
pub fn write_request(bytes: &mut Vec<u8>, request: &CounterRequest<'_>) {
    let start = bytes.len();
    bytes.extend_from_slice(&[REQUEST_MAGIC, opcode_of(request).byte(), 0, 0, 0, 0, 0, 0]);
    bytes.extend_from_slice(&OPAQUE);
    match request {
        CounterRequest::Noop | CounterRequest::Stats | CounterRequest::Dump => {}
        CounterRequest::Get(name) => write_text(bytes, name),
        CounterRequest::Acquire(AcquireUnits { name, resources, maximum }) => {
            bytes.extend_from_slice(&resources.to_be_bytes());
            bytes.extend_from_slice(&maximum.to_be_bytes());
            write_text(bytes, name);
        }
        CounterRequest::Release(ReleaseUnits { name, resources }) => {
            bytes.extend_from_slice(&resources.to_be_bytes());
            write_text(bytes, name);
        }
    }
    let body_bytes = u32::try_from(bytes.len() - start - HEADER_BYTES).expect("two numbers and a name are short");
    bytes[start + 4..start + 8].copy_from_slice(&body_bytes.to_be_bytes());
}

fn opcode_of(request: &CounterRequest<'_>) -> Opcode {
    match request {
        CounterRequest::Noop => Opcode::Noop,
        CounterRequest::Get(_) => Opcode::Get,
        CounterRequest::Acquire(_) => Opcode::Acquire,
        CounterRequest::Release(_) => Opcode::Release,
        CounterRequest::Stats => Opcode::Stats,
        CounterRequest::Dump => Opcode::Dump,
    }
}

impl ReplyHeader {
    /// Returns the header of the reply to `request`; None if it is no reply, or its body is too long.
    pub fn parse(header: &[u8; HEADER_BYTES], request: &CounterRequest<'_>) -> Option<ReplyHeader> {
        let [magic, opcode, status, _reserved, a, b, c, d, opaque @ ..] = *header;
        let body_bytes = u32::from_be_bytes([a, b, c, d]) as usize;
        // A connection that is refused at its start gets the refusal of a Noop.
        let refuses_any = status != OK && [UNKNOWN, Opcode::Noop.byte()].contains(&opcode);
        let answers = opcode == opcode_of(request).byte() || refuses_any;
        let is_reply = magic == REPLY_MAGIC && answers && opaque == OPAQUE && body_bytes <= FIELDS_BYTES;
        is_reply.then_some(ReplyHeader { body_bytes, status })
    }

    /// Returns the reply with this header and this body.
    pub fn answer<'a>(&self, body: &'a [u8]) -> CounterReply<'a> {
        if self.status == OK {
            return CounterReply::Success(body);
        }
        let refusal = REFUSALS.into_iter().find(|refusal| code_of(*refusal).0 == self.status);
        refusal.map_or(CounterReply::Malformed(self.status, body), CounterReply::Refusal)
    }
}

/// Returns the text of a refusal for people: `21 Resource not available`.
pub fn describe(refusal: CounterRefusal) -> String {
    let (status, words) = code_of(refusal);
    describe_status(status, words.as_bytes())
}

/// Returns the text of a status and its words, in the same form.
pub fn describe_status(status: u8, words: &[u8]) -> String {
    format!("{status:02x} {}", String::from_utf8_lossy(words))
}

/// Returns the number in the body of a reply to Get or Acquire.
pub fn parse_number(body: &[u8]) -> Option<u32> {
    body.try_into().map(u32::from_be_bytes).ok()
}

/// Returns the counter in the body of a reply to Dump.
pub fn parse_record(body: &[u8]) -> Option<CounterRecord<'_>> {
    let mut fields = super::BodyFields(body);
    Some(CounterRecord { consumption: fields.u32()?, peak: fields.u32()?, name: fields.name()? })
}

/// Returns the statistics in the body of a reply to Stats. Unknown statistics are skipped.
pub fn parse_stats(body: &[u8]) -> Option<Figures<Stat>> {
    let mut figures = Figures::default();
    let mut fields = super::BodyFields(body);
    while !fields.0.is_empty() {
        let (name_bytes, value_bytes) = (fields.u16()?, fields.u16()?);
        let (name, rest) = fields.0.split_at_checked(name_bytes.into())?;
        let (value, rest) = rest.split_at_checked(value_bytes.into())?;
        fields.0 = rest;
        if let Some(stat) = Stat::ALL.iter().find(|stat| stat.row().name.as_bytes() == name) {
            figures.set(*stat, std::str::from_utf8(value).ok()?.parse().ok()?);
        }
    }
    Some(figures)
}

#[cfg(test)]
mod tests {
    use super::super::{Header, Malformed, write_malformed, write_number, write_ok, write_record, write_refusal};
    use super::*;

    const REQUESTS: [CounterRequest<'_>; 6] = [
        CounterRequest::Noop,
        CounterRequest::Get(b"k"),
        CounterRequest::Acquire(AcquireUnits { name: b"\0\xff", resources: 3, maximum: 10 }),
        CounterRequest::Release(ReleaseUnits { name: b"k", resources: 3 }),
        CounterRequest::Stats,
        CounterRequest::Dump,
    ];

    /// Returns the header of a request, as the server reads it, and its body.
    fn asked(request: &CounterRequest<'_>) -> (Header, Vec<u8>) {
        let mut bytes = Vec::new();
        write_request(&mut bytes, request);
        (Header::parse(&bytes).expect("is a header"), bytes.split_off(HEADER_BYTES))
    }

    /// Returns the header of a reply, as the client reads it, and its body.
    fn read(request: &CounterRequest<'_>, write: impl FnOnce(&mut Vec<u8>, &Header)) -> (ReplyHeader, Vec<u8>) {
        let mut bytes = Vec::new();
        write(&mut bytes, &asked(request).0);
        let body = bytes.split_off(HEADER_BYTES);
        let header = bytes.as_slice().try_into().expect("is a header");
        (ReplyHeader::parse(header, request).expect("is a reply to it"), body)
    }

    #[test]
    fn every_request_is_read_as_it_was_written() {
        for request in REQUESTS {
            let (header, body) = asked(&request);
            assert_eq!(header.body_bytes, body.len());
            assert_eq!(header.request(&body), Ok(request));
        }
    }

    #[test]
    fn every_reply_is_read_as_it_was_written() {
        let (header, body) = read(&REQUESTS[0], write_ok);
        assert_eq!((header.body_bytes, header.answer(&body)), (0, CounterReply::Success(b"")));
        let (header, body) = read(&REQUESTS[1], |bytes, header| write_number(bytes, header, 7));
        let CounterReply::Success(number) = header.answer(&body) else { panic!("{header:?}") };
        assert_eq!((header.body_bytes, parse_number(number)), (4, Some(7)));
        for (index, refusal) in REFUSALS.into_iter().enumerate() {
            assert_eq!(refusal as usize, index, "the table has them all, in order");
            let (header, body) = read(&REQUESTS[2], |bytes, header| write_refusal(bytes, header, refusal));
            assert_eq!(header.answer(&body), CounterReply::Refusal(refusal));
        }
        let (header, body) = read(&REQUESTS[3], |bytes, header| write_malformed(bytes, header, Malformed::Invalid));
        assert_eq!(header.answer(&body), CounterReply::Malformed(0x04, b"Invalid arguments"));
        let record = CounterRecord { name: b"foo", consumption: 1, peak: 3 };
        let (_, body) = read(&REQUESTS[5], |bytes, header| write_record(bytes, header, &record));
        assert_eq!(parse_record(&body), Some(record));
    }

    #[test]
    fn statistics_are_read_as_they_were_written() {
        let mut figures = Figures::default();
        (0_u64..).zip(Stat::ALL).for_each(|(n, stat)| figures.set(*stat, n * n));
        let (_, mut body) = read(&REQUESTS[4], |bytes, header| super::super::write_stats(bytes, header, &figures));
        body.extend_from_slice(b"\0\x03\0\x01new?");
        assert_eq!(parse_stats(&body), Some(figures));
        for len in [1, 4, body.len() - 1] {
            assert_eq!(parse_stats(&body[..len]), None, "{len} bytes are not all");
        }
    }

    #[test]
    fn the_refusal_of_a_connection_answers_every_request() {
        let mut reply = *b"\x91\0\x20\0\0\0\0\x0d\0\0\0\0";
        for request in REQUESTS {
            let header = ReplyHeader::parse(&reply, &request).expect("is a reply to it");
            let body = b"Access denied";
            assert_eq!((header.body_bytes, header.answer(body)), (body.len(), CounterReply::Malformed(0x20, body)));
        }
        reply[2] = OK;
        assert_eq!(ReplyHeader::parse(&reply, &REQUESTS[1]), None);
    }

    #[test]
    fn other_replies_are_distinguished() {
        let reply = *b"\x91\x01\0\0\0\0\0\x04\0\0\0\0";
        assert!(ReplyHeader::parse(&reply, &REQUESTS[1]).is_some());
        assert!(ReplyHeader::parse(&reply, &REQUESTS[2]).is_none(), "it answers something else");
        for (at, byte) in [(0, 0x90), (1, 0x12), (4, 1), (11, 1)] {
            let mut other = reply;
            other[at] = byte;
            assert_eq!(ReplyHeader::parse(&other, &REQUESTS[1]), None, "{at}");
        }
        assert_eq!((parse_number(b"\0\0\0"), parse_record(b"\0\0\0\0\0\0\0\0\0\x02k")), (None, None));
    }
}
