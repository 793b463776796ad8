//! Daemons that share a database: one serves the jobs, and another takes over when it dies, stops for a while, or is
//! cut off. Promises of one are kept by the next, and no job is given out by two.

mod database;
mod fleet;

use database::{Database, Interrupted};
use fleet::Fleet;
use poolcounter_testkit::random::Random;
use poolcounter_testkit::seeds::{History, play};

/// Number of histories in which each event occurs.
const ENOUGH: usize = 40;
const ACTORS: usize = 3;

#[test]
fn random_faults_leave_promises_to_the_next_daemon() {
    let lives = play("jobs-owners", |history| play_one(history).unwrap_or_else(|error| panic!("{error}")));
    let sum = |of: fn(&fleet::Seen) -> usize| lives.iter().map(of).sum::<usize>();
    let (replies, takeovers) = (sum(|seen| seen.replies), sum(|seen| seen.takeovers));
    let (rewrites, promotions) = (sum(|seen| seen.rewrites), sum(|seen| seen.promotions));
    println!(
        "{replies} replies, {takeovers} take-overs, {promotions} of them by a replica, all written anew {rewrites} times"
    );
    assert!(replies > 100 * lives.len() && takeovers > 2 * lives.len(), "there was no load");
    assert!(lives.len() < ENOUGH || rewrites > 0, "no commit was lost");
    assert!(lives.len() < ENOUGH || promotions > lives.len() / 4, "hardly a server was lost");
}

/// A renewal that takes longer than a beat makes the next one due at once, and the owner commits and reads all the same.
#[test]
fn owner_commits_and_reads_between_renewals_that_take_long() {
    for seed in 1..=3 {
        let mut fleet = Fleet::new(Database::install(seed), ACTORS, seed).expect("a daemon serves");
        fleet.delay_renewals(1_300_000, 1_000_000_000);
        for n in 0..50 {
            fleet.speak(n % ACTORS);
            fleet.pass(200_000).expect("the promises hold");
        }
        fleet.kill().expect("the other serves");
        fleet.end().expect("the promises hold");
    }
}

/// Plays one life of a fleet, and returns its counts of events.
fn play_one(History { seed, steps }: History) -> Result<fleet::Seen, String> {
    let mut random = Random::new(seed);
    let mut fleet = Fleet::new(Database::install(seed), ACTORS, seed)?;
    for _ in 0..steps {
        match random.below(100) {
            0 => fleet.kill()?,
            1 => fleet.stop(random.pick(&[500_000, 3_000_000, 6_000_000, 12_000_000]))?,
            2 => fleet.fail_over(random.pick(&[1000, 100_000, 900_000]))?,
            3 => fleet.go_down(random.pick(&[100_000, 3_000_000, 8_000_000]))?,
            4 if random.once_in(2) => {
                let how = random.pick(&[Interrupted::Cancelled, Interrupted::Terminated]);
                fleet.lose_server(how, random.pick(&[3_000, 100_000, 900_000, 3_000_000]))?;
            }
            4 => fleet.delay_renewals(random.pick(&[1_200_000, 2_500_000]), random.pick(&[3_000_000, 10_000_000])),
            5..=6 => fleet.lose(random.below(ACTORS)),
            7..=9 => fleet.pass(random.pick(&[300_000, 1_000_000, 2_500_000]))?,
            10..=49 => fleet.pass(random.pick(&[200, 1_000, 5_000, 20_000]))?,
            _ => fleet.speak(random.below(ACTORS)),
        }
    }
    fleet.end()
}
