//! Replies of the members service that wait for a ledger, which commits and fails when the test says so.

use poolcounter_core::time::Span;
use poolcounter_members::ledger::{Change, Event, Ledger, Row};
use poolcounter_members::{self as members, Members, MembersSettings};
use poolcounter_service::container::AllSettings;
use poolcounter_service::contract::{Info, Service, Wake};
use poolcounter_service::options::Opt;
use poolcounter_service::settings::{self, Configure};
use poolcounter_testkit::world::World;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

thread_local! {
    /// Ledger of the services that are made on this thread: an entry of the registry has no room for one.
    static CURRENT: RefCell<Paper> = RefCell::default();
}

/// Entry of the registry: the members, with this ledger.
static INFO: Info = Info { settings: settings::defaults::<PaperSettings>, ..members::INFO };

#[derive(Clone, PartialEq, Debug, Default)]
struct PaperSettings;

impl Configure for PaperSettings {
    const OPTIONS: &'static [Opt<Self>] = &[];

    fn open(&self) -> Box<dyn Service> {
        let store = members::StoreKind::Memory;
        let settings = MembersSettings { admin: Some(true), store, ..MembersSettings::default() };
        Box::new(Members::with_ledger(settings, Box::new(CURRENT.with_borrow(Clone::clone))))
    }
}

/// Ledger that outlives the servers of a test.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Desk>>);

#[derive(Default)]
struct Desk {
    wake: Option<Wake>,
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Writes that are not durable, each with true if it replaces all rows.
    pending: VecDeque<(bool, Vec<Change>)>,
    commits: u64,
    news: VecDeque<Event>,
}

impl Paper {
    /// Returns a new ledger, which services that are made on this thread from now on use.
    fn install() -> Paper {
        let paper = Paper::default();
        CURRENT.set(paper.clone());
        paper
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.0.lock().expect("no test panics while it holds it")
    }

    fn tell(&self, news: Event) {
        let mut desk = self.desk();
        desk.news.push_back(news);
        let wake = desk.wake.clone();
        drop(desk);
        wake.into_iter().for_each(|wake| wake.wake());
    }

    /// Makes every write durable, and returns the number of writes.
    fn commit(&self) -> usize {
        let mut desk = self.desk();
        let pending = std::mem::take(&mut desk.pending);
        for (replaces, changes) in &pending {
            if *replaces {
                desk.rows.clear();
            }
            for Change { key, value } in changes {
                match value {
                    Some(value) => _ = desk.rows.insert(key.clone(), value.clone()),
                    None => _ = desk.rows.remove(key),
                }
            }
        }
        let commits = desk.commits;
        drop(desk);
        self.tell(Event::Committed(commits));
        pending.len()
    }

    /// Tells a process that has opened it all rows.
    fn open(&self) {
        let rows = self.desk().rows.clone().into_iter().collect();
        self.tell(Event::Rows(rows));
        self.tell(Event::Opened);
    }

    fn add(&self, replaces: bool, changes: Vec<Change>) -> u64 {
        let mut desk = self.desk();
        desk.pending.push_back((replaces, changes));
        desk.commits += 1;
        desk.commits
    }
}

impl Ledger for Paper {
    fn attach(&mut self, wake: Wake) {
        self.desk().wake = Some(wake);
    }

    fn place(&self) -> String {
        "paper".into()
    }

    fn write(&mut self, changes: Vec<Change>) -> u64 {
        self.add(false, changes)
    }

    fn replace(&mut self, rows: Vec<Row>) -> u64 {
        self.add(true, rows.into_iter().map(|(key, value)| Change { key, value: Some(value) }).collect())
    }

    fn next_event(&mut self) -> Option<Event> {
        self.desk().news.pop_front()
    }

    fn end(&mut self) {}
}

/// Returns a server that has read an empty ledger, and two clients. A pool of one fixed member is kept.
fn opened() -> (Paper, World, usize, usize) {
    let paper = Paper::install();
    let mut world = World::of(&[&INFO], AllSettings::defaults(&[&INFO]));
    world.begin().expect("it begins");
    let (one, other) = (world.connect_to("members"), world.connect_to("members"));
    paper.open();
    world.send(one, b"POOL ci 0 3 on_loss=ok\nADD ci a1\n");
    world.settle();
    paper.commit();
    world.settle();
    assert_eq!(world.take_received(one), b"OK\nOK\n");
    (paper, world, one, other)
}

