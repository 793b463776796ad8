//! Commands that run while something is held for them, by `exec`, `take`, `counter acquire` and `jobs run`, and commands
//! of members, by `provide`.

use super::events::{CABLE, DISK_FULL, FILES_LOST, FILES_REMOVED, MACHINE_LOST, freeze, lose_files, restart, stop};
use super::parties::{CALM, NO_SERVER};
use super::services::{SERVICES, Service, Store, TAKEN};
use super::stage::{LATE, Stage, longest, patience};
use super::{Cells, Scene};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use poolcounter_testkit::cut::CutProxy;
use poolcounter_testkit::daemon::{Client, Daemon, PATIENCE};
use poolcounter_testkit::running::process_state;
use poolcounter_testkit::scratch::Scratch;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const HOLDING: &str = "Commands";
const PROVIDING: &str = "Providers and cleaners";

/// Columns of the table of commands: headings of services, and the words before the command. `ADDRESS` is that of the
/// service.
const HOLDERS: [(&str, &[&str]); 5] = [
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

/// Columns of the table of providers: pools of the stage, the words, and what is made of a member after the start.
const PROVIDERS: [(&str, &[&str], Use); 3] = [
    ("free", &["provide", "free", "-s", "ADDRESS", "--start", "SCRIPT"], Use::None),
    ("used", &["provide", "used", "-s", "ADDRESS", "--start", "SCRIPT"], Use::Now),
    ("ci", &["provide", "ci", "-s", "ADDRESS", "--clean", "SCRIPT"], Use::Before),
];

/// Use of a member: none, one that goes on, or one that is over, so that the member is cleaned.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    None,
    Now,
    Before,
}

