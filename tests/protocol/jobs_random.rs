//! The jobs service under random requests: after each step every table is compared with every other, after each commit
//! of all batches the store with the service, and now and then another process takes over.

use poolcounter_core::time::Span;
use poolcounter_jobs::state::Bounds;
use poolcounter_testkit::jobs::{Commits, Service};
use poolcounter_testkit::random::Random;
use poolcounter_testkit::seeds::{History, play};

const CONNS: usize = 5;

const TUBES: [&str; 6] = ["default", "a/x", "a/y", "b/x", "b/y/z", "c"];
const PATTERNS: [&str; 7] = ["*/*", "a/*", "*/x", "*", "a/x", "b/y/*", "c"];

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
fn step(service: &mut Service, random: &mut Random, held: &mut [usize; CONNS]) {
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

fn line(random: &mut Random, held: usize) -> String {
    let tube = TUBES[random.below(TUBES.len())];
    let pattern = PATTERNS[random.below(PATTERNS.len())];
    let id = if random.once_in(3) { 1 + random.below(40) } else { held };
    let (pri, delay, ttr) = (random.below(3), [0, 0, 0, 1, 5][random.below(5)], [1, 2, 60][random.below(3)]);
    let few = random.below(4);
    match random.below(37) {
        0..=3 => format!("put {pri} {delay} {ttr} 1\r\na\r\n"),
        4..=9 => put_job(random, tube),
        10 => {
            let puts: String = (0..3).map(|_| put_job(random, tube)).collect();
            format!("put-many 3\r\n{puts}")
        }
        11..=13 => format!("reserve-with-timeout {few}\r\n"),
        14 => "reserve\r\n".into(),
        15 => format!("reserve-many {} {few}\r\n", 1 + few),
        16 => format!("reserve-job {id}\r\n"),
        17 | 18 => format!("delete {id}\r\n"),
        19 | 20 => format!("release {id} {pri} {delay}\r\n"),
        21 => format!("bury {id} {pri}\r\n"),
        22 => format!("{} {id}\r\n", ["touch", "begin"][few % 2]),
        23 => format!("fail {id} {pri} {delay} 2\r\nno\r\n"),
        24 => format!("use {tube}\r\n"),
        25 => format!("watch {pattern}\r\n"),
        26 => format!("watch {pattern} {}\r\n", 1 + few),
        27 => format!("ignore {pattern}\r\n"),
        28 => format!("kick {few}\r\nkick-job {id}\r\n"),
        29 => format!("pause-all {pattern} {few}\r\n"),
        30 => format!("limit {pattern} {few} {}\r\n", ["each", "all", "per 2 each", "per 5 all"][random.below(4)]),
        31 => {
            format!(
                "limit group:{} {few}{}\r\n",
                ["*", "g1", "g2"][random.below(3)],
                ["", " per 3", " ordered"][random.below(3)]
            )
        }
        32 => format!("retry {pattern} {few} 1.5 2 5\r\n"),
        33 => format!("dead-letter {pattern} {}\r\n", TUBES[random.below(TUBES.len())]),
        34 if few == 0 => {
            let what = [id.to_string(), pattern.into()];
            format!("move {} {tube}\r\nset-job {id} pri={pri} delay={delay}\r\n", what[random.below(2)])
        }
        34 if few == 1 => format!("cancel {id}\r\ncancel {pattern}\r\n"),
        34 => format!("root {tube} S {few}\r\nclear {pattern} buried\r\n"),
        35 if random.once_in(4) => format!("schedule-delete s{few}\r\nlist-schedules\r\n"),
        35 => {
            let times = ["every=100", "cron=*/5 * * * *", "missed=once cron=@hourly"][random.below(3)];
            format!("schedule-put s{few} {pri} {ttr} 1 tube={tube} {times}\r\np\r\n")
        }
        _ => format!(
            "kick-all {pattern}\r\nstats-tube {tube}\r\nsummary\r\nlist-jobs {tube} ready 5\r\nstats-job {id}\r\n"
        ),
    }
}

fn put_job(random: &mut Random, tube: &str) -> String {
    let (pri, delay) = (random.below(3), [0, 0, 0, 2][random.below(4)]);
    let mut line = format!("put-job {pri} {delay} {} 2 tube={tube}", [1, 2, 60][random.below(3)]);
    if random.once_in(2) {
        let until = ["until=reserved", "until=deleted", "for=3", "until=deleted for=2"];
        line += &format!(" key=k{} {}", random.below(3), until[random.below(4)]);
    }
    if random.once_in(3) && !line.contains(" for=") {
        line += &format!(" root=S root-ts={}", random.below(4));
    }
    if random.once_in(2) {
        line += &format!(" group=g{}", random.below(3));
    }
    line + "\r\nab\r\n"
}
