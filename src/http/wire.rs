//! HTTP/1.1 and 1.0 as bytes: requests for pages, and the heads of responses. Independent of the pages.
//!
//! Only the subset needed by readers: a small body is skipped, a larger one refused. A request that is not understood
//! is answered and ends the connection, so that none of its bytes are ever taken for the next request.

use httparse::{EMPTY_HEADER, Error, Header};
use poolcounter_core::words;

/// Longest head of a request, in bytes: browsers with many cookies stay below it.
pub const MAX_HEAD: usize = 8192;
/// Longest request with head and body, in bytes.
pub const MAX_REQUEST: usize = MAX_HEAD + MAX_BODY;
/// Longest body that is skipped, in bytes. Requests for pages need none.
const MAX_BODY: usize = 1024;
/// Headers by which a proxy says that it passes a request on.
const FORWARDED: [&str; 3] = ["forwarded", "x-forwarded-for", "via"];
/// Limit of header lines: browsers and scrapers send one or two dozen.
const MAX_HEADERS: usize = 64;

/// Result of parsing the start of a connection's input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed<'a> {
    /// Complete request, with its length in bytes.
    Whole(HttpRequest<'a>, usize),
    /// Incomplete request.
    Partial,
    /// Incomplete request, whose client may wait for [`CONTINUE`] before it sends the body. The head has this length in
    /// bytes.
    Expects(usize),
    /// Request that is refused with this status. The connection ends with the response.
    Refused(Status),
}

/// HTTP request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HttpRequest<'a> {
    /// Method.
    pub method: Method,
    /// Host name used by the client, possibly with a port; only HTTP/1.0 requests may lack it.
    pub host: Option<&'a str>,
    /// Path, without the query.
    pub path: &'a str,
    /// Query after the question mark; empty without one.
    pub query: &'a str,
    /// Origin of the page that made the browser send the request, if given: `http://host:port`.
    pub origin: Option<&'a str>,
    /// Relation to that page according to the browser: `same-origin`.
    pub site: Option<&'a str>,
    /// True if a proxy says that it passes the request on for another client.
    pub is_forwarded: bool,
    /// Fate of the connection after the response.
    pub connection: AfterResponse,
}

words! {
    /// Method of a request.
    pub enum Method, name {
        /// Send the page.
        Get = "GET",
        /// Send only the head of the response.
        Head = "HEAD",
        /// Change something.
        Post = "POST",
        /// Any other method, which is refused.
        Other = "",
    }
}

/// Fate of a connection after a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterResponse {
    /// The connection stays open, which is the default of HTTP/1.1.
    Stays,
    /// The connection stays open, which the response must say, because the client uses HTTP/1.0.
    StaysOnRequest,
    /// The connection is closed.
    Ends,
}

words! {
    /// Status of a response.
    #[allow(missing_docs, reason = "the names are those of the specification")]
    pub enum Status, text {
        Ok = "200 OK",
        BadRequest = "400 Bad Request",
        Forbidden = "403 Forbidden",
        NotFound = "404 Not Found",
        MethodNotAllowed = "405 Method Not Allowed",
        Conflict = "409 Conflict",
        ContentTooLarge = "413 Content Too Large",
        MisdirectedRequest = "421 Misdirected Request",
        TooManyRequests = "429 Too Many Requests",
        HeadTooLarge = "431 Request Header Fields Too Large",
        InternalServerError = "500 Internal Server Error",
        ServiceUnavailable = "503 Service Unavailable",
        VersionNotSupported = "505 HTTP Version Not Supported",
    }
}

/// Response to a connection that no access rule admits.
pub const REFUSAL: &[u8] =
    b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 14\r\n\
Cache-Control: no-store\r\nConnection: close\r\n\r\n403 Forbidden\n";

/// Response to a client that waits with the body of its request.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Head of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponseHead<'a> {
    /// Status.
    pub status: Status,
    /// Content type.
    pub content_type: &'a str,
    /// Length of the body in bytes, also in the response to HEAD, which has no body.
    pub length: usize,
    /// Content security policy; None for anything but pages.
    pub policy: Option<&'a str>,
    /// Fate of the connection.
    pub connection: AfterResponse,
}

impl ResponseHead<'_> {
    /// Appends the head, with the empty line that ends it.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let ResponseHead { status, content_type, length, policy, connection } = self;
        let mut field = |name: &str, value: &str| bytes.extend_from_slice([name, value, "\r\n"].concat().as_bytes());
        field("HTTP/1.1 ", status.text());
        field("Content-Type: ", content_type);
        field("Content-Length: ", &length.to_string());
        field("Cache-Control: ", "no-store");
        field("X-Content-Type-Options: ", "nosniff");
        if let Some(policy) = policy {
            field("Content-Security-Policy: ", policy);
        }
        if *status == Status::MethodNotAllowed {
            field("Allow: ", "GET, HEAD");
        }
        match connection {
            AfterResponse::Stays => {}
            AfterResponse::StaysOnRequest => field("Connection: ", "keep-alive"),
            AfterResponse::Ends => field("Connection: ", "close"),
        }
        field("", "");
    }
}

