//! Cases of jobs that outlive the server: against the speed of the disk, and against beanstalkd with a log that it
//! syncs for each job (`-f0`), or now and then (`-f50`, its default).

use super::checkpoints;
use super::clients::Clients;
use super::disk::{self, Directory};
use super::jobs::{few, stock};
use super::load::{self, Player};
use super::queues::{self, Cycle, Filling};
use super::report::{Case, Figure, Wanted};
use super::server::{Program, Server};
use super::settings::Settings;
use std::io;

use Program::{Beanstalkd, BeanstalkdLazy, Limit, Ours};
use Wanted::{AtLeast, AtMost, Nothing, RatioAtLeast};

/// Name of the thread that commits.
const THREAD: &str = "jobs-store";

/// Goals of one case.
#[derive(Clone, Copy)]
struct Goal {
    /// Speed as a multiple of that of beanstalkd with `-f0`, and of the disk.
    ratios: [Wanted; 2],
    jobs: Wanted,
    thread: Wanted,
}

const NO_GOAL: Goal = Goal { ratios: [Nothing; 2], jobs: Nothing, thread: Nothing };

/// Returns all cases, in the order of the table.
pub fn all(settings: &Settings) -> Vec<Case<'_>> {
    let at_64 = Goal { ratios: [RatioAtLeast(10.0), Nothing], ..NO_GOAL };
    let at_1000 = Goal { ratios: [Nothing, RatioAtLeast(0.5)], ..NO_GOAL };
    let deep = Goal { jobs: AtLeast(100_000.0), thread: AtMost(2.0), ..NO_GOAL };
    let alone = Goal { ratios: [RatioAtLeast(1.0), Nothing], ..NO_GOAL };
    vec![
        put((1, 1), alone, settings),
        put((16, 1), NO_GOAL, settings),
        put((64, 1), at_64, settings),
        put((1_000, 1), at_1000, settings),
        put((512, 1), Goal { thread: AtMost(2.0), ..NO_GOAL }, settings),
        put((16, 64), deep, settings),
        reserve(64, settings),
        mixed(64, settings),
        checkpoints(64, settings),
    ]
}

fn put((clients, depth): (usize, usize), goal: Goal, settings: &Settings) -> Case<'_> {
    let clients = settings.connections(clients);
    let name = match depth {
        1 => format!("durable put, {clients} clients"),
        _ => format!("durable put, {clients} x {depth}"),
    };
    let player = move || Cycle::puts(clients).pipelined(depth);
    durable(name, (clients, clients * depth, 1), goal, settings, player, 0)
}

fn reserve(clients: usize, settings: &Settings) -> Case<'_> {
    let (clients, stock) = (settings.connections(clients), stock(settings));
    let name = format!("durable reserve + delete, {clients}");
    durable(name, (clients, clients, 2), NO_GOAL, settings, move || Cycle::reserves(clients), stock)
}

fn mixed(clients: usize, settings: &Settings) -> Case<'_> {
    let (clients, stock) = (settings.connections(clients), stock(settings) / 10);
    let name = format!("durable mixed, {clients}");
    durable(name, (clients, clients, 3), NO_GOAL, settings, move || Cycle::with_priorities(clients), stock)
}

fn checkpoints(clients: usize, settings: &Settings) -> Case<'_> {
    let clients = settings.connections(clients);
    let figures = [
        ("commit ms, median", Nothing),
        ("put ms, median", Nothing),
        ("put ms, p99", Nothing),
        ("p99 in median commits", AtMost(3.0)),
        ("checkpoint ms, median", Nothing),
    ];
    let figures = figures.map(|(name, wanted)| Figure { name, wanted, against: None }).into();
    let name = format!("durable put of 4 KiB, {clients}");
    let measure = move |_| checkpoints::measure(clients, settings);
    few(Case { name, programs: vec![Ours], rounds: settings.rounds, figures, measure: Box::new(measure) })
}

