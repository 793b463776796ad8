//! The events of the services, in the order of those whom they meet: a client, the network, the daemon, its machine.

use super::services::Store;
use super::stage::Stage;
use nix::sys::signal::Signal;
use poolcounter_testkit::cut::fall_silent;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

/// Something that happens to the daemon or its clients.
pub struct Event {
    /// First column of the tables. It begins with the party that the event meets.
    pub name: &'static str,
    pub act: fn(&mut Stage),
}

pub const EVENTS: &[Event] = &[
    Event { name: "the holder gives it back", act: give_back },
    Event { name: "the holder is killed", act: end_holders },
    Event { name: "the waiter is killed", act: end_waiters },
    Event { name: "the cable of the holder is cut", act: |stage| silence(&stage.holders) },
    Event { name: "the cable of the waiter is cut", act: |stage| silence(&stage.waiters) },
    Event { name: CABLE, act: cut_cable },
    Event { name: "the daemon is stopped", act: |stage| stop(stage, Signal::SIGTERM) },
    Event { name: "the daemon is killed", act: |stage| stop(stage, Signal::SIGKILL) },
    Event { name: "the daemon is stopped and started", act: |stage| restart(stage, Signal::SIGTERM) },
    Event { name: "the daemon is killed and started", act: |stage| restart(stage, Signal::SIGKILL) },
    Event { name: "the daemon is reloaded or upgraded", act: |stage| stage.daemon().upgrade() },
    Event { name: "the daemon drains", act: |stage| stage.operate("DRAIN") },
    Event { name: "the daemon hangs for a second", act: freeze },
    Event { name: MACHINE_LOST, act: lose_all },
    Event { name: DISK_FULL, act: |stage| stage.fill_disk() },
    Event { name: FILES_REMOVED, act: |stage| stage.remove_files() },
    Event { name: FILES_LOST, act: lose_files },
    Event { name: DATABASE_GONE, act: |stage| stage.end_database() },
];

pub const CABLE: &str = "the cable of the daemon is cut for a while";
pub const MACHINE_LOST: &str = "the machine is lost with all clients, and started";
pub const DISK_FULL: &str = "the disk is full";
pub const FILES_REMOVED: &str = "the files of the store are removed";
pub const FILES_LOST: &str = "the files of the store are removed, then the daemon is killed and started";
const DATABASE_GONE: &str = "the database is gone";

impl Event {
    /// Whether it needs a store of its own.
    pub fn harms_the_store(&self) -> bool {
        [DISK_FULL, DATABASE_GONE].contains(&self.name)
    }

    /// Whether it can happen to this store.
    pub fn meets(&self, store: Store) -> bool {
        match self.name {
            DISK_FULL | FILES_REMOVED | FILES_LOST => store == Store::File,
            DATABASE_GONE => store == Store::Postgres,
            _ => true,
        }
    }

    /// Whether the daemon, its network or its machine is met.
    pub fn meets_the_daemon(&self) -> bool {
        !["the holder", "the waiter"].iter().any(|client| self.name.contains(client))
    }
}

fn give_back(stage: &mut Stage) {
    for (mut holder, request) in stage.holders.iter().zip(&stage.returns) {
        holder.write_all(request).expect("is sent");
    }
}

fn end_holders(stage: &mut Stage) {
    end(&stage.holders);
    stage.are_holders_gone = true;
}

fn end_waiters(stage: &mut Stage) {
    end(&stage.waiters);
    stage.are_waiters_gone = true;
}

/// The kernel closes the connections of a process that ends.
fn end(clients: &[TcpStream]) {
    for client in clients {
        client.shutdown(Shutdown::Both).expect("is connected");
    }
}

/// Each side finds that by its own keepalive.
fn silence(clients: &[TcpStream]) {
    clients.iter().for_each(fall_silent);
}

/// A new client comes when the cable is whole again.
fn cut_cable(stage: &mut Stage) {
    silence(&stage.holders);
    silence(&stage.waiters);
}

pub fn stop(stage: &mut Stage, signal: Signal) {
    stage.daemon().signal(signal);
    stage.daemon().wait();
    stage.daemon = None;
}

/// As when the machine loses its power, but for its clocks and its files.
fn lose_all(stage: &mut Stage) {
    stage.daemon().signal(Signal::SIGKILL);
    end_holders(stage);
    end_waiters(stage);
    stop(stage, Signal::SIGKILL);
    stage.start();
}

/// All is written anew in the meantime.
pub fn lose_files(stage: &mut Stage) {
    stage.remove_files();
    stage.wait_for_files();
    restart(stage, Signal::SIGKILL);
}

pub fn restart(stage: &mut Stage, signal: Signal) {
    stop(stage, signal);
    stage.start();
}

pub fn freeze(stage: &mut Stage) {
    stage.daemon().signal(Signal::SIGSTOP);
    thread::sleep(Duration::from_secs(1));
    stage.daemon().signal(Signal::SIGCONT);
}
