//! The limits in the manual that no conversation reaches: their effect, and that no other client notices.

use poolcounter::SERVICES;
use poolcounter_core::time::Span;
use poolcounter_pools::PoolsSettings;
use poolcounter_service::container::AllSettings;
use poolcounter_service::contract::REQUESTS_PER_TURN;
use poolcounter_service::report::Budget;
use poolcounter_testkit::world::World;

fn world() -> World {
    World::new(PoolsSettings::default())
}

#[test]
fn greedy_client_does_not_delay_other_clients() {
    let mut world = world();
    let (greedy, modest) = (world.connect(), world.connect());
    world.send(greedy, &b"RELEASE\n".repeat(20 * REQUESTS_PER_TURN));
    world.send(modest, b"RELEASE\n");
    world.tick();
    assert_eq!(world.take_received(modest), b"NOT_LOCKED\n");
    assert_eq!(world.take_received(greedy).len(), REQUESTS_PER_TURN * "NOT_LOCKED\n".len());
    assert_eq!(world.heard(greedy).lines().count(), 19 * REQUESTS_PER_TURN, "the rest follows");
}

/// Timers and replies are handled in between, however many clients have work for a whole turn each.
#[test]
fn tick_serves_2_milliseconds_at_most() {
    let mut world = world();
    let clients: Vec<usize> = (0..50).map(|_| world.connect()).collect();
    clients.iter().for_each(|client| world.send(*client, b"RELEASE\n"));
    // Every reading of the clock takes a millisecond.
    world.tick_slowly(Span::from_millis(1));
    let served = clients.iter().filter(|client| !world.take_received(**client).is_empty()).count();
    assert!((2..6).contains(&served), "{served} were served");
    world.settle();
    assert_eq!(clients.iter().filter(|client| !world.take_received(**client).is_empty()).count(), 50 - served);
}

