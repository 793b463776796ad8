//! Copy of the jobs in the database that a standby has in memory, to give them to the loop when it takes over.

use super::reading::PAGE_JOBS;
use crate::state::{History, JobId, Until};
use crate::store::batch::{Batch, JobRow, Row, RowBody, Text};
use poolcounter_core::count::SmallCount;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Number of job numbers that share a chunk.
const CHUNK: u64 = 256;
/// Least number of names of tubes that are looked through for unused ones.
const FEW_TUBES: usize = 1024;

/// Jobs in the order of their numbers. Each chunk is a short list, so that a job takes little more than its values.
#[derive(Default)]
pub struct JobCopy {
    chunks: BTreeMap<u64, Vec<CopiedJob>>,
    tubes: Tubes,
    len: usize,
    bytes: usize,
}

/// A job with its body.
struct CopiedJob {
    id: u64,
    created: i64,
    /// [`i64::MIN`] if it has none.
    delayed_until: i64,
    tube: Tube,
    pri: u32,
    delay: u32,
    ttr: u32,
    rest: Option<Box<Rest>>,
    body: Box<[u8]>,
}

/// Values that few jobs have.
struct Rest {
    is_buried: bool,
    reserves: SmallCount,
    history: History,
    key: Box<[u8]>,
    until: Until,
    root: Option<(Box<[u8]>, u64)>,
    group: Box<[u8]>,
    error: Box<[u8]>,
}

/// Name of a tube, in eight bytes.
pub type Tube = Rc<Box<[u8]>>;

/// Names of tubes, shared by their jobs or root jobs.
#[derive(Default)]
pub struct Tubes {
    names: HashMap<Box<[u8]>, Tube>,
    /// Number of names at which unused ones are removed.
    most: usize,
}

impl Tubes {
    /// Returns the name of a tube that all its jobs share.
    pub fn shared(&mut self, name: &[u8]) -> Tube {
        if let Some(tube) = self.names.get(name) {
            return tube.clone();
        }
        if self.names.len() >= self.most.max(FEW_TUBES) {
            self.names.retain(|_, tube| Rc::strong_count(tube) > 1);
            self.most = self.names.len() * 2;
        }
        let tube = Tube::new(name.into());
        self.names.insert(name.into(), tube.clone());
        tube
    }
}

impl JobCopy {
    /// Returns the number of jobs.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the approximate number of bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the least and the greatest number of a job; zeros without any.
    pub fn range(&self) -> (u64, u64) {
        let first = self.chunks.first_key_value().and_then(|(_, chunk)| chunk.first());
        let last = self.chunks.last_key_value().and_then(|(_, chunk)| chunk.last());
        (first.map_or(0, |job| job.id), last.map_or(0, |job| job.id))
    }

    /// Adds jobs that were read, in place of those with their numbers.
    pub fn add(&mut self, mut batch: Batch) {
        for row in std::mem::take(&mut batch.rows) {
            let Row::Put(job, body) = row else { continue };
            let job = self.copied(&batch, &job, body);
            let bytes = job.bytes();
            self.remove(job.id);
            let chunk = self.chunks.entry(job.id / CHUNK).or_default();
            let place = chunk.partition_point(|other| other.id < job.id);
            chunk.insert(place, job);
            (self.len, self.bytes) = (self.len + 1, self.bytes + bytes);
        }
    }

    /// Removes a job, if it is there.
    pub fn remove(&mut self, id: u64) {
        let Some(chunk) = self.chunks.get_mut(&(id / CHUNK)) else { return };
        let Ok(place) = chunk.binary_search_by_key(&id, |job| job.id) else { return };
        let job = chunk.remove(place);
        (self.len, self.bytes) = (self.len - 1, self.bytes - job.bytes());
        if chunk.is_empty() {
            self.chunks.remove(&(id / CHUNK));
        } else if chunk.len() * 4 < chunk.capacity() {
            chunk.shrink_to(chunk.len() * 2);
        }
    }

    /// Moves the first jobs to a page, and returns the number of the last of them.
    pub fn give(&mut self, page: &mut Batch) -> Option<u64> {
        let mut last = None;
        while page.rows.len() + CHUNK as usize <= PAGE_JOBS
            && let Some((_, chunk)) = self.chunks.pop_first()
        {
            for job in chunk {
                (self.len, self.bytes) = (self.len - 1, self.bytes - job.bytes());
                last = Some(job.id);
                job.give(page);
            }
        }
        last
    }

