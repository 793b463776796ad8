//! The jobs service over a store with slow commits: which replies wait for a commit, their order, the visibility of
//! changes, and connections and upgrades meanwhile.

mod amounts;
mod clock;
mod conversations;
mod copying;
mod crashes;
mod daemon;
mod figures;
mod full;
mod held;
pub mod kept;
mod losing;
mod meddling;
mod memory;
mod random;
mod reading;
mod schedules;
mod shrinking;
mod speed;
mod store;
mod suite;

use crate::stored::{self, StoredSettings};
use poolcounter_core::time::Span;
use poolcounter_jobs::JobsSettings;
use poolcounter_jobs::options::Queue;
use poolcounter_pools as pools;
use poolcounter_service::container::AllSettings;
use poolcounter_service::contract::Info;
use poolcounter_testkit::world::World;
use store::SlowStore;

/// Pools are included to check that they are served meanwhile.
const SERVICES: &[&Info] = &[&pools::INFO, &stored::INFO];

/// A server with the jobs, and their store.
struct Stage {
    world: World,
    store: SlowStore,
}

impl Stage {
    /// Returns a stage with a store without a timeout.
    fn new() -> Stage {
        Stage::with(JobsSettings { store_timeout: Span::FOREVER, ..JobsSettings::default() })
    }

    fn with(settings: JobsSettings) -> Stage {
        let store = SlowStore::install();
        let settings = StoredSettings(JobsSettings { admin: true, ..settings });
        Stage { world: World::of(SERVICES, AllSettings::defaults(SERVICES).with(settings)), store }
    }

    /// Returns a stage in which new processes read the store after an upgrade, `page_jobs` jobs at a time.
    fn reading_after_upgrades(page_jobs: usize) -> Stage {
        let mut stage = Stage::new();
        stage.store.read_after_upgrades(page_jobs);
        stage.world.begin().expect("can be opened");
        stage
    }

    /// Hands over to another process, which has only the settings of the store until more is read.
    fn upgrade(&mut self) {
        self.world.upgrade();
        self.world.begin().expect("can be opened");
        self.world.settle();
    }

    fn connect(&mut self) -> usize {
        self.world.connect_to("jobs")
    }

    /// Sends a text of a client, and does everything that can be done at once.
    fn send(&mut self, client: usize, text: &str) {
        self.world.send(client, text.replace('|', "\r\n").as_bytes());
        self.world.settle();
    }

    /// Commits the batch that is under way, and notifies the service.
    fn commit(&mut self) {
        assert!(self.store.commit_one(), "nothing is under way");
        self.world.settle();
    }

    fn commit_all(&mut self) {
        while self.store.commit_one() {
            self.world.settle();
        }
    }

    /// Returns the output to a client since the last call, with a bar in place of each end of a line.
    fn heard(&mut self, client: usize) -> String {
        let text = String::from_utf8(self.world.take_received(client)).expect("the replies are text");
        text.replace("\r\n", "|")
    }

    /// Sends a text of a client, and returns the output once everything is committed.
    fn ask(&mut self, client: usize, text: &str) -> String {
        self.send(client, text);
        self.commit_all();
        self.heard(client)
    }
}

#[test]
fn replies_that_promise_something_wait_for_their_commit_and_no_others_do() {
    for row in include_str!("replies.txt").lines().filter(|line| !line.starts_with('#')) {
        let waits = row.contains(" => ");
        let (asked, reply) = row.split_once(if waits { " => " } else { " ->" }).expect("a row has a reply");
        let (before, request) = asked.split_once(" // ").unwrap_or(("", asked));
        let reply = reply.trim_start().replace("\\n", "\n");
        let mut stage = Stage::new();
        let client = stage.connect();
        for line in lines_of(before) {
            stage.ask(client, &line);
        }
        stage.send(client, request);
        let at_once = stage.heard(client);
        assert_eq!(at_once, if waits { "" } else { &reply }, "{row}");
        stage.commit_all();
        assert_eq!(stage.heard(client), if waits { &reply } else { "" }, "{row}");
    }
}

/// Splits a text into requests, each with its body.
fn lines_of(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for piece in text.split_inclusive('|') {
        match lines.last_mut() {
            Some(last) if last.starts_with("put") && last.matches('|').count() == 1 => last.push_str(piece),
            _ => lines.push(piece.into()),
        }
    }
    lines
}

