//! Restarts: the process ends as in a crash, and another one reads the rows.

use super::{CONSUMER, OPERATOR, OTHER, Player, ask};
use poolcounter_core::slices::PER_TICK;
use poolcounter_core::time::Span;
use poolcounter_members::state::{DeclaredMember, DeclaredPool, RestoredKept};
use poolcounter_protocol::members::pool_settings::{OnLoss, Settings};
use std::time::Duration;

const CLEANER: usize = 5;

/// Returns the pool of the file: accounts with these names, which are cleaned after use.
pub fn file(names: &[&str]) -> Vec<DeclaredPool> {
    let settings = Settings {
        max: 5,
        on_loss: OnLoss::Ok,
        clean_timeout: Span::from_secs(600),
        cull_interval: Span::ZERO,
        ..Settings::default()
    };
    let fixed = names.iter().map(|name| DeclaredMember { name: name.as_bytes().into(), attributes: Vec::new() });
    vec![DeclaredPool { name: b"ci"[..].into(), settings, fixed: fixed.collect() }]
}

const ALL: [&str; 5] = ["a1", "a2", "a3", "a4", "a5"];

/// Returns a process with the five accounts of the file.
fn started() -> Player {
    let mut player = Player::new(1, PER_TICK);
    player.restart(file(&ALL));
    player
}

/// Returns the words of a member in the list of its pool.
fn member(player: &mut Player, name: &str) -> String {
    player.drop_output();
    player.say(OPERATOR, "MEMBERS ci", true);
    let lines = player.heard(OPERATOR);
    lines.into_iter().find(|line| line.split(' ').next() == Some(name)).unwrap_or_default()
}

/// Puts the accounts into five states, and returns the token of the first.
fn in_five_states(player: &mut Player) -> String {
    assert_eq!(ask(player, CLEANER, "CLEAN ci"), "OK");
    assert_eq!(ask(player, CONSUMER, "IDENTIFY job-2"), "OK");
    let token = ask(player, OTHER, "TAKE ci member=a1 lease=600");
    let token = token.split_once("token=").expect("it has a token").1.to_string();
    assert!(ask(player, CONSUMER, "TAKE ci member=a2").starts_with("MEMBER "));
    let lease = ask(player, CONSUMER, "TAKE ci member=a3");
    let lease = lease.split(' ').nth(1).expect("its number").to_string();
    assert_eq!(ask(player, CONSUMER, &format!("RETURN {lease} FAIL")), "RETURNED");
    assert_eq!(ask(player, OPERATOR, "HOLD ci a4 3600 post-mortem"), "OK");
    let lease = ask(player, OTHER, "TAKE ci member=a5");
    let lease = lease.split(' ').nth(1).expect("its number").to_string();
    assert_eq!(ask(player, OTHER, &format!("RETURN {lease}")), "RETURNED");
    assert_eq!(player.heard(CLEANER), ["!CLEAN ci a5"]);
    token
}

#[test]
fn five_states_outlive_a_crash() {
    let mut player = started();
    let token = in_five_states(&mut player);
    let report = player.restart(file(&ALL));
    assert_eq!(report, RestoredKept { leased: 1, awaited: 1, kept_out: 2, to_clean: 1, unknown: Vec::new() });
    assert_eq!(ask(&mut player, OTHER, "TAKE ci"), "NO_MEMBERS at_capacity");
    assert!(member(&mut player, "a1").starts_with("a1 in_use 10.0.0.3:5 "));
    assert!(member(&mut player, "a2").starts_with("a2 in_use job-2 "));
    assert!(member(&mut player, "a2").contains(" why=awaits%20job-2 "));
    let quarantined = member(&mut player, "a3");
    assert!(quarantined.starts_with("a3 quarantined ") && quarantined.contains("by=job-2"), "{quarantined}");
    let held = member(&mut player, "a4");
    assert!(held.starts_with("a4 held ") && held.contains("why=post-mortem"), "{held}");
    assert!(member(&mut player, "a5").starts_with("a5 cleaning "));
    assert_eq!(ask(&mut player, CLEANER, "CLEAN ci"), "OK", "its cleaner may still be at it");
    player.advance(Duration::from_secs(11));
    assert_eq!(player.heard(CLEANER), ["!CLEAN ci a5"]);
    assert_eq!(ask(&mut player, CONSUMER, &format!("RENEW {token}")), "RENEWED");
    assert_eq!(ask(&mut player, CONSUMER, &format!("RETURN {token}")), "RETURNED");
    assert_eq!(ask(&mut player, OPERATOR, "FREE ci a4"), "OK");
    player.close(OTHER);
}

