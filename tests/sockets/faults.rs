//! Misbehaving clients, networks and systems, on the real program over real sockets.

use poolcounter_testkit::daemon::{self, Client, Daemon};
use poolcounter_testkit::running::cpu_time;
use std::io::{Read, Write};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const MIB: u64 = 1024 * 1024;

/// Asserts that other clients are served, and returns the latency of the slowest of some requests.
fn serves_promptly(client: &mut Client) -> Duration {
    daemon::serves_promptly(50, || {
        assert_eq!(client.ask("ACQ4ME other 1 1 0"), "LOCKED");
        assert_eq!(client.ask("RELEASE"), "RELEASED");
    })
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
    let cpu = cpu_time(daemon.pid());
    thread::sleep(Duration::from_millis(2_500));
    let used = cpu_time(daemon.pid()) - cpu;
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
