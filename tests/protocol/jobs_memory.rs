//! What jobs take: an allocator counts what is allocated, beside what is promised.

use crate::counting_allocator::{self, bytes};
use poolcounter_jobs::state::{Bounds, JOB_BYTES};
use poolcounter_testkit::jobs::Service;

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
