//! Latency of puts while the log of the store is checkpointed again and again, compared with the time of a commit.

use super::disk::Directory;
use super::load::{self, Player};
use super::queues;
use super::report::{Values, p99};
use super::results::median;
use super::scraping;
use super::server::Server;
use super::settings::Settings;
use std::io;
use std::time::Instant;

/// Body that fills the log every few commits, so that far more than one put in a hundred meets a checkpoint.
const BODY: [u8; 4096] = [b'x'; 4096];

/// Clients that put one job after the other, and the latency of each put.
struct Timed {
    asked: Vec<Instant>,
    /// Latencies in milliseconds.
    took: Vec<f64>,
}

impl Player for Timed {
    fn speak(&mut self, client: usize, requests: &mut Vec<u8>) -> usize {
        queues::write_put(requests, 1_000, 0, &BODY);
        self.asked[client] = Instant::now();
        1
    }

    fn hear(&mut self, client: usize, reply: &[u8]) -> bool {
        self.took.push(self.asked[client].elapsed().as_secs_f64() * 1e3);
        reply.starts_with(b"INSERTED")
    }
}

/// Returns the median commit in milliseconds, the median put, the 99th percentile of the puts, its ratio to the median
/// commit, and the median checkpoint.
pub fn measure(clients: usize, settings: &Settings) -> io::Result<Values> {
    let (directory, http) = (Directory::new()?, scraping::unused_address()?);
    let server = Server::start_durable_with_http(directory.path(), http, settings)?;
    let mut timed = Timed { asked: vec![Instant::now(); clients], took: Vec::new() };
    load::play(&server, clients, &mut timed, settings)?;
    let status = scraping::fetch(http, "/status.json")?;
    let middle_of = |what: &str| {
        let rest = status.split_once(&format!("\"{what}\":{{\"p50\":")).map(|(_, rest)| rest);
        let number = rest.and_then(|rest| rest.split([',', '}']).next()?.parse::<f64>().ok());
        // There may have been no checkpoint yet.
        number.map_or(f64::NAN, |seconds| seconds * 1e3)
    };
    let commit = middle_of("commits");
    // A rehearsal may be over before the first reply.
    timed.took.extend(timed.took.is_empty().then_some(f64::NAN));
    let middle = median(&mut timed.took).unwrap_or(f64::NAN);
    // The median has sorted the values.
    let late = p99(&timed.took);
    Ok(vec![commit, middle, late, late / commit, middle_of("checkpoints")])
}
