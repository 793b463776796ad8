//! Cases of jobs in a PostgreSQL database: against the same daemon with a file of its own, and against the field's
//! usual queue on the same server. All servers share one core; the load has the other.

use super::cases;
use super::clients::Clients;
use super::disk::Directory;
use super::durable::{self, Done};
use super::inbox;
use super::jobs::{few, stock};
use super::machine;
use super::queues::{self, BODY, Cycle, Filling};
use super::report::{Case, Figure, Values, Wanted};
use super::server::{Program, Server};
use super::settings::Settings;
use super::skip_locked::{self, Load};
use poolcounter_testkit::postgres::{Cluster, programs};
use std::cell::OnceCell;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use Program::{Ours, OursInSqlite, SkipLocked};
use Wanted::{Nothing, RatioAtLeast, RatioAtMost};

/// Usual tuning of a server of this size; durability is not weakened. Tables that grow and shrink so fast need to be
/// vacuumed more often than once a minute.
const SETTINGS: [&str; 5] = [
    "shared_buffers=1GB",
    "max_wal_size=8GB",
    "checkpoint_timeout=30min",
    "autovacuum_naptime=5s",
    "autovacuum_vacuum_cost_delay=0",
];
/// Longest time until the daemon owns the jobs.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);

/// Returns all cases, in the order of the table.
pub fn all<'a>(database: &'a Database, settings: &'a Settings) -> Vec<Case<'a>> {
    if programs().is_none() {
        super::skipped("jobs in PostgreSQL: Debian's package postgresql is not installed");
        return Vec::new();
    }
    let loads = [(1, 1), (16, 1), (64, 1), (1_000, 1), (64, 10)];
    let puts = loads.map(|(clients, depth)| case(true, (clients, depth), database, settings));
    let inbox = inbox_case(database, settings);
    puts.into_iter()
        .chain([inbox])
        .chain(loads.map(|(clients, depth)| case(false, (clients, depth), database, settings)))
        .collect()
}

fn case<'a>(
    is_put: bool,
    (clients, depth): (usize, usize),
    database: &'a Database,
    settings: &'a Settings,
) -> Case<'a> {
    let clients = settings.connections(clients);
    // Clients that reserve many at once need more in a rehearsal.
    let stock = if is_put { 0 } else { stock(settings).max(1_000 * depth) };
    let load = Load { is_put, clients, depth, stock, body_bytes: BODY.len() };
    let what = if is_put { "put" } else { "reserve + delete" };
    let many = if depth == 1 { clients.to_string() } else { format!("{clients} x {depth}") };
    let is_compared = (clients, depth) == (64, 1);
    let (fast, cheap) = if is_compared { (RatioAtLeast(5.0), RatioAtMost(0.33)) } else { (Nothing, Nothing) };
    let figures = vec![
        Figure { name: "jobs/s", wanted: fast, against: Some(SkipLocked) },
        Figure { name: "jobs/s", wanted: Nothing, against: Some(OursInSqlite) },
        Figure { name: "database CPU us/job", wanted: cheap, against: Some(SkipLocked) },
        Figure { name: "daemon CPU us/job", wanted: Nothing, against: Some(OursInSqlite) },
        Figure { name: "changes a commit", wanted: Nothing, against: None },
    ];
    let programs = cases::installed(&[Ours, OursInSqlite, SkipLocked]);
    let measure = move |program| measure(program, load, database, settings);
    let name = format!("postgres, {what}, {many}");
    few(Case { name, programs, rounds: settings.rounds, figures, measure: Box::new(measure) })
}

/// Rows that applications insert with their own data.
fn inbox_case<'a>(database: &'a Database, settings: &'a Settings) -> Case<'a> {
    let figures = vec![
        Figure { name: "row waits ms, median", wanted: Nothing, against: Some(SkipLocked) },
        Figure { name: "row waits ms, p99", wanted: Wanted::AtMost(50.0), against: Some(SkipLocked) },
        Figure { name: "row waits ms, most", wanted: Nothing, against: Some(SkipLocked) },
    ];
    let measure = move |program| measure_inbox(program, database, settings);
    let programs = cases::installed(&[Ours, SkipLocked]);
    few(Case {
        name: "postgres, inbox, 1000 rows/s".into(),
        programs,
        rounds: settings.rounds,
        figures,
        measure: Box::new(measure),
    })
}

