//! Speed of the store on this machine: figures for people, from a release build.

use crate::jobs_store::kept::{EPOCH, load};
use crate::jobs_store::store::plain;
use crate::jobs_store::suite::sqlite;
use poolcounter_jobs::state::{Body, Commit, JobId, Stored};
use poolcounter_jobs::store::{Jobs, Store};
use poolcounter_testkit::scratch::Scratch;
use std::fs;
use std::time::Instant;

const BODY: [u8; 200] = [b'x'; 200];

fn put(store: &mut dyn Store<Jobs>, id: u64) {
    store.add(Stored::Put(plain(id), &mut Body::Own(BODY.into())));
}

/// Commits batches of puts, or of deletes, and prints the time that took.
fn run(
    store: &mut dyn Store<Jobs>,
    what: &str,
    batches: u64,
    size: u64,
    first: u64,
    add: fn(&mut dyn Store<Jobs>, u64),
) {
    let begun = Instant::now();
    let mut times = Vec::new();
    for batch in 0..batches {
        (0..size).for_each(|n| add(store, 1 + batch * size + n));
        let at = Instant::now();
        store.commit(Commit(first + batch));
        while store.verdict().is_none() {
            std::thread::yield_now();
        }
        times.push(at.elapsed());
    }
    let (took, jobs) = (begun.elapsed(), batches * size);

    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_micros();
    println!(
        "{what} in batches of {size}: {:.0} a second; a commit {} us, p99 {} us, worst {} us",
        jobs as f64 / took.as_secs_f64(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

/// Returns the processor time of the threads of this process with this name, in seconds.
fn thread_time(name: &str) -> f64 {
    let tasks = fs::read_dir("/proc/self/task").expect("is there");
    let time = |task: std::io::Result<fs::DirEntry>| {
        let path = task.ok()?.path();
        let is_it = fs::read_to_string(path.join("comm")).ok()?.trim() == name;
        let stat = fs::read_to_string(path.join("schedstat")).ok()?;
        let ns: f64 = stat.split(' ').next()?.parse().ok()?;
        is_it.then_some(ns / 1e9)
    };
    tasks.filter_map(time).sum()
}

#[test]
#[ignore = "prints figures: cargo test --release --test jobs_store speed -- --ignored --nocapture"]
fn how_fast_is_the_store() {
    let scratch = Scratch::new();
    let mut store = sqlite(&scratch);
    load(&mut *store, EPOCH).expect("is new");
    let mut first = 1;
    let mut cost = |store: &mut dyn Store<Jobs>, what, batches: u64, size: u64, add| {
        let before = thread_time("jobs-store");
        run(store, what, batches, size, first, add);
        first += batches;
        let spent = thread_time("jobs-store") - before;
        println!("    the store's thread: {:.2} us a job", spent * 1e6 / (batches * size) as f64);
    };
    let delete = |store: &mut dyn Store<Jobs>, id| store.add(Stored::Delete(JobId(id)));
    cost(&mut *store, "puts", 2000, 1, put);
    cost(&mut *store, "deletes", 2000, 1, delete);
    cost(&mut *store, "puts", 1000, 256, put);
    cost(&mut *store, "deletes", 1000, 256, delete);
    cost(&mut *store, "puts", 250, 4000, put);
    drop(store);
    let mut store = sqlite(&scratch);
    let begun = Instant::now();
    load(&mut *store, EPOCH).expect("is readable");
    println!("all is read in {:?}, of {:?}", begun.elapsed(), store.health().map(|health| health.file_bytes));
}
