//! Services that read in slices what an upgrade has handed over, in virtual time: only their own clients wait.

use poolcounter::SERVICES;
use poolcounter_core::time::Span;
use poolcounter_service::container::AllSettings;
use poolcounter_testkit::frames;
use poolcounter_testkit::rules;
use poolcounter_testkit::world::World;

/// More than is read in a slice.
const MANY: usize = 10_000;
/// Addresses of clients for whom there is a rule.
const CLIENT: &str = "203.0.113.1";

/// Returns a world with members that a provider has brought.
fn with_members() -> World {
    let mut world = World::of_administrators();
    let provider = world.connect_to("members");
    assert_eq!(world.tell(provider, &format!("POOL p 0 {MANY}\nPROVIDE p {MANY}\n")), "OK\nOK\n");
    let offers: Vec<String> = (0..MANY).map(|n| format!("OFFER p m{n:05}\n")).collect();
    for offers in offers.chunks(500) {
        assert!(world.tell(provider, &offers.concat()) == "OK\n".repeat(offers.len()), "each is taken");
    }
    world
}

#[test]
fn others_are_served_while_members_are_read() {
    let mut world = with_members();
    let [holder, leaver, other] = [(); 3].map(|()| world.connect_to("members"));
    let lock = world.connect();
    let held = world.tell(holder, "TAKE p\n");
    let left = world.tell(leaver, "TAKE p lease=60\nTAKE p\n");
    assert!(held.starts_with("MEMBER ") && left.matches("MEMBER ").count() == 2, "{held}{left}");
    world.upgrade();
    world.send(lock, b"ACQ4ME key 1 1 1\n");
    world.send(other, b"UTILIZATION p\n");
    world.reset(leaver);
    world.tick();
    assert_eq!(world.take_received(lock), b"LOCKED\n");
    assert!(world.take_received(other).is_empty(), "not all members are read");
    let figures = world.heard(other);
    assert!(figures.contains("in_use 3 "), "it was asked before the end of the other connection: {figures}");
    // A member under a lease stays its holder's, and the other one is stopped.
    let figures = world.tell(other, "UTILIZATION p\n");
    assert!(figures.contains("in_use 2 ") && figures.contains(&format!("free {} ", MANY - 3)), "{figures}");
    let number = held.split(' ').nth(1).expect("has a number");
    assert_eq!(world.tell(holder, &format!("RETURN {number}\n")), "RETURNED\n");
    world.upgrade();
    world.tick();
    world.upgrade();
    let figures = world.tell(other, "UTILIZATION p\n");
    assert!(figures.contains(&format!("free {} ", MANY - 2)), "an upgrade reads what the last one left: {figures}");
}

#[test]
fn timers_wait_until_all_is_read() {
    let mut world = with_members();
    let holder = world.connect_to("members");
    assert!(world.tell(holder, "TAKE p lease=1\n").starts_with("MEMBER "));
    world.advance(Span::from_millis(800));
    world.upgrade();
    world.advance(Span::from_millis(450));
    assert_eq!(world.tell(holder, "UTILIZATION p\n").matches("in_use 1 ").count(), 1, "its lease is over later");
    world.advance(Span::from_millis(100));
    let told = world.tell(holder, "UTILIZATION p\n");
    assert!(told.starts_with("!LOST ") && told.contains("in_use 0 "), "{told}");
}

#[test]
fn status_page_has_all_members_at_once() {
    let mut world = with_members();
    let (browser, other) = (world.connect_to("http"), world.connect_to("members"));
    world.upgrade();
    world.send(other, b"TAKE p\n");
    let metrics = world.tell(browser, "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n");
    assert!(metrics.contains(&format!("poolcounter_members_free {MANY}\n")), "{metrics}");
    world.settle();
    assert!(world.take_received(other).starts_with(b"MEMBER "));
}

#[test]
fn late_restored_units_count_for_their_rule() {
    let all: Vec<String> = SERVICES.iter().map(|service| format!("\"{}\"", service.name)).collect();
    let mut world = World::with(AllSettings::defaults(SERVICES));
    let rule = format!("[[access]]\nwho = [\"net:{CLIENT}\"]\nmay = [{}]\nmax_locks = {MANY}\n", all.join(", "));
    world.guard(rules::read(&rule));
    let (holder, lock) = (world.connect_from(CLIENT, "counters"), world.connect_from(CLIENT, "pools"));
    for n in 0..MANY {
        world.ask(holder, &frames::acquire(1, 9, format!("counter-{n}").as_bytes()));
    }
    assert_eq!(world.ask(lock, b"ACQ4ME key 1 1 1\n"), b"QUEUE_FULL\n");
    world.upgrade();
    world.settle();
    assert_eq!(world.ask(lock, b"ACQ4ME key 1 1 1\n"), b"QUEUE_FULL\n", "no turn of the holder was needed");
    world.ask(holder, &frames::release(1, b"counter-7"));
    assert_eq!(world.ask(lock, b"ACQ4ME key 1 1 1\n"), b"LOCKED\n");
}
