//! Large work is done in slices: a million members that are stopped, lost or returned do not keep others waiting. The
//! state machine in virtual time, with a clock beside it.

use super::members::player::Player;
use poolcounter_core::record::Reader;
use std::time::Duration;

const OPERATOR: usize = 0;
const PROVIDER: usize = 1;
const CONSUMER: usize = 2;
const SECOND: Duration = Duration::from_secs(1);

/// Forgets what was told and spent so far.
fn look_away(player: &mut Player) {
    player.drop_output();
    player.spent = (Duration::ZERO, Duration::ZERO, 0);
}

/// Returns a pool whose members one provider has offered.
fn crowd(members: usize, settings: &str) -> Player {
    let mut player = Player::for_crowds();
    player.say(OPERATOR, &format!("POOL p 0 {members} cull_interval=0{settings}"), true);
    player.say(PROVIDER, "PROVIDE p", true);
    (0..members).for_each(|n| player.say(PROVIDER, &format!("OFFER p member-{n}"), true));
    look_away(&mut player);
    player
}

/// Returns such a pool, all of whose members one consumer has taken.
fn taken(members: usize, settings: &str) -> Player {
    let mut player = crowd(members, settings);
    (0..members).for_each(|_| player.say(CONSUMER, "TAKE p", true));
    look_away(&mut player);
    player
}

/// Returns fixed members that wait to be cleaned.
fn unclean(members: usize) -> Player {
    let mut player = Player::for_crowds();
    player.say(OPERATOR, &format!("POOL p 0 {members} cull_interval=0 clean_timeout=900"), true);
    (0..members).for_each(|n| player.say(OPERATOR, &format!("ADD p member-{n}"), true));
    for _ in 0..members {
        player.say(CONSUMER, "TAKE p", true);
    }
    player.say(CONSUMER, "BYE", true);
    player.advance(SECOND);
    look_away(&mut player);
    player
}

/// Returns such members, ten of which are being cleaned.
fn cleaned(members: usize) -> Player {
    let mut player = unclean(members);
    player.say(PROVIDER, "CLEAN p", true);
    look_away(&mut player);
    player
}

/// Case: its name, the crowd, the action, and the number of lines that are told.
type Case = (&'static str, fn(usize) -> Player, fn(&mut Player), fn(usize) -> usize);

const CASES: [Case; 12] = [
    ("RMPOOL", |n| crowd(n, ""), |player| player.say(OPERATOR, "RMPOOL p", true), |n| n + 1),
    ("RMPOOL of what is held", |n| taken(n, ""), |player| player.say(OPERATOR, "RMPOOL p", true), |n| 2 * n + 1),
    ("RMPOOL GRACEFUL", |n| crowd(n, ""), |player| player.say(OPERATOR, "RMPOOL p GRACEFUL", true), |n| n + 1),
    ("RECONFIGURE max", |n| crowd(n, ""), |player| player.say(OPERATOR, "RECONFIGURE p max=1", true), |n| n),
    (
        "RECONFIGURE max_lifetime",
        |n| crowd(n, ""),
        |player| player.say(OPERATOR, "RECONFIGURE p max_lifetime=900", true),
        |_| 1,
    ),
    ("provider lost", |n| crowd(n, " provider_grace=0"), |player| player.close(PROVIDER), |_| 0),
    ("provider lost, all held", |n| taken(n, " provider_grace=0"), |player| player.close(PROVIDER), |n| n),
    ("provider lost, with grace", |n| crowd(n, " provider_grace=9"), |player| player.close(PROVIDER), |_| 0),
    ("consumer lost", |n| taken(n, ""), |player| player.close(CONSUMER), |n| n),
    ("BYE", |n| taken(n, ""), |player| player.say(CONSUMER, "BYE", true), |_| 1),
    ("a cleaner comes", unclean, |player| player.say(PROVIDER, "CLEAN p", true), |_| 1 + 10),
    ("a cleaner is lost", cleaned, |player| player.close(PROVIDER), |_| 0),
];

/// Plays every case with this number of members, and returns the longest step of each, the time of all, and their number.
fn play(members: usize) -> Vec<(&'static str, (Duration, Duration, u64))> {
    let play_one = |(name, crowd, act, lines): &Case| {
        let mut player = crowd(members);
        act(&mut player);
        player.advance(5 * SECOND);
        assert_eq!(player.lines_from(0).iter().sum::<usize>(), lines(members), "{name}");
        (*name, player.spent)
    };
    CASES.iter().map(play_one).collect()
}

/// One record a member takes four times as long, while everybody waits.
#[test]
fn members_of_a_provider_are_handed_over_in_blocks() {
    const MANY: usize = 3_000;
    let mut player = crowd(MANY, " queue=5");
    player.advance(3 * SECOND);
    for (conn, line) in
        [(CONSUMER, "TAKE p"), (CONSUMER, "BYE"), (CONSUMER, "TAKE p n=2"), (OPERATOR, "HOLD p member-7 9 broken")]
    {
        player.say(conn, line, true);
    }
    player.advance(2 * SECOND);
    let bytes = player.save();
    let (mut input, mut records) = (&bytes[..], 0);
    let mut saved = Reader::new(&mut input);
    while saved.take_bytes().is_ok() {
        records += 1;
    }
    assert!(records < 50 && bytes.len() < 60 * MANY, "{records} records, {} bytes", bytes.len());
    player.upgrade();
}

#[test]
fn failed_cleanings_are_handed_over() {
    const CLEANER: usize = 3;
    for is_upgraded in [false, true] {
        let mut player = Player::for_crowds();
        let fail = |player: &mut Player| {
            ["CLEANING one", "DEAD one"].iter().for_each(|line| player.say(CLEANER, line, true));
            player.drop_output();
            player.say(OPERATOR, "MEMBERS p", true);
            player.told(OPERATOR)
        };
        player.say(OPERATOR, "POOL p 0 1 clean_timeout=60 clean_attempts=2", true);
        player.say(PROVIDER, "PROVIDE p", true);
        player.say(PROVIDER, "OFFER p one", true);
        player.say(CLEANER, "CLEAN p", true);
        let row = fail(&mut player);
        assert!(row.starts_with("one cleaning "), "it is cleaned again after one: {row}");
        player.say(OPERATOR, "REPAIR p one as_is", true);
        if is_upgraded {
            player.upgrade();
        }
        let row = fail(&mut player);
        assert!(row.starts_with("one stopping "), "it is given up after two: {row}");
    }
}

#[test]
fn pool_that_is_removed_offers_nothing() {
    let mut player = taken(20_000, "");
    // Uses the budget of the tick.
    player.close(CONSUMER);
    ["POOL q 0 1", "RECONFIGURE q max=2", "RMPOOL q"].into_iter().for_each(|line| player.say(OPERATOR, line, true));
    player.check();
}

#[test]
fn long_work_is_done_whole() {
    play(20_000);
}

/// Prints the figures. `MEMBERS` is the number of members.
#[test]
#[ignore = "it measures: cargo test --release --test members_slices -- --ignored --nocapture"]
fn the_longest_step_with_a_million_members() {
    let members = std::env::var("MEMBERS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    for (name, (longest, all, steps)) in play(members) {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        println!("{name}: longest step {:.2} ms, all {:.0} ms in {steps} steps", ms(longest), ms(all));
    }
}
