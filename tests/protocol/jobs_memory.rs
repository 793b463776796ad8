//! Memory of jobs: an allocator counts the real allocations, for comparison with the promised bound.

use crate::counting_allocator::{self, bytes};
use poolcounter_core::time::Span;
use poolcounter_jobs::JobsSettings;
use poolcounter_jobs::state::{Bounds, JOB_BYTES};
use poolcounter_service::container::AllSettings;
use poolcounter_testkit::jobs::{Commits, Service};
use poolcounter_testkit::world::World;

/// Numbers of jobs. The promise holds for all: a hash table of one piece would double right before the first of these.
const JOBS: [usize; 3] = [57_400, 70_000, 80_000];
const BODY: usize = 50;

/// Function from n to the request that puts the n-th job.
type Line<'a> = &'a dyn Fn(usize) -> String;

/// Puts jobs that no store keeps, in parts as they come over a socket; returns the growth of the allocated memory.
fn put(service: &mut Service, jobs: std::ops::Range<usize>, line: Line<'_>) -> usize {
    let before = bytes();
    service.put_many(jobs, line);
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

/// A client makes 100,000 tubes, groups, patterns or settings, if it may: all that they take counts, and others still watch.
#[test]
fn tubes_and_settings_take_no_more_than_the_memory_allowed() {
    const MEMORY: usize = 8 << 20;
    const REQUESTS: usize = 100_000;
    let long = "x".repeat(150);
    let worked = |n: usize| {
        format!(
            "watch a{n}/b{n}\r\nput-job 0 0 9 1 tube=a{n}/b{n}\r\na\r\nreserve\r\ndelete {}\r\nignore a{n}/b{n}\r\n",
            n + 1
        )
    };
    let kinds: [(&str, Line<'_>, bool); 9] = [
        ("put", &|n| format!("put-job 0 0 99 0 tube=a{n}/b{n}\r\n\r\n"), true),
        ("long", &|n| format!("put-job 0 0 99 0 tube={long}{n}/{n}\r\n\r\n"), true),
        ("watch", &|n| format!("watch {long}/a{n}\r\n"), true),
        ("use", &|n| format!("use a{n}/b{n}\r\n"), false),
        ("worked", &worked, false),
        ("patterns", &|n| format!("watch {long}/a{n}/*\r\nreserve-with-timeout 0\r\n"), true),
        ("groups", &|n| format!("put-job 0 0 99 0 group=group-of-a-long-name-{n}\r\n\r\n"), true),
        ("delayed groups", &|n| format!("put-job 0 1 99 0 tube=t{} group={n}\r\n\r\n", n % 9), true),
        ("limits", &|n| format!("limit a{n}/* 1\r\nlimit group:{n} 1\r\n"), true),
    ];
    for (name, line, is_refused) in kinds {
        let empty = bytes();
        let mut service = Service::without_store(Bounds { max_memory: MEMORY, ..Bounds::default() });
        let mut refused = 0;
        for n in 0..REQUESTS {
            let conn = if is_refused { 10 + n / 500 } else { 10 };
            service.send(conn, line(n).as_bytes());
            (0..3).for_each(|_| service.tick());
            let told = service.output(conn);
            refused += usize::from(told.windows(13).any(|word| word == b"OUT_OF_MEMORY"));
            if refused > 1_000 {
                break;
            }
        }
        let (taken, used) = (bytes() - empty, service.state.used_memory());
        println!("{name}: {taken} bytes, {used} are reckoned, {refused} refused");
        assert_eq!(refused > 0, is_refused, "{name}");
        assert!(used <= MEMORY + MEMORY / 8 && taken <= 2 * MEMORY, "{name}: {taken} bytes, {used} are reckoned");
        service.state.check();
    }
}

/// Most tubes of very many have one job, and are alone in their sums.
#[test]
fn tube_with_a_job_is_small() {
    const TUBES: usize = 16_000;
    let mut service = Service::without_store(Bounds::default());
    let each = put(&mut service, 0..TUBES, &|n| format!("put-job 9 0 99 1 tube=t{n}\r\na\r\n")) / TUBES;
    println!("a tube with a job takes {each} bytes");
    assert!(each <= 650, "{each} bytes");
}

/// Each tube has the times of jobs that waited for hours, so that its histograms have most of their buckets.
#[test]
fn long_times_of_tubes_count_as_memory() {
    const MEMORY: usize = 8 << 20;
    const TUBES: usize = 5_000;
    let names: Vec<String> = (0..TUBES).map(|n| format!("a{n}/b{n}")).collect();
    let empty = bytes();
    let mut service = Service::without_store(Bounds { max_memory: MEMORY, ..Bounds::default() });
    let mut put = Vec::new();
    for name in &names {
        service.send(1, format!("put-job 0 0 9 1 tube={name}\r\na\r\n").as_bytes());
        put.extend(service.next(1).and_then(|told| Some(told.strip_prefix("INSERTED ")?.to_string())));
    }
    service.pass(Span::from_secs(1_500));
    for (name, id) in names.iter().zip(&put) {
        service.send(1, format!("watch {name}\r\nreserve-job {id}\r\n").as_bytes());
        service.send(1, format!("delete {id}\r\nignore {name}\r\n").as_bytes());
        service.tick();
        service.output(1);
        let (taken, used) = (bytes() - empty, service.state.used_memory());
        assert!(used <= MEMORY + MEMORY / 8 && taken <= 9 * MEMORY / 4, "{name}: {taken} bytes, {used} are reckoned");
    }
    println!("{} put; {} bytes, {} are reckoned", put.len(), bytes() - empty, service.state.used_memory());
    service.state.check();
}

/// Unread replies take no more than the allowed memory, and leave half of it to jobs.
#[test]
fn answers_that_are_not_read_count_as_memory() {
    const MEMORY: usize = 16 << 20;
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
    let told = world.tell(watcher, "put 0 0 60 1\r\na\r\nstats\r\n");
    assert!(told.contains("INSERTED 1\r\n"), "half of the memory is left to jobs");
    let used = told.split_once("used-memory: ").and_then(|(_, rest)| rest.lines().next()?.parse::<usize>().ok());
    assert!(used.is_some_and(|used| (MEMORY / 4..MEMORY / 2 + (3 << 20)).contains(&used)), "{used:?}");
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

/// Checks that hardly any memory of a flood is allocated after its end.
fn gives_back(service: &mut Service, name: &str, empty: usize, jobs: usize) {
    let full = bytes() - empty;
    service.send(2, b"clear *\r\n");
    service.pass(Span::from_secs(1));
    assert_eq!(service.next(2), Some(format!("CLEARED {jobs}")));
    let left = bytes() - empty;
    println!("{name}: {left} of {full} bytes are left after a flood");
    assert!(left < full / 20, "{name}: {left} of {full} bytes are left after a flood");
    service.state.check();
}

/// In a steady state the state machine allocates nothing to reserve and delete small jobs. The allocations of the
/// test's own stream and replies are measured with a request that does nothing; the reply with a body is longer, and
/// allocates once more.
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

/// Runners come and go while a limit holds back all that they wait for.
#[test]
fn runners_that_a_limit_held_back_leave_nothing_behind() {
    let mut service = Service::new(Bounds::default(), Commits::AtOnce, 1);
    service.send(1, b"limit t/* 1 all\r\n");
    (0..100).for_each(|n| service.send(1, format!("put-job 1 0 100 1 tube=t/{n}\r\na\r\n").as_bytes()));
    service.send(2, b"watch t/0\r\nreserve\r\n");
    let watches: String = (1..100).map(|n| format!("watch t/{n}\r\n")).collect();
    let mut come_and_go = |times: usize| {
        for _ in 0..times {
            service.send(3, format!("{watches}reserve\r\n").as_bytes());
            service.output(3);
            service.close(3);
            // Their watches are removed in a slice.
            service.tick();
        }
        service.output(1);
        bytes()
    };
    let (before, after) = (come_and_go(50), come_and_go(500));
    assert!(after < before + 50_000, "{} bytes more after 500 runners", after - before);
}