#[test]
fn five_states_outlive_two_crashes_and_an_upgrade() {
    let mut player = started();
    let token = in_five_states(&mut player);
    player.restart(file(&ALL));
    player.advance(Duration::from_secs(40));
    player.upgrade();
    let report = player.restart(file(&ALL));
    assert_eq!(report, RestoredKept { leased: 1, awaited: 1, kept_out: 2, to_clean: 1, unknown: Vec::new() });
    player.advance(Duration::from_secs(59));
    assert!(member(&mut player, "a2").starts_with("a2 in_use job-2 "), "each restart has a grace of its own");
    assert_eq!(ask(&mut player, OTHER, &format!("RETURN {token}")), "RETURNED");
}

/// Returns the last leases of a member, without their numbers.
fn history(player: &mut Player, name: &str) -> Vec<String> {
    player.drop_output();
    player.say(OPERATOR, &format!("HISTORY ci {name}"), true);
    let mut lines = player.heard(OPERATOR);
    assert_eq!(lines.pop().as_deref(), Some(""), "the list ends");
    lines.iter().map(|line| line.split_once(' ').expect("a number, then words").1.to_string()).collect()
}

#[test]
fn history_outlives_a_crash() {
    let mut player = started();
    in_five_states(&mut player);
    player.advance(Duration::from_secs(5));
    player.restart(file(&ALL));
    player.advance(Duration::from_secs(7));
    assert_eq!(history(&mut player, "a2"), ["job-2 10.0.0.2:5 12.000"]);
    assert_eq!(history(&mut player, "a3"), ["job-2 10.0.0.2:5 12.000 ended=12.000 how=failed"]);
    assert_eq!(history(&mut player, "a4"), [""; 0]);
    player.advance(Duration::from_secs(60));
    player.restart(file(&["a2", "a3"]));
    assert_eq!(history(&mut player, "a2"), ["job-2 10.0.0.2:5 72.000 ended=7.000 how=expired"]);
}

#[test]
fn reasons_are_as_old_after_two_crashes() {
    let mut player = started();
    in_five_states(&mut player);
    for _ in 0..2 {
        player.advance(Duration::from_secs(5));
        player.restart(file(&ALL));
    }
    player.advance(Duration::from_secs(7));
    let [quarantined, held] = ["a3", "a4"].map(|name| member(&mut player, name));
    assert!(quarantined.ends_with(" since=17.000"), "{quarantined}");
    assert!(held.ends_with(" since=17.000"), "{held}");
}

#[test]
fn history_of_a_free_member_outlives_a_crash() {
    let mut player = started();
    assert_eq!(ask(&mut player, CLEANER, "CLEAN ci"), "OK");
    let lease = ask(&mut player, OTHER, "TAKE ci member=a1");
    let lease = lease.split(' ').nth(1).expect("its number").to_string();
    assert_eq!(ask(&mut player, OTHER, &format!("RETURN {lease}")), "RETURNED");
    assert_eq!(player.heard(CLEANER), ["!CLEAN ci a1"]);
    assert_eq!(ask(&mut player, CLEANER, "CLEANED a1"), "OK");
    assert_eq!(player.restart(file(&ALL)), RestoredKept::default());
    assert_eq!(history(&mut player, "a1"), ["10.0.0.3:5 10.0.0.3:5 0.000 ended=0.000 how=returned"]);
    assert!(member(&mut player, "a1").starts_with("a1 free "));
    assert_eq!(player.restart(file(&["a2"])), RestoredKept::default(), "it need not be remembered");
    player.restart(file(&ALL));
    assert_eq!(history(&mut player, "a1"), [""; 0]);
}

