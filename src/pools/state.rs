//! State machine of the pools: which connections hold locks, which wait, and which are woken. It knows no sockets, no
//! bytes on the wire and no clock: it takes a connection, a request and the time, and emits replies for any connection.
//!
//! A claim is the lock or the wait of a connection in a pool. It may be on several pools at once: then it has *parts*
//! (`parts.rs`).
//!
//! Invariant: between turns a pool has claims, or is one of the few that were emptied: a lock that is taken and
//! released over and over creates its pool once. To everybody else a pool without claims does not exist. A claim is in two
//! queues: that of its connection, oldest first, and one of its pool's three, by its phase; a part is in the latter
//! alone. A connection has at most one waiting claim, which is its newest.

use crate::options::PoolsSettings;
use poolcounter_core::id::id;
use poolcounter_core::names::Hash;
use poolcounter_core::top_keys::{KeyEvent, TopKeys};
use poolcounter_core::wheel::timer_keys;
use poolcounter_core::{ConnId, Figures, Id, Links, List, Names, Queue, SideTable, Span, Time, TimerId, Timers};
use poolcounter_protocol::pools::stats::PoolStat as Stat;
use slab::Slab;

mod background;
mod ceilings;
mod check;
mod health;
mod held;
mod kept;
mod parts;
mod queries;
mod refusals;
mod saved;
mod tables;
mod types;

pub use ceilings::CeilingInUse;
pub use health::OverdueLock;
pub use held::TakenBack;
pub use poolcounter_protocol::pools::request::{AcquireLock, BadSyntax, KeyLimits, Purpose, Reply};
pub use queries::{BusiestSearch, BusyKey, CLIENTS_LOOKED_AT, ClaimInfo, KEYS_LOOKED_AT, WhichKeys};
pub use types::WorkType;

use background::Background;
use ceilings::Ceilings;
use kept::KeptLocks;
use parts::Parts;
use tables::{EmptiedPools, Withdrawn};
use types::{TypeId, Types};

/// One step of the state machine: its time, and the places of its effects.
pub struct PoolsStep<'a, 'w> {
    /// The time of the step.
    pub now: Time,
    /// The timers of the pools.
    pub timers: &'a mut Timers<'w, PoolsTimer>,
    /// The replies, in order.
    pub replies: &'a mut Vec<(ConnId, Reply)>,
    /// Locks that were taken back.
    pub taken_back: &'a mut Vec<TakenBack>,
}

id! { PoolId }
id! { ClaimId }

timer_keys! {
    /// Purposes of the timers of the pools.
    pub enum PoolsTimer {
        /// The wait of the claim, or its hold, has reached its limit.
        Claim(id: ClaimId),
        /// Background work has its slice.
        Work,
    }
}

struct Pool {
    key: Vec<u8>,
    hash: Hash,
    type_id: TypeId,
    holders: List<ClaimId>,
    waiting_for_me: List<ClaimId>,
    waiting_for_anyone: List<ClaimId>,
}

struct Claim {
    pool: PoolId,
    conn: ConnId,
    /// Begin of the wait, or else of the hold.
    since: Time,
    phase: ClaimPhase,
}

enum ClaimPhase {
    Waiting {
        purpose: Purpose,
        /// Longest hold of the lock once it is granted.
        hold: Span,
        /// True if the client asked for a longer hold.
        is_lowered: bool,
        timeout: TimerId,
    },
    Holding {
        /// Timer of the end of the hold, if it has a limit.
        end: Option<TimerId>,
        /// True if the client asked for a longer hold.
        is_lowered: bool,
    },
    /// The holder has ended, and the lock is kept for the rest of its least time.
    Kept { end: TimerId },
    /// Part of another claim, which waits or holds with it.
    Part { whole: ClaimId, is_held: bool },
}

