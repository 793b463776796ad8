//! The daemon against the bare limit of an event loop, the C daemon, redis, yrmcds and beanstalkd, in one run: `cargo
//! bench --bench daemon`.
//!
//! Each case has rounds in which the servers take turns; the median of each is printed, and the median of the rounds'
//! ratios. The values of all rounds are in a file, whose path comes last: `--tables FILE benches/README.md` makes the
//! tables of that document from it, and `--compare OLD NEW` prints the differences between two.
//!
//! `BENCH_SECONDS` and `BENCH_ROUNDS` set the amount of measuring, `BENCH_CASES` (words of the cases' names, between
//! commas) chooses cases, `BENCH_OPTIONS` has options of the daemon, `BENCH_DIRECTORY` the directory of durable jobs. The C
//! daemon (`poolcounterd`), `redis-server`, `yrmcdsd`, `beanstalkd`, PostgreSQL, `haproxy`, `stunnel` and
//! `valgrind` take part if they are installed.

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
mod inbox;
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
#[path = "../results/mod.rs"]
mod results;
mod scraping;
mod server;
mod settings;
mod skip_locked;
mod stampede;
#[path = "../results/tables.rs"]
mod tables;
mod timers;
mod tls;

use protocol::Protocol;
use results::Run;
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
    let words: Vec<&str> = arguments.iter().map(String::as_str).filter(|argument| *argument != "--bench").collect();
    match words[..] {
        ["--tables", run, document] => tables::write_tables(&tables::read(run.as_ref())?, document.as_ref())?,
        ["--compare", old, new] => {
            print!("{}", tables::compare(&tables::read(old.as_ref())?, &tables::read(new.as_ref())?));
        }
        _ => return measure(&Settings::read(&arguments)?),
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(settings: &Settings) -> io::Result<ExitCode> {
    let place = if settings.cores.is_some() { "servers on one core, load on another" } else { "all on one core" };
    let mut run =
        Run::begin(format!("Medians of {} rounds of {} s, {place}", settings.rounds, settings.time.as_secs_f64()));
    let database = OnceCell::new();
    let all = [
        ("pools", cases::all(settings)),
        ("counters", counters::all(settings)),
        ("members", members::all(settings)),
        ("jobs", jobs::all(settings)),
        ("durable", durable::all(settings)),
        ("postgres", postgres::all(&database, settings)),
        ("hostile", hostile::all(settings)),
        ("tls", tls::all(settings)),
    ];
    if !settings.is_rehearsal {
        println!("{}\n", run.conditions.describe());
    }
    let (mut has_failed, mut file) = (false, None);
    for (table, cases) in all {
        for case in cases.into_iter().filter(|case| settings.wants(&case.name)) {
            let (result, failed) = case.run(table);
            has_failed |= failed;
            // The results of a rehearsal mean nothing.
            if !settings.is_rehearsal {
                result.print();
            }
            run.cases.push(result);
            if !settings.is_rehearsal {
                file = Some(run.save("daemon")?);
            }
        }
    }
    match file {
        Some(path) => println!("\n{}\nResults: {}", run.conditions.describe(), path.display()),
        None => println!("rehearsed {} benchmarks; make bench measures", run.cases.len()),
    }
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Reports a skipped measurement, for code that is shared with the tests.
fn skipped(what: &str) {
    eprintln!("skipped: {what}");
}
