//! Table of jobs: pages that are freed with their last job, an index by number, and one by key.

use super::JOB_BYTES;
use super::ids::{GroupId, TubeId};
use super::index::JobIndex;
use super::job::{Extra, History, Job, JobId, JobKey, JobPlacement, Origin, Until};
use poolcounter_core::names::{Hash, Hashing};
use poolcounter_core::{Id, SmallCount};
use poolcounter_protocol::jobs::values::Body;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

/// Number of jobs in a page: 18 KiB, so that few survivors of a flood do not keep much memory.
const PAGE: usize = 256;

struct JobPage {
    jobs: Box<[Option<Job>; PAGE]>,
    /// Encoded extras of its jobs, once one of them has some.
    extras: Option<Box<[Box<[u8]>; PAGE]>>,
    /// One bit for each slot with a job.
    used: [u64; PAGE / 64],
}

/// Every job.
#[derive(Default)]
pub(super) struct Jobs {
    pages: Vec<Option<JobPage>>,
    /// Pages that have room, or could be allocated.
    roomy: BTreeSet<u32>,
    pub len: usize,
    by_id: JobIndex,
    /// The job that was added or found last: a request needs it several times.
    recent: Cell<Option<(JobId, JobKey)>>,
    /// Greatest number of any job so far. Greater numbers are unused, which needs no look-up for jobs that a store
    /// gives in order.
    last: u64,
    /// The job with the lowest number among the jobs that hold a key in a tube.
    by_key: JobIndex,
    /// Further jobs that hold a key which a job in `by_key` holds, by the hash of the tube and the key: a job that is
    /// released holds its key again, though other jobs were put meanwhile. There may be very many with one key.
    further: BTreeSet<(u64, JobId)>,
    hashing: Hashing,
    pub bytes: usize,
}

impl Jobs {
    /// Returns true if there is no job, and no trace of one.
    pub fn is_empty(&self) -> bool {
        self.len == 0 && self.by_id.len() == 0 && self.by_key.len() + self.further.len() == 0 && self.bytes == 0
    }

    /// Returns the job with this number.
    pub fn find(&self, id: JobId) -> Option<JobKey> {
        if id.0 > self.last {
            return None;
        }
        if let Some((recent, key)) = self.recent.get()
            && recent == id
        {
            return Some(key);
        }
        let key = self.by_id.find(hash_of_id(id), |key| self[key].id == id)?;
        self.recent.set(Some((id, key)));
        Some(key)
    }

    /// Adds a job with a unique number, and its encoded [`Extra`].
    pub fn insert(&mut self, job: Job, extra: Box<[u8]>) -> JobKey {
        let page = self.roomy.first().copied().unwrap_or_else(|| {
            self.pages.push(None);
            self.roomy.insert(self.pages.len() as u32 - 1);
            self.pages.len() as u32 - 1
        });
        let entry = self.pages[page as usize].get_or_insert_with(JobPage::new);
        let slot = entry.vacant().expect("a page with room has a vacant place");
        entry.used[slot / 64] |= 1 << (slot % 64);
        let id = job.id;
        self.last = self.last.max(id.0);
        self.bytes += JOB_BYTES + job.body.bytes().len();
        entry.jobs[slot] = Some(job);
        if entry.vacant().is_none() {
            self.roomy.remove(&page);
        }
        self.len += 1;
        let key = JobKey::from_index(page as usize * PAGE + slot);
        let Jobs { by_id, pages, .. } = self;
        by_id.insert(hash_of_id(id), key, |key| hash_of_id(at(pages, key).id));
        self.recent.set(Some((id, key)));
        if !extra.is_empty() {
            self.set_extra(key, extra);
        }
        key
    }

