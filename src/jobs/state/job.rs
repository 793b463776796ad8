//! One job, in few bytes: values that most jobs lack are in one small block, which the table of jobs keeps, and its body
//! may be shared with a store.

use super::ids::{GroupId, TubeId};
use poolcounter_core::id::id;
use poolcounter_core::{ConnId, Id, SmallCount, Time};
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
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
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
pub type Origin<'a> = OriginOf<&'a [u8]>;

/// Where a dead letter comes from, with the name of the tube in any form.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OriginOf<T> {
    /// Tube in which its attempts failed.
    pub tube: T,
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

impl Extra<'_> {
    /// Returns the bytes of the extra; none if it has only defaults.
    pub fn encode(&self) -> Box<[u8]> {
        if *self == Extra::default() {
            return Box::default();
        }
        let size = postcard::experimental::serialized_size(self).expect("its parts have lengths");
        let mut bytes = vec![0; size].into_boxed_slice();
        postcard::to_slice(self, &mut bytes).expect("they are as long as it is");
        bytes
    }

    /// Reads the bytes of an extra.
    pub fn decode(bytes: &[u8]) -> Extra<'_> {
        if bytes.is_empty() {
            return Extra::default();
        }
        postcard::from_bytes(bytes).expect("an extra was encoded here")
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

    /// Sets the commit that a pending job waits for.
    pub fn set_commit(&mut self, commit: u64) {
        self.links = ((commit >> 32) as u32, commit as u32);
    }

    /// Returns the commit that a pending job waits for.
    pub fn commit(&self) -> u64 {
        u64::from(self.links.0) << 32 | u64::from(self.links.1)
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
