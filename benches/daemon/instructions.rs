//! Instructions that a server executes in user space for each request, counted by callgrind: the same in every run.

use super::clients::Clients;
use super::leases;
use super::protocol::{self, Protocol};
use super::queues;
use super::report::Values;
use super::server::{Program, Server};
use super::settings::Settings;
use std::io;

const VALGRIND: [&str; 3] = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"];

/// Instructions per request: of twice as many pairs less those of half, so that start and end do not count.
pub fn measure(program: Program, protocol: Protocol, pairs: usize, settings: &Settings) -> io::Result<Values> {
    let once = count(program, protocol, pairs, settings)?;
    let twice = count(program, protocol, 2 * pairs, settings)?;
    let in_turn = if protocol == Protocol::Members { 2 } else { requests(protocol, 1).len() };
    let requests = in_turn * pairs;
    Ok(vec![(twice as f64 - once as f64) / requests as f64])
}

fn count(program: Program, protocol: Protocol, turns: usize, settings: &Settings) -> io::Result<u64> {
    let server = Server::start_under(&VALGRIND, program, protocol, settings)?;
    let mut clients = Clients::connect(&server, 1)?;
    match protocol {
        Protocol::Members => leases::take_and_return(&server, &mut clients, turns)?,
        _ => (1..=turns)
            .flat_map(|turn| requests(protocol, turn))
            .try_for_each(|request| clients.ask(0, &request).map(drop))?,
    }
    drop(clients);
    let said = server.stop()?;
    let total = said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    total.ok_or_else(|| io::Error::other("callgrind tells no total"))
}

/// What is asked in one turn, the first of which is 1: for something, and to be rid of it.
fn requests(protocol: Protocol, turn: usize) -> Vec<Vec<u8>> {
    match protocol {
        Protocol::Lines => vec![b"ACQ4ME Article:1 1 100 5\n".to_vec(), b"RELEASE\n".to_vec()],
        Protocol::Frames => vec![protocol::acquire(b"Resource:1"), protocol::release(b"Resource:1")],
        // The numbers of leases are not known before: they are asked for elsewhere.
        Protocol::Members => Vec::new(),
        // A server numbers its jobs from 1.
        Protocol::Jobs => {
            vec![queues::put(), b"reserve-with-timeout 0\r\n".to_vec(), format!("delete {turn}\r\n").into_bytes()]
        }
    }
}
