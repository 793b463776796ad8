//! Recognition of a browser that a web page makes connect to a port of another protocol. A page chooses the path, the
//! method and the body of a request, and much of a handshake of TLS. Such a connection is closed before any part of
//! that is served.

/// Methods with which a request may begin.
const METHODS: [&[u8]; 10] =
    [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH", b"PRI"];
/// First two bytes of a handshake of TLS: the type of the record, and its major version.
const TLS_HANDSHAKE: &[u8] = &[22, 3];

/// Returns whether a line without its end, or the beginning of a long one, comes from a browser: a request of HTTP, the
/// header that every browser sends next, or a handshake of TLS. No command of any service looks like one.
#[inline]
pub fn is_from_browser(line: &[u8]) -> bool {
    (may_begin_so(line) || matches!(line, [.., b'/', _, b'.', _])) && (has_its_beginning(line) || is_request_line(line))
}

/// Returns whether a line may have the beginning of a method, of the header or of a handshake. Most requests of the
/// services begin otherwise.
#[inline]
fn may_begin_so(line: &[u8]) -> bool {
    let [first, second, ..] = line else { return false };
    match first {
        b'G' | b'D' => *second == b'E',
        b'H' | b'h' => matches!(second, b'E' | b'O' | b'o'),
        b'P' => matches!(second, b'O' | b'U' | b'A' | b'R'),
        b'C' => *second == b'O',
        b'O' => *second == b'P',
        b'T' => *second == b'R',
        22 => *second == 3,
        _ => false,
    }
}

fn has_its_beginning(line: &[u8]) -> bool {
    let method = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    METHODS.contains(&method)
        || line.get(..5).is_some_and(|name| name.eq_ignore_ascii_case(b"Host:"))
        || line.starts_with(TLS_HANDSHAKE)
}

/// Returns whether a line is `METHOD /PATH HTTP/N.N`, of any method: a page may make one up.
fn is_request_line(line: &[u8]) -> bool {
    let [request @ .., b' ', b'H', b'T', b'T', b'P', b'/', _, b'.', _] = line else { return false };
    let mut words = request.splitn(2, |byte| *byte == b' ');
    words.next().is_some() && words.next().is_some_and(|path| path.starts_with(b"/") && !path.contains(&b' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_beginning_may_begin_so() {
        for beginning in METHODS.into_iter().chain([TLS_HANDSHAKE, b"Host:", b"host:", b"HOST:", b"hOsT:"]) {
            assert!(may_begin_so(beginning) && is_from_browser(beginning), "{beginning:?}");
        }
    }

    #[test]
    fn http_requests_and_tls_handshakes_are_known() {
        for line in [
            "POST / HTTP/1.1",
            "GET /metrics HTTP/1.0",
            "PUT",
            "GET /the/beginning/of/a/long/line",
            "PRI * HTTP/2.0",
            "CONNECT 127.0.0.1:11300 HTTP/1.1",
            "Host: a",
            "host:a",
            "SEARCH / HTTP/1.1",
            "dead-letter /a HTTP/1.1",
            "\x16\x03\x01\x02\0",
        ] {
            assert!(is_from_browser(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn commands_are_not_taken_for_requests_of_http() {
        for line in [
            "",
            "POSTER",
            "post / ",
            "ACQ4ME Host: 1 1 1",
            "RELEASE POST",
            "Host",
            " GET",
            "put 1 2 3 4",
            "use HTTP/1.1",
            "dead-letter a HTTP/1.1",
            "root /a b HTTP/1.1",
            "ADD pool HTTP/1.1",
            " HTTP/1.1",
            "\x16",
        ] {
            assert!(!is_from_browser(line.as_bytes()), "{line}");
        }
    }
}
