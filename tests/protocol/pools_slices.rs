//! Simultaneous actions of very many clients of the pools are handled in slices: another client is served in every
//! tick. The tests compare numbers of ticks and of actions in each, because times depend on other load.

use poolcounter_core::random::Random;
use poolcounter_core::time::Span;
use poolcounter_pools::PoolsSettings;
use poolcounter_testkit::world::World;

/// Three times the number of keys that are examined in one slice.
const MANY_KEYS: usize = 60_000;
/// More clients than die, time out or are written to in one tick.
const CROWD: usize = 3_000;
/// Bounds of a tick: connections written to, connections dropped, and timers fired.
const WRITES: usize = 256;
const REAPS: usize = 64;
const TIMERS: usize = 1024;

/// Returns a world without a limit of locks.
fn world() -> World {
    World::new(PoolsSettings { max_locks: u32::MAX, ..PoolsSettings::default() })
}

/// Acquires this number of keys for a client.
fn hold_many(world: &mut World, client: usize, keys: usize) {
    let lines: String = (0..keys).map(|n| format!("ACQ4ME key:{n:06} 1 9 0\n")).collect();
    world.send(client, lines.as_bytes());
    while world.next_work().is_some_and(|at| at <= world.now()) {
        world.tick_unchecked();
    }
    assert_eq!(world.take_received(client).len(), keys * b"LOCKED\n".len());
}

/// Lets another client acquire and release a lock in the next tick.
fn serve_other(world: &mut World, other: usize) {
    world.send(other, b"ACQ4ME other 1 9 1\nRELEASE\n");
    world.tick_unchecked_after(Span::from_millis(1));
    assert_eq!(world.take_received(other).escape_ascii().to_string(), "LOCKED\\nRELEASED\\n", "the other is served");
}

/// Serves the other client until `client` gets output; returns that, and the number of ticks.
fn serve_other_until(world: &mut World, other: usize, client: usize) -> (String, usize) {
    for ticks in 1.. {
        serve_other(world, other);
        let told = world.take_received(client);
        if !told.is_empty() {
            return (String::from_utf8(told).expect("replies are text"), ticks);
        }
    }
    unreachable!("a reply comes at last");
}

#[test]
fn keys_are_looked_at_in_slices() {
    let mut world = world();
    let [holder, asker, next, other] = [(); 4].map(|()| world.connect());
    hold_many(&mut world, holder, MANY_KEYS);
    world.send(asker, b"STATS KEYS 2\nSTATS HOLDERS key:000007\n");
    world.send(next, b"STATS KEYS 1\n");
    let (told, ticks) = serve_other_until(&mut world, other, asker);
    let keys: Vec<&str> = told.lines().map(|line| line.split(',').next().unwrap_or_default()).collect();
    assert_eq!(keys, ["key:000000: 1 working", "key:000001: 1 working", ""]);
    assert!((29..40).contains(&ticks), "in {ticks} slices");
    let (told, ticks) = serve_other_until(&mut world, other, next);
    assert!(told.starts_with("key:000000: 1 working") && (29..40).contains(&ticks), "then the next, in {ticks} slices");
    assert!(world.take_received(asker).starts_with(b"client:0 working"), "what was asked behind it is answered");
}

#[test]
fn key_scan_lists_present_state() {
    let mut world = world();
    let [first, holder, asker, other, waiter] = [(); 5].map(|()| world.connect());
    world.send(first, b"ACQ4ME a 1 9 0\n");
    hold_many(&mut world, holder, MANY_KEYS);
    world.send(asker, b"STATS KEYS 2\n");
    serve_other(&mut world, other);
    world.send(first, b"RELEASE\n");
    world.send(waiter, b"ACQ4ME key:000000 1 9 60\n");
    let (told, _) = serve_other_until(&mut world, other, asker);
    assert!(told.starts_with("key:000000: 1 working, 1 waiting, ") && told.ends_with("\n\n"), "{told}");
    assert!(!told.contains("\na: "), "{told}");
}

