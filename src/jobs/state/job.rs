//! One job, in few bytes: values that most jobs lack are in one small block, which the table of jobs keeps, and its body
//! may be shared with a store.

use super::ids::{GroupId, TubeId};
use poolcounter_core::count::SmallCount;
use poolcounter_core::id::{ConnId, Id, id};
use poolcounter_core::time::Time;
use poolcounter_protocol::jobs::request::JobState;
pub use poolcounter_protocol::jobs::request::{JobId, Until};
use poolcounter_protocol::jobs::values::Body;
use serde::{Deserialize, Serialize};

id! {
    /// Position of a job in the table of jobs.
    JobKey
}

/// Priority below which jobs are urgent.
pub const URGENT: u32 = 1024;

/// Placement of a job: the queue that it is in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum JobPlacement {
    /// Put, not committed and not visible yet. `links` has the commit.
    Pending,
    /// In the queue of its tube and group. `at` is the time since which it is ready, `links` are its neighbours by
    /// that.
    Ready,
    /// Among the delayed jobs of its tube. `at` is the end of its delay.
    Delayed,
    /// Reserved. `at` is its deadline, `links` its holder: the id and the serial of the connection.
    Reserved,
    /// In the tube's list of buried jobs. `at` is the time of the burial, as [`Job::buried_at`] reads it.
    Buried,
    /// Between its creation and its first place, and before its removal.
    Nowhere,
}

/// Destination of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum To {
    Pending,
    Ready,
    Delayed(Time),
    /// By this connection; true if it begins at once.
    Reserved(ConnId, bool),
    Buried,
    /// In no place, to be removed.
    Nowhere,
}

/// A job.
pub(super) struct Job {
    pub id: JobId,
    pub body: Body,
    /// Time of its put, in microseconds since the start; negative if it is older than the server.
    pub created: i64,
    /// A time whose meaning depends on the placement.
    pub at: Time,
    pub links: (u32, u32),
    pub tube: TubeId,
    pub pri: u32,
    pub delay: u32,
    pub ttr: u32,
    pub reserves: SmallCount,
    pub place: JobPlacement,
    /// True if the store has it, or gets it with a batch under way.
    pub is_stored: bool,
    /// True if the current batch has it.
    pub is_dirty: bool,
    /// True if the table of jobs has values of it beyond these fields: an [`Extra`].
    pub has_extra: bool,
}

/// Properties that few jobs have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Extra<'a> {
    pub key: &'a [u8],
    pub until: Until,
    pub root: Option<(&'a [u8], u64)>,
    pub group: Option<GroupId>,
    pub history: History,
    pub origin: Option<Origin<'a>>,
    pub error: &'a [u8],
}

/// Where a dead letter comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Origin<'a> {
    /// Tube in which its attempts failed.
    pub tube: &'a [u8],
    /// Number of these attempts.
    pub attempts: u32,
    /// Time of the last one, in microseconds since the start.
    pub at: i64,
}

/// Numbers of changes of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct History {
    /// Ends of its TTR.
    pub timeouts: SmallCount,
    /// Releases.
    pub releases: SmallCount,
    /// Buries.
    pub buries: SmallCount,
    /// Kicks.
    pub kicks: SmallCount,
    /// Reservations that ended badly since it was put, kicked or moved.
    pub attempts: SmallCount,
}

const HAS_KEY: u8 = 1;
const HAS_ROOT: u8 = 2;
const HAS_GROUP: u8 = 4;
const HAS_HISTORY: u8 = 8;
const UNTIL_DELETED: u8 = 16;
const HAS_ORIGIN: u8 = 32;

