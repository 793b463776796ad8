//! Counters by the thousand, in virtual time: a sweep, a long Dump, and an upgrade during these.

use poolcounter_core::time::Span;
use poolcounter_counters::{self as counters, CountersSettings};
use poolcounter_service::container::AllSettings;
use poolcounter_service::output::FULL_BYTES;
use poolcounter_testkit::frames::{self, acquire, dump, get, record, release, replies, stat};
use poolcounter_testkit::world::World;
use std::collections::BTreeSet;

const INTERVAL: Span = Span::from_secs(10);
/// More than a sweep or a turn of a Dump looks at in one go.
const MANY: u32 = 10_000;

fn world() -> World {
    with_memory(u64::MAX)
}

fn with_memory(max_memory: u64) -> World {
    let counters = CountersSettings { buckets: 16, interval: INTERVAL, max_memory, ..CountersSettings::default() };
    World::with(AllSettings::defaults(poolcounter::SERVICES).with(counters))
}

fn stat_of(world: &mut World, name: &str) -> u64 {
    let observer = world.connect_to("counters");
    let reply = world.ask(observer, &frames::stats());
    world.finish(observer);
    world.settle();
    stat(&reply, name)
}

fn name(n: u32) -> Vec<u8> {
    format!("counter-{n}").into()
}

/// Acquires one unit of each of many counters for a client.
fn acquire_many(world: &mut World, client: usize, names: std::ops::Range<u32>) {
    let requests: Vec<u8> = names.clone().flat_map(|n| acquire(1, 9, &name(n))).collect();
    let received = world.ask(client, &requests);
    assert_eq!(replies(&received).count(), names.len());
    assert!(replies(&received).all(|reply| reply[2] == 0), "each is granted");
}

/// Returns the names of the counters in a Dump, each once.
fn names_of(received: &[u8]) -> BTreeSet<&[u8]> {
    let names: Vec<&[u8]> = replies(received).map_while(record).map(|(_, _, name)| name).collect();
    let set: BTreeSet<&[u8]> = names.iter().copied().collect();
    assert_eq!(set.len(), names.len(), "a counter is told of twice");
    set
}

fn leave(world: &mut World, client: usize) {
    world.finish(client);
    world.settle();
}

#[test]
fn sweep_goes_on_until_all_are_gone() {
    let mut world = world();
    let client = world.connect_to("counters");
    acquire_many(&mut world, client, 0..MANY);
    leave(&mut world, client);
    assert_eq!(stat_of(&mut world, "objects"), u64::from(MANY));
    let other = world.connect_to("counters");
    world.tick_unchecked_after(INTERVAL);
    world.send(other, &[get(&name(MANY - 1)), frames::stats(), dump()].concat());
    world.tick_unchecked();
    let received = world.take_received(other);
    let told: Vec<&[u8]> = replies(&received).collect();
    assert_eq!(told[0][2], 1, "one that is left is not known");
    let left = stat(told[1], "objects");
    assert!(
        0 < left && left < MANY.into(),
        "a sweep takes several ticks, so that nobody waits for it: {left} are left"
    );
    world.settle();
    let rest = [&told[2..].concat()[..], &world.take_received(other)].concat();
    assert!(names_of(&rest).is_empty() && !rest.is_empty(), "those that are left are not told of");
    assert_eq!(stat_of(&mut world, "objects"), 0);
    assert_eq!(stat_of(&mut world, "gc_count"), 1);
    assert_eq!(stat_of(&mut world, "last_gc_elapsed"), stat_of(&mut world, "total_gc_elapsed"));
    leave(&mut world, other);
    assert!(world.is_empty());
}

#[test]
fn sweep_ends_with_the_last_counter() {
    let mut world = world();
    let (holder, other) = (world.connect_to("counters"), world.connect_to("counters"));
    acquire_many(&mut world, holder, 0..MANY);
    // A client that leaves in the midst of a sweep takes with it all counters that the sweep would still have looked
    // at.
    world.advance(INTERVAL);
    leave(&mut world, holder);
    assert_eq!(stat_of(&mut world, "objects"), 0);
    assert_eq!(stat_of(&mut world, "gc_count"), 1);
    world.advance(Span::from_secs(5));
    acquire_many(&mut world, other, 0..1);
    world.advance(Span::from_secs(1));
    assert_eq!(stat_of(&mut world, "gc_count"), 1);
    assert!(stat_of(&mut world, "total_gc_elapsed") < 10_000, "it has not gone on while there was nothing");
}

