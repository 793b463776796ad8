//! Conditions: each is on while its sentence is true, names the cause, and ends when it is no longer true.

use poolcounter::SERVICES;
use poolcounter_core::time::Span;
use poolcounter_jobs::options::{JobsSettings, StoreKind};
use poolcounter_members::MembersSettings;
use poolcounter_pools::PoolsSettings;
use poolcounter_service::container::AllSettings;
use poolcounter_service::health::HealthLine;
use poolcounter_service::report::Level;
use poolcounter_testkit::frames;
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

    /// Lets time pass, with a check each second.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.world.advance(Span::from_secs(1));
            self.world.tick();
        }
    }

    fn line(&self, title: &str) -> HealthLine {
        self.world.health().into_iter().find(|line| line.title == title).expect("each service has a line")
    }

    /// Returns the names of the conditions that hold, with their sentences.
    fn on(&self, title: &str) -> Vec<(&'static str, String)> {
        let held = self.line(title).conditions.into_iter().filter(|on| on.until.is_none());
        held.map(|on| (on.condition.info.name, on.condition.sentence)).collect()
    }

    /// Returns the command that helps with a condition that is on.
    fn help(&self, title: &str, place: usize) -> String {
        self.line(title).conditions.swap_remove(place).condition.command
    }

    fn names(&self, title: &str) -> Vec<&'static str> {
        self.on(title).into_iter().map(|(name, _)| name).collect()
    }

    /// Puts jobs of `w/mail`, and fails each with an attempt that buries it.
    fn fail_jobs(&mut self, jobs: usize) {
        let client = self.client("jobs", "use w/mail\r\nwatch w/mail\r\n");
        for _ in 0..jobs {
            self.world.send(client, b"put 1 0 60 1\r\nx\r\nreserve\r\n");
            self.world.settle();
            let told = String::from_utf8(self.world.take_received(client)).expect("is text");
            let id = told.split("RESERVED ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a job");
            self.say(client, &format!("fail {id} 0 0 1 bury\r\nx\r\n"));
        }
        self.world.reset(client);
        self.world.settle();
    }
}

#[test]
fn idle_daemon_is_well() {
    let mut rig = Rig::new();
    rig.pass(100);
    // A tick of the simulation lasts until the next one, so the daemon's own line says that it is busy.
    for line in rig.world.health().into_iter().filter(|line| line.title != "Daemon") {
        assert_eq!((line.level, line.conditions.len()), (Level::Ok, 0), "{}: {}", line.title, line.sentence());
    }
    assert_eq!(rig.line("Locks").sentence(), "0/s granted, 0 held, 0 waiting, nothing refused");
    assert_eq!(rig.line("Jobs").sentence(), "0 ready; 0/s put, 0/s done, 0 runners");
}

#[test]
fn lock_held_for_long_is_overdue_and_blocks() {
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
    rig.pass(2);
    let line = rig.line("Locks");
    assert!(line.level == Level::Ok && line.sentence().ends_with(" granted, 0 held, 0 waiting, nothing refused"));
    let [ended] = &line.conditions[..] else { panic!("{:?}", line.conditions) };
    assert!(ended.until.is_some() && ended.condition.command.is_empty(), "{ended:?}");
    rig.pass(70);
    assert!(rig.line("Locks").conditions.is_empty());
}

/// The next holder has done nothing wrong.
#[test]
fn quick_holder_after_a_slow_holder_is_unnamed() {
    let mut rig = Rig::new();
    let clients = [0; 2].map(|_| rig.client("pools", "ACQ4ME hot 1 9 600\n"));
    rig.pass(40);
    assert_eq!(rig.names("Locks"), ["blocked"]);
    assert!(rig.help("Locks", 0).starts_with("admin RELEASE-LOCK hot "), "{}", rig.help("Locks", 0));
    for turn in 0..5 {
        rig.say(clients[turn % 2], "RELEASE\nACQ4ME hot 1 9 600\n");
        rig.pass(8);
        assert_eq!(rig.names("Locks"), [""; 0]);
        assert!(rig.line("Locks").conditions.iter().all(|on| on.condition.command.is_empty()));
    }
}

