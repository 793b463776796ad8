//! Puts for which the store has no room: they are refused at once, and their jobs are never there.

use crate::jobs_store::Stage;
use poolcounter_core::time::Span;
use poolcounter_jobs::JobsSettings;
use poolcounter_jobs::options::Queue;

impl Stage {
    /// Leaves no room for the batch under way, and notifies the service.
    fn roll_back(&mut self) {
        assert!(self.store.roll_back(), "nothing is under way");
        self.world.settle();
    }
}

#[test]
fn puts_without_room_are_refused_at_once_and_other_changes_wait() {
    let mut stage = Stage::new();
    let [one, other, late, deletes] = [stage.connect(), stage.connect(), stage.connect(), stage.connect()];
    stage.ask(one, "put 0 0 9 1|a|");
    stage.send(one, "put-job 0 0 9 1 key=k|b|");
    stage.send(deletes, "delete 1|put 0 0 9 1|c|");
    stage.send(other, "put-job 0 0 9 1 key=k|d|");
    // In the batch after it.
    stage.send(late, "put-job 0 9 9 1 key=l|e|");
    assert_eq!([one, other, late].map(|client| stage.heard(client)), ["", "", ""]);
    stage.roll_back();
    let refused = "OUT_OF_MEMORY|";
    assert_eq!([one, other, late].map(|client| stage.heard(client)), [refused, refused, refused]);
    // A refusal waits behind the reply before it.
    stage.send(late, "peek 3|kick 9|put 0 0 9 1|f|reserve-with-timeout 0|stats-job 5|");
    assert_eq!(stage.heard(late), "NOT_FOUND|KICKED 0|OUT_OF_MEMORY|TIMED_OUT|NOT_FOUND|");
    stage.roll_back();
    stage.commit_all();
    assert_eq!(stage.heard(deletes), "DELETED|OUT_OF_MEMORY|");
    let ids = "INSERTED 5|INSERTED 6|DUPLICATE 6|";
    assert_eq!(stage.ask(one, "put-job 0 0 9 1 key=k|g|put-job 0 0 9 1 key=l|h|put-job 0 0 9 1 key=l|i|"), ids);
    let stored: Vec<String> = stage.store.batches().concat();
    let of_jobs: Vec<&str> = stored.iter().map(|row| &**row).filter(|row| !row.starts_with("next")).collect();
    assert_eq!(of_jobs, ["put 1 a", "delete 1", "put 5 g", "put 6 h"]);
}

#[test]
fn a_key_kept_for_a_time_is_free_without_room() {
    let mut stage = Stage::new();
    let client = stage.connect();
    stage.send(client, "put-job 0 0 9 1 key=k for=60|a|root t S 1|");
    stage.roll_back();
    assert_eq!(stage.heard(client), "OUT_OF_MEMORY|");
    stage.commit_all();
    assert_eq!(stage.heard(client), "ROOT 1|");
    assert_eq!(
        stage.ask(client, "put-job 0 0 9 1 key=k for=60|b|delete 2|put-job 0 0 9 1 key=k|c|"),
        "INSERTED 2|DELETED|DUPLICATE 2|"
    );
    let stored: Vec<String> = stage.store.batches().concat();
    let of_roots: Vec<&str> = stored.iter().map(|row| &**row).filter(|row| row.starts_with("root")).collect();
    assert_eq!(of_roots, ["root gone", "root t S 1", "root default  k 2"]);
}

/// The jobs are removed in slices, by the meter of each step.
#[test]
fn very_many_puts_are_taken_back_in_slices() {
    let queue = Queue { changes: 65_536, bytes: usize::MAX };
    let mut stage = Stage::with(JobsSettings { store_timeout: Span::FOREVER, queue, ..JobsSettings::default() });
    let producers: Vec<usize> = (0..60).map(|_| stage.connect()).collect();
    let puts = (0..1000).map(|n| format!("put-job 0 0 9 1 key=k{n} group=g\r\nx\r\n"));
    let many = format!("put-many 1000\r\n{}", puts.collect::<String>());
    for (number, producer) in producers.iter().enumerate() {
        stage.world.send(*producer, format!("use t{number}\r\n{many}").as_bytes());
    }
    (0..1000).for_each(|_| stage.world.tick_unchecked());
    assert!(stage.store.roll_back());
    (0..1000).for_each(|_| stage.world.tick_unchecked());
    for (number, producer) in producers.iter().enumerate() {
        assert_eq!(stage.heard(*producer), format!("USING t{number}|OUT_OF_MEMORY|"));
    }
    stage.world.settle();
    while stage.store.commit_one() {
        stage.world.settle();
    }
    assert_eq!(stage.ask(producers[0], "peek 1|put-job 0 0 9 1 key=k1|x|"), "NOT_FOUND|INSERTED 60001|");
    assert!(stage.store.batches().concat().iter().all(|row| !row.starts_with("put ") || row.starts_with("put 60001")));
}
