//! Expected contents of a store, kept in the simplest way, and their comparison with those that the store visits.

use crate::jobs_store::store::plain;
use poolcounter_core::count::SmallCount;
use poolcounter_core::time::{Span, Time};
use poolcounter_jobs::state::{
    Backoff, Body, Commit, History, JobId, Limit, Origin, Paused, Record, Saved, Scope, Setting, SettingKind, Stored,
    Until, Value,
};
use poolcounter_jobs::store::{Jobs, Ownership, Store, Verdict};
use poolcounter_testkit::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

/// Time of day at the start.
pub const EPOCH: Span = Span::from_secs(1_788_177_600);
/// Longer than any commit takes.
const PATIENCE: Duration = Duration::from_secs(30);

const SIGNATURE: &[u8] = b"sig\xff";

/// Expected contents of a store.
#[derive(Clone, PartialEq, Debug)]
pub struct Kept {
    pub next_id: u64,
    pub batch: u64,
    /// Record of each job as written, and its body.
    jobs: BTreeMap<u64, (Vec<u8>, Vec<u8>)>,
    roots: BTreeMap<Vec<u8>, (u64, i64)>,
    settings: BTreeSet<String>,
}

/// Change of the expected contents.
pub enum Change {
    Put(u64, Vec<u8>),
    Delayed(u64, Time),
    Update(u64),
    Delete(u64),
    Root(Vec<u8>, u64),
    RootGone(Vec<u8>),
    /// Kind of the setting, and whether it is set.
    Setting(usize, bool),
    NextId(u64),
}

impl Default for Kept {
    fn default() -> Self {
        Kept { next_id: 1, batch: 0, jobs: BTreeMap::new(), roots: BTreeMap::new(), settings: BTreeSet::new() }
    }
}

impl Kept {
    /// Returns a job, and its body.
    pub fn job(&self, id: u64) -> (Record<'_>, &[u8]) {
        let (record, body) = &self.jobs[&id];
        (postcard::from_bytes(record).expect("was written so"), body)
    }

    /// Passes a change to the store, and notes it.
    pub fn add(&mut self, store: &mut dyn Store<Jobs>, change: Change) {
        match change {
            Change::Put(id, bytes) => self.put(store, plain(id), bytes),
            Change::Delayed(id, until) => {
                self.put(store, Record { delay: 85, delayed: Some(until), ..plain(id) }, b"late".to_vec());
            }
            Change::Update(id) => self.update(store, full(id)),
            Change::Delete(id) => {
                self.jobs.remove(&id);
                store.add(Stored::Delete(JobId(id)));
            }
            Change::Root(tube, newest) => {
                let changed = (newest % 1000) as i64 - 500;
                store.add(Stored::Root(&tube, SIGNATURE, newest, changed));
                self.roots.insert(tube, (newest, changed));
            }
            Change::RootGone(tube) => {
                store.add(Stored::RootGone(&tube, SIGNATURE));
                self.roots.remove(&tube);
            }
            Change::Setting(kind, is_set) => {
                let (set, gone) = setting_of(kind);
                self.settings.remove(&format!("{set:?}"));
                if is_set {
                    self.settings.insert(format!("{set:?}"));
                }
                store.add(Stored::Setting(if is_set { set } else { gone }));
            }
            Change::NextId(id) => {
                self.next_id = id;
                store.add(Stored::NextId(id));
            }
        }
    }

    fn put(&mut self, store: &mut dyn Store<Jobs>, record: Record<'_>, bytes: Vec<u8>) {
        self.jobs.insert(record.id.0, (postcard::to_allocvec(&record).expect("fits"), bytes.clone()));
        store.add(Stored::Put(record, &mut Body::Own(bytes.into())));
    }

    fn update(&mut self, store: &mut dyn Store<Jobs>, record: Record<'_>) {
        let Some((written, _)) = self.jobs.get_mut(&record.id.0) else { return };
        *written = postcard::to_allocvec(&record).expect("fits");
        store.add(Stored::Update(record));
    }

    /// Makes a random change.
    pub fn add_any(&mut self, store: &mut dyn Store<Jobs>, random: &mut Random, next: &mut u64) {
        let id = 1 + random.next() % *next;
        match random.below(10) {
            0..=4 => {
                let len = if random.once_in(20) { 10_000 } else { random.below(300) };
                let bytes = (0..len).map(|_| random.next() as u8).collect();
                self.add(store, Change::Put(*next, bytes));
                *next += 1;
                self.add(store, Change::NextId(*next));
            }
            5 => self.add(store, Change::Update(id)),
            6 | 7 => self.add(store, Change::Delete(id)),
            8 => {
                let tube = format!("t{}", random.below(4)).into_bytes();
                let change = if random.once_in(2) { Change::Root(tube, random.next()) } else { Change::RootGone(tube) };
                self.add(store, change);
            }
            _ => self.add(store, Change::Setting(random.below(5), random.once_in(2))),
        }
    }

