//! A client of the status page: raw requests out, parsed responses in.

use super::daemon::{Daemon, PATIENCE};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;

/// One connection.
pub struct Web {
    reader: BufReader<TcpStream>,
}

/// Response of the server.
pub struct Response {
    /// Status, without its text.
    pub status: u16,
    /// Headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Body.
    pub body: Vec<u8>,
}

/// Starts a daemon that serves HTTP on a free port too, and returns it with that address.
pub fn start(options: &[&str]) -> (Daemon, SocketAddr) {
    let daemon = Daemon::start(&[&["--http", "127.0.0.1:0"], options].concat());
    let line = daemon.lines.iter().find(|line| line.contains("the status page are at ")).expect("it is said");
    let address = line.rsplit(' ').next().and_then(|word| word.parse().ok()).expect("an address");
    (daemon, address)
}

/// Starts the page of these servers on a free port.
pub fn page_of(servers: &[SocketAddr]) -> Daemon {
    let mut command = Command::new(Daemon::program());
    command.args(["page", "--http", "127.0.0.1:0"]);
    servers.iter().for_each(|server| _ = command.args(["--server", &server.to_string()]));
    Daemon::run(&mut command)
}

/// Returns one page, fetched on a connection of its own.
pub fn fetch(address: SocketAddr, path: &str) -> Response {
    Web::to(address).get(path)
}

impl Web {
    /// Connects to the daemon that serves HTTP at this address.
    pub fn to(address: SocketAddr) -> Web {
        let stream = TcpStream::connect(address).expect("connects");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        stream.set_nodelay(true).expect("an option");
        Web { reader: BufReader::new(stream) }
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).expect("is sent");
    }

    /// Requests a page, and returns the response.
    pub fn get(&mut self, path: &str) -> Response {
        self.send(request(path).as_bytes());
        self.response()
    }

    /// Returns the next response, which has a body.
    pub fn response(&mut self) -> Response {
        let mut response = self.head();
        let length = response.headers["content-length"].parse().expect("a number");
        response.body.resize(length, 0);
        self.reader.read_exact(&mut response.body).expect("the whole body comes");
        response
    }

    /// Returns the next response, which has no body.
    pub fn head(&mut self) -> Response {
        let mut lines = std::iter::from_fn(|| {
            let mut line = String::new();
            self.reader.read_line(&mut line).expect("a line comes");
            let line = line.strip_suffix("\r\n").expect("lines end properly").to_string();
            (!line.is_empty()).then_some(line)
        });
        let line = lines.next().expect("a response comes");
        let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status = status.unwrap_or_else(|| panic!("{line}"));
        let header = |line: String| {
            let (name, value) = line.split_once(": ").expect("a header");
            (name.to_lowercase(), value.to_string())
        };
        Response { status, headers: lines.map(header).collect(), body: Vec::new() }
    }

    /// Returns whether the server ends the connection now, without more bytes.
    pub fn is_over(&mut self) -> bool {
        // A reset is an end as well.
        !matches!(self.reader.read(&mut [0; 64]), Ok(len) if len > 0)
    }

    /// Returns the socket.
    pub fn stream(&self) -> &TcpStream {
        self.reader.get_ref()
    }
}

impl Response {
    /// Returns the body, which is text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("pages are valid text")
    }

    /// Returns the value of a metric, if the body is a page of them.
    pub fn metric(&self, name: &str) -> f64 {
        let line = self.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} is not in {}", self.text()))
    }
}

/// Returns the request for a page.
pub fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}
