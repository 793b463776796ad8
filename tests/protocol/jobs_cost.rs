//! What a job costs must not depend on how many tubes, runners and jobs there are; and with however many jobs one wiki floods
//! the queue, the others have their turns. Processor time is measured, of rounds that take turns: what else the machine does
//! makes all of them slower alike, if at all.

use nix::time::{ClockId, clock_gettime};
use poolcounter_jobs::state::Bounds;
use poolcounter_testkit::jobs::Service;
use std::collections::BTreeSet;
use std::time::Duration;

const CYCLES: usize = 1_000;
const ROUNDS: usize = 12;
/// How much more a cycle may take among many tubes, whose memory is in no cache: three times as much is usual. Work that grew
/// with the tubes would be thousands of times as much, and work that grew with the sets of watches or the runners hundreds.
const MOST: u32 = 5;

/// The processor time of this thread.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every thread has a clock").into()
}

/// A service with so many tubes of some jobs each.
struct Stage {
    service: Service,
    tubes: usize,
    /// The number of the last job.
    last: usize,
}

impl Stage {
    /// So many runners wait, with five different sets of watches.
    fn new(tubes: usize, runners: usize, jobs: usize) -> Stage {
        let mut service = Service::without_store(Bounds::default());
        let sets = ["*/u", "w1/u", "*/u 2", "x/*", "*/*/*"];
        for runner in 0..runners {
            let lines = format!("watch {}\r\nignore default\r\nreserve\r\n", sets[runner % 5]);
            service.send(10 + runner, lines.as_bytes());
            service.output(10 + runner);
        }
        for tube in 0..tubes {
            let one = format!("put-job 9 0 99 1 tube=w{tube}/t\r\na\r\n");
            service.send(1, one.repeat(jobs).as_bytes());
        }
        service.send(2, b"watch */*\r\nignore default\r\nreserve-with-timeout 1\r\n");
        service.pass(poolcounter_core::time::Span::from_secs(2));
        service.close(2);
        service.send(2, b"watch */*\r\nignore default\r\n");
        service.output(1);
        service.output(2);
        Stage { service, tubes, last: tubes * jobs }
    }

    /// Returns how long it takes to put, reserve and delete so many jobs, in tubes all over.
    fn cycles(&mut self) -> Duration {
        let Stage { service, tubes, last } = self;
        let start = cpu_time();
        for n in 0..CYCLES {
            let tube = n * 7_919 % *tubes;
            service.send(1, format!("put-job 1 0 99 1 tube=w{tube}/t\r\na\r\n").as_bytes());
            service.send(2, b"reserve\r\n");
            *last += 1;
            service.send(2, format!("delete {last}\r\n").as_bytes());
            service.output(1);
            let told = service.output(2);
            assert!(told.starts_with(format!("RESERVED {last} ").as_bytes()), "{}", told.escape_ascii());
        }
        cpu_time() - start
    }
}

#[test]
fn nothing_grows_with_tubes_runners_or_jobs() {
    let (mut small, mut large) = (Stage::new(2, 1, 2), Stage::new(20_000, 1_000, 5));
    let rounds: Vec<[Duration; 2]> = (0..ROUNDS).map(|_| [small.cycles(), large.cycles()]).collect();
    let [least, most] = [0, 1].map(|which| rounds.iter().map(|round| round[which]).min().expect("there are some"));
    let per_job = |time: Duration| time.as_nanos() / CYCLES as u128;
    println!("a put, a reserve and a delete: {} ns with 2 tubes, {} ns with 20,000", per_job(least), per_job(most));
    assert!(most < MOST * least, "2 tubes: {least:?}, 20,000 tubes: {most:?}");
}

/// One wiki with a million jobs, 699 with one each, 100 runners: the last of the others is reserved within one turn of all.
#[test]
fn a_flood_of_one_wiki_holds_no_other_up() {
    const FLOOD: usize = 1_000_000;
    const OTHERS: usize = 699;
    const RUNNERS: usize = 100;
    let mut service = Service::without_store(Bounds::default());
    let put = |service: &mut Service, tube: &str, count: usize| {
        let one = format!("put-job 9 0 600 1 tube={tube}\r\na\r\n");
        service.send(1, one.repeat(count).as_bytes());
        service.output(1);
    };
    for _ in 0..FLOOD / 20 {
        put(&mut service, "flood/t", 20);
    }
    for wiki in 0..OTHERS {
        put(&mut service, &format!("w{wiki}/t"), 1);
    }
    for runner in 0..RUNNERS {
        service.send(10 + runner, b"watch */*\r\nignore default\r\n");
        service.output(10 + runner);
    }
    let mut others = BTreeSet::new();
    for turn in 0..=OTHERS {
        let runner = 10 + turn % RUNNERS;
        service.send(runner, b"reserve\r\n");
        let reply = service.next(runner).expect("there are jobs");
        let id: usize = reply.split(' ').nth(1).and_then(|id| id.parse().ok()).expect("a number");
        others.extend(Some(id).filter(|id| *id > FLOOD));
    }
    assert_eq!(others.len(), OTHERS, "one turn of all serves each of them");
}