fn measure_inbox(program: Program, database: &Database, settings: &Settings) -> io::Result<Values> {
    let cluster = start(database, settings)?;
    let schema = next_schema();
    let say = |sql: &str| cluster.try_query(&schema, sql).map_err(io::Error::other);
    let measured = if program == SkipLocked {
        say(&format!("CREATE SCHEMA {schema}"))?;
        say(skip_locked::TABLES)?;
        let url = cluster.url_at(&schema, cluster.port);
        inbox::measure(cluster, &schema, skip_locked::PUT, settings, |taken| {
            inbox::poll(&url, skip_locked::CLAIM, taken);
            Ok(())
        })
    } else {
        let server = Server::start_with_store(&cluster.url(&schema), settings)?;
        await_owner(&server)?;
        const INSERT: &str = "INSERT INTO inbox (tube, body) VALUES ('default', $1)";
        inbox::measure(cluster, &schema, INSERT, settings, |taken| inbox::reserve(server.address, taken))
    };
    say(&format!("DROP SCHEMA {schema} CASCADE"))?;
    measured
}

fn next_schema() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("bench_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Database of all cases, which the first of them starts.
pub type Database = OnceCell<Cluster>;

fn measure(program: Program, load: Load, database: &Database, settings: &Settings) -> io::Result<Values> {
    if program == OursInSqlite {
        let directory = Directory::new()?;
        let server = Server::start_durable(Ours, directory.path(), settings)?;
        fill(&server, load)?;
        let done = play(&server, load, settings)?;
        return Ok(values(&done, f64::NAN));
    }
    let cluster = start(database, settings)?;
    let schema = next_schema();
    if program == SkipLocked {
        let [speed, cost] = skip_locked::measure(cluster, &schema, load, settings)?;
        return Ok(vec![speed, speed, cost, f64::NAN, f64::NAN]);
    }
    let server = Server::start_with_store(&cluster.url(&schema), settings)?;
    await_owner(&server)?;
    fill(&server, load)?;
    let say = |sql: &str| cluster.try_query(&schema, sql).map_err(io::Error::other);
    say("VACUUM ANALYZE job")?;
    say("CHECKPOINT")?;
    let used = machine::family_time(cluster.pid())?;
    let done = play(&server, load, settings)?;
    let used = machine::family_time(cluster.pid())?.saturating_sub(used);
    drop(server);
    say(&format!("DROP SCHEMA {schema} CASCADE"))?;
    Ok(values(&done, used.as_secs_f64() * 1e6 / done.jobs))
}

fn values(done: &Done, database_us: f64) -> Values {
    vec![done.speed, done.speed, database_us, done.cost, done.store.changes / done.store.batches]
}

fn start<'a>(database: &'a Database, settings: &Settings) -> io::Result<&'a Cluster> {
    if let Some(cluster) = database.get() {
        return Ok(cluster);
    }
    let start = || Cluster::start(&SETTINGS);
    let cluster = settings.cores.map_or_else(|| Ok(start()), |cores| cores.on_server_core(start))?;
    Ok(database.get_or_init(|| cluster))
}

/// Waits until the daemon owns the jobs; until then it closes each connection.
fn await_owner(server: &Server) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Clients::connect(server, 1).and_then(|mut clients| clients.ask(0, b"list-tube-used\r\n")) {
            Ok(reply) if reply.starts_with(b"USING") => return Ok(()),
            _ if Instant::now() > deadline => return Err(io::Error::other("the daemon does not get the jobs")),
            _ => thread::sleep(PAUSE),
        }
    }
}

fn fill(server: &Server, load: Load) -> io::Result<()> {
    queues::fill(server, &Filling { jobs: load.stock, ..Filling::default() })
}

fn play(server: &Server, load: Load, settings: &Settings) -> io::Result<Done> {
    let Load { is_put, clients, depth, .. } = load;
    let (cycle, replies) = if is_put { (Cycle::puts(clients), 1) } else { (Cycle::reserves(clients), 2) };
    durable::play(server, (clients, replies), &mut cycle.pipelined(depth), settings)
}
