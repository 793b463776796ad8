//! Misbehaving clients, networks and systems, on the real program over real sockets.

use poolcounter_testkit::daemon::{Client, Daemon, raise_descriptor_limit};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
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