/// Returns a case with this number of clients, requests under way, and replies a job.
fn durable<'a, P: Player + 'a>(
    name: String,
    (clients, outstanding, replies): (usize, usize, u32),
    goal: Goal,
    settings: &'a Settings,
    player: impl Fn() -> P + 'a,
    stock: usize,
) -> Case<'a> {
    let measure = move |program| {
        if program == Limit {
            let values = disk::measure(outstanding, settings)?;
            return Ok([&values[..1], &values].concat());
        }
        let directory = Directory::new()?;
        // To sync for each job of the stock would take minutes, so another server fills it.
        let filler = if program == Beanstalkd { BeanstalkdLazy } else { program };
        if stock > 0 {
            let server = Server::start_durable(filler, directory.path(), settings)?;
            queues::fill(&server, &Filling { jobs: stock, ..Filling::default() })?;
        }
        let server = Server::start_durable(program, directory.path(), settings)?;
        let Done { speed, cost, jobs, store } = play(&server, (clients, replies), &mut player(), settings)?;
        let commits = speed * store.batches / jobs;
        Ok(vec![speed, speed, cost, commits, store.changes / store.batches, store.thread_us / jobs])
    };
    let figures = vec![
        Figure { name: "jobs/s", wanted: goal.ratios[0], against: Some(Beanstalkd) },
        Figure { name: "jobs/s, and the disk", wanted: goal.ratios[1], against: Some(Limit) },
        Figure { name: "CPU us/job", wanted: Nothing, against: Some(Beanstalkd) },
        Figure { name: "commits/s", wanted: Nothing, against: Some(Limit) },
        Figure { name: "changes a commit", wanted: Nothing, against: None },
        Figure { name: "store thread us/job", wanted: goal.thread, against: None },
    ];
    let figures = match goal.jobs {
        Nothing => figures,
        wanted => {
            let mut figures = figures;
            figures[0] = Figure { name: "jobs/s", wanted, against: None };
            figures
        }
    };
    let programs = super::cases::installed(&[Ours, Limit, Beanstalkd, BeanstalkdLazy]);
    few(Case { name, programs, rounds: settings.rounds, figures, measure: Box::new(measure) })
}

/// Result of a steady load.
pub struct Done {
    /// Jobs a second.
    pub speed: f64,
    /// Server's processor time for each job, in microseconds.
    pub cost: f64,
    /// Number of jobs, including jobs before the measured time.
    pub jobs: f64,
    /// Work of the store for these jobs.
    pub store: Store,
}

/// Plays a load of this number of clients and replies a job.
pub fn play(
    server: &Server,
    (clients, replies): (usize, u32),
    player: &mut impl Player,
    settings: &Settings,
) -> io::Result<Done> {
    let before = Store::of(server)?;
    let speed = load::play(server, clients, player, settings)?;
    let store = Store::of(server)?.since(&before);
    let replies = f64::from(replies);
    Ok(Done { speed: speed[0] / replies, cost: speed[1] * replies, jobs: store.jobs(), store })
}

/// Work of a store, as far as the server reports it.
#[derive(Clone, Copy)]
pub struct Store {
    /// Number of jobs put, and of jobs deleted.
    jobs: [f64; 2],
    pub batches: f64,
    pub changes: f64,
    thread_us: f64,
}

impl Store {
    fn of(server: &Server) -> io::Result<Store> {
        if server.program != Ours {
            let unknown = f64::NAN;
            return Ok(Store { jobs: [unknown; 2], batches: unknown, changes: unknown, thread_us: unknown });
        }
        let reply = Clients::connect(server, 1)?.ask(0, b"stats\r\n")?;
        let text = String::from_utf8_lossy(&reply);
        let value = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")?.parse::<f64>().ok());
            value.ok_or_else(|| io::Error::other(format!("{name} is not in stats")))
        };
        Ok(Store {
            jobs: [value("total-jobs")?, value("cmd-delete")?],
            batches: value("store-batches")?,
            changes: value("store-changes")?,
            thread_us: server.thread_time(THREAD)?.as_secs_f64() * 1e6,
        })
    }

    fn since(&self, before: &Store) -> Store {
        Store {
            jobs: [0, 1].map(|kind| self.jobs[kind] - before.jobs[kind]),
            batches: self.batches - before.batches,
            changes: self.changes - before.changes,
            thread_us: self.thread_us - before.thread_us,
        }
    }

    /// Returns the number of jobs: each job of a case is put, deleted, or both.
    fn jobs(&self) -> f64 {
        self.jobs[0].max(self.jobs[1])
    }
}
