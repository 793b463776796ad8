//! The events.

use super::parties::Stage;
use nix::sys::signal::Signal;
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
    Event { name: "the daemon is stopped", act: |stage| stop(stage, Signal::SIGTERM) },
    Event { name: "the daemon is killed", act: |stage| stop(stage, Signal::SIGKILL) },
    Event { name: "the daemon is stopped and started", act: |stage| restart(stage, Signal::SIGTERM) },
    Event { name: "the daemon is killed and started", act: |stage| restart(stage, Signal::SIGKILL) },
    Event { name: "the daemon and all clients are killed, and it is started", act: lose_all },
    Event { name: "the daemon is reloaded or upgraded", act: |stage| stage.daemon().upgrade() },
    Event { name: "the daemon drains", act: |stage| stage.operate("DRAIN") },
    Event { name: "the daemon hangs for a second", act: freeze },
];

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

pub fn restart(stage: &mut Stage, signal: Signal) {
    stop(stage, signal);
    stage.start();
}

pub fn freeze(stage: &mut Stage) {
    stage.daemon().signal(Signal::SIGSTOP);
    thread::sleep(Duration::from_secs(1));
    stage.daemon().signal(Signal::SIGCONT);
}