#[test]
fn key_search_outlives_an_upgrade_not_its_connection() {
    let mut world = world();
    let [holder, asker, next, other] = [(); 4].map(|()| world.connect());
    hold_many(&mut world, holder, MANY_KEYS);
    world.send(asker, b"STATS KEYS 1\n");
    world.send(next, b"STATS KEYS 1\n");
    serve_other(&mut world, other);
    world.reset(asker);
    serve_other(&mut world, other);
    world.upgrade();
    let (told, ticks) = serve_other_until(&mut world, other, next);
    assert!(told.starts_with("key:000000: 1 working") && ticks >= 29, "{told} in {ticks} slices, from the first on");
    world.reset(holder);
    world.settle();
    [next, other].iter().for_each(|client| world.finish(*client));
    world.settle();
    assert!(world.is_empty());
}

#[test]
fn key_search_does_not_wait_for_slow_readers() {
    let mut world = world();
    let [holder, rival, asker, next, other] = [(); 5].map(|()| world.connect());
    hold_many(&mut world, holder, MANY_KEYS);
    world.send(rival, b"ACQ4ME wanted 1 9 60\n");
    world.set_room(asker, 0);
    // All but three bytes of a full output, before the LOCKED.
    world.send(asker, &[&b"RELEASE\n".repeat(5_956)[..], b"ACQ4ME\nACQ4ME wanted 1 9 60\nSTATS KEYS 1\n"].concat());
    (0..12).for_each(|_| serve_other(&mut world, other));
    world.send(next, b"STATS KEYS 1\n");
    world.send(rival, b"RELEASE\n");
    let (told, _) = serve_other_until(&mut world, other, next);
    assert!(told.starts_with("key:000000: 1 working"), "{told}");
    world.set_room(asker, usize::MAX);
    world.settle();
    let told = String::from_utf8(world.take_received(asker)).expect("replies are text");
    let (before, after) = told.split_once("LOCKED\nkey:000000: 1 working").expect("it is answered, too");
    assert!(before.ends_with("NOT_LOCKED\nERROR BAD_SYNTAX\n") && after.ends_with("\n\n"));
}

#[test]
fn simultaneous_timeouts_do_not_delay_other_clients() {
    let mut world = world();
    let [holder, other] = [(); 2].map(|()| world.connect());
    world.send(holder, b"ACQ4ME hot 1 99999 1\n");
    let waiters: Vec<usize> = (0..CROWD).map(|_| world.connect()).collect();
    waiters.iter().for_each(|waiter| world.send(*waiter, b"ACQ4ME hot 1 99999 5\n"));
    (0..20).for_each(|_| world.tick_unchecked());
    world.tick_unchecked_after(Span::from_millis(5_001));
    let mut told = waiters.iter().filter(|waiter| !world.take_received(**waiter).is_empty()).count();
    while told < CROWD {
        serve_other(&mut world, other);
        let now = waiters.iter().filter(|waiter| world.take_received(**waiter) == b"TIMEOUT\n").count();
        assert!((1..=WRITES).contains(&now), "{now} are told in a tick");
        told += now;
    }
}

#[test]
fn simultaneous_ends_of_locks_delay_no_waiter() {
    let mut world = world();
    let [holder, other] = [(); 2].map(|()| world.connect());
    let lines: String = (0..CROWD).map(|n| format!("ACQ4ME key:{n} 1 9 0 hold=5\n")).collect();
    world.send(holder, lines.as_bytes());
    (0..20).for_each(|_| world.tick_unchecked());
    let working = |world: &mut World| {
        world.send(other, b"STATS processing_workers\n");
        world.tick_unchecked_after(Span::from_millis(1));
        let told = String::from_utf8(world.take_received(other)).expect("is text");
        told.trim_end().rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(usize::MAX)
    };
    world.tick_unchecked_after(Span::from_millis(5_001));
    let mut before = working(&mut world);
    assert!((1..CROWD).contains(&before), "{before} of {CROWD} are held");
    while before > 0 {
        let now = working(&mut world);
        assert!(now < before && before - now <= TIMERS, "{before} and then {now} are held");
        before = now;
    }
}

#[test]
fn connections_lost_together_are_dropped_in_slices() {
    let mut world = world();
    let other = world.connect();
    let dying: Vec<usize> = (0..CROWD).map(|_| world.connect()).collect();
    for (n, client) in dying.iter().enumerate() {
        world.send(*client, format!("ACQ4ME key:{n} 1 9 0\n").as_bytes());
    }
    (0..20).for_each(|_| world.tick_unchecked());
    dying.iter().for_each(|client| world.reset(*client));
    let mut left = CROWD;
    while left > 0 {
        serve_other(&mut world, other);
        let now = dying.iter().filter(|client| !world.is_closed(**client)).count();
        assert!(now < left && left - now <= REAPS, "{left} and then {now} are left");
        left = now;
    }
    world.settle();
}

