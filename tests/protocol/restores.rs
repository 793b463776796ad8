//! A process that takes over finds connections of every service in every phase, and continues with them, whatever its
//! own settings are.

use poolcounter_core::count;
use poolcounter_core::proxy::Header;
use poolcounter_core::time::Span;
use poolcounter_counters::CountersSettings;
use poolcounter_jobs::JobsSettings;
use poolcounter_testkit::random::Random;
use poolcounter_testkit::rules;
use poolcounter_testkit::seeds::{History as Seeded, play};
use poolcounter_testkit::speech::{SPOKEN, speech};
use poolcounter_testkit::world::{EPOCH, World, administered};

const MOST_CLIENTS: usize = 24;
const MORE_THAN_A_FLUSH: usize = 600;
/// Time after which nothing of a connection is left: not even the memory of counters and lost leases.
const AGE: Span = Span::from_secs(300);

/// Settings whose bounds may be below the present use. Some of them apply after an upgrade, in this order.
const BOUNDS: [&str; 28] = [
    "max_connections = 1",
    "max_locks = 1",
    "max_hold = 0.001",
    "warn_hold = 0.001",
    "warn_refusals = 1",
    "max_line = 64",
    "counter.max_connections = 1",
    "counter.stats_interval = 10",
    "counter.stats_interval = 86400",
    "counter.max_memory = 1",
    "counter.buckets = 1",
    "members.max_connections = 1",
    "members.max = 4",
    "members.admin = 'false'",
    "members.admin = 'true'",
    "jobs.max_connections = 1",
    "jobs.max_size = 1",
    "jobs.max_tubes = 1",
    "jobs.max_memory = 1",
    "jobs.store_queue = '1,1'",
    "jobs.store_timeout = 0.001",
    "jobs.admin = true",
    "http_admin = true",
    "http_host = 'b'",
    "[[pools.ceiling]]\nkey = 'k*'\nworkers = 1\nmax_queue = 1\ntimeout = 0.01\nhold = 0.01\nshed_after = 0.001",
    "[[members.pool]]\nname = 'k1'\nmax = 1\nqueue = 0\nper_client = 1\nfixed = ['m1']",
    "[[members.pool]]\nname = 'k2'\nmax = 2\ngroup = 'h'\nqueue = 1\nfixed = ['m2', 'm3']",
    "[[access]]\nname = 'few'\nwho = ['all']\nmay = ['pools', 'counters', 'members', 'jobs', 'http', 'admin']\n\
        max_connections = 2\nmax_locks = 1\nmax_waits = 1\nmax_requests = 9\nmax_memory = 90",
];
/// Duration of a takeover, and differences between the times of day of the two servers, in seconds.
const DELAYS_S: [u64; 6] = [0, 0, 0, 1, 20, 7_200];
const SHIFTS_S: [u64; 4] = [0, 1, 3_600, 40_000_000];

/// Action of a step.
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

/// A world, its present clients, and their services.
struct History {
    world: World,
    clients: Vec<(usize, &'static str)>,
    random: Random,
}

/// Returns a daemon that has started.
fn world() -> World {
    let counters = CountersSettings { buckets: 4096, interval: Span::from_secs(60), ..CountersSettings::default() };
    let mut world = World::with(administered().with(counters));
    world.begin().expect("nothing is kept anywhere");
    world
}

impl History {
    fn new(seed: u64) -> History {
        History { world: world(), clients: Vec::new(), random: Random::new(seed) }
    }

    fn start(&mut self) {
        self.world = world();
        self.clients.clear();
    }

    fn play(&mut self, next: Move) {
        if self.world.connections.may_end() {
            // A drain has ended, and with it the daemon.
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

    /// Hands over to another server, half of the time with other settings, and at times long after or with another time
    /// of day. Now and then, another one finds a wrong bit in the handover before.
    fn upgrade(&mut self) {
        let is_changed = self.random.once_in(2);
        if is_changed {
            let bounds: Vec<&str> = BOUNDS.into_iter().filter(|_| self.random.once_in(4)).collect();
            self.configure(&bounds);
        }
        if self.random.once_in(4) {
            let shift = Span::from_secs(self.random.pick(&SHIFTS_S));
            let earlier = Span::from_micros(EPOCH.as_micros() - shift.as_micros());
            self.world.set_epoch(self.random.pick(&[EPOCH + shift, earlier]));
        }
        if self.random.once_in(8) {
            let random = &mut self.random;
            self.world.try_damaged_upgrade(|bits| random.below(bits));
        }
        self.world.upgrade_within(Span::from_secs(self.random.pick(&DELAYS_S)));
    }

    /// Sets exactly these bounds for the next server.
    fn configure(&mut self, bounds: &[&str]) {
        let mut text: Vec<&str> = Vec::new();
        for line in bounds {
            let key = |line: &str| line.split(" = ").next().unwrap_or_default().to_string();
            if line.starts_with('[') || text.iter().all(|other| key(other) != key(line)) {
                text.push(line);
            }
        }
        let settings = rules::settings(&text.join("\n"));
        let (mut services, policy) = (settings.services.clone(), settings.policy());
        if self.random.once_in(2) {
            // Lower than a file can set.
            let counters = services.get_mut::<CountersSettings>().expect("is a service");
            counters.max_memory = counters.max_memory.min(300);
            let jobs = services.get_mut::<JobsSettings>().expect("is a service");
            jobs.max_memory = jobs.max_memory.min(400);
        }
        self.world.set(services);
        self.world.limit_each(policy.max_connections);
        self.world.rule(settings.rules);
    }

    /// Closes a client in one way or another, and forgets it.
    fn end_one(&mut self) {
        let (client, service) = self.clients.swap_remove(self.random.below(self.clients.len()));
        match self.random.below(3) {
            // A client that drains and has closed its side may still read the progress.
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
        self.configure(&["jobs.admin = true", "counter.stats_interval = 60", "members.admin = 'true'"]);
        self.world.upgrade();
        // Their last request may have been to drain.
        self.world.advance(Span::from_secs(30));
        self.operate("admin", "UNDRAIN\n");
        if self.world.connections.may_end() {
            return;
        }
        self.world.advance(AGE);
        self.world.upgrade();
        // Jobs stay after all clients have left.
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
    /// Sends requests as the last client.
    fn operate(&mut self, service: &str, requests: &str) -> Vec<u8> {
        let operator = self.world.connect_to(service);
        self.world.send(operator, requests.as_bytes());
        self.world.finish(operator);
        self.world.advance(Span::from_secs(1));
        self.world.take_received(operator)
    }
}

#[test]
fn random_upgrades_keep_connections_of_every_service() {
    play("restores", play_one);
}

/// Numbers of all events, ids that count up and turns of watch sets overflow in each of the histories.
#[test]
fn random_upgrades_go_on_with_figures_near_their_ends() {
    play("restores-near-the-end", |history| {
        count::begin_near_the_end(true);
        play_one(history);
        count::begin_near_the_end(false);
    });
}

fn play_one(Seeded { seed, steps }: Seeded) {
    let mut history = History::new(seed);
    let moves = history.random.swarm(&MOVES);
    for _ in 0..steps {
        let next = history.random.weigh(&moves);
        history.play(next);
    }
    history.end();
}

/// More connections than a tick writes to: some have quit, and wait for a flush, when another process takes over.
#[test]
fn requests_behind_quit_are_served_by_no_process() {
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
