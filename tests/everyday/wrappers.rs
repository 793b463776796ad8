//! Commands that run while something is held for them: by `exec`, `take`, `counter acquire` and `jobs run`.

use super::events::{freeze, restart, stop};
use super::parties::{CALM, Stage};
use super::services::{SERVICES, Service, TAKEN};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use poolcounter_testkit::cut::CutProxy;
use poolcounter_testkit::daemon::{Daemon, PATIENCE};
use poolcounter_testkit::running::process_state;
use poolcounter_testkit::scratch::Scratch;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Heading of the table. Its columns are the services whose commands there are, in the order of [`STARTS`].
pub const HEADING: &str = "Commands";
/// Columns of the table, and the words before the command. `ADDRESS` is that of the service.
const STARTS: [(&str, &[&str]); 5] = [
    ("Locks", &["exec", "-s", "ADDRESS", "-k", "k", "--on-lost", "term", "--process-group", "own"]),
    (
        "Locks with a least time",
        &["exec", "-s", "ADDRESS", "-k", "kept", "--at-least", "600", "--on-lost", "term", "--process-group", "own"],
    ),
    ("Members", &["take", "p", "-s", "ADDRESS", "--fail-on", "99", "--on-lost", "term", "--process-group", "own"]),
    (
        "Units of counters",
        &["counter", "-s", "ADDRESS", "--on-lost", "term", "--process-group", "own", "acquire", "c", "1", "1"],
    ),
    ("Jobs", &["jobs", "run", "-s", "ADDRESS", "--on-lost", "term", "default"]),
];

/// Row of the table.
pub struct Event {
    pub name: &'static str,
    act: fn(&mut Stage, &[Wrapper<'_>]),
    place: Place,
}

/// Where the event happens.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Machine,
    /// In the network, which is a proxy. The proxy does not pass on the end of a connection.
    Network,
    /// The daemon is gone after the event, or another one that knows nothing of what was held.
    Daemon,
}

pub const EVENTS: &[Event] = &[
    Event { name: "the command ends", act: |_, all| all.iter().for_each(Wrapper::end_work), place: Place::Machine },
    Event {
        name: "its `poolcounter` is terminated",
        act: |_, all| signal(all, Signal::SIGTERM),
        place: Place::Machine,
    },
    Event { name: "its `poolcounter` is killed", act: |_, all| signal(all, Signal::SIGKILL), place: Place::Machine },
    Event {
        name: "the network is cut",
        act: |_, all| all.iter().for_each(|one| one.proxy.cut()),
        place: Place::Network,
    },
    Event { name: "the daemon is stopped", act: |stage, _| stop(stage, Signal::SIGTERM), place: Place::Daemon },
    Event { name: "the daemon is killed", act: |stage, _| stop(stage, Signal::SIGKILL), place: Place::Daemon },
    Event {
        name: "the daemon is stopped and started",
        act: |stage, _| restart(stage, Signal::SIGTERM),
        place: Place::Daemon,
    },
    Event {
        name: "the daemon is killed and started",
        act: |stage, _| restart(stage, Signal::SIGKILL),
        place: Place::Daemon,
    },
    Event {
        name: "the daemon is reloaded or upgraded",
        act: |stage, _| stage.daemon().upgrade(),
        place: Place::Machine,
    },
    Event { name: "the daemon drains", act: |stage, _| stage.operate("DRAIN"), place: Place::Machine },
    Event { name: "the daemon hangs for a second", act: |stage, _| freeze(stage), place: Place::Machine },
];

/// A command under `poolcounter`, which it holds something for.
struct Wrapper<'a> {
    service: &'a Service,
    _scratch: Scratch,
    proxy: CutProxy,
    child: Child,
    /// Process that the command has started.
    work: i32,
}

