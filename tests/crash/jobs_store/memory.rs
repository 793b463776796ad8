//! Memory of the daemon after a flood of jobs: it is given back to the system, and other services are served meanwhile.

use poolcounter_testkit::daemon::Daemon;
use poolcounter_testkit::jobs_client::JobsClient;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

const JOBS: usize = 150_000;
/// Time in which memory is given back.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the resident kilobytes of a daemon.
fn resident_kb(daemon: &Daemon) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux says it");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
#[cfg_attr(not(all(target_os = "linux", target_env = "gnu")), ignore = "other allocators decide by themselves")]
fn memory_is_given_back_after_a_flood() {
    let daemon = Daemon::start_with_jobs(&["--jobs-store", "memory"]);
    let [mut client, mut other] = [daemon.jobs(), daemon.jobs()].map(JobsClient::to);
    assert_eq!(other.ask("use aside"), "USING aside");
    let before = resident_kb(&daemon);
    let many = format!("put-many 1000\r\n{}", format!("put 0 0 9 100\r\n{}\r\n", "x".repeat(100)).repeat(1000));
    for _ in 0..JOBS / 1000 {
        client.send(many.as_bytes());
        (0..1000).for_each(|_| assert!(client.line().starts_with("INSERTED ")));
    }
    let full = resident_kb(&daemon);
    assert!(full > before + 30_000, "{before} kB before, {full} with the jobs");
    assert_eq!(client.ask("clear default"), format!("CLEARED {JOBS}"));
    let (cleared, mut longest) = (Instant::now(), Duration::ZERO);
    while resident_kb(&daemon) > before.midpoint(full) {
        assert!(
            cleared.elapsed() < PATIENCE,
            "{before} kB before, {full} with the jobs, {} left",
            resident_kb(&daemon)
        );
        let asked = Instant::now();
        assert_eq!(other.ask("list-tube-used"), "USING aside");
        longest = longest.max(asked.elapsed());
        thread::sleep(Duration::from_millis(1));
    }
    println!("{before} kB, {full}, {} after {:?}, {longest:?}", resident_kb(&daemon), cleared.elapsed());
}
