//! State that outlives the process: fixed members that are not plainly free, leases with a token, pools and fixed
//! members of requests, and the highest number of a lease. Each is a row, with times by the time of day.
//!
//! Owners of tables mark what they change. Once a tick the marked things are written anew.

mod restore;

pub use restore::RestoredKept;

use super::history::End;
use super::lifecycle::Cause;
use super::{
    Agent, Answer, ComingHold, Ending, FailedCleanings, Holder, Lease, Member, MemberId, MemberOwner, MemberPhase,
    PastLease, Phase, PhaseKind, Place, Pool, PoolId, Reason, State, Step, Timer,
};
use crate::ledger;
use poolcounter_core::id::ConnId;
use poolcounter_core::time::{Span, Time};
use poolcounter_core::wheel::Timers;
use poolcounter_protocol::members::pool_settings::Settings;
use poolcounter_protocol::members::request::{Attributes, Refusal};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Version of the rows.
const VERSION: u8 = 1;
/// Kinds of rows: the first byte of a key. Rows are read in this order.
const OF_VERSION: u8 = b'0';
const OF_NUMBER: u8 = b'1';
const OF_POOL: u8 = b'2';
const OF_MEMBER: u8 = b'3';
const OF_TOKEN: u8 = b'4';

/// Lease numbers that a row reserves at once, and the fewest that are left before the next: far more than are given out
/// while a row is written.
const RESERVED: u64 = 1 << 20;
const FEWEST_LEFT: u64 = 1 << 19;

/// Time by the time of day, in microseconds since 1970.
pub type Moment = u64;

/// Keys of what has changed since the last query.
#[derive(Default)]
pub(super) struct Marks<K> {
    changed: BTreeSet<K>,
    /// True if nothing is kept.
    is_off: bool,
    /// Number of marks so far.
    count: u64,
}

impl<K: Ord + Clone> Marks<K> {
    #[inline]
    pub fn add(&mut self, key: &K) {
        if !self.is_off {
            self.changed.insert(key.clone());
            self.count += 1;
        }
    }

    fn take(&mut self) -> BTreeSet<K> {
        std::mem::take(&mut self.changed)
    }
}

/// Knowledge about the rows.
#[derive(Default)]
pub(super) struct Kept {
    /// Keys of the rows that exist.
    rows: BTreeSet<Vec<u8>>,
    /// Fixed members that no pool has any more, by name.
    pub unknown: BTreeMap<Arc<[u8]>, Arc<KeptMember>>,
    /// Number below which leases are reserved.
    reserved: u64,
    /// Time of day at [`Time::START`].
    wall: Span,
    /// Time for which holders are awaited after a restart.
    grace: Span,
    /// True while no fixed member and no token is given out, with the reason.
    closed: Option<&'static str>,
}

/// Surroundings of a query for changes.
pub struct Clock<'a, 'w> {
    /// Timers of the members service.
    pub timers: &'a Timers<'w, Timer>,
    /// Returns the address of a connection.
    pub peer: &'a dyn Fn(ConnId) -> String,
}

/// Row of a pool that the configuration file does not have.
#[derive(Serialize, Deserialize)]
struct KeptPool {
    name: Arc<[u8]>,
    settings: Settings,
    is_leaving: bool,
}

/// Member with all that is known of it, in a handover and in a ledger.
#[derive(Serialize, Deserialize)]
pub(super) struct SavedMember {
    pub member: Member,
    pub phase: Phase<Time>,
    pub attributes: Option<Arc<Attributes>>,
    pub hold: Option<ComingHold>,
    pub reason: Option<(Time, Reason)>,
    pub failed: Option<FailedCleanings>,
    pub history: VecDeque<PastLease>,
}

/// Row of a fixed member, or of a member of a provider that is leased with a token. Its times are by the time of day.
#[derive(Serialize, Deserialize)]
pub(super) struct KeptMember {
    pool: Arc<[u8]>,
    /// Session of its provider.
    session: Option<Arc<[u8]>>,
    saved: SavedMember,
    lease: Option<Lease>,
    /// Time since which no pool has it.
    unknown_since: Option<Moment>,
}

impl State {
    /// Sets the time for which holders are awaited after a restart.
    pub fn set_grace(&mut self, grace: Span) {
        self.kept.grace = grace;
    }

    /// Notes changes from now on, or does not: nothing outlives the process.
    pub fn keep_rows(&mut self, keeps: bool) {
        (self.pools.marks.is_off, self.members.marks.is_off, self.leases.marks.is_off) = (!keeps, !keeps, !keeps);
    }

    /// Returns the time of day at a time.
    pub fn moment(&self, at: Time) -> Moment {
        self.kept.wall.as_micros().saturating_add(at.as_micros())
    }