/// The newest lock on a key is released, however many locks a connection has.
#[test]
fn release_finds_the_newest_lock_on_a_key() {
    let mut world = world();
    let (holder, observer) = (world.connect(), world.connect());
    let mut random = Random::from_seed(7);
    let mut locks: Vec<u64> = Vec::new();
    for round in 0..2_000 {
        // The number goes up and down, so that the connection has few and many in turn.
        let grows = random.below(10) < if round / 200 % 2 == 0 { 7 } else { 3 };
        let key = random.below(12);
        let (line, reply) = match random.below(4) {
            _ if grows => {
                locks.push(key);
                (format!("ACQ4ME key:{key} 9999 9999 0\n"), "LOCKED\n")
            }
            0 => ("RELEASE\n".into(), if locks.pop().is_some() { "RELEASED\n" } else { "NOT_LOCKED\n" }),
            _ => {
                let newest = locks.iter().rposition(|own| *own == key);
                newest.map(|place| locks.remove(place));
                (format!("RELEASE key:{key}\n"), if newest.is_some() { "RELEASED\n" } else { "NOT_LOCKED\n" })
            }
        };
        world.send(holder, line.as_bytes());
        world.settle();
        assert_eq!(world.take_received(holder).escape_ascii().to_string(), reply.escape_default().to_string());
        if round % 500 == 499 {
            world.upgrade();
        }
    }
    world.send(observer, b"STATS processing_workers\n");
    world.settle();
    let told = world.take_received(observer).escape_ascii().to_string();
    assert_eq!(told, format!("processing_workers: {}\\n", locks.len()));
}

/// Locks of a lost client are released in slices. A request for such a lock is granted at once, and new connections are
/// not mistaken for the lost one.
#[test]
fn locks_of_a_lost_client_return_in_slices() {
    let mut world = world();
    let [holder, waiter, other, observer] = [(); 4].map(|()| world.connect());
    hold_many(&mut world, holder, MANY_KEYS);
    world.send(waiter, b"ACQ4ME key:000000 1 9 60\n");
    serve_other(&mut world, other);
    world.reset(holder);
    let working = |world: &mut World| -> usize {
        world.send(observer, b"STATS processing_workers\n");
        serve_other(world, other);
        let told = String::from_utf8(world.take_received(observer)).expect("text");
        told.trim_end().rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number")
    };
    let mut before = working(&mut world);
    assert!((MANY_KEYS - 5_000..MANY_KEYS).contains(&before), "{before} are held");
    let mut news = Vec::new();
    for n in 0..20 {
        let new = world.connect();
        world.send(
            new,
            format!("ACQ4ME key:{:06} 1 9 0\nSTATS HOLDERS key:{:06}\nRELEASE\nRELEASE\n", 30 + n, 30 + n).as_bytes(),
        );
        serve_other(&mut world, other);
        let told = world.take_received(new).escape_ascii().to_string();
        assert!(told.starts_with("LOCKED\\n") && told.ends_with("RELEASED\\nNOT_LOCKED\\n"), "{told}");
        news.push(new);
        let now = working(&mut world);
        assert!(now < before && before - now <= 2_000, "{before} and then {now} are held");
        before = now;
    }
    while before > 1 {
        before = working(&mut world);
    }
    assert_eq!(world.take_received(waiter), b"LOCKED\n");
    world.upgrade();
    [waiter, other, observer].iter().chain(&news).for_each(|client| world.finish(*client));
    world.settle();
    assert!(world.is_empty());
}

/// An upgrade waits until all locks of lost clients are released.
#[test]
fn upgrade_gives_back_locks_of_closed_connections() {
    let mut world = world();
    let [holder, other] = [(); 2].map(|()| world.connect());
    hold_many(&mut world, holder, MANY_KEYS);
    world.reset(holder);
    serve_other(&mut world, other);
    world.upgrade();
    world.settle();
    world.send(other, b"STATS processing_workers\n");
    world.settle();
    assert_eq!(world.take_received(other), b"processing_workers: 0\n");
    world.finish(other);
    world.settle();
    assert!(world.is_empty());
}

