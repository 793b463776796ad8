//! Waiters are served as soon as there are members for them.

use super::*;

/// Lets background work come to its end, and returns the output to a connection.
fn heard_soon(player: &mut Player, conn: usize) -> String {
    player.advance(Duration::from_millis(100));
    player.heard(conn).join(" | ")
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

/// Background work has yet to suspend the member when another provider offers it.
#[test]
fn a_checked_member_is_checked_by_the_provider_that_adopts_it() {
    let mut player = Player::new(1, 2);
    player.say(OPERATOR, "POOL p 0 9 provider_grace=60 check_interval=1 check_timeout=5", true);
    player.say(PROVIDER, "PROVIDE p", true);
    (1..=4).for_each(|n| player.say(PROVIDER, &format!("OFFER p m{n}"), true));
    player.say(OTHER, "PROVIDE p", true);
    player.advance(Duration::from_millis(1_500));
    player.drop_output();
    player.close(PROVIDER);
    assert_eq!(ask(&mut player, OTHER, "OFFER p m4"), "OK | !CHECK p m4");
    player.say(OTHER, "ALIVE m4", true);
    assert_eq!(ask(&mut player, CONSUMER, "TAKE p"), "MEMBER 1 p m4");
    player.end();
}
