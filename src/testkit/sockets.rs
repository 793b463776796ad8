//! Conversations over sockets, in real time, with any server process.
//!
//! No process must be started meanwhile: until a new process runs its program, it has a copy of every socket, and a
//! socket that is closed here stays open for the server.

use super::frames;
use super::player::Target;
use super::protocol::Protocol;
use super::script::Then;
use socket2::{Domain, SockAddr, Socket, Type};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

/// Time that oversleeping adds to the durations that a server measures.
const TOLERANCE: Duration = Duration::from_millis(700);
/// Time by which an original may fall short of a duration: the timers of libevent run by a clock that the kernel
/// advances with its ticks, up to 10 ms apart, while durations are measured with an exact one.
const COARSE_CLOCK: Duration = Duration::from_millis(10);
/// Number of answered requests after which everything that was sent earlier has had its effect: the end of a connection
/// may take a tick to be read, another to be acted upon, and a third until waiters are notified.
const ROUND_TRIPS: u32 = 4;

/// Longest time of a connect; a connection that takes longer finds no room in a backlog.
const FILLED: Duration = Duration::from_millis(300);

/// The clients of one server.
pub struct Sockets {
    address: SockAddr,
    protocol: Protocol,
    /// Longest wait for a reply.
    patience: Duration,
    /// Pause after which all threads of a server have done the work of earlier requests.
    pause: Duration,
    /// Time by which the server's timers may fire too early.
    early: Duration,
    /// Client that sends the requests of the checks.
    probe: SocketClient,
}

/// One client.
pub struct SocketClient {
    /// None once it is closed.
    socket: Option<Socket>,
    received: VecDeque<u8>,
    is_ended: bool,
}

impl Sockets {
    /// Returns the clients of the server that listens on `address`.
    pub fn new(protocol: Protocol, address: impl Into<SockAddr>, patience: Duration) -> Self {
        let address = address.into();
        let probe = SocketClient::connect(&address);
        Sockets { address, protocol, patience, pause: Duration::ZERO, early: Duration::ZERO, probe }
    }

    /// Adapts to an original, whose threads need a pause after requests, and whose clock is coarse.
    pub fn of_an_original(self, pause: Duration) -> Self {
        Sockets { pause, early: COARSE_CLOCK, ..self }
    }

    /// Waits until earlier steps have had their effect. The server handles requests in the order of arrival.
    fn settle(&mut self) {
        for _ in 0..ROUND_TRIPS {
            // A server that has ended is noticed by the next step that expects a reply.
            let _ = self.ask(self.protocol.probe());
        }
        if !self.pause.is_zero() {
            thread::sleep(self.pause);
        }
    }

    fn ask(&mut self, request: &[u8]) -> Result<Vec<u8>, String> {
        self.probe.send(request);
        self.probe.reply(self.protocol, self.patience)
    }

    fn check_pools_empty(&mut self) -> Result<(), String> {
        for level in ["processing_workers", "waiting_workers", "hashtable_entries"] {
            let line = self.ask(format!("STATS {level}\n").as_bytes())?;
            if line != format!("{level}: 0").as_bytes() {
                return Err(String::from_utf8_lossy(&line).into_owned());
            }
        }
        Ok(())
    }

    /// Checks that no counter is held. Counters themselves stay for a while.
    fn check_counters_empty(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + self.patience;
        loop {
            match self.first_held()? {
                Some(_) if !self.pause.is_zero() && Instant::now() < deadline => thread::sleep(self.pause),
                Some(record) => return Err(format!("somebody still holds {}", self.protocol.describe(&record))),
                None => return Ok(()),
            }
        }
    }

    /// Checks that no job is reserved and that no connection waits. Jobs themselves stay.
    fn check_jobs_empty(&mut self) -> Result<(), String> {
        let stats = self.ask(b"stats\r\n")?;
        let stats = String::from_utf8_lossy(&stats).into_owned();
        let is_wrong = |line: &&str| {
            let (name, value) = line.split_once(": ").unwrap_or_default();
            ["current-jobs-reserved", "current-waiting"].contains(&name) && value != "0"
        };
        stats.lines().find(is_wrong).map_or(Ok(()), |line| Err(line.into()))
    }

    /// Checks that no pool has waiters or requests to a provider. Pools themselves stay.
    fn check_members_empty(&mut self) -> Result<(), String> {
        self.probe.send(b"POOLS\n");
        let mut left = Ok(());
        loop {
            let line = self.probe.reply(self.protocol, self.patience)?;
            let line = String::from_utf8_lossy(&line).into_owned();
            if line.is_empty() {
                return left;
            }
            if !line.contains(" starting 0 ") || !line.contains(" queued 0 ") {
                left = left.and(Err(line));
            }
        }
    }

    /// Returns the first counter of a Dump that is held.
    fn first_held(&mut self) -> Result<Option<Vec<u8>>, String> {
        self.probe.send(&frames::dump());
        let mut held = None;
        loop {
            let record = self.probe.reply(self.protocol, self.patience)?;
            if self.protocol.ends_list(&record) {
                return Ok(held);
            }
            if record[frames::HEADER_BYTES..][..4] != [0; 4] {
                held.get_or_insert(record);
            }
        }
    }
}

