//! Waits that end by their timeouts: their delays, and a check that none ends early. A wait begins, for this count,
//! before the request is sent.

use super::clients::Clients;
use super::crowd::{self, HOLDER};
use super::report::{Values, p99};
use super::server::Server;
use super::settings::Settings;
use std::io;
use std::time::{Duration, Instant};

/// End of the waits.
#[derive(Clone, Copy, PartialEq)]
pub enum Due {
    /// Spread over a second like their starts; all have the same timeout.
    Spread,
    /// All in the same millisecond, with a timeout of each wait's own.
    AtOnce,
}

struct Wait {
    began: Instant,
    timeout: Duration,
}

/// Returns the number of waits that ended early, and the median, the 99th percentile and the maximum of the delays of
/// their ends, in milliseconds.
pub fn measure(server: &Server, waiters: usize, due: Due, settings: &Settings) -> io::Result<Values> {
    let mut clients = crowd::gather(server, waiters)?;
    clients.expect(HOLDER, b"ACQ4ME Article:crowd 1 100000 60\n", "LOCKED")?;
    let (delay, spread) = match settings.is_rehearsal {
        true => (Duration::from_millis(50), Duration::from_millis(10)),
        false => (Duration::from_secs(2), Duration::from_secs(1)),
    };
    let waits = match due {
        Due::Spread => begin_spread(&mut clients, waiters, delay, spread)?,
        Due::AtOnce => begin_for(&mut clients, waiters, Instant::now() + delay)?,
    };
    let mut lateness = await_ends(&mut clients, &waits)?;
    lateness.sort_by(f64::total_cmp);
    let early = lateness.iter().filter(|ms| **ms < 0.0).count() as f64;
    let at = |share: f64| lateness[((lateness.len() - 1) as f64 * share) as usize];
    Ok(vec![early, at(0.5), p99(&lateness), at(1.0)])
}

fn begin_spread(clients: &mut Clients, waiters: usize, timeout: Duration, spread: Duration) -> io::Result<Vec<Wait>> {
    let request = format!("ACQ4ME Article:crowd 1 100000 {}\n", timeout.as_secs_f64()).into_bytes();
    let start = Instant::now();
    let mut waits = Vec::new();
    for n in 0..waiters {
        while start.elapsed() < spread * n as u32 / waiters as u32 {
            std::hint::spin_loop();
        }
        waits.push(Wait { began: Instant::now(), timeout });
        clients.send(n + 1, &request)?;
    }
    Ok(waits)
}

fn begin_for(clients: &mut Clients, waiters: usize, end: Instant) -> io::Result<Vec<Wait>> {
    let mut waits = Vec::new();
    for n in 0..waiters {
        let began = Instant::now();
        let timeout = Duration::from_millis(end.saturating_duration_since(began).as_millis().max(1) as u64);
        waits.push(Wait { began, timeout });
        let request = format!("ACQ4ME Article:crowd 1 100000 {}\n", timeout.as_secs_f64());
        clients.send(n + 1, request.as_bytes())?;
    }
    Ok(waits)
}

/// Returns the delay of each reply, in milliseconds; negative if it came early.
fn await_ends(clients: &mut Clients, waits: &[Wait]) -> io::Result<Vec<f64>> {
    let mut lateness = Vec::new();
    while lateness.len() < waits.len() {
        let count = clients.wait_for_some()?;
        for n in 0..count {
            let (client, _) = clients.ready(n);
            match clients.receive(client)? {
                [] => {}
                b"TIMEOUT\n" => {
                    let Wait { began, timeout } = &waits[client - 1];
                    lateness.push((began.elapsed().as_secs_f64() - timeout.as_secs_f64()) * 1e3);
                }
                reply => return Err(io::Error::other(format!("unexpected reply: {}", reply.escape_ascii()))),
            }
        }
    }
    Ok(lateness)
}