impl Extra<'_> {
    /// Returns the bytes of the extra; none if it has only defaults.
    pub fn encode(&self) -> Box<[u8]> {
        let history = self.history != History::default();
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let flags = flag(!self.key.is_empty(), HAS_KEY)
            | flag(self.root.is_some(), HAS_ROOT)
            | flag(self.group.is_some(), HAS_GROUP)
            | flag(history, HAS_HISTORY)
            | flag(self.origin.is_some(), HAS_ORIGIN)
            | flag(self.until == Until::Deleted && !self.key.is_empty(), UNTIL_DELETED);
        if flags == 0 && self.error.is_empty() {
            return Box::default();
        }
        let mut bytes = Vec::with_capacity(self.encoded_bytes(history));
        bytes.push(flags);
        if !self.key.is_empty() {
            // Lossless, here and below: a key or a signature has 200 bytes at most.
            bytes.push(self.key.len() as u8);
            bytes.extend_from_slice(self.key);
        }
        if let Some((signature, timestamp)) = self.root {
            push_number(&mut bytes, timestamp);
            bytes.push(signature.len() as u8);
            bytes.extend_from_slice(signature);
        }
        if let Some(group) = self.group {
            bytes.extend_from_slice(&(group.index() as u32).to_ne_bytes());
        }
        if history {
            let History { timeouts, releases, buries, kicks, attempts } = self.history;
            for count in [timeouts, releases, buries, kicks, attempts] {
                push_number(&mut bytes, u64::from(count.get()));
            }
        }
        if let Some(Origin { tube, attempts, at }) = self.origin {
            push_number(&mut bytes, attempts.into());
            bytes.extend_from_slice(&at.to_ne_bytes());
            // Lossless: the name of a tube has 200 bytes at most.
            bytes.push(tube.len() as u8);
            bytes.extend_from_slice(tube);
        }
        bytes.extend_from_slice(self.error);
        bytes.into_boxed_slice()
    }

    /// Reads the bytes of an extra.
    pub fn decode(bytes: &[u8]) -> Extra<'_> {
        if bytes.is_empty() {
            return Extra::default();
        }
        let mut fields = Fields(bytes);
        let flags = fields.byte() as u8;
        let has = |flag| flags & flag != 0;
        let mut extra = Extra::default();
        if has(HAS_KEY) {
            let len = fields.byte();
            extra.key = fields.bytes(len);
        }
        if has(HAS_ROOT) {
            let timestamp = fields.number();
            let len = fields.byte();
            extra.root = Some((fields.bytes(len), timestamp));
        }
        if has(HAS_GROUP) {
            extra.group = Some(GroupId::from_index(fields.u32() as usize));
        }
        if has(HAS_HISTORY) {
            // Lossless: they were written from such numbers.
            let [timeouts, releases, buries, kicks, attempts] =
                std::array::from_fn(|_| SmallCount::from(fields.number() as u32));
            extra.history = History { timeouts, releases, buries, kicks, attempts };
        }
        if has(HAS_ORIGIN) {
            // Lossless, as above.
            let attempts = fields.number() as u32;
            let at = i64::from_ne_bytes(fields.bytes(8).try_into().expect("eight bytes were taken"));
            let len = fields.byte();
            extra.origin = Some(Origin { tube: fields.bytes(len), attempts, at });
        }
        extra.until = if has(UNTIL_DELETED) { Until::Deleted } else { Until::Reserved };
        extra.error = fields.0;
        extra
    }

    fn encoded_bytes(&self, history: bool) -> usize {
        let key = if self.key.is_empty() { 0 } else { 1 + self.key.len() };
        let root = self.root.map_or(0, |(signature, timestamp)| 1 + bytes_of(timestamp) + signature.len());
        let History { timeouts, releases, buries, kicks, attempts } = self.history;
        let counts: usize =
            [timeouts, releases, buries, kicks, attempts].map(|count| bytes_of(count.get().into())).iter().sum();
        let counts = if history { counts } else { 0 };
        let origin = self.origin.map_or(0, |origin| bytes_of(origin.attempts.into()) + 9 + origin.tube.len());
        1 + key + root + 4 * usize::from(self.group.is_some()) + counts + origin + self.error.len()
    }
}

/// Number of bits of a number in each of its bytes; the last byte has a zero in the highest bit.
const NUMBER_BITS: u32 = 7;

/// Adds a number; smaller ones take fewer bytes.
fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >> NUMBER_BITS > 0 {
        bytes.push(number as u8 | 1 << NUMBER_BITS);
        number >>= NUMBER_BITS;
    }
    bytes.push(number as u8);
}