/// Snapshots of all services are taken after the other turns of a tick: one at least, and within the same time.
#[test]
fn tick_takes_snapshots_after_all_else() {
    const ASKED: usize = 10;
    let mut world = World::with(AllSettings::defaults(SERVICES));
    let observers: Vec<usize> = (0..20).map(|n| world.connect_to(["pools", "http"][n % 2])).collect();
    for (n, observer) in observers.iter().enumerate() {
        let request = ["STATS REPORT 1\n", "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"][n % 2];
        world.send(*observer, request.repeat(ASKED).as_bytes());
    }
    let (client, prober) = (world.connect(), world.connect_to("http"));
    let shown = |world: &mut World| -> usize {
        let told = observers.iter().map(|it| String::from_utf8(world.take_received(*it)).expect("is text"));
        told.map(|told| told.matches("}\n\n").count() + told.matches("HTTP/1.1 200").count()).sum()
    };
    let (mut total, before) = (0, world.connections.loop_stats().spent(Budget::Serving));
    // Every reading of the clock takes longer than a tick serves, so each tick has one turn of each kind.
    for _ in 0..50 {
        world.tick_slowly(Span::from_millis(3));
        total += shown(&mut world);
    }
    assert_eq!(total, 50, "each tick takes a snapshot");
    assert!(
        world.connections.loop_stats().spent(Budget::Serving) >= before + 50,
        "and says that it has no time for the others"
    );
    for _ in 0..20 {
        world.send(client, b"RELEASE\n");
        world.send(prober, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
        for _ in 0..4 {
            world.tick_slowly(Span::from_millis(3));
            total += shown(&mut world);
        }
        assert_eq!(world.take_received(client), b"NOT_LOCKED\n", "a request waits for few snapshots");
        assert!(world.take_received(prober).ends_with(b"ok\n"), "so does a health check");
    }
    world.settle();
    assert_eq!(total + shown(&mut world), observers.len() * ASKED, "nothing was lost");
}

/// The end of a connection takes its time from the clock, as a turn does. A job that becomes ready later in the tick
/// comes after the jobs of the end.
#[test]
fn end_within_a_tick_keeps_time_monotonic() {
    let mut world = World::with(AllSettings::defaults(SERVICES));
    let (worker, other) = (world.connect_to("jobs"), world.connect_to("jobs"));
    world.send(worker, b"put 1 0 60 1\r\na\r\nreserve\r\nreserve\r\n");
    world.send(other, b"put 1 1 60 1\r\nb\r\n");
    assert_eq!(world.heard(worker), "INSERTED 1\r\nRESERVED 1 1\r\na\r\n");
    world.send(other, b"list-tube-used\r\n");
    world.reset(worker);
    // Every reading of the clock takes so long that the delay is over with the first.
    world.tick_slowly(Span::from_secs(1));
    world.settle();
    assert!(world.heard(other).ends_with("USING default\r\n"));
}

#[test]
fn listing_has_at_most_1000_lines_256_kib() {
    let mut world = world();
    let clients: Vec<usize> = (0..1_200).map(|_| world.connect()).collect();
    for (n, client) in clients.iter().enumerate() {
        let key = format!("{n}{}", "x".repeat(896));
        world.send(*client, format!("ACQ4ME {key} 1 1 0\nACQ4ME k 1 9999 3600\n").as_bytes());
    }
    let observer = world.connect();
    world.send(observer, b"STATS HOLDERS k\n");
    let holders = world.heard(observer);
    let lines: Vec<&str> = holders.lines().collect();
    assert_eq!((lines.len(), lines[1_000], lines[1_001]), (1_002, "and 200 more", ""));
    assert!(lines[0].starts_with("client:0 working ") && lines[999].starts_with("client:999 waiting_for_me "));
    world.send(observer, b"STATS KEYS 4294967295\nSTATS KEYS 2000\n");
    let keys = world.heard(observer);
    assert!(keys.len() <= 2 * (256 * 1024 + 100), "{}", keys.len());
    assert_eq!(keys.lines().filter(|line| line.starts_with("and ") && line.ends_with(" more")).count(), 2);
    // A client with large requests is not closed, even if it does not read for a while.
    world.set_room(observer, 0);
    world.send(observer, &b"STATS KEYS 1000\n".repeat(100));
    world.settle();
    world.set_room(observer, usize::MAX);
    assert_eq!(world.heard(observer).lines().filter(|line| line.is_empty()).count(), 100);
}

/// The report of all services is short enough for a connection that is full already, whatever its contents.
#[test]
fn report_has_512_kib_at_most() {
    let mut world = world();
    let clients: Vec<usize> = (0..600).map(|_| world.connect()).collect();
    for (n, client) in clients.iter().enumerate() {
        let key = [format!("{n}").as_bytes(), &b"\\\x01\""[..], format!("{n:048}:").as_bytes(), &[1; 800]].concat();
        world.send(*client, &[&b"ACQ4ME "[..], &key, b" 1 1 0\nACQ4ME k 1 9999 3600\n"].concat());
    }
    let observer = world.connect();
    world.send(observer, b"STATS REPORT 4294967295\n");
    let report = world.heard(observer);
    assert!(report.len() < 512 * 1024 && report.len() > 50_000 && report.ends_with("\n\n"), "{}", report.len());
    let read: serde_json::Value = serde_json::from_str(&report).expect("is JSON");
    let types = read["pools"]["types"].as_array().map_or(0, Vec::len);
    assert!(types > 200, "most of 257: {types}");
    assert_eq!(read["services"][0]["name"], "pools");
    world.send(observer, b"STATS REPORT 1\nSTATS REPORT 0\n");
    assert!(world.heard(observer).len() < report.len(), "fewer rows take less");
    // A client with large requests is not closed, even if it does not read for a while.
    world.set_room(observer, 0);
    world.send(observer, &b"STATS REPORT 300\n".repeat(20));
    world.settle();
    world.set_room(observer, usize::MAX);
    assert_eq!(world.heard(observer).lines().filter(|line| line.is_empty()).count(), 20);
}

/// A listing looks at all keys, so other clients have a turn before the next one.
#[test]
fn listing_of_keys_ends_the_turn() {
    let mut world = world();
    let (greedy, modest) = (world.connect(), world.connect());
    world.send(greedy, &b"STATS KEYS\n".repeat(3));
    world.send(modest, b"RELEASE\n");
    world.tick();
    assert_eq!(world.take_received(greedy), b"\n");
    assert_eq!(world.take_received(modest), b"NOT_LOCKED\n");
    assert_eq!(world.heard(greedy), "\n\n");
    world.send(greedy, &b"STATS REPORT 0\n".repeat(3));
    world.tick();
    assert!(world.take_received(greedy).ends_with(b"}\n\n"));
    assert_eq!(world.heard(greedy).matches("\n\n").count(), 2);
}

#[test]
fn types_are_256_and_others() {
    let mut world = world();
    let client = world.connect();
    for n in 0..300 {
        world.send(client, format!("ACQ4ME type{n}:k 1 1 0\nRELEASE\n").as_bytes());
    }
    world.heard(client);
    world.send(client, b"STATS TYPES\n");
    let types = world.heard(client);
    assert!(types.starts_with("other: 0 working, 0 waiting, 44 acquired, "), "{types}");
    assert_eq!(types.lines().count(), 1 + 256 + 1);
}

/// A lock and a refusal have no timers: the conditions are looked at without them.
#[test]
fn idle_server_is_not_woken() {
    let mut world = world();
    let (holder, other) = (world.connect(), world.connect());
    world.send(holder, b"ACQ4ME k 1 1 0\n");
    world.send(other, b"ACQ4ME k 1 1 0\n");
    world.settle();
    assert_eq!(world.next_work(), None);
}

/// A client may send the head of a request, and wait with the body until it is told to go on.
#[test]
fn client_that_expects_100_is_told_to_continue() {
    let mut world = World::with(AllSettings::defaults(SERVICES));
    let client = world.connect_to("http");
    let head = b"POST /none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n";
    assert_eq!(world.ask(client, &head[..50]), b"");
    assert_eq!(world.ask(client, &head[50..]), b"HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(world.ask(client, b"a"), b"", "once");
    world.upgrade();
    let answer = world.tell(client, "bc");
    assert!(answer.ends_with("404 Not Found\n") && !world.is_ended(client), "{answer}");
    let answer = String::from_utf8(world.ask(client, &[&head[..], b"abc"].concat())).expect("is text");
    assert!(answer.starts_with("HTTP/1.1 404 "), "the body is there: {answer}");
}
