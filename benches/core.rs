//! Cost of the daemon's internals without sockets, at few and at very many keys, waiters, timers and members:
//! nanoseconds per operation by size. The cost may grow by cache misses, and for no other reason.
//!
//! `BENCH_SECONDS` is the time for each cell of the table, `BENCH_CASES` chooses lines by words of their names.

#[path = "core/members.rs"]
mod members;
#[path = "daemon/random.rs"]
mod random;
mod results;

use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::names::{Hash, Names};
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::{Owner, TimerId, Wheel};
use poolcounter_pools::{AcquireLock, PoolsSettings, PoolsState, PoolsStep, Purpose, Reply, TakenBack, WhichKeys};
use poolcounter_protocol::pools::wire;
use random::Random;
use results::{CaseResult, FigureResult, Run};
use std::env;
use std::hint::black_box;
use std::io;
use std::time::{Duration, Instant};

const OWNER: Owner = Owner(0);
/// Operations between two readings of the clock.
const BATCH: usize = 1_000;

/// Time at which all waits end: later than any benchmark comes, with a microsecond for each step.
const WAITS_END: Time = Time::from_micros(3_600_000_000);
/// Time between two steps of the pools.
const STEP: Span = Span::from_micros(1);

/// Line of a table: its name, and a function from a size to nanoseconds.
type Line = (&'static str, fn(usize, Duration) -> f64);

const LINES: [Line; 12] = [
    ("parse a line", parse),
    ("find a name", find_name),
    ("insert and remove a name", insert_name),
    ("acquire and release a new key", lock_new_key),
    ("acquire and release a live key", lock_live_key),
    ("hand over, and wait again", hand_over),
    ("wake one of all who wait for a key", wake),
    ("arm and cancel a timer", arm_and_cancel),
    ("arm and expire a timer", arm_and_expire),
    ("time out one wait of all, due in one ms", time_out),
    ("the longest step of that", longest_time_out),
    ("find the 20 busiest of all keys", busiest),
];

/// Tables with their lines and their sizes.
const TABLES: [(&str, &[Line], &[usize]); 2] =
    [("core", &LINES, &[1_000, 100_000, 1_000_000]), ("core members", &members::LINES, &[10, 1_000, 100_000])];

fn main() -> io::Result<()> {
    let is_rehearsal = !env::args().any(|argument| argument == "--bench");
    let seconds = env::var("BENCH_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let seconds = seconds.unwrap_or(if is_rehearsal { 0.0 } else { 0.3 });
    let filter = env::var("BENCH_CASES").unwrap_or_default();
    let mut run = Run::begin(format!("Nanoseconds, the median batch of {seconds} s"));
    if !is_rehearsal {
        println!("{}\n", run.conditions.describe());
    }
    for (table, lines, sizes) in TABLES {
        let is_wanted = |name: &str| filter.split(',').any(|word| table.contains(word) || name.contains(word));
        for (name, measure) in lines.iter().filter(|(name, _)| is_wanted(name)) {
            // The results of a rehearsal mean nothing.
            let sizes = if is_rehearsal { &[1, 100] } else { sizes };
            let time = Duration::from_secs_f64(seconds);
            let columns = sizes.iter().map(|size| (size.to_string(), vec![Some(measure(*size, time))])).collect();
            let figure =
                FigureResult { name: "ns".into(), wanted: String::new(), is_met: None, against: None, columns };
            let case = CaseResult { table: table.into(), name: (*name).into(), figures: vec![figure] };
            if !is_rehearsal {
                case.print();
            }
            run.cases.push(case);
        }
    }
    if is_rehearsal {
        println!("rehearsed {} benchmarks; make bench measures", run.cases.len());
    } else if !run.cases.is_empty() {
        println!("\nResults: {}", run.save("core")?.display());
    }
    Ok(())
}

/// Returns the nanoseconds of an operation that leaves everything as it was: the median batch.
fn steady(time: Duration, mut operation: impl FnMut()) -> f64 {
    whole(time, BATCH, || (), |()| (0..BATCH).for_each(|_| operation()))
}

/// Returns the nanoseconds of one of the `count` operations of `run`: the median run. `prepare` is not measured.
fn whole<T>(time: Duration, count: usize, mut prepare: impl FnMut() -> T, mut run: impl FnMut(T)) -> f64 {
    let start = Instant::now();
    let mut runs = Vec::new();
    while runs.is_empty() || start.elapsed() < time {
        let prepared = prepare();
        let begin = Instant::now();
        run(prepared);
        runs.push(begin.elapsed().as_nanos() as f64 / count as f64);
    }
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 2]
}

fn parse(size: usize, time: Duration) -> f64 {
    let lines: Vec<Vec<u8>> = names(size).map(|name| [b"ACQ4ANY ", name.as_slice(), b" 2 100 5"].concat()).collect();
    let mut random = Random::new(1);
    steady(time, || {
        black_box(wire::parse(&lines[pick(&mut random, size)]));
    })
}

fn find_name(size: usize, time: Duration) -> f64 {
    let keys: Vec<Vec<u8>> = names(size).collect();
    let (table, _) = table_of(&keys);
    let mut random = Random::new(1);
    steady(time, || {
        let name = &keys[pick(&mut random, size)];
        black_box(table.find(table.hash(name), |key| keys[key.index()] == *name));
    })
}

fn insert_name(size: usize, time: Duration) -> f64 {
    let keys: Vec<Vec<u8>> = names(size + 1).collect();
    let (mut table, hashes) = table_of(&keys[..size]);
    steady(time, || {
        let hash = table.hash(&keys[size]);
        table.insert(hash, id(size), |key| hashes[key.index()]);
        table.remove(hash, id(size));
    })
}

/// Returns a table of these names, and their hashes.
fn table_of(names: &[Vec<u8>]) -> (Names<ConnId>, Vec<Hash>) {
    let mut table = Names::default();
    let hashes: Vec<Hash> = names.iter().map(|name| table.hash(name)).collect();
    hashes.iter().enumerate().for_each(|(n, hash)| table.insert(*hash, id(n), |key: ConnId| hashes[key.index()]));
    (table, hashes)
}

fn lock_new_key(size: usize, time: Duration) -> f64 {
    let mut rig = Rig::with_keys(size);
    steady(time, || {
        rig.acquire(size, b"Article:new", Purpose::Me);
        rig.release(size);
    })
}

fn lock_live_key(size: usize, time: Duration) -> f64 {
    let mut rig = Rig::with_keys(size);
    let keys: Vec<Vec<u8>> = names(size).collect();
    let mut random = Random::new(1);
    rig.workers = 2;
    steady(time, || {
        rig.acquire(size, &keys[pick(&mut random, size)], Purpose::Me);
        rig.release(size);
    })
}

fn hand_over(size: usize, time: Duration) -> f64 {
    let mut rig = Rig::with_waiters(size, Purpose::Me);
    let mut holder = 0;
    steady(time, || {
        rig.release(holder);
        rig.acquire(holder, b"Article:hot", Purpose::Me);
        holder = (holder + 1) % (size + 1);
    })
}

fn wake(size: usize, time: Duration) -> f64 {
    let everyone = || Rig::with_waiters(size, Purpose::Anyone);
    whole(time, size, everyone, |mut rig| {
        rig.release(0);
        rig.step(PoolsState::finish);
        assert_eq!(rig.replies.len(), size + 1, "everyone is told");
    })
}

fn arm_and_cancel(size: usize, time: Duration) -> f64 {
    let (mut wheel, mut random) = (Wheel::default(), Random::new(1));
    let _armed: Vec<TimerId> = (0..size).map(|n| arm(&mut wheel, &mut random, n)).collect();
    steady(time, || {
        let timer = arm(&mut wheel, &mut random, size);
        wheel.of::<ConnId>(OWNER).cancel(timer);
    })
}

fn arm_and_expire(size: usize, time: Duration) -> f64 {
    let mut random = Random::new(1);
    whole(time, size, Wheel::default, |mut wheel| {
        (0..size).for_each(|n| arm(&mut wheel, &mut random, n).fired());
        let mut due = 0;
        while let Some(at) = wheel.next() {
            due += std::iter::from_fn(|| wheel.expire(at)).count();
        }
        assert_eq!(due, size, "every timer fires");
    })
}

fn time_out(size: usize, time: Duration) -> f64 {
    let everyone = || Rig::with_waiters(size, Purpose::Me);
    whole(time, size, everyone, |mut rig| {
        while rig.time_out_one() {}
        assert_eq!(rig.replies.last(), Some(&(id(size), Reply::Timeout)), "everyone is told, in order");
    })
}

fn longest_time_out(size: usize, _: Duration) -> f64 {
    let (mut rig, mut longest) = (Rig::with_waiters(size, Purpose::Me), Duration::ZERO);
    loop {
        rig.replies.clear();
        let begin = Instant::now();
        let is_left = rig.time_out_one();
        longest = longest.max(begin.elapsed());
        if !is_left {
            return longest.as_nanos() as f64;
        }
    }
}

fn busiest(size: usize, time: Duration) -> f64 {
    let rig = Rig::with_keys(size);
    whole(time, 1, || (), |()| assert_eq!(black_box(rig.state.busiest(20, WhichKeys::All)).len(), size.min(20)))
}

/// The pools, with the parts of the loop that they need.
struct Rig {
    state: PoolsState,
    wheel: Wheel,
    replies: Vec<(ConnId, Reply)>,
    taken_back: Vec<TakenBack>,
    now: Time,
    workers: u32,
}

impl Rig {
    fn new() -> Rig {
        let (state, wheel) = (PoolsState::new(PoolsSettings::default()), Wheel::default());
        Rig { state, wheel, replies: Vec::new(), taken_back: Vec::new(), now: Time::START, workers: 1 }
    }

    /// Returns pools in which each of `size` connections holds a key of its own.
    fn with_keys(size: usize) -> Rig {
        let mut rig = Rig::new();
        names(size).enumerate().for_each(|(n, key)| rig.acquire(n, &key, Purpose::Me));
        rig
    }

    /// Returns pools in which connection 0 holds a key for which `size` connections wait.
    fn with_waiters(size: usize, purpose: Purpose) -> Rig {
        let mut rig = Rig::new();
        (0..=size).for_each(|n| rig.acquire(n, b"Article:hot", purpose));
        rig
    }

    fn acquire(&mut self, conn: usize, key: &[u8], purpose: Purpose) {
        let timeout = WAITS_END.since(self.now + STEP);
        let mut request = AcquireLock {
            key,
            purpose,
            workers: self.workers,
            max_queue: u32::MAX,
            timeout,
            hold: Span::FOREVER,
            keep: Span::ZERO,
            who: b"",
            also: Vec::new(),
        };
        self.replies.clear();
        self.step(|state, step| state.acquire(id(conn), Ok(&mut request), step));
    }

    /// Fires the next timer of the time at which all waits end, and returns whether one is left.
    fn time_out_one(&mut self) -> bool {
        self.now = WAITS_END;
        if let Some(due) = self.wheel.expire(WAITS_END) {
            self.step(|state, step| state.expire(due.key(), step));
        }
        self.wheel.next().is_some_and(|at| at <= WAITS_END)
    }

    fn release(&mut self, conn: usize) {
        self.replies.clear();
        self.step(|state, step| state.release(id(conn), None, step));
    }

    fn step(&mut self, take: impl FnOnce(&mut PoolsState, &mut PoolsStep<'_, '_>)) {
        self.now = self.now + STEP;
        let (timers, replies) = (&mut self.wheel.of(OWNER), &mut self.replies);
        let mut step = PoolsStep { now: self.now, timers, replies, taken_back: &mut self.taken_back };
        take(&mut self.state, &mut step);
        self.state.end_turn();
    }
}

/// Arms a timer that is due within the next minute, as most are.
fn arm(wheel: &mut Wheel, random: &mut Random, n: usize) -> TimerId {
    wheel.of(OWNER).arm(Time::from_micros((random.fraction() * 60e6) as u64), id(n))
}

fn names(count: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|n| format!("ArticleView:enwiki:{n}").into_bytes())
}

fn id(n: usize) -> ConnId {
    ConnId::from_index(n)
}

fn pick(random: &mut Random, size: usize) -> usize {
    (random.fraction() * size as f64) as usize
}