#[test]
fn lease_with_a_token_ends_when_its_time_is_over() {
    let mut player = started();
    let token = in_five_states(&mut player);
    player.advance(Duration::from_secs(500));
    player.restart(file(&ALL));
    player.advance(Duration::from_secs(99));
    assert!(member(&mut player, "a1").starts_with("a1 in_use "));
    player.advance(Duration::from_secs(2));
    assert!(member(&mut player, "a1").starts_with("a1 cleaning "), "an end of a lease is a loss");
    assert_eq!(ask(&mut player, OTHER, &format!("RENEW {token}")), "NOT_TAKEN");
}

#[test]
fn awaited_member_is_lost_after_the_grace() {
    let mut player = started();
    in_five_states(&mut player);
    player.restart(file(&ALL));
    player.advance(Duration::from_secs(61));
    assert!(member(&mut player, "a2").starts_with("a2 cleaning "), "as after the loss of its consumer");
}

#[test]
fn holder_with_resume_has_its_member_back() {
    let mut player = started();
    let token = ask(&mut player, CONSUMER, "TAKE ci resume member=a2");
    let token = token.split_once("token=").expect("it has a token").1.to_string();
    player.restart(file(&ALL));
    assert!(member(&mut player, "a2").contains(" why=awaits%2010.0.0.2:5 "));
    assert_eq!(ask(&mut player, OTHER, &format!("RENEW {token}")), "RENEWED");
    let renewed = member(&mut player, "a2");
    let is_plain = !renewed.contains("why=") && !renewed.contains("expires=");
    assert!(renewed.starts_with("a2 in_use 10.0.0.3:5 ") && is_plain, "{renewed}");
    player.advance(Duration::from_secs(3600));
    assert!(member(&mut player, "a2").starts_with("a2 in_use "), "it lasts as long as its connection");
    player.close(OTHER);
    assert!(member(&mut player, "a2").starts_with("a2 cleaning "), "it ends with its connection");
    assert_eq!(ask(&mut player, CONSUMER, &format!("RENEW {token}")), "NOT_TAKEN");
}

#[test]
fn lease_with_resume_moves_before_its_connection_is_seen_to_end() {
    let mut player = started();
    let token = ask(&mut player, CONSUMER, "TAKE ci 5 resume");
    let token = token.split_once("token=").expect("it has a token").1.to_string();
    assert_eq!(ask(&mut player, OTHER, &format!("RENEW {token}")), "RENEWED");
    player.close(CONSUMER);
    assert!(member(&mut player, "a5").starts_with("a5 in_use 10.0.0.3:5 "));
    assert!(ask(&mut player, OTHER, "TAKE ci resume lease=5").starts_with("ERROR BAD_SYNTAX"));
}

#[test]
fn member_that_the_file_no_longer_has_is_remembered() {
    let mut player = started();
    in_five_states(&mut player);
    let report = player.restart(file(&["a1", "a2"]));
    let names = ["a3", "a4", "a5"].map(|name| name.as_bytes().into());
    assert_eq!(report.unknown, names);
    player.upgrade();
    player.advance(Duration::from_secs(29 * 24 * 60 * 60));
    let report = player.restart(file(&["a1", "a2", "a3"]));
    assert_eq!((report.kept_out, report.unknown.len()), (1, 2));
    assert!(member(&mut player, "a3").starts_with("a3 quarantined "), "it is in the file again");
    player.advance(Duration::from_secs(2 * 24 * 60 * 60));
    assert_eq!(player.restart(file(&["a1", "a2", "a3"])).unknown.len(), 0, "30 days are over");
    player.restart(file(&ALL));
    assert!(member(&mut player, "a5").starts_with("a5 free "));
}

#[test]
fn member_that_is_added_again_has_its_state() {
    let mut player = started();
    in_five_states(&mut player);
    player.restart(file(&["a1"]));
    assert_eq!(ask(&mut player, OPERATOR, "ADD ci a3"), "OK");
    assert!(member(&mut player, "a3").starts_with("a3 quarantined "));
    assert_eq!(ask(&mut player, OPERATOR, "ADD ci a5"), "OK");
    assert!(member(&mut player, "a5").starts_with("a5 cleaning "));
}

