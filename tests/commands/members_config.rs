//! Pools of members in the configuration file: read at the start and at an upgrade, in virtual time and by the program.

use nix::sys::signal::Signal;
use poolcounter_core::time::Span;
use poolcounter_counters::CountersSettings;
use poolcounter_members::MembersSettings;
use poolcounter_members::state::{Attributes, DeclaredMember, DeclaredPool, Request, Settings};
use poolcounter_protocol::members::wire::{Line, parse};
use poolcounter_service::container::AllSettings;
use poolcounter_testkit::daemon::{Client, Daemon};
use poolcounter_testkit::running::{Ended, run};
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::world::World;
use std::fs;
use std::process::{Command, Stdio};

/// Returns a pool as a line of the protocol declares it, with fixed members: names, some with one attribute behind a
/// slash.
fn pool(line: &str, fixed: &[&str]) -> DeclaredPool {
    let Ok(Line::Request(Request::Pool { name, changes })) = parse(line.as_bytes()) else {
        panic!("{line} declares no pool");
    };
    let member = |text: &&str| {
        let (name, attribute) = text.split_once('/').unwrap_or((text, ""));
        let pair = |pair: (&str, &str)| (pair.0.as_bytes().into(), pair.1.as_bytes().into());
        let attributes: Attributes = attribute.split_once('=').map(pair).into_iter().collect();
        DeclaredMember { name: name.as_bytes().into(), attributes }
    };
    let settings = Settings::default().with(&changes).expect("they do not contradict each other");
    DeclaredPool { name: name.into(), settings, fixed: fixed.iter().map(member).collect() }
}

fn settings(pools: Vec<DeclaredPool>) -> AllSettings {
    let members = MembersSettings { admin: Some(true), pools, ..MembersSettings::default() };
    let counters = CountersSettings { buckets: 16, ..CountersSettings::default() };
    AllSettings::defaults(poolcounter::SERVICES).with(members).with(counters)
}

/// Sends lines, and returns the output to the client by the end.
fn say(world: &mut World, client: usize, lines: &str) -> String {
    world.send(client, format!("{lines}\n").as_bytes());
    world.settle();
    String::from_utf8(world.take_received(client)).expect("the names are text").trim_end().replace('\n', " | ")
}

/// Returns the names and states of a pool's members.
fn members(world: &mut World, client: usize, pool: &str) -> String {
    let said = say(world, client, &format!("MEMBERS {pool}"));
    let two = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    said.split(" | ").map(two).collect::<Vec<_>>().join(", ")
}

fn reload(world: &mut World, pools: Vec<DeclaredPool>) {
    world.set(settings(pools));
    world.upgrade();
    world.settle();
}

#[test]
fn pools_of_the_file_are_there_from_the_start() {
    let mut world = World::with(settings(vec![
        pool("POOL phones 0 5 queue=3", &["phone-1", "phone-2/os=android"]),
        pool("POOL db 1 2 cull_interval=1", &[]),
    ]));
    let client = world.connect_to("members");
    assert_eq!(members(&mut world, client, "phones"), "phone-1 free, phone-2 free");
    assert_eq!(say(&mut world, client, "POOL phones 0 5 queue=3"), "OK");
    assert!(say(&mut world, client, "TAKE phones os=android").contains(" phones phone-2 os=android"));
    // They behave like any other pools.
    assert_eq!(say(&mut world, client, "PROVIDE db"), "OK | !START db 1");
    assert_eq!(say(&mut world, client, "DEL phones phone-1"), "OK");
    world.finish(client);
    world.settle();
    assert!(world.is_empty());
}

