//! State that outlives the process: fixed members that are not plainly free, leases with a token, pools and fixed
//! members of requests, and the highest number of a lease. Each is a row, with times by the time of day.
//!
//! Owners of tables mark what they change. Once a tick the marked things are written anew.

mod restore;

pub use restore::RestoredKept;

use super::history::End;
use super::pools::Part;
use super::{Agent, Beside, Ending, Lease, Member, MemberId, Phase, Place, Pool, PoolId, Reason, State, Step, Timer};
use crate::ledger;
use poolcounter_core::{ConnId, Span, Time, Timers};
use poolcounter_protocol::members::pool_settings::Settings;
use poolcounter_protocol::members::request::{Attributes, Refusal};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
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

    pub fn forget(&mut self, key: &K) {
        self.changed.remove(key);
    }

    fn take(&mut self) -> BTreeSet<K> {
        std::mem::take(&mut self.changed)
    }
}

/// Knowledge about the rows.
#[derive(Default)]
pub(super) struct Kept {
    /// Fixed members that no pool has any more, by name.
    pub unknown: BTreeMap<Arc<[u8]>, Arc<KeptMember>>,
    /// Number below which leases are reserved.
    reserved: u64,
    /// Time of day at [`Time::START`].
    wall: Span,
    /// Time for which holders are awaited after a restart.
    grace: Span,
    /// True while no fixed member and no token is given out, with the reason.
    pub closed: Option<&'static str>,
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
    /// End of its phase.
    pub until: Option<Time>,
    pub attributes: Option<Arc<Attributes>>,
    pub beside: Beside,
    pub lease: Option<Lease>,
}

/// Row of a fixed member, or of a member of a provider that is leased with a token. Its times are by the time of day.
#[derive(Serialize, Deserialize)]
pub(super) struct KeptMember {
    pool: Arc<[u8]>,
    /// Session of its provider.
    session: Option<Arc<[u8]>>,
    saved: SavedMember,
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

    /// Sets the time of day at [`Time::START`]. If the clock was set, all rows are written anew, so that the next process
    /// finds the time left that they have. Times of members that no pool has go by the clock as it is set.
    pub fn set_wall(&mut self, wall: Span) {
        if std::mem::replace(&mut self.kept.wall, wall) != wall {
            self.mark_all();
        }
    }

