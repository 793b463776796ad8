//! The shedding of requests that would wait for too long, and in the shadow its metrics and its condition.

use poolcounter_core::time::Span;
use poolcounter_pools::PoolsSettings;
use poolcounter_pools::ceiling::{Ceiling, Shedding};
use poolcounter_testkit::world::World;

/// Returns a world in which keys that begin with `a:` shed, or only count that.
fn world(is_shadow: bool) -> World {
    let two = Span::from_secs(2);
    let shedding = Some(Shedding { after: two, interval: two, is_shadow });
    let ceilings = vec![Ceiling { shedding, ..Ceiling::new(b"a:*") }, Ceiling::new(b"*")];
    World::new(PoolsSettings { ceilings, ..PoolsSettings::default() })
}

/// Sends a line of a client, and returns its output at once.
fn ask(world: &mut World, client: usize, line: &str) -> String {
    world.send(client, format!("{line}\n").as_bytes());
    told(world, client)
}

fn told(world: &mut World, client: usize) -> String {
    world.heard(client).lines().collect::<Vec<_>>().join(" ")
}

/// Connects a new client that requests the key `a:k`, and returns it with its output.
fn come(world: &mut World) -> (usize, String) {
    let client = world.connect();
    let told = ask(world, client, "ACQ4ME a:k 1 99 60");
    (client, told)
}

fn pass(world: &mut World, ms: u64) {
    world.advance(Span::from_millis(ms));
}

#[test]
fn key_sheds_while_its_oldest_waiter_is_late() {
    let mut world = world(false);
    let (first, told_first) = come(&mut world);
    let (second, told_second) = come(&mut world);
    assert_eq!((&*told_first, &*told_second), ("LOCKED", ""));
    pass(&mut world, 3_900);
    let (third, told_third) = come(&mut world);
    assert_eq!(told_third, "", "the second has waited for too long, but only for 1.9 s");
    pass(&mut world, 100);
    assert_eq!(come(&mut world).1, "QUEUE_FULL");
    let other = world.connect();
    assert_eq!(ask(&mut world, other, "ACQ4ME a:other 1 9 9"), "LOCKED", "it is about one key");
    pass(&mut world, 500);
    assert_eq!(ask(&mut world, first, "RELEASE"), "RELEASED");
    assert_eq!(told(&mut world, second), "LOCKED");
    let (_, told_fifth) = come(&mut world);
    assert_eq!(told_fifth, "", "the third, who is oldest now, has waited for 0.6 s");
    pass(&mut world, 2_500);
    // The third has waited for too long since 5.9 s, and is granted at 7 s; the fifth has since 6.5 s.
    assert_eq!(ask(&mut world, second, "RELEASE"), "RELEASED");
    assert_eq!(told(&mut world, third), "LOCKED");
    pass(&mut world, 800);
    assert_eq!(come(&mut world).1, "");
    pass(&mut world, 200);
    assert_eq!(come(&mut world).1, "QUEUE_FULL", "it was one or another for 2.1 s");
}

#[test]
fn in_the_shadow_it_is_only_counted() {
    let mut world = world(true);
    (0..2).for_each(|_| drop(come(&mut world)));
    pass(&mut world, 10_000);
    let (client, told_last) = come(&mut world);
    assert_eq!(told_last, "");
    expect_metrics(
        &mut world,
        ["shed_total{pattern=\"a:*\"} 0", "would_shed_total{pattern=\"a:*\"} 1", "would_shed_total{pattern=\"*\"} 0"],
    );
    assert!(!world.is_closed(client));
}

#[test]
fn shadow_counts_stay_apart() {
    let mut world = world(true);
    let admin = world.connect_to("admin");
    let set = |world: &mut World, settings: &str| {
        assert!(ask(world, admin, &format!("CEILING a:* {settings}")).starts_with("OK "), "{settings}");
        pass(world, 6_000);
    };
    let sheds = |world: &World| {
        let conditions = world.health().into_iter().flat_map(|line| line.conditions);
        conditions.map(|on| on.condition.info.name).any(|name| name == "sheds")
    };
    // A condition is on once it has held for a while.
    let look = |world: &mut World| {
        (0..2).for_each(|_| {
            expect_metrics(world, []);
            pass(world, 6_000);
        });
    };
    (0..2).for_each(|_| drop(come(&mut world)));
    pass(&mut world, 10_000);
    assert_eq!(come(&mut world).1, "");
    set(&mut world, "shed_after=2");
    expect_metrics(&mut world, ["shed_total{pattern=\"a:*\"} 0", "would_shed_total{pattern=\"a:*\"} 1"]);
    look(&mut world);
    assert!(!sheds(&world), "nothing was refused");
    assert_eq!(come(&mut world).1, "QUEUE_FULL");
    set(&mut world, "shed_after=2,shed_shadow=true");
    expect_metrics(&mut world, ["shed_total{pattern=\"a:*\"} 1", "would_shed_total{pattern=\"a:*\"} 1"]);
    look(&mut world);
    assert!(sheds(&world), "what was refused in the last minute is not forgotten");
}

fn expect_metrics<const N: usize>(world: &mut World, figures: [&str; N]) {
    let page = world.connect_to("http");
    let metrics = ask(world, page, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r");
    for figure in figures {
        assert!(metrics.contains(&format!("poolcounter_pools_ceiling_{figure}")), "{figure} is not in {metrics}");
    }
}
