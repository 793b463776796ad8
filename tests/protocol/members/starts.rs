//! Starts: late ones, and starts that wait for room.

use super::*;

/// The background work of a removal has no budget left, so the start is under way when its answer comes.
#[test]
fn a_start_in_a_leaving_pool_is_late() {
    for (answer, expected) in [("STARTED 1 m1", "ERROR TOO_LATE"), ("FAILED 1 no", "OK")] {
        let mut player = Player::with_most(2_000, 1, 2);
        player.say(OPERATOR, "POOL p 0 2000 start_timeout=600", true);
        player.say(PROVIDER, "PROVIDE p", true);
        player.say(CONSUMER, "TAKE p", true);
        player.say(OPERATOR, "POOL other 0 1", true);
        player.say(OPERATOR, "ADD other m", true);
        player.advance(TICK);
        player.drop_output();
        player.say(OPERATOR, "RMPOOL other", true);
        player.say(OPERATOR, "RMPOOL p GRACEFUL", true);
        let told = ask(&mut player, PROVIDER, answer);
        assert!(told.starts_with(expected), "{answer}: {told}");
        assert_eq!(told.contains("!STOP p m1"), answer.starts_with("STARTED"), "{told}");
        assert!(ask(&mut player, PROVIDER, answer).starts_with(expected), "{answer}: a second time");
        player.end();
    }
}

/// A start that found no room is made once another pool leaves some.
#[test]
fn a_start_is_made_once_there_is_room() {
    for (settings, line) in
        [("0 2", "TAKE p 9"), ("0 2 group=g", "TAKEGROUP g 9"), ("1 2", "POOLS"), ("0 2 min_free=1", "POOLS")]
    {
        let mut player = Player::with_most(4, 1, PER_TICK);
        player.say(OPERATOR, "POOL q 0 9", true);
        (1..=3).for_each(|n| player.say(OPERATOR, &format!("ADD q m{n}"), true));
        player.say(OPERATOR, &format!("POOL p {settings}"), true);
        player.say(CONSUMER, line, true);
        player.say(OPERATOR, "ADD q m4", true);
        assert_eq!(ask(&mut player, PROVIDER, "PROVIDE p"), "OK", "{settings}: there is no room for a start");
        player.upgrade();
        assert_eq!(ask(&mut player, OPERATOR, "DEL q m1").rsplit(" | ").next(), Some("OK"));
        player.advance(TICK);
        assert_eq!(player.heard(PROVIDER), ["!START p 1"], "{settings}");
        player.end();
    }
}

/// Pools that wait for room get it one after another.
#[test]
fn many_pools_wait_for_room() {
    let mut player = Player::with_most(24, 1, 6);
    player.say(OPERATOR, "POOL q 0 24", true);
    (0..24).for_each(|n| player.say(OPERATOR, &format!("ADD q m{n}"), true));
    for n in 0..20 {
        player.say(OPERATOR, &format!("POOL p{n} 1 2"), true);
    }
    for n in 0..8 {
        assert_eq!(ask(&mut player, 1 + n, &format!("PROVIDE p{n}")), "OK");
    }
    player.drop_output();
    for n in 0..8 {
        player.say(OPERATOR, &format!("DEL q m{n}"), true);
        player.advance(Duration::from_millis(100));
    }
    for n in 0..8 {
        assert_eq!(player.heard(1 + n).len(), 1, "{n}");
    }
    player.end();
}