    /// Removes a job, which must not hold its key any more.
    pub fn remove(&mut self, key: JobKey) -> Job {
        let (page, slot) = (key.index() / PAGE, key.index() % PAGE);
        let Jobs { by_id, pages, .. } = self;
        by_id.remove(hash_of_id(at(pages, key).id), key, |key| hash_of_id(at(pages, key).id));
        self.recent.set(None);
        if self[key].has_extra {
            self.set_extra(key, Box::default());
        }
        let entry = self.pages[page].as_mut().expect("a job's page is there");
        let was_full = entry.vacant().is_none();
        entry.used[slot / 64] &= !(1 << (slot % 64));
        let job = entry.jobs[slot].take().expect("a job is where its key says");
        if entry.used == [0; PAGE / 64] && page > 0 {
            self.pages[page] = None;
        }
        if was_full {
            self.roomy.insert(page as u32);
        }
        while self.pages.len() > 1 && self.pages.last().is_some_and(Option::is_none) {
            self.pages.pop();
            self.roomy.remove(&(self.pages.len() as u32));
        }
        self.len -= 1;
        self.bytes -= JOB_BYTES + job.body.bytes().len();
        job
    }

    /// Sets the body of a job.
    pub fn set_body(&mut self, key: JobKey, body: Body) {
        self.bytes += body.bytes().len();
        self.bytes -= std::mem::replace(&mut self[key].body, body).bytes().len();
    }

