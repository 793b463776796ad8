//! Known ways in which one client could delay other clients, or fill the memory, and their present cost to the daemon.
//!
//! Costs are its processor time, so that other load does not count; requests come in batches, so that the kernel's part
//! is small.

mod floods;

use super::cases::installed;
use super::disk::Directory;
use super::million;
use super::report::{Case, Figure, Values, Wanted, p99};
use super::scraping::unused_address;
use super::server::{Program, Server};
use super::settings::Settings;
use std::io::{self, BufRead, BufReader, Error, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use Wanted::{AtMost, Nothing};

/// Requests that are measured together.
const BATCH: usize = 50;
/// Longest time until a listener accepts, or a request is answered.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time in which memory is to come back, and in which an upgrade or a start is watched.
const AFTERWARDS: Duration = Duration::from_secs(10);

/// Returns all cases, in the order of the table.
pub fn all(settings: &Settings) -> Vec<Case<'_>> {
    let mut cases: Vec<Case<'_>> = [1, 10_000].map(|sets| watch_sets(sets, settings)).into();
    cases.extend([1, 100_000].map(|groups| groups_of_a_tube(groups, false, settings)));
    cases.extend([1, 100_000].map(|groups| groups_of_a_tube(groups, true, settings)));
    cases.extend([49, 500].map(|waiters| takes_of_several(waiters, settings)));
    cases.push(leaving_waiters(settings));
    cases.push(leaving_holder(settings));
    cases.push(woken_waiters(settings));
    cases.push(metrics_of_keys(settings));
    cases.extend(floods::FLOODS.iter().map(|flood| floods::memory(flood, settings)));
    cases.push(floods::unheld_counters(settings));
    cases.push(counters(settings));
    cases.push(members(settings));
    cases.push(jobs_in_a_file(settings));
    cases
}

/// The daemon with every service, and their addresses.
struct Daemon {
    server: Server,
    counters: SocketAddr,
    members: SocketAddr,
    jobs: SocketAddr,
}

impl Daemon {
    fn start(store: &str, options: &[&str], settings: &Settings) -> io::Result<Daemon> {
        let [counters, members, jobs] = [unused_address()?, unused_address()?, unused_address()?];
        let mut words: Vec<String> =
            ["--counter", "--members", "--members-store", "memory", "--jobs", "--jobs-store", store]
                .map(String::from)
                .into();
        for (option, address) in [("counter", counters), ("members", members), ("jobs", jobs)] {
            words.extend([format!("--{option}-listen"), address.to_string()]);
        }
        words.extend(options.iter().copied().map(String::from));
        let server = Server::start_with(Program::Ours, &words, settings)?;
        Ok(Daemon { server, counters, members, jobs })
    }

    /// Returns the daemon's processor time for `act` in microseconds, divided by the number of requests.
    fn cost(&self, requests: usize, act: impl FnOnce() -> io::Result<()>) -> io::Result<f64> {
        let before = self.server.cpu_time()?;
        act()?;
        Ok((self.server.cpu_time()?.saturating_sub(before)).as_secs_f64() * 1e6 / requests as f64)
    }

    fn resident_mib(&self) -> io::Result<f64> {
        Ok(self.server.resident()? as f64 / f64::from(1 << 20))
    }
}

/// Connection that sends and receives lines.
struct Line(BufReader<TcpStream>);

impl Line {
    fn connect(address: SocketAddr) -> io::Result<Line> {
        let deadline = Instant::now() + PATIENCE;
        let stream = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Line(BufReader::new(stream)))
    }

    fn send(&mut self, text: &str) -> io::Result<()> {
        self.0.get_mut().write_all(text.as_bytes())
    }

    fn hear(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line)
    }

    /// Sends requests, waits for this number of lines, and returns the last.
    fn ask(&mut self, text: &str, lines: usize) -> io::Result<String> {
        self.send(text)?;
        let mut last = String::new();
        for _ in 0..lines {
            last = self.hear()?;
        }
        Ok(last)
    }

    /// Sends requests made by `request`, with `lines` lines for each reply, in parts that fit into the socket.
    fn ask_many(&mut self, count: usize, lines: usize, request: impl Fn(usize) -> String) -> io::Result<()> {
        for first in (0..count).step_by(BATCH) {
            let last = count.min(first + BATCH);
            let text: String = (first..last).map(&request).collect();
            self.ask(&text, (last - first) * lines)?;
        }
        Ok(())
    }
}

/// Client of the pools that sends requests all the while.
struct Witness {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Vec<f64>>>,
}