/// All pools, and the claims of each connection in them.
#[derive(Default)]
pub struct PoolsState {
    pub(crate) settings: PoolsSettings,
    /// True while no request is granted a lock or waits for one.
    pub(crate) refuses_new: bool,
    names: Names<PoolId>,
    pools: Slab<Pool>,
    /// Pool of the latest acquire; it may be dropped by now. Often the next request has the same key.
    latest: PoolId,
    emptied: EmptiedPools,
    /// Emptied buffers for the keys of new pools, which need no allocation then.
    spare_keys: Vec<Vec<u8>>,
    claims: Slab<Claim>,
    /// Names that the clients of claims gave; empty without one.
    whos: SideTable<ClaimId, Box<[u8]>>,
    parts: Parts,
    /// Claims by connection, oldest first.
    clients: SideTable<ConnId, List<ClaimId>>,
    links_by_client: Links,
    links_by_pool: Links,
    /// Locks that are held, in the order of their grants.
    held: Queue<ClaimId>,
    kept: KeptLocks,
    /// Figures, without the sums over the types of work.
    figures: Figures<Stat>,
    types: Types,
    pub(crate) top_keys: TopKeys,
    /// Begin of the last window in which refusals of keys are counted.
    refusing_since: Option<Time>,
    ceilings: Ceilings,
    background: Background,
}

/// Availability of a lock of a pool for a request.
enum Room {
    Free,
    Busy(PoolId),
    Full(PoolId),
}

/// Request for a lock, whose limits may be lowered.
type Asked<'r, 'a> = Result<&'r mut AcquireLock<'a>, BadSyntax>;

impl PoolsState {
    /// Returns a state without pools.
    pub fn new(mut settings: PoolsSettings) -> Self {
        let ceilings = Ceilings::new(std::mem::take(&mut settings.ceilings));
        PoolsState { settings, ceilings, ..PoolsState::default() }
    }

    /// Handles `ACQ4ME` and `ACQ4ANY`: grants a lock at once, queues the request, or refuses it. Ceilings reduce the
    /// requested limits.
    pub fn acquire(&mut self, conn: ConnId, request: Asked<'_, '_>, step: &mut PoolsStep<'_, '_>) {
        let Err(refusal) = self.try_acquire(conn, request, step) else { return };
        match refusal {
            Reply::LockHeld => self.figures.count(Stat::LockMismatch),
            Reply::WaitForResponse => self.figures.count(Stat::LockWhileWaiting),
            _ => {}
        }
        step.replies.push((conn, refusal));
    }

    /// Handles `RELEASE` and `RELEASE key`: removes the connection's newest claim, or the newest on `key`.
    pub fn release(&mut self, conn: ConnId, key: Option<&[u8]>, step: &mut PoolsStep<'_, '_>) {
        let Some(id) = self.newest_of(conn, key) else {
            self.figures.count(Stat::ReleaseMismatch);
            step.replies.push((conn, Reply::NotLocked));
            return;
        };
        let claim = self.withdraw(id, step);
        if !claim.was_held {
            self.type_of(claim.pool).given_up.bump();
        } else if !self.pool_at(claim.pool).is_unused() {
            self.wake_after_work(&claim, step);
            if !claim.is_kept {
                self.grant_next(claim.pool, step);
            }
        }
        self.grant_freed(claim.freed, step);
        self.figures.count(Stat::TotalReleases);
        step.replies.push((conn, Reply::Released));
    }

    /// Ends the wait of a connection that may not wait any more. It keeps its locks.
    pub fn deny_wait(&mut self, conn: ConnId, step: &mut PoolsStep<'_, '_>) {
        let Some(id) = self.waiting_claim(conn) else { return };
        let claim = self.withdraw(id, step);
        self.grant_freed(claim.freed, step);
        step.replies.push((conn, Reply::Denied));
    }

    /// Returns the waiting claim of a connection.
    fn waiting_claim(&self, conn: ConnId) -> Option<ClaimId> {
        let is_waiting =
            |id: &ClaimId| matches!(self.claims[self.whole_of(*id).index()].phase, ClaimPhase::Waiting { .. });
        self.claims_of(conn).next().filter(is_waiting)
    }

    /// Handles a timer that is due.
    pub fn expire(&mut self, timer: PoolsTimer, step: &mut PoolsStep<'_, '_>) {
        match timer {
            PoolsTimer::Claim(id) => self.expire_claim(id, step),
            PoolsTimer::Work => self.work(step),
        }
    }

    /// Ends a claim whose wait or hold has reached its limit.
    fn expire_claim(&mut self, id: ClaimId, step: &mut PoolsStep<'_, '_>) {
        match &mut self.claims[id.index()].phase {
            ClaimPhase::Holding { end, is_lowered, .. } => {
                end.take().into_iter().for_each(TimerId::fired);
                return if *is_lowered { self.take_back(id, step) } else { self.give_back(id, true, step) };
            }
            ClaimPhase::Kept { .. } => return self.end_kept(id, step).fired(),
            _ => {}
        }
        let freed = self.freed_by(id, step.now);
        let claim = self.detach(id, step.now);
        match claim.phase {
            ClaimPhase::Waiting { timeout, .. } => {
                timeout.fired();
                self.figures.add(Stat::WastedTimeoutTime, step.now.since(claim.since));
                let type_id = self.pool_at(claim.pool).type_id;
                self.note_refusal(claim.pool, type_id, false, step.now);
                step.replies.push((claim.conn, Reply::Timeout));
                self.grant_freed(freed, step);
            }
            _ => unreachable!("only waits are left"),
        }
    }

