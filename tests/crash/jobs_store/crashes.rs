//! Servers that crash at any step, on a disk that loses unsynced writes, is full for a while, or fails to sync: the
//! next server has everything that was promised to clients.

use crate::jobs_store::losing::{Fate, LosingStore};
use crate::sim::{Disk, Sim, step};
use crate::stored::{self, StoredSettings};
use poolcounter_core::time::Span;
use poolcounter_jobs::JobsSettings;
use poolcounter_service::container::AllSettings;
use poolcounter_service::contract::Info;
use poolcounter_testkit::random::Random;
use poolcounter_testkit::seeds::play;
use poolcounter_testkit::world::World;

const LIVES: usize = 6;
const STEPS: usize = 120;
const ACTORS: usize = 3;
const SERVICES: &[&Info] = &[&stored::INFO];

impl Disk for LosingStore {
    fn server(&mut self, epoch: Span) -> World {
        let settings = StoredSettings(JobsSettings { admin: true, ..JobsSettings::default() });
        let mut world = World::at(SERVICES, AllSettings::defaults(SERVICES).with(settings), epoch);
        world.begin().expect("the store can be read");
        world
    }

    fn work(&mut self) {
        self.meet(Fate::Succeed);
    }
}

#[test]
fn promises_outlive_random_crashes() {
    let replies = play("jobs-crashes", |history| play_one(history.seed).unwrap_or_else(|error| panic!("{error}")));
    let (histories, replies) = (replies.len(), replies.iter().sum::<usize>());
    assert!(replies > 100 * histories, "there was no load: {replies} replies");
}

/// Plays a history, and returns the number of replies.
fn play_one(seed: u64) -> Result<usize, String> {
    let mut random = Random::new(seed);
    let mut sim = Sim::new(LosingStore::install(), ACTORS, seed);
    for _ in 0..LIVES {
        for _ in 0..random.below(STEPS) {
            step(&mut sim, &mut random, ACTORS, |sim, random| {
                let fates = [(Fate::Succeed, 12), (Fate::Full, 1), (Fate::FailToSync, 1)];
                sim.disk.meet(random.weigh(&fates));
                sim.settle();
            });
        }
        if random.once_in(4) {
            sim.finish();
        }
        let down = Span::from_millis(random.pick(&[0, 0, 300, 4_000]));
        let is_written = random.once_in(2);
        sim.crash(down, |disk| disk.crash(is_written))?;
    }
    Ok(sim.replies())
}