/// All jobs of a new kind fail before the first look at them.
#[test]
fn new_types_first_failure_counts() {
    let mut rig = Rig::new();
    rig.pass(30);
    rig.fail_jobs(30);
    rig.pass(12);
    let on = rig.on("Jobs");
    let [fails, buried] = &on[..] else { panic!("{on:?}") };
    assert_eq!(*fails, ("fails", "mail: 100 % of 30 attempts failed in 5 min".into()));
    assert!(buried.1.starts_with("mail: 30 buried, 30 in the last "), "{buried:?}");
}

/// The number of ready jobs is that of the type, and the oldest job is in one tube of it.
#[test]
fn late_type_names_the_oldest_jobs_tube() {
    let mut rig = Rig::new();
    rig.client("jobs", "watch none\r\nuse a/x\r\nput 1 0 60 1\r\nx\r\n");
    rig.pass(2);
    let producer = rig.client("jobs", "use b/x\r\n");
    rig.say(producer, &"put 1 0 60 1\r\nx\r\n".repeat(6));
    rig.pass(620);
    let on = rig.on("Jobs");
    let late = &on.iter().find(|(name, _)| *name == "late").expect("it is late").1;
    assert!(late.starts_with("x: 7 ready, the oldest for 10 min ") && late.ends_with(" in a/x"), "{late}");
}

#[test]
fn returned_types_first_failure_counts() {
    let mut rig = Rig::new();
    rig.pass(3);
    rig.fail_jobs(40);
    rig.pass(12);
    let operator = rig.client("jobs", "");
    (1..=40).for_each(|id| rig.say(operator, &format!("delete {id}\r\n")));
    rig.pass(400);
    assert_eq!(rig.names("Jobs"), [""; 0]);
    rig.fail_jobs(12);
    rig.pass(12);
    let on = rig.on("Jobs");
    assert!(on.iter().any(|(_, sentence)| sentence == "mail: 100 % of 12 attempts failed in 5 min"), "{on:?}");
    assert!(on.iter().any(|(_, sentence)| sentence.starts_with("mail: 12 buried, 12 in the last ")), "{on:?}");
}

#[test]
fn worst_type_of_jobs_leads() {
    let mut rig = Rig::new();
    let client = rig.client("jobs", "");
    for (tube, jobs) in [("w/a", 11), ("w/z", 20)] {
        rig.say(client, &format!("use {tube}\r\nwatch {tube}\r\n"));
        rig.say(client, &"put 1 0 60 1\r\nx\r\nreserve\r\n".repeat(jobs));
    }
    (1..=8).for_each(|id| rig.say(client, &format!("delete {id}\r\n")));
    (9..=11).for_each(|id| rig.say(client, &format!("fail {id} 0 600 1\r\nx\r\n")));
    (12..=31).for_each(|id| rig.say(client, &format!("fail {id} 0 600 1\r\nx\r\n")));
    rig.pass(12);
    let shares: Vec<String> = rig.on("Jobs").into_iter().map(|(_, sentence)| sentence).collect();
    assert_eq!(
        shares,
        ["z: 100 % of 20 attempts failed in 5 min", "a: 27 % of 11 attempts failed in 5 min"],
        "the larger share first"
    );
}

#[test]
fn members_kept_out_are_told_once() {
    let mut rig = Rig::new();
    rig.client("members", "POOL acc 0 3 queue=9\nADD acc a\nADD acc b\nADD acc c\nHOLD acc a 600\n");
    rig.pass(5);
    let operator = rig.client("members", "HOLD acc b 600\n");
    rig.pass(12);
    let on = rig.on("Members");
    assert!(on.len() == 1 && on[0].1.starts_with("acc: a held for ") && on[0].1.ends_with(", and 1 more"), "{on:?}");
    rig.say(operator, "HOLD acc c 600\n");
    rig.client("members", "TAKE acc 600\n");
    rig.pass(12);
    assert_eq!(rig.names("Members"), ["empty"]);
}

