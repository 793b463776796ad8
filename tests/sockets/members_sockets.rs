//! Misbehaving clients of the members, on the real program over real sockets.

use poolcounter_testkit::daemon::{self, Client, Daemon, PATIENCE, raise_descriptor_limit};
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

const MIB: u64 = 1024 * 1024;

fn start() -> Daemon {
    raise_descriptor_limit();
    Daemon::start_with_members(&[])
}

fn connect(daemon: &Daemon) -> Client {
    Client::to(daemon.members())
}

/// Returns an operator's connection, after it has declared the pool p with `fixed` fixed members.
fn declare(daemon: &Daemon, fixed: usize, settings: &str) -> Client {
    let mut operator = connect(daemon);
    assert_eq!(operator.ask(&format!("POOL p 0 {} queue=5000 {settings}", fixed.max(1))), "OK");
    (0..fixed).for_each(|n| assert_eq!(operator.ask(&format!("ADD p m{n}")), "OK"));
    operator
}

/// Asserts that others are served, and returns the latency of the slowest of some requests.
fn serves_promptly(operator: &mut Client) -> Duration {
    // A pool of its own, because other clients may reserve every member of the first.
    assert_eq!(operator.ask("POOL other 0 1"), "OK");
    let added = operator.ask("ADD other x");
    assert!(matches!(&*added, "OK" | "ERROR POOL_FULL" | "ERROR MEMBER_EXISTS"), "{added}");
    daemon::serves_promptly(50, || {
        let taken = operator.ask("TAKE other");
        let lease = taken.split(' ').nth(1).expect("is free").to_string();
        assert_eq!(operator.ask(&format!("RETURN {lease}")), "RETURNED");
    })
}

/// Returns one value of the utilization of the pool p.
fn figure(operator: &mut Client, name: &str) -> u32 {
    let line = operator.ask("UTILIZATION p");
    let value = line.split(' ').skip_while(|word| *word != name).nth(1).and_then(|value| value.parse().ok());
    value.unwrap_or_else(|| panic!("{name} is not in {line:?}"))
}

/// Waits until a value of the utilization of the pool p is this one, and returns how long that took.
fn wait_for(operator: &mut Client, name: &str, value: u32) -> Duration {
    let begun = Instant::now();
    while figure(operator, name) != value {
        assert!(begun.elapsed() < PATIENCE, "{name} is {} and not {value}", figure(operator, name));
        thread::sleep(Duration::from_millis(1));
    }
    begun.elapsed()
}

#[test]
fn a_client_that_does_not_read_costs_little() {
    const MEMBERS: usize = 2000;
    let daemon = start();
    let mut operator = declare(&daemon, MEMBERS, "on_loss=ok");
    serves_promptly(&mut operator);
    let before = daemon.memory();
    // Endless lists, and unread takes and returns of a member.
    let requests = [b"MEMBERS p\n".repeat(50_000), b"TAKE p 0 member=m7\nUTILIZATION p\n".repeat(50_000)];
    let greedy: Vec<Client> = (0..10).map(|_| connect(&daemon)).collect();
    let mut sent = [0; 10];
    let begun = Instant::now();
    let mut slowest = Duration::ZERO;
    while begun.elapsed() < Duration::from_secs(1) {
        for (n, client) in greedy.iter().enumerate() {
            let requests = &requests[n % 2];
            client.stream().set_nonblocking(true).expect("an option");
            sent[n] += client.stream().write(&requests[sent[n]..]).unwrap_or_default();
        }
        slowest = slowest.max(serves_promptly(&mut operator));
    }
    let grown = daemon.memory().saturating_sub(before);
    println!("ten clients do not read: {grown} bytes more, others waited for {slowest:?} at most");
    assert!(grown < 16 * MIB, "the daemon grew by {grown} bytes");
    drop(greedy);
    wait_for(&mut operator, "free", MEMBERS as u32);
}
