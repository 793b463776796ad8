//! What a job costs must not depend on how many tubes, runners and jobs there are. Times are measured, so the bounds are
//! wide: a cost that grew with the number of tubes would be a thousand times as large.

mod support;

use poolcounter::jobs::state::Bounds;
use std::time::{Duration, Instant};
use support::jobs::Service;

const CYCLES: usize = 2_000;

/// Returns the shortest of some times that it takes to put, reserve and delete so many jobs, in tubes all over.
fn cycles(service: &mut Service, tubes: usize, next: &mut usize) -> Duration {
    let time = |service: &mut Service, next: &mut usize| {
        let start = Instant::now();
        for n in 0..CYCLES {
            let tube = n * 7_919 % tubes;
            service.send(1, format!("put-job 1 0 99 1 tube=w{tube}/t\r\na\r\n").as_bytes());
            service.send(2, b"reserve\r\n");
            *next += 1;
            service.send(2, format!("delete {next}\r\n").as_bytes());
            service.output(1);
            let told = service.output(2);
            assert!(told.starts_with(format!("RESERVED {next} ").as_bytes()), "{}", told.escape_ascii());
        }
        start.elapsed()
    };
    (0..5).map(|_| time(service, next)).min().expect("there are some")
}

/// A service with so many tubes of some jobs each, and so many runners with five different sets of watches that wait.
fn service(tubes: usize, runners: usize, jobs: usize, next: &mut usize) -> Service {
    let mut service = Service::without_store(Bounds::default());
    let sets = ["*/u", "w1/u", "*/u 2", "x/*", "*/*/*"];
    for runner in 0..runners {
        service.send(10 + runner, format!("watch {}\r\nignore default\r\nreserve\r\n", sets[runner % 5]).as_bytes());
        service.output(10 + runner);
    }
    for tube in 0..tubes {
        let one = format!("put-job 9 0 99 1 tube=w{tube}/t\r\na\r\n");
        service.send(1, one.repeat(jobs).as_bytes());
    }
    *next = tubes * jobs;
    service.send(2, b"watch */*\r\nignore default\r\n");
    service.output(1);
    service.output(2);
    service
}

#[test]
fn nothing_grows_with_tubes_runners_or_jobs() {
    let mut next = 0;
    let mut small = service(2, 1, 2, &mut next);
    let least = cycles(&mut small, 2, &mut next);
    let mut large = service(20_000, 1_000, 5, &mut next);
    let most = cycles(&mut large, 20_000, &mut next);
    let per_job = |time: Duration| time.as_nanos() / CYCLES as u128;
    println!("a put, a reserve and a delete: {} ns with 2 tubes, {} ns with 20,000", per_job(least), per_job(most));
    // With work that grows with the tubes it would be thousands of times as much; the rest is the cache, and a busy machine.
    assert!(most < 50 * least, "2 tubes: {least:?}, 20,000 tubes: {most:?}");
}