    /// Returns whether times are kept, which go by the time of day.
    pub fn keeps_times(&self) -> bool {
        !self.members.marks.is_off && self.keeps_anything()
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
            let member = self.end_lease(lease, End::plain(Ending::Returned), step);
            self.release_member(member, step);
            self.settle(step);
        }
    }

    /// Refuses a take of a fixed member or with a token while nothing can be kept.
    pub(super) fn refuse_unkept(&self, has_token: bool, place: Place) -> Result<(), Refusal> {
        let has_fixed = match place {
            Place::Pool(pool) => self.members.is_fixed(pool) == Some(true),
            Place::Group(group) => self.pools.group(group).sum(Part::Fixed) > 0,
        };
        match self.kept.closed {
            Some(why) if has_token || has_fixed => Err(Refusal::NotKept(why)),
            _ => Ok(()),
        }
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
            put(OF_VERSION, b"", Some(&VERSION), &mut changes);
            let reserved = self.kept.reserved;
            put(OF_NUMBER, b"", Some(&reserved), &mut changes);
        }
        for name in self.pools.marks.take() {
            let pool = self.pool_to_keep(&name);
            put(OF_POOL, &name, pool.as_ref(), &mut changes);
        }
        for token in self.leases.marks.take() {
            let member = self.leases.find_token(&token).map(|lease| self.leases.get(lease).member);
            match member.filter(|id| self.member(*id).owner.is_none()) {
                Some(fixed) => self.members.mark(fixed),
                None => {
                    let kept = member.and_then(|id| self.to_keep(id, clock));
                    put(OF_TOKEN, &token, kept.as_ref(), &mut changes);
                }
            }
        }
        for name in self.members.marks.take() {
            let kept = match self.members.find_fixed(&name) {
                Some(id) => self.to_keep(id, clock).map(Arc::new),
                None => self.kept.unknown.get(&name).cloned(),
            };
            put(OF_MEMBER, &name, kept.as_ref(), &mut changes);
        }
        changes
    }

    /// Returns all rows.
    pub fn all_rows(&mut self, clock: &Clock<'_, '_>) -> Vec<ledger::Row> {
        self.kept.reserved = 0;
        self.mark_all();
        self.take_changes(clock).into_iter().filter_map(|change| Some((change.key, change.value?))).collect()
    }

    /// Notes that all that is kept has changed.
    fn mark_all(&mut self) {
        let pools: Vec<PoolId> = self.pools.after(None).collect();
        pools.into_iter().for_each(|id| self.pools.mark(id));
        self.members.mark_all_fixed();
        self.kept.unknown.keys().for_each(|name| self.members.marks.add(name));
        self.leases.mark_all();
    }

    /// Keeps what is known of a fixed member that the configuration file no longer has, if it is kept out.
    pub(super) fn keep_unknown(&mut self, id: MemberId, step: &Step<'_, '_>) {
        if !self.member(id).is_from_file {
            return;
        }
        let clock = Clock { timers: step.timers, peer: step.peer };
        let is_out = Phase::KEPT.contains(&self.phase_of(id));
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
        let member = self.member(id);
        let mut saved = self.save_member(id, timers).map_times(|time| Time::from_micros(self.moment(time)));
        if let (Some(id), Some(lease)) = (member.lease(), &mut saved.lease) {
            (lease.holding, lease.is_reported) = (None, false);
            if !lease.is_named {
                lease.holder = Some(self.leases.holder_text(id, peer).into_bytes().into());
            }
        }
        let session = member.owner.and_then(|agent| self.agents.get(agent).session.clone());
        let kept = KeptMember { pool: self.pool(member.pool).name.clone(), session, saved, unknown_since: None };
        (!kept.is_plain() || !kept.saved.beside.history.is_empty()).then_some(kept)
    }

    /// Returns the record of a member.
    pub(super) fn save_member(&self, id: MemberId, timers: &Timers<'_, Timer>) -> SavedMember {
        let member = self.member(id);
        SavedMember {
            until: member.timer.as_ref().map(|timer| timers.deadline(timer)),
            attributes: self.members.attributes(id).cloned(),
            beside: self.members.beside(id).clone(),
            lease: member.lease().map(|lease| self.leases.get(lease).to_save()),
            ..SavedMember::of(member.to_save())
        }
    }

    /// Puts a member that is in no queue into the phase of its record, with all that the record has beside it. Returns None
    /// if the record contradicts itself.
    pub(super) fn resume(&mut self, id: MemberId, saved: SavedMember, step: &mut Step<'_, '_>) -> Option<()> {
        let SavedMember { member: Member { phase, .. }, until, beside, lease, .. } = saved;
        (phase.may_be(until.is_some()) && lease.is_some() == (phase == Phase::InUse)).then_some(())?;
        (beside.reason.is_none() || Phase::REASONED.contains(&phase)).then_some(())?;
        if !beside.is_empty() {
            *self.members.beside_mut(id) = beside;
        }
        if let Some(lease) = lease {
            let lease = self.leases.restore(Lease { member: id, ..lease }, self.member(id).pool);
            self.members.get_mut(id).set_of(lease);
            self.arm_lease(lease, step);
        }
        let timer = until.map(|until| step.timers.arm(until, Timer::Phase(id)));
        self.members.enter_state(id, phase, timer);
        if let Some(agent) = self.member(id).cleaner() {
            self.agents.change(agent, |agent| agent.cleaning += 1);
        }
        Some(())
    }
}

impl SavedMember {
    /// Returns the record of a member with nothing beside it.
    pub fn of(member: Member) -> Self {
        SavedMember { member, until: None, attributes: None, beside: Beside::default(), lease: None }
    }

    /// Returns the record with another form of its times.
    fn map_times(mut self, at: impl Fn(Time) -> Time) -> Self {
        let SavedMember { until, beside: Beside { hold, reason, .. }, lease, .. } = &mut self;
        let (hold, reason) = (hold.as_mut().map(|hold| &mut hold.since), reason.as_mut().map(|(since, _)| since));
        let (taken, end) = lease.as_mut().map(|lease| (&mut lease.since, lease.token.as_mut())).unzip();
        let end = end.flatten().map(|token| &mut token.until);
        [until.as_mut(), hold, reason, taken, end].into_iter().flatten().for_each(|time| *time = at(*time));
        self
    }
}

impl KeptMember {
    pub fn name(&self) -> &Arc<[u8]> {
        &self.saved.member.name
    }

    /// Returns true if the configuration file does not have it.
    fn is_added(&self) -> bool {
        let member = &self.saved.member;
        member.owner.is_some() || !member.is_from_file && !member.is_leaving
    }

    /// Returns true if it is free, as it would be after a start without its row.
    fn is_plain(&self) -> bool {
        let SavedMember { member: Member { phase, .. }, beside: Beside { hold, .. }, .. } = &self.saved;
        let is_free = *phase != Phase::InUse && !Phase::KEPT.contains(phase);
        is_free && !self.is_added() && hold.is_none()
    }
}

/// Adds the change of a row.
fn put(kind: u8, name: &[u8], value: Option<&impl Serialize>, changes: &mut Vec<ledger::Change>) {
    let value = value.map(|value| postcard::to_allocvec(value).expect("values of these types are always written"));
    changes.push(ledger::Change { key: [&[kind], name].concat(), value });
}
