//! Raw bytes into the parser of the counters protocol, beside a naive reading of the same bytes.

use crate::model::counters::fields;
use poolcounter_counters::{AcquireUnits, ReleaseUnits};
use poolcounter_protocol::counters::wire::{
    CounterRequest, FIELDS_BYTES, HEADER_BYTES, Header, MAX_BODY_BYTES, Malformed, write_malformed,
};

/// Reads everything as frames, and checks the results.
pub fn run(data: &[u8]) {
    let mut rest = data;
    while let Some(header) = Header::parse(rest) {
        let (head, behind) = rest.split_at(HEADER_BYTES);
        assert_eq!(Header::parse(head), Some(header), "what follows changes nothing");
        let body = &behind[..behind.len().min(header.body_bytes)];
        assert_eq!(header.body_bytes, number(&head[4..8]) as usize);
        assert_eq!(header.opaque[..], head[8..]);
        look_at(head, &header, body);
        rest = &behind[body.len()..];
    }
    assert!(rest.len() < HEADER_BYTES);
}

fn look_at(head: &[u8], header: &Header, body: &[u8]) {
    let request = header.request(body);
    assert_eq!(request, read(&[head, body].concat(), header));
    let kept = &body[..body.len().min(FIELDS_BYTES)];
    assert_eq!(header.request(kept), request, "nothing behind the fields matters");
    match request {
        Ok(CounterRequest::Acquire(AcquireUnits { name, resources, maximum })) => {
            assert!(!name.is_empty() && 0 < resources && resources <= maximum);
        }
        Ok(CounterRequest::Get(name) | CounterRequest::Release(ReleaseUnits { name, .. })) => assert!(!name.is_empty()),
        Ok(CounterRequest::Noop | CounterRequest::Stats | CounterRequest::Dump) => {}
        Err(malformed) => {
            let mut reply = Vec::new();
            write_malformed(&mut reply, header, malformed);
            assert_eq!(reply.len(), HEADER_BYTES + number(&reply[4..8]) as usize);
            assert_eq!((reply[0], &reply[8..12]), (0x91, &head[8..]));
        }
    }
}

fn read<'a>(frame: &'a [u8], header: &Header) -> Result<CounterRequest<'a>, Malformed> {
    if header.body_bytes > MAX_BODY_BYTES {
        return Err(Malformed::TooLong);
    }
    let malformed = |status| if status == 0x81 { Malformed::UnknownCommand } else { Malformed::Invalid };
    let (resources, maximum, name) = fields(frame).map_err(malformed)?;
    // Lossless: each has four bytes.
    let (resources, maximum) = (resources as u32, maximum as u32);
    Ok(match frame[1] {
        0x00 => CounterRequest::Noop,
        0x01 => CounterRequest::Get(name),
        0x02 => CounterRequest::Acquire(AcquireUnits { name, resources, maximum }),
        0x03 => CounterRequest::Release(ReleaseUnits { name, resources }),
        0x10 => CounterRequest::Stats,
        _ => CounterRequest::Dump,
    })
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, byte| sum * 256 + u32::from(*byte))
}
