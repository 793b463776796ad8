//! Table of jobs: pages that are freed with their last job, an index by number, and one by key.

use super::ids::TubeId;
use super::index::JobIndex;
use super::job::{Job, JobId, JobKey};
use poolcounter_core::id::Id;
use poolcounter_core::names::{Hash, Hashing};
use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

/// Number of jobs in a page: 22 KiB, so that few survivors of a flood do not keep much memory.
const PAGE: usize = 256;

struct JobPage {
    jobs: Box<[Option<Job>]>,
    /// One bit for each slot with a job.
    used: [u64; PAGE / 64],
}

/// Every job.
#[derive(Default)]
pub(super) struct Jobs {
    pages: Vec<Option<JobPage>>,
    /// Pages that have room, or could be allocated.
    roomy: BTreeSet<u32>,
    len: usize,
    by_id: JobIndex,
    /// Greatest number of any job so far. Greater numbers are unused, which needs no look-up for jobs that a store
    /// gives in order.
    last: u64,
    by_key: JobIndex,
    hashing: Hashing,
    bytes: usize,
}

impl Jobs {
    /// Returns the number of jobs.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no job, and no trace of one.
    pub fn is_empty(&self) -> bool {
        self.len == 0 && self.by_id.len() == 0 && self.by_key.len() == 0 && self.bytes == 0
    }

    /// Returns the bytes of all jobs as they count for `--jobs-max-memory`.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the job with this number.
    pub fn find(&self, id: JobId) -> Option<JobKey> {
        if id.0 > self.last {
            return None;
        }
        self.by_id.find(hash_of_id(id), |key| self[key].id == id)
    }

    /// Adds a job with a unique number.
    pub fn insert(&mut self, job: Job) -> JobKey {
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
        self.bytes += job.bytes();
        entry.jobs[slot] = Some(job);
        if entry.vacant().is_none() {
            self.roomy.remove(&page);
        }
        self.len += 1;
        let key = JobKey::from_index(page as usize * PAGE + slot);
        let Jobs { by_id, pages, .. } = self;
        by_id.insert(hash_of_id(id), key, |key| hash_of_id(at(pages, key).id));
        key
    }

    /// Removes a job, which must not hold its key any more.
    pub fn remove(&mut self, key: JobKey) -> Job {
        let (page, slot) = (key.index() / PAGE, key.index() % PAGE);
        let Jobs { by_id, pages, .. } = self;
        by_id.remove(hash_of_id(at(pages, key).id), key, |key| hash_of_id(at(pages, key).id));
        let entry = self.pages[page].as_mut().expect("a job's page is there");
        entry.used[slot / 64] &= !(1 << (slot % 64));
        let job = entry.jobs[slot].take().expect("a job is where its key says");
        if entry.used == [0; PAGE / 64] && page > 0 {
            self.pages[page] = None;
        }
        self.roomy.insert(page as u32);
        while self.pages.len() > 1 && self.pages.last().is_some_and(Option::is_none) {
            self.pages.pop();
            self.roomy.remove(&(self.pages.len() as u32));
        }
        self.len -= 1;
        self.bytes -= job.bytes();
        job
    }

    /// Changes the values of a job beyond its fields, and updates its bytes.
    pub fn change<R>(&mut self, key: JobKey, change: impl FnOnce(&mut Job) -> R) -> R {
        self.bytes -= self[key].bytes();
        let result = change(&mut self[key]);
        self.bytes += self[key].bytes();
        result
    }

    /// Returns the job with the lowest number among those that hold this key in this tube and for which `meant` is
    /// true.
    pub fn holder_of(&self, tube: TubeId, name: &[u8], meant: impl Fn(JobKey) -> bool) -> Option<JobKey> {
        let hash = hash_of_key(&self.hashing, tube, name);
        let mut lowest: Option<JobKey> = None;
        let is_named = |key: JobKey| self[key].tube == tube && self[key].key() == name && meant(key);
        let is_lower = |key: JobKey, lowest: Option<JobKey>| lowest.is_none_or(|other| self[key].id < self[other].id);
        while let Some(lower) = self.by_key.find(hash, |key| is_named(key) && is_lower(key, lowest)) {
            lowest = Some(lower);
        }
        lowest
    }

    /// Makes the job hold its deduplication key, which keeps others with it out.
    pub fn hold_key(&mut self, key: JobKey) {
        let Jobs { by_key, pages, hashing, .. } = self;
        let hash_of = |key| hash_of_key(hashing, at(pages, key).tube, at(pages, key).key());
        by_key.insert(hash_of(key), key, hash_of);
    }

    /// Releases the job's deduplication key.
    pub fn free_key(&mut self, key: JobKey) {
        let Jobs { by_key, pages, hashing, .. } = self;
        let hash_of = |key| hash_of_key(hashing, at(pages, key).tube, at(pages, key).key());
        by_key.remove(hash_of(key), key, hash_of);
    }

    /// Compares the tables with each other.
    ///
    /// # Panics
    ///
    /// Panics if they contradict each other.
    pub fn check(&self) {
        assert_eq!(self.len, self.iter().count(), "the table of jobs counts them");
        assert_eq!(self.bytes, self.iter().map(|(_, job)| job.bytes()).sum::<usize>(), "their bytes are reckoned");
        assert_eq!(self.by_key.len(), self.iter().filter(|(_, job)| job.holds_key()).count(), "keys that are held");
        for (key, job) in self.iter() {
            assert_eq!(self.find(job.id), Some(key), "a job is found by its number");
            assert!(job.is_placed && job.ttr > 0, "a job is not as it should be");
            if job.holds_key() {
                let holder = self.holder_of(job.tube, job.key(), |_| true).expect("a key that is held has a holder");
                assert!(self[holder].id <= job.id, "the lowest number holds the key");
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
        JobPage { jobs: std::iter::repeat_with(|| None).take(PAGE).collect(), used: [0; PAGE / 64] }
    }

    fn vacant(&self) -> Option<usize> {
        let word = self.used.iter().position(|word| *word != u64::MAX)?;
        Some(word * 64 + self.used[word].trailing_ones() as usize)
    }
}

impl Index<JobKey> for Jobs {
    type Output = Job;

    fn index(&self, key: JobKey) -> &Job {
        at(&self.pages, key)
    }
}

impl IndexMut<JobKey> for Jobs {
    fn index_mut(&mut self, key: JobKey) -> &mut Job {
        let page = self.pages[key.index() / PAGE].as_mut().expect("a job's page is there");
        page.jobs[key.index() % PAGE].as_mut().expect("a job is where its key says")
    }
}

fn at(pages: &[Option<JobPage>], key: JobKey) -> &Job {
    let page = pages[key.index() / PAGE].as_ref().expect("a job's page is there");
    page.jobs[key.index() % PAGE].as_ref().expect("a job is where its key says")
}

/// Returns the hash of a number. The daemon chooses the numbers, so no client can make them collide.
fn hash_of_id(id: JobId) -> Hash {
    Hash(id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (id.0 >> 7))
}

fn hash_of_key(hashing: &Hashing, tube: TubeId, key: &[u8]) -> Hash {
    // Keys of different tubes get different hashes; those of one tube are hashed with a secret.
    Hash(hashing.hash(key).0.wrapping_add((tube.index() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}
