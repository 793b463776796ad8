//! Fetches a page of several daemons as JSON, each in a thread of its own, with limits of the waits and of the size of
//! each answer, whatever the other side sends.

use crate::options::HttpSettings;
use crate::wire::MAX_HEAD;
use poolcounter_service::report::Snapshot;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Time limit of a server: of the connection attempts, and of its whole answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longest answer, in bytes: the limit of a daemon's unsent output.
const MAX_ANSWER: usize = 1024 * 1024;
/// Limit of addresses of a server that are tried.
const MOST_ADDRESSES: usize = 4;

/// Failure of a server without an answer.
const LATE: &str = "does not answer in time";

/// Content of a daemon's answer, None if the daemon does not know the thing; or the reason why there is none.
pub type Told = Result<Option<Snapshot>, String>;

/// Asks all servers the same question, a path with a query, each in a thread of its own. Returns the answer of each
/// about the services that are shown.
pub fn ask_all(HttpSettings { servers, services, .. }: &HttpSettings, target: &str) -> Vec<Told> {
    let (sender, answers) = channel();
    for (index, server) in servers.iter().cloned().enumerate() {
        let (sender, target, services) = (sender.clone(), target.to_string(), services.to_vec());
        // A server without a thread gives no answer. A lookup of a name may take longer than all of this.
        _ = spawn(move || _ = sender.send((index, ask(&server, &target, &services))));
    }
    drop(sender);
    let end = Instant::now() + PATIENCE;
    let mut told = vec![Err(LATE.into()); servers.len()];
    while let Ok((index, answer)) = answers.recv_timeout(end.saturating_duration_since(Instant::now())) {
        told[index] = answer;
    }
    told
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
    let head = answer.windows(4).position(|end| end == b"\r\n\r\n").filter(|_| answer.starts_with(b"HTTP/1.1 "));
    let head = head.ok_or("no status page answers there: is it the address of its --http?")?;
    match answer.get(9..12).unwrap_or_default() {
        b"200" => Snapshot::read(&answer[head + 4..], services).map(Some),
        b"404" => Ok(None),
        b"421" => Err("it does not know this host name: add it there with --http-host".into()),
        code => Err(format!("it answers with the status {}", code.escape_ascii())),
    }
}

/// Returns the complete answer, which ends with the connection.
fn receive(server: &str, target: &str) -> io::Result<Vec<u8>> {
    let end = Instant::now() + PATIENCE;
    let addresses: Vec<_> = server.to_socket_addrs()?.take(MOST_ADDRESSES).collect();
    // The first of several addresses may be one that nobody answers.
    let connect = |address| TcpStream::connect_timeout(address, PATIENCE / (addresses.len() as u32));
    let none = Err(io::Error::new(ErrorKind::NotFound, "its name has no address"));
    let mut stream = addresses.iter().fold(none, |tried, address| tried.or_else(|_| connect(address)))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let (mut answer, mut chunk) = (Vec::new(), [0; 16_384]);
    while answer.len() <= MAX_HEAD + MAX_ANSWER {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut chunk)? {
            0 => return Ok(answer),
            length => answer.extend_from_slice(&chunk[..length]),
        }
    }
    Err(io::Error::other("its answer is too long"))
}
