//! The upgrade from the program of another commit to this one, with everything at once. `make test-upgrade` builds that
//! program and sets its path.

use nix::sys::signal::Signal;
use poolcounter_testkit::counter::CounterClient;
use poolcounter_testkit::daemon::{Client, Daemon, PATIENCE, install, install_program, raise_descriptor_limit};
use poolcounter_testkit::frames::{self, HEADER_BYTES};
use poolcounter_testkit::running::Over;
use poolcounter_testkit::scratch::Scratch;
use socket2::{Domain, Socket, Type};
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Environment variable with the path of the other program.
const VARIABLE: &str = "RELEASED_PROGRAM";
/// Number of connections, if the limit of descriptors allows.
const CONNECTIONS: usize = 10_000;
/// Number of descriptors that the daemon needs for other uses.
const OTHERS: usize = 100;
const COUNTERS: usize = 200_000;
/// Size of the receive buffer of the reader of the Dump, in bytes. The system doubles it.
const RECEIVE_BUFFER: usize = 4096;
/// Number of bytes that the reader of the Dump reads at a time, and its pause after each read, until the upgrade is
/// over.
const SLOW_READ: usize = 2048;
const SLOW_REST: Duration = Duration::from_millis(10);

/// Connections to the pools, by their state.
struct Crowd {
    /// Holders of a lock of their own.
    holders: Vec<Client>,
    /// Waiters for the lock of a holder, by `ACQ4ME`.
    waiters: Vec<Client>,
    /// Waiters for the result of a holder, by `ACQ4ANY`.
    watchers: Vec<Client>,
    /// Clients that have sent the first half of a request.
    halves: Vec<Client>,
    idle: Vec<Client>,
}

#[test]
#[ignore = "needs the program of another commit: make test-upgrade"]
fn upgrade_from_another_program_loses_nothing() {
    let released = PathBuf::from(std::env::var_os(VARIABLE).expect("make test-upgrade names the program"));
    let connections = CONNECTIONS.min(raise_descriptor_limit().saturating_sub(OTHERS));
    if connections < CONNECTIONS {
        poolcounter_testkit::skipped(&format!(
            "{CONNECTIONS} connections: the limit of descriptors allows {connections}"
        ));
    }
    let scratch = Scratch::new();
    let program = scratch.file("poolcounter");
    install(&program, &std::fs::read(released).expect("is readable"));
    let mut command = Command::new(&program);
    let mut daemon = Daemon::run(command.args(["-l", "127.0.0.1:0", "--counter", "--counter-listen", "127.0.0.1:0"]));
    let mut crowd = Crowd::gather(&daemon, connections);
    let mut holder = CounterClient::to(daemon.counters());
    let name = |n: usize| format!("counter {n}").into_bytes();
    let requests: Vec<Vec<u8>> = (0..COUNTERS).map(|n| frames::acquire(1 + n as u32 % 3, 9, &name(n))).collect();
    assert!(holder.pipeline(&requests).into_iter().all(|done| done));

    install_program(&program);
    let is_over = &AtomicBool::new(false);
    let (longest, records) = thread::scope(|scope| {
        let over = Over(is_over);
        let counters = daemon.counters();
        let records = scope.spawn(move || read_dump(counters, is_over));
        let mut asking = daemon.connect();
        let longest = scope.spawn(move || longest_wait(&mut asking, "STATS UPTIME", is_over));
        thread::sleep(Duration::from_millis(300));
        daemon.upgrade();
        drop(over);
        (longest.join().expect("was answered"), records.join().expect("was read"))
    });
    println!(
        "{} connections with {} waiters, {COUNTERS} counters and a Dump under way: the longest wait of another client over \
         the upgrade was {longest:?}",
        crowd.len(),
        crowd.waiters.len() + crowd.watchers.len()
    );
    assert_eq!(records, COUNTERS, "the Dump goes on");
    for n in (0..COUNTERS).step_by(997) {
        assert_eq!(holder.consumption(&name(n)), Some(1 + n as u32 % 3));
    }
    crowd.check();
    drop(holder);
    let mut other = CounterClient::to(daemon.counters());
    other.wait_until(|other| other.consumption(&name(COUNTERS - 1)) == Some(0));
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
}