    /// Returns true if there are no claims.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.keys() == 0 && self.held.is_empty()
    }

    /// Adds a claim, or returns the refusal. The order of the checks is part of the protocol.
    fn try_acquire(&mut self, conn: ConnId, request: Asked<'_, '_>, step: &mut PoolsStep<'_, '_>) -> Result<(), Reply> {
        self.check_client(conn)?;
        let request = request.map_err(|BadSyntax| Reply::BadSyntax)?;
        if self.refuses_new {
            return Err(Reply::Draining);
        }
        let asked = request.hold;
        if !self.ceilings.all.is_empty() {
            self.ceilings.lower(request);
        }
        let hold = request.hold.min(self.settings.max_hold);
        if request.keep > hold {
            return Err(Reply::KeepOverHold);
        }
        if !self.background.leaving.is_empty() {
            self.catch_up(request, step);
        }
        let known = self.find_or_hash(request.key);
        let mut room = self.room(known.ok(), request.workers, request.max_queue, step.now);
        for KeyLimits { key, workers, max_queue } in &request.also {
            let other = self.find(self.names.hash(key), key);
            room = room.or_less(self.room(other, *workers, *max_queue, step.now));
        }
        let refusal = match room {
            Room::Full(pool) => Some((pool, Reply::QueueFull)),
            Room::Busy(pool) if request.timeout == Span::ZERO => Some((pool, Reply::Timeout)),
            Room::Busy(_) | Room::Free => None,
        };
        if let Some((by, reason)) = refusal {
            let type_id = self.types.of(request.key);
            self.note_refusal(by, type_id, reason == Reply::QueueFull, step.now);
            self.note_limits(request);
            return Err(reason);
        }
        let pool = known.unwrap_or_else(|hash| self.create(hash, request.key));
        self.latest = pool;
        let (since, is_lowered) = (step.now, hold < asked);
        let id = ClaimId::from_index(self.claims.vacant_key());
        if let Room::Busy(busy) | Room::Full(busy) = room {
            let timeout = step.timers.arm(since + request.timeout, PoolsTimer::Claim(id));
            let phase = ClaimPhase::Waiting { purpose: request.purpose, hold, is_lowered, timeout };
            self.begin_wait(id, Claim { pool, conn, since, phase }, busy, request);
        } else {
            let phase = ClaimPhase::Holding { end: Self::arm_end(id, hold, step), is_lowered };
            self.attach(id, Claim { pool, conn, since, phase });
            self.note_hold(id, conn, pool, step);
        }
        if !request.who.is_empty() || request.keep > Span::ZERO || !request.also.is_empty() {
            self.note_fields(id, request);
        }
        Ok(())
    }

    /// Adds and counts a claim that waits, because of a pool that is busy.
    #[inline(never)]
    fn begin_wait(&mut self, id: ClaimId, claim: Claim, busy: PoolId, request: &AcquireLock<'_>) {
        self.top_keys.count(&self.pools[busy.index()].key, KeyEvent::Wait, claim.since);
        self.note_limits(request);
        self.type_of(claim.pool).queued.bump();
        self.attach(id, claim);
    }

    /// Notes what a request asks for beside its lock.
    #[cold]
    fn note_fields(&mut self, id: ClaimId, request: &AcquireLock<'_>) {
        if !request.who.is_empty() {
            *self.whos.get_mut(id) = request.who.into();
        }
        if request.keep > Span::ZERO {
            self.kept.ask(id, request.keep);
        }
        if !request.also.is_empty() {
            self.attach_parts(id, request.workers, &request.also);
        }
    }

    /// Returns the availability of a lock of a pool for a request; a pool that does not exist yet is free.
    #[inline]
    fn room(&mut self, pool: Option<PoolId>, workers: u32, max_queue: u32, now: Time) -> Room {
        let Some(pool) = pool else { return Room::Free };
        let (holding, occupied) = self.pool_at(pool).occupancy();
        if occupied == 0 {
            Room::Free
        } else if occupied >= max_queue || self.sheds(pool, now) {
            Room::Full(pool)
        } else if holding >= workers || self.is_reserved(pool, None, now) {
            Room::Busy(pool)
        } else {
            Room::Free
        }
    }

    /// Refuses a connection that has reached its limit of claims, or waits.
    fn check_client(&self, conn: ConnId) -> Result<(), Reply> {
        let claims = self.clients.get(conn);
        if claims.len() >= self.settings.max_locks {
            return Err(Reply::LockHeld);
        }
        match claims.back().map(|id| &self.claims[id.index()].phase) {
            Some(ClaimPhase::Waiting { .. }) => Err(Reply::WaitForResponse),
            _ => Ok(()),
        }
    }

    /// Grants a free lock to the oldest waiter, first to a waiter that will work itself.
    fn grant_next(&mut self, pool: PoolId, step: &mut PoolsStep<'_, '_>) {
        if let Some(id) = self.next_waiter(pool, step) {
            self.grant(id, step);
        }
    }

    /// Grants a waiter all that it asked for.
    fn grant(&mut self, id: ClaimId, step: &mut PoolsStep<'_, '_>) {
        self.background.skip(self.claims[id.index()].pool, id, &self.pools, &self.links_by_pool);
        let claim = &mut self.claims[id.index()];
        let pool = &mut self.pools[claim.pool.index()];
        let of_type = &mut self.types[pool.type_id];
        let waited = step.now.since(claim.since);
        pool.queue_of(&claim.phase).remove(&mut self.links_by_pool, id);
        let holding = ClaimPhase::Holding { end: None, is_lowered: false };
        let phase = std::mem::replace(&mut claim.phase, holding);
        pool.queue_of(&claim.phase).push_back(&mut self.links_by_pool, id);
        let ClaimPhase::Waiting { purpose, hold, is_lowered, timeout } = phase else {
            unreachable!("the queues of waiters have only claims that wait, and their parts");
        };
        step.timers.cancel(timeout);
        of_type.waits.record(waited);
        let (own_pool, since) = (claim.pool, claim.since);
        self.note_departure(own_pool, since, step.now);
        self.figures.add(
            match purpose {
                Purpose::Me => Stat::WaitingTimeForMe,
                Purpose::Anyone => Stat::WaitingTimeForAnyone,
            },
            waited,
        );
        let claim = &mut self.claims[id.index()];
        claim.since = step.now;
        claim.phase = ClaimPhase::Holding { end: Self::arm_end(id, hold, step), is_lowered };
        let conn = claim.conn;
        self.note_hold(id, conn, own_pool, step);
        self.hold_parts(id);
    }

    /// Counts a hold that begins now, and replies to its connection.
    #[inline(always)]
    fn note_hold(&mut self, id: ClaimId, conn: ConnId, pool: PoolId, step: &mut PoolsStep<'_, '_>) {
        step.replies.push((conn, Reply::Locked));
        self.held.push_back(id);
        self.type_of(pool).acquired.bump();
    }
}

