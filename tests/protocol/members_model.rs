//! The members service against a naive model of it, in virtual time: random histories with upgrades and disconnects.

use poolcounter_testkit::bodies::members_model;
use poolcounter_testkit::seeds::{play, sum};

#[test]
fn random_histories_go_as_the_model_says() {
    let tallies = play("members-model", |history| members_model::play(&history.bytes()));
    let histories = tallies.len() as u64;
    let whole = sum(tallies).get("played to the end").copied().unwrap_or(0);
    assert!(histories < 25 || whole > histories / 2, "most histories are cut short");
}