    fn insert(&mut self, record: &Record<'_>, body: &[u8]) {
        let last = self.jobs.last_key_value().map_or(0, |(id, _)| *id);
        assert!(last < record.id.0, "jobs come in the order of their numbers");
        let written = postcard::to_allocvec(record).expect("fits");
        self.jobs.insert(record.id.0, (written, body.to_vec()));
    }
}

/// Returns a job with every property set.
fn full(id: u64) -> Record<'static> {
    Record {
        pri: u32::MAX,
        is_buried: true,
        reserves: SmallCount::MAX,
        history: History {
            timeouts: 1.into(),
            releases: 2.into(),
            buries: 3.into(),
            kicks: 4.into(),
            attempts: SmallCount::MAX,
        },
        key: b"key\xfe",
        until: Until::Deleted,
        root: Some((SIGNATURE, u64::MAX - 1)),
        group: b"db1",
        origin: Some(Origin { tube: b"a/b", attempts: 7, at: 1_000_000 }),
        error: b"it \0 failed",
        ..plain(id)
    }
}

fn setting_of(kind: usize) -> (Setting, Setting) {
    let limit = |most, scope| Value::Limit(Limit { most, per: None, scope });
    let until = Time::from_micros(123_456_789);
    let (kind, of, value) = match kind {
        0 => (SettingKind::Limit, &b"*/x"[..], limit(4, Scope::All)),
        1 => (SettingKind::GroupLimit, &b"db\xff"[..], limit(7, Scope::Ordered)),
        2 => {
            let backoff = Backoff { attempts: 5, first: 0.1, factor: 1.0 / 3.0, max: 1e9 };
            (SettingKind::Retry, &b"*"[..], Value::Retry(backoff))
        }
        3 => (SettingKind::DeadLetter, &b"a/*"[..], Value::Text(b"dead"[..].into())),
        _ => (SettingKind::Pause, &b"a"[..], Value::Pause(Paused { until, seconds: 9, ends_with_tube: false })),
    };
    let setting = |value| Setting { kind, of: of.into(), value };
    (setting(Some(value)), setting(None))
}

/// Returns the contents of a store.
pub fn load(store: &mut dyn Store<Jobs>, epoch: Span) -> Result<Kept, String> {
    let mut kept = Kept::default();
    let mut visit = |saved: Saved<'_>| {
        match saved {
            Saved::Meta { next_id, committed, .. } => (kept.next_id, kept.batch) = (next_id, committed.0),
            Saved::Setting(setting) => drop(kept.settings.insert(format!("{setting:?}"))),
            Saved::Root(tube, SIGNATURE, newest, changed) => drop(kept.roots.insert(tube.to_vec(), (newest, changed))),
            Saved::Job(record, body, None, None) => kept.insert(&record, body),
            other => panic!("{other:?} is not of a store"),
        }
        Ok(())
    };
    store.load(epoch)?;
    // A store that several daemons share reports whether it is free. PostgreSQL may end the session of the former owner
    // some time after that has gone.
    let deadline = Instant::now() + PATIENCE;
    while matches!(store.ownership(), Ownership::StandsBy | Ownership::Reads) && Instant::now() < deadline {
        match verdict_within(store, Duration::from_secs(2)) {
            Some(Verdict::Page(page)) => {
                assert!(page.share <= 100);
                while !store.visit_page(&mut visit)? {}
            }
            Some(Verdict::Damaged(sentence)) => return Err(sentence),
            None if store.is_busy() => {}
            other => {
                assert_eq!(other, None);
                break;
            }
        }
    }
    match store.ownership() {
        Ownership::Owns => settle(store),
        Ownership::Damaged => return Err(store.health().and_then(|health| health.fault).unwrap_or_default()),
        _ => {}
    }
    Ok(kept)
}

/// Waits for the next verdict of the store.
pub fn verdict_of(store: &mut dyn Store<Jobs>) -> Verdict {
    verdict_within(store, PATIENCE).expect("the store has something to say")
}

/// Waits for the next verdict of the store; None after `patience`.
pub fn verdict_within(store: &mut dyn Store<Jobs>, patience: Duration) -> Option<Verdict> {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        if let Some(verdict) = store.verdict() {
            return Some(verdict);
        }
        thread::sleep(Duration::from_micros(100));
    }
    None
}

/// Waits until the store has nothing under way, and checks that it has no verdict.
pub fn settle(store: &mut dyn Store<Jobs>) {
    let deadline = Instant::now() + PATIENCE;
    while store.is_busy() {
        assert_eq!(store.verdict(), None);
        assert!(Instant::now() < deadline, "the store is busy for ever");
        thread::sleep(Duration::from_micros(100));
    }
}

/// Commits the added changes, as the batch of this number, and waits for that.
pub fn commit(store: &mut dyn Store<Jobs>, kept: &mut Kept, batch: u64) {
    store.commit(Commit(batch));
    assert_eq!(verdict_of(store), Verdict::Committed(Commit(batch)));
    kept.batch = batch;
}
