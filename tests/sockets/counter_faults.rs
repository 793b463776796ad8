//! Misbehaving clients of the counters, on the real program over real sockets.

use poolcounter_testkit::counter::CounterClient;
use poolcounter_testkit::daemon::{self, Daemon};
use poolcounter_testkit::frames::{acquire, dump, get, record, release};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const MIB: u64 = 1024 * 1024;
const MANY: u32 = 100_000;

fn start(options: &[&str]) -> Daemon {
    Daemon::start_with_counters(&[&["--counter-buckets", "1000"], options].concat())
}

fn connect(daemon: &Daemon) -> CounterClient {
    CounterClient::to(daemon.counters())
}

fn name(n: u32) -> Vec<u8> {
    format!("some-counter-{n:06}").into()
}

/// Acquires one unit of each of many counters.
fn acquire_many(client: &mut CounterClient) {
    let requests: Vec<Vec<u8>> = (0..MANY).map(|n| acquire(1, 9, &name(n))).collect();
    assert!(client.pipeline(&requests).into_iter().all(|is_granted| is_granted));
}

/// Asserts that other clients are served, and returns the latency of the slowest of some requests.
fn serves_promptly(client: &mut CounterClient) -> Duration {
    daemon::serves_promptly(50, || {
        assert_eq!(client.status(&acquire(1, 1, b"other")), 0);
        assert_eq!(client.status(&release(1, b"other")), 0);
    })
}

/// Reads a whole Dump, and asserts that it has each of the many counters once.
fn read_dump(client: &mut CounterClient) {
    let mut names: BTreeSet<Vec<u8>> = BTreeSet::new();
    loop {
        let reply = client.reply();
        let Some((_, _, name)) = record(&reply) else { break };
        assert!(names.insert(name.to_vec()), "a counter is told of twice");
    }
    assert!((0..MANY).all(|n| names.contains(&name(n))), "some counter is missing");
}

#[test]
fn unread_dumps_are_cheap_and_outlive_an_upgrade() {
    const READERS: usize = 20;
    let mut daemon = start(&[]);
    let (mut holder, mut other) = (connect(&daemon), connect(&daemon));
    acquire_many(&mut holder);
    serves_promptly(&mut other);
    let before = daemon.memory();
    // Four of them stop yrmcds.
    let mut readers: Vec<CounterClient> = (0..READERS).map(|_| connect(&daemon)).collect();
    for reader in &mut readers {
        reader.send(&dump().repeat(3));
    }
    let begun = Instant::now();
    let mut slowest = Duration::ZERO;
    while begun.elapsed() < Duration::from_millis(500) {
        slowest = slowest.max(serves_promptly(&mut other));
    }
    let grown = daemon.memory().saturating_sub(before);
    println!(
        "{READERS} Dumps of {MANY} counters are not read: {grown} bytes more, others waited for {slowest:?} at most"
    );
    assert!(grown < READERS as u64 * MIB / 4, "the daemon grew by {grown} bytes");
    // Some are read now, some after an upgrade, some never.
    read_dump(&mut readers[0]);
    daemon.upgrade();
    serves_promptly(&mut other);
    for _ in 0..2 {
        read_dump(&mut readers[0]);
    }
    for _ in 0..3 {
        read_dump(&mut readers[1]);
    }
    assert_eq!(readers[1].consumption(&name(7)), Some(1));
    // The holder still holds its units.
    assert_eq!(holder.status(&release(1, &name(MANY - 1))), 0);
    drop(readers);
    other.wait_until(|other| other.stat("curr_connections") == 2);
}

/// Held counters can use up the memory. Free counters are dropped when the memory is needed, or after the interval.
#[test]
fn memory_is_limited_and_comes_back() {
    let daemon = start(&["--counter-max-memory", "4", "--counter-stats-interval", "3600"]);
    let (mut client, mut other) = (connect(&daemon), connect(&daemon));
    let before = daemon.memory();
    let requests: Vec<Vec<u8>> = (0..MANY).map(|n| acquire(1, 9, &name(n))).collect();
    let granted = client.pipeline(&requests).into_iter().filter(|is_granted| *is_granted).count();
    let grown = daemon.memory().saturating_sub(before);
    println!("{granted} counters with names of 19 bytes fit into 4 MiB, of which the daemon used {grown} bytes");
    assert_eq!(granted as u64, 4 * MIB / (64 + 32 + 19), "as many as are reckoned");
    assert!(grown < 8 * MIB, "what is reckoned is about what is used");
    let new = b"new".repeat(100);
    assert_eq!(other.status(&acquire(1, 9, &new)), 0x82);
    assert_eq!(other.status(&get(&new)), 0x01);
    assert_eq!(other.status(&acquire(9, 9, &name(0))), 0x21);
    assert_eq!(client.status(&acquire(1, 9, &name(0))), 0, "those who hold something go on");
    drop(client);
    other.wait_until(|other| other.consumption(&name(0)) == Some(0));
    // Free counters take no memory from other clients: the longest unused are dropped.
    let pairs: Vec<Vec<u8>> =
        (0..MANY).flat_map(|n| [acquire(1, 9, &name(MANY + n)), release(1, &name(MANY + n))]).collect();
    assert!(other.pipeline(&pairs).into_iter().all(|is_granted| is_granted));
    assert_eq!(other.consumption(&name(0)), None);
    assert_eq!(other.status(&acquire(1, 9, &new)), 0);
    assert_eq!(other.consumption(&name(2 * MANY - 1)), Some(0));
    assert!(daemon.memory() < before + 8 * MIB);
}
