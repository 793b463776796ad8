//! Work on very many jobs or tubes is done in slices: others are served between. The time of each slice is printed with
//! --nocapture; the tests compare numbers of slices, because times depend on other load.

use poolcounter_core::id::ConnId;
use poolcounter_core::time::Span;
use poolcounter_core::wheel::Owner;
use poolcounter_jobs::state::Bounds;
use poolcounter_testkit::jobs::{Commits, Service};
use poolcounter_testkit::world::World;
use std::time::{Duration, Instant};

/// Number of jobs or tubes of a slice.
const SLICE: usize = 1024;
/// Number of jobs that a list looks at in one slice.
const JOBS_AT_ONCE: usize = 2048;
/// Number of due jobs that become ready in one slice.
const DUE_AT_ONCE: usize = 2048;
const MANY: usize = 50 * SLICE;

/// Returns the number of jobs: `JOBS_MANY`, for measurements.
fn many() -> usize {
    poolcounter_testkit::random::setting("JOBS_MANY", MANY as u64) as usize
}

/// Lets another client put and reserve a job, millisecond by millisecond, until a reply comes; returns it with the
/// number of milliseconds. Prints the longest latency of the other client.
fn serve_others_until(service: &mut Service, conn: usize, what: &str) -> (String, usize) {
    let mut longest = Duration::ZERO;
    for slices in 0..many() {
        if let Some(reply) = service.next(conn) {
            println!("{what}: {slices} slices, of which the longest took {longest:?}");
            return (reply, slices);
        }
        let start = Instant::now();
        service.tick();
        service.send(99, b"put-job 0 0 60 1 tube=other\r\na\r\nreserve\r\n");
        longest = longest.max(start.elapsed());
        let told = service.output(99);
        assert!(told.windows(8).any(|word| word == b"RESERVED"), "the other is not served: {}", told.escape_ascii());
    }
    panic!("{what}: there is no reply");
}

fn service_with(jobs: usize, line: impl Fn(usize) -> String) -> Service {
    let mut service = Service::without_store(Bounds::default());
    service.ask(99, "watch other\r\nignore default\r\n");
    service.put_many(0..jobs, line);
    service
}

#[test]
fn clear_move_and_kick_go_through_many_jobs_in_slices() {
    let jobs = many();
    let mut service = service_with(jobs, |_| "put 5 5000 60 1\r\na\r\n".into());
    service.send(2, b"kick-all *\r\n");
    let (reply, slices) = serve_others_until(&mut service, 2, "kick-all");
    assert_eq!(reply, format!("KICKED {jobs}"));
    assert!(slices >= jobs / SLICE - 1, "{slices} slices");
    service.send(2, b"move default new\r\n");
    let (reply, slices) = serve_others_until(&mut service, 2, "move");
    assert_eq!(reply, format!("MOVED {jobs}"));
    assert!(slices >= jobs / SLICE - 1, "{slices} slices");
    service.send(2, b"clear new\r\n");
    let (reply, slices) = serve_others_until(&mut service, 2, "clear");
    assert_eq!(reply, format!("CLEARED {jobs}"));
    assert!(slices >= jobs / SLICE - 1, "{slices} slices");
}

/// Jobs of several tubes are all due in the same second.
#[test]
fn jobs_that_are_due_together_become_ready_in_slices() {
    let jobs = many();
    let mut service = service_with(jobs, |job| format!("put-job 5 2 60 1 tube=t{}\r\na\r\n", job % 7));
    service.pass(Span::from_millis(1_990));
    let (mut ready, mut longest, mut all) = (0, Duration::ZERO, Duration::ZERO);
    for slices in 0.. {
        let start = Instant::now();
        service.tick();
        longest = longest.max(start.elapsed());
        all += start.elapsed();
        let now = service.state.totals()[2] as usize;
        assert!(now - ready <= DUE_AT_ONCE, "{} at once", now - ready);
        ready = now;
        service.send(99, b"put-job 0 0 60 1 tube=other\r\na\r\nreserve\r\n");
        assert!(service.output(99).windows(8).any(|word| word == b"RESERVED"), "another is not served");
        if ready == jobs {
            println!("{jobs} due: {slices} slices, of which the longest took {longest:?}, all together {all:?}");
            break;
        }
        assert!(slices < jobs, "they do not become ready");
    }
}