#[test]
fn a_reload_changes_adds_and_removes_pools_of_the_file() {
    let both = || vec![pool("POOL a 0 4", &["f1", "f2", "f3/x=1"]), pool("POOL b 0 4", &["g1"])];
    let mut world = World::with(settings(both()));
    let client = world.connect_to("members");
    assert_eq!(say(&mut world, client, "POOL own 0 1"), "OK");
    assert_eq!(say(&mut world, client, "ADD own o1"), "OK");
    assert_eq!(say(&mut world, client, "ADD a f9"), "OK");
    assert!(say(&mut world, client, "TAKE a member=f1").starts_with("MEMBER "));
    assert!(say(&mut world, client, "TAKE b").starts_with("MEMBER "));
    reload(&mut world, both());
    assert_eq!(world.take_received(client), b"", "nothing differs");
    assert_eq!(members(&mut world, client, "a"), "f1 in_use, f2 free, f3 free, f9 free");

    // f2 is removed, and so is f1, which is in use; f3 has another attribute, and f4 is new.
    reload(&mut world, vec![pool("POOL a 0 5 queue=1", &["f3/x=2", "f4"])]);
    assert_eq!(members(&mut world, client, "a"), "f1 in_use, f3 free, f4 free, f9 free");
    assert_eq!(say(&mut world, client, "POOL a 0 5 queue=1"), "OK");
    assert!(say(&mut world, client, "TAKE a x=2").contains(" a f3 x=2"));
    assert_eq!(say(&mut world, client, "TAKE b"), "NO_MEMBERS removed");
    assert_eq!(
        say(&mut world, client, "POOL b 0 4"),
        "ERROR POOL_DIFFERS the pool has other settings, which RECONFIGURE changes, or it is being removed"
    );
    assert_eq!(members(&mut world, client, "own"), "o1 free", "the file never had it");

    // Removed members leave when they are returned.
    let leases: Vec<u64> = {
        let said = say(&mut world, client, "TAKE own");
        let number: u64 = said.split(' ').nth(1).expect("a lease").parse().expect("a number");
        (number - 3..number).collect()
    };
    assert_eq!(say(&mut world, client, &format!("RETURN {}", leases[0])), "RETURNED");
    assert_eq!(members(&mut world, client, "a"), "f3 in_use, f4 free, f9 free");
    assert_eq!(say(&mut world, client, &format!("RETURN {}", leases[1])), "RETURNED");
    assert_eq!(say(&mut world, client, "TAKE b"), "ERROR NO_POOL");
    world.finish(client);
    world.settle();
    assert!(world.is_empty());
}

#[test]
fn the_file_overrides_changes_of_operators() {
    let file = || vec![pool("POOL a 0 4 group=g", &["f1", "f2"])];
    let mut world = World::with(settings(file()));
    let client = world.connect_to("members");
    assert_eq!(say(&mut world, client, "RECONFIGURE a max=9 group=h"), "OK");
    assert_eq!(say(&mut world, client, "DEL a f2"), "OK");
    reload(&mut world, file());
    assert_eq!(
        say(&mut world, client, "POOLS"),
        "a g max 4 in_use 0 free 2 starting 0 stopping 0 cleaning 0 quarantined 0 queued 0 queue_max 1000"
    );
    // A pool that is being removed continues, with its leaving members.
    assert!(say(&mut world, client, "TAKE a member=f1").starts_with("MEMBER "));
    assert_eq!(say(&mut world, client, "DEL a f1"), "OK");
    assert_eq!(say(&mut world, client, "RMPOOL a GRACEFUL"), "OK");
    assert_eq!(say(&mut world, client, "TAKE a"), "NO_MEMBERS removed");
    reload(&mut world, file());
    assert_eq!(members(&mut world, client, "a"), "f1 in_use, f2 free");
    assert!(say(&mut world, client, "TAKEGROUP g").starts_with("MEMBER "));
    assert!(say(&mut world, client, "RMPOOL a").starts_with("OK | !LOST "));
    reload(&mut world, file());
    assert_eq!(members(&mut world, client, "a"), "f1 free, f2 free");
    world.finish(client);
    world.settle();
    assert!(world.is_empty());
}

/// A fixed member that its pool cannot have is added as soon as it can.
#[test]
fn refused_fixed_members_are_tried_again_each_second() {
    let file = |fixed: &[&str]| vec![pool("POOL a 0 2", fixed)];
    let mut world = World::with(settings(file(&[])));
    let client = world.connect_to("members");
    assert_eq!(say(&mut world, client, "PROVIDE a\nOFFER a m3\nOFFER a m4"), "OK | OK | OK");
    reload(&mut world, file(&["m1", "m2"]));
    assert_eq!(members(&mut world, client, "a"), "m3 free, m4 free", "a pool has fixed members or providers");
    world.finish(client);
    world.advance(Span::from_secs(17));
    let client = world.connect_to("members");
    assert_eq!(members(&mut world, client, "a"), "m1 free, m2 free");
    // The pool has another name now, and a member is in use.
    let taken = say(&mut world, client, "TAKE a member=m1");
    let lease = taken.split(' ').nth(1).expect("it has a lease").to_string();
    reload(&mut world, vec![pool("POOL b 0 2", &["m1", "m2"])]);
    assert_eq!(members(&mut world, client, "b"), "m2 free");
    assert_eq!(say(&mut world, client, "ADD b m1"), "ERROR MEMBER_EXISTS");
    world.upgrade();
    world.advance(Span::from_secs(5));
    assert_eq!(members(&mut world, client, "b"), "m2 free");
    assert_eq!(say(&mut world, client, &format!("RETURN {lease}")), "RETURNED");
    world.advance(Span::from_millis(1_100));
    assert_eq!(members(&mut world, client, "b"), "m1 free, m2 free");
    world.finish(client);
    world.settle();
    world.advance(Span::from_secs(1));
    assert!(world.is_empty());
}

