//! Starts: late ones, and those that wait for room.

use super::*;

/// The background work of a removal has no budget left, so the start is under way when its answer comes.
#[test]
fn a_start_in_a_leaving_pool_is_late_though_as_many_as_are_remembered_are_late() {
    for (answer, expected) in [("STARTED 1 m1", "ERROR TOO_LATE"), ("FAILED 1 no", "OK")] {
        let mut player = Player::with_most(2_000, 1, 2);
        player.say(OPERATOR, "POOL p 0 2000 start_timeout=600", true);
        player.say(PROVIDER, "PROVIDE p", true);
        player.say(CONSUMER, "TAKE p", true);
        player.say(OPERATOR, "RECONFIGURE p start_timeout=1 init=1100", true);
        player.advance(Duration::from_millis(1_100));
        player.say(OPERATOR, "POOL other 0 1", true);
        player.say(OPERATOR, "ADD other m", true);
        player.advance(TICK);
        player.drop_output();
        player.say(OPERATOR, "RMPOOL other", true);
        player.say(OPERATOR, "RMPOOL p GRACEFUL", true);
        let told = ask(&mut player, PROVIDER, answer);
        assert!(told.starts_with(expected), "{answer}: {told}");
        assert_eq!(told.contains("!STOP p m1"), answer.starts_with("STARTED"), "{told}");
        assert!(ask(&mut player, PROVIDER, answer).starts_with("ERROR BAD_START"), "{answer}");
        player.end();
    }
}
