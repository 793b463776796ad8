//! Everything at once against one daemon with every service: clients that send right and wrong requests and disconnect
//! in every way, upgrades in quick succession, and other limits with each of them. No promised change is lost, and
//! nothing is left of closed connections.
//!
//! `SIM_SEED` is the seed, `STORM_SECONDS` the duration, `STORM_PROGRAM` another program. A failure prints its seed.
//! The timing of the system is not repeated.

use nix::sys::signal::Signal;
use poolcounter_core::proxy::Header;
use poolcounter_testkit::counter::CounterClient;
use poolcounter_testkit::daemon::{Client, Daemon, PATIENCE, until};
use poolcounter_testkit::random::{Random, setting};
use poolcounter_testkit::running::Over;
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::speech::{SPOKEN, speech};
use poolcounter_testkit::tls::{Certificates, Connector};
use poolcounter_testkit::web;
use rustls::{ClientConnection, StreamOwned};
use socket2::SockRef;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SECONDS: u64 = 10;
const CLIENTS: u64 = 8;
/// Number of connections that each client leaves open at a time.
const MOST_OPEN: usize = 6;
/// Number of the first ids of jobs, which clients guess and delete.
const GUESSED: u64 = 100;

/// Socket of any family.
trait Socket: Read + Write + Send {
    fn finish(&self);
    /// Makes the end a reset, if the family has resets.
    fn end_by_reset(&self) {}
}

impl Socket for TcpStream {
    fn finish(&self) {
        // The daemon may have closed it already.
        let _ = self.shutdown(Shutdown::Write);
    }

    fn end_by_reset(&self) {
        SockRef::from(self).set_linger(Some(Duration::ZERO)).expect("an option");
    }
}

