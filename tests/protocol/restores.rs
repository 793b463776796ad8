//! A process that takes over finds connections of every service in every phase, and goes on with them, whatever its own settings are.
//!
//! `SIM_SEED` is the first seed, `SIM_SEEDS` how many follow from it, `SIM_STEPS` how long each is. A failure names its seed.

use poolcounter_core::proxy::Header;
use poolcounter_core::time::Span;
use poolcounter_counters::CountersSettings;
use poolcounter_jobs::JobsSettings;
use poolcounter_service::container::AllSettings;
use poolcounter_testkit::random::{Random, setting};
use poolcounter_testkit::speech::{SPOKEN, speech};
use poolcounter_testkit::world::World;

const SEEDS: u64 = 64;
const STEPS: u64 = 300;
const MOST_CLIENTS: usize = 24;
const MORE_THAN_A_FLUSH: usize = 600;
/// After so long nothing of a connection is left: not even what counters and lost leases remember.
const AGE: Span = Span::from_secs(300);

/// What may happen in a step.
#[derive(Clone, Copy)]
enum Move {
    Speak,
    Connect,
    ConnectProxy,
    Finish,
    Reset,
    Block,
    Unblock,
    Tick,
    Pass,
    Upgrade,
}

const MOVES: [(Move, usize); 10] = [
    (Move::Speak, 40),
    (Move::Connect, 12),
    (Move::ConnectProxy, 4),
    (Move::Finish, 3),
    (Move::Reset, 2),
    (Move::Block, 2),
    (Move::Unblock, 2),
    (Move::Tick, 12),
    (Move::Pass, 4),
    (Move::Upgrade, 6),
];

/// A world, its clients that are there, and the services that they speak to.
struct History {
    world: World,
    clients: Vec<(usize, &'static str)>,
    random: Random,
    /// What is said to the operator when it fails.
    replay: String,
}

/// A daemon that has started.
fn world() -> World {
    let jobs = JobsSettings { admin: true, ..JobsSettings::default() };
    let counters = CountersSettings { buckets: 4096, interval: Span::from_secs(60), ..CountersSettings::default() };
    let mut world = World::with(AllSettings::defaults(poolcounter::SERVICES).with(jobs).with(counters));
    world.begin().expect("nothing is kept anywhere");
    world
}

impl History {
    fn new(seed: u64, steps: u64) -> History {
        let replay = format!("SIM_SEED={seed:#x} SIM_SEEDS=1 SIM_STEPS={steps} replays this");
        History { world: world(), clients: Vec::new(), random: Random::new(seed), replay }
    }

    fn start(&mut self) {
        self.world = world();
        self.clients.clear();
    }

    fn play(&mut self, next: Move) {
        if self.world.may_end() {
            // A drain has come to its end, and with it the daemon.
            self.start();
        }
        match next {
            Move::Connect | Move::ConnectProxy if self.clients.len() >= MOST_CLIENTS => self.end_one(),
            Move::Connect => {
                let service = self.random.pick(&SPOKEN);
                self.clients.push((self.world.connect_to(service), service));
            }
            Move::ConnectProxy => {
                let service = self.random.pick(&SPOKEN);
                self.clients.push((self.world.connect_proxy(service), service));
                if self.random.once_in(2) {
                    self.say_header();
                }
            }
            Move::Speak => self.speak(),
            Move::Finish => self.with_one(|world, client, _| world.finish(client)),
            Move::Reset => self.with_one(|world, client, _| world.reset(client)),
            Move::Block => self.with_one(|world, client, random| world.set_room(client, random.pick(&[0, 5, 100]))),
            Move::Unblock => self.with_one(|world, client, _| world.set_room(client, usize::MAX)),
            Move::Tick => self.world.tick(),
            Move::Pass => self.world.advance(Span::from_millis(self.random.pick(&[1, 100, 3_000, 11_000]))),
            Move::Upgrade => self.upgrade(),
        }
    }

