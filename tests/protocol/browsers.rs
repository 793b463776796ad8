//! Requests of browsers to each port that is not HTTP's, in any pieces: no text that looks like a command is served,
//! and the connection ends.

use poolcounter::SERVICES;
use poolcounter_protocol::jobs::commands::JobCommand;
use poolcounter_testkit::frames;
use poolcounter_testkit::world::World;

/// Services that do not speak HTTP.
const SERVICES_OF_LINES: [&str; 4] = ["pools", "members", "jobs", "admin"];
/// Lengths of the longest lines: of jobs and their extensions, of pools and members, and of the administration.
const LONGEST_LINES: [usize; 4] = [222, 1022, 8192, 16384];
/// Possible replies to the first line before the second ends the connection: a method that a page makes up may be a
/// command's name.
const REFUSALS: [&[u8]; 6] = [
    b"ERROR BAD_SYNTAX\n",
    b"ERROR WRONG_STAT\n",
    b"ERROR LINE_TOO_LONG\n",
    b"NOT_LOCKED\n",
    b"BAD_FORMAT\r\n",
    b"Invalid arguments",
];
/// Length of the longest of these: only one is sent.
const MOST_REFUSED_BYTES: usize = 12 + 17;

/// Returns commands of each service that change something, on lines of their own.
fn harm() -> Vec<u8> {
    let lines = "\r\nput 0 0 60 8\r\nrm -rf ~\r\ndrain\r\nACQ4ME k 1 1 0\nPOOL db 0 1\nLOG debug\n";
    [lines.as_bytes(), &frames::acquire(1, 9, b"c"), b"\r\n"].concat()
}

/// Returns a request of HTTP with the headers and the body of a form.
fn request(method: &str, path: &str, host: &str) -> Vec<u8> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: keep-alive\r\nContent-Length: 200\r\nX-A: drain\r\n\
         Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\nContent-Disposition: form-data; name=\"a\"\r\n"
    );
    [head.as_bytes(), &harm()].concat()
}

/// Returns the first message of a handshake of TLS, with a session's ticket of this length that another server has
/// made.
fn hello(ticket: usize) -> Vec<u8> {
    let ticket = [vec![b'x'; ticket], harm()].concat();
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0, 0, 2, 0x13, 1, 1, 0],
        &be16(ticket.len() + 4),
        &[0, 35],
        &be16(ticket.len()),
        &ticket,
    ];
    let body = body.concat();
    let message = [&[1, 0][..], &be16(body.len()), &body].concat();
    // Two records, so that the length of the first, which is the page's choice, looks like that of a short frame.
    let (first, second) = message.split_at(message.len().min(256));
    let record = |part: &[u8]| [&[22, 3, 1][..], &be16(part.len()), part].concat();
    [record(first), record(second)].concat()
}

fn be16(number: usize) -> [u8; 2] {
    u16::try_from(number).expect("is short").to_be_bytes()
}

/// Bytes that a browser can send.
struct Sent {
    name: String,
    bytes: Vec<u8>,
    /// True if it is split everywhere, and not only at the ends of lines and where they become too long.
    is_split_everywhere: bool,
}

/// Returns all requests that a browser can send.
fn requests() -> Vec<Sent> {
    let mut all = Vec::new();
    let mut add = |name: String, bytes: Vec<u8>, is_split_everywhere| {
        all.push(Sent { name, bytes, is_split_everywhere });
    };
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"] {
        add(method.into(), request(method, "/a", "127.0.0.1:11300"), method == "POST");
    }
    // A page makes its own methods up if its name was made to point to this machine.
    let commands = SERVICES.iter().flat_map(|info| info.commands.iter().map(|row| row.word));
    for method in ["SEARCH", "patch", "x"].into_iter().chain(commands) {
        add(format!("the method {method}"), request(method, "/a", "a"), matches!(method, "SEARCH" | "dead-letter"));
    }
    for method in ["POST", "SEARCH", "put-job"] {
        for longest in LONGEST_LINES {
            for len in longest - 1..=longest + 3 {
                let path = format!("/{}", "a".repeat(len - method.len() - " / HTTP/1.1".len()));
                add(format!("{method} of {len} bytes"), request(method, &path, "localhost"), false);
                add(format!("{method} and a host of {len} bytes"), request(method, "/", &path[1..]), false);
            }
        }
    }
    let upgrade =
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    for (name, beginning) in [
        ("a web socket", upgrade),
        ("a tunnel", "CONNECT a:11300 HTTP/1.1\r\nHost: a:11300\r\n"),
        ("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ] {
        add(name.into(), [beginning.as_bytes(), &harm()].concat(), true);
    }
    for ticket in [0, 150, 250, 500, 20_000] {
        add(format!("TLS with a ticket of {ticket} bytes"), hello(ticket), ticket < 500);
    }
    all
}

