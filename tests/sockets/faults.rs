//! Misbehaving clients, networks and systems, on the real program over real sockets.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use poolcounter_testkit::daemon::{Client, Daemon, PATIENCE, raise_descriptor_limit};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const MIB: u64 = 1024 * 1024;

/// Longest latency of other clients' requests while a client misbehaves. The daemon answers in well under a
/// millisecond; a busy machine may add the rest.
const PROMPT: Duration = Duration::from_secs(2);

/// Asserts that other clients are served, and returns the latency of the slowest of some requests.
fn serves_promptly(client: &mut Client) -> Duration {
    let asked = (0..50).map(|_| {
        let begun = Instant::now();
        assert_eq!(client.ask("ACQ4ME other 1 1 0"), "LOCKED");
        assert_eq!(client.ask("RELEASE"), "RELEASED");
        begun.elapsed()
    });
    let slowest = asked.max().unwrap_or_default();
    assert!(slowest < PROMPT, "others waited for {slowest:?}");
    slowest
}

#[test]
fn without_descriptors_those_connected_are_served() {
    let script = format!("ulimit -n 64; exec {} -l 127.0.0.1:0 --status-after 0.1", Daemon::program());
    let mut daemon = Daemon::run(Command::new("sh").args(["-c", &script]));
    let mut first = daemon.connect();
    serves_promptly(&mut first);
    let mut clients: Vec<Client> = (0..100).map(|_| daemon.connect()).collect();
    first.wait_for_stat("processing_workers", 0);
    daemon.wait_for_log("daemon: new connections wait: ");
    daemon.new_log();
    let cpu = daemon.cpu_time();
    thread::sleep(Duration::from_millis(2_500));
    let used = daemon.cpu_time() - cpu;
    assert!(used < Duration::from_millis(500), "it spins: {used:?} of processor time in 2.5 s");
    let complaints = daemon.new_log();
    assert!((1..=4).contains(&complaints.len()), "a line a second: {complaints:#?}");
    assert!(complaints.iter().all(|line| line.contains("cannot accept")), "{complaints:#?}");
    assert_eq!(first.stat("connect_errors"), 0, "a connection that waits is not lost");
    serves_promptly(&mut first);
    // The accepted clients disconnect; clients in the backlog are accepted without an event.
    let waiting = clients.split_off(70);
    drop(clients);
    for mut client in waiting {
        assert_eq!(client.ask("RELEASE"), "NOT_LOCKED");
    }
    assert_eq!(first.stat("connect_errors"), 0);
}

#[test]
fn client_that_never_reads_costs_little() {
    let daemon = Daemon::start(&[]);
    let mut other = daemon.connect();
    serves_promptly(&mut other);
    let before = daemon.memory();
    let greedy = daemon.connect();
    greedy.stream().set_nonblocking(true).expect("an option");
    let requests = b"STATS FULL\n".repeat(100_000);
    let mut sent = 0;
    let begun = Instant::now();
    let mut slowest = Duration::ZERO;
    while sent < requests.len() && begun.elapsed() < Duration::from_secs(1) {
        sent += greedy.stream().write(&requests[sent..]).unwrap_or_default();
        slowest = slowest.max(serves_promptly(&mut other));
    }
    let grown = daemon.memory().saturating_sub(before);
    println!("{sent} bytes were sent, the daemon grew by {grown} bytes, others waited for {slowest:?} at most");
    assert!(grown < 2 * MIB, "the daemon grew by {grown} bytes");
    // Once it reads, it gets every reply.
    let mut greedy = greedy;
    greedy.stream().set_nonblocking(false).expect("an option");
    let whole = sent / 11;
    let mut writer = greedy.stream().try_clone().expect("a second handle");
    writer.shutdown(std::net::Shutdown::Write).expect("is connected");
    let mut answers = 0;
    let mut text = vec![0; 1 << 20];
    let mut tail = Vec::new();
    while answers < whole {
        let len = writer.read(&mut text).expect("answers come");
        assert!(len > 0, "{answers} answers of {whole}");
        tail.extend_from_slice(&text[..len]);
        answers += tail.windows(2).filter(|pair| pair == b"\n\n").count();
        tail.drain(..tail.len() - 1);
    }
    assert_eq!(greedy.rest().len(), 0);
}