#[test]
fn key_that_refuses_is_named() {
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
    assert_eq!(rig.names("Locks")[0], "refuses");
    refuse(&mut rig, 20);
    assert_eq!(rig.names("Locks")[0], "floods");
    assert!(rig.on("Locks")[0].1.starts_with("hot refuses "), "{:?}", rig.on("Locks"));
    for _ in 0..100 {
        rig.say(client, &"ACQ4ME hot 1 1 0\n".repeat(20));
        rig.pass(1);
        assert_eq!(rig.names("Locks")[0], "floods", "at the end of a minute, too");
    }
    rig.pass(15);
    assert_eq!(rig.names("Locks"), ["overdue"], "it refuses nothing any more");
    assert_eq!(rig.line("Locks").conditions[0].condition.link, "/pools/key/hot");
}

#[test]
fn counters_that_refuse_are_named() {
    let mut rig = Rig::new();
    let client = rig.world.connect_to("counters");
    let names: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];
    let ask = |rig: &mut Rig, names: &[&[u8]]| {
        names.iter().for_each(|name| {
            rig.world.ask(client, &frames::acquire(1, 1, name));
        });
    };
    ask(&mut rig, &names);
    for (refused, told) in [(&names[..2], "for a, b"), (&names, "for a, b, c and more")] {
        ask(&mut rig, refused);
        rig.pass(12);
        let on = rig.on("Counters");
        assert!(on.len() == 1 && on[0].1.ends_with(told), "{on:?}");
        assert_eq!(rig.help("Counters", 0), "counter get a");
    }
    rig.pass(70);
    ask(&mut rig, &[b"e", b"e"]);
    rig.pass(12);
    assert!(rig.on("Counters")[0].1.ends_with("for e"), "{:?}", rig.on("Counters"));
}

#[test]
fn refusals_of_counters_keep_their_names() {
    let mut rig = Rig::new();
    let client = rig.world.connect_to("counters");
    rig.world.ask(client, &frames::acquire(1, 1, b"film"));
    for second in 0..80 {
        if second < 8 {
            rig.world.ask(client, &frames::acquire(1, 1, b"film"));
        }
        rig.pass(1);
        for on in rig.line("Counters").conditions {
            assert!(on.condition.sentence.ends_with("for film"), "after {second} s: {}", on.condition.sentence);
        }
    }
    assert!(rig.line("Counters").conditions[0].until.is_some(), "{:?}", rig.on("Counters"));
}

#[test]
fn members_out_or_held_long_are_reported() {
    let mut rig = Rig::new();
    let operator =
        rig.client("members", "POOL phones 0 2 warn_hold=5 queue=9 on_loss=ok\nADD phones a\nADD phones b\n");
    let testers = [0; 2].map(|_| rig.client("members", "TAKE phones 0\n"));
    rig.pass(9);
    assert_eq!(rig.names("Members"), [""; 0], "longer than five seconds for four");
    rig.pass(8);
    assert_eq!(rig.names("Members"), ["held long"]);
    assert_eq!(rig.help("Members", 0), "members takeback phones --member a");
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
    assert_eq!(rig.help("Members", 0), "members free phones a");
    let waiters = [0; 2].map(|_| rig.client("members", "TAKE phones 600\n"));
    rig.pass(90);
    assert_eq!(rig.names("Members")[0], "empty", "the other one is held for long");
    rig.say(operator, "POOL accounts 0 2 queue=9\nADD accounts x\nADD accounts y\nHOLD accounts x 600\n");
    let others = [0; 2].map(|_| rig.client("members", "TAKE accounts 600\n"));
    rig.pass(12);
    let on = rig.on("Members");
    let is_half_out = |(name, sentence): &(&str, String)| {
        *name == "half out" && sentence.starts_with("accounts: 1 of 2 kept out; 1 waiting")
    };
    assert!(on.iter().any(is_half_out), "{on:?}");
    others.into_iter().for_each(|client| rig.world.reset(client));
    waiters.into_iter().for_each(|client| rig.world.reset(client));
}