/// Returns the request whole, and split in two in each way.
fn ways(Sent { bytes, is_split_everywhere, .. }: &Sent) -> Vec<Vec<&[u8]>> {
    let ends = (0..bytes.len()).filter(|at| bytes[*at] == b'\n').flat_map(|at| at - 1..at + 3);
    let longest = LONGEST_LINES.into_iter().flat_map(|most| most - 2..most + 5);
    let places: Vec<usize> = match is_split_everywhere {
        true => (1..bytes.len()).collect(),
        false => ends.chain(longest).chain([1, 2, 5, 12]).filter(|at| *at < bytes.len()).collect(),
    };
    let mut ways: Vec<Vec<&[u8]>> = places.into_iter().map(|at| vec![&bytes[..at], &bytes[at..]]).collect();
    ways.push(vec![bytes]);
    if *is_split_everywhere {
        ways.push(bytes.chunks(1).collect());
    }
    ways
}

/// Returns the output to a connection that sends these pieces, and whether it was closed.
fn told(world: &mut World, service: &str, pieces: &[&[u8]]) -> (Vec<u8>, bool) {
    let client = world.connect_to(service);
    for piece in pieces {
        world.send(client, piece);
        world.settle();
    }
    let is_ended = world.is_ended(client);
    world.finish(client);
    world.settle();
    (world.take_received(client), is_ended)
}

/// Returns the visible state of each service.
fn seen(world: &mut World) -> Vec<u8> {
    let mut seen = told(world, "members", &[b"POOLS\n"]).0;
    // The number of the put job shows earlier puts, and its success shows that the queue is not drained.
    seen.extend(told(world, "jobs", &[b"peek-ready\r\nput 0 0 60 1\r\na\r\nreserve\r\n"]).0);
    seen.extend(told(world, "counters", &[&frames::dump()]).0);
    seen
}

/// Returns true if this is the reply to one wrong form of an extension of the jobs, which names the right one.
fn is_form(told: &[u8]) -> bool {
    JobCommand::ROWS.iter().any(|row| told == format!("BAD_FORMAT {} {}\r\n", row.word, row.arguments).as_bytes())
}

#[test]
fn requests_of_a_browser_are_not_served() {
    let untouched = seen(&mut World::of_administrators());
    for sent in requests() {
        for service in SERVICES_OF_LINES.into_iter().chain(["counters"]) {
            let mut world = World::of_administrators();
            let name = &sent.name;
            for pieces in ways(&sent) {
                let case =
                    format!("{name} to {service} in {} pieces, the first of {} bytes", pieces.len(), pieces[0].len());
                let (told, is_ended) = told(&mut world, service, &pieces);
                assert!(is_ended, "{case}: it goes on");
                let is_refused =
                    REFUSALS.iter().any(|refusal| told.ends_with(refusal)) && told.len() <= MOST_REFUSED_BYTES;
                let is_refused = is_refused || is_form(&told);
                assert!(told.is_empty() || is_refused, "{case}: {}", told.escape_ascii());
            }
            assert!(world.is_empty(), "{name} to {service}: something is left");
            assert_eq!(seen(&mut world), untouched, "{name} to {service}: something is changed");
        }
    }
}

#[test]
fn the_same_commands_alone_are_served() {
    let untouched = seen(&mut World::of_administrators());
    for service in ["members", "jobs"] {
        let mut world = World::of_administrators();
        assert!(!told(&mut world, service, &[&harm()]).1, "{service}: it is ended");
        assert_ne!(seen(&mut world), untouched, "{service}: nothing is changed");
    }
    for (service, wanted) in [("pools", "LOCKED\n"), ("admin", "LEFT 0\n")] {
        let mut world = World::of_administrators();
        let told = told(&mut world, service, &[&harm()]).0;
        assert!(String::from_utf8_lossy(&told).contains(wanted), "{service}: {}", told.escape_ascii());
    }
}
