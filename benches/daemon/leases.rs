//! Clients that take members and return them, and measurements of a pool with very many.

use super::clients::{Clients, PATIENCE};
use super::load::Player;
use super::random::Random;
use super::report::{Values, p99};
use super::results::median;
use super::server::{Program, Server};
use super::settings::Settings;
use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Error, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Number of lines that are sent before their replies are read.
const BATCH: usize = 500;
/// Longest wait; if it is exceeded, the server does not hand over.
const LONGEST: Duration = Duration::from_secs(60);

/// Declares the pool `p` with `members` fixed members, whose attribute `kind` has `kinds` values. The bare limit has no
/// pools.
pub fn declare(server: &Server, members: usize, kinds: usize) -> io::Result<()> {
    if server.program == Program::Limit {
        return Ok(());
    }
    let mut operator = Line::connect(server)?;
    operator.expect(&format!("POOL p 0 {members} queue=1000000 on_loss=ok\n"), 1, "OK")?;
    operator.expect_each(members, |n| format!("ADD p member-{n} kind={}\n", n % kinds))
}

/// Clients that take a member and return it, over and over.
pub struct Takers {
    leases: Vec<Option<Vec<u8>>>,
    /// True if a client returns its member and waits for the next in one packet.
    is_in_a_queue: bool,
    /// Number of values of the attribute, one of which each client wants; 1 for no such wish.
    kinds: usize,
    random: Random,
}

impl Takers {
    pub fn new(clients: usize) -> Takers {
        Takers { leases: vec![None; clients], is_in_a_queue: false, kinds: 1, random: Random::new(1) }
    }

    pub fn in_a_queue(clients: usize) -> Takers {
        Takers { is_in_a_queue: true, ..Takers::new(clients) }
    }

    pub fn by_attribute(clients: usize, kinds: usize) -> Takers {
        Takers { kinds, ..Takers::new(clients) }
    }

    fn take(&mut self, requests: &mut Vec<u8>) {
        if self.kinds > 1 {
            let kind = (self.random.fraction() * self.kinds as f64) as usize;
            requests.extend_from_slice(format!("TAKE p 60 kind={kind}\n").as_bytes());
        } else {
            requests.extend_from_slice(b"TAKE p 60\n");
        }
    }
}

impl Player for Takers {
    fn speak(&mut self, client: usize, requests: &mut Vec<u8>) -> usize {
        let Some(lease) = self.leases[client].take() else {
            self.take(requests);
            return 1;
        };
        requests.extend_from_slice(&[b"RETURN ", &*lease, b"\n"].concat());
        if !self.is_in_a_queue {
            return 1;
        }
        self.take(requests);
        2
    }

    fn hear(&mut self, client: usize, reply: &[u8]) -> bool {
        match lease_of(reply) {
            Some(lease) => {
                self.leases[client] = Some(lease.to_vec());
                true
            }
            // RETURNED, and the bare limit's RELEASED.
            None => reply[0] == b'R',
        }
    }
}

fn lease_of(reply: &[u8]) -> Option<&[u8]> {
    reply.strip_prefix(b"MEMBER ")?.split(|byte| *byte == b' ').next()
}

/// Takes and returns a member `pairs` times, one after another.
pub fn take_and_return(server: &Server, clients: &mut Clients, pairs: usize) -> io::Result<()> {
    declare(server, 1, 1)?;
    for _ in 0..pairs {
        let reply = clients.ask(0, b"TAKE p 60\n")?;
        let lease = lease_of(&reply).ok_or_else(|| unexpected(&reply))?;
        clients.ask(0, &[b"RETURN ", lease, b"\n"].concat())?;
    }
    Ok(())
}

/// Returns the time from a return until the next waiter has the member: the median and the 99th percentile in
/// microseconds. There is one such hand-over at a time, so that none waits for another.
pub fn hand_over(server: &Server, count: usize, members: usize, settings: &Settings) -> io::Result<Values> {
    let members = members.min(count - 1);
    declare(server, members, 1)?;
    let mut clients = Clients::connect(server, count)?;
    let mut holders: VecDeque<(usize, Vec<u8>)> = VecDeque::new();
    for client in 0..count {
        clients.send(client, b"TAKE p 600\n")?;
    }
    while holders.len() < members {
        await_holders(&mut clients, &mut holders)?;
    }
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < settings.time || times.is_empty() {
        let (holder, lease) = holders.pop_front().ok_or_else(|| Error::other("there is no holder"))?;
        let begun = Instant::now();
        clients.send(holder, &[b"RETURN ", &*lease, b"\n"].concat())?;
        await_holders(&mut clients, &mut holders)?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
        clients.send(holder, b"TAKE p 600\n")?;
    }
    let middle = median(&mut times).unwrap_or(f64::NAN);
    Ok(vec![middle, p99(&times)])
}

