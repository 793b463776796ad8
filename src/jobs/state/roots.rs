//! Root jobs: the newest timestamp of each signature in a tube, kept for 28 days from its last change.

use super::commits::{Change, Commit};
use super::put::micros;
use super::tube::TubeId;
use super::{Reply, State, Step, Timer, TubeName};
use poolcounter_core::id::{ConnId, Id, id};
use poolcounter_core::list::{Links, List};
use poolcounter_core::names::{Hash, Hashing, Names};
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::{TimerId, Timers};
use slab::Slab;

id! {
    /// A root job.
    RootId
}

/// How long a root job is known: as long as MediaWiki knows it.
const KEPT: Span = Span::from_secs(28 * 24 * 3600);
/// How long the rates of a tube that is none any more are kept: the longest window.
const HIDDEN_KEPT: Span = Span::from_secs(15 * 60);

/// What a root job takes beside its names: its entry, its place in the index, and its links.
const ROOT_BYTES: usize = 120;

struct Root {
    tube: Box<[u8]>,
    signature: Box<[u8]>,
    newest: u64,
    /// When it changed last, in microseconds since the start; before it, if that was in an earlier process.
    changed: i64,
    commit: Commit,
}

/// All root jobs, those that changed last at the end.
#[derive(Default)]
pub(super) struct Roots {
    roots: Slab<Root>,
    names: Names<RootId>,
    links: Links,
    by_change: List<RootId>,
    bytes: usize,
}

impl Roots {
    pub fn len(&self) -> usize {
        self.roots.len()
    }

    /// Returns the bytes that all root jobs take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn find(&self, tube: &[u8], signature: &[u8]) -> Option<RootId> {
        let is_it = |id: RootId| {
            let root = &self.roots[id.index()];
            *root.tube == *tube && *root.signature == *signature
        };
        self.names.find(hash_of(&self.names.hashing(), tube, signature), is_it)
    }

    /// Returns the newest timestamp of a root job, and the commit that has it.
    pub fn newest(&self, tube: &[u8], signature: &[u8]) -> Option<(u64, Commit)> {
        let root = &self.roots[self.find(tube, signature)?.index()];
        Some((root.newest, root.commit))
    }

    /// Sets the newest timestamp of a root job.
    pub fn set(&mut self, tube: &[u8], signature: &[u8], newest: u64, changed: i64, commit: Commit) -> RootId {
        if let Some(id) = self.find(tube, signature) {
            let root = &mut self.roots[id.index()];
            (root.newest, root.changed, root.commit) = (newest, changed, commit);
            self.by_change.remove(&mut self.links, id);
            self.by_change.push_back(&mut self.links, id);
            return id;
        }
        self.bytes += ROOT_BYTES + tube.len() + signature.len();
        let root = Root { tube: tube.into(), signature: signature.into(), newest, changed, commit };
        let id = RootId::from_index(self.roots.insert(root));
        let hashing = self.names.hashing();
        let Roots { names, roots, .. } = self;
        names.insert(hash_of(&hashing, tube, signature), id, |id| {
            hash_of(&hashing, &roots[id.index()].tube, &roots[id.index()].signature)
        });
        self.by_change.push_back(&mut self.links, id);
        id
    }

    /// Returns a root job as the store has it.
    pub fn record(&self, id: RootId) -> Option<(&[u8], &[u8], u64, i64)> {
        let root = self.roots.get(id.index())?;
        Some((&root.tube, &root.signature, root.newest, root.changed))
    }

    /// Returns every root job, the one that changed first first.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], u64, i64)> {
        self.by_change.iter(&self.links).filter_map(|id| self.record(id))
    }

    /// Returns the root jobs from one place of the table on, with their places, in no order.
    pub fn iter_from(&self, place: usize) -> impl Iterator<Item = (usize, RootId)> {
        let places = (place..self.roots.capacity()).filter(|place| self.roots.contains(*place));
        places.map(|place| (place, RootId::from_index(place)))
    }

    /// Returns when the root job is to be forgotten that changed first.
    fn first_end(&self) -> Option<Time> {
        let changed = self.roots[self.by_change.front()?.index()].changed;
        let end = changed.saturating_add_unsigned(KEPT.as_micros());
        Some(Time::from_micros(u64::try_from(end).unwrap_or(0)))
    }

    fn forget_oldest(&mut self) -> Option<Root> {
        let id = self.by_change.pop_front(&mut self.links)?;
        let root = self.roots.remove(id.index());
        self.bytes -= ROOT_BYTES + root.tube.len() + root.signature.len();
        self.names.remove(hash_of(&self.names.hashing(), &root.tube, &root.signature), id);
        Some(root)
    }

    pub fn check(&self) {
        assert_eq!(self.roots.len(), self.names.len(), "each root has a name");
        assert_eq!(self.roots.len(), self.by_change.len() as usize, "each root is in the order of changes");
        let changes: Vec<i64> = self.iter().map(|(_, _, _, changed)| changed).collect();
        assert!(changes.is_sorted(), "roots are in the order of their changes");
    }
}

