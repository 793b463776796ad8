//! Crowds in the members service, in virtual time: the daemon's unsolicited lines to one connection exceed the bound of
//! a connection's output.

use poolcounter_core::time::Span;
use poolcounter_testkit::world::World;

/// Number of members: with names of 40 bytes, their `!STOP` are twice the bound of a connection's output.
const CROWD: usize = 40_000;

fn name(n: usize) -> String {
    format!("a-member-with-a-name-of-forty-bytes{n:05}")
}

/// Makes a pool whose members one provider has offered; returns the provider, and an operator.
fn crowded(world: &mut World) -> (usize, usize) {
    let (operator, provider) = (world.connect_to("members"), world.connect_to("members"));
    world.send(operator, format!("POOL p 0 {CROWD} cull_interval=0\n").as_bytes());
    world.settle();
    world.send(provider, b"PROVIDE p\n");
    for chunk in (0..CROWD).collect::<Vec<_>>().chunks(2_000) {
        let lines: String = chunk.iter().map(|n| format!("OFFER p {}\n", name(*n))).collect();
        world.send(provider, lines.as_bytes());
        while world.unread(provider) > 0 {
            world.tick_unchecked();
        }
    }
    world.settle();
    world.take_received(operator);
    assert_eq!(world.take_received(provider), b"OK\n".repeat(CROWD + 1));
    (provider, operator)
}

#[test]
fn a_provider_that_reads_is_asked_to_stop_a_crowd() {
    let mut world = World::of_administrators();
    let (provider, operator) = crowded(&mut world);
    world.send(operator, b"RMPOOL p\n");
    world.settle();
    assert_eq!(world.take_received(operator), b"OK\n");
    let begun = world.take_received(provider).len();
    assert!(0 < begun && begun < 1 << 20, "{begun} bytes at once");
    world.upgrade();
    world.advance(Span::from_secs(2));
    let rest = String::from_utf8(world.take_received(provider)).expect("the names are text");
    assert!(!world.is_closed(provider), "it reads");
    let line = name(0).len() + b"!STOP p \n".len();
    assert_eq!(begun + rest.len(), CROWD * line, "each member is to be stopped once");
    assert!(rest.lines().all(|line| line.starts_with("!STOP p ")));
    [provider, operator].into_iter().for_each(|client| world.finish(client));
    world.advance(Span::from_secs(6));
    assert!(world.is_empty());
}

#[test]
fn a_provider_that_does_not_read_delays_no_other_client() {
    let mut world = World::of_administrators();
    let (provider, operator) = crowded(&mut world);
    world.set_room(provider, 0);
    world.send(operator, b"RMPOOL p\nPOOLS\n");
    world.advance(Span::from_secs(10));
    assert_eq!(world.take_received(operator), b"OK\n\n");
    world.reset(provider);
    world.finish(operator);
    world.advance(Span::from_secs(6));
    assert!(world.is_empty());
}

#[test]
fn nothing_stands_between_the_lines_of_a_list() {
    let mut world = World::of_administrators();
    let (provider, operator) = crowded(&mut world);
    world.set_room(provider, 100_000);
    world.send(provider, b"MEMBERS p\n");
    world.settle();
    // The members are to be stopped in the middle of the list.
    world.send(operator, b"RECONFIGURE p max=1\n");
    world.settle();
    world.upgrade();
    world.set_room(provider, usize::MAX);
    world.advance(Span::from_secs(2));
    let text = String::from_utf8(world.take_received(provider)).expect("the names are text");
    let (list, rest) = text.split_once("\n\n").expect("a list ends with an empty line");
    assert_eq!(list.lines().count(), CROWD, "each member is told of once");
    assert!(list.lines().all(|line| line.starts_with("a-member")), "the list is in one piece");
    assert_eq!(rest.lines().filter(|line| line.starts_with("!STOP p ")).count(), CROWD - 1);
    [provider, operator].into_iter().for_each(|client| world.finish(client));
    world.advance(Span::from_secs(6));
    assert!(world.is_empty());
}

