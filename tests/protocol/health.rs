//! Conditions: each is on when what it says is so, names the cause, and is over when it is not so any more.

use poolcounter::SERVICES;
use poolcounter_core::time::Span;
use poolcounter_jobs::options::{JobsSettings, StoreKind};
use poolcounter_members::MembersSettings;
use poolcounter_pools::PoolsSettings;
use poolcounter_service::container::AllSettings;
use poolcounter_service::health::{HealthLine, Level};
use poolcounter_testkit::world::World;

/// A daemon with clients of all services.
struct Rig {
    world: World,
}

impl Rig {
    fn new() -> Rig {
        let pools = PoolsSettings { warn_hold: Span::from_secs(20), warn_refusals: 5, ..PoolsSettings::default() };
        let jobs = JobsSettings { store: StoreKind::Memory, ..JobsSettings::default() };
        let members = MembersSettings { admin: Some(true), ..MembersSettings::default() };
        Rig { world: World::with(AllSettings::defaults(SERVICES).with(pools).with(jobs).with(members)) }
    }

    fn client(&mut self, service: &str, lines: &str) -> usize {
        let client = self.world.connect_to(service);
        self.say(client, lines);
        client
    }

    fn say(&mut self, client: usize, lines: &str) {
        self.world.send(client, lines.as_bytes());
        self.world.settle();
        self.world.take_received(client);
    }

    /// Lets time pass, with a look each second.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.world.advance(Span::from_secs(1));
            self.world.tick();
        }
    }

    fn line(&self, title: &str) -> HealthLine {
        self.world.health().into_iter().find(|line| line.title == title).expect("each service has a line")
    }

    /// Returns the names of the conditions that are on, with their sentences.
    fn on(&self, title: &str) -> Vec<(&'static str, String)> {
        let line = self.line(title);
        line.conditions.into_iter().map(|on| (on.condition.info.name, on.condition.sentence)).collect()
    }

    fn names(&self, title: &str) -> Vec<&'static str> {
        self.on(title).into_iter().map(|(name, _)| name).collect()
    }
}

#[test]
fn an_idle_daemon_is_well() {
    let mut rig = Rig::new();
    rig.pass(100);
    // A tick of the simulation lasts until the next one, so that the daemon's own line says that it is busy.
    for line in rig.world.health().into_iter().filter(|line| line.title != "Daemon") {
        assert_eq!((line.level, line.conditions.len()), (Level::Ok, 0), "{}: {}", line.title, line.sentence());
    }
    assert_eq!(rig.line("Locks").sentence(), "0/s granted, 0 held, 0 waiting, nothing refused");
    assert_eq!(rig.line("Jobs").sentence(), "0 ready; 0/s put, 0/s done, 0 runners");
}

#[test]
fn a_lock_that_is_held_for_long_is_overdue_and_blocks_who_waits() {
    let mut rig = Rig::new();
    let holder = rig.client("pools", "ACQ4ME backup 1 9 600 who=db1\n");
    rig.pass(25);
    assert_eq!(rig.names("Locks"), [""; 0], "it holds for five seconds");
    rig.pass(8);
    assert_eq!(rig.names("Locks"), ["overdue"]);
    let waiter = rig.client("pools", "ACQ4ME backup 1 9 600\n");
    rig.pass(35);
    let on = rig.on("Locks");
    assert_eq!((on[0].0, rig.line("Locks").level), ("blocked", Level::Critical));
    assert!(on[0].1.starts_with("backup: db1 at ") && on[0].1.contains("; 1 waiting, the longest for 3"), "{on:?}");
    [holder, waiter].into_iter().for_each(|client| rig.world.reset(client));
    rig.pass(70);
    assert_eq!(rig.names("Locks"), [""; 0]);
}

#[test]
fn a_key_that_refuses_is_named() {
    let mut rig = Rig::new();
    rig.client("pools", "ACQ4ME hot 1 1 0\n");
    let client = rig.world.connect_to("pools");
    let refuse = |rig: &mut Rig, times: usize| {
        for _ in 0..30 {
            rig.say(client, &"ACQ4ME hot 1 1 0\n".repeat(times));
            rig.pass(1);
        }
    };
    refuse(&mut rig, 2);
    assert_eq!(rig.names("Locks"), ["refuses"]);
    refuse(&mut rig, 20);
    assert_eq!(rig.names("Locks")[0], "floods");
    assert!(rig.on("Locks")[0].1.starts_with("hot refuses "), "{:?}", rig.on("Locks"));
    assert_eq!(rig.line("Locks").conditions[0].condition.link, "/pools/key/hot");
}