impl Room {
    /// Returns the smaller availability of two; `self` if they are equal.
    fn or_less(self, other: Room) -> Room {
        match (&self, &other) {
            (Room::Full(_), _) | (_, Room::Free) | (Room::Busy(_), Room::Busy(_)) => self,
            _ => other,
        }
    }
}

impl Pool {
    /// Returns the number of holders, and that of all claims.
    fn occupancy(&self) -> (u32, u32) {
        let holding = self.holders.len();
        (holding, holding + self.waiting_for_me.len() + self.waiting_for_anyone.len())
    }

    /// Returns true if it has no claims.
    fn is_unused(&self) -> bool {
        self.holders.is_empty() && self.waiting_for_me.is_empty() && self.waiting_for_anyone.is_empty()
    }

    fn queue_of(&mut self, phase: &ClaimPhase) -> &mut List<ClaimId> {
        match phase {
            ClaimPhase::Holding { .. } | ClaimPhase::Kept { .. } | ClaimPhase::Part { is_held: true, .. } => {
                &mut self.holders
            }
            ClaimPhase::Waiting { purpose: Purpose::Me, .. } | ClaimPhase::Part { .. } => &mut self.waiting_for_me,
            ClaimPhase::Waiting { purpose: Purpose::Anyone, .. } => &mut self.waiting_for_anyone,
        }
    }
}