#[test]
fn a_pool_that_is_being_removed_is_reported() {
    let mut rig = Rig::new();
    let operator = rig.client("members", "POOL acc 0 1 on_loss=ok\nADD acc us\n");
    let taker = rig.client("members", "TAKE acc 0\n");
    rig.say(operator, "RMPOOL acc GRACEFUL\n");
    rig.pass(80);
    let on = rig.on("Members");
    let start = "acc is being removed: 1 still in use, ";
    assert!(on.len() == 1 && on[0].0 == "leaving" && on[0].1.starts_with(start), "{on:?}");
    rig.world.reset(taker);
}

#[test]
fn failing_starts_are_reported() {
    let mut rig = Rig::new();
    rig.client("members", "POOL browsers 1 3 queue=9\n");
    let provider = rig.client("members", "PROVIDE browsers 3\n");
    rig.client("members", "TAKE browsers 600\n");
    // The first backoffs last for 1, 2, 4 and 8 s, with a quarter of jitter.
    for (start, backoff) in [(1, 2), (2, 3), (3, 5), (4, 10), (5, 12)] {
        rig.say(provider, &format!("FAILED {start} Cannot connect\n"));
        rig.pass(backoff);
    }
    let on = rig.on("Members");
    let [(first, sentence), (second, _)] = &on[..] else { panic!("{on:?}") };
    assert_eq!([*first, *second], ["no start", "start failed"]);
    let start = "browsers cannot start members: the last start failed at client:1: Cannot connect; 1 waiting, ";
    assert!(sentence.starts_with(start), "{on:?}");
}

#[test]
fn jobs_failing_or_without_runner_are_reported() {
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

#[test]
fn long_pauses_are_reported() {
    let mut rig = Rig::new();
    rig.client("jobs", "pause-all */mail 3600\r\npause-all */links 7200\r\n");
    rig.pass(15);
    let on = rig.on("Jobs");
    assert_eq!(on[0].0, "paused");
    assert!(on.len() == 1 && on[0].1.starts_with("*/links is paused for another 1 h"), "{on:?}");
    assert_eq!(rig.help("Jobs", 0), "jobs pause '*/links' 0");
}

/// No job of the tube is ready any more: the command names the tube, not its last part.
#[test]
fn command_about_failing_jobs_names_a_tube() {
    let mut rig = Rig::new();
    let producer = rig.client("jobs", "use w/mail\r\n");
    rig.say(producer, &"put 1 0 60 1\r\nx\r\n".repeat(12));
    let runner = rig.client("jobs", "watch w/mail\r\n");
    rig.pass(2);
    (1..=12).for_each(|id| rig.say(runner, &format!("reserve\r\nfail {id} 0 0 1 bury\r\nx\r\n")));
    rig.pass(15);
    let place = rig.names("Jobs").iter().position(|name| *name == "fails");
    assert_eq!(
        place.map(|place| rig.help("Jobs", place)),
        Some("jobs list w/mail --error".into()),
        "{:?}",
        rig.on("Jobs")
    );
}

/// A check of very many keys, pools and tubes costs no more than a step may.
#[test]
fn look_at_very_many_things_is_bounded() {
    let mut rig = Rig::new();
    let operator = rig.world.connect_to("members");
    let lines = |n: usize| format!("POOL p{n:05} 0 1\nADD p{n:05} m{n}\nHOLD p{n:05} m{n} 600\n");
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
