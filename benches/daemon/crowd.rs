//! Many clients that wait for one key, which one client holds.

use super::clients::{Clients, PATIENCE};
use super::server::{Program, Server};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// Number of the client that holds the lock. All other clients are waiters.
pub const HOLDER: usize = 0;

/// Connects a holder and `waiters` waiters.
pub fn gather(server: &Server, waiters: usize) -> io::Result<Clients> {
    Clients::connect(server, waiters + 1)
}

/// Returns once this number of clients wait.
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

/// Returns the request that makes a client of the stampede wait, and the request that wakes all of them.
pub fn words(program: Program) -> (&'static [u8], &'static [u8]) {
    match program {
        Program::Limit => (b"W\n", b"D\n"),
        _ => (b"ACQ4ANY Article:crowd 1 100000 60\n", b"RELEASE\n"),
    }
}
