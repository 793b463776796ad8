//! Turns among tubes: of one watch, and of several.

use poolcounter_core::time::Span;
use poolcounter_jobs::state::Bounds;
use poolcounter_testkit::jobs::{Commits, Service};

/// Watches share turns by their weights, whatever the number of their tubes.
#[test]
fn weights_share_the_turns() {
    let mut service = Service::new(Bounds::default(), Commits::AtOnce, 1);
    for tube in ["a/1", "a/2", "b/1"] {
        service.send(1, format!("put-job 9 0 100 1 tube={tube}\r\n{}\r\n", &tube[..1]).repeat(1_000).as_bytes());
    }
    service.send(2, b"watch a/* 1\r\nwatch b/1 3\r\nignore default\r\nreserve-many 800 0\r\n");
    let output = service.output(2);
    let count = |tube: &[u8]| output.windows(3).filter(|three| three == &[tube, b"\r\n"].concat()).count();
    assert_eq!((count(b"a"), count(b"b")), (200, 600));
    service.state.check();
}

/// Runners with different watches share one rotation: a tube that one of them has served is the last for the other.
#[test]
fn runners_with_different_watches_share_a_rotation() {
    let mut service = Service::new(Bounds::default(), Commits::AtOnce, 1);
    (0..6).for_each(|n| put(&mut service, &format!("a/{n}"), 9, 2));
    service.send(2, b"watch a/*\r\nignore default\r\n");
    service.send(3, b"watch */*\r\nwatch x/*\r\nignore default\r\n");
    service.send(4, b"watch a/4\r\nignore default\r\nreserve\r\n");
    [2, 3].into_iter().for_each(|runner| drop(service.output(runner)));
    assert_eq!(service.next(4), Some("WATCHING 2".into()));
    let ids = [2, 3, 2, 3, 2, 3].map(|runner| {
        service.send(runner, b"reserve\r\n");
        service.next(runner).expect("there are jobs")
    });
    assert_eq!(ids, [1, 3, 5, 7, 11, 10].map(|id| format!("RESERVED {id} 1 a")));
    service.state.check();
}

/// The weight of a watch is a share of its own: tubes that another watch covers as well have a share there, too.
#[test]
fn tubes_of_two_watches_have_turns_in_both() {
    let mut service = Service::new(Bounds::default(), Commits::AtOnce, 1);
    ["a/1", "b/1", "b/2"].into_iter().for_each(|tube| put(&mut service, tube, 9, 1_000));
    let output = service.ask(2, "watch */* 1\r\nwatch a/* 2\r\nignore default\r\nreserve-many 900 0\r\n");
    let ids = output.lines().filter_map(|line| line.strip_prefix("RESERVED ")?.split(' ').next()?.parse::<u32>().ok());
    let of_first = ids.filter(|id| *id <= 1_000).count();
    assert!((600..=620).contains(&of_first), "{of_first} of 900 are of the weighty watch");
}

/// Puts as many jobs of a priority into a tube.
fn put(service: &mut Service, tube: &str, pri: u32, count: usize) {
    service.ask(1, &format!("put-job {pri} 0 100 1 tube={tube}\r\na\r\n").repeat(count));
}

/// Returns the next line of the runner, which may come some slices later.
fn answer(service: &mut Service) -> String {
    for _ in 0..100 {
        match service.next(2) {
            Some(line) => return line,
            None => service.tick(),
        }
    }
    panic!("a reserve is not answered");
}

/// Reserves every job, and returns their numbers.
fn reserve_all(service: &mut Service) -> Vec<String> {
    let mut ids = Vec::new();
    loop {
        service.send(2, b"reserve-with-timeout 0\r\n");
        service.state.check();
        let reply = answer(service);
        if reply == "TIMED_OUT" {
            return ids;
        }
        ids.push(reply);
    }
}

/// A tube that a turn has served returns to its place after its better jobs: its other jobs are seen.
#[test]
fn a_tube_is_seen_after_its_better_jobs() {
    let mut service = Service::new(Bounds::default(), Commits::AtOnce, 1);
    service.ask(2, "watch */t\r\nignore default\r\n");
    put(&mut service, "a/t", 10, 3);
    put(&mut service, "b/t", 10, 9);
    service.send(2, b"reserve\r\nreserve\r\n");
    put(&mut service, "a/t", 1, 1);
    put(&mut service, "c/t", 0, 1);
    service.output(2);
    assert_eq!(reserve_all(&mut service).len(), 12, "all that are left");
    let tubes: Vec<String> = (0..20).map(|n| format!("w{n}/t")).collect();
    tubes.iter().for_each(|tube| put(&mut service, tube, 10, 30));
    service.ask(2, "reserve-many 20 0\r\n");
    tubes.iter().for_each(|tube| put(&mut service, tube, 1, 1));
    assert_eq!(reserve_all(&mut service).len(), 600, "all that are left");
}