/// A returned member is granted to the next waiter in the same turn of the loop in which the return is answered, and so
/// are all that are returned in it.
#[test]
fn a_hand_over_takes_one_turn_of_the_loop() {
    const MEMBERS: usize = 10;
    let mut world = World::of_administrators();
    let operator = world.connect_to("members");
    world.send(operator, format!("POOL p 0 {MEMBERS} queue=1000\n").as_bytes());
    (0..MEMBERS).for_each(|n| world.send(operator, format!("ADD p m{n}\n").as_bytes()));
    let clients: Vec<usize> = (0..1000).map(|_| world.connect_to("members")).collect();
    for client in &clients {
        world.send(*client, b"TAKE p 600\n");
        world.settle();
    }
    let mut told: Vec<Vec<u8>> = clients.iter().map(|client| world.take_received(*client)).collect();
    let give_back = |world: &mut World, n: usize, told: &[u8]| {
        let text = std::str::from_utf8(told).expect("the names are text");
        let lease = text.strip_prefix("MEMBER ").and_then(|rest| rest.split(' ').next()).expect("it has one");
        world.send(clients[n], format!("RETURN {lease}\n").as_bytes());
    };
    for n in 0..50 {
        give_back(&mut world, n, &told[n]);
        world.tick();
        assert_eq!(world.take_received(clients[n]), b"RETURNED\n");
        told[n + MEMBERS] = world.take_received(clients[n + MEMBERS]);
        assert!(told[n + MEMBERS].starts_with(b"MEMBER "), "the next has it after one turn");
    }
    // Ten returns at once.
    (50..50 + MEMBERS).for_each(|n| give_back(&mut world, n, &told[n]));
    world.tick();
    let mut waiters = clients[50 + MEMBERS..50 + 2 * MEMBERS].iter();
    assert!(waiters.all(|waiter| world.take_received(*waiter).starts_with(b"MEMBER ")), "all have one after one turn");
    clients.iter().chain([&operator]).for_each(|client| world.finish(*client));
    world.advance(Span::from_secs(1));
    assert!(world.is_empty());
}

/// Ticks until the loop would sleep, without comparisons.
fn settle_unchecked(world: &mut World) {
    while world.next_work().is_some_and(|at| at <= world.now()) {
        world.tick_unchecked();
    }
}

/// The meter of the loop fails the turn that passes over all who have left.
#[test]
fn a_list_of_waiters_passes_over_a_crowd_that_left_in_many_turns() {
    const WAITERS: usize = 10_000;
    let mut world = World::of_administrators();
    let operator = world.connect_to("members");
    world.send(operator, format!("POOL p 0 1 queue={WAITERS}\nADD p m\nTAKE p\n").as_bytes());
    world.settle();
    world.take_received(operator);
    let waiters: Vec<usize> = (0..WAITERS).map(|_| world.connect_to("members")).collect();
    waiters.iter().for_each(|waiter| world.send(*waiter, b"TAKE p 600\n"));
    settle_unchecked(&mut world);
    let lister = world.connect_to("members");
    world.set_room(lister, 0);
    world.send(lister, b"WAITERS p\n");
    settle_unchecked(&mut world);
    waiters.iter().for_each(|waiter| world.finish(*waiter));
    settle_unchecked(&mut world);
    world.set_room(lister, usize::MAX);
    world.settle();
    let listed = String::from_utf8(world.take_received(lister)).expect("is text");
    let rows = listed.strip_suffix("\n\n").expect("a list ends with an empty line").lines().count();
    assert!(0 < rows && rows < WAITERS / 2, "{rows} waiters were listed before all left");
    [operator, lister].into_iter().for_each(|client| world.finish(client));
    world.advance(Span::from_secs(1));
    assert!(world.is_empty());
}
