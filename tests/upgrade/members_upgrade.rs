//! Upgrades of members on the real program: to other limits, and with very many of them.

use crate::upgrade_release::longest_wait;
use nix::sys::signal::Signal;
use poolcounter_testkit::daemon::{Client, Daemon, until};
use poolcounter_testkit::random::setting;
use poolcounter_testkit::running::Over;
use poolcounter_testkit::scratch::Scratch;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Instant;

fn lease_of(line: &str) -> u64 {
    let lease = line.strip_prefix("MEMBER ").and_then(|rest| rest.split(' ').next()?.parse().ok());
    lease.unwrap_or_else(|| panic!("{line:?} is no member"))
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

/// Writes a configuration file with members in a store.
fn set(path: &Path, enable: bool, store: &str) {
    let text = format!("[members]\nenable = {enable}\nlisten = \"127.0.0.1:0\"\nstore = \"{store}\"\n");
    fs::write(path, text).expect("can be written");
}

/// Starts a daemon with this file, in which a member is held.
fn start_with_held_member(path: &Path) -> Daemon {
    let daemon = Daemon::start(&["--config", &path.display().to_string()]);
    let mut operator = Client::to(daemon.members());
    for request in ["POOL p 0 1", "ADD p a", "HOLD p a 3600 broken"] {
        assert_eq!(operator.ask(request), "OK");
    }
    daemon
}

#[test]
fn file_outlives_upgrades_without_members() {
    let scratch = Scratch::new();
    let (path, store) = (scratch.file("conf"), format!("sqlite:{}", scratch.file("members.db").display()));
    set(&path, true, &store);
    let mut daemon = start_with_held_member(&path);
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
    set(&path, false, &store);
    let mut daemon = Daemon::start(&["--config", &path.display().to_string()]);
    daemon.upgrade();
    set(&path, true, &store);
    daemon.upgrade();
    let mut operator = Client::to(daemon.members());
    assert_eq!(list(&mut operator, "p"), "a held -");
    daemon.upgrade();
    assert_eq!(list(&mut operator, "p"), "a held -");
}

#[test]
fn reloads_with_another_file_are_refused() {
    let scratch = Scratch::new();
    let path = scratch.file("conf");
    let [own, other] = ["a.db", "b.db"].map(|name| format!("sqlite:{}", scratch.file(name).display()));
    set(&path, true, &own);
    let mut daemon = start_with_held_member(&path);
    for store in [&other, "memory"] {
        set(&path, true, store);
        daemon.signal(Signal::SIGUSR1);
        let line = daemon.wait_for_log("no upgrade: ");
        assert!(line.contains("a.db, and members.store names "), "{line}");
    }
    assert!(!scratch.file("b.db").exists(), "no other file was made");
    set(&path, true, &own);
    daemon.upgrade();
    assert_eq!(list(&mut Client::to(daemon.members()), "p"), "a held -");
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