#[test]
fn slow_senders_disturb_nobody() {
    let daemon = Daemon::start(&[]);
    let mut slow: Vec<Client> = (0..100).map(|_| daemon.connect()).collect();
    let mut other = daemon.connect();
    for byte in b"ACQ4ME slow 1000 1000 0\n" {
        slow.iter_mut().for_each(|client| client.send(&[*byte]));
        serves_promptly(&mut other);
    }
    assert!(slow.iter_mut().all(|client| client.line() == "LOCKED"));
}

#[test]
fn line_without_end_is_refused() {
    let daemon = Daemon::start(&[]);
    let mut other = daemon.connect();
    serves_promptly(&mut other);
    let before = daemon.memory();
    let endless: Vec<TcpStream> = (0..50)
        .map(|_| {
            let client = daemon.connect();
            let mut stream = client.stream().try_clone().expect("a second handle");
            thread::spawn(move || {
                // The client is disconnected at some point.
                let _ = stream.write_all(&vec![b'x'; 4 << 20]);
            });
            client.stream().try_clone().expect("a second handle")
        })
        .collect();
    for stream in endless {
        let mut client = Client::of(stream);
        assert_eq!(client.line(), "ERROR LINE_TOO_LONG");
        serves_promptly(&mut other);
    }
    let grown = daemon.memory().saturating_sub(before);
    assert!(grown < 4 * MIB, "the daemon grew by {grown} bytes");
}

#[test]
fn thousands_reset_in_the_midst_of_their_waits() {
    let daemon = Daemon::start(&[]);
    let mut holder = daemon.connect();
    assert_eq!(holder.ask("ACQ4ME k 1 100000 60"), "LOCKED");
    let many = 5_000.min(raise_descriptor_limit() / 2);
    let waiting: Vec<Client> = (0..many)
        .map(|n| {
            let mut client = daemon.connect();
            let kind = if n % 2 == 0 { "ACQ4ME" } else { "ACQ4ANY" };
            client.send(format!("{kind} k 1 100000 60\n").as_bytes());
            client
        })
        .collect();
    holder.wait_for_stat("waiting_workers", many as u64);
    waiting.into_iter().for_each(Client::reset);
    holder.wait_for_stat("waiting_workers", 0);
    serves_promptly(&mut daemon.connect());
    assert_eq!(holder.ask("RELEASE"), "RELEASED");
    holder.wait_for_stat("hashtable_entries", 0);
    assert_eq!(holder.stat("total_acquired"), holder.stat("processed_count"));
}

/// Shell that holds a lock over a connection of its own until it is killed.
struct ForeignHolder(Child);

impl ForeignHolder {
    fn start(address: SocketAddr) -> Option<ForeignHolder> {
        let script = format!(
            "exec 3<>/dev/tcp/{}/{} && echo 'ACQ4ME k 1 9 9' >&3 && read line <&3 && echo $line && exec sleep 60",
            address.ip(),
            address.port()
        );
        let mut child = Command::new("bash").args(["-c", &script]).stdout(Stdio::piped()).spawn().ok()?;
        let mut said = [0; 7];
        child.stdout.as_mut().expect("is piped").read_exact(&mut said).expect("it has the lock");
        assert_eq!(&said, b"LOCKED\n");
        Some(ForeignHolder(child))
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).expect("the process is there");
    }
}

impl Drop for ForeignHolder {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn stopped_holder_keeps_its_lock_until_killed() {
    let daemon = Daemon::start(&[]);
    let Some(holder) = ForeignHolder::start(daemon.address) else {
        return poolcounter_testkit::skipped("a stopped holder, because there is no bash");
    };
    holder.signal(Signal::SIGSTOP);
    let mut waiter = daemon.connect();
    assert_eq!(waiter.ask("ACQ4ME k 1 9 0.3"), "TIMEOUT", "it is alive, as far as anybody can tell");
    waiter.send(b"ACQ4ME k 1 9 60\n");
    holder.signal(Signal::SIGKILL);
    assert_eq!(waiter.line(), "LOCKED");
}

/// Two hosts of the test's own, with a link between them.
struct TwoHosts {
    names: [String; 2],
}

impl TwoHosts {
    const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 2)];

    fn build() -> Result<TwoHosts, String> {
        let id = std::process::id();
        let hosts = TwoHosts { names: [format!("pc-a-{id}"), format!("pc-b-{id}")] };
        let [a, b] = &hosts.names;
        for name in &hosts.names {
            ip(&format!("netns add {name}"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        ip(&format!("-n {a} link add veth0 type veth peer name veth0 netns {b}"))?;
        for (name, address) in hosts.names.iter().zip(Self::ADDRESSES) {
            ip(&format!("-n {name} address add {address}/24 dev veth0"))?;
            ip(&format!("-n {name} link set veth0 up"))?;
        }
        Ok(hosts)
    }

    /// Returns a command that runs on one of the hosts.
    fn command(&self, host: usize, script: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host], "bash", "-c", script]);
        command
    }
}