    fn with_one(&mut self, act: impl FnOnce(&mut World, usize, &mut Random)) {
        if !self.clients.is_empty() {
            let (client, _) = self.random.pick(&self.clients);
            act(&mut self.world, client, &mut self.random);
        }
    }

    fn say_header(&mut self) {
        let mut bytes = Vec::new();
        Header::default().write(&mut bytes);
        bytes.truncate(self.random.pick(&[5, bytes.len(), bytes.len()]));
        let (client, _) = *self.clients.last().expect("has connected");
        self.world.send(client, &bytes);
    }

    fn speak(&mut self) {
        if self.clients.is_empty() {
            return;
        }
        let (client, service) = self.random.pick(&self.clients);
        for _ in 0..self.random.pick(&[1, 1, 2, 9]) {
            let words = speech(service, &mut self.random);
            self.world.send(client, &words);
        }
        if self.random.once_in(2) {
            self.world.tick();
        }
    }

    fn upgrade(&mut self) {
        self.world.upgrade();
    }

    /// Somebody leaves in one way or another, and is forgotten here.
    fn end_one(&mut self) {
        let (client, service) = self.clients.swap_remove(self.random.below(self.clients.len()));
        match self.random.below(3) {
            // One that drains and has closed its side may still read how that goes.
            _ if service == "admin" => self.world.reset(client),
            0 => self.world.reset(client),
            1 => {
                self.world.set_room(client, usize::MAX);
                self.world.finish(client);
            }
            _ => self.world.finish(client),
        }
    }

    fn end(&mut self) {
        while !self.clients.is_empty() {
            self.end_one();
        }
        // What they have said last may have been to drain.
        self.world.advance(Span::from_secs(30));
        self.operate("admin", "UNDRAIN\n");
        if self.world.may_end() {
            return;
        }
        self.world.advance(AGE);
        self.world.upgrade();
        // Jobs stay when everybody has gone.
        self.operate("jobs", "clear *\r\nclear */*\r\n");
        self.world.advance(AGE);
        let is_empty = self.world.is_empty();
        assert!(
            is_empty,
            "something is left of somebody who is gone: {}",
            self.operate("jobs", "stats\r\n").escape_ascii()
        );
    }
}

impl History {
    /// Says something as the last client.
    fn operate(&mut self, service: &str, requests: &str) -> Vec<u8> {
        let operator = self.world.connect_to(service);
        self.world.send(operator, requests.as_bytes());
        self.world.finish(operator);
        self.world.advance(Span::from_secs(1));
        self.world.take_received(operator)
    }
}

/// A test that fails says how it came to that, wherever it fails.
impl Drop for History {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.replay);
        }
    }
}

#[test]
fn connections_of_every_service_go_on_in_every_phase() {
    let (first, seeds, steps) = (setting("SIM_SEED", 1), setting("SIM_SEEDS", SEEDS), setting("SIM_STEPS", STEPS));
    for seed in (0..seeds).map(|n| first.wrapping_add(n)) {
        let mut history = History::new(seed, steps);
        let moves = history.random.swarm(&MOVES);
        for _ in 0..steps {
            let next = history.random.weigh(&moves);
            history.play(next);
        }
        history.end();
    }
}

/// More connections than a tick writes to: some have said their last, and wait for a flush, when another process takes over.
#[test]
fn what_follows_quit_is_served_by_no_process() {
    let mut world = world();
    let clients: Vec<usize> = (0..MORE_THAN_A_FLUSH).map(|_| world.connect_to("jobs")).collect();
    for client in &clients {
        world.send(*client, b"put 1 0 60 1\r\na\r\nquit\r\nput 1 0 60 1\r\nb\r\n");
    }
    world.tick();
    world.upgrade();
    world.advance(Span::from_secs(10));
    for client in clients {
        let told = world.take_received(client);
        assert_eq!(told.iter().filter(|byte| **byte == b'\n').count(), 1, "{}", told.escape_ascii());
        assert!(world.is_ended(client), "a connection goes on after quit");
    }
}