/// A lock is released for which very many clients wait that also want another lock, which is not free. A waiter that
/// can have all of its locks is found, whatever other clients do meanwhile.
#[test]
fn waiters_for_several_keys_are_examined_in_slices() {
    let mut world = world();
    let [holder, blocker, second, other] = [(); 4].map(|()| world.connect());
    world.send(blocker, b"ACQ4ME blocked 1 9 0\n");
    world.send(holder, b"ACQ4ME hot 1 99999 0\nACQ4ME hot 2 99999 0\n");
    serve_other(&mut world, other);
    let waiters: Vec<usize> = (0..3 * CROWD).map(|_| world.connect()).collect();
    for waiter in &waiters {
        world.send(*waiter, b"ACQ4ME hot 2 99999 600 also=blocked:1:99999\n");
    }
    (0..100).for_each(|_| world.tick_unchecked());
    let last = world.connect();
    world.send(last, b"ACQ4ME hot 2 99999 600 also=free:1:9\n");
    world.send(second, b"ACQ4ME hot 1 99999 600\n");
    serve_other(&mut world, other);
    world.send(holder, b"RELEASE\n");
    let (told, ticks) = serve_other_until(&mut world, other, last);
    assert!(told == "LOCKED\n" && ticks > 3, "{told} after {ticks} ticks");
    // A second lock is released while some waiters leave, among them the waiter that the search has reached.
    world.send(holder, b"RELEASE\n");
    serve_other(&mut world, other);
    waiters[..CROWD].iter().for_each(|waiter| world.reset(*waiter));
    let (told, _) = serve_other_until(&mut world, other, second);
    assert_eq!(told, "LOCKED\n");
    world.send(blocker, b"RELEASE\n");
    world.send(last, b"RELEASE\n");
    world.send(second, b"RELEASE\n");
    let (told, _) = serve_other_until(&mut world, other, waiters[CROWD]);
    assert_eq!(told, "LOCKED\n", "the first that waits");
    for client in waiters[CROWD..].iter().chain(&[holder, blocker, second, last, other]) {
        world.reset(*client);
    }
    world.settle();
    assert!(world.is_empty());
}

/// Very many clients wait for a result. The client with `ACQ4ME` gets the lock at once, and the rest gets DONE in
/// slices; clients that come meanwhile wait for the next result.
#[test]
fn waiters_for_a_result_are_woken_in_slices() {
    const WAITERS: usize = 100_000;
    let mut world = world();
    let [worker, next, late, gone, other] = [(); 5].map(|()| world.connect());
    world.send(worker, b"ACQ4ME hot 1 999999 0\n");
    serve_other(&mut world, other);
    let mut waiters: Vec<usize> = Vec::new();
    while waiters.len() < WAITERS {
        let some: Vec<usize> = (0..1_000).map(|_| world.connect()).collect();
        some.iter().for_each(|waiter| world.send(*waiter, b"ACQ4ANY hot 1 999999 600\n"));
        (0..5).for_each(|_| world.tick_unchecked());
        waiters.extend(some);
    }
    world.send(next, b"ACQ4ME hot 1 999999 600\n");
    world.send(gone, b"ACQ4ANY hot 1 999999 600\n");
    serve_other(&mut world, other);
    world.send(worker, b"RELEASE\n");
    let (told, ticks) = serve_other_until(&mut world, other, next);
    assert!(told == "LOCKED\n" && ticks <= 4, "{told} after {ticks} ticks, as many as the writes before it take");
    world.send(other, b"STATS waiting_workers\n");
    world.tick_unchecked();
    let told = String::from_utf8(world.take_received(other)).expect("text");
    let waiting: usize = told.trim_end().rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number");
    assert!(waiting > WAITERS / 2, "{waiting} have yet to be woken");
    // The last that is woken leaves, and so does the one before.
    world.reset(gone);
    world.reset(waiters.pop().expect("there are many"));
    world.send(late, b"ACQ4ANY hot 1 999999 600\n");
    let mut told = 0;
    while told < waiters.len() {
        serve_other(&mut world, other);
        told += waiters[told..].iter().take_while(|waiter| world.take_received(**waiter) == b"DONE\n").count();
    }
    assert!(world.take_received(late).is_empty(), "it waits for the next result");
    world.send(next, b"RELEASE\n");
    let (told, _) = serve_other_until(&mut world, other, late);
    assert_eq!(told, "DONE\n");
}
