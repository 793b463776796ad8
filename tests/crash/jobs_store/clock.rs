//! Steps of the clock of the time of day: delays and pauses are stored anew.

use crate::jobs_store::Stage;
use crate::jobs_store::store::plain;
use poolcounter_core::time::{Span, Time};
use poolcounter_jobs::state::{Body, Commit, Record, Stored};
use poolcounter_jobs::store::page::Page;
use poolcounter_testkit::world::EPOCH;

/// Number of jobs that are delayed when the clock is set: more than a step of the loop may visit.
const MANY: u64 = 100_000;

impl Stage {
    /// Lets a time pass, and returns the changes that were committed in it, without those of numbers.
    fn changes_in(&mut self, span: Span) -> Vec<String> {
        let before = self.store.batches().len();
        self.world.advance(span);
        self.commit_all();
        let batches = self.store.batches().split_off(before);
        let mut changes: Vec<String> =
            batches.into_iter().flatten().filter(|change| !change.starts_with("next")).collect();
        changes.sort_unstable();
        changes
    }
}

#[test]
fn delays_and_pauses_are_stored_anew_after_a_step_of_the_clock() {
    let mut stage = Stage::new();
    stage.store.keep_times();
    stage.world.begin().expect("can be opened");
    let client = stage.connect();
    stage.send(client, "put 0 0 60 1|a|put 0 9000 60 1|b|put 0 9000 60 1|c|pause-tube default 5000|");
    stage.commit_all();
    assert_eq!(stage.changes_in(Span::from_secs(5)), [""; 0]);
    for wall in [EPOCH + Span::from_secs(7200), EPOCH, Span::from_secs(5)] {
        stage.world.set_clock(wall);
        assert_eq!(stage.changes_in(Span::from_secs(2)), ["setting", "update 2", "update 3"]);
        assert_eq!(stage.store.epochs().last(), Some(&wall));
        assert_eq!(stage.changes_in(Span::from_secs(60)), [""; 0]);
    }
    // No step.
    stage.world.set_clock(Span::from_secs(6));
    assert_eq!(stage.changes_in(Span::from_secs(60)), [""; 0]);
    assert_eq!(stage.store.epochs().len(), 3);
}

#[test]
fn any_number_of_delays_is_stored_anew_in_slices() {
    let mut stage = Stage::new();
    stage.store.keep_times();
    let mut page = Page::first(Commit(7), MANY + 1);
    (page.is_last, page.share) = (true, 1.0);
    for id in 1..=MANY {
        let until = Time::START + EPOCH + Span::from_secs(9000);
        let record = Record { delay: 9000, delayed: Some(until), ..plain(id) };
        page.rows.add(Stored::Put(record, &mut Body::Own(b"x".to_vec().into())), Span::ZERO);
    }
    stage.store.fill(vec![page]);
    stage.world.begin().expect("can be opened");
    stage.store.read_one();
    while stage.world.is_woken() {
        stage.world.tick_unchecked();
    }
    stage.world.set_clock(EPOCH + Span::from_secs(60));
    stage.world.tick_unchecked_after(Span::from_secs(2));
    for _ in 0..2_000 {
        stage.world.tick_unchecked();
        stage.store.commit_one();
    }
    let updates = |batch: Vec<String>| batch.iter().filter(|change| change.starts_with("update")).count() as u64;
    assert_eq!(stage.store.batches().into_iter().map(updates).sum::<u64>(), MANY);
    stage.world.tick();
}
