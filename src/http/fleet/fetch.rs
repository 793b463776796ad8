//! Fetches the pages of one daemon as JSON, in a thread of its own, with limits of the time per question and the size
//! of each answer, whatever the other side sends.

use crate::wire::MAX_HEAD;
use httparse::{EMPTY_HEADER, Status};
use poolcounter_service::access;
use poolcounter_service::contract::Wake;
use poolcounter_service::report::snapshot::Snapshot;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Default port of servers.
const USUAL_PORT: u16 = 7580;
/// Time limit of a connection attempt, for each address of a server.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Time limit of a question with its answer.
const LIMIT: Duration = Duration::from_secs(5);
/// Longest answer, in bytes: the limit of a daemon's unsent output.
const MAX_ANSWER: usize = 1024 * 1024;
/// Limit of header lines in an answer.
const MAX_HEADERS: usize = 64;

/// Host and port of a daemon's status page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpServer(String);

/// Answer of a daemon, or its failure.
pub struct Answer {
    /// Index of the daemon in the fleet.
    pub place: usize,
    /// Question.
    pub target: String,
    /// Content or failure; None if the daemon does not know the thing.
    pub told: Result<Option<Snapshot>, String>,
}

impl HttpServer {
    /// Parses `HOST`, `HOST:PORT`, `[IP6]:PORT`, or the URL of a status page; None if it is none of these.
    pub fn parse(text: &str) -> Option<HttpServer> {
        let text = text.strip_prefix("http://").unwrap_or(text);
        let text = text.strip_suffix('/').unwrap_or(text);
        let is_name = |host: &str| {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
        };
        let is_ip6 = |host: &str| host.parse::<std::net::Ipv6Addr>().is_ok();
        if is_ip6(text) {
            return Some(HttpServer(format!("[{text}]:{USUAL_PORT}")));
        }
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) if is_ip6(host) => (format!("[{host}]"), port.to_string()),
            Some(_) => return None,
            None => {
                let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
                (Some(host).filter(|host| is_name(host))?.to_string(), port.to_string())
            }
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse::<u16>().ok().filter(|port| *port > 0)?,
            None if port.is_empty() => USUAL_PORT,
            None => return None,
        };
        Some(HttpServer(format!("{host}:{port}")))
    }

    /// Returns its host and port.
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// Starts the thread that sends one daemon the `questions`, each a path with a query, and returns the answers about
/// services of these names. Ends once no more questions can come.
pub fn spawn(
    place: usize,
    (server, services): (HttpServer, Vec<&'static str>),
    questions: Receiver<String>,
    answers: Sender<Answer>,
    wake: Wake,
) {
    thread::spawn(move || {
        for target in questions {
            let told = ask(&server, &services, &target);
            if answers.send(Answer { place, target, told }).is_err() {
                return;
            }
            wake.wake();
        }
    });
}

fn ask(server: &HttpServer, services: &[&'static str], target: &str) -> Result<Option<Snapshot>, String> {
    let until = Instant::now() + LIMIT;
    let answer = receive(server, target, until).map_err(|error| match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "does not answer in time".into(),
        _ => error.to_string(),
    })?;
    read(&answer, services)
}

/// Parses a complete answer about services of these names; None if the daemon does not know the thing.
///
/// # Errors
///
/// A few words, if it is not a valid answer.
pub(super) fn read(answer: &[u8], services: &[&'static str]) -> Result<Option<Snapshot>, String> {
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Response::new(&mut headers);
    let Ok(Status::Complete(length)) = head.parse(answer) else { return Err("its answer is no HTTP".into()) };
    match head.code {
        Some(200) => {
            let services = services.iter().copied().filter(|name| *name != "http");
            let services: Vec<&str> = services.chain([access::report::NAME]).collect();
            Snapshot::read(&answer[length..], &services).map(Some)
        }
        Some(404) => Ok(None),
        Some(421) => Err("it does not know this host name: add it there with --http-host".into()),
        code => Err(format!("it answers with the status {}", code.unwrap_or_default())),
    }
}

/// Returns the complete answer, which ends with the connection.
fn receive(server: &HttpServer, target: &str, until: Instant) -> io::Result<Vec<u8>> {
    let mut stream = connect(server, until)?;
    let request = format!("GET {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", server.name());
    stream.set_write_timeout(Some(left(until)?))?;
    stream.write_all(request.as_bytes())?;
    let (mut answer, mut piece) = (Vec::new(), [0; 16 * 1024]);
    loop {
        stream.set_read_timeout(Some(left(until)?))?;
        match stream.read(&mut piece) {
            Ok(0) => return Ok(answer),
            Ok(read) if answer.len() + read > MAX_HEAD + MAX_ANSWER => {
                return Err(io::Error::other("its answer is too long"));
            }
            Ok(read) => answer.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn connect(server: &HttpServer, until: Instant) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(ErrorKind::NotFound, "its name has no address");
    for address in server.name().to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(until)?.min(CONNECT_LIMIT)) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Returns the time left.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read() {
        for (text, name) in [
            ("a", "a:7580"),
            ("http://a.example/", "a.example:7580"),
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("::1", "[::1]:7580"),
            ("[::1]:81", "[::1]:81"),
            ("http://[2001:db8::1]", "[2001:db8::1]:7580"),
        ] {
            assert_eq!(HttpServer::parse(text).as_ref().map(HttpServer::name), Some(name), "{text}");
        }
        for text in
            ["", "https://a", "a/b", "a:", "a:0", "a:b", "a:99999", "unix:/x", "[a]", "[::1]80", "a b", "u@a", "a?"]
        {
            assert_eq!(HttpServer::parse(text), None, "{text}");
        }
    }
}