/// Row of the tables.
struct Event {
    name: &'static str,
    act: fn(&mut Stage, &[Wrapper]),
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

const fn event(name: &'static str, place: Place, act: fn(&mut Stage, &[Wrapper])) -> Event {
    Event { name, act, place }
}

const EVENTS: &[Event] = &[
    event("the command ends", Place::Machine, |_, all| all.iter().for_each(Wrapper::end_work)),
    event("its `poolcounter` is terminated", Place::Machine, |_, all| signal(all, Signal::SIGTERM)),
    event(DRAINED, Place::Machine, |_, all| signal(all, Signal::SIGUSR2)),
    event("its `poolcounter` is killed", Place::Machine, |_, all| signal(all, Signal::SIGKILL)),
    event("its connection ends, and the daemon does not see it", Place::Network, |_, all| {
        each_again(all, CutProxy::cut);
    }),
    event("its connection ends, and only the daemon sees it", Place::Network, |_, all| {
        all.iter().for_each(|one| one.proxy.cut_server());
    }),
    // Each side finds that by keepalive: the client after 30 seconds, the daemon after 60.
    event(CABLE, Place::Network, |_, all| each_again(all, CutProxy::fall_silent)),
    event("the daemon is stopped", Place::Daemon, |stage, _| stop(stage, Signal::SIGTERM)),
    event("the daemon is killed", Place::Daemon, |stage, _| stop(stage, Signal::SIGKILL)),
    event("the daemon is stopped and started", Place::Daemon, |stage, _| restart(stage, Signal::SIGTERM)),
    event("the daemon is killed and started", Place::Daemon, |stage, _| restart(stage, Signal::SIGKILL)),
    event("the daemon is reloaded or upgraded", Place::Machine, |stage, _| stage.daemon().upgrade()),
    event("the daemon drains", Place::Machine, |stage, _| stage.operate("DRAIN")),
    event("the daemon hangs for a second", Place::Machine, |stage, _| freeze(stage)),
    event(MACHINE_LOST, Place::Daemon, |stage, all| {
        signal(all, Signal::SIGKILL);
        for one in all {
            // Its watchdog may have killed it already.
            let _ = kill(Pid::from_raw(one.work), Signal::SIGKILL);
        }
        restart(stage, Signal::SIGKILL);
    }),
    event(DISK_FULL, Place::Machine, |stage, _| stage.fill_disk()),
    event(FILES_REMOVED, Place::Machine, |stage, _| stage.remove_files()),
    event(FILES_LOST, Place::Daemon, |stage, _| lose_files(stage)),
];

/// Only a provider drains.
const DRAINED: &str = "its `poolcounter` drains";

/// A command under `poolcounter`, which it holds something for, or whose member it is.
struct Wrapper {
    goal: Goal,
    address: fn(&Daemon) -> SocketAddr,
    _scratch: Scratch,
    proxy: CutProxy,
    child: Child,
    /// Process that the command has started.
    work: i32,
    _consumer: Option<Client>,
}

/// That for which a command runs.
#[derive(Clone, Copy)]
enum Goal {
    /// It has what this service lends.
    Holding(&'static Service),
    /// It is a member of this pool, or cleans one.
    Member(&'static str),
}

impl Wrapper {
    fn hold(stage: &Stage, (heading, words): (&str, &[&str]), place: Place) -> Wrapper {
        let service = SERVICES.iter().find(|service| service.heading == heading).expect("is a service");
        let daemon = stage.daemon.as_ref().expect("it runs");
        let (request, reply) = service.prepare;
        let mut told = vec![0; reply.len()];
        let mut operator = TcpStream::connect((service.address)(daemon)).expect("connects");
        operator.write_all(request).and_then(|()| operator.read_exact(&mut told)).expect("is answered");
        let words = [words, &["--", "sh", "-c", "SCRIPT"]].concat();
        Wrapper::start(daemon, Goal::Holding(service), service.address, &words, Use::None, place)
    }

    fn provide(stage: &Stage, (pool, words, used): (&'static str, &[&str], Use), place: Place) -> Wrapper {
        let daemon = stage.daemon.as_ref().expect("it runs");
        Wrapper::start(daemon, Goal::Member(pool), Daemon::members, words, used, place)
    }

    fn start(
        daemon: &Daemon,
        goal: Goal,
        address: fn(&Daemon) -> SocketAddr,
        words: &[&str],
        used: Use,
        place: Place,
    ) -> Wrapper {
        let proxy = CutProxy::to(address(daemon));
        let server = if place == Place::Network { proxy.address } else { address(daemon) }.to_string();
        let scratch = Scratch::new();
        let file = scratch.file("work");
        let script = "sh -c 'echo $$ >FILE.new; mv FILE.new FILE; echo m$$; exec sleep 1000'";
        // A start that succeeds leaves a member behind, which outlives it.
        let end = if words.contains(&"--start") { "" } else { "; true" };
        let script = script.replace("FILE", &file.display().to_string()) + end;
        let words = words.iter().map(|word| match *word {
            "ADDRESS" => &*server,
            "SCRIPT" => &script,
            word => word,
        });
        let mut command = Command::new(Daemon::program());
        command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("the program runs");
        let mut consumer = None;
        if let (Goal::Member(pool), Use::Now | Use::Before) = (goal, used) {
            let mut client = Client::to(address(daemon));
            let taken = client.ask(&format!("TAKE {pool} 60"));
            assert!(taken.starts_with("MEMBER "), "{taken}");
            consumer = (used == Use::Now).then_some(client);
        }
        let deadline = Instant::now() + PATIENCE;
        // Once it sleeps, its watchdog knows the command.
        while !file.exists() || !sleeps(child.id()) {
            assert!(Instant::now() < deadline, "{words:?}: the command does not run", words = command.get_args());
            thread::sleep(Duration::from_millis(5));
        }
        let work = fs::read_to_string(file).expect("is readable").trim().parse().expect("is a process id");
        Wrapper { goal, address, _scratch: scratch, proxy, child, work, _consumer: consumer }
    }

    fn end_work(&self) {
        kill(Pid::from_raw(self.work), Signal::SIGTERM).expect("it runs");
    }

    /// Returns what the command does, and what becomes of that for which it runs.
    fn look(&self, address: Option<SocketAddr>) -> String {
        // In this order: something that is free before the work has ended is seen.
        let next = match self.goal {
            Goal::Holding(service) => format!("the next {}", newcomer(service, address)),
            Goal::Member(pool) => self.member_of(pool, address),
        };
        let work = if process_state(self.work).is_some() { "runs on" } else { "ends" };
        format!("{work}; {next}")
    }

    /// Returns whether the command works on something that another client can have.
    fn is_early(&self, seen: &str) -> bool {
        let next = match self.goal {
            Goal::Holding(_) => format!("the next {TAKEN}"),
            Goal::Member("ci") => "its member is free".into(),
            Goal::Member(_) => return false,
        };
        seen == format!("runs on; {next}")
    }

    /// Waits until this is seen, and that lasts; returns what is seen. What is free while the work runs is seen at once.
    fn wait_for(&self, address: Option<SocketAddr>, wanted: &str, event: &Event) -> String {
        let deadline = Instant::now() + longest(event.name, patience(wanted));
        let is_early = |seen: &str| event.place != Place::Daemon && self.is_early(seen);
        loop {
            let mut seen = self.look(address);
            if seen == wanted && seen.starts_with("runs on") && !is_early(&seen) {
                thread::sleep(CALM);
                seen = self.look(address);
            }
            if seen == wanted || is_early(&seen) || Instant::now() >= deadline {
                return seen;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns what the pool's member is: that of the command, or another in its place.
    fn member_of(&self, pool: &str, address: Option<SocketAddr>) -> String {
        let Some(stream) = address.and_then(|address| TcpStream::connect(address).ok()) else {
            return format!("the next {NO_SERVER}");
        };
        let line = Client::of(stream).ask(&format!("MEMBERS {pool}"));
        let mut words = line.split(' ');
        let (name, state) = (words.next().unwrap_or_default(), words.next().unwrap_or_default().replace('_', " "));
        match name {
            "" => "its member is gone".into(),
            "a" => format!("its member is {state}"),
            _ if name == format!("m{}", self.work) => format!("its member is {state}"),
            _ => format!("another member is {state}"),
        }
    }
}

fn newcomer(service: &Service, address: Option<SocketAddr>) -> &'static str {
    let Some(mut stream) = address.and_then(|address| TcpStream::connect(address).ok()) else { return NO_SERVER };
    let request = service.probe.map_or_else(|| (service.take)(0), <[u8]>::to_vec);
    stream.write_all(&request).expect("is sent");
    let (mut input, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let known = service.replies.iter().find(|(beginning, _)| input.starts_with(beginning));
        if let Some((_, meaning)) = known {
            return meaning;
        }
        let len = stream.read(&mut part).expect("a reply comes");
        assert!(len > 0, "{}: {input:?}", service.heading);
        input.extend_from_slice(&part[..len]);
    }
}

impl Drop for Wrapper {
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

fn signal(all: &[Wrapper], signal: Signal) {
    for one in all {
        kill(Pid::from_raw(one.child.id() as i32), signal).expect("it runs");
    }
}

/// Acts on each connection, and waits until each command has ended or its `poolcounter` has connected again.
fn each_again(all: &[Wrapper], act: fn(&CutProxy)) {
    let before: Vec<usize> = all.iter().map(|one| one.proxy.connections()).collect();
    all.iter().for_each(|one| act(&one.proxy));
    let deadline = Instant::now() + longest(CABLE, PATIENCE);
    for (one, before) in all.iter().zip(before) {
        while process_state(one.work).is_some() && one.proxy.connections() == before {
            assert!(Instant::now() < deadline, "nothing comes of the cut");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns a scene for each event and table.
pub fn scenes() -> Vec<Scene> {
    let holding = EVENTS.iter().filter(|event| event.name != DRAINED).map(|event| {
        scene(HOLDING, event, |stage, place| HOLDERS.map(|column| Wrapper::hold(stage, column, place)).into())
    });
    let providing = EVENTS.iter().map(|event| {
        scene(PROVIDING, event, |stage, place| PROVIDERS.map(|column| Wrapper::provide(stage, column, place)).into())
    });
    holding.chain(providing).collect()
}

/// Returns the scene of an event for all columns of a table at once.
fn scene(heading: &'static str, event: &'static Event, start: fn(&Stage, Place) -> Vec<Wrapper>) -> Scene {
    let play = move |wanted: &[Cells]| {
        let is_to_fail = event.name == DISK_FULL;
        let Some(mut stage) = Stage::with(LATE, Store::File, is_to_fail) else { return wanted.to_vec() };
        let all = start(&stage, event.place);
        (event.act)(&mut stage, &all);
        let wanted = |column: usize| wanted[0].get(column).map_or("", String::as_str);
        let look =
            |(column, one): (usize, &Wrapper)| one.wait_for(stage.address_of(one.address), wanted(column), event);
        vec![all.iter().enumerate().map(look).collect()]
    };
    Scene { rows: vec![(heading, event.name)], play: Box::new(play), is_slow: event.name == CABLE }
}
