//! Raw bytes into the parser of the jobs protocol: parsed values stay within their bounds, and a line is parsed alike
//! in whatever pieces it arrives.

use poolcounter_core::{Reader, Writer};
use poolcounter_jobs::state::{JobState, LimitOf, Reserve};
use poolcounter_protocol::jobs::wire::stream::{Cut, Item, Stream};
use poolcounter_protocol::jobs::wire::{Line, MANY, MAX_ERROR_BYTES, MAX_EXTENSION_LINE, Request, parse};

const MAX_SIZE: u32 = 50;

/// Reads everything as lines, and as a stream in pieces.
pub fn run(data: &[u8]) {
    data.split(|byte| *byte == b'\n').for_each(look_at);
    let whole = items(data, data.len().max(1));
    for piece in [1, 2, 7, MAX_EXTENSION_LINE] {
        assert_eq!(whole, items(data, piece), "in pieces of {piece}");
    }
}

fn look_at(line: &[u8]) {
    match parse(line) {
        Line::Put(put, _) => {
            if let Some(options) = &put.options {
                assert!(options.key.len() <= 200 && options.group.len() <= 64 && options.tube.len() <= 200);
                assert!(options.root.as_ref().is_none_or(|(signature, _)| (1..=200).contains(&signature.len())));
            }
        }
        Line::PutMany(count) => assert!((1..=MANY).contains(&count)),
        Line::Request(_, request) => look_at_request(&request),
        Line::Fail(..) | Line::Refused(_) | Line::RefusedBody(..) => {}
    }
}

fn look_at_request(request: &Request<'_>) {
    match request {
        Request::Use(name) | Request::StatsTube(name) | Request::Dropped(name) | Request::Root(name, ..) => {
            assert!((1..=200).contains(&name.bytes().len()) && !name.bytes().contains(&b'*'));
        }
        Request::Watch(pattern, weight) => {
            assert!((1..=200).contains(&pattern.bytes().len()));
            assert!(weight.is_none_or(|weight| (1..=1000).contains(&weight)));
        }
        Request::Limit(LimitOf::Group(name), _) | Request::Identify(name) => {
            assert!((1..=64).contains(&name.len()));
        }
        Request::Reserve(Reserve { timeout, many }) => {
            assert!(timeout.is_none_or(|timeout| timeout <= i32::MAX as u32));
            assert!(many.is_none_or(|many| (1..=MANY).contains(&many)));
        }
        Request::Clear(_, state) => assert!(*state != Some(JobState::Reserved)),
        Request::ListJobs(_, _, limit, _) => assert!((1..=1000).contains(limit)),
        _ => {}
    }
}

/// Returns the items of a stream in pieces, as text. The stream is saved and restored between pieces.
fn items(data: &[u8], piece: usize) -> Vec<String> {
    let mut stream = Stream::default();
    let (mut buffer, mut items) = (Vec::new(), Vec::new());
    for piece in data.chunks(piece) {
        buffer.extend_from_slice(piece);
        loop {
            let Cut { consumed, item } = stream.cut(&buffer, MAX_SIZE);
            let told = item.map(|item| tell(&item));
            let is_over = told.is_none() && consumed == 0;
            let has_ended = told.as_deref() == Some("Quit");
            items.extend(told);
            if has_ended {
                // The connection is closed; the rest is ignored.
                return items;
            }
            buffer.drain(..consumed);
            if is_over {
                break;
            }
        }
        let mut saved = Vec::new();
        stream.save(&mut Writer::new(&mut saved)).expect("memory takes all");
        stream = Stream::restore(&mut Reader::new(&mut &saved[..])).expect("what was saved can be read");
        assert!(buffer.len() < MAX_EXTENSION_LINE, "{} bytes are left", buffer.len());
    }
    items
}

fn tell(item: &Item<'_>) -> String {
    match item {
        Item::Request(_, request) => format!("{request:?}"),
        Item::Put(put, body) => {
            assert!(body.bytes().len() <= MAX_SIZE as usize);
            format!("{put:?} {}", body.bytes().escape_ascii())
        }
        Item::Fail(failure, text) => {
            assert!(text.len() <= MAX_ERROR_BYTES as usize);
            format!("{failure:?} {}", text.escape_ascii())
        }
        Item::Refused(refusal) => format!("{refusal:?}"),
        Item::PutMany(entries) => {
            use poolcounter_jobs::state::ManyEntry;
            let entry = |entry: &ManyEntry| match entry {
                ManyEntry::Put(put, body) => format!("{put:?} {}", body.bytes().escape_ascii()),
                ManyEntry::Refused(refusal) => format!("{refusal:?}"),
            };
            entries.iter().map(entry).collect::<Vec<_>>().join("; ")
        }
    }
}