    /// Sets the time of day at [`Time::START`].
    pub fn set_wall(&mut self, wall: Span) {
        self.kept.wall = wall;
    }

    /// Gives out no fixed member and no token from now on, for this reason, or does it again.
    pub fn set_closed(&mut self, closed: Option<&'static str>, step: &mut Step<'_, '_>) {
        self.kept.closed = closed;
        if closed.is_none() {
            let pools: Vec<PoolId> = self.pools.after(None).collect();
            pools.into_iter().for_each(|id| self.pools.reconsider(id));
        }
        self.settle(step);
    }

    /// Frees the member of a lease whose holder was not told of it.
    pub fn take_undone(&mut self, number: u64, step: &mut Step<'_, '_>) {
        if let Some(lease) = self.leases.find(number) {
            let member = self.end_lease(lease, None, End::plain(Ending::Returned), step);
            self.release_member(member, Cause::Other, step);
            self.settle(step);
        }
    }

    /// Refuses a take of a fixed member or with a token while nothing can be kept.
    pub(super) fn refuse_unkept(&self, has_token: bool, place: Place) -> Answer {
        let has_fixed = match place {
            Place::Pool(pool) => self.members.in_pool(pool).is_fixed(),
            Place::Group(group) => self.pools.group(group).fixed > 0,
        };
        match self.kept.closed {
            Some(why) if has_token || has_fixed => Err(Refusal::NotKept(why)),
            _ => Ok(()),
        }
    }

    /// Returns whether a waiter may have a member: anything can be kept, or need not.
    pub(super) fn may_give(&self, id: MemberId, lease: Option<Span>) -> bool {
        self.kept.closed.is_none() || lease.is_none() && self.member(id).owner != MemberOwner::Fixed
    }

    /// Returns whether there are fixed members or leases with a token, so that requests may change what is kept.
    pub fn keeps_anything(&self) -> bool {
        self.members.has_fixed() || self.leases.has_tokens()
    }

    /// Returns the number of changes so far to what is kept.
    pub fn kept_changes(&self) -> u64 {
        self.pools.marks.count + self.members.marks.count + self.leases.marks.count
    }

    /// Returns whether rows are to be written.
    pub fn has_rows_to_write(&self) -> bool {
        let is_numbered = !self.pools.marks.is_off && self.leases.next_number > 1;
        !(self.pools.marks.changed.is_empty()
            && self.members.marks.changed.is_empty()
            && self.leases.marks.changed.is_empty())
            || is_numbered && self.kept.reserved < self.leases.next_number + FEWEST_LEFT
    }

    /// Returns the rows that have changed since the last call.
    pub fn take_changes(&mut self, clock: &Clock<'_, '_>) -> Vec<ledger::Change> {
        let mut changes = Vec::new();
        if self.kept.reserved < self.leases.next_number + FEWEST_LEFT {
            self.kept.reserved = self.leases.next_number + RESERVED;
            self.kept.put(OF_VERSION, b"", Some(&VERSION), &mut changes);
            let reserved = self.kept.reserved;
            self.kept.put(OF_NUMBER, b"", Some(&reserved), &mut changes);
        }
        for name in self.pools.marks.take() {
            let pool = self.pool_to_keep(&name);
            self.kept.put(OF_POOL, &name, pool.as_ref(), &mut changes);
        }
        for token in self.leases.marks.take() {
            let lease = self.leases.find_token(&token);
            let member = lease.map(|lease| self.leases.get(lease).member);
            if let Some(fixed) = member.filter(|id| self.member(*id).owner == MemberOwner::Fixed) {
                self.members.mark(fixed);
            }
            let kept = member.filter(|id| self.member(*id).owner != MemberOwner::Fixed);
            let kept = kept.and_then(|id| self.to_keep(id, clock));
            self.kept.put(OF_TOKEN, &token, kept.as_ref(), &mut changes);
        }
        for name in self.members.marks.take() {
            let kept = match self.members.find_fixed(&name) {
                Some(id) => self.to_keep(id, clock).map(Arc::new),
                None => self.kept.unknown.get(&name).cloned(),
            };
            self.kept.put(OF_MEMBER, &name, kept.as_ref(), &mut changes);
        }
        changes
    }

    /// Returns all rows.
    pub fn all_rows(&mut self, clock: &Clock<'_, '_>) -> Vec<ledger::Row> {
        self.kept.rows.clear();
        self.kept.reserved = 0;
        let pools: Vec<PoolId> = self.pools.after(None).collect();
        pools.into_iter().for_each(|id| self.pools.mark(id));
        self.members.mark_all_fixed();
        self.kept.unknown.keys().for_each(|name| self.members.marks.add(name));
        self.leases.mark_all();
        self.take_changes(clock).into_iter().filter_map(|change| Some((change.key, change.value?))).collect()
    }