#[test]
fn upgrade_during_a_sweep_leaves_nothing_behind() {
    let mut world = world();
    let (leaver, holder) = (world.connect_to("counters"), world.connect_to("counters"));
    acquire_many(&mut world, leaver, 0..MANY);
    acquire_many(&mut world, holder, MANY - 1..MANY + 1);
    leave(&mut world, leaver);
    world.tick_unchecked_after(INTERVAL);
    assert_eq!(world.next_work(), Some(world.now()), "the sweep is under way");
    world.upgrade();
    world.advance(Span::from_millis(10));
    assert_eq!(stat_of(&mut world, "objects"), 2, "those that were over did not come along");
}

#[test]
fn interval_that_ends_in_an_upgrade_is_swept() {
    let mut world = world();
    let (leaver, holder) = (world.connect_to("counters"), world.connect_to("counters"));
    acquire_many(&mut world, leaver, 0..MANY);
    acquire_many(&mut world, holder, MANY - 1..MANY + 1);
    leave(&mut world, leaver);
    world.advance(Span::from_secs(9));
    world.upgrade_within(Span::from_secs(2));
    world.advance(Span::from_millis(10));
    assert_eq!(stat_of(&mut world, "objects"), 2);
}

#[test]
fn unread_dump_waits_and_goes_on() {
    let mut world = world();
    let (holder, reader) = (world.connect_to("counters"), world.connect_to("counters"));
    acquire_many(&mut world, holder, 0..MANY);
    world.set_room(reader, 0);
    assert!(world.ask(reader, &dump()).is_empty());
    world.set_room(reader, 1_000);
    world.settle();
    let mut received = world.take_received(reader);
    assert_eq!(received.len(), 1_000);
    world.upgrade();
    world.settle();
    // Two upgrades and new counters in between do not affect the old ones.
    acquire_many(&mut world, holder, MANY..MANY + 100);
    world.set_room(reader, 2 * FULL_BYTES);
    world.settle();
    world.upgrade();
    world.set_room(reader, usize::MAX);
    world.settle();
    received.extend(world.take_received(reader));
    assert!(names_of(&received).len() >= MANY as usize);
    assert_eq!(stat_of(&mut world, "command:dump"), 1);
    assert_eq!(world.ask(reader, &get(&name(0)))[2], 0, "what follows is served");
}

#[test]
fn dump_of_dropped_counters_outlives_an_upgrade() {
    let mut world = world();
    let (leaver, holder, reader) =
        (world.connect_to("counters"), world.connect_to("counters"), world.connect_to("counters"));
    acquire_many(&mut world, leaver, 0..MANY);
    acquire_many(&mut world, holder, MANY..MANY + 10);
    leave(&mut world, leaver);
    world.set_room(reader, 0);
    world.ask(reader, &dump());
    world.advance(INTERVAL + Span::from_secs(1));
    world.upgrade();
    world.set_room(reader, usize::MAX);
    world.settle();
    let received = world.take_received(reader);
    let names = names_of(&received);
    assert!((MANY..MANY + 10).all(|n| names.contains(&name(n)[..])), "those that stayed are told of");
    assert_eq!(stat_of(&mut world, "command:dump"), 1, "it is the same Dump");
}

#[test]
fn dump_delays_no_other_client() {
    let mut world = world();
    let (holder, reader, other) =
        (world.connect_to("counters"), world.connect_to("counters"), world.connect_to("counters"));
    acquire_many(&mut world, holder, 0..MANY);
    world.send(reader, &dump().repeat(20));
    world.send(other, &get(&name(1)));
    world.tick();
    assert_eq!(world.take_received(other).len(), frames::HEADER_BYTES + 4);
    assert!(world.take_received(reader).len() < 2 * FULL_BYTES, "a turn is short");
    world.settle();
    assert_eq!(replies(&world.take_received(reader)).filter(|reply| record(reply).is_none()).count(), 20);
}

/// Many dropped counters leave places in a table, which a Dump passes over a bounded number at a time.
#[test]
fn dump_of_an_empty_table_delays_no_client() {
    let mut world = world();
    let (leaver, holder, reader) =
        (world.connect_to("counters"), world.connect_to("counters"), world.connect_to("counters"));
    acquire_many(&mut world, leaver, 0..MANY);
    acquire_many(&mut world, holder, MANY..MANY + 1);
    leave(&mut world, leaver);
    world.advance(INTERVAL + Span::from_secs(1));
    world.send(reader, &dump());
    world.tick();
    assert!(world.take_received(reader).is_empty(), "it has not come to the end");
    world.settle();
    assert_eq!(names_of(&world.take_received(reader)).len(), 1);
}

