//! Many clients that wait for one key, which one client has.

use super::clients::{Clients, PATIENCE};
use super::server::{Program, Server};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// The client that has the lock. The waiters are all the others.
pub const HOLDER: usize = 0;

/// A holder and `waiters` others, connected.
pub fn gather(server: &Server, waiters: usize) -> io::Result<Clients> {
    Clients::connect(server, waiters + 1)
}

/// Returns when as many wait as are to.
pub fn await_waiters(clients: &mut Clients, waiters: usize) -> io::Result<()> {
    let wanted = format!("waiting_workers: {waiters}");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let reply = clients.ask(HOLDER, b"STATS waiting_workers\n")?;
        if reply.trim_ascii_end() == wanted.as_bytes() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(io::Error::other(format!("{} instead of {wanted}", reply.escape_ascii())));
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// What has a client of the stampede wait, and what wakes all of them.
pub fn words(program: Program) -> (&'static [u8], &'static [u8]) {
    match program {
        Program::Limit => (b"W\n", b"D\n"),
        _ => (b"ACQ4ANY Article:crowd 1 100000 60\n", b"RELEASE\n"),
    }
}
