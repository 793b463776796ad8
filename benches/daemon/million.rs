//! Very many counters, and very many holdings: their memory, and the time of requests that go through all of them.

use super::clients::Clients;
use super::protocol::{self, Protocol};
use super::report::Values;
use super::server::Server;
use super::settings::Settings;
use std::io::{self, Error, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Number of counters, except in cases whose memory would be too large.
const MILLION: usize = 1_000_000;
const REHEARSAL: usize = 1_000;
/// Pairs of requests in one write.
const BATCH: usize = 1_000;
/// Number of counters that are checked to see whether all are released.
const SEEN: usize = 64;
/// Longest time until the holdings of a closed connection are released.
const LONGEST_CLOSE: Duration = Duration::from_secs(10);

/// Connections that hold counters.
#[derive(Clone, Copy)]
pub struct Holders {
    /// Number of connections.
    pub clients: usize,
    /// Number of counters of which each holds a unit.
    pub each: usize,
}

/// Returns the number of counters for "very many".
pub fn size(settings: &Settings) -> usize {
    if settings.is_rehearsal { REHEARSAL } else { MILLION }
}

/// Returns the time of a Dump of this number of counters and its processor time, both in milliseconds, and the growth
/// of the resident memory meanwhile, in KiB.
pub fn dump(server: &Server, count: usize) -> io::Result<Values> {
    let mut line = Line::connect(server)?;
    line.fill(count, 16, Unit::GivenBack)?;
    server.peak()?;
    let (before, used, start) = (server.resident()?, server.cpu_time()?, Instant::now());
    line.stream.write_all(&protocol::dump())?;
    let mut records = 0;
    while !line.hear(protocol::is_empty)? {
        records += 1;
    }
    let (time, used) = (start.elapsed(), server.cpu_time()?.saturating_sub(used));
    if records != count {
        return Err(Error::other(format!("a Dump tells of {records} counters instead of {count}")));
    }
    let grown = server.peak()?.saturating_sub(before);
    Ok(vec![ms(time), ms(used), grown as f64 / 1024.0])
}

/// Returns the slowest thousand pairs of requests for counters that are not there yet, in milliseconds, and pairs per
/// second.
pub fn grow(server: &Server, count: usize) -> io::Result<Values> {
    let mut line = Line::connect(server)?;
    let start = Instant::now();
    let slowest = line.fill(count, 16, Unit::GivenBack)?;
    Ok(vec![ms(slowest), count as f64 / start.elapsed().as_secs_f64()])
}

/// Closes a connection that holds units of this number of counters. Returns the longest latency of another client
/// meanwhile, and the time until the last unit is released, both in milliseconds.
pub fn close(server: &Server, count: usize) -> io::Result<Values> {
    let (mut holder, mut other) = (Line::connect(server)?, Line::connect(server)?);
    holder.fill(count, 16, Unit::Kept)?;
    let start = Instant::now();
    drop(holder);
    let mut slowest = Duration::ZERO;
    let mut next = 0;
    while next < count && start.elapsed() < LONGEST_CLOSE {
        let asked = Instant::now();
        other.stream.write_all(&protocol::get(&name(next, 16)))?;
        let is_back = other.hear(protocol::is_zero)?;
        slowest = slowest.max(asked.elapsed());
        // The counters are awaited one after the other, so that in the end all were seen to be released.
        next += if is_back { count.div_ceil(SEEN) } else { 0 };
    }
    Ok(vec![ms(slowest), ms(start.elapsed())])
}

/// Returns the resident bytes per counter, less the name.
pub fn memory(server: &Server, count: usize, name_bytes: usize) -> io::Result<Values> {
    let mut line = Line::connect(server)?;
    let before = server.resident()?;
    line.fill(count, name_bytes, Unit::GivenBack)?;
    let grown = server.resident()?.saturating_sub(before);
    Ok(vec![grown as f64 / count as f64 - name_bytes as f64])
}

/// Returns the resident bytes per connection that has acquired and released a unit.
pub fn idle(server: &Server, count: usize) -> io::Result<Values> {
    let mut clients = Clients::connect(server, 1)?;
    use_once(&mut clients, 0)?;
    let before = server.resident()?;
    let mut clients = Clients::connect(server, count)?;
    (0..count).try_for_each(|client| use_once(&mut clients, client))?;
    let grown = server.resident()?.saturating_sub(before);
    Ok(vec![grown as f64 / count as f64])
}

/// Returns the resident bytes per holding, beyond the bytes of a connection that has held once.
pub fn holdings(server: &Server, holders: Holders) -> io::Result<Values> {
    let mut line = Line::connect(server)?;
    line.fill(holders.each, 16, Unit::GivenBack)?;
    let mut clients = Clients::connect(server, holders.clients)?;
    (0..holders.clients).try_for_each(|client| use_once(&mut clients, client))?;
    let requests: Vec<Vec<u8>> = (0..holders.each).map(|counter| protocol::acquire(&name(counter, 16))).collect();
    let requests = requests.concat();
    let before = server.resident()?;
    for client in 0..holders.clients {
        let mut granted = 0;
        clients
            .ask_for(client, &requests, holders.each, |reply| granted += usize::from(protocol::is_success(reply)))?;
        if granted != holders.each {
            return Err(Error::other("a unit is refused"));
        }
    }
    let grown = server.resident()?.saturating_sub(before);
    Ok(vec![grown as f64 / (holders.clients * holders.each) as f64])
}

/// Returns a connection that holds a unit of each of this number of counters.
pub fn fill(address: SocketAddr, count: usize) -> io::Result<Line> {
    let mut line = Line::connect_to(address, Protocol::Frames)?;
    line.fill(count, 16, Unit::Kept)?;
    Ok(line)
}

/// Acquires and releases a unit of each of this number of counters.
pub fn use_each_once(address: SocketAddr, count: usize) -> io::Result<()> {
    Line::connect_to(address, Protocol::Frames)?.fill(count, 16, Unit::GivenBack).map(drop)
}

fn use_once(clients: &mut Clients, client: usize) -> io::Result<()> {
    ask_for_success(clients, client, &protocol::acquire(b"Resource:used"))?;
    ask_for_success(clients, client, &protocol::release(b"Resource:used"))
}

fn ask_for_success(clients: &mut Clients, client: usize, request: &[u8]) -> io::Result<()> {
    let reply = clients.ask(client, request)?;
    if protocol::is_success(&reply) { Ok(()) } else { Err(Error::other(format!("refused: {}", reply.escape_ascii()))) }
}

/// Fate of an acquired unit.
#[derive(Clone, Copy, PartialEq)]
enum Unit {
    GivenBack,
    Kept,
}

/// One connection that sends very many requests and reads the replies as they come.
pub struct Line {
    /// Socket of the connection.
    pub stream: TcpStream,
    protocol: Protocol,
    buffer: Vec<u8>,
    /// Range of the buffer with received bytes that are not handled yet.
    unheard: std::ops::Range<usize>,
}

impl Line {
    /// Connects to a server.
    pub fn connect(server: &Server) -> io::Result<Line> {
        Line::connect_to(server.address, server.protocol)
    }

    fn connect_to(address: SocketAddr, protocol: Protocol) -> io::Result<Line> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LONGEST_CLOSE))?;
        Ok(Line { stream, protocol, buffer: vec![0; 256 * 1024], unheard: 0..0 })
    }

    /// Acquires a unit of each of this number of counters, and returns the time of the slowest batch.
    fn fill(&mut self, count: usize, name_bytes: usize, unit: Unit) -> io::Result<Duration> {
        let mut slowest = Duration::ZERO;
        for first in (0..count).step_by(BATCH) {
            let names = (first..count.min(first + BATCH)).map(|number| name(number, name_bytes));
            let pairs = names.map(|name| match unit {
                Unit::GivenBack => [protocol::acquire(&name), protocol::release(&name)].concat(),
                Unit::Kept => protocol::acquire(&name),
            });
            let requests = pairs.collect::<Vec<_>>().concat();
            let replies = if unit == Unit::Kept { BATCH } else { 2 * BATCH };
            let replies = replies.min((count - first) * replies / BATCH);
            let start = Instant::now();
            self.stream.write_all(&requests)?;
            for _ in 0..replies {
                if !self.hear(protocol::is_success)? {
                    return Err(Error::other("a unit is refused"));
                }
            }
            slowest = slowest.max(start.elapsed());
        }
        Ok(slowest)
    }

    /// Waits for the next reply, and returns the verdict of `judge` on it.
    pub fn hear(&mut self, judge: impl Fn(&[u8]) -> bool) -> io::Result<bool> {
        loop {
            let unheard = &self.buffer[self.unheard.clone()];
            if let Some(len) = self.protocol.len(unheard) {
                let verdict = judge(&unheard[..len]);
                self.unheard.start += len;
                return Ok(verdict);
            }
            self.buffer.copy_within(self.unheard.clone(), 0);
            self.unheard = 0..self.unheard.len();
            match self.stream.read(&mut self.buffer[self.unheard.end..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                len => self.unheard.end += len,
            }
        }
    }
}

/// Returns a name of this length, different for each number.
fn name(number: usize, name_bytes: usize) -> Vec<u8> {
    format!("{number:0name_bytes$}").into_bytes()
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