    /// Keeps what is known of a fixed member that the configuration file no longer has, if it is kept out.
    pub(super) fn keep_unknown(&mut self, id: MemberId, step: &Step<'_, '_>) {
        if !self.member(id).is_from_file {
            return;
        }
        let clock = Clock { timers: step.timers, peer: step.peer };
        let is_out = PhaseKind::KEPT.contains(&self.phase_of(id));
        if let Some(kept) = self.to_keep(id, &clock).filter(|_| is_out) {
            let kept = KeptMember { unknown_since: Some(self.moment(step.now)), ..kept };
            self.kept.unknown.insert(kept.name().clone(), kept.into());
        }
    }

    fn pool_to_keep(&self, name: &[u8]) -> Option<KeptPool> {
        let Pool { name, settings, is_leaving, is_from_file, .. } = self.pool(self.pools.find(name).ok()?);
        let (name, settings, is_leaving) = (name.clone(), settings.clone(), *is_leaving);
        (!is_from_file).then_some(KeptPool { name, settings, is_leaving })
    }

    /// Returns the row of a member; None if it is as it would be after a start.
    fn to_keep(&self, id: MemberId, Clock { timers, peer, .. }: &Clock<'_, '_>) -> Option<KeptMember> {
        let (member, at) = (self.member(id), |time| Time::from_micros(self.moment(time)));
        let lease = match member.phase {
            MemberPhase::InUse(lease) => {
                let mut kept = self.leases.get(lease).to_save();
                (kept.since, kept.holding, kept.is_reported) = (at(kept.since), None, false);
                kept.token.iter_mut().for_each(|token| token.until = at(token.until));
                if !matches!(kept.holder, Holder::Name(_)) {
                    kept.holder = Holder::Address(self.leases.holder_text(lease, peer).into_bytes().into());
                }
                Some(kept)
            }
            _ => None,
        };
        let session = match member.owner {
            MemberOwner::Fixed => None,
            MemberOwner::Agent(agent) => self.agents.get(agent).session.clone(),
        };
        let (pool, saved) = (self.pool(member.pool).name.clone(), self.save_member(id, timers, at));
        let kept = KeptMember { pool, session, saved, lease, unknown_since: None };
        (!kept.is_plain() || !kept.saved.history.is_empty()).then_some(kept)
    }

    /// Returns the record of a member; `at` gives the form of its times.
    pub(super) fn save_member(
        &self,
        id: MemberId,
        timers: &Timers<'_, Timer>,
        at: impl Fn(Time) -> Time,
    ) -> SavedMember {
        let member = self.member(id);
        let hold = self.members.holds.get(&id);
        SavedMember {
            member: member.to_save(),
            phase: member.phase.map(|timer| at(timers.deadline(timer))),
            attributes: self.members.attributes(id).cloned(),
            hold: hold.map(|hold| ComingHold { since: at(hold.since), reason: hold.reason.clone(), ..*hold }),
            reason: self.members.reasons.get(&id).map(|(since, reason)| (at(*since), reason.clone())),
            failed: self.failed_cleanings.get(&id).copied(),
            history: self.history.of(id).cloned().unwrap_or_default(),
        }
    }
}

impl KeptMember {
    pub fn name(&self) -> &Arc<[u8]> {
        &self.saved.member.name
    }

    /// Returns true if the configuration file does not have it.
    fn is_added(&self) -> bool {
        let member = &self.saved.member;
        member.owner != MemberOwner::Fixed || !member.is_from_file && !member.is_leaving
    }

    /// Returns true if it is free, as it would be after a start without its row.
    fn is_plain(&self) -> bool {
        let SavedMember { phase, hold, .. } = &self.saved;
        let is_free = phase.kind() != PhaseKind::InUse && !PhaseKind::KEPT.contains(&phase.kind());
        is_free && !self.is_added() && hold.is_none()
    }
}

impl Kept {
    /// Adds the change of a row, unless it is not there and is not to be.
    fn put(&mut self, kind: u8, name: &[u8], value: Option<&impl Serialize>, changes: &mut Vec<ledger::Change>) {
        let key = [&[kind], name].concat();
        let value = value.map(|value| postcard::to_allocvec(value).expect("values of these types are always written"));
        let was_there = match value {
            Some(_) => !self.rows.insert(key.clone()),
            None => self.rows.remove(&key),
        };
        if was_there || value.is_some() {
            changes.push(ledger::Change { key, value });
        }
    }
}
