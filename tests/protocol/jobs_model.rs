//! The jobs service beside a naive model of it that was written from the protocol: every reply in random histories,
//! with commits at any time, upgrades and lost connections; and in all short histories of some requests.

use poolcounter_testkit::bodies;
use poolcounter_testkit::jobs::Commits;
use poolcounter_testkit::jobs_twin::JobsTwin;
use poolcounter_testkit::seeds::{self, sum};

/// Number of histories that contain every word.
const ENOUGH: u64 = 75;

/// Replies that must occur in some history.
const WORDS: &str = "INSERTED DUPLICATE SUPERSEDED DRAINING ACCEPTING USING RESERVED END DEADLINE_SOON TIMED_OUT \
    NOT_FOUND DELETED RELEASED BURIED TOUCHED BEGUN FOUND KICKED OK PAUSED CLEARED ROOT LIMIT RETRY DEAD_LETTER \
    SCHEDULED WATCHING NOT_IGNORED";

#[test]
fn random_histories_go_as_the_model_says() {
    let tallies = seeds::play("jobs-model", |history| bodies::jobs_model::play(&history.bytes()));
    let (histories, tally) = (tallies.len() as u64, sum(tallies));
    if histories >= ENOUGH {
        assert!(tally["played to the end"] > histories / 2, "most histories are cut short");
        assert_eq!(WORDS.split(' ').find(|word| !tally.contains_key(*word)), None, "was never told");
    }
}

/// Moves of a short history: a connection with its request, or a number of seconds; `$` is the last job that was
/// reserved.
const MOVES: [(usize, &str); 13] = [
    (0, "put 1 0 2 1\r\na"),
    (0, "put-job 0 1 2 1 key=k root=S root-ts=1\r\nb"),
    (0, "put-job 0 0 2 1 key=k group=g root=S root-ts=2\r\nc"),
    (1, "reserve-with-timeout 3"),
    (0, "reserve-many 2 0"),
    (1, "delete $"),
    (1, "release $ 0 1"),
    (1, "fail $ 2 0 2\r\nno"),
    (1, "bury $ 3"),
    (0, "kick 1"),
    (1, "x"),
    (0, "limit default 1"),
    (0, "+1"),
];
/// Beginnings of the histories.
const BEGINNINGS: [&[(usize, &str)]; 3] = [
    &[],
    &[(0, "put 2 0 2 1\r\nz"), (1, "reserve")],
    &[(1, "watch * 2"), (0, "retry * 2 1 2 5"), (0, "put 0 0 1 1\r\ny")],
];
const DEPTH: usize = 3;

#[test]
fn all_short_histories_go_as_the_model_says() {
    for commits in [Commits::Never, Commits::AtOnce, Commits::Later] {
        for beginning in BEGINNINGS {
            for number in 0..MOVES.len().pow(DEPTH as u32) {
                let moves = (0..DEPTH).map(|place| MOVES[number / MOVES.len().pow(place as u32) % MOVES.len()]);
                play(commits, &beginning.iter().copied().chain(moves).collect::<Vec<_>>());
            }
        }
    }
}

fn play(commits: Commits, moves: &[(usize, &str)]) {
    let mut twin = JobsTwin::new(2, commits, 1);
    for (conn, text) in moves {
        if let Some(seconds) = text.strip_prefix('+') {
            twin.pass(seconds.parse().expect("a number"));
        } else if *text == "x" {
            twin.close(*conn);
        } else if !twin.is_waiting(*conn) {
            let text = text.replace('$', &twin.held[*conn].to_string());
            twin.say(*conn, &text);
        }
        // Changes become visible a move after the store got them.
        twin.commit();
    }
    twin.pass(4);
    for question in ["summary tube", "stats-tube default", "list-jobs default ready 9", "stats-job 1", "stats"] {
        twin.say(if twin.is_waiting(0) { 1 } else { 0 }, question);
    }
    (0..2).for_each(|conn| twin.close(conn));
    twin.end();
}
