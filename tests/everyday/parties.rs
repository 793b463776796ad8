//! The parties of a scene: a holder, a waiter, a client that comes later, and for jobs a client that puts another one.

use super::Cells;
use super::services::{DOES_NOT_KNOW, GIVEN_BACK, Service, TAKEN};
use super::stage::{Stage, patience};
use poolcounter_testkit::daemon::PATIENCE;
use socket2::{SockRef, TcpKeepalive};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Time for which a state must last that could still change.
pub const CALM: Duration = Duration::from_millis(100);

/// A client that waits, and gets nothing yet.
pub const WAITS: &str = "waits";
/// A client whose connection has ended.
pub const CUT_OFF: &str = "is cut off";
/// A client that finds no server.
pub const NO_SERVER: &str = "cannot connect";
/// A client that has a reply without a meaning, or a part of a reply.
const PART: &str = "reads ";
/// There is no such client, or it is gone.
const NONE: &str = "-";

impl Stage {
    /// Lets a holder take what the service lends, and a waiter wait for it.
    pub fn take_part<'a>(&mut self, service: &'a Service) -> Parties<'a> {
        let address = self.address_of(service.address).expect("it runs");
        let connect = || Party::to(address).expect("connects");
        let (request, reply) = service.prepare;
        let mut operator = connect();
        operator.send(request);
        let mut told = vec![0; reply.len()];
        operator.stream.read_exact(&mut told).expect("a reply comes");
        assert_eq!(told, reply, "{}", service.heading);
        let mut holder = connect();
        holder.send(&(service.take)(0));
        holder.wait_for(service, TAKEN);
        let taken = std::mem::take(&mut holder.input);
        let waiter = service.has_waits.then(|| {
            let mut waiter = connect();
            waiter.send(&(service.take)(600));
            waiter
        });
        let give_back = (service.give_back)(&taken);
        self.holders.push(holder.clone_stream());
        self.waiters.extend(waiter.as_ref().map(Party::clone_stream));
        self.returns.push(give_back.clone());
        let parties = Parties { service, holder, waiter, give_back, has_holder_ended: false };
        // The daemon answers a request behind the waiter's, so it has read that one.
        let told = parties.newcomer(Some(address), service.taken);
        assert_eq!(told, service.taken, "{}", service.heading);
        parties
    }
}

/// The clients of one service.
pub struct Parties<'a> {
    pub service: &'a Service,
    holder: Party,
    waiter: Option<Party>,
    give_back: Vec<u8>,
    has_holder_ended: bool,
}

/// Part of the stage that parties know after the event.
#[derive(Clone, Copy)]
pub struct Scenery {
    pub address: Option<SocketAddr>,
    pub are_holders_gone: bool,
    pub are_waiters_gone: bool,
}