impl Socket for UnixStream {
    fn finish(&self) {
        // The daemon may have closed it already.
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl Socket for StreamOwned<ClientConnection, TcpStream> {
    fn finish(&self) {
        // Without a closing alert, as when a client crashes.
        self.sock.finish();
    }

    fn end_by_reset(&self) {
        self.sock.end_by_reset();
    }
}

/// The daemon with every service.
struct House {
    daemon: Daemon,
    places: Places,
}

/// Addresses of the services.
struct Places {
    scratch: Scratch,
    /// TCP address of each of [`SPOKEN`] that has one.
    addresses: Vec<Option<SocketAddr>>,
    /// Addresses behind a terminator of TLS, and none without openssl.
    secure: Vec<Option<SocketAddr>>,
    connector: Option<Connector>,
}

/// Terminators of TLS before the services that have a socket for proxies.
struct Terminators {
    terminators: Vec<Daemon>,
    /// Number of descriptors of each before the first connection.
    descriptors: Vec<usize>,
}

impl Terminators {
    fn start(places: &mut Places, certificates: &Certificates) -> Terminators {
        let socket = |service: &str| format!("unix:{}", places.scratch.file(&format!("{service}.p")).display());
        let start = |service: &&str| certificates.terminator(&socket(service), &[]);
        let terminators: Vec<Daemon> = SECURED.iter().map(start).collect();
        places.secure = terminators.iter().map(|terminator| Some(terminator.address)).collect();
        places.connector = Some(certificates.connector("ca", None));
        Terminators { descriptors: terminators.iter().map(descriptors).collect(), terminators }
    }

    /// Waits until each terminator has no more descriptors than at first, and ends it.
    fn settle(&mut self) {
        for (terminator, before) in self.terminators.iter_mut().zip(&self.descriptors) {
            until(&format!("{before} descriptors"), || descriptors(terminator) <= *before);
            let log = terminator.new_log();
            assert_eq!(log.iter().find(|line| line.contains("panicked") || line.contains("no upgrade")), None);
            terminator.signal(Signal::SIGTERM);
            assert_eq!(terminator.wait().code(), Some(0), "{:#?}", terminator.new_log());
        }
    }
}

/// The first of [`SPOKEN`], which are reached over TLS as well.
const SECURED: [&str; 4] = ["pools", "counters", "members", "jobs"];

fn descriptors(daemon: &Daemon) -> usize {
    fs::read_dir(format!("/proc/{}/fd", daemon.pid())).map_or(0, Iterator::count)
}

impl House {
    fn start(scratch: Scratch) -> House {
        let program = std::env::var("STORM_PROGRAM").unwrap_or_else(|_| Daemon::program().into());
        let unix = |name: &str| format!("unix:{}", scratch.file(name).display());
        let config = scratch.file("config").display().to_string();
        let store = format!("sqlite:{}", scratch.file("jobs.db").display());
        let mut command = Command::new(program);
        command.args(["--config", &config, "--counter", "--members", "--jobs", "--jobs-store", &store]);
        for (option, service) in OPTIONS {
            for address in addresses_of(&scratch, service) {
                command.args([option, &address]);
            }
        }
        command.args(["--http", "127.0.0.1:0", "--admin", &unix("admin")]);
        let daemon = Daemon::run(&mut command);
        let address_of = |words: &str| {
            let line = daemon.lines.iter().find(|line| line.contains(words))?;
            line.split([' ', ',']).find_map(|word| word.parse::<SocketAddr>().ok())
        };
        let words =
            ["listens on", "the counters are at", "the members are at", "the jobs are at", "the status page are at"];
        let addresses = words.iter().map(|words| Some(address_of(words).expect("it is said"))).chain([None]).collect();
        House { daemon, places: Places { scratch, addresses, secure: Vec::new(), connector: None } }
    }

    fn metric(&self, name: &str) -> u64 {
        let page = web::fetch(self.places.addresses[4].expect("HTTP has one"), "/metrics").body;
        let page = String::from_utf8(page).expect("is text");
        let line = page.lines().find(|line| line.split(' ').next() == Some(name));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("there is no {name}"))
    }
}

/// Services whose addresses are options. The members' addresses are in the file, so that a reload moves one.
const OPTIONS: [(&str, &str); 3] = [("-l", "pools"), ("--counter-listen", "counters"), ("--jobs-listen", "jobs")];

/// Returns the addresses of a service.
fn addresses_of(scratch: &Scratch, service: &str) -> [String; 3] {
    let unix = |name: &str| format!("unix:{}", scratch.file(name).display());
    ["127.0.0.1:0".into(), unix(service), format!("proxy:{}", unix(&format!("{service}.p")))]
}

/// Rules: none; one for all but clients behind a proxy with an unknown address; and some that forbid many of the
/// requests.
const RULES: [&str; 3] = [
    "",
    "[[access]]
who = [\"user:root\", \"net:127.0.0.1/32\"]
may = [\"pools\", \"counters\", \"members\", \"jobs\", \"http\", \"admin\"]
max_locks = 20
max_connections = 60
",
    "[[access]]
who = [\"user:root\"]
may = [\"pools\", \"members\", \"admin\"]
[[access]]
who = [\"net:127.0.0.1/32\"]
may = [\"pools\", \"counters\", \"jobs\", \"http\"]
max_locks = 2
max_connections = 20
",
];

/// Writes other limits, some of them below the present use, and the addresses of the members, one of which moves.
fn write_config(scratch: &Scratch, random: &mut Random) {
    let (tubes, memory, locks) = (random.pick(&[2, 5, 1_000]), random.pick(&[1, 64]), random.pick(&[1, 8]));
    let (members, lines) = (random.pick(&[1, 20, 10_000]), random.pick(&[100, 8192]));
    let rules = random.pick(&RULES);
    let moved = random.pick(&MOVED);
    let moving =
        [moved.strip_prefix('/').map_or(moved.into(), |name| format!("unix:{}", scratch.file(name).display()))];
    let listen: Vec<String> = addresses_of(scratch, "members").into_iter().chain(moving).collect();
    let text = format!(
        "max_locks = {locks}\nmax_line = {lines}\n[jobs]\nmax_tubes = {tubes}\nmax_memory = {memory}\n[members]\nmax = {members}\nlisten = {listen:?}\n{rules}"
    );
    let new = scratch.file("config.new");
    fs::write(&new, text).expect("can be written");
    fs::rename(&new, scratch.file("config")).expect("can be renamed");
}

/// Addresses of the members, one of which is open at a time. A path is below the directory of the test.
const MOVED: [&str; 3] = ["127.0.0.2:0", "/moved", "/moved.again"];

/// Plays clients one after the other, some of whose connections stay open.
fn live(places: &Places, mut random: Random, is_over: &AtomicBool, connections: &AtomicUsize) {
    let mut open: Vec<Box<dyn Socket>> = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let at = random.below(SPOKEN.len());
        let Some(mut socket) = connect(places, at, &mut random) else { continue };
        connections.fetch_add(1, Ordering::Relaxed);
        for _ in 0..random.pick(&[0, 1, 3, 20]) {
            if socket.write_all(&speech(SPOKEN[at], &mut random)).is_err() {
                break;
            }
            if random.once_in(3) {
                let _ = socket.read(&mut [0; 4096]);
            }
        }
        match random.below(5) {
            // Unread bytes make the close of a connection a reset.
            0 => drop(socket),
            3 => socket.end_by_reset(),
            1 => socket.finish(),
            2 => {
                socket.finish();
                let _ = socket.read_to_end(&mut Vec::new());
            }
            _ => open.push(socket),
        }
        if open.len() > MOST_OPEN {
            open.swap_remove(random.below(open.len()));
        }
    }
}

fn connect(places: &Places, at: usize, random: &mut Random) -> Option<Box<dyn Socket>> {
    // Longer than the gap of an upgrade: no client waits for a reply for long.
    let pause = Some(Duration::from_millis(20));
    let patience = Some(Duration::from_secs(1));
    let (kind, service) = (random.below(4), SPOKEN[at]);
    if let (3, Some(Some(address)), Some(connector)) = (kind, places.secure.get(at), &places.connector) {
        let socket = connector.try_connect(*address).ok()?;
        socket.sock.set_read_timeout(pause).and(socket.sock.set_write_timeout(patience)).ok()?;
        return Some(Box::new(socket));
    }
    if let (Some(address), true) = (places.addresses[at], kind == 0 || service == "http") {
        let socket = TcpStream::connect(address).ok()?;
        socket.set_read_timeout(pause).and(socket.set_write_timeout(patience)).ok()?;
        return Some(Box::new(socket));
    }
    let is_proxied = kind == 1 && service != "admin";
    let name = match service {
        _ if is_proxied => format!("{service}.p"),
        "members" => random.pick(&["members", "moved", "moved.again"]).into(),
        _ => service.into(),
    };
    let mut socket = UnixStream::connect(places.scratch.file(&name)).ok()?;
    socket.set_read_timeout(pause).and(socket.set_write_timeout(patience)).ok()?;
    if is_proxied {
        let mut bytes = Vec::new();
        Header::default().write(&mut bytes);
        bytes.truncate(random.pick(&[3, bytes.len(), bytes.len(), bytes.len()]));
        socket.write_all(&bytes).ok()?;
    }
    Some(Box::new(socket))
}

/// Puts jobs one after the other, and notes the ids of the inserted jobs.
fn put(address: SocketAddr, is_over: &AtomicBool, kept: &Mutex<Vec<u64>>) {
    let mut client = BufReader::new(TcpStream::connect(address).expect("connects"));
    let mut request: &[u8] = b"use kept\r\nput 1 0 60 1\r\nk\r\n";
    while !is_over.load(Ordering::Relaxed) {
        let mut answer = String::new();
        let sent = client.get_mut().write_all(request).and_then(|()| client.read_line(&mut answer));
        if sent.is_err() || answer.is_empty() {
            // The daemon has ended, and its log has the reason.
            return;
        }
        request = b"put 1 0 60 1\r\nk\r\n";
        if let Some(id) = answer.trim_end().strip_prefix("INSERTED ") {
            kept.lock().expect("nobody has panicked").push(id.parse().expect("a number"));
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Upgrades that were requested by signals, and their results.
#[derive(Default)]
struct Upgrades {
    /// Number of signals that were sent while no upgrade was under way.
    asked: usize,
    succeeded: usize,
    /// Lines of the log with the reasons of failed upgrades.
    refused: Vec<String>,
    is_under_way: bool,
    log: Vec<String>,
}

impl Upgrades {
    fn ask(&mut self, daemon: &mut Daemon) {
        self.look(daemon);
        self.asked += usize::from(!self.is_under_way);
        self.is_under_way = true;
        daemon.signal(Signal::SIGUSR1);
    }

    /// Reads the new lines of the log.
    fn look(&mut self, daemon: &mut Daemon) {
        for line in daemon.new_log() {
            let (has_succeeded, is_refused) = (line.contains("has taken over"), line.contains("no upgrade: "));
            self.is_under_way &= !has_succeeded && !is_refused;
            self.succeeded += usize::from(has_succeeded);
            if is_refused {
                self.refused.push(line.clone());
            }
            self.log.push(line);
        }
    }

    /// Waits until no upgrade is under way, and checks that none was refused and that enough succeeded.
    fn finish(&mut self, daemon: &mut Daemon) {
        let deadline = Instant::now() + PATIENCE;
        while self.is_under_way && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
            self.look(daemon);
        }
        let Upgrades { asked, succeeded, refused, log, .. } = self;
        let is_wrong = |line: &&String| ["panicked", "damaged", "contradict"].iter().any(|word| line.contains(word));
        assert_eq!(log.iter().find(is_wrong), None);
        assert!(!self.is_under_way, "an upgrade that was asked for neither comes nor is refused: {:#?}", log.last());
        println!("{asked} upgrades asked for, {succeeded} takeovers, {} refused", refused.len());
        assert_eq!(refused.first(), None, "nothing here is a reason to refuse an upgrade");
        assert!(*succeeded * 3 >= *asked, "most upgrades do not come");
    }
}

/// Ends every drain, also a drain that a signal began: an administrator can only end the drain of an administrator.
/// Neither connection ends before the reply, because the end of a connection is served with its requests, before other
/// requests.
fn undrain(places: &Places) {
    let say = |command: &[u8]| {
        let mut admin = UnixStream::connect(places.scratch.file("admin")).expect("it listens");
        // The connection may end early, as any here.
        let _ = admin.write_all(command);
        admin
    };
    // This request is answered when the drain is over.
    let _draining = say(b"DRAIN\n");
    let undraining = say(b"UNDRAIN\n");
    undraining.set_read_timeout(Some(PATIENCE)).expect("an option");
    let _ = BufReader::new(undraining).read_line(&mut String::new());
}

/// Starts upgrades with other settings each time, drains that end soon, and upgrades of the terminators.
fn operate_all(
    (daemon, terminators): (&mut Daemon, &mut [Daemon]),
    places: &Places,
    random: &mut Random,
    end: Instant,
) -> Upgrades {
    let mut upgrades = Upgrades::default();
    while Instant::now() < end {
        write_config(&places.scratch, random);
        upgrades.ask(daemon);
        if !terminators.is_empty() && random.once_in(4) {
            let signal = random.pick(&[Signal::SIGUSR1, Signal::SIGHUP]);
            terminators[random.below(terminators.len())].signal(signal);
        }
        let is_drained = random.once_in(8);
        if is_drained {
            daemon.signal(Signal::SIGUSR2);
        }
        thread::sleep(Duration::from_millis(10 + random.below(190) as u64));
        if is_drained {
            undrain(places);
        }
    }
    upgrades
}

#[test]
fn storm_over_every_service_takes_nothing_along() {
    let seed = setting("SIM_SEED", 1);
    let seconds = setting("STORM_SECONDS", SECONDS);
    eprintln!("SIM_SEED={seed} STORM_SECONDS={seconds} begins like this");
    let mut random = Random::new(seed);
    let scratch = Scratch::new();
    write_config(&scratch, &mut random);
    let mut house = House::start(scratch);
    let certificates = Certificates::new();
    let mut terminators = certificates.as_ref().map(|certificates| Terminators::start(&mut house.places, certificates));
    let mut keeper = Client::to(house.places.addresses[0].expect("pools have one"));
    assert_eq!(keeper.ask("ACQ4ME keeper 1 1 1"), "LOCKED");
    let before = descriptors(&house.daemon);
    let (is_over, connections, kept) = (AtomicBool::new(false), AtomicUsize::new(0), Mutex::new(Vec::new()));
    let mut upgrades = thread::scope(|scope| {
        let _over = Over(&is_over);
        let places = &house.places;
        for n in 0..CLIENTS {
            let random = Random::new(seed.wrapping_mul(CLIENTS).wrapping_add(n));
            let (is_over, connections) = (&is_over, &connections);
            scope.spawn(move || live(places, random, is_over, connections));
        }
        let jobs = house.places.addresses[3].expect("jobs have one");
        let (over, ids) = (&is_over, &kept);
        scope.spawn(move || put(jobs, over, ids));
        let end = Instant::now() + Duration::from_secs(seconds);
        let secure = terminators.as_mut().map_or(&mut [][..], |all| &mut all.terminators);
        operate_all((&mut house.daemon, secure), places, &mut random, end)
    });
    let kept = kept.into_inner().expect("nobody has panicked");
    upgrades.finish(&mut house.daemon);
    println!("{} connections, {} puts", connections.into_inner(), kept.len());
    // The last settings have no rules that would forbid the following requests.
    fs::write(house.places.scratch.file("config"), last_config(&house.places.scratch)).expect("can be written");
    // The first takeover may be one that a former signal has asked for, with the former settings.
    (0..2).for_each(|_| house.daemon.upgrade());
    settle(&mut house, &mut keeper, before);
    if let Some(terminators) = &mut terminators {
        terminators.settle();
    }
    house.daemon.signal(Signal::SIGTERM);
    assert_eq!(house.daemon.wait().code(), Some(0), "{:#?}", house.daemon.new_log());
    let House { places: Places { scratch, .. }, .. } = house;
    let house = House::start(scratch);
    let mut jobs = Client::to(house.places.addresses[3].expect("jobs have one"));
    for id in kept.into_iter().filter(|id| *id > GUESSED) {
        jobs.send(format!("peek {id}\r\n").as_bytes());
        assert_eq!(jobs.line().trim_end(), format!("FOUND {id} 1"), "an answered put is still there");
        jobs.line();
    }
}

/// Returns settings without rules, and with a bound far below the present use.
fn last_config(scratch: &Scratch) -> String {
    format!("[jobs]\nmax_tubes = 1\n[members]\nlisten = {:?}\n", addresses_of(scratch, "members"))
}

/// Waits until nothing is left of closed connections.
fn settle(house: &mut House, keeper: &mut Client, before: usize) {
    undrain(&house.places);
    assert_eq!(keeper.ask("RELEASE"), "RELEASED", "what nobody gave back is held");
    let gauges = [
        ("poolcounter_pools_processing_workers", 0),
        ("poolcounter_pools_waiting_workers", 0),
        ("poolcounter_members_in_use", 0),
        ("poolcounter_members_starting", 0),
        ("poolcounter_members_waiting", 0),
        ("poolcounter_jobs_current_jobs_reserved", 0),
        ("poolcounter_jobs_current_waiting", 0),
        ("poolcounter_connections{service=\"pools\"}", 1),
        ("poolcounter_connections{service=\"counters\"}", 0),
        ("poolcounter_connections{service=\"members\"}", 0),
        ("poolcounter_connections{service=\"jobs\"}", 0),
        ("poolcounter_connections{service=\"admin\"}", 0),
    ];
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = gauges.iter().find(|(name, value)| house.metric(name) != *value);
        let open = descriptors(&house.daemon);
        match left {
            None if open <= before => break,
            _ => assert!(Instant::now() < deadline, "left: {left:?}, and {open} descriptors of {before}"),
        }
        thread::sleep(Duration::from_millis(50));
    }
    let mut counters = CounterClient::to(house.places.addresses[1].expect("counters have one"));
    for name in 0..6 {
        let units = counters.consumption(format!("c{name}").as_bytes());
        assert!(matches!(units, None | Some(0)), "c{name} has {units:?} of those who have gone");
    }
}
