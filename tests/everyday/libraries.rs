//! Holders and waiters that use a client library: that of Rust, within this process, or that of Python.

use super::events::{CABLE, EVENTS, Event};
use super::parties::CALM;
use super::stage::{LATE, SOON, Stage, longest, patience};
use super::{Cells, Scene};
use poolcounter_client::{Client, Counters, Error, Limits, MediaWiki, Outcome, Purpose, Timeouts};
use poolcounter_testkit::cut::CutProxy;
use poolcounter_testkit::daemon::PATIENCE;
use poolcounter_testkit::running::Running;
use poolcounter_testkit::skipped;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

const HOLDING: &str = "Client libraries";
const WAITING: &str = "Client libraries that wait";

pub const TIMEOUTS: Timeouts = Timeouts { connect: PATIENCE, answer: PATIENCE, retry: Duration::ZERO };
const LIMITS: Limits =
    Limits { workers: 9, max_queue: 9, timeout: Duration::ZERO, hold: None, at_least: Duration::ZERO };

/// Programs that hold a lock, and print its loss for each line of their input.
const HOLDING_PROGRAMS: [(&str, &str); 3] = [
    (
        "python3",
        "
import sys
from poolcounter import Pools

lock = Pools(sys.argv[1]).acquire('k', workers=9)
for _ in sys.stdin:
    print(lock.lost, flush=True)
",
    ),
    (
        "python3",
        "
import asyncio, sys
from poolcounter.aio import Pools

async def hold():
    lock = await Pools(sys.argv[1]).acquire('k', workers=9)
    while await asyncio.to_thread(sys.stdin.readline):
        print(lock.lost, flush=True)

asyncio.run(hold())
",
    ),
    (
        "php",
        "
$socket = stream_socket_client('tcp://' . $argv[1]);
fwrite($socket, \"ACQ4ME k 9 9 0\\n\");
fgets($socket) === \"LOCKED\\n\" or exit(1);
stream_set_blocking($socket, false);
while (fgets(STDIN) !== false) {
    fgets($socket);
    echo feof($socket) ? 'connection' : 'None', \"\\n\";
}
",
    ),
];

/// Beginnings of the names of events that no client survives, or that end the client's program.
const CLIENTS_TOO: [&str; 3] = ["the machine is lost", "the waiter", "the cable of the waiter"];
/// Keys of the waiters, in the order of the table's columns.
const KEYS: [&str; 4] = ["rust", "python", "asyncio", "php"];
/// Programs that wait for a lock, and print what comes of it.
const WAITING_PROGRAMS: [(&str, &str); 3] = [
    (
        "python3",
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
    ),
    (
        "python3",
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
    ),
    (
        "php",
        "
$socket = stream_socket_client('tcp://' . $argv[1]);
stream_set_timeout($socket, 600);
fwrite($socket, \"ACQ4ME php 1 9 600\\n\");
echo fgets($socket) === \"LOCKED\\n\" ? 'gets it' : 'finds that no server answers', \"\\n\";
fgets(STDIN);
",
    ),
];

/// Starts programs, as far as their interpreters are installed.
pub fn start_all(programs: &[(&str, &str)], address: SocketAddr) -> Vec<Running> {
    let start = |(interpreter, program): &(&str, &str)| {
        if Command::new(interpreter).arg("--version").stdout(Stdio::null()).status().is_err() {
            skipped(&format!("a client in everyday events, because {interpreter} is not installed"));
            return None;
        }
        let mut command = Command::new(interpreter);
        command.args([if *interpreter == "php" { "-r" } else { "-c" }, program, &address.to_string()]);
        command.env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/contrib/python"));
        Some(Running::start(command.env("PYTHONDONTWRITEBYTECODE", "1")))
    };
    // Columns of a page without a party in the middle cannot be compared.
    programs.iter().map_while(start).collect()
}

/// Returns a scene for each event and table.
pub fn scenes() -> Vec<Scene> {
    let holding = EVENTS.iter().filter(|event| is_common(event) && event.meets_the_daemon());
    let waiting = EVENTS.iter().filter(|event| is_common(event));
    let holding = holding.map(|event| scene(HOLDING, event, play));
    holding.chain(waiting.map(|event| scene(WAITING, event, play_waiters))).collect()
}

/// Returns whether the event is one that programs with a library can see.
pub fn is_common(event: &Event) -> bool {
    let is_of_store = ["the disk", "the files", "the database"].iter().any(|begin| event.name.starts_with(begin));
    !is_of_store && !CLIENTS_TOO.iter().any(|begin| event.name.starts_with(begin))
}

/// Returns a scene of one row. Its last columns belong to programs that may not be installed.
pub fn scene(heading: &'static str, event: &'static Event, play: fn(&Event, &[String]) -> Cells) -> Scene {
    let play = move |wanted: &[Cells]| {
        let mut seen = play(event, &wanted[0]);
        // Columns of programs that are not installed.
        seen.extend(wanted[0].iter().skip(seen.len()).cloned());
        vec![seen]
    };
    Scene { rows: vec![(heading, event.name)], play: Box::new(play), is_slow: event.name == CABLE }
}

/// Plays an event for all libraries at once, and returns the row that is seen.
fn play(event: &Event, wanted: &[String]) -> Cells {
    let mut stage = Stage::new(LATE);
    let daemon = stage.daemon.as_ref().expect("it runs");
    let addresses = [daemon.address, daemon.counters()];
    let proxies = addresses.map(CutProxy::to);
    // A proxy passes on no end of a connection.
    let [pools, counters] = if event.name == CABLE { [0, 1].map(|n| proxies[n].address) } else { addresses };
    let client = Client::with(MediaWiki::new([pools.to_string()]), TIMEOUTS);
    let Ok(Outcome::Locked(lock)) = client.acquire(Purpose::Me, "k", &LIMITS) else { panic!("it is free") };
    let client = Counters::with(MediaWiki::new([counters.to_string()]), TIMEOUTS);
    let units = client.acquire("c", 1, 1).expect("it runs").expect("they are free");
    let mut programs = start_all(&HOLDING_PROGRAMS, pools);
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
    proxies.iter().filter(|_| event.name == CABLE).for_each(CutProxy::fall_silent);
    watch(event, wanted, look)
}

/// Looks at a row until it is as it is wanted, or for too long. What could still change has lasted for a moment.
pub fn watch(event: &Event, wanted: &[String], mut look: impl FnMut() -> Cells) -> Cells {
    let deadline = Instant::now() + longest(event.name, PATIENCE);
    thread::sleep(CALM);
    let mut seen = look();
    while !wanted.starts_with(&seen) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(20));
        seen = look();
    }
    seen
}