#[test]
fn a_put_and_a_delete_in_one_batch_cancel_out() {
    let mut stage = Stage::new();
    let [client, other] = [stage.connect(), stage.connect()];
    assert_eq!(stage.ask(client, "put 0 0 9 1|a|"), "INSERTED 1|");
    stage.send(client, "put-job 0 0 9 1 key=k root=S root-ts=1|b|");
    stage.send(client, "put-job 0 0 9 1 key=l root=S root-ts=1|c|put-job 0 0 9 1 key=l root=S root-ts=2|d|");
    stage.send(other, "delete 1|");
    stage.commit_all();
    assert_eq!(stage.heard(client), "INSERTED 2|INSERTED 3|INSERTED 4|");
    assert_eq!(stage.heard(other), "DELETED|");
    let batches = stage.store.batches();
    let changes = |batch: usize, word: &str| batches[batch].iter().filter(|change| change.starts_with(word)).count();
    assert_eq!((changes(2, "put 3"), changes(2, "put 4"), changes(2, "delete 1")), (0, 1, 1), "{batches:?}");
}

/// Requests that see a job of their own connection, and the reply to each once that is committed.
const SEEN: &[(&str, &str)] = &[
    ("peek 1|", "FOUND 1 1|a|"),
    ("peek-ready|", "FOUND 1 1|a|"),
    ("peek-delayed|", "FOUND 2 1|b|"),
    ("reserve|", "RESERVED 1 1|a|"),
    ("reserve-with-timeout 0|", "RESERVED 1 1|a|"),
    ("reserve-many 2 0|", "RESERVED 1 1|a|END|"),
    ("reserve-job 2|", "RESERVED 2 1|b|"),
    ("delete 2|", "DELETED|"),
    ("kick 9|", "KICKED 1|"),
    ("kick-job 2|", "KICKED|"),
    ("kick-all default|", "KICKED 1|"),
    ("move 2 t|", "MOVED 1|"),
    ("move default t|", "MOVED 2|"),
    ("set-job 2 ttr=9|", "SET|"),
    ("clear default|", "CLEARED 2|"),
];

#[test]
fn own_job_that_is_not_committed_is_waited_for() {
    for (request, reply) in SEEN {
        let mut stage = Stage::new();
        let [own, other] = [stage.connect(), stage.connect()];
        stage.send(own, &format!("put 0 0 9 1|a|put 0 9 9 1|b|{request}list-tube-used|"));
        assert_eq!(stage.ask(other, "use t|"), "USING t|", "{request}: nobody else waits");
        assert_eq!(stage.heard(own), format!("INSERTED 1|INSERTED 2|{reply}USING default|"), "{request}");
    }
    let mut stage = Stage::new();
    let client = stage.connect();
    stage.send(client, "put 0 9 9 1|a|stats-job 1|stats-tube default|list-jobs default delayed 9|summary tube|stats|");
    stage.commit();
    let heard = stage.heard(client);
    let lines = |line: &str| heard.split('|').flat_map(|text| text.lines()).filter(|other| *other == line).count();
    assert_eq!((lines("state: delayed"), lines("current-jobs-delayed: 1"), lines("- id: 1")), (1, 2, 1), "{heard}");
}

/// Clients of the jobs wait for an upgrade that waits for a commit, and those of the pools do not wait.
#[test]
fn only_the_jobs_wait_while_an_upgrade_waits_for_a_commit() {
    let mut stage = Stage::new();
    let (one, two, pools) = (stage.connect(), stage.connect(), stage.world.connect_to("pools"));
    assert_eq!(stage.ask(two, "put 0 0 1 1|a|reserve|"), "INSERTED 1|RESERVED 1 1|a|");
    stage.send(one, "put 0 0 9 1|b|");
    assert!(!stage.world.come_to_rest());
    stage.send(one, "list-tube-used|");
    stage.send(two, "put 0 0 9 1|c|delete 1|");
    stage.world.send(pools, b"ACQ4ME k 1 9 1\n");
    // The TTR of job 1 ends, too.
    stage.world.advance(Span::from_secs(2));
    assert_eq!(stage.world.take_received(pools), b"LOCKED\n");
    assert_eq!((stage.heard(one), stage.heard(two)), (String::new(), String::new()));
    assert!(!stage.world.come_to_rest());
    stage.commit();
    assert_eq!((stage.heard(one), stage.heard(two)), ("INSERTED 2|".into(), String::new()));
    assert!(stage.world.come_to_rest());
    assert!(!stage.store.commit_one(), "nothing was handed to the store");
    stage.world.upgrade();
    stage.world.settle();
    stage.commit_all();
    assert_eq!((stage.heard(one), stage.heard(two)), ("USING default|".into(), "INSERTED 3|DELETED|".into()));
}

