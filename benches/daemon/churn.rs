//! Connections that live for one lock: connect, ACQ4ANY, RELEASE, close, as a PHP process does for each page.

use super::clients::Clients;
use super::report::Values;
use super::server::Server;
use super::settings::Settings;
use std::io;
use std::time::{Duration, Instant};

struct Churn {
    clients: Clients,
    stages: Vec<Stage>,
    acquires: Vec<Vec<u8>>,
    lives: usize,
    slowest_connect: Duration,
    slowest_lock: Duration,
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Connecting(Instant),
    Acquiring(Instant),
    Releasing,
}

/// Returns the connections per second, the server's processor time for each in microseconds, and the slowest connect
/// and the slowest time from there to LOCKED, in milliseconds.
pub fn measure(server: &Server, count: usize, settings: &Settings) -> io::Result<Values> {
    let mut churn = Churn {
        clients: Clients::new(server, count)?,
        stages: vec![Stage::Releasing; count],
        acquires: (0..count).map(|client| format!("ACQ4ANY Article:{client} 2 100 5\n").into_bytes()).collect(),
        lives: 0,
        slowest_connect: Duration::ZERO,
        slowest_lock: Duration::ZERO,
    };
    (0..count).try_for_each(|client| churn.begin(client))?;
    churn.run_for(settings.time / 4)?;
    let (lives, used, start) = (churn.lives, server.cpu_time()?, Instant::now());
    churn.run_for(settings.time)?;
    let (time, used, lives) = (start.elapsed(), server.cpu_time()?.saturating_sub(used), (churn.lives - lives) as f64);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(vec![
        lives / time.as_secs_f64(),
        used.as_secs_f64() * 1e6 / lives,
        ms(churn.slowest_connect),
        ms(churn.slowest_lock),
    ])
}

impl Churn {
    fn run_for(&mut self, time: Duration) -> io::Result<()> {
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            let count = self.clients.wait_for_some()?;
            for n in 0..count {
                let (client, is_readable) = self.clients.ready(n);
                self.go_on(client, is_readable)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, client: usize) -> io::Result<()> {
        self.stages[client] = Stage::Connecting(Instant::now());
        self.clients.open(client)
    }

    fn go_on(&mut self, client: usize, is_readable: bool) -> io::Result<()> {
        let stage = self.stages[client];
        match stage {
            Stage::Connecting(since) => {
                self.slowest_connect = self.slowest_connect.max(since.elapsed());
                self.stages[client] = Stage::Acquiring(since);
                self.clients.send(client, &self.acquires[client])
            }
            Stage::Acquiring(since) if is_readable && self.heard(client, b"LOCKED\n")? => {
                self.slowest_lock = self.slowest_lock.max(since.elapsed());
                self.stages[client] = Stage::Releasing;
                self.clients.send(client, b"RELEASE\n")
            }
            Stage::Releasing if is_readable && self.heard(client, b"RELEASED\n")? => {
                self.clients.close(client);
                self.lives += 1;
                self.begin(client)
            }
            Stage::Acquiring(_) | Stage::Releasing => Ok(()),
        }
    }

    fn heard(&mut self, client: usize, wanted: &[u8]) -> io::Result<bool> {
        match self.clients.receive(client)? {
            [] => Ok(false),
            reply if reply == wanted => Ok(true),
            reply => Err(io::Error::other(format!("unexpected reply: {}", reply.escape_ascii()))),
        }
    }
}