/// Free counters of one client take no memory from other clients, however many and however long their names are.
#[test]
fn names_left_behind_take_no_memory_from_others() {
    let mut world = with_memory(1 << 20);
    let (one, other) = (world.connect_to("counters"), world.connect_to("counters"));
    for n in 0..2_000 {
        let long = [&name(n)[..], &[b'x'; 1_000]].concat();
        let replies = world.ask(one, &[acquire(1, 9, &long), release(1, &long)].concat());
        assert!(frames::replies(&replies).all(|reply| reply[2] == 0), "{n}");
    }
    acquire_many(&mut world, other, 0..9_000);
    assert!(stat_of(&mut world, "used_memory") <= 1 << 20);
    let held = 9_000 * (counters::COUNTER_BYTES + counters::HOLDING_BYTES);
    assert!(stat_of(&mut world, "used_memory") >= held);
}

#[test]
fn smaller_memory_limit_takes_nothing_from_holders() {
    const LESS: u64 = 2_000;
    let counters =
        CountersSettings { buckets: 16, interval: INTERVAL, max_memory: LESS, ..CountersSettings::default() };
    let mut world = world();
    let (holder, leaver) = (world.connect_to("counters"), world.connect_to("counters"));
    acquire_many(&mut world, holder, 0..10);
    acquire_many(&mut world, leaver, 100..5_000);
    leave(&mut world, leaver);
    world.set(AllSettings::defaults(poolcounter::SERVICES).with(counters));
    world.upgrade();
    assert_eq!(stat_of(&mut world, "objects"), 4_910);
    acquire_many(&mut world, holder, 0..10);
    assert_eq!(stat_of(&mut world, "objects"), 4_910, "more of what one holds takes no memory");
    acquire_many(&mut world, holder, 50..51);
    assert!(stat_of(&mut world, "objects") > 3_000, "a request forgets a bounded number");
    acquire_many(&mut world, holder, 51..55);
    assert!(stat_of(&mut world, "used_memory") <= LESS);
    assert!((0..10).all(|n| world.ask(holder, &get(&name(n)))[frames::HEADER_BYTES..] == [0, 0, 0, 2]));
    acquire_many(&mut world, holder, 55..58);
    let other = world.connect_to("counters");
    assert_eq!(world.ask(other, &acquire(1, 9, &[b'x'; 500]))[2], 0x82, "what is held leaves no room for this");
}

/// A random test must be repeatable.
#[test]
fn same_history_has_the_same_order() {
    let play = || {
        let mut world = world();
        let (leaver, other) = (world.connect_to("counters"), world.connect_to("counters"));
        acquire_many(&mut world, leaver, 0..100);
        world.advance(INTERVAL);
        // They are dropped with their last holder, one after the other, and leave places for new ones.
        leave(&mut world, leaver);
        acquire_many(&mut world, other, 100..200);
        world.ask(other, &dump())
    };
    assert!(play() == play(), "the counters stand in another order");
}

/// Returns the consumption of a counter, as another client is told.
fn consumption(world: &mut World, client: usize, n: u32) -> u32 {
    let reply = world.ask(client, &get(&name(n)));
    u32::from_be_bytes(reply[frames::HEADER_BYTES..].try_into().expect("is a number"))
}

#[test]
fn restoring_counters_delays_only_their_clients() {
    let mut world = world();
    let [holder, leaver, other] = [(); 3].map(|()| world.connect_to("counters"));
    let lock = world.connect();
    acquire_many(&mut world, holder, 0..MANY);
    acquire_many(&mut world, leaver, 0..MANY);
    world.upgrade();
    world.send(other, &get(&name(MANY - 1)));
    world.send(lock, b"ACQ4ME key 1 1 1\n");
    world.finish(leaver);
    world.tick();
    assert_eq!(world.take_received(lock), b"LOCKED\n");
    assert!(world.take_received(other).is_empty() && !world.is_closed(leaver), "not all counters are read");
    world.settle();
    assert_eq!(world.take_received(other)[2], 0);
    assert_eq!(consumption(&mut world, other, MANY - 1), 1, "those of the other client have come back");
    assert_eq!(stat_of(&mut world, "objects"), u64::from(MANY));
    world.upgrade();
    world.tick();
    world.upgrade();
    assert_eq!(consumption(&mut world, other, 0), 1, "an upgrade reads all that the last one left");
    [holder, other, lock].into_iter().for_each(|client| leave(&mut world, client));
    world.advance(INTERVAL + Span::from_secs(1));
    assert!(world.is_empty());
}