#[test]
fn pools_and_members_of_requests_are_kept() {
    let mut player = started();
    assert_eq!(ask(&mut player, OPERATOR, "POOL phones 0 3 order=fifo"), "OK");
    assert_eq!(ask(&mut player, OPERATOR, "RECONFIGURE phones max=2"), "OK");
    assert_eq!(ask(&mut player, OPERATOR, "ADD phones p1 os=ios"), "OK");
    assert_eq!(ask(&mut player, OPERATOR, "ADD phones p2"), "OK");
    assert_eq!(ask(&mut player, OPERATOR, "DEL phones p2"), "OK");
    assert_eq!(ask(&mut player, OPERATOR, "POOL gone 0 1"), "OK");
    assert_eq!(ask(&mut player, OPERATOR, "RMPOOL gone"), "OK");
    player.restart(file(&ALL));
    assert_eq!(ask(&mut player, OPERATOR, "POOL phones 0 2 order=fifo"), "OK");
    assert!(ask(&mut player, OTHER, "TAKE phones os=ios").contains(" phones p1 os=ios"));
    assert_eq!(ask(&mut player, OTHER, "TAKE phones"), "NO_MEMBERS at_capacity");
    assert_eq!(ask(&mut player, OTHER, "TAKE gone"), "ERROR NO_POOL");
    // The pool leaves once its member is back, also after another start.
    assert_eq!(ask(&mut player, OPERATOR, "RMPOOL phones GRACEFUL"), "OK");
    player.restart(file(&ALL));
    assert_eq!(ask(&mut player, OTHER, "TAKE phones"), "NO_MEMBERS removed");
    player.advance(Duration::from_secs(61));
    assert_eq!(ask(&mut player, OTHER, "TAKE phones"), "ERROR NO_POOL");
}

#[test]
fn token_of_a_providers_member_outlives_a_crash() {
    let mut player = started();
    assert_eq!(ask(&mut player, OPERATOR, "POOL db 0 3"), "OK");
    assert_eq!(ask(&mut player, CLEANER, "PROVIDE db session=s"), "OK");
    for name in ["m1", "m2"] {
        assert_eq!(ask(&mut player, CLEANER, &format!("OFFER db {name}")), "OK");
    }
    let token = ask(&mut player, CONSUMER, "TAKE db lease=600");
    let token = token.split_once("token=").expect("it has a token").1.to_string();
    assert!(ask(&mut player, CONSUMER, "TAKE db").starts_with("MEMBER "));
    assert_eq!(player.restart(file(&ALL)).leased, 1);
    assert!(ask(&mut player, OPERATOR, "UTILIZATION db").starts_with("max 3 in_use 1 free 0 "));
    assert_eq!(ask(&mut player, CLEANER, "PROVIDE db session=s"), "OK");
    player.advance(Duration::from_secs(60));
    assert_eq!(ask(&mut player, OTHER, &format!("RETURN {token}")), "RETURNED");
    assert!(ask(&mut player, OPERATOR, "UTILIZATION db").starts_with("max 3 in_use 0 free 1 "));
}

/// Takes a member, returns it, and lets its cleaning fail this often: each time when the cleaner is asked again.
fn in_failed_cleanings(player: &mut Player, name: &str, waits: &[u64]) {
    assert_eq!(ask(player, CLEANER, "CLEAN ci"), "OK");
    let lease = ask(player, OTHER, &format!("TAKE ci member={name}"));
    let lease = lease.split(' ').nth(1).expect("its number").to_string();
    assert_eq!(ask(player, OTHER, &format!("RETURN {lease}")), "RETURNED");
    for wait in waits {
        player.advance(Duration::from_secs(*wait));
        assert_eq!(player.heard(CLEANER), [format!("!CLEAN ci {name}")]);
        assert_eq!(ask(player, CLEANER, &format!("DEAD {name}")), "OK");
    }
}

