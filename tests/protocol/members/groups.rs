//! Groups of pools: who waits for one, while its pools come and go.

use super::*;
use poolcounter_testkit::histories::extend;
use poolcounter_testkit::random::setting;

#[test]
fn nothing_is_reserved_in_a_pool_that_leaves_its_group() {
    for next in ["", "h"] {
        let mut player = Player::new(1, PER_TICK);
        player.say(OPERATOR, "POOL p 0 5 group=g", true);
        player.say(PROVIDER, "PROVIDE p", true);
        player.say(CONSUMER, "TAKEGROUP g 10 n=2", true);
        player.say(OTHER, "TAKE p 10", true);
        player.say(PROVIDER, "STARTED 1 m1", true);
        player.drop_output();
        assert_eq!(ask(&mut player, OPERATOR, &format!("RECONFIGURE p group={next}")), "OK");
        assert_eq!(player.heard(CONSUMER), ["NO_MEMBERS removed"]);
        assert_eq!(player.heard(OTHER), ["MEMBER 1 p m1"]);
        player.end();
    }
}

/// Pools that join a group while its pools are removed in slices stay, whichever have left it before.
#[test]
fn a_pool_that_joins_a_group_in_its_removal_stays() {
    for graceful in ["", " GRACEFUL"] {
        let mut player = Player::new(1, 2);
        for n in 1..=5 {
            player.say(OPERATOR, &format!("POOL p{n} 0 1 group=g"), true);
        }
        (1..=5).for_each(|n| player.say(OPERATOR, &format!("ADD p{n} m"), true));
        (1..=5).for_each(|_| player.say(CONSUMER, "TAKEGROUP g", true));
        player.say(OPERATOR, &format!("RMGROUP g{graceful}"), true);
        for line in
            ["RECONFIGURE p1 group=", "RECONFIGURE p2 group=", "POOL late 0 1 group=g", "RECONFIGURE p2 group=g"]
        {
            assert!(ask(&mut player, OPERATOR, line).ends_with("OK"), "{line}");
            player.upgrade();
        }
        player.advance(Duration::from_secs(1));
        player.close(CONSUMER);
        player.advance(Duration::from_secs(1));
        player.drop_output();
        player.say(OPERATOR, "POOLS", true);
        let listed = player.heard(OPERATOR);
        let names: Vec<&str> = listed.iter().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(names, ["late", "p1", "p2", ""], "{graceful}");
        player.end();
    }
}

/// Action in a short history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Letter {
    /// The connection sends this line.
    Says(usize, &'static str),
    /// The provider answers its oldest unanswered request.
    Answers,
    /// The connection closes.
    Leaves(usize),
    Upgrade,
    /// Every wait ends.
    Pass,
}

use Letter::{Answers, Leaves, Pass, Says, Upgrade};

/// Plays every history of five letters of waits for a group, one of whose two pools starts members, changes and goes.
#[test]
fn waits_for_a_group_in_five_steps() {
    let letters = [
        Says(CONSUMER, "TAKEGROUP g 10 n=2"),
        Says(OTHER, "TAKEGROUP g 10 zone=a"),
        Says(OTHER, "TAKE p 10"),
        Answers,
        Says(OPERATOR, "RECONFIGURE p group="),
        Says(OPERATOR, "RECONFIGURE p group=g"),
        Says(OPERATOR, "RMPOOL p"),
        Leaves(CONSUMER),
        Upgrade,
        Pass,
    ];
    let mut played = 0;
    extend(&mut Vec::new(), &letters, setting("STEPS", 5) as usize, is_new, &mut |history| {
        let result = std::panic::catch_unwind(|| play(history));
        assert!(result.is_ok(), "{history:?}");
        played += 1;
    });
    assert!(played > 10_000, "{played}");
}

/// Returns whether a history with this letter differs from every shorter one.
fn is_new(history: &[Letter], letter: Letter) -> bool {
    match letter {
        Says(OPERATOR, _) | Upgrade | Pass => history.last() != Some(&letter),
        Leaves(conn) => matches!(
            history.iter().rfind(|letter| matches!(letter, Says(of, _) | Leaves(of) if *of == conn)),
            Some(Says(..))
        ),
        Says(..) | Answers => true,
    }
}

fn play(history: &[Letter]) {
    let mut player = Player::new(1, PER_TICK);
    for pool in ["p", "q"] {
        player.say(OPERATOR, &format!("POOL {pool} 0 3 group=g"), true);
    }
    player.say(PROVIDER, "PROVIDE p", true);
    for letter in history {
        match *letter {
            Says(conn, line) => player.say(conn, line, true),
            Answers => {
                if let Some(line) = player.next_answer(PROVIDER) {
                    player.say(PROVIDER, &line, true);
                }
            }
            Leaves(conn) => player.close(conn),
            Upgrade => player.upgrade(),
            Pass => player.advance(Duration::from_secs(11)),
        }
    }
    player.end();
}
