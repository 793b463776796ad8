//! Holders and waiters that use a client library: that of Rust, within this process, or that of Python.

use super::events::Event;
use super::parties::{CALM, Stage};
use poolcounter_client::{Client, Counters, Error, Limits, MediaWiki, Outcome, Purpose, Timeouts};
use poolcounter_testkit::daemon::PATIENCE;
use poolcounter_testkit::running::Running;
use poolcounter_testkit::skipped;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Heading of the table of holders.
pub const HEADING: &str = "Client libraries";
/// Heading of the table of waiters.
pub const WAITING: &str = "Client libraries that wait";

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

/// Part of the names of events that no client survives.
const CLIENTS_TOO: &str = "all clients";
/// Keys of the waiters, in the order of the table's columns.
const KEYS: [&str; 3] = ["rust", "python", "asyncio"];
/// Programs that wait for a lock, and print what comes of it.
const WAITING_PYTHON: [&str; 2] = [
    "
import sys
from poolcounter import Pools, Unavailable

try:
    lock = Pools(sys.argv[1]).acquire('python', timeout=600)
    print('gets it', flush=True)
except Unavailable:
    print('finds that no server answers', flush=True)
sys.stdin.read()
",
    "
import asyncio, sys
from poolcounter import Unavailable
from poolcounter.aio import Pools

async def wait():
    try:
        lock = await Pools(sys.argv[1]).acquire('asyncio', timeout=600)
        print('gets it', flush=True)
    except Unavailable:
        print('finds that no server answers', flush=True)
    await asyncio.to_thread(sys.stdin.read)

asyncio.run(wait())
",
];

fn start_python(program: &str, address: SocketAddr) -> Running {
    let mut command = Command::new("python3");
    command.args(["-c", program, &address.to_string()]).env("PYTHONDONTWRITEBYTECODE", "1");
    Running::start(command.env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/contrib/python")))
}

/// Starts programs, if Python is installed.
fn start_all(programs: &[&str], address: SocketAddr) -> Vec<Running> {
    if Command::new("python3").arg("--version").output().is_err() {
        skipped("the client for Python in everyday events, because python3 is not installed");
        return Vec::new();
    }
    programs.iter().map(|program| start_python(program, address)).collect()
}

/// Returns the events of the table of holders.
pub fn events(events: &[Event]) -> impl Iterator<Item = &Event> {
    events.iter().filter(|event| event.name.starts_with("the daemon") && !event.name.contains(CLIENTS_TOO))
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
    let mut programs = start_all(&PYTHON, pools);
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

/// Returns the events of the table of waiters: what ends the waiter ends its program, too.
pub fn events_of_waiters(events: &[Event]) -> impl Iterator<Item = &Event> {
    events.iter().filter(|event| event.name != "the waiter is killed" && !event.name.contains(CLIENTS_TOO))
}

/// Plays an event while each library waits for a lock, and returns the row that is seen, if it is not this one.
pub fn play_waiters(event: &Event, wanted: &[String]) -> Option<String> {
    let mut stage = Stage::new();
    let pools = stage.daemon.as_ref().expect("it runs").address;
    for key in KEYS {
        let mut holder = TcpStream::connect(pools).expect("connects");
        assert_eq!(ask(&mut holder, &format!("ACQ4ME {key} 1 9 0\n")), "LOCKED");
        stage.holders.push(holder);
        stage.returns.push(format!("RELEASE {key}\n").into_bytes());
    }
    let (sender, rust) = channel();
    thread::spawn(move || {
        let client = Client::with(MediaWiki::new([pools.to_string()]), TIMEOUTS);
        let limits = Limits { workers: 1, timeout: Duration::from_secs(600), ..LIMITS };
        let outcome = client.acquire(Purpose::Me, KEYS[0], &limits);
        let told = match &outcome {
            Ok(Outcome::Locked(_)) => "gets it".into(),
            Err(Error::Unavailable(_)) => "finds that no server answers".into(),
            other => format!("is told {other:?}"),
        };
        // The scene has ended if nobody receives it.
        let _ = sender.send(told);
    });
    let mut waiters: Vec<Receiver<String>> = vec![rust];
    for mut program in start_all(&WAITING_PYTHON, pools) {
        let (sender, python) = channel();
        thread::spawn(move || {
            let _ = sender.send(program.line());
            program.finish();
        });
        waiters.push(python);
    }
    let (mut probe, begun) = (TcpStream::connect(pools).expect("connects"), Instant::now());
    for key in &KEYS[..waiters.len()] {
        // With the holder and the waiter, there is no room for a third.
        while ask(&mut probe, &format!("ACQ4ME {key} 1 2 0\n")) != "QUEUE_FULL" {
            assert!(begun.elapsed() < PATIENCE, "a client does not wait for {key}");
            thread::sleep(Duration::from_millis(5));
        }
    }
    (event.act)(&mut stage);
    let look = |(waiter, wanted): (&Receiver<String>, &String)| {
        let patience = if wanted == "waits" { CALM } else { PATIENCE };
        waiter.recv_timeout(patience).unwrap_or_else(|_| "waits".into())
    };
    let seen: Vec<String> = waiters.iter().zip(wanted).map(look).collect();
    (!wanted.starts_with(&seen)).then(|| format!("{WAITING}: | {} | {} |", event.name, seen.join(" | ")))
}

/// Sends a request, and returns the line that answers it.
fn ask(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).expect("is sent");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("is answered");
    line.trim_end().into()
}