/// Parses the request at the start of `input`.
pub fn parse(input: &[u8]) -> Parsed<'_> {
    match parse_head(&input[..input.len().min(MAX_HEAD)]) {
        Ok(None) if input.len() >= MAX_HEAD => Parsed::Refused(Status::HeadTooLarge),
        Ok(Some(head)) if head.len + head.body > input.len() => match head.expects {
            true => Parsed::Expects(head.len),
            false => Parsed::Partial,
        },
        Ok(Some(head)) => Parsed::Whole(head.request, head.len + head.body),
        Ok(None) => Parsed::Partial,
        Err(status) => Parsed::Refused(status),
    }
}

/// Head of a request.
struct RequestHead<'a> {
    request: HttpRequest<'a>,
    /// Length in bytes.
    len: usize,
    /// Length of the body in bytes.
    body: usize,
    /// True if the client may wait for [`CONTINUE`].
    expects: bool,
}

/// Parses the head of a request; None if it is incomplete.
fn parse_head(input: &[u8]) -> Result<Option<RequestHead<'_>>, Status> {
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let len = match parsed.parse(input) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(Error::TooManyHeaders) => return Err(Status::HeadTooLarge),
        Err(Error::Version) => return Err(Status::VersionNotSupported),
        Err(_) => return Err(Status::BadRequest),
    };
    let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(Status::BadRequest);
    };
    let headers = &*parsed.headers;
    let is_modern = version == 1;
    let mut hosts = values(headers, "host");
    let (host, another) = (hosts.next(), hosts.next());
    if another.is_some() || is_modern && host.is_none() {
        return Err(Status::BadRequest);
    }
    let method = Method::ALL.into_iter().find(|known| known.name() == method).unwrap_or(Method::Other);
    let (authority, path, query) = split_target(target);
    let host = authority.or(host);
    let (mut origins, mut sites) = (values(headers, "origin"), values(headers, "sec-fetch-site"));
    let (origin, site) = (origins.next(), sites.next());
    if origins.next().is_some() || sites.next().is_some() {
        return Err(Status::BadRequest);
    }
    let connection = connection(headers, is_modern);
    let is_forwarded = FORWARDED.iter().any(|name| values(headers, name).next().is_some());
    let request = HttpRequest { method, host, path, query, origin, site, is_forwarded, connection };
    // HTTP/1.0 has no such response.
    let expects = is_modern && values(headers, "expect").any(|value| value.eq_ignore_ascii_case("100-continue"));
    Ok(Some(RequestHead { request, len, body: body_length(headers)?, expects }))
}

/// Returns the length of the body, if it is small enough to be skipped. Fails for a body in chunks, whose length is not
/// in the head.
fn body_length(headers: &[Header<'_>]) -> Result<usize, Status> {
    if values(headers, "transfer-encoding").next().is_some() {
        return Err(Status::BadRequest);
    }
    let mut lengths = values(headers, "content-length");
    let Some(length) = lengths.next() else { return Ok(0) };
    if lengths.next().is_some() || length.is_empty() || !length.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Status::BadRequest);
    }
    let length = length.parse().ok().filter(|length| *length <= MAX_BODY);
    length.ok_or(Status::ContentTooLarge)
}

fn connection(headers: &[Header<'_>], is_modern: bool) -> AfterResponse {
    let says = |wanted: &str| {
        values(headers, "connection").any(|value| value.split(',').any(|word| word.trim().eq_ignore_ascii_case(wanted)))
    };
    match is_modern {
        _ if says("close") => AfterResponse::Ends,
        true => AfterResponse::Stays,
        false if says("keep-alive") => AfterResponse::StaysOnRequest,
        false => AfterResponse::Ends,
    }
}

/// Returns the values of a header; a value that is not valid text counts as empty.
fn values<'h, 'a: 'h>(headers: &'h [Header<'a>], name: &'h str) -> impl Iterator<Item = &'a str> + use<'h, 'a> {
    let named = headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
    named.map(|header| str::from_utf8(header.value).unwrap_or_default().trim())
}

