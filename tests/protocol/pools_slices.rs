//! What very many do at once in the pools is done bit by bit: another client is served in every tick. What is compared are numbers of
//! ticks and of what is done in each, for times depend on what else the machine does.

use poolcounter_core::random::Random;
use poolcounter_core::time::Span;
use poolcounter_pools::PoolsSettings;
use poolcounter_testkit::world::World;

/// More keys than are looked at at once, three times over.
const MANY_KEYS: usize = 60_000;
/// More than die, time out or are written to in one tick.
const CROWD: usize = 3_000;
/// How many are written to and how many are dropped in a tick at most, and how many timers fire.
const WRITES: usize = 256;
const REAPS: usize = 64;
const TIMERS: usize = 1024;

/// Clients that are not limited in what they hold.
fn world() -> World {
    World::new(PoolsSettings { max_locks: u32::MAX, ..PoolsSettings::default() })
}

/// Has a client hold so many keys.
fn hold_many(world: &mut World, client: usize, keys: usize) {
    let lines: String = (0..keys).map(|n| format!("ACQ4ME key:{n:06} 1 9 0\n")).collect();
    world.send(client, lines.as_bytes());
    while world.next_work().is_some_and(|at| at <= world.now()) {
        world.tick_unchecked();
    }
    assert_eq!(world.take_received(client).len(), keys * b"LOCKED\n".len());
}

/// Has another client take a lock and give it back in the tick that comes.
fn serve_other(world: &mut World, other: usize) {
    world.send(other, b"ACQ4ME other 1 9 1\nRELEASE\n");
    world.tick_unchecked_after(Span::from_millis(1));
    assert_eq!(world.take_received(other).escape_ascii().to_string(), "LOCKED\\nRELEASED\\n", "the other is served");
}

/// Has another client served until one is told something; returns that, and after how many ticks.
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
fn changes_during_a_scan_of_keys_are_listed_as_they_are() {
    let mut world = world();
    let [holder, asker, other, waiter] = [(); 4].map(|()| world.connect());
    hold_many(&mut world, holder, MANY_KEYS);
    world.send(asker, b"STATS KEYS 2\n");
    serve_other(&mut world, other);
    world.send(holder, b"RELEASE key:000000\n");
    world.send(waiter, b"ACQ4ME key:000001 1 9 60\n");
    let (told, _) = serve_other_until(&mut world, other, asker);
    assert!(told.starts_with("key:000001: 1 working, 1 waiting, ") && told.ends_with("\n\n"), "{told}");
}

#[test]
fn a_search_for_keys_ends_with_its_connection_and_survives_an_upgrade() {
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
fn a_search_for_keys_does_not_wait_for_a_connection_that_does_not_read() {
    let mut world = world();
    let [holder, rival, asker, next, other] = [(); 5].map(|()| world.connect());
    hold_many(&mut world, holder, MANY_KEYS);
    world.send(rival, b"ACQ4ME wanted 1 9 60\n");
    world.set_room(asker, 0);
    // All but three bytes of what makes an output full, before the LOCKED.
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
fn those_who_time_out_together_do_not_keep_another_waiting() {
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
fn locks_that_end_together_do_not_keep_another_waiting() {
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
fn those_who_die_together_are_dropped_bit_by_bit() {
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

/// However many locks a connection has, the newest on a key is the one that is released.
#[test]
fn release_finds_the_newest_lock_on_a_key() {
    let mut world = world();
    let (holder, observer) = (world.connect(), world.connect());
    let mut random = Random::from_seed(7);
    let mut locks: Vec<u64> = Vec::new();
    for round in 0..2_000 {
        // Up and down, so that the connection has few and many in turn.
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