impl<'a> Wrapper<'a> {
    fn start(stage: &Stage, service: &'a Service, words: &[&str], place: Place) -> Wrapper<'a> {
        let daemon = stage.daemon.as_ref().expect("it runs");
        let (request, reply) = service.prepare;
        let mut told = vec![0; reply.len()];
        let mut operator = TcpStream::connect((service.address)(daemon)).expect("connects");
        operator.write_all(request).and_then(|()| operator.read_exact(&mut told)).expect("is answered");
        let proxy = CutProxy::to((service.address)(daemon));
        let is_far = place == Place::Network;
        let address = if is_far { proxy.address } else { (service.address)(daemon) }.to_string();
        let scratch = Scratch::new();
        let file = scratch.file("work");
        let script = format!("sh -c 'echo $$ >{0}.new; mv {0}.new {0}; exec sleep 1000'; true", file.display());
        let words = words.iter().map(|word| if *word == "ADDRESS" { &*address } else { *word });
        let mut command = Command::new(Daemon::program());
        command.args(words).args(["--", "sh", "-c", &script]).stdin(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("the program runs");
        let deadline = Instant::now() + PATIENCE;
        // Once it sleeps, its watchdog knows the command.
        while !file.exists() || !sleeps(child.id()) {
            assert!(Instant::now() < deadline, "{}: the command does not run", service.heading);
            thread::sleep(Duration::from_millis(5));
        }
        let work = fs::read_to_string(file).expect("is readable").trim().parse().expect("is a process id");
        Wrapper { service, _scratch: scratch, proxy, child, work }
    }

    fn end_work(&self) {
        kill(Pid::from_raw(self.work), Signal::SIGTERM).expect("it runs");
    }

    /// Returns what the command does, and what a new client gets.
    fn look(&self, stage: &Stage) -> String {
        // In this order: something that is free before the work has ended is seen.
        let next = self.newcomer(stage);
        let work = if process_state(self.work).is_some() { "runs on" } else { "ends" };
        format!("{work}; the next {next}")
    }

    fn newcomer(&self, stage: &Stage) -> &'static str {
        let Some(daemon) = &stage.daemon else { return "cannot connect" };
        let Ok(mut stream) = TcpStream::connect((self.service.address)(daemon)) else { return "cannot connect" };
        stream.write_all(&(self.service.take)(0)).expect("is sent");
        let (mut input, mut part) = (Vec::new(), [0; 4096]);
        loop {
            let known = self.service.replies.iter().find(|(beginning, _)| input.starts_with(beginning));
            if let Some((_, meaning)) = known {
                return meaning;
            }
            let len = stream.read(&mut part).expect("a reply comes");
            assert!(len > 0, "{}: {input:?}", self.service.heading);
            input.extend_from_slice(&part[..len]);
        }
    }

    /// Waits until this is seen, and that lasts; returns what is seen. What is free while the work runs is seen at once.
    fn wait_for(&self, stage: &Stage, wanted: &str, place: Place) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = self.look(stage);
        let is_early = |seen: &str| seen == format!("runs on; the next {TAKEN}") && place != Place::Daemon;
        while seen != wanted && !is_early(&seen) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
            seen = self.look(stage);
        }
        if seen.starts_with("runs on") && !is_early(&seen) {
            thread::sleep(CALM);
            seen = self.look(stage);
        }
        seen
    }
}

impl Drop for Wrapper<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if process_state(self.work).is_some() {
            let _ = kill(Pid::from_raw(self.work), Signal::SIGKILL);
        }
    }
}

/// Returns whether all threads of a process sleep.
fn sleeps(process: u32) -> bool {
    let mut threads = fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    threads.all(|thread| {
        let id = thread.ok().and_then(|thread| thread.file_name().to_str()?.parse().ok());
        id.is_some_and(|id| process_state(id) == Some('S'))
    })
}

fn signal(all: &[Wrapper<'_>], signal: Signal) {
    for one in all {
        kill(Pid::from_raw(one.child.id() as i32), signal).expect("it runs");
    }
}

/// Plays an event for all commands at once, and returns the row that is seen, if it is not this one.
pub fn play(event: &Event, wanted: &[String]) -> Option<String> {
    let mut stage = Stage::new();
    let service = |heading| SERVICES.iter().find(|service| service.heading == heading).expect("is a service");
    let all = STARTS.map(|(heading, words)| Wrapper::start(&stage, service(heading), words, event.place));
    (event.act)(&mut stage, &all);
    let seen: Vec<String> =
        all.iter().zip(wanted).map(|(one, wanted)| one.wait_for(&stage, wanted, event.place)).collect();
    (seen != wanted).then(|| format!("{HEADING}: | {} | {} |", event.name, seen.join(" | ")))
}
