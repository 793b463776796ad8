//! Fetches a page of several daemons as JSON, each in a thread of its own, with limits of the waits and of the size of
//! each answer, whatever the other side sends.

use super::MOST_VIEWS;
use crate::wire::MAX_HEAD;
use httparse::{EMPTY_HEADER, Status};
use log::{info, warn};
use poolcounter_core::time::Span;
use poolcounter_service::report::snapshot::Snapshot;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv6Addr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit of a view, and so of the connection attempts to a server, and of each wait for its answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longest answer, in bytes: the limit of a daemon's unsent output.
const MAX_ANSWER: usize = 1024 * 1024;
/// Limit of addresses of a server that are tried.
const MOST_ADDRESSES: usize = 4;
/// Limit of header lines in an answer.
const MAX_HEADERS: usize = 64;

/// Limit of threads with the name of one server: the views under way and their questions, and as many questions that have
/// outlasted their views. A server that has them is not asked.
const MOST_HOLDERS: usize = 4 * MOST_VIEWS;
/// Failure of a server without an answer.
const LATE: &str = "does not answer in time";

/// Content of a daemon's answer, None if the daemon does not know the thing; or the reason why there is none.
pub type Told = Result<Option<Snapshot>, String>;

/// Daemon of the fleet.
pub struct Server {
    /// Host and port.
    pub name: String,
    /// Start of the first view without an answer; None if it answered the last view.
    silent_since: Mutex<Option<Instant>>,
}

/// Answer of a daemon to a view.
pub struct Answer {
    /// The daemon.
    pub server: Arc<Server>,
    /// Content or failure.
    pub told: Told,
    /// Time for which the server has not answered; None if it has.
    pub silence: Option<Span>,
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

/// Asks all `servers` the same question, a path with a query, each in a thread of its own. Returns the answer of each
/// about services of these names; a server that takes longer than `PATIENCE` has failed.
pub fn ask_all(servers: &[Arc<Server>], target: &str, services: &[&'static str]) -> Vec<Answer> {
    let begun = Instant::now();
    let (answers, receiver) = channel();
    for (place, server) in servers.iter().enumerate().filter(|(_, server)| Arc::strong_count(server) < MOST_HOLDERS) {
        let (server, target) = (Arc::clone(server), target.to_owned());
        let (services, answers) = (services.to_vec(), answers.clone());
        // A server without a thread gives no answer.
        _ = spawn(move || _ = answers.send((place, ask(&server.name, &target, &services))));
    }
    drop(answers);
    let mut told = vec![Err(LATE.into()); servers.len()];
    while let Ok((place, answer)) = receiver.recv_timeout(PATIENCE.saturating_sub(begun.elapsed())) {
        told[place] = answer;
    }
    let answer = |(server, told): (&Arc<Server>, Told)| Answer {
        silence: server.silence(begun, &told),
        server: Arc::clone(server),
        told,
    };
    servers.iter().zip(told).map(answer).collect()
}

impl Server {
    /// Returns the server with this host and port.
    pub fn of(name: &str) -> Server {
        Server { name: name.into(), silent_since: Mutex::default() }
    }

    /// Notes the answer of the server to a view, and returns the time since the first view without one.
    fn silence(&self, begun: Instant, told: &Told) -> Option<Span> {
        let name = &self.name;
        let mut since = self.silent_since.lock().unwrap_or_else(PoisonError::into_inner);
        match told {
            Err(failure) if since.is_none() => warn!("{name} does not answer: {failure}"),
            Ok(_) if since.is_some() => info!("{name} answers again"),
            _ => {}
        }
        *since = told.is_err().then_some(since.unwrap_or(begun));
        since.map(|since| Span::from(since.elapsed()))
    }
}

/// Calls `work` in a thread of its own.
///
/// # Errors
///
/// Fails if the system has no thread left.
pub fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().spawn(work).map(drop)
}

/// Asks one server; see [`Told`].
fn ask(server: &str, target: &str, services: &[&'static str]) -> Told {
    let answer = receive(server, target).map_err(|error| match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => LATE.into(),
        _ => error.to_string(),
    })?;
    let mut headers = [EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Response::new(&mut headers);
    let Ok(Status::Complete(length)) = head.parse(&answer) else {
        return Err("no status page answers there: is it the address of its --http?".into());
    };
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
    let addresses: Vec<_> = server.to_socket_addrs()?.take(MOST_ADDRESSES).collect();
    for address in &addresses {
        // The first of several addresses may be one that nobody answers.
        connected = TcpStream::connect_timeout(address, PATIENCE / (addresses.len() as u32));
        if connected.is_ok() {
            break;
        }
    }
    let mut stream = connected?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let (most, mut answer) = (MAX_HEAD + MAX_ANSWER, Vec::new());
    // A server that sends a byte now and then keeps only threads of its own, and counts as silent.
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

    #[test]
    fn silence_lasts_until_an_answer() {
        let (server, begun) = (Server::of("a"), Instant::now());
        let silence = |told: Told| server.silence(Instant::now(), &told);
        assert!(silence(Ok(None)).is_none());
        assert!(silence(Err("gone".into())).is_some_and(|silence| silence <= begun.elapsed().into()));
        let (first, long) = (*server.silent_since.lock().expect("is whole"), Duration::from_secs(60));
        *server.silent_since.lock().expect("is whole") = first.and_then(|first| first.checked_sub(long));
        assert!(silence(Err("lost".into())).is_some_and(|silence| silence >= long.into()), "since the first one");
        assert!(silence(Ok(None)).is_none());
    }

    #[test]
    fn server_with_too_many_questions_is_not_asked() {
        let servers = [Arc::new(Server::of("[::1]"))];
        let failure = || ask_all(&servers, "/", &[]).remove(0).told.err();
        assert!(failure().is_some_and(|failure| failure != LATE), "the address has no port");
        let _views = vec![Arc::clone(&servers[0]); MOST_HOLDERS];
        assert_eq!(failure().as_deref(), Some(LATE));
    }
}