impl Witness {
    fn start(pools: SocketAddr) -> io::Result<Witness> {
        let is_over = Arc::new(AtomicBool::new(false));
        let (mut line, stops) = (Line::connect(pools)?, is_over.clone());
        let thread = thread::spawn(move || {
            let mut times = Vec::new();
            while !stops.load(Ordering::Relaxed) {
                let asked = Instant::now();
                line.ask("ACQ4ME Article:other 1 2 60\nRELEASE\n", 2)?;
                times.push(asked.elapsed().as_secs_f64() * 1e3);
                thread::sleep(Duration::from_millis(1));
            }
            Ok(times)
        });
        Ok(Witness { is_over, thread })
    }

    /// Returns the latency of the requests in milliseconds: the 99th percentile and the maximum.
    fn end(self) -> io::Result<[f64; 2]> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut times = self.thread.join().map_err(|_| Error::other("the witness panics"))??;
        times.sort_by(f64::total_cmp);
        Ok([p99(&times), times[times.len() - 1]])
    }
}

/// Measures a put to a tube that `sets` sets of watches share, and the creation of one such set.
fn watch_sets(sets: usize, settings: &Settings) -> Case<'_> {
    let sets = settings.connections(size(sets, settings));
    let figures = vec![figure("CPU us/put", AtMost(20.0)), figure("CPU us/set", Nothing)];
    hostile(format!("{sets} watch sets share a tube"), figures, move || {
        let daemon = Daemon::start("memory", &[], settings)?;
        let mut runners = (0..sets).map(|_| Line::connect(daemon.jobs)).collect::<io::Result<Vec<Line>>>()?;
        let set = daemon.cost(sets, || {
            let mut all = runners.iter_mut().enumerate();
            all.try_for_each(|(n, runner)| {
                runner.ask(&format!("watch common\r\nwatch own/{n}\r\nignore default\r\nreserve\r\n"), 3).map(drop)
            })
        })?;
        let mut producer = Line::connect(daemon.jobs)?;
        producer.ask("use common\r\n", 1)?;
        let put = daemon.cost(BATCH, || producer.ask_many(BATCH, 1, |_| "put 1 0 60 1\r\na\r\n".into()))?;
        Ok(vec![put, set])
    })
}

/// Measures a reserve and a delete in a tube with `groups` groups, through a pattern or under a limit, and a peek at
/// the first job.
fn groups_of_a_tube(groups: usize, is_limited: bool, settings: &Settings) -> Case<'_> {
    let groups = size(groups, settings);
    let figures = vec![figure("CPU us/job", AtMost(20.0)), figure("CPU us/peek-ready", AtMost(20.0))];
    let name = if is_limited { "limit each, groups of the tube" } else { "reserve by pattern, groups" };
    hostile(format!("{name}: {groups}"), figures, move || {
        let daemon = Daemon::start("memory", &[], settings)?;
        let mut producer = Line::connect(daemon.jobs)?;
        producer.ask("use q/t\r\n", 1)?;
        let jobs = groups.max(4 * BATCH);
        producer.ask_many(jobs, 1, |n| format!("put-job 1 0 600 1 group=g{}\r\na\r\n", n % groups))?;
        let mut runner = Line::connect(daemon.jobs)?;
        let watch = if is_limited {
            "watch q/t\r\nignore default\r\nlimit q/t 1 each\r\n"
        } else {
            "watch q/*\r\nignore default\r\nuse q/t\r\n"
        };
        runner.ask(watch, 3)?;
        runner.ask("reserve\r\ndelete 1\r\n", 3)?;
        let job = daemon
            .cost(BATCH, || runner.ask_many(BATCH, 3, |n| format!("reserve\r\ndelete {}\r\n", n + 2)).map(drop))?;
        let peek = daemon.cost(BATCH, || producer.ask_many(BATCH, 2, |_| "peek-ready\r\n".into()))?;
        Ok(vec![job, peek])
    })
}

/// Starts a daemon with a pool that has members of one kind, and waiters for another.
fn pool_with_waiters(waiters: usize, several: bool, settings: &Settings) -> io::Result<(Daemon, Vec<Line>)> {
    let daemon = Daemon::start("memory", &[], settings)?;
    let mut provider = Line::connect(daemon.members)?;
    provider.ask("POOL db 0 100000 queue=20000\nPROVIDE db 100000\n", 2)?;
    provider.ask_many(size(16_000, settings), 1, |n| format!("OFFER db m{n} zone=a\n"))?;
    let mut lines =
        (0..settings.connections(waiters)).map(|_| Line::connect(daemon.members)).collect::<io::Result<Vec<_>>>()?;
    let take = if several { "TAKE db 600 n=2 zone=b\n" } else { "TAKE db 600 zone=b\n" };
    lines.iter_mut().try_for_each(|line| line.send(take))?;
    thread::sleep(Duration::from_millis(500));
    lines.push(provider);
    Ok((daemon, lines))
}