#[test]
fn members_that_are_kept_out_or_held_for_long_are_told_of() {
    let mut rig = Rig::new();
    let operator =
        rig.client("members", "POOL phones 0 2 warn_hold=5 queue=9 on_loss=ok\nADD phones a\nADD phones b\n");
    let testers = [0; 2].map(|_| rig.client("members", "TAKE phones 0\n"));
    rig.pass(12);
    assert_eq!(rig.names("Members"), [""; 0], "longer than five seconds for seven");
    rig.pass(8);
    assert_eq!(rig.names("Members"), ["held long"]);
    let waiter = rig.client("members", "TAKE phones 600\n");
    rig.pass(12);
    let on = rig.on("Members");
    assert_eq!((on[0].0, rig.line("Members").level), ("empty", Level::Critical), "{on:?}");
    assert!(on[0].1.starts_with("phones has no usable member: 0 of 2 kept out, "), "{on:?}");
    rig.world.reset(waiter);
    testers.into_iter().for_each(|client| rig.world.reset(client));
    rig.pass(70);
    rig.say(operator, "HOLD phones a 600\n");
    rig.pass(12);
    let on = rig.on("Members");
    assert_eq!(on.len(), 1, "{on:?}");
    assert!(on[0].0 == "out" && on[0].1.starts_with("phones: a held for "), "{on:?}");
    let waiters = [0; 2].map(|_| rig.client("members", "TAKE phones 600\n"));
    rig.pass(90);
    assert_eq!(rig.names("Members")[0], "empty", "the other one is held for long");
    rig.say(operator, "POOL accounts 0 2 queue=9\nADD accounts x\nADD accounts y\nHOLD accounts x 600\n");
    let others = [0; 2].map(|_| rig.client("members", "TAKE accounts 600\n"));
    rig.pass(12);
    let on = rig.on("Members");
    assert!(on.iter().any(|(name, sentence)| *name == "half out" && sentence.starts_with("accounts: 1 of 2 kept out; 1 waiting")), "{on:?}");
    others.into_iter().for_each(|client| rig.world.reset(client));
    waiters.into_iter().for_each(|client| rig.world.reset(client));
}

#[test]
fn jobs_without_a_runner_and_jobs_that_fail_are_told_of() {
    let mut rig = Rig::new();
    let producer = rig.client("jobs", "use w/mail\r\n");
    rig.say(producer, &"put 1 0 60 1\r\nx\r\n".repeat(40));
    rig.pass(65);
    assert_eq!(rig.names("Jobs"), [""; 0]);
    rig.pass(12);
    let on = rig.on("Jobs");
    assert_eq!(on.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["no runner"]);
    assert!(on[0].1.starts_with("no runner: 40 ready, the oldest for 1 min 1"), "{on:?}");
    let runner = rig.client("jobs", "watch w/mail\r\n");
    for _ in 0..20 {
        rig.say(runner, "reserve-with-timeout 0\r\n");
    }
    for id in 1..=20 {
        rig.say(runner, &format!("bury {id} 1\r\n"));
    }
    rig.pass(12);
    let names = rig.names("Jobs");
    assert!(names.contains(&"buried"), "{:?}", rig.on("Jobs"));
    rig.pass(120);
    let names = rig.names("Jobs");
    assert!(names.contains(&"unwatched") && !names.contains(&"no runner"), "{:?}", rig.on("Jobs"));
    rig.pass(500);
    assert!(rig.names("Jobs").contains(&"late"), "{:?}", rig.on("Jobs"));
}

/// Very many keys, pools and tubes cost a look no more than a step may.
#[test]
fn a_look_at_very_many_things_is_bounded() {
    let mut rig = Rig::new();
    let operator = rig.world.connect_to("members");
    let lines = |n: usize| format!("POOL p{n:05} 0 1\nADD p{n:05} a\nHOLD p{n:05} a 600\n");
    let jobs = |n: usize| format!("put-job 1 0 60 1 tube=w/t{n}\r\nx\r\n");
    let producer = rig.world.connect_to("jobs");
    let all: Vec<usize> = (0..3_000).collect();
    for some in all.chunks(500) {
        rig.say(operator, &some.iter().map(|n| lines(*n)).collect::<String>());
        rig.say(producer, &some.iter().map(|n| jobs(*n)).collect::<String>());
    }
    rig.pass(30);
    let line = rig.line("Members");
    assert_eq!((line.conditions.len(), line.conditions[0].condition.info.name), (256, "out"));
}
