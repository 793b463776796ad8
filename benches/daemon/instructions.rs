//! Instructions that a server executes in user space for each request, counted by callgrind: the same in every run.

use super::clients::Clients;
use super::report::Values;
use super::server::{Program, Server};
use super::settings::Settings;
use std::io;

const VALGRIND: [&str; 3] = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"];

/// Instructions per request: of twice as many pairs less those of half, so that start and end do not count.
pub fn measure(program: Program, pairs: usize, settings: &Settings) -> io::Result<Values> {
    let once = count(program, pairs, settings)?;
    let twice = count(program, 2 * pairs, settings)?;
    Ok(vec![(twice as f64 - once as f64) / (2 * pairs) as f64])
}

fn count(program: Program, pairs: usize, settings: &Settings) -> io::Result<u64> {
    let server = Server::start_under(&VALGRIND, program, settings)?;
    let mut clients = Clients::connect(&server, 1)?;
    for _ in 0..pairs {
        clients.expect(0, b"ACQ4ME Article:1 1 100 5\n", "LOCKED")?;
        clients.expect(0, b"RELEASE\n", "RELEASED")?;
    }
    drop(clients);
    let said = server.stop()?;
    let total = said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    total.ok_or_else(|| io::Error::other("callgrind tells no total"))
}