#[test]
fn pauses_that_end_together_end_in_slices() {
    const TUBES: usize = 2048;
    let put = |n| format!("use t/{n}\r\nput 1 0 60 1\r\na\r\npause-tube t/{n} 60\r\n");
    let mut service = service_with(TUBES, put);
    service.send(2, b"watch t/*\r\n");
    service.pass(Span::from_millis(59_990));
    assert_eq!(service.next(2).as_deref(), Some("WATCHING 2"));
    let (mut reserved, mut slices) = (0, 0);
    while reserved < TUBES {
        service.tick();
        slices += 1;
        assert!(slices < TUBES, "{reserved} of {TUBES} pauses have ended");
        let before = reserved;
        let mut take = || {
            service.send(2, b"reserve-with-timeout 0\r\n");
            service.next(2).is_some_and(|reply| reply.starts_with("RESERVED"))
        };
        while take() {
            reserved += 1;
        }
        assert!(reserved - before <= 512, "{} pauses end at once", reserved - before);
    }
    println!("{TUBES} pauses: {slices} slices");
}

/// The lanes of a set cost more than a slice has, and its next job is superseded.
#[test]
fn a_search_that_costs_more_than_a_slice_gets_further() {
    const LANES: usize = 1000;
    const TYPES: usize = 9;
    let mut service = Service::without_store(Bounds::default());
    service.send(99, b"watch other\r\nignore default\r\n");
    for n in 0..TYPES {
        service.send(2, format!("watch */t{n}\r\n").as_bytes());
    }
    service.send(2, b"reserve-with-timeout 0\r\n");
    (0..LANES).for_each(|n| service.send(1, format!("limit w{n}/* 5 all\r\n").as_bytes()));
    for tube in (0..LANES).flat_map(|wiki| (0..TYPES).map(move |n| format!("w{wiki}/t{n}"))) {
        service.send(1, format!("put-job 9 0 60 1 tube={tube}\r\na\r\n").as_bytes());
    }
    service.output(2);
    service.send(2, b"reserve\r\n");
    let (reply, _) = serve_others_until(&mut service, 2, "a reserve of one of many lanes");
    assert!(reply.starts_with("RESERVED"), "{reply}");
    service.send(1, b"put-job 0 0 60 1 tube=w0/t0 root=S root-ts=1\r\na\r\nroot w0/t0 S 2\r\n");
    service.tick();
    service.send(2, b"reserve\r\n");
    service.send(3, b"watch empty\r\nignore default\r\nreserve-with-timeout 1\r\n");
    let (reply, slices) = serve_others_until(&mut service, 2, "a reserve behind superseded jobs");
    assert!(reply.starts_with("RESERVED") && slices < 100, "{reply} after {slices} slices");
    service.pass(Span::from_secs(1));
    assert!(service.output(3).ends_with(b"TIMED_OUT\r\n"), "a wait of others ends in time");
}

/// Superseded jobs are dropped while the store cannot keep up, so that the others are reserved.
#[test]
fn a_reserve_goes_on_behind_superseded_jobs_while_much_is_uncommitted() {
    let mut service = Service::new(Bounds::default(), Commits::Later, 1);
    service.state.bounds.queue = (10, usize::MAX);
    for n in 0..40 {
        service.send(1, format!("put-job {n} 0 60 1 root=S root-ts=1\r\na\r\n").as_bytes());
    }
    service.send(1, b"put-job 99 0 60 4\r\nlast\r\nroot default S 2\r\n");
    service.commit_all();
    (0..20).for_each(|_| service.send(1, b"put-job 100 0 60 1 tube=other\r\na\r\n"));
    assert!(service.state.is_backed_up());
    service.send(2, b"reserve-with-timeout 1\r\n");
    service.pass(Span::from_millis(500));
    assert_eq!(service.next(2).as_deref(), Some("RESERVED 41 4 last"));
}