/// Sends lines, and returns what comes before any commit.
fn ask(world: &mut World, client: usize, lines: &str) -> String {
    world.send(client, lines.as_bytes());
    world.settle();
    heard(world, client)
}

fn heard(world: &mut World, client: usize) -> String {
    world.settle();
    String::from_utf8(world.take_received(client)).expect("the names are text")
}

#[test]
fn fixed_member_is_given_out_once_that_is_durable() {
    let (paper, mut world, one, other) = opened();
    assert_eq!(ask(&mut world, one, "TAKE ci\n"), "");
    assert_eq!(ask(&mut world, other, "TAKE ci\n"), "NO_MEMBERS at_capacity\n");
    assert_eq!(paper.commit(), 1, "one write for the take");
    let lease = heard(&mut world, one);
    let lease = lease.split(' ').nth(1).expect("the number of the lease");
    assert_eq!(ask(&mut world, one, &format!("RETURN {lease}\nUTILIZATION ci\n")), "", "replies keep their order");
    paper.commit();
    assert!(heard(&mut world, one).starts_with("RETURNED\nmax 3 in_use 0 free 1 "));
}

#[test]
fn members_of_providers_without_a_token_wait_for_nothing() {
    let (paper, mut world, one, other) = opened();
    ask(&mut world, other, "POOL db 0 2\nPROVIDE db\nOFFER db m1\nOFFER db m2\n");
    paper.commit();
    heard(&mut world, other);
    let taken = ask(&mut world, one, "TAKE db\n");
    assert!(taken.starts_with("MEMBER "), "{taken}");
    let lease = taken.split(' ').nth(1).expect("the number of the lease");
    assert_eq!(ask(&mut world, one, &format!("RETURN {lease}\n")), "RETURNED\n");
    assert_eq!(paper.commit(), 0, "nothing is kept");
    assert_eq!(ask(&mut world, one, "TAKE db lease=60\n"), "");
    assert_eq!(paper.commit(), 1);
    assert!(heard(&mut world, one).contains(" token="));
}

#[test]
fn nothing_that_cannot_be_kept_is_given_out() {
    let (paper, mut world, one, other) = opened();
    ask(&mut world, other, "POOL db 0 2\nPROVIDE db\nOFFER db m1\n");
    paper.commit();
    heard(&mut world, other);
    assert_eq!(ask(&mut world, one, "TAKE ci\n"), "");
    paper.tell(Event::Failing("the disk is full".into()));
    assert!(heard(&mut world, one).starts_with("ERROR NOT_KEPT "), "its reply cannot be durable");
    assert!(ask(&mut world, one, "TAKE ci 5\n").starts_with("ERROR NOT_KEPT "));
    assert!(ask(&mut world, one, "TAKE db lease=5\n").starts_with("ERROR NOT_KEPT "));
    assert!(ask(&mut world, one, "TAKE db resume\n").starts_with("ERROR NOT_KEPT "));
    assert!(ask(&mut world, one, "TAKE db\n").starts_with("MEMBER "), "it is not kept");
    world.advance(Span::from_secs(120));
    let health = world.health();
    let mut conditions = health.iter().flat_map(|line| &line.conditions);
    assert!(conditions.any(|on| on.condition.sentence.contains("the disk is full")));
    paper.tell(Event::Works);
    paper.commit();
    assert_eq!(ask(&mut world, other, "TAKE ci\n"), "");
    paper.commit();
    assert!(heard(&mut world, other).starts_with("MEMBER "), "its member is free again");
}