fn hash_of(hashing: &Hashing, tube: &[u8], signature: &[u8]) -> Hash {
    Hash(hashing.hash(tube).0 ^ hashing.hash(signature).0.rotate_left(1))
}

impl State {
    /// `root`: registers a root job; the newest timestamp wins.
    pub fn root(
        &mut self,
        conn: ConnId,
        tube: TubeName<'_>,
        signature: &[u8],
        timestamp: u64,
        step: &mut Step<'_, '_>,
    ) {
        let known = self.roots.newest(tube.bytes(), signature);
        let (newest, after) = match known {
            Some((newest, commit)) if newest >= timestamp => (newest, self.commit_of(commit)),
            None if self.used_memory() >= self.bounds.max_memory => return step.tell(conn, Reply::OutOfMemory),
            _ => {
                self.set_root(tube.bytes(), signature, timestamp, step);
                (timestamp, self.this_commit())
            }
        };
        step.tell_after(conn, Reply::Root(newest), after);
    }

    /// A leaf that is newer than its root job raises it.
    pub(super) fn raise_root(&mut self, tube: TubeId, signature: &[u8], timestamp: u64, step: &mut Step<'_, '_>) {
        let name = self.tubes[tube.index()].name.clone();
        if self.roots.newest(&name, signature).is_none_or(|(newest, _)| newest < timestamp) {
            self.set_root(&name, signature, timestamp, step);
        }
    }

    fn set_root(&mut self, tube: &[u8], signature: &[u8], timestamp: u64, step: &mut Step<'_, '_>) {
        let commit = self.current_commit();
        let root = self.roots.set(tube, signature, timestamp, micros(step.now), commit);
        self.note_change(Change::Root(root));
        self.arm_forget(step.timers);
    }

    /// Keeps the timer at the first root job or hidden tube that is to be forgotten, or earlier.
    pub(super) fn arm_forget(&mut self, timers: &mut Timers<'_, Timer>) {
        let root = self.roots.first_end();
        let tube = self.hidden.first().map(|(since, _)| *since + HIDDEN_KEPT);
        let Some(next) = [root, tube].into_iter().flatten().min() else { return };
        if self.forget_timer.as_ref().is_some_and(|timer| timers.deadline(timer) <= next + Span::from_millis(1)) {
            return;
        }
        self.forget_timer.take().into_iter().for_each(|timer| timers.cancel(timer));
        self.forget_timer = Some(timers.arm(next, Timer::Forget));
    }

    /// Forgets root jobs that did not change for 28 days, and tubes that were none for a while.
    pub(super) fn forget(&mut self, step: &mut Step<'_, '_>) {
        self.forget_timer.take().into_iter().for_each(TimerId::fired);
        for _ in 0..super::SLICE {
            if self.roots.first_end().is_some_and(|end| end <= step.now) {
                let Root { tube, signature, .. } = self.roots.forget_oldest().expect("the oldest is there");
                self.note_change(Change::RootGone(tube, signature));
            } else if let Some((since, tube)) = self.hidden.first().copied()
                && since + HIDDEN_KEPT <= step.now
            {
                self.drop_tube(tube, step.timers);
            } else {
                return self.arm_forget(step.timers);
            }
        }
        self.forget_timer = Some(step.timers.arm(step.now + super::PAUSE_BETWEEN_SLICES, Timer::Forget));
    }
}
