//! What jobs take: an allocator counts what is allocated, beside what is promised.

use crate::counting_allocator::{self, bytes};
use poolcounter_jobs::JobsSettings;
use poolcounter_jobs::state::{Bounds, JOB_BYTES};
use poolcounter_service::container::AllSettings;
use poolcounter_testkit::jobs::Service;
use poolcounter_testkit::world::World;

/// The promise holds however many there are: a hash table of one piece would double right before the first of these numbers.
const JOBS: [usize; 3] = [57_400, 70_000, 80_000];
const BODY: usize = 50;

/// What is sent to put the n-th job.
type Line<'a> = &'a dyn Fn(usize) -> String;

/// Puts so many jobs that no store keeps, in parts as they come over a socket; returns how much more is allocated after that.
fn put(service: &mut Service, jobs: std::ops::Range<usize>, line: Line<'_>) -> usize {
    let before = bytes();
    for first in jobs.clone().step_by(50) {
        let lines: String = (first..jobs.end.min(first + 50)).map(line).collect();
        service.send(1, lines.as_bytes());
        service.output(1);
    }
    bytes() - before
}

#[test]
fn jobs_take_what_is_promised_and_give_it_back() {
    let body = "b".repeat(BODY);
    let plain = |_: usize| format!("put 9 0 99 {BODY}\r\n{body}\r\n");
    let delayed = |_: usize| format!("put 9 5000 99 {BODY}\r\n{body}\r\n");
    let keyed =
        |n: usize| format!("put-job 9 0 99 {BODY} key={n:050} root={:020} root-ts=20260801120000\r\n{body}\r\n", 1);
    let both =
        |n: usize| format!("put-job 9 5000 99 {BODY} key={n:050} root={:020} root-ts=1785585600\r\n{body}\r\n", 1);
    let spread = |n: usize| format!("put-job {} 0 99 {BODY} tube=t{}\r\n{body}\r\n", n % 7, n % 50);
    let kinds: [(&str, Line<'_>, usize); 5] = [
        ("plain", &plain, 0),
        ("delayed", &delayed, 0),
        ("keyed", &keyed, 50 + 20),
        ("delayed and keyed", &both, 50 + 20),
        ("spread", &spread, 0),
    ];
    for (name, line, extra) in kinds {
        let empty = bytes();
        let mut service = Service::without_store(Bounds::default());
        let (mut done, mut bytes) = (0, 0);
        for jobs in JOBS {
            bytes += put(&mut service, done..jobs, line);
            done = jobs;
            let each = bytes as f64 / jobs as f64;
            let most = (BODY + extra + JOB_BYTES) as f64;
            println!("{name}, {jobs}: {:.1} bytes a job beside body, key and signature", each - (BODY + extra) as f64);
            assert!(each <= most, "{name}: {each:.1} bytes a job, {most} are promised");
        }
        gives_back(&mut service, name, empty, done);
    }
    let mib = "b".repeat(1 << 20);
    let large = |_: usize| format!("put 9 0 99 {}\r\n{mib}\r\n", 1 << 20);
    let empty = bytes();
    let mut service = Service::without_store(Bounds { max_size: 1 << 20, ..Bounds::default() });
    let bytes = put(&mut service, 0..100, &large);
    assert!(bytes < 105 << 20, "100 bodies of a MiB take {bytes} bytes");
    gives_back(&mut service, "large", empty, 100);
    reserving_and_deleting_allocates_nothing();
}

/// Answers that are not read take no more than the memory allowed, and leave half of it to jobs.
#[test]
fn answers_that_are_not_read_count_as_memory() {
    const MEMORY: usize = 4 << 20;
    let settings = JobsSettings { max_memory: MEMORY, admin: true, ..JobsSettings::default() };
    let mut world = World::with(AllSettings::defaults(poolcounter::SERVICES).with(settings));
    let watcher = world.connect_to("jobs");
    for n in 0..1_000 {
        world.send(watcher, format!("watch {n:0190}\r\n").as_bytes());
    }
    world.settle();
    let askers: Vec<usize> = (0..100).map(|_| world.connect_to("jobs")).collect();
    for asker in &askers {
        world.set_room(*asker, 0);
        world.send(*asker, b"list-tubes\r\nlist-tubes\r\n");
    }
    world.settle();
    world.send(watcher, b"put 0 0 60 1\r\na\r\nstats\r\n");
    world.settle();
    let told = String::from_utf8(world.take_received(watcher)).expect("replies are text");
    assert!(told.contains("INSERTED 1\r\n"), "half of the memory is left to jobs");
    let used = told.split_once("used-memory: ").and_then(|(_, rest)| rest.lines().next()?.parse::<usize>().ok());
    assert!(used.is_some_and(|used| (MEMORY / 4..MEMORY / 2 + (1 << 20)).contains(&used)), "{used:?}");
    let refused = |world: &mut World, asker: usize| {
        world.set_room(asker, usize::MAX);
        world.settle();
        world.take_received(asker).starts_with(b"OUT_OF_MEMORY")
    };
    assert!(refused(&mut world, askers[99]), "the memory was used up when the last asked");
    assert!(!refused(&mut world, askers[0]), "the first was answered");
    askers.iter().for_each(|asker| world.reset(*asker));
    world.settle();
    let asker = world.connect_to("jobs");
    world.send(asker, b"list-tubes\r\n");
    world.settle();
    assert!(world.take_received(asker).starts_with(b"OK "), "the memory is free again");
}

/// After a flood is over, hardly any of what it took is still allocated.
fn gives_back(service: &mut Service, name: &str, empty: usize, jobs: usize) {
    let full = bytes() - empty;
    service.send(2, b"clear *\r\n");
    service.pass(poolcounter_core::time::Span::from_secs(1));
    assert_eq!(service.next(2), Some(format!("CLEARED {jobs}")));
    let left = bytes() - empty;
    println!("{name}: {left} of {full} bytes are left after a flood");
    assert!(left < full / 20, "{name}: {left} of {full} bytes are left after a flood");
    service.state.check();
}

/// In a steady state the state machine allocates nothing to reserve and delete small jobs. What the test's own stream and
/// replies allocate is measured with a request that does nothing; the reply with a body is longer, and allocates once more.
fn reserving_and_deleting_allocates_nothing() {
    let mut service = Service::without_store(Bounds::default());
    for _ in 0..2_000 {
        service.send(1, b"put 9 0 99 1\r\na\r\n");
    }
    let (mut reserve, mut delete) = (0, 0);
    for n in 1..=1_000 {
        let reserved = allocations(&mut service, "reserve");
        let deleted = allocations(&mut service, &format!("delete {n}"));
        // The first ones find structures that were never used.
        if n > 10 {
            (reserve, delete) = (reserved.max(reserve), deleted.max(delete));
        }
    }
    let idle = allocations(&mut service, "touch 999999");
    assert!(reserve <= idle + 1 && delete <= idle, "reserve: {reserve}, delete: {delete}, nothing: {idle}");
}

fn allocations(service: &mut Service, line: &str) -> u64 {
    let request = format!("{line}\r\n");
    service.output(1);
    let before = counting_allocator::allocations();
    service.send(1, request.as_bytes());
    counting_allocator::allocations() - before
}
