//! Random tests: their seeds, played on all cores.
//!
//! A test run plays the seeds of `tests/seeds.txt`, which has each seed that ever failed, and the numbers from 1 on, so
//! that a commit has the same verdict everywhere. `SIM_SEED` is a first seed instead, with `SIM_SEEDS` (1) as the
//! number of seeds and `SIM_STEPS` as the length of each history. `EXPLORE_SECONDS` is the time in which all random
//! tests together play new seeds: a seed that fails is shortened, printed, and appended to the file.

use crate::random::{Random, setting};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/seeds.txt");
const LINES: &str = include_str!("../../tests/seeds.txt");

/// A random test.
struct Test {
    name: &'static str,
    /// Number of seeds in a test run, beside the seeds of the file.
    seeds: u64,
    /// Length of a history; 0 if the length is fixed.
    steps: u64,
}

const fn test(name: &'static str, seeds: u64, steps: u64) -> Test {
    Test { name, seeds, steps }
}

/// Every random test. `play` refuses other names.
const TESTS: &[Test] = &[
    test("simulation", 64, 400),
    test("corpus", 100, 0),
    test("restores", 16, 300),
    test("restores-near-the-end", 4, 300),
    test("crowds", 2, 40),
    test("farm", 1, 0),
    test("members", 75, 400),
    test("members-restarts", 40, 400),
    test("members-promises", 60, 400),
    test("members-model", 75, 1_500),
    test("jobs", 75, 250),
    test("jobs-model", 75, 1_500),
    test("jobs-store", 75, 150),
    test("jobs-store-upgrades", 75, 150),
    test("jobs-batches", 10, 120),
    test("jobs-batches-postgres", 2, 120),
    test("jobs-crashes", 10, 0),
    test("jobs-shrinking", 4, 0),
    test("jobs-power", 6, 0),
    test("jobs-disk", 6, 0),
    test("jobs-kills", 1, 20),
    test("jobs-owners", 20, 500),
    test("tls-handshakes", 100, 0),
    test("admin-bytes", 200, 0),
];

/// A history that a random test plays.
#[derive(Clone, Copy, Debug)]
pub struct History {
    pub seed: u64,
    /// Number of steps, or of bytes of random choices.
    pub steps: u64,
}

impl History {
    /// Returns as many random bytes as the history has steps.
    pub fn bytes(self) -> Vec<u8> {
        let mut random = Random::new(self.seed);
        (0..self.steps).map(|_| random.below(256) as u8).collect()
    }
}

/// Returns the sums of the counts of several histories.
pub fn sum<K: Ord>(tallies: Vec<BTreeMap<K, u64>>) -> BTreeMap<K, u64> {
    let mut sums = BTreeMap::new();
    for (key, count) in tallies.into_iter().flatten() {
        *sums.entry(key).or_insert(0) += count;
    }
    sums
}

/// Plays the seeds of a random test, several at a time, and returns the results in the order of the seeds. A history
/// fails if `run` panics.
///
/// # Panics
///
/// If a history fails. The commands that replay the failures are printed.
pub fn play<T: Send>(name: &str, run: impl Fn(History) -> T + Sync) -> Vec<T> {
    let test = TESTS.iter().find(|test| test.name == name).expect("TESTS has a row for each random test");
    let thread = thread::current();
    let path = thread.name().unwrap_or("main");
    assert!(path == "main" || path.contains("random"), "the explorer finds random tests by this word in their names");
    let failures = Mutex::new(Vec::new());
    let mut results = on_all_cores(&plan(test), |history| {
        let result = catch_unwind(AssertUnwindSafe(|| run(history)));
        if result.is_err() {
            let History { seed, steps } = history;
            println!("SIM_SEED={seed:#x} SIM_STEPS={steps} replays this failure of {name}");
            failures.lock().expect("its holders do not panic").push(history);
        }
        result.ok()
    });
    let failures = failures.into_inner().expect("its holders do not panic");
    if is_exploring() {
        failures.iter().for_each(|failure| keep(test, shortest(*failure, &run)));
    }
    assert!(failures.is_empty(), "{name}: {failures:?} of {} histories failed", results.len());
    println!("{name}: {} histories", results.len());
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().filter_map(|(_, result)| result).collect()
}