impl SocketClient {
    fn connect(address: &SockAddr) -> SocketClient {
        let socket = Socket::new(address.domain(), Type::STREAM, None).expect("a socket");
        socket.connect(address).expect("connects");
        if address.domain() != Domain::UNIX {
            socket.set_tcp_nodelay(true).expect("an option");
        }
        SocketClient { socket: Some(socket), received: VecDeque::new(), is_ended: false }
    }

    /// Sends bytes. A server that has closed the connection is noticed by the next step that expects a reply.
    fn send(&mut self, bytes: &[u8]) {
        if let Some(socket) = &mut self.socket {
            let _ = socket.write_all(bytes);
        }
    }

    /// Reads the bytes that arrive within `patience`. Returns whether any arrived.
    fn receive(&mut self, patience: Duration) -> bool {
        let Some(socket) = &mut self.socket else { return false };
        if patience.is_zero() {
            socket.set_nonblocking(true).expect("an option");
        } else {
            socket.set_nonblocking(false).expect("an option");
            socket.set_read_timeout(Some(patience)).expect("an option");
        }
        let mut bytes = [0; 4096];
        let result = socket.read(&mut bytes);
        socket.set_nonblocking(false).expect("an option");
        match &result {
            Ok(0) => self.is_ended = true,
            Ok(len) => self.received.extend(&bytes[..*len]),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            Err(_) => self.is_ended = true,
        }
        matches!(result, Ok(len) if len > 0)
    }

    fn reply(&mut self, protocol: Protocol, patience: Duration) -> Result<Vec<u8>, String> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(reply) = protocol.take_reply(&mut self.received) {
                return Ok(reply);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if self.is_ended || left.is_zero() {
                let rest = protocol.describe(self.received.make_contiguous());
                let why = if self.is_ended { "the connection ended" } else { "no reply came" };
                return Err(format!("{why}, after {rest}"));
            }
            self.receive(left);
        }
    }
}

impl Target for Sockets {
    type Client = SocketClient;

    fn connect(&mut self, _: u32) -> SocketClient {
        SocketClient::connect(&self.address)
    }

    fn send(&mut self, client: &mut SocketClient, bytes: &[u8], then: Then) {
        client.send(bytes);
        match then {
            Then::Stay => self.settle(),
            Then::Finish => self.finish(client),
            Then::Close => self.close(client),
        }
    }

    fn finish(&mut self, client: &mut SocketClient) {
        if let Some(socket) = &client.socket {
            // The server may have closed it already.
            let _ = socket.shutdown(Shutdown::Write);
        }
        self.settle();
    }

    fn close(&mut self, client: &mut SocketClient) {
        client.socket = None;
        self.settle();
    }

    fn close_unseen(&mut self, client: &mut SocketClient) {
        client.socket = None;
    }

    fn reset(&mut self, client: &mut SocketClient) {
        if let Some(socket) = client.socket.take() {
            socket.set_linger(Some(Duration::ZERO)).expect("an option");
        }
        self.settle();
    }

    fn pass(&mut self, time: Duration) {
        thread::sleep(time);
        self.settle();
    }

    fn reply(&mut self, client: &mut SocketClient) -> Result<Vec<u8>, String> {
        client.reply(self.protocol, self.patience)
    }

    fn rest(&mut self, client: &mut SocketClient) -> Vec<u8> {
        while client.receive(Duration::ZERO) {}
        client.received.drain(..).collect()
    }

    fn is_ended(&mut self, client: &mut SocketClient) -> bool {
        let deadline = Instant::now() + self.patience;
        while !client.is_ended && Instant::now() < deadline {
            if client.receive(deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))) {
                break;
            }
        }
        client.is_ended
    }

    fn check_empty(&mut self) -> Result<(), String> {
        match self.protocol {
            Protocol::Pools => self.check_pools_empty(),
            Protocol::Counters => self.check_counters_empty(),
            Protocol::Jobs => self.check_jobs_empty(),
            Protocol::Members => self.check_members_empty(),
        }
    }

    fn tolerance(&self) -> (Duration, Duration) {
        (self.early, TOLERANCE)
    }
}

/// Listener whose backlog is full, and stays so: to its clients it is as silent as a machine that is down.
pub struct FullBacklog {
    pub address: SocketAddr,
    listener: TcpListener,
    /// Connections that fill the backlog.
    _waiting: Vec<Socket>,
}

impl FullBacklog {
    pub fn new() -> FullBacklog {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("there are sockets");
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port is free");
        listener.listen(0).expect("it is bound");
        let listener = TcpListener::from(listener);
        let address = listener.local_addr().expect("it is bound");
        let mut waiting = Vec::new();
        loop {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("there are sockets");
            let is_accepted = socket.connect_timeout(&address.into(), FILLED).is_ok();
            waiting.push(socket);
            if !is_accepted {
                return FullBacklog { address, listener, _waiting: waiting };
            }
        }
    }

    /// Returns the listener, which accepts the waiting connections and all later ones.
    pub fn open(self) -> TcpListener {
        self.listener
    }
}