/// Each of very many groups gets its limit in a slice; very many tubes with jobs of one group need none.
#[test]
fn limits_of_groups_are_set_in_slices() {
    let jobs = many();
    let mut service = service_with(jobs, |job| format!("put-job 5 0 60 1 group=g{job}\r\na\r\n"));
    service.send(2, b"limit group:* 1\r\n");
    let (reply, slices) = serve_others_until(&mut service, 2, "limit group:*");
    assert!(reply == "LIMIT 1" && slices >= jobs / SLICE - 2, "{reply} after {slices} slices");
    let tubes = jobs / 5;
    let mut service = service_with(tubes, |tube| format!("put-job 5 0 60 1 tube=t{tube} group=one\r\na\r\n"));
    service.send(2, b"limit group:one 2\r\n");
    assert_eq!(service.next(2), Some("LIMIT 2".into()));
    service.send(2, b"watch *\r\nreserve-many 5 0\r\n");
    assert_eq!(service.next(2), Some("WATCHING 2".into()));
    let mut told = Vec::new();
    while told.last().is_none_or(|last: &String| last != "END") {
        told.extend(service.next(2));
        service.tick();
    }
    assert_eq!(told.len(), 3, "two of the group, and the end: {told:?}");
}

/// A runner with very many reserved jobs is lost: they become ready in slices, and a new connection with its number is
/// not their holder.
#[test]
fn the_jobs_of_a_lost_connection_come_back_in_slices() {
    let jobs = many();
    let mut service = service_with(jobs, |_| "put 5 0 60 1\r\na\r\n".into());
    service.send(2, "reserve-many 1000 0\r\n".repeat(jobs.div_ceil(1000)).as_bytes());
    service.output(2);
    let start = Instant::now();
    service.close(2);
    println!("close: {:?}", start.elapsed());
    service.send(
        2,
        format!("delete {jobs}\r\ntouch {jobs}\r\nrelease {jobs} 0 0\r\nlist-jobs default reserved 1\r\n").as_bytes(),
    );
    for _ in 0..3 {
        assert_eq!(service.next(2), Some("NOT_FOUND".into()));
    }
    assert!(service.next(2).is_some_and(|text| text.contains("id:")), "they are reserved still");
    service.send(2, b"peek-ready\r\n");
    assert!(service.next(2).is_some_and(|reply| reply.starts_with("FOUND ")), "the first are back at once");
    service.ask(3, "watch back\r\nignore default\r\n");
    for slices in 0.. {
        service.tick();
        service.send(3, b"stats-tube default\r\n");
        let text = service.next(3).expect("an answer");
        if text.contains(&format!("current-jobs-ready: {jobs}\n")) {
            assert!(slices >= jobs / SLICE - 3, "{slices} slices");
            break;
        }
        assert!(slices < jobs, "they do not come back");
    }
    if jobs == MANY {
        service.state.check();
    }
}

/// Another process takes over while the jobs of a lost connection are being released.
#[test]
fn an_upgrade_brings_back_the_jobs_of_a_lost_connection() {
    let mut service = Service::new(Bounds::default(), Commits::AtOnce, 1);
    service.send(1, "put 5 0 60 1\r\na\r\n".repeat(3_000).as_bytes());
    service.send(2, "reserve-many 1000 0\r\n".repeat(3).as_bytes());
    service.close(2);
    service.state.check();
    service.hand_over();
    service.output(1);
    service.send(1, b"stats-tube default\r\n");
    assert!(service.next(1).is_some_and(|text| text.contains("current-jobs-ready: 3000\n")));
    assert_eq!(service.wheel.len(), service.state.background_timers());
}