/// Histories by their numbers, until there are no more.
type Plan = Box<dyn Fn(u64) -> Option<History> + Sync>;

fn plan(test: &Test) -> Plan {
    let steps = setting("SIM_STEPS", test.steps);
    let numbered = move |first: u64, number: u64| History { seed: first.wrapping_add(number), steps };
    if is_exploring() {
        let share = Duration::from_secs(setting("EXPLORE_SECONDS", 0)) / TESTS.len() as u32;
        let end = Instant::now() + share;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("the clock is set");
        let first = now.as_micros() as u64;
        return Box::new(move |number| (Instant::now() < end).then(|| numbered(first, number)));
    }
    if std::env::var_os("SIM_SEED").is_some() {
        let (first, seeds) = (setting("SIM_SEED", 1), setting("SIM_SEEDS", 1));
        return Box::new(move |number| (number < seeds).then(|| numbered(first, number)));
    }
    let mut histories: Vec<History> = (0..test.seeds).map(|number| numbered(1, number)).collect();
    histories.extend(failed_before(test.name));
    Box::new(move |number| histories.get(number as usize).copied())
}

/// Returns whether this run looks for new failures.
pub fn is_exploring() -> bool {
    std::env::var_os("EXPLORE_SECONDS").is_some()
}

/// Runs each history of the plan, and returns the results with the numbers of the histories.
fn on_all_cores<T: Send>(plan: &Plan, run: impl Fn(History) -> T + Sync) -> Vec<(u64, T)> {
    let (next, results) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(history) = plan(number) else { return };
                    let result = run(history);
                    results.lock().expect("its holders do not panic").push((number, result));
                }
            });
        }
    });
    results.into_inner().expect("its holders do not panic")
}

/// Returns the histories that the file has for a test. A line has the test, the seed, the steps, the day on which it
/// failed, and the reason.
fn failed_before(name: &str) -> Vec<History> {
    let lines = LINES.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let parsed = lines.map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [test, seed, steps, _since, _why, ..] = words[..] else { panic!("tests/seeds.txt: {line}") };
        assert!(TESTS.iter().any(|known| known.name == test), "tests/seeds.txt: no random test is called {test}");
        let seed = seed.strip_prefix("0x").map_or_else(|| seed.parse(), |digits| u64::from_str_radix(digits, 16));
        let (Ok(seed), Ok(steps)) = (seed, steps.parse()) else { panic!("tests/seeds.txt: {line}") };
        (test, History { seed, steps })
    });
    parsed.filter(|(test, _)| *test == name).map(|(_, history)| history).collect()
}

/// Returns the shortest beginning of a history that fails, by bisection.
fn shortest<T>(failure: History, run: &impl Fn(History) -> T) -> History {
    let (mut passes, mut fails) = (0, failure.steps);
    while passes + 1 < fails {
        let steps = passes.midpoint(fails);
        match catch_unwind(AssertUnwindSafe(|| run(History { steps, ..failure }))) {
            Ok(_) => passes = steps,
            Err(_) => fails = steps,
        }
    }
    History { steps: fails, ..failure }
}

/// Appends a failure to the file.
fn keep(test: &Test, History { seed, steps }: History) {
    let today = Command::new("date").arg("+%F").output().expect("every system has it").stdout;
    let line = format!("{} {seed:#x} {steps} {} found by exploring", test.name, String::from_utf8_lossy(&today).trim());
    println!("{line}");
    let file = OpenOptions::new().append(true).open(FILE);
    file.and_then(|mut file| writeln!(file, "{line}")).expect("tests/seeds.txt can be written");
}
