//! Raw bytes into the parser of the pools protocol.

use poolcounter::pools::wire::{Line, Request, first_line, parse, parse_number, parse_seconds};
use poolcounter::time::Span;

/// The longest line that is tried.
const MAX_LINE: usize = 100;

/// Reads everything as lines, and looks at what comes out.
pub fn run(data: &[u8]) {
    let mut rest = data;
    loop {
        match first_line(rest, MAX_LINE) {
            Line::Whole(line, len) => {
                assert!(line.len() < len && len <= MAX_LINE + 1 && rest[len - 1] == b'\n' && !line.contains(&b'\n'));
                look_at(line);
                rest = &rest[len..];
            }
            Line::Partial => return assert!(rest.len() <= MAX_LINE && !rest.contains(&b'\n')),
            Line::TooLong => return assert!(!rest[..=MAX_LINE].contains(&b'\n')),
        }
    }
}

fn look_at(line: &[u8]) {
    match parse(line) {
        Request::Acquire(Ok(acquire)) => {
            assert!(acquire.workers > 0 && acquire.max_queue > 0 && acquire.hold > Span::ZERO);
            assert!(!acquire.key.is_empty() && !acquire.key.iter().any(|byte| matches!(byte, 0 | b' ' | b'\n')));
            assert!(acquire.timeout <= Span::from_secs(u64::from(u32::MAX)) + Span::from_secs(1));
        }
        Request::Release(key) => assert!(key.is_none_or(|key| !key.is_empty() && !key.contains(&b' '))),
        Request::Acquire(Err(_)) | Request::Stats(_) | Request::Unknown => {}
    }
    // One space separates as well as several, and none matters at the end.
    let wide = line.escape_ascii().to_string().replace(' ', "   ") + " ";
    let narrow = line.escape_ascii().to_string();
    assert_eq!(format!("{:?}", parse(wide.as_bytes())), format!("{:?}", parse(narrow.as_bytes())));
    for word in line.split(|byte| *byte == b' ') {
        let text = std::str::from_utf8(word).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let exact = text.filter(|text| !text.is_empty()).map(|text| text.parse::<u32>().unwrap_or(u32::MAX));
        assert_eq!(parse_number(word), exact);
        if let Some(exact) = exact {
            assert_eq!(parse_seconds(word), Some(Span::from_secs(u64::from(exact))));
        }
    }
}