/// A new set of watches over many tubes, and one that is dropped.
#[test]
fn patterns_over_many_tubes_are_watched_in_slices() {
    const TUBES: usize = 20_000;
    let mut service = service_with(TUBES, |tube| format!("put-job {} 0 60 1 tube=w{tube}/t\r\na\r\n", tube % 7 + 1));
    service.ask(2, "watch */*\r\nignore default\r\n");
    service.send(2, b"reserve-with-timeout 0\r\n");
    let (reply, slices) = serve_others_until(&mut service, 2, "a new pattern over 20,000 tubes");
    assert!(reply.starts_with("RESERVED 7 ") || reply.starts_with("RESERVED 1 "), "{reply}");
    // Two slices may fall into a millisecond of the clock.
    assert!(slices >= TUBES / SLICE / 2, "{slices} slices");
    // The next runner with these watches has nothing to wait for.
    service.send(3, b"watch */*\r\nignore default\r\nreserve-with-timeout 0\r\n");
    service.next(3);
    service.next(3);
    assert!(service.next(3).is_some_and(|reply| reply.starts_with("RESERVED ")));
    // Others have nothing to wait for either, whatever else they watch.
    for weight in 1..=20 {
        service.send(2, format!("watch */* {weight}\r\nreserve-with-timeout 0\r\n").as_bytes());
        assert!(service.output(2).windows(8).any(|word| word == b"RESERVED"), "there are jobs");
    }
    // Patterns come and go, while tubes do.
    for pattern in 1..=20 {
        service.send(3, format!("watch w{pattern}/*\r\nreserve-with-timeout 0\r\n").as_bytes());
        assert_eq!(service.next(3), Some(format!("WATCHING {}", pattern + 1)));
        (0..3).for_each(|_| service.tick());
        service.send(1, format!("put-job 0 0 60 1 tube=new{pattern}/t\r\na\r\n").as_bytes());
        service.output(1);
        while service.next(3).is_none() {
            service.tick();
        }
        service.output(3);
    }
    service.pass(Span::from_secs(1));
    [1, 2, 3, 99].into_iter().for_each(|conn| service.close(conn));
    service.pass(Span::from_secs(1));
    assert_eq!(service.wheel.len(), service.state.background_timers(), "nothing is left to be done");
}

/// Sends a request, and returns the reply and the number of ticks until then. Another client sends a request and gets
/// its reply in each of them.
fn ask_beside(world: &mut World, [asks, other]: [usize; 2], question: &str) -> (Vec<u8>, usize) {
    const END: &[u8] = b"USING default\r\n";
    world.send(asks, format!("{question}list-tube-used\r\n").as_bytes());
    let (mut text, mut ticks, mut longest) = (Vec::new(), 0, Duration::ZERO);
    while !text.ends_with(END) {
        world.send(other, b"list-tube-used\r\n");
        let start = Instant::now();
        world.tick_unchecked();
        longest = longest.max(start.elapsed());
        assert_eq!(world.take_received(other), END, "the other is answered in each tick");
        text.extend(world.take_received(asks));
        ticks += 1;
        assert!(ticks < 10_000, "{question} has no end");
    }
    println!("{question:?}: {ticks} ticks, of which the longest took {longest:?}");
    (text, ticks)
}