    /// Returns the values of a job beyond its fields.
    pub fn extra(&self, key: JobKey) -> Extra<'_> {
        Extra::decode(encoded(&self.pages, key))
    }

    /// Returns the key of a job; empty without one.
    pub fn key_of(&self, key: JobKey) -> &[u8] {
        key_of(&self.pages, key)
    }

    /// Returns the root job of a job, and the timestamp of that.
    pub fn root_of(&self, key: JobKey) -> Option<(&[u8], u64)> {
        if self[key].has_extra { self.extra(key).root } else { None }
    }

    /// Returns the group of a job.
    #[inline]
    pub fn group_of(&self, key: JobKey) -> Option<GroupId> {
        if self[key].has_extra { self.extra(key).group } else { None }
    }

    /// Returns whether a job has failed since it was put, kicked or moved: while it is delayed, it waits to be tried
    /// again.
    pub fn is_retried(&self, key: JobKey) -> bool {
        self[key].has_extra && self.extra(key).history.attempts > SmallCount::ZERO
    }

    /// Returns true while a job keeps other jobs with its key out of its tube.
    pub fn holds_key(&self, key: JobKey) -> bool {
        let job = &self[key];
        if !job.has_extra || job.place == JobPlacement::Nowhere {
            return false;
        }
        let extra = self.extra(key);
        let waits = matches!(job.place, JobPlacement::Pending | JobPlacement::Ready | JobPlacement::Delayed);
        !extra.key.is_empty() && (waits || extra.until == Until::Deleted)
    }

    /// Counts a change of a job. Attempts change in no delayed job.
    pub fn note(&mut self, key: JobKey, change: impl FnOnce(&mut History)) {
        let mut extra = self.extra(key);
        change(&mut extra.history);
        let bytes = extra.encode();
        self.set_extra(key, bytes);
    }

    /// Sets the text of the last failure of a job.
    pub fn set_error(&mut self, key: JobKey, error: &[u8]) {
        let bytes = Extra { error, ..self.extra(key) }.encode();
        self.set_extra(key, bytes);
    }

    /// Returns where a dead letter comes from.
    pub fn origin_of(&self, key: JobKey) -> Option<Origin<'_>> {
        if self[key].has_extra { self.extra(key).origin } else { None }
    }

    /// Sets where a dead letter comes from.
    pub fn set_origin(&mut self, key: JobKey, origin: Option<Origin<'_>>) {
        let bytes = Extra { origin, ..self.extra(key) }.encode();
        self.set_extra(key, bytes);
    }

    fn set_extra(&mut self, key: JobKey, extra: Box<[u8]>) {
        self[key].has_extra = !extra.is_empty();
        let page = self.pages[key.index() / PAGE].as_mut().expect("a job's page is there");
        let extras = page.extras.get_or_insert_with(|| Box::new(std::array::from_fn(|_| Box::default())));
        self.bytes += extra.len();
        self.bytes -= std::mem::replace(&mut extras[key.index() % PAGE], extra).len();
    }

    /// Returns the jobs that hold this key in this tube, the one with the lowest number first.
    pub fn holders_of(&self, tube: TubeId, name: &[u8]) -> impl Iterator<Item = JobKey> {
        let hash = hash_of_key(&self.hashing, tube, name);
        let is_named = move |key: &JobKey| self[*key].tube == tube && self.key_of(*key) == name;
        let first = self.by_key.find(hash, |key| is_named(&key));
        let further = first.map(|_| self.further_with(hash).filter(is_named));
        first.into_iter().chain(further.into_iter().flatten())
    }

    /// Returns the further jobs whose tube and key have this hash, the one with the lowest number first.
    fn further_with(&self, hash: Hash) -> impl Iterator<Item = JobKey> {
        let range = self.further.range((hash.0, JobId(0))..=(hash.0, JobId(u64::MAX)));
        range.map(|(_, id)| self.find(*id).expect("only jobs that there are hold keys"))
    }

    /// Makes the job hold its deduplication key, which keeps other jobs with the key out.
    pub fn hold_key(&mut self, key: JobKey) {
        let (tube, hash) = (self[key].tube, self.hash_of_own_key(key));
        let first = self.holders_of(tube, self.key_of(key)).next();
        match first {
            Some(first) if self[first].id < self[key].id => _ = self.further.insert((hash.0, self[key].id)),
            Some(first) => {
                self.further.insert((hash.0, self[first].id));
                self.remove_first(hash, first);
                self.insert_first(hash, key);
            }
            None => self.insert_first(hash, key),
        }
    }

    /// Releases the job's deduplication key.
    pub fn free_key(&mut self, key: JobKey) {
        let (tube, hash) = (self[key].tube, self.hash_of_own_key(key));
        if self.further.remove(&(hash.0, self[key].id)) {
            return;
        }
        let next = self.holders_of(tube, self.key_of(key)).nth(1);
        self.remove_first(hash, key);
        if let Some(next) = next {
            self.further.remove(&(hash.0, self[next].id));
            self.insert_first(hash, next);
        }
    }

    fn hash_of_own_key(&self, key: JobKey) -> Hash {
        hash_of_key(&self.hashing, self[key].tube, self.key_of(key))
    }

    fn insert_first(&mut self, hash: Hash, key: JobKey) {
        let Jobs { by_key, pages, hashing, .. } = self;
        by_key.insert(hash, key, |key| hash_of_key(hashing, at(pages, key).tube, key_of(pages, key)));
    }

    fn remove_first(&mut self, hash: Hash, key: JobKey) {
        let Jobs { by_key, pages, hashing, .. } = self;
        by_key.remove(hash, key, |key| hash_of_key(hashing, at(pages, key).tube, key_of(pages, key)));
    }

    /// Compares the tables with each other.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self) {
        assert_eq!(self.len, self.iter().count(), "jobs are counted");
        let bytes_of =
            |(key, job): (JobKey, &Job)| JOB_BYTES + job.body.bytes().len() + encoded(&self.pages, key).len();
        assert_eq!(self.bytes, self.iter().map(bytes_of).sum::<usize>(), "bytes of jobs are counted");
        let holders = self.iter().filter(|(key, _)| self.holds_key(*key));
        assert_eq!(self.by_key.len() + self.further.len(), holders.count(), "held keys are counted");
        let extras =
            self.pages.iter().flatten().filter_map(|page| page.extras.as_ref()).flat_map(|extras| extras.iter());
        let has_extra = self.iter().filter(|(_, job)| job.has_extra).count();
        assert_eq!(extras.filter(|extra| !extra.is_empty()).count(), has_extra, "each extra belongs to a job");
        for (key, job) in self.iter() {
            assert_eq!(self.find(job.id), Some(key), "a job is found by its number");
            assert!(job.place != JobPlacement::Nowhere && job.ttr > 0, "a job has a place and a TTR");
            if self.holds_key(key) {
                let first =
                    self.holders_of(job.tube, self.key_of(key)).next().expect("a key that is held has a holder");
                let is_further = self.further.contains(&(self.hash_of_own_key(key).0, job.id));
                assert!(self[first].id <= job.id, "the lowest number is the first holder");
                assert_eq!(is_further, first != key, "a job holds its key once");
            }
        }
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Returns the jobs of a page, in no order.
    pub fn of_page(&self, page: usize) -> impl Iterator<Item = (JobKey, &Job)> {
        let entry = self.pages.get(page).and_then(Option::as_ref);
        let jobs = entry.into_iter().flat_map(|entry| entry.jobs.iter().enumerate());
        jobs.filter_map(move |(slot, job)| Some((JobKey::from_index(page * PAGE + slot), job.as_ref()?)))
    }

    /// Returns every job, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (JobKey, &Job)> {
        (0..self.pages.len()).flat_map(|page| self.of_page(page))
    }

    /// Returns the jobs at `most` positions from `first` on, page by page, and the next position if there are more.
    pub fn iter_from(&self, first: usize, most: usize) -> (impl Iterator<Item = (JobKey, &Job)>, Option<usize>) {
        let pages = first / PAGE..(first + most).div_ceil(PAGE);
        let next = (pages.end < self.pages.len()).then_some(pages.end * PAGE);
        (pages.flat_map(|page| self.of_page(page)), next)
    }
}

