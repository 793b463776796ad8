//! Fetches the pages of one daemon as JSON, in a thread of its own, with limits of the waits and of the size of each
//! answer, whatever the other side sends.

use crate::wire::MAX_HEAD;
use httparse::{EMPTY_HEADER, Status};
use poolcounter_service::contract::Wake;
use poolcounter_service::report::snapshot::Snapshot;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv6Addr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::Duration;

/// Time limit of a connection attempt for each address of a server, of the request, and of each wait for its answer.
const LIMIT: Duration = Duration::from_secs(2);
/// Longest answer, in bytes: the limit of a daemon's unsent output.
const MAX_ANSWER: usize = 1024 * 1024;
/// Limit of header lines in an answer.
const MAX_HEADERS: usize = 64;

/// Answer of a daemon, or its failure.
pub struct Answer {
    /// Index of the daemon in the fleet.
    pub place: usize,
    /// Question.
    pub target: String,
    /// Content or failure; None if the daemon does not know the thing.
    pub told: Result<Option<Snapshot>, String>,
}

/// Returns the host and port of a server's page, from that, its host, or its URL; None if the text is none of these.
pub fn server_of(text: &str) -> Option<String> {
    let text = text.strip_prefix("http://").unwrap_or(text);
    let text = text.strip_suffix('/').unwrap_or(text);
    if text.parse::<Ipv6Addr>().is_ok() {
        return Some(format!("[{text}]:{}", crate::INFO.port));
    }
    let (host, port) = match text.rsplit_once(':').filter(|_| !text.ends_with(']')) {
        Some((host, port)) => (host, port.parse::<u16>().ok().filter(|port| *port > 0)?),
        None => (text, crate::INFO.port),
    };
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(ip6) => ip6.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(is_of_name),
    };
    is_host.then(|| format!("{host}:{port}"))
}

/// Starts the thread that sends one daemon the `questions`, each a path with a query, and returns the answers about
/// services of these names. Ends once no more questions can come.
pub fn spawn(
    place: usize,
    (server, services): (String, Vec<&'static str>),
    questions: Receiver<String>,
    answers: Sender<Answer>,
    wake: Wake,
) {
    thread::spawn(move || {
        for target in questions {
            let told = receive(&server, &target).map_err(|error| match error.kind() {
                ErrorKind::TimedOut | ErrorKind::WouldBlock => "does not answer in time".into(),
                _ => error.to_string(),
            });
            let told = told.and_then(|answer| read(&answer, &services));
            if answers.send(Answer { place, target, told }).is_err() {
                return;
            }
            wake.wake();
        }
    });
}

/// Parses a complete answer about services of these names; None if the daemon does not know the thing.
fn read(answer: &[u8], services: &[&'static str]) -> Result<Option<Snapshot>, String> {
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Response::new(&mut headers);
    let Ok(Status::Complete(length)) = head.parse(answer) else { return Err("its answer is no HTTP".into()) };
    match head.code {
        Some(200) => Snapshot::read(&answer[length..], services).map(Some),
        Some(404) => Ok(None),
        Some(421) => Err("it does not know this host name: add it there with --http-host".into()),
        code => Err(format!("it answers with the status {}", code.unwrap_or_default())),
    }
}

/// Returns the complete answer, which ends with the connection.
fn receive(server: &str, target: &str) -> io::Result<Vec<u8>> {
    let mut connected = Err(io::Error::new(ErrorKind::NotFound, "its name has no address"));
    for address in server.to_socket_addrs()? {
        connected = TcpStream::connect_timeout(&address, LIMIT);
        if connected.is_ok() {
            break;
        }
    }
    let mut stream = connected?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let (most, mut answer) = (MAX_HEAD + MAX_ANSWER, Vec::new());
    // A server that sends a byte now and then keeps only its own thread, and counts as silent.
    stream.take(most as u64 + 1).read_to_end(&mut answer)?;
    if answer.len() > most { Err(io::Error::other("its answer is too long")) } else { Ok(answer) }
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
            assert_eq!(server_of(text).as_deref(), Some(name), "{text}");
        }
        for text in
            ["", "https://a", "a/b", "a:", "a:0", "a:b", "a:99999", "unix:/x", "[a]", "[::1]80", "a b", "u@a", "a?"]
        {
            assert_eq!(server_of(text), None, "{text}");
        }
    }
}