impl Drop for TwoHosts {
    fn drop(&mut self) {
        for name in &self.names {
            // The host may not exist.
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_string()) }
}

/// The holder's machine vanishes without a packet. Only keepalive notices that.
#[test]
fn peer_that_vanishes_loses_its_lock() {
    let hosts = match TwoHosts::build() {
        Ok(hosts) => hosts,
        Err(reason) => {
            return poolcounter_testkit::skipped(&format!(
                "a peer that vanishes, because there are no network namespaces: {reason}"
            ));
        }
    };
    let mut program = String::from("exec ");
    write!(program, "{} -l {} -p 7531 -l 127.0.0.1 --keepalive 1,1,2", Daemon::program(), TwoHosts::ADDRESSES[0])
        .expect("a string takes every byte");
    let daemon = Daemon::run(&mut hosts.command(0, &program));
    let hold =
        format!("exec 3<>/dev/tcp/{}/7531; echo ACQ4ME k 1 9 9 >&3; head -1 <&3; sleep 60", TwoHosts::ADDRESSES[0]);
    let mut holder = hosts.command(1, &hold).stdout(Stdio::piped()).spawn().expect("runs");
    let mut said = [0; 7];
    holder.stdout.as_mut().expect("is piped").read_exact(&mut said).expect("it has the lock");
    let wait = "exec 3<>/dev/tcp/127.0.0.1/7531; echo ACQ4ME k 1 9 60 >&3; head -1 <&3";
    let waiter = hosts.command(0, wait).stdout(Stdio::piped()).spawn().expect("runs");
    thread::sleep(Duration::from_millis(300));
    ip(&format!("-n {} link set veth0 down", hosts.names[1])).expect("is ours");
    let begun = Instant::now();
    let output = waiter.wait_with_output().expect("ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "LOCKED\n");
    println!("the lock came back {:?} after the link went down", begun.elapsed());
    assert!(begun.elapsed() < PATIENCE);
    holder.kill().expect("is ours");
    holder.wait().expect("is ours");
    drop(daemon);
}

/// A peer whose receive buffer is full is probed like a silent one, even if its system answers.
#[test]
fn holder_that_never_reads_loses_its_lock() {
    let daemon = Daemon::start(&["--keepalive", "1,1,2"]);
    let mut holder = daemon.connect();
    assert_eq!(holder.ask("ACQ4ME k 1 9 9"), "LOCKED");
    holder.stream().set_nonblocking(true).expect("an option");
    while holder.stream().write(&b"STATS FULL\n".repeat(1_000)).is_ok() {}
    let begun = Instant::now();
    assert_eq!(daemon.connect().ask("ACQ4ME k 1 9 60"), "LOCKED");
    println!("the lock came back after {:?}", begun.elapsed());
}

/// Bytes of all kinds end a connection at worst.
#[test]
fn garbage_is_answered() {
    let daemon = Daemon::start(&[]);
    let mut seed = 11_u64;
    for _ in 0..50 {
        let mut client = daemon.connect();
        let garbage: Vec<u8> = (0..20_000)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (seed >> 56) as u8
            })
            .collect();
        let lines = garbage.iter().filter(|byte| **byte == b'\n').count();
        let mut writer = client.stream().try_clone().expect("a second handle");
        let sending = thread::spawn(move || writer.write_all(&garbage));
        for _ in 0..lines {
            assert_eq!(client.line(), "ERROR BAD_COMMAND");
        }
        sending.join().expect("no panic").expect("is sent");
    }
    serves_promptly(&mut daemon.connect());
}