/// Beyond the bound, connections that send changes are not read; queries are served, and nothing is lost.
#[test]
fn changes_beyond_the_queue_of_the_store_wait() {
    let queue = Queue { changes: 10, bytes: 1 << 20 };
    let mut stage = Stage::with(JobsSettings { queue, ..JobsSettings::default() });
    let [puts, asks, lost, ends] = [stage.connect(), stage.connect(), stage.connect(), stage.connect()];
    stage.ask(asks, "put 0 0 999 1|z|");
    stage.send(puts, &"put 0 0 999 1|a|".repeat(30));
    stage.send(lost, "put 0 0 999 1|b|");
    stage.send(ends, "put 0 0 999 1|c|");
    stage.world.finish(ends);
    stage.send(asks, "stats-job 1|reserve|peek 1|touch 1|list-tube-used|");
    assert!(stage.heard(asks).ends_with("RESERVED 1 1|z|FOUND 1 1|z|TOUCHED|USING default|"));
    stage.world.reset(lost);
    stage.world.settle();
    assert!(stage.world.is_closed(lost));
    stage.send(asks, "delete 1|");
    assert_eq!((stage.heard(puts), stage.heard(asks)), (String::new(), String::new()));
    let sizes = |stage: &Stage| stage.store.batches().iter().map(Vec::len).collect::<Vec<_>>();
    stage.commit_all();
    let inserted = |text: &str| text.matches("INSERTED").count();
    assert_eq!((inserted(&stage.heard(puts)), inserted(&stage.heard(ends))), (30, 1));
    assert_eq!(stage.heard(asks), "DELETED|");
    assert!(stage.world.is_closed(ends));
    assert!(sizes(&stage).iter().all(|size| *size <= 15), "{:?}", sizes(&stage));
    // A long command waits, too, and completes.
    stage.ask(puts, "clear default|");
    assert_eq!(stage.ask(asks, "peek-ready|"), "NOT_FOUND|");
}

/// The store fails with so many waiting changes that other connections are not read: each request is answered when it
/// has waited long enough.
#[test]
fn requests_held_back_while_the_store_fails_are_answered_in_time() {
    let queue = Queue { changes: 10, bytes: 1 << 20 };
    let mut stage = Stage::with(JobsSettings { queue, store_timeout: Span::from_secs(3), ..JobsSettings::default() });
    let [many, one, holder, asks, late] = std::array::from_fn(|_| stage.connect());
    for _ in 0..300 {
        stage.ask(many, "put 0 0 999 1|a|");
    }
    stage.ask(holder, "reserve-job 290|");
    stage.ask(holder, "reserve-job 291|bury 291 0|");
    stage.heard(holder);
    stage.send(many, &(1..=200).map(|id| format!("delete {id}|")).collect::<String>());
    stage.store.fail(true);
    stage.world.advance(Span::from_millis(500));
    stage.send(one, "delete 250|kick 5|delete 251|");
    stage.send(holder, "fail 290 0 0 1|x|bury 290 0|");
    stage.send(asks, "reserve-job 291|peek 292|reserve|touch 291|reserve-many 2 0|stats-job 1|");
    let heard = stage.heard(asks);
    assert!(heard.starts_with("RESERVED 291 1|a|FOUND 292 1|a|RESERVED ") && heard.contains("TOUCHED|"), "{heard}");
    stage.world.advance(Span::from_millis(1_500));
    stage.send(late, "delete 252|put 0 0 9 1|z|");
    assert_eq!((stage.heard(many), stage.heard(one), stage.heard(holder)), Default::default());
    stage.world.advance(Span::from_millis(2_600));
    assert_eq!(stage.heard(many), "INTERNAL_ERROR|".repeat(200));
    assert_eq!(stage.heard(one), "INTERNAL_ERROR|".repeat(3));
    assert_eq!(stage.heard(holder), "INTERNAL_ERROR|".repeat(2));
    assert_eq!(stage.heard(late), "");
    stage.world.advance(Span::from_millis(1_600));
    assert_eq!(stage.heard(late), "INTERNAL_ERROR|OUT_OF_MEMORY|");
    // A new request waits again, and requests with unknown outcome are done or not.
    stage.send(late, "delete 252|");
    assert_eq!(stage.heard(late), "");
    stage.store.fail(false);
    stage.commit_all();
    assert_eq!(stage.heard(late), "DELETED|");
    assert_eq!(stage.ask(one, "delete 250|delete 251|peek 1|"), "DELETED|DELETED|NOT_FOUND|");
}

