//! The daemon is killed at any moment under load, over and over.

use crate::jobs_crash::load::Log;
use nix::sys::signal::Signal;
use poolcounter_testkit::crash::actor::{Actor, SETUP, retries};
use poolcounter_testkit::crash::history::{Found, History};
use poolcounter_testkit::daemon::Daemon;
use poolcounter_testkit::random::Random;
use poolcounter_testkit::running::Over;
use poolcounter_testkit::scratch::Scratch;
use poolcounter_testkit::seeds::{History as Seeded, play};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

const ACTORS: usize = 4;
/// Longest life of the daemon, in milliseconds.
const LONGEST_MS: usize = 250;

/// Without a crash, the state found equals the replies: the check raises no false alarm.
#[test]
fn jobs_are_as_replied_without_a_crash() {
    let seed = 1;
    let log = Log::new(History::new(Found::default(), retries()));
    let daemon = Daemon::start_with_jobs(&["--jobs-store", "memory"]);
    let address = daemon.jobs();
    for life in 0..3 {
        let found = log.check(address, ACTORS, if life == 0 { &SETUP } else { &[] });
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _over = Over(&is_over);
            for number in 0..ACTORS {
                let actor = Actor::new(number, ACTORS, life, seed, &found, log.now());
                log.play(scope, address, (actor, number, seed ^ (life as u64) << 20), &is_over);
            }
            thread::sleep(Duration::from_millis(LONGEST_MS as u64));
        });
        println!("life {life}: {} jobs, {} replies so far", found.jobs.len(), log.replies());
    }
    log.check(address, ACTORS, &[]);
}

/// A step is a life of the daemon. The seed determines the times of the kills, and the requests of the clients.
#[test]
fn random_kills_lose_no_job() {
    play("jobs-kills", live_and_die);
}

fn live_and_die(Seeded { seed, steps }: Seeded) {
    let mut random = Random::new(seed);
    let scratch = Scratch::new();
    let store = format!("sqlite:{}", scratch.file("jobs.db").display());
    let log = Log::new(History::new(Found::default(), retries()));
    for life in 0..=steps as usize {
        let daemon = Daemon::start_with_jobs(&["--jobs-store", &store]);
        let address = daemon.jobs();
        let found = log.check(address, ACTORS, if life == 0 { &SETUP } else { &[] });
        if life % 20 == 0 {
            println!("life {life}: {} jobs, {} replies so far", found.jobs.len(), log.replies());
        }
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _over = Over(&is_over);
            for number in 0..ACTORS {
                let actor = Actor::new(number, ACTORS, life, seed, &found, log.now());
                log.play(scope, address, (actor, number, seed ^ (life as u64) << 20), &is_over);
            }
            thread::sleep(Duration::from_millis(random.below(LONGEST_MS) as u64));
            daemon.signal(Signal::SIGKILL);
        });
    }
    assert!(log.replies() > steps as usize * 20, "there was no load: {} replies", log.replies());
}