/// Plays an event while each library waits for a lock, and returns the row that is seen.
fn play_waiters(event: &Event, wanted: &[String]) -> Cells {
    let mut stage = Stage::new(SOON);
    let address = stage.daemon.as_ref().expect("it runs").address;
    let proxy = CutProxy::to(address);
    let pools = if event.name == CABLE { proxy.address } else { address };
    for key in KEYS {
        let mut holder = TcpStream::connect(address).expect("connects");
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
    for mut program in start_all(&WAITING_PROGRAMS, pools) {
        let (sender, python) = channel();
        thread::spawn(move || {
            let _ = sender.send(program.line());
            program.finish();
        });
        waiters.push(python);
    }
    let (mut probe, begun) = (TcpStream::connect(address).expect("connects"), Instant::now());
    for key in &KEYS[..waiters.len()] {
        // With the holder and the waiter, there is no room for a third.
        while ask(&mut probe, &format!("ACQ4ME {key} 1 2 0\n")) != "QUEUE_FULL" {
            assert!(begun.elapsed() < PATIENCE, "a client does not wait for {key}");
            thread::sleep(Duration::from_millis(5));
        }
    }
    (event.act)(&mut stage);
    if event.name == CABLE {
        proxy.fall_silent();
    }
    let look = |(column, waiter): (usize, &Receiver<String>)| {
        let wanted = wanted.get(column).map_or("", String::as_str);
        waiter.recv_timeout(if wanted == "waits" { CALM } else { patience(wanted) }).unwrap_or_else(|_| "waits".into())
    };
    waiters.iter().enumerate().map(look).collect()
}

/// Sends a request, and returns the line that answers it.
pub fn ask(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).expect("is sent");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("is answered");
    line.trim_end().into()
}