/// The tubes of another watch have more priorities, all better, than a slice visits.
#[test]
fn better_jobs_of_another_watch_delay_nobody() {
    let mut service = Service::new(Bounds::default(), Commits::AtOnce, 1);
    (1..=1_500).for_each(|pri| put(&mut service, &format!("a/{pri}"), pri, 1));
    put(&mut service, "b/t", 5_000, 1);
    service.ask(2, "watch */*\r\nwatch a/*\r\nignore default\r\n");
    let ids = reserve_all(&mut service);
    assert_eq!((ids.len(), ids.first().map(String::as_str)), (1_501, Some("RESERVED 1 1 a")));
}

/// Each tube has a limit of its own that is set for several, so the feed of a pattern has as many lanes.
#[test]
fn many_jobs_are_reserved_in_slices_from_many_lanes() {
    let mut service = Service::new(Bounds::default(), Commits::AtOnce, 1);
    for n in 0..2_000 {
        service.send(1, format!("limit w{n}/t 5 all\r\n").as_bytes());
        put(&mut service, &format!("w{n}/t"), 1, 1);
    }
    service.ask(2, "watch */t\r\nignore default\r\n");
    let mut reserved = 0;
    for _ in 0..2_000 {
        service.send(2, b"reserve-many 1000 0\r\n");
        match answer(&mut service).as_str() {
            "TIMED_OUT" => break,
            _ => reserved += 1,
        }
        while answer(&mut service) != "END" {
            reserved += 1;
        }
    }
    assert_eq!(reserved, 2_000);
}

/// The limit of a group has held more tubes back than one request examines, and the connection that opens it asks for a
/// job of the last one.
#[test]
fn a_connection_sees_what_it_has_opened() {
    let mut service = Service::new(Bounds::default(), Commits::AtOnce, 1);
    service.send(2, b"limit group:g 1\r\nwatch t/200\r\nwatch t/0\r\nignore default\r\n");
    let put = |service: &mut Service, n: usize| {
        service.send(1, format!("put-job 9 0 100 1 tube=t/{n} group=g\r\na\r\n").as_bytes());
    };
    put(&mut service, 0);
    service.send(2, b"reserve\r\n");
    (1..=200).for_each(|n| put(&mut service, n));
    service.output(2);
    service.send(2, b"delete 1\r\nreserve-with-timeout 0\r\n");
    service.pass(Span::from_millis(20));
    assert_eq!(service.next(2), Some("DELETED".into()));
    assert_eq!(service.next(2), Some("RESERVED 201 1 a".into()));
}

/// More runners wait for one limit than are looked at together when it opens, each for a tube of its own.
#[test]
fn runners_behind_a_limit_are_served_in_turns() {
    let mut service = Service::new(Bounds::default(), Commits::AtOnce, 1);
    service.ask(1, "limit t/* 1 all\r\n");
    let runners = 10..160;
    for runner in runners.clone() {
        put(&mut service, &format!("t/{runner}"), 9, 2);
        service.send(runner, format!("watch t/{runner}\r\nignore default\r\nreserve\r\n").as_bytes());
        service.pass(Span::from_millis(1));
    }
    let mut served = Vec::new();
    for _ in 0..2 * runners.len() {
        let replies = runners.clone().map(|runner| (runner, String::from_utf8(service.output(runner)).expect("text")));
        let job_of = |reply: String| Some(reply.split_once("RESERVED ")?.1.split(' ').next()?.to_string());
        let has_one: Vec<_> = replies.filter_map(|(runner, reply)| Some((runner, job_of(reply)?))).collect();
        let [(runner, job)] = &has_one[..] else { panic!("{has_one:?} are served at once") };
        served.push(*runner);
        service.send(*runner, format!("delete {job}\r\nreserve\r\n").as_bytes());
        service.pass(Span::from_millis(20));
    }
    assert!(served.iter().copied().eq(runners.clone().chain(runners)), "{served:?}");
}
