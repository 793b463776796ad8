//! Holders that use a client library: that of Rust, within this process, or that of Python.

use super::events::Event;
use super::parties::{CALM, Stage};
use poolcounter_client::{Client, Counters, Limits, MediaWiki, Outcome, Purpose, Timeouts};
use poolcounter_testkit::daemon::PATIENCE;
use poolcounter_testkit::running::Running;
use poolcounter_testkit::skipped;
use std::io::Write;
use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Heading of the table.
pub const HEADING: &str = "Client libraries";

const TIMEOUTS: Timeouts = Timeouts { connect: PATIENCE, answer: PATIENCE, retry: Duration::ZERO };
const LIMITS: Limits =
    Limits { workers: 9, max_queue: 9, timeout: Duration::ZERO, hold: None, at_least: Duration::ZERO };

/// Programs that hold a lock, and print its loss for each line of their input.
const PYTHON: [&str; 2] = [
    "
import sys
from poolcounter import Pools

lock = Pools(sys.argv[1]).acquire('k', workers=9)
for _ in sys.stdin:
    print(lock.lost, flush=True)
",
    "
import asyncio, sys
from poolcounter.aio import Pools

async def hold():
    lock = await Pools(sys.argv[1]).acquire('k', workers=9)
    while await asyncio.to_thread(sys.stdin.readline):
        print(lock.lost, flush=True)

asyncio.run(hold())
",
];

fn start_python(program: &str, address: SocketAddr) -> Running {
    let mut command = Command::new("python3");
    command.args(["-c", program, &address.to_string()]).env("PYTHONDONTWRITEBYTECODE", "1");
    Running::start(command.env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/contrib/python")))
}

/// Returns the events of the table.
pub fn events(events: &[Event]) -> impl Iterator<Item = &Event> {
    events.iter().filter(|event| event.name.starts_with("the daemon"))
}

/// Plays an event for all libraries at once, and returns the row that is seen, if it is not this one.
pub fn play(event: &Event, wanted: &[String]) -> Option<String> {
    let mut stage = Stage::new();
    let daemon = stage.daemon.as_ref().expect("it runs");
    let [pools, counters] = [daemon.address, daemon.counters()];
    let client = Client::with(MediaWiki::new([pools.to_string()]), TIMEOUTS);
    let Ok(Outcome::Locked(lock)) = client.acquire(Purpose::Me, "k", &LIMITS) else { panic!("it is free") };
    let client = Counters::with(MediaWiki::new([counters.to_string()]), TIMEOUTS);
    let units = client.acquire("c", 1, 1).expect("it runs").expect("they are free");
    let has_python = Command::new("python3").arg("--version").output().is_ok();
    if !has_python {
        skipped("the client for Python in everyday events, because python3 is not installed");
    }
    let mut programs: Vec<Running> =
        PYTHON.iter().filter(|_| has_python).map(|program| start_python(program, pools)).collect();
    let mut look = || {
        let of_python = programs.iter_mut().map(|program| {
            program.child.stdin.as_mut().expect("is piped").write_all(b"\n").expect("it runs");
            match program.line().as_str() {
                "None" => false,
                "connection" => true,
                other => panic!("lost is {other:?}"),
            }
        });
        let is_lost = [lock.loss().is_some(), units.is_lost()].into_iter().chain(of_python);
        let words = |is_lost| String::from(if is_lost { "knows the loss" } else { "has it" });
        is_lost.map(words).collect::<Vec<String>>()
    };
    let before = look();
    assert!(before.iter().all(|cell| cell == "has it"), "{before:?}");
    (event.act)(&mut stage);
    let deadline = Instant::now() + PATIENCE;
    thread::sleep(CALM);
    let mut seen = look();
    while !wanted.starts_with(&seen) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
        seen = look();
    }
    (!wanted.starts_with(&seen)).then(|| format!("{HEADING}: | {} | {} |", event.name, seen.join(" | ")))
}
