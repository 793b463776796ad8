//! Waiters are served as soon as there are members for them.

use super::*;

/// Lets background work come to its end, and returns the output to a connection.
fn heard_soon(player: &mut Player, conn: usize) -> String {
    player.advance(Duration::from_millis(100));
    player.heard(conn).join(" | ")
}

#[test]
fn a_wait_for_several_ends_once_its_connection_may_have_as_many() {
    for (conn, line) in [(CONSUMER, "RETURN 1"), (OPERATOR, "RECONFIGURE p per_client=0"), (OPERATOR, "TAKEBACK 1")] {
        let mut player = five(" group=g per_client=3");
        player.say(OPERATOR, "POOL q 0 2 group=g", true);
        assert_eq!(ask(&mut player, CONSUMER, "TAKEGROUP g 20 n=2"), "");
        player.say(conn, line, true);
        let told = heard_soon(&mut player, CONSUMER);
        assert!(told.contains("MEMBERS 2 | MEMBER 3 p "), "{line}: {told}");
        player.end();
    }
}

#[test]
fn a_wait_for_several_ends_once_a_pool_allows_as_many() {
    for (settings, line) in [(" group=g", "RECONFIGURE p max=3"), ("", "RECONFIGURE p max=3 group=g")] {
        let mut player = Player::new(1, PER_TICK);
        player.say(OPERATOR, &format!("POOL p 0 3{settings}"), true);
        (1..=3).for_each(|n| player.say(OPERATOR, &format!("ADD p m{n}"), true));
        player.say(OPERATOR, "RECONFIGURE p max=1", true);
        player.say(OPERATOR, "POOL q 0 2 group=g", true);
        assert_eq!(ask(&mut player, CONSUMER, "TAKEGROUP g 20 n=2"), "");
        player.say(OPERATOR, line, true);
        let told = heard_soon(&mut player, CONSUMER);
        assert!(told.starts_with("MEMBERS 2 | "), "{line}: {told}");
        player.end();
    }
}

/// Connections that are not those of the other tests, and wait for what they do not get.
fn close_all(mut player: Player, conns: impl IntoIterator<Item = usize>) {
    conns.into_iter().for_each(|conn| player.close(conn));
    player.end();
}

#[test]
fn a_wait_for_several_is_served_behind_many_kinds_that_cannot_be() {
    for kinds in [15, 16, 40] {
        let mut player = Player::with_most(200, 1, PER_TICK);
        player.say(OPERATOR, "POOL p 0 100 queue=100", true);
        (0..kinds).for_each(|n| player.say(OPERATOR, &format!("ADD p a{n} x={n}"), true));
        (1..=2).for_each(|n| player.say(OPERATOR, &format!("ADD p b{n}"), true));
        for n in (0..kinds).map(|n| format!("a{n}")).chain(["b1".into(), "b2".into()]) {
            player.say(CONSUMER, &format!("TAKE p 0 member={n}"), true);
        }
        player.drop_output();
        (0..kinds).for_each(|n| player.say(10 + n, &format!("TAKE p 20 n=2 x={n}"), true));
        assert_eq!(ask(&mut player, OTHER, "TAKE p 20 n=2"), "");
        (1..=2).for_each(|n| player.say(CONSUMER, &format!("RETURN {}", kinds + n), true));
        let told = heard_soon(&mut player, OTHER);
        assert!(told.starts_with("MEMBERS 2 | "), "{kinds}: {told}");
        close_all(player, 10..10 + kinds);
    }
}

/// Each kind suits the member that comes free, and none but the last can be served.
#[test]
fn a_wait_for_several_is_served_behind_many_kinds_that_suit_a_member() {
    let kinds = 30;
    let mut player = Player::with_most(200, 1, PER_TICK);
    player.say(OPERATOR, "POOL p 0 100 queue=100", true);
    let attributes: String = (0..15).map(|n| format!(" x{n}=1")).collect();
    player.say(OPERATOR, &format!("ADD p a{attributes}"), true);
    player.say(OPERATOR, "ADD p b", true);
    (0..2).for_each(|_| player.say(CONSUMER, "TAKE p", true));
    player.drop_output();
    for n in 0..kinds {
        assert_eq!(ask(&mut player, 10 + n, &format!("TAKE p 20 n=2 x{}=1 pri={}", n % 15, 1 + n / 15)), "");
    }
    assert_eq!(ask(&mut player, OTHER, "TAKE p 20 n=2"), "");
    (1..=2).for_each(|n| player.say(CONSUMER, &format!("RETURN {n}"), true));
    let told = heard_soon(&mut player, OTHER);
    assert!(told.starts_with("MEMBERS 2 | "), "{told}");
    close_all(player, 10..10 + kinds);
}

