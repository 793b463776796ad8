//! Actions of the clients of the jobs: put, reserve and delete in turns, fill queues, and wait.

use super::clients::Clients;
use super::load::{self, Player};
use super::million::Line;
use super::random::Random;
use super::report::Values;
use super::server::{Program, Server};
use super::settings::Settings;
use std::io::{self, Error, Write};
use std::time::{Duration, Instant};

/// Body of the steady loads, as long as the bare limit's.
pub const BODY: [u8; 100] = [b'x'; 100];
/// Number of puts in one write.
const BATCH: usize = 1_000;
/// Pause between two requests of a client that polls.
const PAUSE: Duration = Duration::from_millis(1);
/// Longest time until a flood of jobs is ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// Requests in turns, each of which has one reply.
pub struct Cycle {
    /// Next step of each client.
    steps: Vec<Step>,
    /// Kind of the cycle.
    kind: Kind,
    /// Number of requests in one write.
    depth: usize,
    /// Requests of each client that delete its reserved jobs.
    deletes: Vec<Vec<u8>>,
    random: Random,
}

#[derive(Clone, Copy, PartialEq)]
enum Step {
    Put,
    Reserve,
    Delete,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Puts,
    Reserves,
    All,
}

/// Jobs to be put before a measurement.
pub struct Filling {
    /// Number of jobs.
    pub jobs: usize,
    /// Length of their bodies, in bytes.
    pub body_bytes: usize,
    /// Number of tubes for them, in turn; 0 for `default`.
    pub tubes: usize,
    /// True if they have random priorities.
    pub has_priorities: bool,
    /// Time at which they are ready, if not at once.
    pub due: Option<Instant>,
}

impl Default for Filling {
    fn default() -> Self {
        Filling { jobs: 0, body_bytes: BODY.len(), tubes: 0, has_priorities: false, due: None }
    }
}

impl Cycle {
    /// Returns clients that each put one job after the other.
    pub fn puts(clients: usize) -> Cycle {
        Cycle::of(clients, Kind::Puts, Step::Put)
    }

    /// Returns clients that each reserve a job and delete it.
    pub fn reserves(clients: usize) -> Cycle {
        Cycle::of(clients, Kind::Reserves, Step::Reserve)
    }

    /// Returns clients that each put a job with a random priority, reserve one and delete it.
    pub fn with_priorities(clients: usize) -> Cycle {
        Cycle::of(clients, Kind::All, Step::Put)
    }

    /// Returns such clients that handle `depth` jobs in one write, and wait for all its replies.
    pub fn pipelined(self, depth: usize) -> Cycle {
        Cycle { depth, ..self }
    }

    fn of(clients: usize, kind: Kind, step: Step) -> Cycle {
        let deletes = vec![Vec::new(); clients];
        Cycle { steps: vec![step; clients], kind, depth: 1, deletes, random: Random::new(1) }
    }
}

impl Player for Cycle {
    fn speak(&mut self, client: usize, requests: &mut Vec<u8>) -> usize {
        let step = self.steps[client];
        match step {
            Step::Put => {
                let pri = if self.kind == Kind::All { (self.random.fraction() * 1e9) as u32 } else { 1_000 };
                (0..self.depth).for_each(|_| write_put(requests, pri, 0, &BODY));
            }
            Step::Reserve => {
                (0..self.depth).for_each(|_| requests.extend_from_slice(b"reserve-with-timeout 0\r\n"));
            }
            Step::Delete => requests.append(&mut self.deletes[client]),
        }
        self.steps[client] = match (step, self.kind) {
            (_, Kind::Puts) | (Step::Delete, Kind::All) => Step::Put,
            (Step::Put, _) | (Step::Delete, Kind::Reserves) => Step::Reserve,
            (Step::Reserve, _) => Step::Delete,
        };
        self.depth
    }

    fn hear(&mut self, client: usize, reply: &[u8]) -> bool {
        match reply.strip_prefix(b"RESERVED ") {
            Some(rest) => {
                let id = rest.split(|byte| *byte == b' ').next().unwrap_or_default();
                [b"delete ", id, b"\r\n"].iter().for_each(|part| self.deletes[client].extend_from_slice(part));
                true
            }
            None => reply.starts_with(b"INSERTED") || reply == b"DELETED\r\n",
        }
    }
}

/// Fills queues by one connection.
pub fn fill(server: &Server, filling: &Filling) -> io::Result<()> {
    // The bare limit reads once for each wake, so it cannot take floods; and it has jobs without end.
    if server.program == Program::Limit {
        return Ok(());
    }
    let mut line = Line::connect(server)?;
    let mut random = Random::new(2);
    let body = vec![b'x'; filling.body_bytes];
    let mut requests = Vec::new();
    for first in (0..filling.jobs).step_by(BATCH) {
        let count = BATCH.min(filling.jobs - first);
        requests.clear();
        let now = Instant::now();
        let delay = filling.due.map_or(0, |due| due.saturating_duration_since(now).as_secs_f64().round() as u32);
        for job in first..first + count {
            if filling.tubes > 0 {
                requests.extend_from_slice(format!("use wiki{}/type\r\n", job % filling.tubes).as_bytes());
            }
            let pri = if filling.has_priorities { (random.fraction() * 1e9) as u32 } else { 1_000 };
            write_put(&mut requests, pri, delay, &body);
        }
        line.stream.write_all(&requests)?;
        for _ in 0..if filling.tubes > 0 { 2 * count } else { count } {
            if !line.hear(|reply| reply.starts_with(b"INSERTED") || reply.starts_with(b"USING"))? {
                return Err(Error::other("a job is refused"));
            }
        }
    }
    Ok(())
}

