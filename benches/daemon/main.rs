//! The daemon against the bare limit of an event loop, the C daemon, redis, yrmcds and beanstalkd, in one run: `cargo bench --bench daemon`.
//!
//! Each case has rounds in which the servers take turns; the table shows the medians, and the median of the rounds' ratios.
//! `BENCH_SECONDS`, `BENCH_ROUNDS` and `BENCH_CASES` (words of the cases' names, between commas) say how much is measured,
//! `BENCH_OPTIONS` with which options the daemon runs, `BENCH_DIRECTORY` where durable jobs are kept.
//! The C daemon (`poolcounterd`), `redis-server`, `yrmcdsd`, `beanstalkd`, PostgreSQL, `haproxy`, `stunnel` and `valgrind` take part where they are installed.

mod cases;
mod checkpoints;
mod churn;
mod clients;
mod counters;
mod crowd;
mod deaths;
mod disk;
mod durable;
mod hostile;
mod instructions;
mod jobs;
mod leases;
mod limit;
mod load;
mod machine;
mod members;
mod memory;
mod million;
mod players;
mod postgres;
mod protocol;
mod queues;
mod random;
mod report;
mod scraping;
mod server;
mod settings;
mod skip_locked;
mod stampede;
mod timers;
mod tls;

use protocol::Protocol;
use settings::Settings;
use std::cell::OnceCell;
use std::env;
use std::io;
use std::process::ExitCode;

fn main() -> io::Result<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == server::LIMIT_ARGUMENT) {
        let has = |word| arguments.iter().any(|argument| argument == word);
        limit::serve(match (has(server::FRAMES_ARGUMENT), has(server::JOBS_ARGUMENT)) {
            (true, _) => Protocol::Frames,
            (_, true) => Protocol::Jobs,
            (false, false) => Protocol::Lines,
        })?;
    }
    let settings = Settings::read(&arguments)?;
    if !settings.is_rehearsal {
        print_conditions(&settings);
        report::print_head();
    }
    let (mut has_failed, mut count) = (false, 0);
    let services = counters::all(&settings).into_iter().chain(members::all(&settings)).chain(jobs::all(&settings));
    let database = OnceCell::new();
    let services = services
        .chain(durable::all(&settings))
        .chain(postgres::all(&database, &settings))
        .chain(hostile::all(&settings));
    let cases = cases::all(&settings).into_iter().chain(services).chain(tls::all(&settings));
    for case in cases.filter(|case| settings.wants(&case.name)) {
        let outcome = case.run();
        // What a rehearsal comes to means nothing.
        if !settings.is_rehearsal {
            outcome.print();
        }
        has_failed |= outcome.has_failed();
        count += 1;
    }
    if settings.is_rehearsal {
        println!("rehearsed {count} benchmarks; make bench measures");
    } else {
        println!("\nLoad average at the end: {}", machine::load_average());
    }
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Tells of what is not measured, for those who share the tests' code.
fn skipped(what: &str) {
    eprintln!("skipped: {what}");
}

fn print_conditions(settings: &Settings) {
    println!("{}", machine::describe());
    let place = match settings.cores {
        Some(_) => "servers on one core, load on another",
        None => "servers and load on one core",
    };
    let seconds = settings.time.as_secs_f64();
    println!("Medians of {} rounds of {seconds} s, {place}.", settings.rounds);
    println!("Load average at the start: {}\n", machine::load_average());
}