fn takes_of_several(waiters: usize, settings: &Settings) -> Case<'_> {
    let figures = vec![figure("CPU us/take", AtMost(20.0))];
    hostile(format!("take 2 of 16000, {waiters} wait"), figures, move || {
        let (daemon, _waiting) = pool_with_waiters(waiters, false, settings)?;
        let mut client = Line::connect(daemon.members)?;
        let take = daemon.cost(BATCH, || client.ask_many(BATCH, 1, |_| "TAKE db 600 n=2 zone=b\nCANCEL\n".into()))?;
        Ok(vec![take])
    })
}

fn leaving_waiters(settings: &Settings) -> Case<'_> {
    let figures = vec![figure("others wait ms, p99", AtMost(5.0)), figure("others wait ms at most", Nothing)];
    hostile("4000 waiters for 2 leave".into(), figures, move || {
        let (daemon, waiting) = pool_with_waiters(4_000, true, settings)?;
        let witness = Witness::start(daemon.server.address)?;
        drop(waiting);
        thread::sleep(Duration::from_secs(2));
        Ok(witness.end()?.into())
    })
}

/// Options that let a connection hold as many locks as it can.
const MANY_LOCKS: [&str; 2] = ["--max-locks", "1024"];

/// Holds a lock of each of many keys, 1024 on a connection.
fn hold_many(daemon: &Daemon, keys: usize) -> io::Result<Vec<Line>> {
    let hold = |first: usize| {
        let mut holder = Line::connect(daemon.server.address)?;
        holder.ask_many((keys - first).min(1_024), 1, |n| format!("ACQ4ME Article:{} 1 2 0\n", first + n))?;
        Ok(holder)
    };
    (0..keys).step_by(1_024).map(hold).collect()
}

fn leaving_holder(settings: &Settings) -> Case<'_> {
    let figures = vec![figure("others wait ms, p99", AtMost(5.0)), figure("others wait ms at most", Nothing)];
    hostile("65536 locks of 64 come back".into(), figures, move || {
        let daemon = Daemon::start("memory", &MANY_LOCKS, settings)?;
        let holders = hold_many(&daemon, size(65_536, settings))?;
        let witness = Witness::start(daemon.server.address)?;
        thread::sleep(Duration::from_millis(100));
        drop(holders);
        thread::sleep(Duration::from_secs(1));
        Ok(witness.end()?.into())
    })
}

/// Measures the latency of other clients while very many waiters get DONE.
fn woken_waiters(settings: &Settings) -> Case<'_> {
    let figures = vec![figure("others wait ms, p99", AtMost(5.0)), figure("others wait ms at most", Nothing)];
    hostile("15000 wait for one result".into(), figures, move || {
        let daemon = Daemon::start("memory", &[], settings)?;
        let mut worker = Line::connect(daemon.server.address)?;
        worker.ask("ACQ4ME Article:hot 1 65535 60\n", 1)?;
        let count = settings.connections(size(15_000, settings));
        let mut waiters = (0..count).map(|_| Line::connect(daemon.server.address)).collect::<io::Result<Vec<_>>>()?;
        waiters.iter_mut().try_for_each(|waiter| waiter.send("ACQ4ANY Article:hot 1 65535 600\n"))?;
        thread::sleep(Duration::from_millis(500));
        let witness = Witness::start(daemon.server.address)?;
        worker.ask("RELEASE\n", 1)?;
        waiters.iter_mut().try_for_each(|waiter| waiter.hear().map(drop))?;
        Ok(witness.end()?.into())
    })
}

/// Measures the latency of other clients while the metrics of very many keys are scraped.
fn metrics_of_keys(settings: &Settings) -> Case<'_> {
    let keys = size(1_000_000, settings);
    let figures = vec![figure("others wait ms, p99", AtMost(5.0)), figure("others wait ms at most", Nothing)];
    hostile(format!("/metrics with {keys} keys"), figures, move || {
        let http = unused_address()?;
        let address = http.to_string();
        let options = [&MANY_LOCKS[..], &["--http", &address]].concat();
        let daemon = Daemon::start("memory", &options, settings)?;
        let _holders = hold_many(&daemon, keys)?;
        let witness = Witness::start(daemon.server.address)?;
        for _ in 0..size(20, settings) {
            let mut scraper = Line::connect(http)?;
            scraper.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
            while !scraper.hear()?.is_empty() {}
        }
        Ok(witness.end()?.into())
    })
}

