//! What jobs take: an allocator counts what is allocated, beside what is promised. It has its process to itself.

mod support;

use poolcounter::jobs::state::{Bounds, JOB_BYTES};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use support::jobs::Service;

/// Bytes that are allocated.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
/// How often something was allocated.
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[allow(unsafe_code, reason = "an allocator is unsafe by its nature; this one only counts")]
// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as of our caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as of our caller.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Not many more than what the indexes have room for before they double, and all in the larger tables.
const JOBS: usize = 70_000;
const BODY: usize = 50;

/// What is sent to put the n-th job.
type Line<'a> = &'a dyn Fn(usize) -> String;

/// Puts jobs that no store keeps, in parts as they come over a socket; returns how much more is allocated after that.
fn put(service: &mut Service, line: Line<'_>) -> usize {
    let before = ALLOCATED.load(Ordering::Relaxed);
    for part in 0..JOBS / 50 {
        let lines: String = (0..50).map(|n| line(part * 50 + n)).collect();
        service.send(1, lines.as_bytes());
        service.output(1);
    }
    ALLOCATED.load(Ordering::Relaxed) - before
}

#[test]
fn jobs_take_what_is_promised_and_give_it_back() {
    let body = "b".repeat(BODY);
    let plain = |_: usize| format!("put 9 0 99 {BODY}\r\n{body}\r\n");
    let delayed = |_: usize| format!("put 9 5000 99 {BODY}\r\n{body}\r\n");
    let keyed = |n: usize| format!("put-job 9 0 99 {BODY} key={n:050} root={:020} root-ts=5\r\n{body}\r\n", 1);
    let spread = |n: usize| format!("put-job {} 0 99 {BODY} tube=t{}\r\n{body}\r\n", n % 7, n % 50);
    let kinds: [(&str, Line<'_>, usize); 4] =
        [("plain", &plain, 0), ("delayed", &delayed, 0), ("keyed", &keyed, 50 + 20), ("spread", &spread, 0)];
    for (name, line, extra) in kinds {
        let empty = ALLOCATED.load(Ordering::Relaxed);
        let mut service = Service::without_store(Bounds::default());
        let each = put(&mut service, line) as f64 / JOBS as f64;
        let most = (BODY + extra + JOB_BYTES) as f64;
        println!("{name}: {:.1} bytes a job beside its body, key and signature", each - (BODY + extra) as f64);
        assert!(each <= most, "{name}: {each:.1} bytes a job, {most} are promised");
        let full = ALLOCATED.load(Ordering::Relaxed) - empty;
        service.send(2, b"clear *\r\n");
        service.pass(poolcounter::time::Span::from_secs(1));
        assert_eq!(service.next(2), Some(format!("CLEARED {JOBS}")));
        let left = ALLOCATED.load(Ordering::Relaxed) - empty;
        assert!(left < full / 20, "{name}: {left} of {full} bytes are left after a flood");
        service.state.check();
    }
    reserving_and_deleting_allocates_nothing();
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

fn allocations(service: &mut Service, line: &str) -> usize {
    let bytes = format!("{line}\r\n");
    service.output(1);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    service.send(1, bytes.as_bytes());
    ALLOCATIONS.load(Ordering::Relaxed) - before
}
