//! Misbehaving clients of the jobs, and their upgrades, on the real program over real sockets.

use nix::sys::signal::Signal;
use poolcounter_testkit::daemon::{self, Daemon};
use poolcounter_testkit::jobs_client::JobsClient;
use std::thread;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

fn connect(daemon: &Daemon) -> JobsClient {
    JobsClient::to(daemon.jobs())
}

/// Returns a body of which no two parts are alike.
fn long_body(len: usize) -> Vec<u8> {
    (0_u32..).flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()).take(len).collect()
}

/// Asserts that others are served.
fn serves_promptly(client: &mut JobsClient) {
    daemon::serves_promptly(20, || {
        assert!(client.put("9 0 60", b"other").starts_with("INSERTED "));
        assert_eq!(client.ask("list-tube-used"), "USING default");
    });
}

/// A body of a gibibyte would do the same, and take longer.
#[test]
fn a_long_body_streams_in_and_out_and_over_upgrades() {
    const LEN: usize = 64 * MIB;
    let mut daemon = Daemon::start_with_jobs(&["--jobs-max-size", "536870912"]);
    let (mut producer, mut runner, mut other) = (connect(&daemon), connect(&daemon), connect(&daemon));
    serves_promptly(&mut other);
    let before = daemon.memory() as usize;
    assert!(before < 48 * MIB, "{before} bytes are taken without a long job");
    let body = long_body(LEN);
    producer.send(format!("put 1 0 600 {LEN}\r\n").as_bytes());
    producer.send(&body[..LEN / 2]);
    serves_promptly(&mut other);
    daemon.upgrade();
    producer.send(&body[LEN / 2..]);
    producer.send(b"\r\n");
    let inserted = producer.line();
    let id = inserted.strip_prefix("INSERTED ").expect("it is put").to_string();
    assert_eq!(runner.ask("reserve"), format!("RESERVED {id} {LEN}"));
    // The daemon reads the line, and no more for now.
    serves_promptly(&mut other);
    let grown = (daemon.memory() as usize).saturating_sub(before);
    println!("a body of {LEN} bytes that is being read takes {grown} bytes");
    assert!(grown < LEN + LEN / 2, "{grown} bytes are taken for one body of {LEN}");
    daemon.upgrade();
    assert!(runner.body(LEN) == body, "the body is as it was put");
    assert_eq!(runner.ask(&format!("delete {id}")), "DELETED");
    drop((producer, runner));
    let deadline = Instant::now() + Duration::from_secs(10);
    while daemon.memory() as usize > before + LEN / 4 {
        assert!(Instant::now() < deadline, "{} bytes are kept", daemon.memory());
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_client_that_does_not_read_costs_little() {
    const JOBS: usize = 500;
    let daemon = Daemon::start_with_jobs(&[]);
    let (mut reader, mut other) = (connect(&daemon), connect(&daemon));
    let body = long_body(60_000);
    for _ in 0..JOBS {
        assert!(other.put("0 0 600", &body).starts_with("INSERTED "));
    }
    let before = daemon.memory() as usize;
    reader.send(format!("reserve-many {JOBS} 0\r\n").as_bytes());
    while other.stat("stats", "current-jobs-reserved") != JOBS.to_string() {
        thread::sleep(Duration::from_millis(5));
    }
    serves_promptly(&mut other);
    let grown = (daemon.memory() as usize).saturating_sub(before);
    println!("{JOBS} jobs of {} bytes that are not read take {grown} bytes more", body.len());
    assert!(grown < 4 * MIB, "{grown} bytes are taken");
    for n in 1..=JOBS {
        assert_eq!(reader.line(), format!("RESERVED {n} {}", body.len()));
        assert!(reader.body(body.len()) == body, "the body is as it was put");
    }
    assert_eq!(reader.line(), "END");
}

/// Memory is not reserved for the announced length of a body, and the received part counts.
#[test]
fn bodies_that_do_not_end_take_no_more_than_jobs_may() {
    const CLIENTS: usize = 8;
    let daemon = Daemon::start_with_jobs(&["--jobs-max-size", "536870912", "--jobs-max-memory", "4"]);
    let mut other = connect(&daemon);
    let before = daemon.memory() as usize;
    let piece = long_body(2 * MIB);
    let mut clients: Vec<JobsClient> = (0..CLIENTS).map(|_| connect(&daemon)).collect();
    for client in &mut clients {
        client.send(format!("put 0 0 60 {}\r\n", 3 * MIB).as_bytes());
        client.send(&piece);
        assert_eq!(other.ask("list-tube-used"), "USING default");
    }
    let grown = (daemon.memory() as usize).saturating_sub(before);
    println!("{CLIENTS} halves of bodies take {grown} bytes");
    assert!(grown < 9 * MIB, "{grown} bytes are taken where jobs may take 4 MiB");
    for client in &mut clients {
        client.send(&piece[..MIB]);
        client.send(b"\r\nlist-tube-used\r\n");
    }
    let answers: Vec<String> = clients.iter_mut().map(JobsClient::line).collect();
    let refused = answers.iter().filter(|answer| *answer == "OUT_OF_MEMORY").count();
    assert!(refused >= CLIENTS - 1, "{answers:?}");
    assert!(clients.iter_mut().all(|client| client.line() == "USING default"));
    drop(clients);
    serves_promptly(&mut other);
}

/// Commands for very many jobs are completed before another process takes over.
#[test]
fn an_upgrade_waits_for_long_commands() {
    const JOBS: usize = 50_000;
    let mut daemon = Daemon::start_with_jobs(&[]);
    let (mut producer, mut admin) = (connect(&daemon), connect(&daemon));
    for _ in 0..JOBS / 1_000 {
        producer.send(&b"put 0 0 60 1\r\na\r\n".repeat(1_000));
        (0..1_000).for_each(|_| assert!(producer.line().starts_with("INSERTED ")));
    }
    admin.send(b"clear default\r\n");
    daemon.upgrade();
    assert_eq!(admin.line(), format!("CLEARED {JOBS}"));
    assert_eq!(producer.stat("stats", "current-jobs-ready"), "0");
}

#[test]
fn a_signal_drains() {
    let mut daemon = Daemon::start_with_jobs(&[]);
    let mut client = connect(&daemon);
    assert_eq!(client.put("9 0 60", b"a"), "INSERTED 1");
    daemon.signal(Signal::SIGUSR2);
    daemon.wait_for_log("refuse new work");
    assert_eq!(client.put("9 0 60", b"b"), "DRAINING");
    assert_eq!(client.stat("stats", "draining"), "true");
    daemon.upgrade();
    assert_eq!(client.put("9 0 60", b"b"), "DRAINING");
    assert_eq!(client.ask("reserve"), "RESERVED 1 1");
    assert_eq!(client.body(1), b"a");
    assert_eq!(client.ask("delete 1"), "DELETED");
    assert_eq!(client.ask("undrain"), "ACCEPTING");
    assert_eq!(client.put("9 0 60", b"b"), "INSERTED 2");
    daemon.upgrade();
    assert_eq!(client.put("9 0 60", b"c"), "INSERTED 3");
}

/// The signal has no effect on services that have nothing to drain.
#[test]
fn a_signal_to_drain_harms_nobody_else() {
    let mut daemon = Daemon::start(&[]);
    daemon.signal(Signal::SIGUSR2);
    daemon.wait_for_log("refuse new work");
    daemon.upgrade();
}