/// A command that goes through many jobs waits for room, too.
#[test]
fn a_long_command_is_answered_in_time_while_the_store_fails() {
    let queue = Queue { changes: 10, bytes: 1 << 20 };
    let mut stage = Stage::with(JobsSettings { queue, store_timeout: Span::from_secs(3), ..JobsSettings::default() });
    let client = stage.connect();
    for _ in 0..2500 {
        stage.send(client, "put 0 0 999 1|a|");
        stage.commit_all();
    }
    stage.heard(client);
    stage.send(client, "clear default|list-tube-used|");
    stage.store.fail(true);
    stage.world.advance(Span::from_millis(2_900));
    assert_eq!(stage.heard(client), "");
    stage.world.advance(Span::from_millis(1_200));
    assert_eq!(stage.heard(client), "INTERNAL_ERROR|USING default|");
    stage.store.fail(false);
    for _ in 0..20 {
        stage.commit_all();
        stage.world.advance(Span::from_secs(1));
    }
    assert_eq!(stage.ask(client, "peek-ready|"), "NOT_FOUND|", "it has come to its end");
}

/// During a commit of half a minute that fails at last, locks and all requests without a promise are as quick as ever.
#[test]
fn a_slow_commit_delays_no_other_client() {
    let mut stage = Stage::new();
    let [puts, runs, locks] = [stage.connect(), stage.connect(), stage.world.connect()];
    stage.ask(puts, &"put 0 0 99 1|a|".repeat(100));
    stage.send(puts, "put 0 0 9 1|b|");
    for second in 0..30 {
        stage.store.fail(second > 20);
        stage.world.advance(Span::from_secs(1));
        stage.send(runs, "reserve|");
        assert_eq!(stage.heard(runs), format!("RESERVED {} 1|a|", second + 1));
        stage.world.send(locks, b"ACQ4ME k 1 5 5\nRELEASE\n");
        stage.world.settle();
        assert_eq!(stage.heard(locks), "LOCKED\nRELEASED\n");
    }
    assert_eq!(stage.heard(puts), "");
    stage.store.fail(false);
    stage.commit_all();
    assert_eq!(stage.heard(puts), "INSERTED 101|");
}

/// Lets time pass, with a look each second, and returns the names and sentences of the conditions of the jobs that hold.
fn conditions_after(seconds: u64, stage: &mut Stage) -> Vec<(&'static str, String)> {
    for _ in 0..seconds {
        stage.world.advance(Span::from_secs(1));
        stage.world.tick();
    }
    let lines = stage.world.health().into_iter().filter(|line| line.title == stored::INFO.title);
    let held = lines.flat_map(|line| line.conditions).filter(|on| on.until.is_none());
    held.map(|on| (on.condition.info.name, on.condition.sentence)).collect()
}

/// A request that hangs fails later than the lease ends.
#[test]
fn unconfirmed_lease_is_a_condition() {
    let mut stage = Stage::new();
    let client = stage.connect();
    stage.ask(client, "put 0 0 99 1|a|");
    stage.store.lapse(true);
    let on = conditions_after(12, &mut stage);
    assert!(on.len() == 1 && on[0].0 == "not kept", "{on:?}");
    assert!(on[0].1.starts_with("jobs are not taken: the database does not answer, for "), "{on:?}");
    stage.store.lapse(false);
    assert_eq!(conditions_after(2, &mut stage), []);
}

/// Jobs that were buried before are the baseline, and the first failures of the new process count.
#[test]
fn buried_jobs_count_from_the_end_of_the_reading() {
    let mut stage = Stage::reading_after_upgrades(4);
    let client = stage.connect();
    stage.ask(client, &"put-job 0 0 99 1 tube=a/old|x|put-job 0 0 99 1 tube=a/new|y|".repeat(10));
    stage.ask(client, "watch a/old|");
    stage.ask(client, &"reserve|".repeat(10));
    (0..10).for_each(|n| _ = stage.ask(client, &format!("bury {} 0|", 2 * n + 1)));
    stage.upgrade();
    while stage.store.has_pages() {
        stage.store.read_one();
        stage.world.settle();
    }
    stage.ask(client, "watch a/new|");
    stage.ask(client, &"reserve|".repeat(10));
    (0..10).for_each(|n| _ = stage.ask(client, &format!("bury {} 0|", 2 * n + 2)));
    let on = conditions_after(15, &mut stage);
    let buried: Vec<&String> = on.iter().filter(|on| on.0 == "buried").map(|on| &on.1).collect();
    assert!(buried.len() == 1 && buried[0].starts_with("new: 10 buried, 10 in the last "), "{buried:?}");
}