/// Returns the host in a target that is a whole URL, which overrides the header; its path, and its query.
fn split_target(target: &str) -> (Option<&str>, &str, &str) {
    let (host, path) = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains('/') => {
            let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
            (Some(host), if path.starts_with('/') { path } else { "/" })
        }
        _ => (None, target),
    };
    let path = path.split('#').next().unwrap_or_default();
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    (host, path, query)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(input: &str) -> Status {
        match parse(input.as_bytes()) {
            Parsed::Refused(status) => status,
            other => panic!("{input:?} is {other:?}"),
        }
    }

    fn request(input: &str) -> HttpRequest<'_> {
        match parse(input.as_bytes()) {
            Parsed::Whole(request, len) if len == input.len() => request,
            other => panic!("{input:?} is {other:?}"),
        }
    }

    #[test]
    fn requests_are_read() {
        let (host, path, connection) = (Some("a"), "/metrics", AfterResponse::Stays);
        let (origin, site, is_forwarded) = (None, None, false);
        let get = HttpRequest { method: Method::Get, host, path, query: "", origin, site, is_forwarded, connection };
        for input in [
            "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
            "\r\nGET /metrics HTTP/1.1\nhost:a\n\n",
            "GET /metrics?x=/y HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n\r\n",
            "GET http://a/metrics?x HTTP/1.1\r\nHost: b\r\n\r\n",
            "GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        ] {
            assert_eq!(HttpRequest { query: "", ..request(input) }, get, "{input:?}");
        }
        assert_eq!(request("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n").method, Method::Head);
        assert_eq!(request("PUT /x HTTP/1.1\r\nHost: a\r\n\r\n").method, Method::Other);
        let post = request("POST /x HTTP/1.1\r\nHost: a\r\nOrigin: http://a\r\nSec-Fetch-Site: same-origin\r\n\r\n");
        assert_eq!((post.method, post.origin, post.site), (Method::Post, Some("http://a"), Some("same-origin")));
        assert_eq!(request("GET http://a HTTP/1.1\r\nHost: a\r\n\r\n").path, "/");
        assert_eq!(request("GET /?u=http://b/c HTTP/1.1\r\nHost: a\r\n\r\n").path, "/");
        assert_eq!(request("GET /x?range=1m#y HTTP/1.1\r\nHost: a\r\n\r\n").query, "range=1m");
        assert_eq!(request("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").path, "*");
        assert_eq!(request("GET http://a?b/c HTTP/1.1\r\nHost: b\r\n\r\n").path, "/");
        assert_eq!(request("GET / HTTP/1.1\r\nHost: a:7580\r\n\r\n").host, Some("a:7580"));
        assert_eq!(request("GET / HTTP/1.0\r\n\r\n").host, None);
    }

    #[test]
    fn the_version_and_the_client_decide_whether_the_connection_stays() {
        for (head, wanted) in [
            ("HTTP/1.1\r\nHost: a\r\n", AfterResponse::Stays),
            ("HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Close\r\n", AfterResponse::Ends),
            ("HTTP/1.1\r\nHost: a\r\nConnection: x\r\nconnection: close\r\n", AfterResponse::Ends),
            ("HTTP/1.0\r\n", AfterResponse::Ends),
            ("HTTP/1.0\r\nConnection: Keep-Alive\r\n", AfterResponse::StaysOnRequest),
        ] {
            assert_eq!(request(&format!("GET / {head}\r\n")).connection, wanted, "{head:?}");
        }
    }

    #[test]
    fn a_beginning_is_waited_for() {
        let whole = "GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nxy";
        for len in 0..whole.len() {
            assert_eq!(parse(&whole.as_bytes()[..len]), Parsed::Partial, "{len}");
        }
        assert!(matches!(parse(whole.as_bytes()), Parsed::Whole(..)));
    }

    #[test]
    fn a_client_may_wait_with_its_body() {
        let (head, ten) = ("Content-Length: 2\r\nExpect: 100-Continue\r\n\r\n", "POST / HTTP/1.0\r\n");
        let new = format!("POST / HTTP/1.1\r\nHost: a\r\n{head}");
        for body in ["", "x"] {
            assert_eq!(parse(format!("{new}{body}").as_bytes()), Parsed::Expects(new.len()));
            assert_eq!(parse(format!("{ten}{head}{body}").as_bytes()), Parsed::Partial, "HTTP/1.0 knows no 100");
        }
        assert!(matches!(parse(format!("{new}xy").as_bytes()), Parsed::Whole(..)));
    }

    #[test]
    fn bytes_behind_a_request_belong_to_the_next() {
        let input = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n";
        let Parsed::Whole(first, len) = parse(input) else { panic!("is whole") };
        let Parsed::Whole(second, rest) = parse(&input[len..]) else { panic!("is whole") };
        assert_eq!((first.path, second.path, len + rest), ("/a", "/b", input.len()));
    }

    #[test]
    fn malformed_requests_are_refused() {
        for input in [
            "GET /\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            "\x16\x03\x01\x02\x00",
            "G\0T / HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(refused(input), Status::BadRequest, "{input:?}");
        }
        assert_eq!(refused("GET / HTTP/2.0\r\n\r\n"), Status::VersionNotSupported);
        for length in ["1025", "99999999999999999999999"] {
            let input = format!("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
            assert_eq!(refused(&input), Status::ContentTooLarge);
        }
    }

    #[test]
    fn heads_are_bounded() {
        let many = |count| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(count));
        assert_eq!(request(&many(MAX_HEADERS - 1)).path, "/");
        assert_eq!(refused(&many(MAX_HEADERS)), Status::HeadTooLarge);
        let long = |len| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(len));
        let frame = long(0).len();
        assert_eq!(request(&long(MAX_HEAD - frame)).path.len(), 1 + MAX_HEAD - frame);
        assert_eq!(refused(&long(MAX_HEAD - frame + 1)), Status::HeadTooLarge);
        assert_eq!(parse(&long(MAX_HEAD).as_bytes()[..MAX_HEAD - 1]), Parsed::Partial);
        assert_eq!(refused(&long(MAX_HEAD)[..MAX_HEAD]), Status::HeadTooLarge);
    }
}