/// Returns the settings of a daemon with these pools, with the members at a free port.
fn text_with(pools: &str) -> String {
    format!("listen = '127.0.0.1:0'\nmembers.enable = true\nmembers.listen = '127.0.0.1:0'\n{pools}")
}

#[test]
fn the_program_reads_pools_from_its_file() {
    let scratch = Scratch::new();
    let path = scratch.file("conf");
    let first = "[[members.pool]]\nname = 'phones'\nmax = 5\nqueue = 1_0\nfixed = ['phone-1', { name = 'phone-2', os = 'android' }]\n";
    fs::write(&path, text_with(first)).expect("can be written");
    let mut daemon = Daemon::run(Command::new(Daemon::program()).arg("--config").arg(&path).stdin(Stdio::null()));
    let mut client = Client::to(daemon.members());
    assert_eq!(client.ask("POOL phones 0 5 queue=10"), "OK");
    let taken = client.ask("TAKE phones os=android");
    assert!(taken.ends_with(" phones phone-2 os=android"), "{taken}");

    // The rehearsal finds the fault, with its place, and everything stays as it was.
    fs::write(&path, text_with("[[members.pool]]\nname = 'phones'\nmax = 5\nfixed = ['phone-1']\n\n[[members.pool]]\nname = 'x'\nmax = 1\nqueue = 'long'\n"))
        .expect("can be written");
    daemon.signal(Signal::SIGUSR1);
    let line = daemon.wait_for_log("no upgrade: ");
    assert!(line.contains("conf:12: members.pool: queue: \"long\" is not a number"), "{line}");
    assert_eq!(client.ask("POOL phones 0 5 queue=10"), "OK");

    fs::write(&path, text_with("[[members.pool]]\nname = 'phones'\nmax = 4\nfixed = ['phone-1']\n"))
        .expect("can be written");
    daemon.upgrade();
    assert_eq!(client.ask("POOL phones 0 4"), "OK");
    let lease = taken.split(' ').nth(1).expect("a lease");
    assert_eq!(client.ask(&format!("RETURN {lease}")), "RETURNED");
    assert_eq!(client.ask("TAKE phones member=phone-2"), "ERROR NO_SUCH_MEMBER");
    fs::write(&path, text_with("")).expect("can be written");
    daemon.upgrade();
    assert_eq!(client.ask("TAKE phones"), "ERROR NO_POOL");
}

/// A wrong file prevents the start.
#[test]
fn faults_in_the_file_are_named_before_anything_starts() {
    let scratch = Scratch::new();
    let path = scratch.file("conf").display().to_string();
    for (text, said) in [
        ("[[members.pool]]\nname = 'a'\n", "conf:4: members.pool: max is required"),
        ("[members.pool]\nname = 'a'\nmax = 1\n", "members.pool: this is not a list of tables"),
        (
            "[[members.pool]]\nname = 'a'\nmax = 1\ncolour = 'red'\n",
            "conf:7: members.pool: colour: there is no such setting",
        ),
        (
            "[[members.pool]]\nname = 'a'\nmax = 2\nfixed = [\n'x',\n'x']\n",
            "conf:9: members.pool: fixed: there are two members called x, the first in line 8",
        ),
        ("[[members.pool]]\nname = 'a'\nmax = 'many'\n", "conf:6: members.pool: max: \"many\" is not a number"),
        ("[[members.pool]]\nname = ''\nmax = 1\n", "conf:5: members.pool: name: a name is empty"),
        (
            "[[members.pool]]\nname = 'a'\nmax = 1\nmax_lifetime = 'x'\nlifetime_jitter = 5\n",
            "conf:7: members.pool: max_lifetime: \"x\" is not a number of seconds",
        ),
        (
            "[[members.pool]]\nname = 'a'\nmax = 1\nfixed = [{ name = 'x', os = '' }]\n",
            "conf:7: members.pool: fixed: attribute \"os\": a value has 1 to 255 bytes, without spaces and ends of lines",
        ),
        (
            "[[members.pool]]\nname = 'a'\nmax = 1\nfixed = ['x']\n[[members.pool]]\nname = 'b'\nmax = 1\nfixed = ['x']\n",
            "conf:11: members.pool: fixed: there are two members called x, the first in line 7",
        ),
        (
            "members.max = 1\n[[members.pool]]\nname = 'a'\nmax = 2\nfixed = ['x', 'y']\n",
            "there are 2 fixed members, and members.max is 1",
        ),
    ] {
        fs::write(&path, text_with(text)).expect("can be written");
        let Ended { status, stderr: told, .. } = run(&["--config", &path]);
        assert_eq!((status, told.lines().count()), (Some(1), 1), "{text}: {told}");
        assert!(told.contains(said), "{told:?} does not tell {said:?}");
    }
}