/// Measures the longest latency of a client of the pools over an upgrade with very many members.
fn members(settings: &Settings) -> Case<'_> {
    let count = size(1_000_000, settings);
    let figures = vec![figure("others wait ms at most", AtMost(190.0))];
    hostile(format!("upgrade with {count} members"), figures, move || {
        let daemon = Daemon::start("memory", &[], settings)?;
        let mut provider = Line::connect(daemon.members)?;
        provider.ask("POOL db 0 1000000\nPROVIDE db 1000000\n", 2)?;
        provider.ask_many(count, 1, |n| format!("OFFER db member-{n:07}\n"))?;
        Ok(vec![over_an_upgrade(&daemon, settings)?])
    })
}

/// Measures the longest latency of a client of the pools over an upgrade with very many counters.
fn counters(settings: &Settings) -> Case<'_> {
    let count = size(3_000_000, settings);
    let figures = vec![figure("others wait ms at most", AtMost(270.0))];
    hostile(format!("upgrade with {count} counters"), figures, move || {
        let daemon = Daemon::start("memory", &["--counter-max-memory", "4000"], settings)?;
        Line::connect(daemon.counters)?;
        let _holder = million::fill(daemon.counters, count)?;
        Ok(vec![over_an_upgrade(&daemon, settings)?])
    })
}

fn over_an_upgrade(daemon: &Daemon, settings: &Settings) -> io::Result<f64> {
    let witness = Witness::start(daemon.server.address)?;
    daemon.server.upgrade()?;
    thread::sleep(if settings.is_rehearsal { Duration::from_millis(200) } else { AFTERWARDS });
    Ok(witness.end()?[1])
}

/// Measures the latencies of a client of the pools over an upgrade, after a start, and while a runner with very many
/// reserved jobs closes: with jobs in SQLite.
fn jobs_in_a_file(settings: &Settings) -> Case<'_> {
    let jobs = size(2_000_000, settings);
    let figures = vec![
        figure("upgrade: others wait ms at most", AtMost(150.0)),
        figure("start: others wait ms at most", AtMost(50.0)),
        figure("holder leaves: others wait ms, p99", AtMost(5.0)),
    ];
    hostile(format!("{jobs} jobs in SQLite"), figures, move || {
        let directory = Directory::new()?;
        let store = format!("sqlite:{}/jobs.db", directory.path().display());
        let daemon = Daemon::start(&store, &["--jobs-max-memory", "4000"], settings)?;
        let body = format!("put 1 0 600 100\r\n{}\r\n", "x".repeat(100));
        let address = daemon.jobs;
        let fill = |_| {
            let body = body.clone();
            thread::spawn(move || Line::connect(address)?.ask_many(jobs / 8, 1, |_| body.clone()))
        };
        for thread in (0..8).map(fill).collect::<Vec<_>>() {
            thread.join().map_err(|_| Error::other("a producer panics"))??;
        }
        let upgrade = over_an_upgrade(&daemon, settings)?;
        daemon.server.stop()?;
        let daemon = Daemon::start(&store, &["--jobs-max-memory", "4000"], settings)?;
        let witness = Witness::start(daemon.server.address)?;
        thread::sleep(if settings.is_rehearsal { Duration::from_millis(200) } else { AFTERWARDS });
        let start = witness.end()?[1];
        let mut runner = Line::connect(daemon.jobs)?;
        for _ in 0..jobs / 1_000 {
            runner.send("reserve-many 1000 0\r\n")?;
            while !runner.hear()?.starts_with("END") {}
        }
        let witness = Witness::start(daemon.server.address)?;
        drop(runner);
        thread::sleep(if settings.is_rehearsal { Duration::from_millis(100) } else { AFTERWARDS });
        Ok(vec![upgrade, start, witness.end()?[0]])
    })
}

fn figure(name: &'static str, wanted: Wanted) -> Figure {
    Figure { name, wanted, against: None }
}

/// Returns a case that starts its own daemon, once.
fn hostile<'a>(name: String, figures: Vec<Figure>, measure: impl Fn() -> io::Result<Values> + 'a) -> Case<'a> {
    Case { name, programs: installed(&[Program::Ours]), rounds: 1, figures, measure: Box::new(move |_| measure()) }
}

fn size(wanted: usize, settings: &Settings) -> usize {
    if settings.is_rehearsal { wanted.min(8) } else { wanted }
}
