//! The members service against a naive model of it, in virtual time: random histories with upgrades and disconnects.

use poolcounter_testkit::random::play_seeds;

/// Number of bytes of choices of a history.
const LONG: usize = 1_500;

/// `SIM_SEED` is the first seed, `SIM_SEEDS` their number.
#[test]
fn random_histories_go_as_the_model_says() {
    let (seeds, tally) = play_seeds(LONG, poolcounter_testkit::bodies::members_model::play);
    let whole = tally.get("played to the end").copied().unwrap_or(0);
    assert!(seeds < 100 || whole > seeds / 2, "most histories are cut short");
}