/// Members that are kept for a later waiter for more of them are not kept from an earlier one behind many kinds.
#[test]
fn a_wait_for_several_is_served_before_a_later_one_for_more() {
    let kinds = 16;
    let mut player = Player::with_most(200, 1, PER_TICK);
    player.say(OPERATOR, "POOL p 0 300 group=g queue=200", true);
    player.say(PROVIDER, "PROVIDE p 4", true);
    (0..4).for_each(|n| player.say(PROVIDER, &format!("OFFER p m{n}"), true));
    (0..4).for_each(|_| player.say(CONSUMER, "TAKE p", true));
    player.drop_output();
    for n in 0..kinds {
        assert_eq!(ask(&mut player, 10 + n, &format!("TAKEGROUP g 20 n=2 x={n}")), "");
    }
    assert_eq!(ask(&mut player, OTHER, "TAKEGROUP g 20 n=2"), "");
    assert_eq!(ask(&mut player, 10 + kinds, "TAKE p 20 n=3 pri=9"), "");
    (1..=2).for_each(|n| player.say(CONSUMER, &format!("RETURN {n}"), true));
    let told = heard_soon(&mut player, OTHER);
    assert!(told.starts_with("MEMBERS 2 | "), "{told}");
    close_all(player, 10..=10 + kinds);
}

#[test]
fn a_member_is_checked_once_the_checks_of_others_end() {
    let mut player = Player::new(1, PER_TICK);
    player.say(OPERATOR, "POOL p 0 9 check_on_take=0.3 check_timeout=5 cull_interval=0", true);
    player.say(PROVIDER, "PROVIDE p 0", true);
    for member in ["x1 a=x", "x2 a=x", "y1 a=y", "y2 a=y", "y3 a=y"] {
        player.say(PROVIDER, &format!("OFFER p {member}"), true);
    }
    player.advance(Duration::from_millis(500));
    for conn in 4..=6 {
        player.say(conn, "TAKE p 0 a=y", true);
        player.close(conn);
    }
    player.say(CONSUMER, "TAKE p 20 a=x", true);
    player.say(PROVIDER, "DEAD x2", true);
    player.advance(TICK);
    player.drop_output();
    (1..=3).for_each(|n| player.say(PROVIDER, &format!("ALIVE y{n}"), true));
    let told = heard_soon(&mut player, PROVIDER);
    assert!(told.ends_with("!CHECK p x1"), "{told}");
    player.say(PROVIDER, "ALIVE x1", true);
    assert_eq!(player.heard(CONSUMER), ["MEMBER 1 p x1 a=x"]);
    player.end();
}

/// A lease that is renewed elsewhere puts the connection there over the limit, so nothing is reserved for it any more.
#[test]
fn a_lease_that_moves_to_a_waiter_for_several_frees_the_members_that_it_kept() {
    let mut player = Player::new(1, PER_TICK);
    player.say(OPERATOR, "POOL p 0 9 per_client=2 group=g", true);
    player.say(OPERATOR, "POOL q 0 9 group=g", true);
    (1..=3).for_each(|n| player.say(OPERATOR, &format!("ADD p m{n}"), true));
    let taken = ask(&mut player, CONSUMER, "TAKE p 0 lease=100");
    let (_, token) = taken.split_once("token=").expect("a lease with a time has a token");
    player.say(CONSUMER, "TAKE p", true);
    assert_eq!(ask(&mut player, OTHER, "TAKEGROUP g 30 n=2"), "");
    assert_eq!(ask(&mut player, 4, "TAKE p 30"), "", "the free member is reserved");
    assert_eq!(ask(&mut player, OTHER, &format!("RENEW {token}")), "RENEWED");
    let told = heard_soon(&mut player, 4);
    assert!(told.starts_with("MEMBER 3 p "), "{told}");
    player.end();
}

#[test]
fn a_take_waits_for_the_check_of_a_free_member_though_the_queue_is_full() {
    for (queue, take) in [(0, "TAKE p 5"), (1, "TAKE p 5"), (0, "TAKEGROUP g 5"), (1, "TAKEGROUP g 5")] {
        let mut player = Player::new(1, PER_TICK);
        player.say(OPERATOR, &format!("POOL p 0 2 queue={queue} check_on_take=0.2 group=g"), true);
        player.say(PROVIDER, "PROVIDE p 1", true);
        player.say(PROVIDER, "OFFER p m", true);
        (0..queue).for_each(|_| player.say(OTHER, "TAKE p 20 gpu=no", true));
        player.advance(Duration::from_millis(500));
        player.drop_output();
        assert_eq!(ask(&mut player, CONSUMER, take), "", "{take}");
        assert_eq!(player.heard(PROVIDER), ["!CHECK p m"], "{take}");
        assert_eq!(ask(&mut player, 4, take), "QUEUE_FULL", "{take}");
        player.say(PROVIDER, "ALIVE m", true);
        assert_eq!(player.heard(CONSUMER), ["MEMBER 1 p m"], "{take}");
        player.end();
    }
}