/// Returns the jobs a second that are put, reserved and deleted while there are `tubes` tubes with a job each, the
/// processor time for each, and the slowdown compared with none of these tubes, in percent.
pub fn with_tubes(server: &Server, tubes: usize, clients: usize, settings: &Settings) -> io::Result<Values> {
    let alone = load::play(server, clients, &mut Cycle::with_priorities(clients), settings)?;
    fill(server, &Filling { jobs: tubes, tubes, ..Filling::default() })?;
    let among = load::play(server, clients, &mut Cycle::with_priorities(clients), settings)?;
    Ok(vec![among[0] / 3.0, among[1] * 3.0, (1.0 - among[0] / alone[0]) * 100.0])
}

/// Returns the time from the due time of `count` delayed jobs until all are ready, the longest latency of another
/// client meanwhile, both in milliseconds, and the processor time for each job.
pub fn delayed(server: &Server, count: usize, settings: &Settings) -> io::Result<Values> {
    let delay = if settings.is_rehearsal { 2 } else { 20 };
    let due = Instant::now() + Duration::from_secs(delay);
    fill(server, &Filling { jobs: count, due: Some(due), body_bytes: 10, ..Filling::default() })?;
    let mut clients = Clients::connect(server, 1)?;
    // Delays are whole seconds: none is due earlier than half a second before.
    let begin = due.checked_sub(Duration::from_millis(600)).unwrap_or_else(Instant::now);
    if begin <= Instant::now() {
        return Err(Error::other("the jobs were due before all of them were put"));
    }
    std::thread::sleep(begin.saturating_duration_since(Instant::now()));
    let (used, mut slowest) = (server.cpu_time()?, Duration::ZERO);
    loop {
        let asked = Instant::now();
        let reply = clients.ask(0, b"stats-tube default\r\n")?;
        slowest = slowest.max(asked.elapsed());
        let ready = String::from_utf8_lossy(&reply)
            .lines()
            .find_map(|line| line.strip_prefix("current-jobs-ready: ")?.parse().ok());
        if ready == Some(count) {
            break;
        }
        if due.elapsed() > PATIENCE {
            return Err(Error::other("not all jobs become ready"));
        }
        std::thread::sleep(PAUSE);
    }
    let late = due.elapsed().as_secs_f64() * 1e3;
    let cost = server.cpu_time()?.saturating_sub(used).as_secs_f64() * 1e6 / count as f64;
    Ok(vec![late, slowest.as_secs_f64() * 1e3, cost])
}

/// Returns the time until `count` waiting clients have reserved a job each of `count` jobs that are put at once, in
/// milliseconds, and the processor time for each.
pub fn waiting(server: &Server, count: usize) -> io::Result<Values> {
    let mut clients = Clients::connect(server, count)?;
    for client in 0..count {
        clients.send(client, b"reserve\r\n")?;
    }
    let mut other = Clients::connect(server, 1)?;
    let wanted = format!("current-waiting: {count}\n");
    while !String::from_utf8_lossy(&other.ask(0, b"stats-tube default\r\n")?).contains(&wanted) {
        std::thread::sleep(PAUSE);
    }
    let mut line = Line::connect(server)?;
    let mut requests = Vec::new();
    (0..count).for_each(|_| write_put(&mut requests, 1_000, 0, &BODY));
    let (start, used) = (Instant::now(), server.cpu_time()?);
    line.stream.write_all(&requests)?;
    let mut served = 0;
    while served < count {
        let ready = clients.wait_for_some()?;
        for n in 0..ready {
            let (client, _) = clients.ready(n);
            served += usize::from(clients.receive(client)?.starts_with(b"RESERVED"));
        }
    }
    let (time, used) = (start.elapsed(), server.cpu_time()?.saturating_sub(used));
    Ok(vec![time.as_secs_f64() * 1e3, used.as_secs_f64() * 1e6 / count as f64])
}

/// Adds a put to the requests.
pub fn write_put(requests: &mut Vec<u8>, pri: u32, delay: u32, body: &[u8]) {
    write!(requests, "put {pri} {delay} 120 {}\r\n", body.len()).expect("a vector takes every byte");
    requests.extend_from_slice(body);
    requests.extend_from_slice(b"\r\n");
}

/// Returns the request of a put.
pub fn put() -> Vec<u8> {
    let mut request = Vec::new();
    write_put(&mut request, 1_000, 0, &BODY);
    request
}