#[test]
fn failed_cleanings_are_counted_on_after_a_crash() {
    let mut player = started();
    in_failed_cleanings(&mut player, "a1", &[0, 10]);
    player.restart(file(&ALL));
    assert_eq!(ask(&mut player, CLEANER, "CLEAN ci"), "OK");
    player.advance(Duration::from_secs(61));
    assert_eq!(player.heard(CLEANER), ["!CLEAN ci a1"]);
    assert_eq!(ask(&mut player, CLEANER, "DEAD a1"), "OK");
    assert!(member(&mut player, "a1").starts_with("a1 quarantined "), "this was the third time");
}

#[test]
fn cleaning_that_was_put_off_has_its_rest_after_a_crash() {
    let mut player = started();
    for (waits, lasts) in [(&[0, 10][..], 60), (&[0, 10, 60], 300)] {
        // A start sets what the file says.
        assert_eq!(ask(&mut player, OPERATOR, "RECONFIGURE ci clean_attempts=0"), "OK");
        in_failed_cleanings(&mut player, "a1", waits);
        player.advance(Duration::from_secs(lasts / 3));
        player.restart(file(&ALL));
        assert!(member(&mut player, "a1").contains("why=cleaning%20failed%20("), "its reason is kept, too");
        assert_eq!(ask(&mut player, CLEANER, "CLEAN ci"), "OK");
        player.advance(Duration::from_secs(lasts - lasts / 3 - 1));
        assert_eq!(player.heard(CLEANER), [""; 0], "{lasts}");
        player.advance(Duration::from_secs(2));
        assert_eq!(player.heard(CLEANER), ["!CLEAN ci a1"], "{lasts}");
        assert_eq!(ask(&mut player, CLEANER, "CLEANED a1"), "OK");
    }
}

#[test]
fn cleaners_have_ten_seconds_after_a_crash() {
    let mut player = started();
    in_failed_cleanings(&mut player, "a1", &[0]);
    player.advance(Duration::from_secs(9));
    let lease = ask(&mut player, OTHER, "TAKE ci member=a2");
    let lease = lease.split(' ').nth(1).expect("its number").to_string();
    assert_eq!(ask(&mut player, OTHER, &format!("RETURN {lease}")), "RETURNED");
    assert_eq!(player.heard(CLEANER), ["!CLEAN ci a2"]);
    player.restart(file(&ALL));
    assert_eq!(ask(&mut player, CLEANER, "CLEAN ci"), "OK");
    player.advance(Duration::from_secs(9));
    assert_eq!(player.heard(CLEANER), [""; 0], "the cleaner of before may come back, and go on");
    player.advance(Duration::from_secs(2));
    assert_eq!(player.heard(CLEANER), ["!CLEAN ci a1", "!CLEAN ci a2"]);
}

#[test]
fn members_of_a_session_have_one_provider_again() {
    let mut player = started();
    assert_eq!(ask(&mut player, OPERATOR, "POOL db 0 3"), "OK");
    assert_eq!(ask(&mut player, CLEANER, "PROVIDE db session=s"), "OK");
    for name in ["m1", "m2"] {
        assert_eq!(ask(&mut player, CLEANER, &format!("OFFER db {name}")), "OK");
        let taken = ask(&mut player, CONSUMER, &format!("TAKE db lease=600 member={name}"));
        assert!(taken.contains(" token="), "{taken}");
    }
    assert_eq!(player.restart(file(&ALL)).leased, 2);
    assert_eq!(ask(&mut player, CLEANER, "PROVIDE db session=s"), "OK");
    player.advance(Duration::from_secs(60));
    assert!(ask(&mut player, OPERATOR, "UTILIZATION db").starts_with("max 3 in_use 2 free 0 "), "none is lost");
}

#[test]
fn number_of_a_lease_never_goes_back() {
    let mut player = started();
    let number = |taken: &str| taken.split(' ').nth(1).and_then(|number| number.parse::<u64>().ok()).expect("a lease");
    let first = number(&ask(&mut player, OTHER, "TAKE ci"));
    player.restart(file(&ALL));
    assert!(number(&ask(&mut player, OTHER, "TAKE ci")) > first);
}