/// Returns the number of bytes that [`push_number`] adds.
fn bytes_of(number: u64) -> usize {
    (u64::BITS - number.leading_zeros()).div_ceil(NUMBER_BITS).max(1) as usize
}

/// Rest of an encoded extra.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(count);
        self.0 = rest;
        bytes
    }

    fn byte(&mut self) -> usize {
        usize::from(self.bytes(1)[0])
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.bytes(4).try_into().expect("four bytes were taken"))
    }

    fn number(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.bytes(1)[0];
            number |= u64::from(byte & 0x7f) << shift;
            shift += NUMBER_BITS;
            if byte < 1 << NUMBER_BITS {
                return number;
            }
        }
    }
}

impl Job {
    /// Returns a job that is in no place yet.
    pub fn new(id: JobId, tube: TubeId, body: Body) -> Job {
        Job {
            id,
            body,
            created: 0,
            at: Time::START,
            links: (0, 0),
            tube,
            pri: 0,
            delay: 0,
            ttr: 1,
            reserves: SmallCount::default(),
            place: JobPlacement::Nowhere,
            is_stored: false,
            is_dirty: false,
            has_extra: false,
        }
    }

    /// Returns the state that clients see; None before its put is committed, and in no place.
    pub fn state(&self) -> Option<JobState> {
        match self.place {
            JobPlacement::Pending | JobPlacement::Nowhere => None,
            JobPlacement::Ready => Some(JobState::Ready),
            JobPlacement::Reserved => Some(JobState::Reserved),
            JobPlacement::Delayed => Some(JobState::Delayed),
            JobPlacement::Buried => Some(JobState::Buried),
        }
    }

    /// Returns the holder of a reserved job: the id and the serial of the connection.
    pub fn holder(&self) -> (ConnId, u32) {
        (ConnId::from_index(self.links.0 as usize), self.links.1)
    }

    /// Returns the time of the burial of a buried job, in microseconds since the start; negative if that was in an
    /// earlier process.
    pub fn buried_at(&self) -> i64 {
        self.at.as_micros().cast_signed()
    }

    /// Returns the commit that a pending job waits for.
    pub fn commit(&self) -> u64 {
        u64::from(self.links.0) << 32 | u64::from(self.links.1)
    }

    /// Sets the commit that a pending job waits for.
    pub fn set_commit(&mut self, commit: u64) {
        self.links = ((commit >> 32) as u32, commit as u32);
    }
}

/// Returns a moment as signed microseconds since the start.
pub(super) fn micros(at: Time) -> i64 {
    i64::try_from(at.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_as_small_as_promised() {
        assert_eq!(size_of::<Body>(), 16);
        assert_eq!(size_of::<Job>(), 72);
        assert_eq!(size_of::<Option<Job>>(), 72);
    }

    #[test]
    fn extras_are_read_as_they_were_written() {
        let group = Some(GroupId::from_index(7));
        let [timeouts, releases, buries, kicks, attempts] = [1, 127, 128, 1 << 20, u32::MAX].map(SmallCount::from);
        let history = History { timeouts, releases, buries, kicks, attempts };
        for bits in 0..128 {
            let has = |bit: u32| bits >> bit & 1 == 1;
            let extra = Extra {
                key: if has(0) { &[b'k'; 200] } else { b"" },
                until: if has(0) && has(1) { Until::Deleted } else { Until::Reserved },
                root: has(2).then_some((b"signature", u64::MAX)),
                group: group.filter(|_| has(3)),
                history: if has(4) { history } else { History::default() },
                origin: has(6).then_some(Origin { tube: b"a/b", attempts: 300, at: -5 }),
                error: if has(5) { b"it failed" } else { b"" },
            };
            let bytes = extra.encode();
            assert_eq!((Extra::decode(&bytes), bytes.is_empty()), (extra, bits & !2 == 0));
        }
    }

    #[test]
    fn a_body_is_shared_without_a_copy() {
        let mut body = Body::Own(b"abc".to_vec().into());
        let at = body.bytes().as_ptr();
        let (one, other) = (body.share(), body.share());
        assert_eq!((one.as_ptr(), other.as_ptr(), body.bytes().as_ptr()), (at, at, at));
    }
}
