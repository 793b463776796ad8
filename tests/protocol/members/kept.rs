//! Restarts: the process ends as in a crash, and another one reads the rows.

use super::{CONSUMER, OPERATOR, OTHER, Player, ask};
use poolcounter_core::slices::PER_TICK;
use poolcounter_core::time::Span;
use poolcounter_members::state::{DeclaredMember, DeclaredPool, RestoredKept};
use poolcounter_protocol::members::pool_settings::{OnLoss, Settings};

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

#[test]
fn restart_reports_what_was_kept() {
    let mut player = started();
    assert_eq!(ask(&mut player, CLEANER, "CLEAN ci"), "OK");
    assert!(ask(&mut player, OTHER, "TAKE ci member=a1 lease=600").contains(" token="));
    assert!(ask(&mut player, CONSUMER, "TAKE ci member=a2").starts_with("MEMBER "));
    assert_eq!(ask(&mut player, OPERATOR, "HOLD ci a3 3600"), "OK");
    for (member, result) in [("a4", "FAIL"), ("a5", "OK")] {
        let lease = ask(&mut player, OTHER, &format!("TAKE ci member={member}"));
        let lease = lease.split(' ').nth(1).expect("its number");
        assert_eq!(ask(&mut player, OTHER, &format!("RETURN {lease} {result}")), "RETURNED");
    }
    let report = player.restart(file(&ALL));
    assert_eq!(report, RestoredKept { leased: 1, awaited: 1, kept_out: 2, to_clean: 1, unknown: Vec::new() });
    let report = player.restart(file(&["a1", "a2", "a3"]));
    assert_eq!((report.kept_out, report.unknown), (1, ["a4", "a5"].map(|name| name.as_bytes().into()).into()));
}