/// Waits until some client has a member, and adds each such client, with its lease.
fn await_holders(clients: &mut Clients, holders: &mut VecDeque<(usize, Vec<u8>)>) -> io::Result<()> {
    let (begun, before) = (Instant::now(), holders.len());
    while holders.len() == before {
        if begun.elapsed() > PATIENCE {
            return Err(Error::other("nobody gets the member"));
        }
        for n in 0..clients.wait_for_some()? {
            let (client, _) = clients.ready(n);
            let received = clients.receive(client)?;
            let lease = received.split_inclusive(|byte| *byte == b'\n').find_map(lease_of);
            lease.into_iter().for_each(|lease| holders.push_back((client, lease.to_vec())));
        }
    }
    Ok(())
}

/// Culls this number of members of a provider. Returns resident bytes for each besides its name, the longest latency of
/// another client and the time from the first to the last stop, both in milliseconds, and the processor time for each
/// in microseconds.
pub fn cull(server: &Server, members: usize) -> io::Result<Values> {
    const NAME_BYTES: usize = 16;
    let (mut operator, mut provider) = (Line::connect(server)?, Line::connect(server)?);
    let sizes = format!("POOL p 0 {members} cull_interval=0 stop_timeout=600\n");
    operator.expect(&sizes, 1, "OK")?;
    provider.expect("PROVIDE p\n", 1, "OK")?;
    let before = server.resident()?;
    provider.expect_each(members, |n| format!("OFFER p {n:0NAME_BYTES$}\n"))?;
    let bytes = server.resident()?.saturating_sub(before) as f64 / members as f64 - NAME_BYTES as f64;
    let is_over = AtomicBool::new(false);
    let mut other = Line::connect(server)?;
    let used = server.cpu_time()?;
    operator.expect("RECONFIGURE p max_age=0.1 cull_interval=0.5\n", 1, "OK")?;
    let (slowest, took) = thread::scope(|scope| {
        let watching = scope.spawn(|| other.slowest_until(&is_over));
        let took = provider.stop_all(members);
        is_over.store(true, Ordering::Relaxed);
        let slowest = watching.join().expect("it does not panic")?;
        io::Result::Ok((slowest, took?))
    })?;
    let used = server.cpu_time()?.saturating_sub(used).as_secs_f64() * 1e6 / members as f64;
    Ok(vec![bytes, ms(slowest), ms(took), used])
}

/// One connection for many requests.
struct Line {
    reader: BufReader<TcpStream>,
}

impl Line {
    fn connect(server: &Server) -> io::Result<Line> {
        let stream = TcpStream::connect(server.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LONGEST))?;
        Ok(Line { reader: BufReader::with_capacity(256 * 1024, stream) })
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line)?;
        if line.is_empty() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(line) }
    }

    /// Sends requests to which each of the replies must be this line.
    fn expect(&mut self, requests: &str, replies: usize, wanted: &str) -> io::Result<()> {
        self.send(requests.as_bytes())?;
        for _ in 0..replies {
            let line = self.line()?;
            if line.trim_ascii_end() != wanted.as_bytes() {
                return Err(unexpected(&line));
            }
        }
        Ok(())
    }

    /// Sends very many requests in batches, to each of which the reply must be OK.
    fn expect_each(&mut self, count: usize, request: impl Fn(usize) -> String) -> io::Result<()> {
        for first in (0..count).step_by(BATCH) {
            let last = count.min(first + BATCH);
            let requests: String = (first..last).map(&request).collect();
            self.expect(&requests, last - first, "OK")?;
        }
        Ok(())
    }

    /// Confirms the stop of each member, and returns the time since the first request to stop one.
    fn stop_all(&mut self, members: usize) -> io::Result<Duration> {
        let (mut stopped, mut confirmed) = (0, 0);
        let mut begun = None;
        let mut answers = Vec::new();
        while confirmed < members {
            let line = self.line()?;
            match line.strip_prefix(b"!STOP p ") {
                Some(member) => {
                    begun.get_or_insert_with(Instant::now);
                    answers.extend_from_slice(&[b"STOPPED ", member].concat());
                    stopped += 1;
                }
                None if line == b"OK\n" => confirmed += 1,
                None => return Err(unexpected(&line)),
            }
            // Answers go out when nothing more is readable, or there are many.
            if self.reader.buffer().is_empty() || answers.len() > 32 * 1024 || stopped == members {
                self.reader.get_mut().write_all(&std::mem::take(&mut answers))?;
            }
        }
        Ok(begun.map_or(Duration::ZERO, |begun| begun.elapsed()))
    }

    /// Returns the latency of the slowest of many requests until `is_over` is true.
    fn slowest_until(&mut self, is_over: &AtomicBool) -> io::Result<Duration> {
        let mut slowest = Duration::ZERO;
        while !is_over.load(Ordering::Relaxed) {
            let asked = Instant::now();
            self.send(b"UTILIZATION p\n")?;
            self.line()?;
            slowest = slowest.max(asked.elapsed());
            thread::sleep(Duration::from_millis(1));
        }
        Ok(slowest)
    }
}

fn unexpected(reply: &[u8]) -> Error {
    Error::other(format!("unexpected reply: {}", reply.escape_ascii()))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
