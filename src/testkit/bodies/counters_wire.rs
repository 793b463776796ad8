//! Raw bytes into the parser of the counters protocol, beside a naive reading of the same bytes.

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
    assert_eq!(request, read(head, header, body));
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

fn read<'a>(head: &[u8], header: &Header, body: &'a [u8]) -> Result<CounterRequest<'a>, Malformed> {
    if header.body_bytes > MAX_BODY_BYTES {
        return Err(Malformed::TooLong);
    } else if head[0] != 0x90 {
        return Err(Malformed::Invalid);
    }
    let request = match head[1] {
        0x00 => Some(CounterRequest::Noop),
        0x01 => name_at(body, 0).map(CounterRequest::Get),
        0x02 => name_at(body, 8).map(|name| {
            CounterRequest::Acquire(AcquireUnits { name, resources: number(&body[..4]), maximum: number(&body[4..8]) })
        }),
        0x03 => {
            name_at(body, 4).map(|name| CounterRequest::Release(ReleaseUnits { name, resources: number(&body[..4]) }))
        }
        0x10 => Some(CounterRequest::Stats),
        0x11 => Some(CounterRequest::Dump),
        _ => return Err(Malformed::UnknownCommand),
    };
    let makes_sense = |request: &CounterRequest<'_>| match request {
        CounterRequest::Acquire(AcquireUnits { resources, maximum, .. }) => *resources > 0 && maximum >= resources,
        _ => true,
    };
    request.filter(makes_sense).ok_or(Malformed::Invalid)
}

/// Returns a name at this place: a length of two bytes, and as many bytes.
fn name_at(body: &[u8], at: usize) -> Option<&[u8]> {
    let len = number(body.get(at..at + 2)?) as usize;
    body.get(at + 2..at + 2 + len).filter(|name| !name.is_empty())
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, byte| sum * 256 + u32::from(*byte))
}