    fn copied(&mut self, batch: &Batch, job: &JobRow, body: RowBody) -> CopiedJob {
        let text = |text| -> Box<[u8]> { batch.text(text).into() };
        let has_rest = !job.is_plain() || job.until != Until::default();
        let rest = has_rest.then(|| Rest {
            is_buried: job.is_buried,
            reserves: job.reserves,
            history: job.history,
            key: text(job.key),
            until: job.until,
            root: job.root.map(|(signature, timestamp)| (text(signature), timestamp)),
            group: text(job.group),
            error: text(job.error),
        });
        CopiedJob {
            id: job.id.0,
            created: job.created,
            delayed_until: job.delayed_until.unwrap_or(i64::MIN),
            tube: self.tubes.shared(batch.text(job.tube)),
            pri: job.pri,
            delay: job.delay,
            ttr: job.ttr,
            rest: rest.map(Box::new),
            body: match body {
                RowBody::Own(body) => body,
                other => batch.body(&other).into(),
            },
        }
    }
}

impl CopiedJob {
    fn bytes(&self) -> usize {
        let of_rest = |rest: &Rest| {
            let texts = [&rest.key, &rest.group, &rest.error].map(|text| text.len()).iter().sum::<usize>();
            size_of::<Rest>() + texts + rest.root.as_ref().map_or(0, |(signature, _)| signature.len())
        };
        size_of::<CopiedJob>() + self.body.len() + self.rest.as_deref().map_or(0, of_rest)
    }

    fn give(self, page: &mut Batch) {
        let mut job = JobRow {
            id: JobId(self.id),
            tube: page.note(&self.tube),
            pri: self.pri,
            delay: self.delay,
            ttr: self.ttr,
            created: self.created,
            delayed_until: (self.delayed_until != i64::MIN).then_some(self.delayed_until),
            is_buried: false,
            reserves: SmallCount::ZERO,
            history: History::default(),
            key: Text::default(),
            until: Until::default(),
            root: None,
            group: Text::default(),
            error: Text::default(),
        };
        if let Some(rest) = self.rest {
            let Rest { is_buried, reserves, history, key, until, root, group, error } = *rest;
            (job.is_buried, job.reserves, job.history, job.until) = (is_buried, reserves, history, until);
            [job.key, job.group, job.error] = [key, group, error].map(|text| page.note(&text));
            job.root = root.map(|(signature, timestamp)| (page.note(&signature), timestamp));
        }
        page.rows.push(Row::Put(job, RowBody::Own(self.body)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_core::random::Random;

    /// Returns a batch with a job, whose values follow from its number and its version.
    fn batch(id: u64, version: u64) -> Batch {
        let mut batch = Batch::default();
        let is_rich = version % 2 == 1;
        let mut text = |text: &str| if is_rich { batch.note(text.as_bytes()) } else { Text::default() };
        let (key, group, error, signature) = (text("key"), text("group"), text("error"), text("root"));
        let job = JobRow {
            id: JobId(id),
            tube: batch.note(format!("tube{}", id % 7).as_bytes()),
            pri: version as u32,
            delay: 2,
            ttr: 3,
            created: -4,
            delayed_until: version.is_multiple_of(3).then_some(5),
            is_buried: is_rich,
            reserves: SmallCount::ZERO,
            history: History::default(),
            key,
            until: if is_rich { Until::Deleted } else { Until::Reserved },
            root: is_rich.then_some((signature, 6)),
            group,
            error,
        };
        batch.rows.push(Row::Put(job, RowBody::Own(format!("{id} {version}").into_bytes().into())));
        batch
    }

    /// Returns all values of a job.
    fn values(batch: &Batch, row: &Row) -> String {
        let Row::Put(job, body) = row else { panic!("it is a job") };
        format!("{:?} {:?}", batch.record(job, poolcounter_core::time::Span::ZERO), batch.body(body))
    }

    #[test]
    fn what_is_given_is_what_was_added_last_and_not_removed() {
        let mut random = Random::from_seed(7);
        for _ in 0..20 {
            let (mut copy, mut model) = (JobCopy::default(), BTreeMap::new());
            for version in 0..3000 {
                let id = 1 + random.below(1500);
                match random.below(3) {
                    0 => {
                        copy.remove(id);
                        model.remove(&id);
                    }
                    _ => {
                        copy.add(batch(id, version));
                        model.insert(id, version);
                    }
                }
                assert_eq!(copy.len(), model.len());
            }
            let ends = [model.first_key_value(), model.last_key_value()].map(|end| *end.expect("there are jobs").0);
            assert_eq!(copy.range(), ends.into());
            let mut found = Vec::new();
            loop {
                let mut page = Batch::default();
                let Some(last) = copy.give(&mut page) else { break };
                found.extend(page.rows.iter().map(|row| values(&page, row)));
                assert!(found.last().is_some_and(|job| job.contains(&format!("JobId({last})"))), "{last}");
            }
            let wanted = model.iter().map(|(id, version)| batch(*id, *version));
            assert_eq!(found, wanted.map(|batch| values(&batch, &batch.rows[0])).collect::<Vec<_>>());
            assert_eq!((copy.len(), copy.bytes(), copy.range()), (0, 0, (0, 0)));
        }
    }
}
