//! Instructions that a server executes in user space for each request, counted by callgrind: the same in every run.

use super::cases::is_installed;
use super::clients::Clients;
use super::disk::Directory;
use super::leases;
use super::protocol::{self, Protocol};
use super::queues;
use super::report::{Case, Figure, Values, Wanted};
use super::server::{Program, Server};
use super::settings::Settings;
use std::fs;
use std::io;

const VALGRIND: [&str; 3] = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"];

/// Pairs of requests that are counted.
const PAIRS: usize = 5_000;

/// Requests of a measurement.
#[derive(Clone, Copy)]
pub struct Load {
    pub protocol: Protocol,
    /// Turns of a client in a packet.
    pub depth: usize,
    /// Rules of access in the configuration file of our daemon.
    pub rules: &'static str,
    /// Goal for the instructions of our daemon for a request.
    pub wanted: Wanted,
}

/// Returns the case of a load of one client, if valgrind is installed.
pub fn case<'a>(what: &str, load: Load, settings: &'a Settings) -> Option<Case<'a>> {
    let pairs = if settings.is_rehearsal { 10 } else { PAIRS };
    // The C daemon does not end under callgrind when asked to, and so prints no result.
    let with_limit = !settings.is_rehearsal && load.rules.is_empty();
    is_installed("valgrind").then(|| Case {
        name: format!("user space, {what}"),
        programs: if with_limit { vec![Program::Ours, Program::Limit] } else { vec![Program::Ours] },
        rounds: 1,
        figures: vec![Figure {
            name: "instructions/request",
            wanted: load.wanted,
            against: with_limit.then_some(Program::Limit),
        }],
        measure: Box::new(move |program| measure(program, load, pairs, settings)),
    })
}

/// Returns the instructions per request: of twice as many pairs less of half as many, so that start and end do not
/// count.
fn measure(program: Program, load: Load, pairs: usize, settings: &Settings) -> io::Result<Values> {
    let once = count(program, load, pairs, settings)?;
    let twice = count(program, load, 2 * pairs, settings)?;
    let requests = requests(load.protocol, 1).len().max(2) * pairs;
    Ok(vec![(twice as f64 - once as f64) / requests as f64])
}

fn count(program: Program, load: Load, turns: usize, settings: &Settings) -> io::Result<u64> {
    let directory = Directory::new()?;
    let mut options = Vec::new();
    if !load.rules.is_empty() {
        let file = directory.path().join("poolcounter.toml");
        fs::write(&file, load.rules)?;
        options = vec!["--config".into(), file.display().to_string()];
    }
    let server = Server::start_under(&VALGRIND, program, load.protocol, &options, settings)?;
    let mut clients = Clients::connect(&server, 1)?;
    if load.protocol == Protocol::Members {
        leases::take_and_return(&server, &mut clients, turns)?;
    }
    let turns: Vec<usize> = (1..=turns).collect();
    for packet in turns.chunks(load.depth) {
        let requests: Vec<Vec<u8>> = packet.iter().flat_map(|turn| requests(load.protocol, *turn)).collect();
        if load.depth == 1 {
            requests.iter().try_for_each(|request| clients.ask(0, request).map(drop))?;
        } else {
            clients.ask_for(0, &requests.concat(), requests.len(), |_| ())?;
        }
    }
    drop(clients);
    let said = server.stop()?;
    let total = said.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    total.ok_or_else(|| io::Error::other("callgrind tells no total"))
}

/// Returns the requests of one turn, the first of which is 1: an acquire and its release. Empty where a request depends
/// on the reply before.
fn requests(protocol: Protocol, turn: usize) -> Vec<Vec<u8>> {
    match protocol {
        Protocol::Lines => vec![b"ACQ4ME Article:1 1 100 5\n".to_vec(), b"RELEASE\n".to_vec()],
        Protocol::Frames => vec![protocol::acquire(b"Resource:1"), protocol::release(b"Resource:1")],
        Protocol::Members => Vec::new(),
        // A server numbers its jobs from 1.
        Protocol::Jobs => {
            vec![queues::put(), b"reserve-with-timeout 0\r\n".to_vec(), format!("delete {turn}\r\n").into_bytes()]
        }
    }
}
