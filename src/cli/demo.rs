//! `demo`: a daemon with all services in memory, and clients that use it, in one process. The end of the process, by
//! Ctrl-C say, leaves nothing behind.

use super::command::{Exit, Failure};
use super::options::{DaemonSettings, described};
use super::serve::start;
use super::servers::TIMEOUTS;
use super::table::{Given, WordsAllowed};
use super::terminal::{print, warn};
use crate::services::SERVICES;
use poolcounter_client::{
    Client, Condition, Counters, Error, Limits, MediaWiki, Members, NewJob, Offered, Outcome, Producer, Provider,
    Purpose, Reservation, Role, Runner, Schedule, ScheduleTimes, TakeOutcome, TaskResult, Wanted,
};
use poolcounter_service::options::Opt;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::TcpListener;
use std::process::{ExitCode, exit};
use std::thread;
use std::time::Duration;

/// Options of the command.
pub const OPTIONS: &[Opt<()>] = &[];

/// Time after which a client that has failed tries again.
const PAUSE: Duration = Duration::from_millis(500);

/// Addresses of the services, by name.
type Addresses = BTreeMap<&'static str, String>;

/// Runs the command until a signal ends it.
///
/// # Errors
///
/// Fails if the daemon cannot start.
pub fn run(_given: &Given) -> Exit {
    let addresses: Addresses = SERVICES.iter().map(|info| (info.name, address(info.port))).collect();
    let mut server = start(&settings(&addresses)?)?;
    // The clients' threads leave signals to the loop, as they are blocked by now.
    thread::spawn(move || {
        let begun: Result<(), Failure> =
            fill(&addresses).map_err(|error| format!("the pool of accounts cannot be made: {error}").into());
        if let Err(failure) = begun.and_then(|()| print(&introduction(&addresses))) {
            warn(&failure.sentence);
            exit(1);
        }
        use_services(&addresses);
    });
    server.run().map_err(|error| format!("cannot wait for events: {error}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns an address of this machine: with this port, or a free one if it is in use.
fn address(port: u16) -> String {
    let listener = TcpListener::bind(("127.0.0.1", port)).or_else(|_| TcpListener::bind("127.0.0.1:0"));
    listener.and_then(|listener| listener.local_addr()).map_or(format!("127.0.0.1:{port}"), |it| it.to_string())
}

fn settings(addresses: &Addresses) -> Result<DaemonSettings, Failure> {
    let words = [
        ["--listen", &addresses["pools"]],
        ["--counter-listen", &addresses["counters"]],
        ["--members-listen", &addresses["members"]],
        ["--jobs-listen", &addresses["jobs"]],
        ["--http", &addresses["http"]],
        ["--jobs-store", "memory"],
        ["--members-store", "memory"],
    ];
    let words = words.iter().flatten().chain(&["--counter", "--members", "--jobs", "--http-admin"]);
    let words: Vec<OsString> = words.map(OsString::from).collect();
    DaemonSettings::without_file(&Given::read(&described(), WordsAllowed::None, &words).map_err(Failure::misuse)?)
}

/// Makes the pool of two accounts.
fn fill(addresses: &Addresses) -> Result<(), Error> {
    let members = members(addresses);
    let operator = members.operator();
    operator.declare("accounts", 0, 2, &[("clean_timeout", "30"), ("on_loss", "ok")])?;
    for name in ["account-1", "account-2"] {
        operator.add("accounts", &Offered { name: name.into(), attributes: Vec::new() })?;
    }
    Ok(())
}

fn members(addresses: &Addresses) -> Members {
    Members::with(MediaWiki::new([&addresses["members"]]), TIMEOUTS)
}

/// Starts the clients.
fn use_services(addresses: &Addresses) {
    for n in 0..4 {
        client(addresses, move |addresses| render_pages(addresses, n));
    }
    for n in 0..3 {
        client(addresses, move |addresses| test_with_accounts(addresses, n));
    }
    client(addresses, clean_accounts);
    client(addresses, transcode);
    client(addresses, put_jobs);
    client(addresses, run_jobs);
}

/// Starts a client. It is tried again after each failure, such as a lock that an operator has released.
fn client(addresses: &Addresses, serve: impl Fn(&Addresses) -> Result<(), Error> + Send + 'static) {
    let addresses = addresses.clone();
    thread::spawn(move || {
        loop {
            let _ = serve(&addresses);
            thread::sleep(PAUSE);
        }
    });
}

/// Returns a time that differs from round to round, from 100 to 900 ms.
fn time(round: u64) -> Duration {
    Duration::from_millis(100 + round.wrapping_mul(7919) % 800)
}

/// Renders pages, each of them once at a time.
fn render_pages(addresses: &Addresses, n: u64) -> Result<(), Error> {
    let client = Client::with(MediaWiki::new([&addresses["pools"]]), TIMEOUTS).named(&format!("web-{n}"));
    let limits =
        Limits { workers: 1, max_queue: 10, timeout: Duration::from_secs(5), hold: None, at_least: Duration::ZERO };
    for round in n.. {
        let page = ["page:Main", "page:Main", "page:Help", "page:News"][round as usize % 4];
        if let Outcome::Locked(lock) = client.acquire(Purpose::Anyone, page, &limits)? {
            thread::sleep(time(round));
            lock.release()?;
        }
        thread::sleep(time(round + 3) / 2);
    }
    Ok(())
}

/// Takes an account for each test.
fn test_with_accounts(addresses: &Addresses, n: u64) -> Result<(), Error> {
    let members = members(addresses).named(format!("ci-{n}"))?;
    let wanted = Wanted { timeout: Duration::from_secs(60), ..Wanted::default() };
    for round in n.. {
        if let TakeOutcome::Taken(taken) = members.take("accounts", &wanted)? {
            thread::sleep(5 * time(round));
            for member in taken {
                member.give_back(Condition::Ok)?;
            }
        }
    }
    Ok(())
}

/// Cleans the accounts after use.
fn clean_accounts(addresses: &Addresses) -> Result<(), Error> {
    let mut cleaner = Provider::connect(MediaWiki::new([&addresses["members"]]), TIMEOUTS, "accounts", Role::Cleaner)?;
    cleaner.serve(|_| {
        thread::sleep(Duration::from_secs(1));
        TaskResult::Done
    })?;
    Ok(())
}

/// Holds units of a counter.
fn transcode(addresses: &Addresses) -> Result<(), Error> {
    let counters = Counters::with(MediaWiki::new([&addresses["counters"]]), TIMEOUTS);
    for round in 0.. {
        if let Some(units) = counters.acquire("transcoders", 1 + round % 6, 10)? {
            thread::sleep(2 * time(u64::from(round)));
            units.release()?;
        }
    }
    Ok(())
}

/// Puts jobs, and has the daemon put one every 20 seconds.
fn put_jobs(addresses: &Addresses) -> Result<(), Error> {
    let producer = Producer::new([&addresses["jobs"]], TIMEOUTS);
    let job = NewJob { tube: Some("enwiki/report".into()), ..NewJob::new("daily figures") };
    let times = ScheduleTimes::Every(Duration::from_secs(20));
    producer.schedule_put(&Schedule { name: "report".into(), job, times, is_made_up: false })?;
    for round in 0u64.. {
        let tube = ["enwiki/sendMail", "enwiki/refreshLinks", "dewiki/sendMail"][round as usize % 3];
        let _ = producer.put(&NewJob { tube: Some(tube.into()), ..NewJob::new(format!("job {round}")) })?;
        thread::sleep(time(round));
    }
    Ok(())
}

/// Runs jobs. Some of them fail, and stay buried.
fn run_jobs(addresses: &Addresses) -> Result<(), Error> {
    let mut runner = Runner::new([&addresses["jobs"]], TIMEOUTS);
    runner.identify("runner-1")?;
    runner.watch("*/*", None)?;
    for round in 0u64.. {
        let Reservation::Reserved(job) = runner.reserve(Some(Duration::from_secs(1)))? else { continue };
        thread::sleep(time(round) / 2);
        match round % 25 {
            24 => runner.fail_and_bury(&job, None, "the mail server refuses the address")?,
            _ => runner.delete(&job)?,
        }
    }
    Ok(())
}

/// Returns what a person can try.
fn introduction(addresses: &Addresses) -> String {
    let text = include_str!("demo.txt").to_string();
    addresses.iter().fold(text, |text, (name, address)| text.replace(&format!("{{{name}}}"), address))
}
