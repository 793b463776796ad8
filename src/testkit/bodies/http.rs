//! Streams of bytes through the HTTP service, cut into chunks: the responses depend on the bytes alone.

use super::begin;
use crate::world::World;
use poolcounter_core::Span;
use poolcounter_http::HttpSettings;
use poolcounter_http::host::Hosts;
use poolcounter_http::wire::{AfterResponse, CONTINUE, HttpRequest, MAX_HEAD, MAX_REQUEST, Method, Parsed, parse};
use poolcounter_service::container::AllSettings;

/// Pages of the services, of the daemon and of all.
const TABS: [&str; 6] = ["/overview", "/locks", "/counters", "/members", "/jobs", "/daemon"];

/// Host name of the server in the requests of the corpus.
const HOST: &str = "a";

/// Reads the input as requests, then sends it whole, and then in chunks to a client that reads slowly.
pub fn run(data: &[u8]) {
    begin(data);
    let answers = expected(data);
    converse(data, &answers, || usize::MAX, usize::MAX);
    let mut sizes = data.iter().map(|byte| usize::from(byte % 8)).cycle();
    converse(data, &answers, move || sizes.next().unwrap_or(1), 700 * (data.len() % 8));
}

/// Returns the status of each response, and whether its request was a HEAD.
fn expected(data: &[u8]) -> Vec<(u16, bool)> {
    let mut answers = Vec::new();
    let mut rest = data;
    loop {
        match parse(rest) {
            Parsed::Whole(request, len) => {
                assert!(len <= MAX_REQUEST && len <= rest.len());
                assert_eq!(parse(&rest[..len]), Parsed::Whole(request, len), "what follows changes nothing");
                let short = parse(&rest[..len - 1]);
                assert!(matches!(short, Parsed::Partial | Parsed::Expects(_)), "no request without its end");
                answers.push((status_of(&request), request.method == Method::Head));
                rest = &rest[len..];
                if request.connection == AfterResponse::Ends {
                    return answers;
                }
            }
            Parsed::Partial | Parsed::Expects(_) => {
                assert!(rest.len() < MAX_REQUEST, "what is waited for has an end");
                return answers;
            }
            Parsed::Refused(status) => {
                let status = status.text()[..3].parse().expect("a number");
                assert!(status >= 400 && (status != 431 || rest.len() > MAX_HEAD.min(64)));
                answers.push((status, false));
                return answers;
            }
        }
    }
}

fn status_of(request: &HttpRequest<'_>) -> u16 {
    let hosts = Hosts::with(&[HOST.into()]);
    let is_view =
        |path: &str| path.strip_prefix('/').is_some_and(|path| path.contains('/') && !path.ends_with(".json"));
    let thing = request.path.strip_suffix(".json").unwrap_or(request.path);
    match (request.path, request.method) {
        _ if request.host.is_some_and(|host| !hosts.include(host)) => 421,
        (path, Method::Post) if is_view(path) => 403,
        (_, Method::Get | Method::Head) if TABS.contains(&thing) => 200,
        (_, Method::Get | Method::Head) if ["/jobs/matrix", "/jobs/buried"].contains(&thing) => 200,
        (_, Method::Get | Method::Head) if thing.starts_with("/jobs/runner/") => 200,
        ("/" | "/metrics" | "/status.json" | "/healthz", Method::Get | Method::Head) => 200,
        // The tabs of services are known only from their reports.
        ("/" | "/overview" | "/overview.json" | "/metrics" | "/status.json" | "/healthz", _) => 405,
        _ => 404,
    }
}

fn converse(data: &[u8], answers: &[(u16, bool)], sizes: impl FnMut() -> usize, room: usize) {
    let settings = HttpSettings { hosts: vec![HOST.into()], ..HttpSettings::default() };
    let mut world = World::with(AllSettings::defaults(poolcounter::SERVICES).with(settings));
    let client = world.connect_to("http");
    world.send_in_chunks(client, data, sizes, room);
    // Clients that do not read are disconnected after some seconds; this one reads.
    world.advance(Span::from_secs(6));
    let received = world.take_received(client);
    assert!(world.is_empty(), "something is left of somebody");
    check(&received, answers);
}

/// Checks that the responses are those expected, each as long as it says, and that nothing else follows. Whether a client
/// is told to send its body depends on the pieces of the request.
fn check(mut received: &[u8], answers: &[(u16, bool)]) {
    for (number, (status, is_head)) in answers.iter().enumerate() {
        received = received.strip_prefix(CONTINUE).unwrap_or(received);
        let end = received.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("answer {number} is missing"));
        let head = std::str::from_utf8(&received[..end]).expect("heads are text");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "answer {number} is not {status}: {head}");
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
        let length: usize = if *is_head { 0 } else { length.expect("every answer has a length") };
        received = &received[end + 4 + length..];
    }
    received = received.strip_prefix(CONTINUE).unwrap_or(received);
    assert!(received.is_empty(), "there is more than was asked for");
}