impl Crowd {
    /// Connects this number of clients: four of ten wait, three hold, one has sent half a request.
    fn gather(daemon: &Daemon, connections: usize) -> Crowd {
        let some =
            |tenths: usize| -> Vec<Client> { (0..connections * tenths / 10).map(|_| daemon.connect()).collect() };
        let mut crowd = Crowd { holders: some(3), waiters: some(3), watchers: some(1), halves: some(1), idle: some(2) };
        for (n, client) in crowd.holders.iter_mut().enumerate() {
            assert_eq!(client.ask(&format!("ACQ4ME lock{n} 1 50 0")), "LOCKED");
        }
        for (n, client) in crowd.waiters.iter_mut().enumerate() {
            client.send(format!("ACQ4ME lock{n} 1 50 600\n").as_bytes());
        }
        for (n, client) in crowd.watchers.iter_mut().enumerate() {
            client.send(format!("ACQ4ANY lock{n} 1 50 600\n").as_bytes());
        }
        crowd.halves.iter_mut().for_each(|client| client.send(b"ACQ4ME half"));
        let waiting = (crowd.waiters.len() + crowd.watchers.len()) as u64;
        crowd.idle[0].wait_for_stat("waiting_workers", waiting);
        crowd
    }

    fn len(&self) -> usize {
        [&self.holders, &self.waiters, &self.watchers, &self.halves, &self.idle].into_iter().map(Vec::len).sum()
    }

    /// Checks that each client continues from its state.
    fn check(&mut self) {
        for (n, client) in self.halves.iter_mut().enumerate() {
            assert_eq!(client.ask(&format!("way{n} 1 5 5")), "LOCKED", "half a request, {n}");
        }
        for (n, client) in self.holders.iter_mut().enumerate() {
            assert_eq!(client.ask("RELEASE"), "RELEASED", "holder {n}");
        }
        for (n, client) in self.watchers.iter_mut().enumerate() {
            assert_eq!(client.line(), "DONE", "watcher {n}");
        }
        for (n, client) in self.waiters.iter_mut().enumerate() {
            assert_eq!(client.line(), "LOCKED", "waiter {n}");
        }
        for (n, client) in self.idle.iter_mut().enumerate() {
            assert_eq!(client.ask(&format!("ACQ4ME idle{n} 1 1 0")), "LOCKED", "{n}");
        }
        let locks = (self.halves.len() + self.waiters.len() + self.idle.len()) as u64;
        assert_eq!(self.idle[0].stat("processing_workers"), locks);
    }
}

/// Returns the longest latency of a client that sends requests all the time.
pub fn longest_wait(client: &mut Client, request: &str, is_over: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        client.ask(request);
        longest = longest.max(begun.elapsed());
    }
    longest
}

/// Sends a Dump and reads it slowly until the upgrade is over, and then the rest. Returns the number of counters in it.
fn read_dump(counters: SocketAddr, is_over: &AtomicBool) -> usize {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(RECEIVE_BUFFER).expect("an option");
    socket.connect(&counters.into()).expect("connects");
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("an option");
    std::io::Write::write_all(&mut stream, &frames::dump()).expect("is sent");
    let (mut bytes, mut piece, mut read, mut records) = (Vec::new(), vec![0; 65_536], 0, 0);
    let mut rest_begun = None;
    loop {
        let most = if is_over.load(Ordering::Relaxed) {
            rest_begun.get_or_insert_with(Instant::now);
            piece.len()
        } else {
            thread::sleep(SLOW_REST);
            SLOW_READ
        };
        let len = stream.read(&mut piece[..most]).expect("the Dump goes on");
        assert!(len > 0, "the Dump is cut off");
        bytes.extend_from_slice(&piece[..len]);
        while let Some(len) = frames::first_len(&bytes[read..]) {
            read += len;
            if len == HEADER_BYTES {
                let left = rest_begun.expect("it is longer than what is read until then").elapsed();
                println!("the rest of the Dump was read within {left:?} after the upgrade");
                return records;
            }
            records += 1;
        }
    }
}
