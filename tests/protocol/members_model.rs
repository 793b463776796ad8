//! The members service against a naive model of it, in virtual time: random histories with upgrades and disconnects.

use poolcounter_testkit::bodies::members_model;
use poolcounter_testkit::seeds::play;

#[test]
fn random_histories_go_as_the_model_says() {
    let played = play("members-model", |history| members_model::play(&history.bytes()));
    let whole = played.iter().filter(|is_whole| **is_whole).count();
    assert!(played.len() < 25 || whole > played.len() / 2, "most histories are cut short");
}
