//! Thousands wait for the result of one client's work: time from its RELEASE until the last of them is notified.

use super::clients::Clients;
use super::crowd::{self, HOLDER};
use super::report::Values;
use super::results::median;
use super::server::Server;
use super::settings::Settings;
use std::io;
use std::time::{Duration, Instant};

/// Returns the time to the last DONE in milliseconds, and the server's processor time per DONE in microseconds.
pub fn measure(server: &Server, waiters: usize, settings: &Settings) -> io::Result<Values> {
    let mut clients = crowd::gather(server, waiters)?;
    let start = Instant::now();
    let (mut times, mut used) = (Vec::new(), Duration::ZERO);
    while times.is_empty() || start.elapsed() < settings.time {
        let (wait, _) = crowd::words(server.program);
        clients.expect(HOLDER, b"ACQ4ANY Article:crowd 1 100000 60\n", "LOCKED")?;
        (1..=waiters).try_for_each(|client| clients.send(client, wait))?;
        crowd::await_waiters(&mut clients, waiters)?;
        let before = server.cpu_time()?;
        times.push(wake(server, &mut clients, waiters)?.as_secs_f64() * 1e3);
        used += server.cpu_time()?.saturating_sub(before);
    }
    let dones = (times.len() * waiters) as f64;
    Ok(vec![median(&mut times).unwrap_or(f64::NAN), used.as_secs_f64() * 1e6 / dones])
}

/// Wakes all waiters, and returns the time until the last DONE.
fn wake(server: &Server, clients: &mut Clients, waiters: usize) -> io::Result<Duration> {
    let (_, wake) = crowd::words(server.program);
    let start = Instant::now();
    clients.send(HOLDER, wake)?;
    let (mut done, mut last) = (0, Duration::ZERO);
    let mut is_released = false;
    while done < waiters || !is_released {
        let count = clients.wait_for_some()?;
        for n in 0..count {
            let (client, _) = clients.ready(n);
            match clients.receive(client)? {
                [] => {}
                b"DONE\n" => done += 1,
                b"RELEASED\n" => is_released = true,
                reply => return Err(io::Error::other(format!("unexpected reply: {}", reply.escape_ascii()))),
            }
        }
        if done == waiters && last == Duration::ZERO {
            last = start.elapsed();
        }
    }
    Ok(last)
}