impl Parties<'_> {
    /// Lets the holder give back what the daemon keeps then, if it does.
    pub fn begin_to_keep(&mut self) {
        if self.service.is_kept {
            assert_eq!(self.holder("has it"), "has it", "{}", self.service.heading);
            self.has_holder_ended = true;
        }
    }

    /// Returns what the holder, the waiter, a new client and a producer see; waits for what is wanted.
    pub fn see(&mut self, scenery: Scenery, wanted: &[String]) -> Cells {
        let wanted = |column: usize| wanted.get(column).map_or("", String::as_str);
        let is_gone = scenery.are_holders_gone || self.has_holder_ended;
        // A newcomer comes when the waiter has seen the event, and then the daemon must have seen it, too: a holder whose
        // keepalive fails resets its connection.
        let is_awaited = self.waiter.is_some() && !is_gone && wanted(0) == CUT_OFF;
        let cut_off = is_awaited.then(|| self.holder(CUT_OFF));
        let seen_by_waiter = match &mut self.waiter {
            Some(party) if !scenery.are_waiters_gone => party.wait_for(self.service, wanted(1)),
            _ => NONE.into(),
        };
        let seen_by_newcomer = self.newcomer(scenery.address, wanted(2));
        // Before the holder gives back what it has: a daemon that drains may end then.
        let seen_by_producer = self.service.put.map(|put| self.ask(scenery.address, put, wanted(3)));
        let seen_by_holder = match cut_off {
            Some(seen) => seen,
            None if is_gone => NONE.into(),
            None => self.holder(wanted(0)),
        };
        let mut seen = vec![seen_by_holder, seen_by_waiter, seen_by_newcomer];
        seen.extend(seen_by_producer);
        seen
    }

    /// Returns what the holder sees when it gives back what it has.
    fn holder(&mut self, wanted: &str) -> String {
        let is_asked = ["has it", DOES_NOT_KNOW].contains(&wanted);
        let before = self.holder.wait_for(self.service, if is_asked { WAITS } else { wanted });
        if before != WAITS {
            return before;
        }
        self.holder.send(&self.give_back);
        match &*self.holder.wait_for(self.service, if is_asked && wanted != "has it" { wanted } else { GIVEN_BACK }) {
            GIVEN_BACK => "has it".into(),
            DOES_NOT_KNOW => DOES_NOT_KNOW.into(),
            other => format!("has lost it: {other}"),
        }
    }

    fn newcomer(&self, address: Option<SocketAddr>, wanted: &str) -> String {
        self.ask(address, &(self.service.take)(0), wanted)
    }

    /// Returns what a new client sees. A service that is not ready yet is asked again.
    fn ask(&self, address: Option<SocketAddr>, request: &[u8], wanted: &str) -> String {
        let deadline = Instant::now() + patience(wanted);
        loop {
            let Some(mut party) = address.and_then(|address| Party::to(address).ok()) else { return NO_SERVER.into() };
            party.send(request);
            let seen = party.wait_for(self.service, wanted);
            if ![DOES_NOT_KNOW, CUT_OFF].contains(&&*seen) || seen == wanted || Instant::now() > deadline {
                return seen;
            }
            thread::sleep(CALM);
        }
    }
}

/// Connects with a keepalive that finds a cut within seconds.
pub fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    let second = Duration::from_secs(1);
    let keepalive = TcpKeepalive::new().with_time(second).with_interval(second).with_retries(2);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// One connection.
struct Party {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Party {
    fn to(address: SocketAddr) -> io::Result<Party> {
        Ok(Party { stream: connect(address)?, input: Vec::new() })
    }

    fn clone_stream(&self) -> TcpStream {
        self.stream.try_clone().expect("a second handle")
    }

    fn send(&mut self, bytes: &[u8]) {
        // A connection that has ended is seen by the next look.
        let _ = self.stream.write_all(bytes);
    }

    /// Waits until this party sees what is wanted, and that lasts; returns what it sees.
    fn wait_for(&mut self, service: &Service, wanted: &str) -> String {
        let deadline = Instant::now() + patience(wanted);
        let mut seen = self.look(service);
        // A whole reply, or the end, stays as it is.
        while seen != wanted && (seen == WAITS || seen.starts_with(PART)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
            seen = self.look(service);
        }
        if seen == WAITS {
            thread::sleep(CALM);
            seen = self.look(service);
        }
        seen
    }

    fn look(&mut self, service: &Service) -> String {
        self.stream.set_nonblocking(true).expect("an option");
        let mut part = [0; 4096];
        let end = loop {
            match self.stream.read(&mut part) {
                Ok(0) => break true,
                Ok(count) => self.input.extend_from_slice(&part[..count]),
                Err(error) => break error.kind() != ErrorKind::WouldBlock,
            }
        };
        self.stream.set_nonblocking(false).expect("an option");
        let known = service.replies.iter().find(|(beginning, _)| self.input.starts_with(beginning));
        match known {
            Some((_, meaning)) => (*meaning).into(),
            None if end => CUT_OFF.into(),
            None if self.input.is_empty() => WAITS.into(),
            None => format!("{PART}{:?}", String::from_utf8_lossy(&self.input)),
        }
    }
}