#[test]
fn lists_of_many_tubes_are_made_in_slices() {
    const TUBES: usize = 20 * SLICE;
    let mut world = World::of_administrators();
    let [producer, asks, other] = [(); 3].map(|()| world.connect_to("jobs"));
    for first in (0..TUBES).step_by(200) {
        let put = |tube: usize| format!("put-job 5 0 60 1 tube=tube{tube}\r\na\r\n");
        world.send(producer, (first..TUBES.min(first + 200)).map(put).collect::<String>().as_bytes());
        (0..2).for_each(|_| world.tick_unchecked());
        world.take_received(producer);
    }
    let questions = [
        ("list-tubes", TUBES * 9),
        ("summary tube", TUBES * 300),
        ("summary wiki", TUBES * 300),
        ("summary type", TUBES * 300),
    ];
    for (question, least) in questions {
        let (text, ticks) = ask_beside(&mut world, [asks, other], &format!("{question}\r\n"));
        assert!(ticks >= TUBES / SLICE && text.len() > least, "{ticks} ticks, {} bytes", text.len());
        let head = text.split(|byte| *byte == b'\r').next().expect("a line");
        let len: usize = String::from_utf8_lossy(&head[3..]).parse().expect("a length");
        assert_eq!(text.len(), head.len() + 2 + len + 2 + b"USING default\r\n".len(), "the length is right");
        let items = text.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"- ")).count();
        assert_eq!(items, TUBES + 1, "each tube is told, and default");
    }
}

/// The jobs of a long queue are listed in slices, in whatever state; those of short ones at once.
#[test]
fn jobs_of_a_long_queue_are_listed_in_slices() {
    let jobs = many();
    let mut world = World::of_administrators();
    let [producer, asks, other] = [(); 3].map(|()| world.connect_to("jobs"));
    let ask = |world: &mut World, question: &str| {
        let (text, ticks) = ask_beside(world, [asks, other], question);
        let text = String::from_utf8_lossy(&text);
        let ids = text.lines().filter_map(|line| line.strip_prefix("- id: ")?.parse::<usize>().ok());
        (ticks, ids.collect::<Vec<_>>())
    };
    for (state, line, tube) in [("ready", "put-job 5 0 60 1", "ready"), ("delayed", "put-job 5 900 60 1", "delayed")] {
        for first in (0..jobs).step_by(200) {
            let put = format!("{line} tube={tube}\r\na\r\n");
            world.send(producer, put.repeat(200.min(jobs - first)).as_bytes());
            world.tick_unchecked();
            world.tick_unchecked();
            world.take_received(producer);
        }
        let question = format!("list-jobs {tube} {state} 3\r\nlist-jobs {tube} {state} 2 after={jobs}\r\n");
        let (ticks, ids) = ask(&mut world, &question);
        assert!(ticks >= jobs / JOBS_AT_ONCE, "{ticks} ticks");
        let expected: &[usize] =
            if state == "ready" { &[1, 2, 3] } else { &[jobs + 1, jobs + 2, jobs + 3, jobs + 1, jobs + 2] };
        assert_eq!(ids, expected);
    }
    // A list of a short queue does not look at all jobs.
    world.send(producer, b"put-job 5 0 60 1 tube=short\r\na\r\n");
    world.tick_unchecked();
    let (ticks, ids) = ask(&mut world, "list-jobs short ready 9\r\n");
    assert!(ticks <= 3 && ids == [2 * jobs + 1], "{ticks} ticks, {ids:?}");
    world.send(producer, b"watch short\r\nreserve\r\n");
    world.tick_unchecked();
    let (ticks, ids) = ask(&mut world, "list-jobs short reserved 9\r\n");
    assert!(ticks <= 3 && ids == [2 * jobs + 1], "{ticks} ticks, {ids:?}");
}

/// In the middle of a list, another process takes over, or the client is lost.
#[test]
fn a_list_is_answered_over_an_upgrade_and_forgotten_with_its_client() {
    const TUBES: usize = 2 * SLICE;
    let mut world = World::of_administrators();
    let [producer, asks] = [(); 2].map(|()| world.connect_to("jobs"));
    let put = |tube: usize| format!("put-job 5 0 60 1 tube=tube{tube}\r\na\r\n");
    world.send(producer, (0..TUBES).map(put).collect::<String>().as_bytes());
    (0..10).for_each(|_| world.tick_unchecked());
    world.send(asks, b"list-tubes\r\n");
    world.tick_unchecked();
    world.upgrade();
    (0..100).for_each(|_| world.tick_unchecked());
    let text = world.take_received(asks);
    assert!(text.len() > TUBES * 9 && text.ends_with(b"\n\r\n"), "{} bytes", text.len());
    world.send(asks, b"summary tube\r\n");
    world.tick_unchecked();
    world.reset(asks);
    (0..5).for_each(|_| world.tick_unchecked());
    assert!(world.is_closed(asks));
}

