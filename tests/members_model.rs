//! The members service against a naive model of it, in virtual time: random histories with upgrades and disconnects.

#[path = "support/bodies/mod.rs"]
#[allow(dead_code, reason = "only one body is played here")]
mod bodies;
mod support;

use std::collections::BTreeMap;
use support::random::{Random, setting};

/// How many bytes of choices a history has.
const LONG: usize = 1_500;

/// `SIM_SEED` is the first seed, `SIM_SEEDS` how many follow from it.
#[test]
fn random_histories_go_as_the_model_says() {
    let (first, seeds) = (setting("SIM_SEED", 1), setting("SIM_SEEDS", 300));
    let mut tally: BTreeMap<String, u64> = BTreeMap::new();
    for seed in (0..seeds).map(|n| first.wrapping_add(n)) {
        let mut random = Random::new(seed);
        let data: Vec<u8> = (0..LONG).map(|_| random.below(256) as u8).collect();
        let told = bodies::members_model::play(&data, format!("SIM_SEED={seed} SIM_SEEDS=1 replays this"));
        told.into_iter().for_each(|(word, times)| *tally.entry(word).or_insert(0) += times);
    }
    println!("{tally:?}");
    let whole = tally.get("played to the end").copied().unwrap_or(0);
    assert!(seeds < 100 || whole > seeds / 2, "most histories are cut short");
}
