//! State that outlives the process: fixed members that are not plainly free, leases with a token, pools and fixed
//! members of requests, and the highest number of a lease. Each is a row, with times by the time of day.
//!
//! Owners of tables mark what they change. Once a tick the marked things are written anew.

mod restore;

pub use restore::RestoredKept;

use super::history::End;
use super::lifecycle::Cause;
use super::members::ComingHold;
use super::*;
use crate::ledger;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};

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
pub(super) struct Marks<K> {
    changed: BTreeSet<K>,
    /// True if nothing is kept.
    is_off: bool,
    /// Number of marks so far.
    count: u64,
}

impl<K: Ord> Default for Marks<K> {
    fn default() -> Self {
        Marks { changed: BTreeSet::new(), is_off: false, count: 0 }
    }
}

impl<K: Ord> Marks<K> {
    pub fn add(&mut self, key: K) {
        if !self.is_off {
            self.changed.insert(key);
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
    unknown: BTreeMap<Arc<[u8]>, KeptMember>,
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

/// Row of a fixed member, or of a member of a provider that is leased with a token.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct KeptMember {
    pool: Arc<[u8]>,
    name: Arc<[u8]>,
    /// Attributes of a member that the configuration file does not have.
    added: Option<Attributes>,
    /// Session of its provider.
    session: Option<Arc<[u8]>>,
    phase: KeptPhase,
    /// Time for which it is held when it becomes free, since when that is known, and the reason.
    hold: Option<(Span, Moment, Reason)>,
    /// Number of failed cleanings since its last use.
    failed_cleanings: u32,
    /// Its last leases, the last one last.
    history: VecDeque<PastLease>,
    /// Time since which no pool has it.
    unknown_since: Option<Moment>,
}

#[derive(Clone, Serialize, Deserialize)]
enum KeptPhase {
    Free,
    InUse(KeptLease),
    Unclean,
    /// It is being cleaned, or will be again at this time because that has failed.
    CleanLater {
        until: Option<Moment>,
        reason: Reason,
    },
    /// It is in quarantine, held, or kept out after a loss.
    Out {
        kind: PhaseKind,
        since: Moment,
        until: Option<Moment>,
        reason: Reason,
    },
}

#[derive(Clone, Serialize, Deserialize)]
struct KeptLease {
    number: u64,
    since: Moment,
    /// Name of the holder, else its address.
    holder: Arc<[u8]>,
    is_named: bool,
    token: Option<KeptToken>,
}

#[derive(Clone, Serialize, Deserialize)]
struct KeptToken {
    token: Token,
    /// Span for which the lease was taken; zero if it ends with its connection.
    span: Span,
    until: Moment,
    rule: Option<Arc<str>>,
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
    pub(super) fn refuse_unkept(
        &self,
        has_token: bool,
        mut pools: impl Iterator<Item = PoolId>,
    ) -> Result<(), Refusal> {
        match self.kept.closed {
            Some(why) if has_token || pools.any(|pool| self.members.in_pool(pool).is_fixed()) => {
                Err(Refusal::NotKept(why))
            }
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
        let is_numbered = !self.pools.marks.is_off && self.leases.next_number() > 1;
        !(self.pools.marks.changed.is_empty()
            && self.members.marks.changed.is_empty()
            && self.leases.marks.changed.is_empty())
            || is_numbered && self.kept.reserved < self.leases.next_number() + FEWEST_LEFT
    }

    /// Returns the rows that have changed since the last call.
    pub fn take_changes(&mut self, clock: &Clock<'_, '_>) -> Vec<ledger::Change> {
        let mut changes = Vec::new();
        if self.kept.reserved < self.leases.next_number() + FEWEST_LEFT {
            self.kept.reserved = self.leases.next_number() + RESERVED;
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
                Some(id) => self.to_keep(id, clock),
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
        self.kept.unknown.keys().for_each(|name| self.members.marks.add(name.clone()));
        self.leases.mark_all();
        self.take_changes(clock).into_iter().filter_map(|change| Some((change.key, change.value?))).collect()
    }

    /// Keeps what is known of a fixed member that the configuration file no longer has, if it is kept out.
    pub(super) fn keep_unknown(&mut self, id: MemberId, step: &Step<'_, '_>) {
        if !self.member(id).is_from_file() {
            return;
        }
        let clock = Clock { timers: step.timers, peer: step.peer };
        let kept = self.to_keep(id, &clock).filter(|kept| !matches!(kept.phase, KeptPhase::Free | KeptPhase::InUse(_)));
        if let Some(kept) = kept {
            let unknown_since = Some(self.moment(step.now));
            let name = kept.name.clone();
            self.kept.unknown.insert(name, KeptMember { added: None, unknown_since, ..kept });
        }
    }

    fn pool_to_keep(&self, name: &[u8]) -> Option<KeptPool> {
        let Pool { name, settings, is_leaving, is_from_file, .. } = self.pool(self.pools.find(name).ok()?);
        let (name, settings, is_leaving) = (name.clone(), settings.clone(), *is_leaving);
        (!is_from_file).then_some(KeptPool { name, settings, is_leaving })
    }

    /// Returns the row of a member; None if it is as it would be after a start.
    fn to_keep(&self, id: MemberId, Clock { timers, peer, .. }: &Clock<'_, '_>) -> Option<KeptMember> {
        let (member, moment) = (self.member(id), |at| self.moment(at));
        let deadline = member.phase.timer().map(|timer| moment(timers.deadline(timer)));
        let (since, reason) = match self.members.reason(id) {
            Some((since, reason)) => (moment(*since), reason.clone()),
            None => (moment(member.since), Reason::new("", String::new())),
        };
        let phase = match (&member.phase, deadline) {
            (MemberPhase::InUse(lease), _) => KeptPhase::InUse(self.lease_to_keep(*lease, peer)),
            (MemberPhase::Unclean, _) => KeptPhase::Unclean,
            (MemberPhase::Cleaning { .. }, _) => {
                let reason = Reason::new("it was being cleaned before a restart; it is cleaned again", String::new());
                KeptPhase::CleanLater { until: None, reason }
            }
            (MemberPhase::CleanLater(_), until) => KeptPhase::CleanLater { until, reason },
            (MemberPhase::Quarantined(_) | MemberPhase::Held(_) | MemberPhase::Delayed(_), until) => {
                KeptPhase::Out { kind: member.phase.kind(), since, until, reason }
            }
            _ => KeptPhase::Free,
        };
        let (session, is_fixed) = match member.owner {
            MemberOwner::Fixed => (None, true),
            MemberOwner::Agent(agent) => (self.agents.get(agent).session.clone(), false),
        };
        let is_added = !is_fixed || !member.is_from_file() && !member.is_leaving;
        let attributes = || self.members.attributes(id).map_or_else(Attributes::new, |all| (**all).clone());
        let hold = self.members.hold(id);
        let hold = hold.map(|ComingHold { span, since, reason }| (*span, moment(*since), reason.clone()));
        let (added, failed_cleanings) = (is_added.then(attributes), self.cleanings.times(id));
        let history = self.history.of(id).cloned().unwrap_or_default();
        let (pool, name) = (self.pool(member.pool).name.clone(), member.name.clone());
        let unknown_since = None;
        let kept = KeptMember { pool, name, added, session, phase, hold, failed_cleanings, history, unknown_since };
        (!kept.is_plain() || !kept.history.is_empty()).then_some(kept)
    }

    fn lease_to_keep(&self, id: LeaseId, peer: &dyn Fn(ConnId) -> String) -> KeptLease {
        let Lease { number, since, holder, token, .. } = self.leases.get(id);
        let token = token.as_ref().map(|token| KeptToken {
            token: token.token,
            span: token.span,
            until: self.moment(token.until),
            rule: token.rule.clone(),
        });
        KeptLease {
            number: *number,
            since: self.moment(*since),
            holder: self.leases.holder_text(id, peer).into_bytes().into(),
            is_named: matches!(holder, Holder::Name(_)),
            token,
        }
    }

    /// Writes the fixed members that no pool has.
    pub(super) fn unknown_members(&self) -> impl Iterator<Item = &KeptMember> {
        self.kept.unknown.values()
    }

    /// Takes a fixed member that no pool has, from a handover.
    pub(super) fn restore_unknown(&mut self, kept: KeptMember) {
        self.kept.unknown.insert(kept.name.clone(), kept);
    }
}

impl KeptMember {
    /// Returns true if it is free, as it would be after a start without its row.
    fn is_plain(&self) -> bool {
        matches!(self.phase, KeptPhase::Free) && self.added.is_none() && self.hold.is_none()
    }
}

impl Kept {
    /// Returns the time of a moment, which is not before the boot of the machine.
    fn time_of(&self, moment: Moment) -> Time {
        Time::from_micros(moment.saturating_sub(self.wall.as_micros()))
    }

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