/// Jobs of a batch that is committed are shown within the budget of the tick, which all services share.
#[test]
fn jobs_that_are_committed_together_share_the_tick() {
    let mut service = Service::new(Bounds::default(), Commits::Later, 1);
    for _ in 0..many() {
        service.send(1, b"put 0 0 9 1\r\na\r\n");
    }
    service.take();
    let mut shown = 0;
    let mut show = |service: &mut Service| {
        assert!(service.show_some(), "there are many");
        let before = std::mem::replace(&mut shown, service.state.totals()[2]);
        shown - before
    };
    service.wheel.of::<ConnId>(Owner(9)).renew_budget();
    let most = show(&mut service);
    let least = show(&mut service);
    assert!(least < most && (1..=128).contains(&least), "{most} and then {least}");
    service.wheel.of::<ConnId>(Owner(9)).renew_budget();
    assert_eq!(show(&mut service), most);
    service.commit_all();
    assert_eq!(service.state.totals()[2], many() as u64);
    service.state.check();
}

/// Clients begin commands that go through very many tubes, and leave: these go on, but only so many, and others are
/// served meanwhile. The command of a client that stays comes after them, and a plain `kick` at once.
#[test]
fn commands_of_clients_that_have_gone_are_bounded() {
    const TUBES: usize = 10 * SLICE;
    /// Number of commands whose clients have gone, before another has to wait.
    const LEFT: usize = 64;
    let mut world = World::of_administrators();
    let [producer, stays, other] = [(); 3].map(|()| world.connect_to("jobs"));
    let put = |world: &mut World, jobs: usize, line: &dyn Fn(usize) -> String| {
        for first in (0..jobs).step_by(200) {
            world.send(producer, (first..jobs.min(first + 200)).map(line).collect::<String>().as_bytes());
            (0..2).for_each(|_| world.tick_unchecked());
            world.take_received(producer);
        }
    };
    put(&mut world, TUBES, &|tube| format!("put-job 5 0 60 1 tube=a{tube}/b\r\na\r\n"));
    put(&mut world, 2 * LEFT, &|tube| format!("put-job 5 5000 60 1 tube=z/x{tube}\r\na\r\n"));
    for tube in 0..2 * LEFT {
        let gone = world.connect_to("jobs");
        world.send(gone, format!("kick-all */x{tube}\r\n").as_bytes());
        world.tick_unchecked();
        world.reset(gone);
    }
    world.tick_unchecked();
    world.send(stays, format!("kick-all */x{}\r\n", 2 * LEFT - 1).as_bytes());
    let (mut ticks, mut reply) = (0, Vec::new());
    while reply.is_empty() {
        world.send(other, b"put-job 0 0 60 1 tube=other\r\na\r\nkick 1\r\nlist-tube-used\r\n");
        world.tick_unchecked();
        let told = world.take_received(other);
        assert!(told.ends_with(b"\r\nKICKED 0\r\nUSING default\r\n"), "{}", told.escape_ascii());
        reply = world.take_received(stays);
        ticks += 1;
        assert!(ticks < 10 * LEFT * TUBES / SLICE, "the commands have no end");
    }
    assert_eq!(reply, b"KICKED 1\r\n", "the last of those that have gone was not begun");
    world.settle();
    let told = world.tell(other, "stats\r\n");
    let delayed: Option<usize> =
        told.split_once("current-jobs-delayed: ").and_then(|(_, rest)| rest.lines().next()?.parse().ok());
    let kicked = 2 * LEFT - delayed.expect("a number");
    println!("{ticks} ticks, {kicked} of {} begun", 2 * LEFT);
    assert!((LEFT..LEFT + LEFT / 2).contains(&kicked), "{kicked} were begun");
}