#[test]
fn waiter_is_served_once_the_ledger_works() {
    let (paper, mut world, one, other) = opened();
    ask(&mut world, one, "TAKE ci\n");
    paper.commit();
    let lease = heard(&mut world, one).split(' ').nth(1).map(String::from).expect("the number of the lease");
    assert_eq!(ask(&mut world, other, "TAKE ci 600\n"), "");
    paper.tell(Event::Failing("the disk is full".into()));
    assert_eq!(ask(&mut world, one, &format!("RETURN {lease}\n")), "RETURNED\n", "from memory");
    assert_eq!(heard(&mut world, other), "");
    paper.tell(Event::Works);
    world.settle();
    paper.commit();
    assert!(heard(&mut world, other).starts_with("MEMBER "));
}

#[test]
fn nobody_is_served_before_the_rows_are_read() {
    let (paper, mut world, one, _) = opened();
    ask(&mut world, one, "TAKE ci resume\n");
    paper.commit();
    let taken = heard(&mut world, one);
    let token = taken.trim_end().split_once("token=").expect("it has a token").1;
    drop(world);
    let mut world = World::of(&[&INFO], AllSettings::defaults(&[&INFO]));
    world.begin().expect("it begins");
    let one = world.connect_to("members");
    assert_eq!(ask(&mut world, one, &format!("TAKE ci\nRENEW {token}\n")), "");
    paper.open();
    assert_eq!(heard(&mut world, one), "NO_MEMBERS at_capacity\n");
    paper.commit();
    assert_eq!(heard(&mut world, one), "RENEWED\n");
    world.advance(Span::from_secs(61));
    assert!(ask(&mut world, one, "MEMBERS ci\n").starts_with("a1 in_use "));
}

#[test]
fn what_cannot_be_read_stays_closed() {
    let paper = Paper::install();
    let mut world = World::of(&[&INFO], AllSettings::defaults(&[&INFO]));
    world.begin().expect("it begins");
    let one = world.connect_to("members");
    paper.tell(Event::Unreadable("it is a directory".into()));
    assert_eq!(ask(&mut world, one, "POOL ci 0 1\nADD ci a1\n"), "OK\nOK\n");
    assert!(ask(&mut world, one, "TAKE ci\n").starts_with("ERROR NOT_KEPT the file of the members cannot be read"));
    world.upgrade();
    world.begin().expect("it begins");
    assert!(ask(&mut world, one, "TAKE ci\n").starts_with("ERROR NOT_KEPT "), "an upgrade writes nothing over it");
    assert_eq!(paper.commit(), 0);
}

#[test]
fn lost_ledger_gets_everything_again() {
    let (paper, mut world, one, _) = opened();
    ask(&mut world, one, "TAKE ci lease=60\n");
    paper.commit();
    world.settle();
    let before = paper.desk().rows.clone();
    paper.desk().rows.clear();
    paper.tell(Event::Rewrite);
    world.settle();
    assert_eq!(paper.commit(), 1);
    let number = |rows: &BTreeMap<Vec<u8>, Vec<u8>>| rows.keys().cloned().collect::<Vec<_>>();
    assert_eq!(number(&paper.desk().rows), number(&before));
    world.settle();
}

#[test]
fn successor_writes_everything_anew() {
    let (paper, mut world, one, _) = opened();
    ask(&mut world, one, "TAKE ci lease=60\n");
    paper.commit();
    heard(&mut world, one);
    let before = paper.desk().rows.len();
    world.upgrade();
    world.begin().expect("it begins");
    assert_eq!(ask(&mut world, one, "HOLD ci a1 60\n"), "");
    paper.desk().rows.clear();
    assert_eq!(paper.commit(), 2);
    assert_eq!(heard(&mut world, one), "OK\n");
    assert_eq!(paper.desk().rows.len(), before);
}

#[test]
fn upgrade_waits_for_a_commit_under_way() {
    let (paper, mut world, one, _) = opened();
    assert_eq!(ask(&mut world, one, "TAKE ci\n"), "");
    assert!(!world.come_to_rest());
    assert_eq!(ask(&mut world, one, "UTILIZATION ci\n"), "", "nobody is served meanwhile");
    paper.commit();
    world.settle();
    assert!(world.come_to_rest());
    world.go_on();
    assert!(heard(&mut world, one).contains("\nmax 3 in_use 1 "));
}
