//! The jobs service under random requests: after each step every table is compared with every other, after each commit
//! of all batches the store with the service, and now and then another process takes over.

use poolcounter_core::time::Span;
use poolcounter_jobs::state::Bounds;
use poolcounter_testkit::bodies::jobs_model;
use poolcounter_testkit::jobs::{Commits, Service};
use poolcounter_testkit::random::Random;
use poolcounter_testkit::seeds::{History, play};

const CONNS: usize = 5;

#[test]
fn random_requests_keep_tables_and_store_in_agreement() {
    play("jobs", run);
}

fn run(History { seed, steps }: History) {
    let mut random = Random::new(seed);
    let commits = [Commits::Never, Commits::AtOnce, Commits::Later][random.below(3)];
    let max_memory = if random.once_in(4) { 25_000 } else { usize::MAX };
    let max_tubes = if random.once_in(4) { 4 } else { 1 << 20 };
    let bounds = Bounds { max_size: 20, max_tubes, max_memory, ..Bounds::default() };
    let mut service = Service::new(bounds, commits, seed);
    let mut held = [1; CONNS];
    for _ in 0..steps {
        step(&mut service, &mut random, &mut held);
        service.state.check();
    }
    (0..CONNS).for_each(|conn| service.close(conn));
    service.commit_all();
    service.state.check();
    // No periodic job is put behind the last look.
    (0..4).for_each(|name| service.send(0, format!("schedule-delete s{name}\r\n").as_bytes()));
    service.send(0, b"clear *\r\nclear */*\r\nclear */*/*\r\n");
    service.close(0);
    service.pass(Span::from_secs(1));
    service.commit_all();
    service.state.check();
    assert!(service.state.is_empty(), "something is left");
    assert_eq!(service.wheel.len(), service.state.background_timers(), "a timer is left");
}

/// Takes a step, in which a connection often names the job that it reserved last.
fn step(service: &mut Service, random: &mut Random, held: &mut [u64; CONNS]) {
    let conn = random.below(CONNS);
    match random.below(40) {
        0 => service.close(conn),
        1 => service.hang_up(conn),
        2..=5 => service.pass(Span::from_millis([1, 40, 500, 1_000, 3_000, 70_000, 1_000_000][random.below(7)])),
        6..=9 => service.take(),
        10..=14 => service.commit(),
        15 => service.commit_all(),
        16 => service.hand_over(),
        _ => {
            let line = line(random, held[conn]);
            service.send(conn, line.as_bytes());
        }
    }
    for (conn, held) in held.iter_mut().enumerate() {
        while let Some(reply) = service.next(conn) {
            let mut words = reply.split(' ');
            if words.next() == Some("RESERVED") {
                *held = words.next().and_then(|id| id.parse().ok()).expect("a number");
            }
        }
    }
}

/// Returns a request of the body that plays beside the model, or one that the model does not know.
fn line(random: &mut Random, held: u64) -> String {
    let few = random.below(4);
    match random.below(40) {
        0 => format!("schedule-put s{few} 1 2 1 tube=a/x missed=once cron=@hourly\r\np\r\n"),
        1 => format!("schedule-put s{few} 1 60 1 tube=c {}\r\np\r\n", random.pick(&["every=100", "cron=*/5 * * * *"])),
        2 => "stats\r\nsummary\r\nput 0 0 9 22\r\nlonger than is allowed\r\n".into(),
        _ => {
            let bytes: Vec<u8> = (0..40).map(|_| random.below(256) as u8).collect();
            jobs_model::any_line(&bytes, held) + "\r\n"
        }
    }
}
