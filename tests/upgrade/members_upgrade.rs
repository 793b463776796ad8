//! Upgrades of the real program while members are started, stopped, checked, cleaned, waited for, leased and in
//! quarantine: another process takes over after each step.

use crate::upgrade_release::longest_wait;
use poolcounter_testkit::daemon::{Client, Daemon, PATIENCE};
use poolcounter_testkit::random::setting;
use poolcounter_testkit::running::Over;
use poolcounter_testkit::scratch::Scratch;
use std::fs;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

/// Daemon that is replaced after each step.
struct Upgraded {
    daemon: Daemon,
    upgrades: u32,
}

impl Upgraded {
    fn start() -> Upgraded {
        Upgraded { daemon: Daemon::start_with_members(&[]), upgrades: 0 }
    }

    fn connect(&self) -> Client {
        Client::to(self.daemon.members())
    }

    fn upgrade(&mut self) {
        self.daemon.upgrade();
        self.upgrades += 1;
    }

    /// Sends a request, expects this reply, and upgrades.
    fn step(&mut self, client: &mut Client, request: &str, wanted: &str) {
        assert_eq!(client.ask(request), wanted, "{request}");
        self.upgrade();
    }

    /// Sends a request that will be answered later, and upgrades.
    fn step_wait(&mut self, client: &mut Client, request: &str, observer: &mut Client, queued: &str) {
        client.send(format!("{request}\n").as_bytes());
        // Requests of one connection do not wait for those of another.
        until("it waits", || observer.ask("UTILIZATION s").contains(queued));
        self.upgrade();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} does not come true");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the number behind `MEMBER`, `!START s` or another word.
fn number_behind(line: &str, words: &str) -> u64 {
    let rest = line.strip_prefix(words).unwrap_or_else(|| panic!("{line:?} is not {words:?}"));
    rest.trim_start().split(' ').next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{line:?}"))
}

fn lease_of(line: &str) -> u64 {
    number_behind(line, "MEMBER ")
}

/// Returns the members of a pool with their states and holders: `a free - b in_use me`.
fn list(client: &mut Client, pool: &str) -> String {
    client.send(format!("MEMBERS {pool}\n").as_bytes());
    let mut rows = Vec::new();
    loop {
        let line = client.line();
        if line.is_empty() {
            return rows.join(" ");
        }
        rows.extend(line.split(' ').take(3).map(String::from));
    }
}

/// A pool whose members are started: starts that are under way, fail and wait for their backoff, checks before a take,
/// cleanings by a cleaner, stops, and leases that outlive their connections.
#[test]
fn work_of_providers_and_cleaners_continues() {
    let mut at = Upgraded::start();
    let (mut operator, mut provider, mut cleaner) = (at.connect(), at.connect(), at.connect());
    let pool =
        "POOL s 1 2 check_on_take=0.001 check_timeout=60 clean_timeout=60 stop_timeout=60 start_timeout=60 on_loss=ok";
    at.step(&mut operator, pool, "OK");
    at.step(&mut provider, "PROVIDE s 2", "OK");
    let first = number_behind(&provider.line(), "!START s ");
    at.upgrade();
    at.step(&mut provider, &format!("STARTED {first} m1 url=x"), "OK");
    at.step(&mut cleaner, "CLEAN s", "OK");
    assert_eq!(list(&mut operator, "s"), "m1 free -");

    // The member has been idle, so it is checked before it is handed out.
    let mut a = at.connect();
    at.step(&mut a, "IDENTIFY job-a", "OK");
    a.send(b"TAKE s 600\n");
    assert_eq!(provider.line(), "!CHECK s m1");
    at.upgrade();
    assert_eq!(list(&mut operator, "s"), "m1 checking -");
    at.step(&mut provider, "ALIVE m1", "OK");
    let taken = a.line();
    let lease_a = lease_of(&taken);
    assert_eq!(taken, format!("MEMBER {lease_a} s m1 url=x"));
    assert_eq!(list(&mut operator, "s"), "m1 in_use job-a");

    // A waiter causes one start, which fails, and one more after its backoff.
    let mut b = at.connect();
    at.step_wait(&mut b, "TAKE s 600", &mut operator, " queued 1 ");
    let second = number_behind(&provider.line(), "!START s ");
    at.step(&mut provider, &format!("FAILED {second} no room"), "OK");
    at.upgrade();
    let third = number_behind(&provider.line(), "!START s ");
    assert!(third > second);
    at.upgrade();
    at.step(&mut provider, &format!("STARTED {second} m9"), "ERROR TOO_LATE");
    assert_eq!(provider.line(), "!STOP s m9");
    at.step(&mut provider, &format!("STARTED {third} m2"), "OK");
    let lease_b = lease_of(&b.line());
    assert!(lease_b > lease_a);

    // One member is returned and cleaned, the other has failed and is stopped.
    at.step(&mut b, &format!("RETURN {lease_b}"), "RETURNED");
    assert_eq!(cleaner.line(), "!CLEAN s m2");
    at.upgrade();
    assert_eq!(list(&mut operator, "s"), "m1 in_use job-a m2 cleaning -");
    at.step(&mut cleaner, "CLEANED m2", "OK");
    at.step(&mut a, &format!("RETURN {lease_a} FAIL"), "RETURNED");
    assert_eq!(provider.line(), "!STOP s m1");
    at.upgrade();
    assert_eq!(list(&mut operator, "s"), "m1 stopping - m2 free -");
    at.step(&mut provider, "STOPPED m1", "OK");
    // The stopped member is replaced by exactly one.
    let fourth = number_behind(&provider.line(), "!START s ");
    at.step(&mut provider, &format!("STARTED {fourth} m3"), "OK");

    // A lease outlives its connection and many upgrades.
    let mut c = at.connect();
    c.send(b"TAKE s 600 member=m2 lease=600\n");
    assert_eq!(provider.line(), "!CHECK s m2");
    at.step(&mut provider, "ALIVE m2", "OK");
    let taken = c.line();
    let (lease_c, token) = (lease_of(&taken), taken.rsplit("token=").next().expect("it has one").to_string());
    assert!(lease_c > lease_b);
    drop(c);
    at.upgrade();
    assert!(list(&mut operator, "s").contains("m2 in_use "));
    at.step(&mut b, &format!("RENEW {token} 300"), "RENEWED");
    at.step(&mut b, &format!("RETURN {token}"), "RETURNED");
    at.step(&mut b, &format!("RETURN {token}"), "NOT_TAKEN");
    // The cleaner is lost during the cleaning: the provider goes on with it.
    assert_eq!(cleaner.line(), "!CLEAN s m2");
    at.upgrade();
    drop(cleaner);
    while provider.ask("CLEANING m2") != "OK" {
        thread::sleep(Duration::from_millis(10));
    }
    at.step(&mut provider, "DEAD m2", "OK");
    let fifth = number_behind(&provider.line(), "!START s ");
    at.step(&mut operator, "RMPOOL s", "OK");
    assert_eq!(provider.line(), "!STOP s m3");
    at.step(&mut provider, "STOPPED m3", "OK");
    at.step(&mut provider, &format!("STARTED {fifth} m4"), "ERROR TOO_LATE");
    assert_eq!(provider.line(), "!STOP s m4");
    at.step(&mut provider, "STOPPED m4", "OK");
    assert_eq!(operator.ask("POOLS"), "");
    println!("{} upgrades", at.upgrades);
}

/// A pool of fixed members: waits for one, for several and for a group, by priority; a hold of an operator; quarantine;
/// half a line.
#[test]
fn waits_and_what_is_kept_out_go_on() {
    let mut at = Upgraded::start();
    let mut operator = at.connect();
    at.step(&mut operator, "POOL s 0 3 group=g on_loss=ok loss_delay=1.5 per_client=2", "OK");
    for (name, system) in [("a", "x"), ("b", "x"), ("c", "y")] {
        at.step(&mut operator, &format!("ADD s {name} os={system}"), "OK");
    }
    let mut holder = at.connect();
    holder.send(b"TAKE s 0 os=x n=2\n");
    assert_eq!(holder.line(), "MEMBERS 2");
    let leases = [holder.line(), holder.line()].map(|line| lease_of(&line));
    at.step(&mut holder, "TAKE s", "LIMIT");
    at.step(&mut operator, "HOLD s c 600 its battery is low", "OK");
    at.step(&mut operator, "TAKE s", "NO_MEMBERS at_capacity");
    assert_eq!(list(&mut operator, "s").matches("held").count(), 1);

    // The waiters are served in another order than that of their requests.
    let (mut two, mut late, mut group, mut urgent) = (at.connect(), at.connect(), at.connect(), at.connect());
    at.step_wait(&mut two, "TAKE s 600 n=2", &mut operator, " queued 1 ");
    at.step_wait(&mut group, "TAKEGROUP g 600", &mut operator, " queued 2 ");
    at.step_wait(&mut urgent, "TAKE s 600 pri=0 lease=60", &mut operator, " queued 3 ");
    let begun = Instant::now();
    at.step_wait(&mut late, "TAKE s 3", &mut operator, " queued 4 ");
    urgent.send(b"CANC");
    at.step(&mut holder, &format!("RETURN {}", leases[0]), "RETURNED");
    let taken = urgent.line();
    assert!(taken.contains(" token="), "{taken}");
    urgent.send(b"EL\n");
    assert_eq!(urgent.line(), "ERROR NOT_WAITING", "half a line was kept");
    // The next in line wants two, and reserves free members.
    at.step(&mut operator, "FREE s c", "OK");
    assert_eq!(list(&mut operator, "s").matches("free").count(), 1);
    at.step(&mut operator, "TAKE s", "NO_MEMBERS at_capacity");
    assert_eq!(late.line(), "NO_MEMBERS timeout");
    assert!(begun.elapsed() >= Duration::from_secs(3), "it ended early");
    // The members of the lost holder are delayed for a while.
    let begun = Instant::now();
    drop(holder);
    until("the loss", || list(&mut operator, "s").contains("delayed"));
    at.upgrade();
    assert_eq!(two.line(), "MEMBERS 2");
    assert!(begun.elapsed() >= Duration::from_millis(1_500), "the delay ended early");
    let leases = [two.line(), two.line()].map(|line| lease_of(&line));
    at.step(&mut two, &format!("RETURN {} FAIL", leases[0]), "RETURNED");
    assert_eq!(list(&mut operator, "s").matches("quarantined").count(), 1);
    at.step(&mut two, &format!("RETURN {}", leases[1]), "RETURNED");
    let last = lease_of(&group.line());
    at.step(&mut operator, &format!("TAKEBACK {last}"), "OK");
    assert!(group.line().starts_with(&format!("!LOST {last} taken_back by=")));
    assert!(last > leases[1]);
}

/// Times that run over an upgrade end neither early nor late: a lease, a hold, the grace of a provider, repairs.
#[test]
fn times_run_on() {
    let mut at = Upgraded::start();
    let (mut operator, mut holder, mut leasing) = (at.connect(), at.connect(), at.connect());
    let begun = Instant::now();
    at.step(&mut operator, "POOL s 0 2 max_hold=2 repair_after=1", "OK");
    at.step(&mut operator, "ADD s a", "OK");
    at.step(&mut operator, "ADD s b", "OK");
    let lease = lease_of(&holder.ask("TAKE s 0 member=a"));
    let leased = lease_of(&leasing.ask("TAKE s 0 member=b lease=1.5"));
    at.upgrade();
    let mut provider = at.connect();
    at.step(&mut operator, "POOL t 0 2 provider_grace=60", "OK");
    at.step(&mut provider, "PROVIDE t", "OK");
    at.step(&mut provider, "OFFER t m url=1", "OK");
    at.step(&mut provider, "OFFER t n", "OK");
    let kept = lease_of(&operator.ask("TAKE t 0 member=n"));
    drop(provider);
    until("the grace", || list(&mut operator, "t").contains("orphaned"));
    at.upgrade();
    assert_eq!(leasing.line(), format!("!LOST {leased} expired"));
    assert!(begun.elapsed() >= Duration::from_millis(1_500), "it ran out early");
    assert_eq!(holder.line(), format!("!LOST {lease} held_too_long"));
    assert!(begun.elapsed() >= Duration::from_secs(2), "it was taken back early");
    at.upgrade();
    until("both are repaired", || list(&mut operator, "s") == "a free - b free -");
    assert!(begun.elapsed() >= Duration::from_secs(3), "it was repaired early");
    // Another provider of the pool adopts the remaining members of the first.
    let mut provider = at.connect();
    at.step(&mut provider, "PROVIDE t", "OK");
    at.step(&mut provider, "OFFER t m", "OK");
    at.step(&mut provider, "OFFER t n", "OK");
    assert_eq!(operator.ask(&format!("RETURN {kept}")), "RETURNED");
    assert_eq!(list(&mut operator, "t"), "m free - n free -");
    at.step(&mut operator, "TAKE t 0 url=1", &format!("MEMBER {} t m url=1", kept + 1));
}

/// Limits that shrink at an upgrade affect new requests only.
#[test]
fn limits_may_shrink() {
    let scratch = Scratch::new();
    let path = scratch.file("conf");
    fs::write(&path, "").expect("can be written");
    let mut daemon = Daemon::start_with_members(&["--config", &path.display().to_string()]);
    let connect = |daemon: &Daemon| Client::to(daemon.members());
    let (mut operator, mut holder, mut waiter) = (connect(&daemon), connect(&daemon), connect(&daemon));
    assert_eq!(operator.ask("POOL s 0 4"), "OK");
    for name in ["a", "b", "c"] {
        assert_eq!(operator.ask(&format!("ADD s {name}")), "OK");
    }
    holder.send(b"TAKE s 0 n=3\n");
    assert_eq!(holder.line(), "MEMBERS 3");
    let leases = [holder.line(), holder.line(), holder.line()].map(|line| lease_of(&line));
    waiter.send(b"TAKE s 600\n");
    until("it waits", || operator.ask("UTILIZATION s").contains(" queued 1 "));

    fs::write(&path, "members.max = 2\nmembers.max_connections = 1\nmembers.admin = false\n").expect("can be written");
    daemon.upgrade();
    assert_eq!(operator.ask("ADD s d"), "ERROR NOT_ADMIN");
    assert_eq!(operator.ask("TAKE s 600"), "ERROR TOO_MANY");
    assert_eq!(operator.ask("TAKE s"), "NO_MEMBERS at_capacity");
    assert_eq!(connect(&daemon).rest(), "", "those who are connected stay, and no more are let in");
    assert_eq!(holder.ask(&format!("RETURN {}", leases[0])), "RETURNED");
    let lease = lease_of(&waiter.line());
    assert!(lease > leases[2]);
    assert_eq!(waiter.ask(&format!("RETURN {lease}")), "RETURNED");
    assert_eq!(list(&mut operator, "s").matches("free").count(), 1);

    // After the limits are raised, the old state is unchanged.
    fs::write(&path, "").expect("can be written");
    daemon.upgrade();
    assert_eq!(operator.ask("ADD s d"), "OK");
    assert_eq!(list(&mut operator, "s").matches("in_use").count(), 2);
    assert_eq!(holder.ask(&format!("RETURN {}", leases[1])), "RETURNED");
    assert_eq!(holder.ask(&format!("RETURN {}", leases[2])), "RETURNED");
    assert_eq!(list(&mut connect(&daemon), "s").matches("free").count(), 4);
}

/// Prints the longest wait of a client of the pools and of one of the members, over an upgrade with many members of a
/// provider, and until the first member is given out. `MEMBERS` is their number.
#[test]
#[ignore = "it measures: cargo test --release --test upgrade a_million_members -- --ignored --nocapture"]
fn a_million_members_are_handed_over() {
    let many = setting("MEMBERS", 1_000_000) as usize;
    let most = (many + 10).to_string();
    let mut daemon = Daemon::start_with_members(&["--members-max", &most]);
    let (mut operator, mut provider) = (Client::to(daemon.members()), Client::to(daemon.members()));
    assert_eq!(operator.ask(&format!("POOL p 0 {many} cull_interval=0")), "OK");
    assert_eq!(provider.ask("PROVIDE p"), "OK");
    for first in (0..many).step_by(1000) {
        let offers = first..many.min(first + 1000);
        let lines: String = offers.clone().map(|n| format!("OFFER p member-{n}\n")).collect();
        provider.send(lines.as_bytes());
        offers.for_each(|_| assert_eq!(provider.line(), "OK"));
    }
    println!("{many} members are offered; {} MiB", daemon.memory() >> 20);
    let is_over = AtomicBool::new(false);
    let (mut pools, mut members) = (daemon.connect(), Client::to(daemon.members()));
    thread::scope(|scope| {
        let over = Over(&is_over);
        let waits = [(&mut pools, "STATS UPTIME"), (&mut members, "UTILIZATION none")]
            .map(|(client, request)| scope.spawn(|| longest_wait(client, request, &is_over)));
        let begun = Instant::now();
        daemon.upgrade();
        let taken_over = begun.elapsed();
        assert!(operator.ask("TAKE p").starts_with("MEMBER "));
        let taken = begun.elapsed();
        until("all members are there", || operator.ask("UTILIZATION p").contains(&format!(" free {} ", many - 1)));
        let all = begun.elapsed();
        drop(over);
        let [pools, members] = waits.map(|wait| wait.join().expect("is answered"));
        println!("taken over after {taken_over:?}, a member given out after {taken:?}, all there after {all:?}");
        println!("the longest wait: pools {pools:?}, members {members:?}");
    });
}
