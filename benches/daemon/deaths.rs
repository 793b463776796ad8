//! Thousands of connections with a lock each that end at once, as when a machine of the fleet loses power: latency of
//! another client meanwhile.

use super::clients::Clients;
use super::report::{Values, p99};
use super::server::Server;
use std::io;
use std::thread;
use std::time::Instant;

/// Returns the latency of a client that sends requests all the while, in milliseconds: the 99th percentile and the
/// maximum. That client and the closer of the connections share the load's core.
pub fn measure(server: &Server, count: usize) -> io::Result<Values> {
    let mut crowd = Clients::connect(server, count)?;
    let mut other = Clients::connect(server, 1)?;
    for client in 0..count {
        crowd.expect(client, format!("ACQ4ME Article:{client} 1 2 60\n").as_bytes(), "LOCKED")?;
    }
    let end = thread::spawn(move || drop(crowd));
    let mut times = Vec::new();
    let mut is_over = false;
    while !is_over {
        // A request sent after all were closed is answered once the server has noticed that.
        is_over = end.is_finished();
        for (request, reply) in [(&b"ACQ4ME Article:other 1 2 60\n"[..], "LOCKED"), (b"RELEASE\n", "RELEASED")] {
            let asked = Instant::now();
            other.expect(0, request, reply)?;
            times.push(asked.elapsed().as_secs_f64() * 1e3);
        }
    }
    end.join().map_err(|_| io::Error::other("the connections were not closed"))?;
    times.sort_by(f64::total_cmp);
    Ok(vec![p99(&times), times[times.len() - 1]])
}
