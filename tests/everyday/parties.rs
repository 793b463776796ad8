//! The parties of a scene: a holder, a waiter, and a client that comes later.

use super::services::{GIVEN_BACK, Service, TAKEN, TAKEN_BY_ANOTHER};
use poolcounter_testkit::daemon::{Daemon, PATIENCE};
use poolcounter_testkit::scratch::Scratch;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

/// Time for which a state must last that could still change.
pub const CALM: Duration = Duration::from_millis(100);

/// A client that waits, and gets nothing yet.
const WAITS: &str = "waits";
/// A client whose connection has ended.
const CUT_OFF: &str = "is cut off";
/// There is no such client, or it is gone.
const NONE: &str = "-";

/// The daemon with all services, and its clients.
pub struct Stage {
    pub daemon: Option<Daemon>,
    scratch: Scratch,
    /// Holders of all services, for events that meet them.
    pub holders: Vec<TcpStream>,
    pub waiters: Vec<TcpStream>,
    /// Clients that the event ends, so that they see nothing.
    pub are_holders_gone: bool,
    pub are_waiters_gone: bool,
    /// Requests by which the holders give back their locks and so on, in the order of `holders`.
    pub returns: Vec<Vec<u8>>,
}

impl Stage {
    pub fn new() -> Stage {
        let mut stage = Stage {
            daemon: None,
            scratch: Scratch::new(),
            holders: Vec::new(),
            waiters: Vec::new(),
            are_holders_gone: false,
            are_waiters_gone: false,
            returns: Vec::new(),
        };
        stage.start();
        stage
    }

    /// Starts the daemon, or starts it again with the same settings and files.
    pub fn start(&mut self) {
        let store = format!("sqlite:{}", self.scratch.file("jobs.db").display());
        let kept = format!("sqlite:{}", self.scratch.file("members.db").display());
        let admin = format!("unix:{}", self.scratch.file("admin.sock").display());
        let nowhere = "127.0.0.1:0";
        self.daemon = Some(Daemon::start(&[
            "--counter",
            "--counter-listen",
            nowhere,
            "--members",
            "--members-listen",
            nowhere,
            "--members-store",
            &kept,
            "--jobs",
            "--jobs-listen",
            nowhere,
            "--jobs-store",
            &store,
            "--admin",
            &admin,
        ]));
    }

    pub fn daemon(&mut self) -> &mut Daemon {
        self.daemon.as_mut().expect("it runs")
    }

    /// Asks for an operation of the administration.
    pub fn operate(&self, request: &str) {
        let mut socket = UnixStream::connect(self.scratch.file("admin.sock")).expect("connects");
        socket.write_all(format!("{request}\n").as_bytes()).expect("is sent");
        let mut reply = [0; 1];
        socket.read_exact(&mut reply).expect("a reply comes");
    }

    /// Lets a holder take what the service lends, and a waiter wait for it.
    pub fn take_part<'a>(&mut self, service: &'a Service) -> Parties<'a> {
        let address = (service.address)(self.daemon.as_ref().expect("it runs"));
        let connect = || TcpStream::connect(address).expect("connects");
        let (request, reply) = service.prepare;
        if !request.is_empty() {
            let mut operator = connect();
            operator.write_all(request).expect("is sent");
            let mut told = vec![0; reply.len()];
            operator.read_exact(&mut told).expect("a reply comes");
            assert_eq!(told, reply, "{}", service.heading);
        }
        let mut holder = Party { stream: connect(), input: Vec::new() };
        holder.send(&(service.take)(0));
        holder.wait_for(service, TAKEN);
        let taken = std::mem::take(&mut holder.input);
        let waiter = service.has_waits.then(|| {
            let mut waiter = Party { stream: connect(), input: Vec::new() };
            waiter.send(&(service.take)(600));
            waiter
        });
        let give_back = (service.give_back)(&taken);
        self.holders.push(holder.clone_stream());
        self.waiters.extend(waiter.as_ref().map(Party::clone_stream));
        self.returns.push(give_back.clone());
        let parties = Parties { service, holder, waiter, give_back, has_holder_ended: false };
        // The daemon answers a request behind the waiter's, so it has read that one.
        let told = parties.newcomer(self, TAKEN_BY_ANOTHER);
        assert_eq!(told, TAKEN_BY_ANOTHER, "{}", service.heading);
        parties
    }
}

/// The clients of one service.
pub struct Parties<'a> {
    service: &'a Service,
    holder: Party,
    waiter: Option<Party>,
    give_back: Vec<u8>,
    has_holder_ended: bool,
}

impl Parties<'_> {
    /// Lets the holder give back what the daemon keeps then, if it does.
    pub fn begin_to_keep(&mut self) {
        if self.service.is_kept {
            assert_eq!(self.holder("has it"), "has it", "{}", self.service.heading);
            self.has_holder_ended = true;
        }
    }

    /// Returns what the holder, the waiter and a new client see; waits for what is wanted.
    pub fn see(&mut self, stage: &Stage, wanted: &[String]) -> Vec<String> {
        let [holder, waiter, newcomer] = wanted else { return vec!["three cells are needed".into()] };
        let seen_by_waiter = match &mut self.waiter {
            Some(party) if !stage.are_waiters_gone => party.wait_for(self.service, waiter),
            _ => NONE.into(),
        };
        let seen_by_newcomer = self.newcomer(stage, newcomer);
        let is_gone = stage.are_holders_gone || self.has_holder_ended;
        let seen_by_holder = if is_gone { NONE.into() } else { self.holder(holder) };
        vec![seen_by_holder, seen_by_waiter, seen_by_newcomer]
    }

    /// Returns what the holder sees when it gives back what it has.
    fn holder(&mut self, wanted: &str) -> String {
        let before = self.holder.wait_for(self.service, if wanted == "has it" { WAITS } else { wanted });
        if before != WAITS {
            return before;
        }
        self.holder.send(&self.give_back);
        match self.holder.wait_for(self.service, GIVEN_BACK).as_str() {
            GIVEN_BACK => "has it".into(),
            other => format!("has lost it: {other}"),
        }
    }

    fn newcomer(&self, stage: &Stage, wanted: &str) -> String {
        let Some(daemon) = &stage.daemon else { return "cannot connect".into() };
        let Ok(stream) = TcpStream::connect((self.service.address)(daemon)) else { return "cannot connect".into() };
        let mut party = Party { stream, input: Vec::new() };
        party.send(&(self.service.take)(0));
        party.wait_for(self.service, wanted)
    }
}

/// One connection.
struct Party {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Party {
    fn clone_stream(&self) -> TcpStream {
        self.stream.try_clone().expect("a second handle")
    }

    fn send(&mut self, bytes: &[u8]) {
        // A connection that has ended is seen by the next look.
        let _ = self.stream.write_all(bytes);
    }

    /// Waits until this party sees what is wanted, and that lasts; returns what it sees.
    fn wait_for(&mut self, service: &Service, wanted: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = self.look(service);
        while seen != wanted && Instant::now() < deadline {
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
            None => format!("is told {:?}", String::from_utf8_lossy(&self.input)),
        }
    }
}