impl JobPage {
    fn new() -> JobPage {
        // A page is made in its place: it is too large for the stack.
        let jobs: Box<[Option<Job>]> = std::iter::repeat_with(|| None).take(PAGE).collect();
        let jobs = jobs.try_into().unwrap_or_else(|_| unreachable!("as many were taken"));
        JobPage { jobs, extras: None, used: [0; PAGE / 64] }
    }

    fn vacant(&self) -> Option<usize> {
        let word = self.used.iter().position(|word| *word != u64::MAX)?;
        Some(word * 64 + self.used[word].trailing_ones() as usize)
    }
}

impl Index<JobKey> for Jobs {
    type Output = Job;

    #[inline]
    fn index(&self, key: JobKey) -> &Job {
        at(&self.pages, key)
    }
}

impl IndexMut<JobKey> for Jobs {
    #[inline]
    fn index_mut(&mut self, key: JobKey) -> &mut Job {
        let page = self.pages[key.index() / PAGE].as_mut().expect("a job's page is there");
        page.jobs[key.index() % PAGE].as_mut().expect("a job is where its key says")
    }
}

fn at(pages: &[Option<JobPage>], key: JobKey) -> &Job {
    let page = pages[key.index() / PAGE].as_ref().expect("a job's page is there");
    page.jobs[key.index() % PAGE].as_ref().expect("a job is where its key says")
}

/// Returns the encoded extra of a job.
fn encoded(pages: &[Option<JobPage>], key: JobKey) -> &[u8] {
    if !at(pages, key).has_extra {
        return &[];
    }
    let extras = pages[key.index() / PAGE].as_ref().and_then(|page| page.extras.as_ref());
    extras.map_or(&[], |extras| &extras[key.index() % PAGE])
}

fn key_of(pages: &[Option<JobPage>], key: JobKey) -> &[u8] {
    if at(pages, key).has_extra { Extra::decode(encoded(pages, key)).key } else { &[] }
}

/// Returns the hash of a number. The daemon chooses the numbers, so no client can make them collide.
fn hash_of_id(id: JobId) -> Hash {
    Hash(id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (id.0 >> 7))
}

fn hash_of_key(hashing: &Hashing, tube: TubeId, key: &[u8]) -> Hash {
    // Keys of different tubes get different hashes; those of one tube are hashed with a secret.
    Hash(hashing.hash(key).0.wrapping_add((tube.index() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}
