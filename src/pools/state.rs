//! The state machine of the pools: which connections hold locks, which wait, and which are woken. It knows no sockets, no
//! bytes on the wire and no clock: it takes a connection, a request and the time, and emits replies for any connection.
//!
//! A claim is what a connection has in a pool: it holds a lock, or waits for one. It may be on several pools at once: then it has
//! *parts* (`parts.rs`).
//!
//! Invariant: between turns a pool exists while it has claims. Within one, an emptied pool is kept for the requests behind it: a
//! lock that is taken and given back over and over in one packet makes no pool twice. A claim stands in two queues: that of its
//! connection, oldest first, and one of its pool's three, by its phase; a part stands in the latter alone. A connection has at most one claim that waits, and that is
//! its newest.

use crate::options::PoolsSettings;
use by_pool::ClaimsByPool;
use poolcounter_core::id::{ConnId, Id, id};
use poolcounter_core::list::{Links, List};
use poolcounter_core::names::{Hash, Names};
use poolcounter_core::stats::Figures;
use poolcounter_core::time::{Span, Time};
use poolcounter_core::top_keys::{KeyEvent, TopKeys};
use poolcounter_core::wheel::{TimerId, Timers, timer_keys};
use poolcounter_protocol::pools::stats::PoolStat as Stat;
use slab::Slab;

mod alerts;
mod by_pool;
mod ceilings;
mod check;
mod health;
mod held;
mod parts;
mod queries;
mod saved;
mod tables;
mod types;
mod who;

pub use alerts::{PoolEvent, WINDOW};
pub use ceilings::CeilingInUse;
pub use health::{OverdueLock, RefusingKey};
pub use poolcounter_protocol::pools::request::{AcquireLock, BadSyntax, KeyLimits, Purpose, Reply};
pub use queries::{BusiestSearch, BusyKey, CLIENTS_LOOKED_AT, ClaimInfo, KEYS_LOOKED_AT, WhichKeys};
pub use saved::SAVED_VERSION;
pub use types::WorkType;

use alerts::{Alerts, RefusalReason};
use ceilings::Ceilings;
use held::HeldLocks;
use parts::{Freed, Parts};
use types::{TypeId, Types};
use who::Whos;

/// One step of the state machine: when it happens, and where its effects go.
pub struct PoolsStep<'a, 'w> {
    /// The time of the step.
    pub now: Time,
    /// The timers of the pools.
    pub timers: &'a mut Timers<'w, PoolsTimer>,
    /// The replies, in order.
    pub replies: &'a mut Vec<(ConnId, Reply)>,
    /// The events for the operator.
    pub events: &'a mut Vec<PoolEvent>,
}

id! { PoolId }
id! { ClaimId }

timer_keys! {
    /// What the pools arm timers for.
    pub enum PoolsTimer {
        /// The wait of the claim, or its hold, has reached its limit.
        Claim(id: ClaimId),
        /// An alert may be due.
        Alerts,
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
    /// When the wait, or else the hold, began.
    since: Time,
    phase: ClaimPhase,
}

enum ClaimPhase {
    Waiting {
        purpose: Purpose,
        /// How long the lock may be held once it is granted.
        hold: Span,
        timeout: TimerId,
    },
    Holding {
        /// Armed when the hold has a limit.
        end: Option<TimerId>,
        /// How many of the ages at which a lock is reported it has passed.
        passed: u8,
    },
    /// It is a part of another claim, and waits or holds with it.
    Part { whole: ClaimId, is_held: bool },
}

/// All pools, and the claims of each connection in them.
pub struct PoolsState {
    settings: PoolsSettings,
    /// No lock is granted to a request that comes, and none waits.
    refuses_new: bool,
    names: Names<PoolId>,
    pools: Slab<Pool>,
    /// The pools that were emptied in this turn. Some may have claims again, and some be named several times.
    emptied: Vec<PoolId>,
    /// Emptied buffers for the keys of pools to come, so that these are made without allocating.
    spare_keys: Vec<Vec<u8>>,
    claims: Slab<Claim>,
    whos: Whos,
    parts: Parts,
    /// By connection: its claims, oldest first.
    clients: Vec<List<ClaimId>>,
    links_by_client: Links,
    claims_by_pool: ClaimsByPool,
    links_by_pool: Links,
    held: HeldLocks,
    figures: Figures<Stat>,
    types: Types,
    top_keys: TopKeys,
    alerts: Alerts,
    ceilings: Ceilings,
}

/// Whether a pool has a lock to give to a request.
enum Room {
    Free,
    Busy(PoolId),
    Full(PoolId),
}

impl PoolsState {
    /// Returns a state without pools.
    pub fn new(mut settings: PoolsSettings) -> Self {
        let ceilings = Ceilings::new(std::mem::take(&mut settings.ceilings));
        PoolsState {
            settings,
            refuses_new: false,
            names: Names::default(),
            pools: Slab::new(),
            emptied: Vec::new(),
            spare_keys: Vec::new(),
            claims: Slab::new(),
            whos: Whos::default(),
            parts: Parts::default(),
            clients: Vec::new(),
            links_by_client: Links::default(),
            claims_by_pool: ClaimsByPool::default(),
            links_by_pool: Links::default(),
            held: HeldLocks::default(),
            figures: Figures::default(),
            types: Types::default(),
            top_keys: TopKeys::default(),
            alerts: Alerts::default(),
            ceilings,
        }
    }

    /// Handles `ACQ4ME` and `ACQ4ANY`: grants a lock at once, lets the connection wait, or refuses. Ceilings lower what is asked for.
    pub fn acquire(
        &mut self,
        conn: ConnId,
        request: Result<&mut AcquireLock<'_>, BadSyntax>,
        step: &mut PoolsStep<'_, '_>,
    ) {
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
        if !self.note_if_emptied(claim.pool) && claim.was_held {
            self.wake_after_work(&claim, step);
            self.note_if_emptied(claim.pool);
        }
        self.grant_freed(claim.freed, step);
        self.figures.count(Stat::TotalReleases);
        step.replies.push((conn, Reply::Released));
    }

    /// Ends the wait of a connection that may not wait any more. What it holds stays.
    pub fn deny_wait(&mut self, conn: ConnId, step: &mut PoolsStep<'_, '_>) {
        let Some(id) = self.waiting_claim(conn) else { return };
        let claim = self.withdraw(id, step);
        self.note_if_emptied(claim.pool);
        self.grant_freed(claim.freed, step);
        step.replies.push((conn, Reply::Denied));
    }

    /// Returns the claim for which a connection waits.
    fn waiting_claim(&self, conn: ConnId) -> Option<ClaimId> {
        self.claims_of(conn).next().filter(|newest| self.claim_info(*newest).waits_for.is_some())
    }

    /// Handles a timer that is due.
    pub fn expire(&mut self, timer: PoolsTimer, step: &mut PoolsStep<'_, '_>) {
        match timer {
            PoolsTimer::Claim(id) => self.expire_claim(id, step),
            PoolsTimer::Alerts => self.expire_alerts(step),
        }
    }

    /// Ends a claim whose wait or hold has reached its limit.
    fn expire_claim(&mut self, id: ClaimId, step: &mut PoolsStep<'_, '_>) {
        let freed = self.other_pools(id);
        let claim = self.detach(id, step.now);
        match claim.phase {
            ClaimPhase::Waiting { timeout, .. } => {
                timeout.fired();
                self.figures.add(Stat::WastedTimeoutTime, step.now.since(claim.since));
                let type_id = self.pool_at(claim.pool).type_id;
                self.note_refusal(claim.pool, type_id, RefusalReason::Timeout, step);
                step.replies.push((claim.conn, Reply::Timeout));
            }
            ClaimPhase::Holding { end, .. } => {
                end.into_iter().for_each(TimerId::fired);
                self.grant_next(claim.pool, step);
                self.grant_freed(freed, step);
            }
            ClaimPhase::Part { .. } => unreachable!("a part has no timer"),
        }
        self.note_if_emptied(claim.pool);
    }

    /// Removes all claims of a connection that is gone, newest first.
    pub fn close(&mut self, conn: ConnId, step: &mut PoolsStep<'_, '_>) {
        while let Some(id) = self.clients.get(conn.index()).and_then(List::back) {
            let claim = self.withdraw(id, step);
            if claim.was_held {
                self.grant_next(claim.pool, step);
                self.grant_freed(claim.freed, step);
            }
            self.note_if_emptied(claim.pool);
        }
    }

    /// Refuses new requests from now on, or takes them again. Those that wait are granted locks all the same.
    pub fn set_refusing(&mut self, refuses_new: bool) {
        self.refuses_new = refuses_new;
    }

    /// Returns what was counted, with the levels as they are now. What happens below the protocol is not known here.
    pub fn figures(&self, now: Time) -> Figures<Stat> {
        let mut figures = self.figures.clone();
        let locks_back = figures.of(Stat::ProcessedCount).max(1);
        figures.set(Stat::Uptime, now.as_micros());
        figures.set(Stat::AverageProcessingTime, figures.of(Stat::ProcessingTime) / locks_back);
        figures.set(
            Stat::WaitingTime,
            figures.of(Stat::WaitingTimeForMe).saturating_add(figures.of(Stat::WaitingTimeForAnyone)),
        );
        figures.set(Stat::HashtableEntries, self.pools.len() as u64);
        figures.set(Stat::ProcessingWorkers, self.working());
        figures.set(Stat::WaitingWorkers, self.waiting());
        figures
    }

    /// Returns true when there are no claims.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.pools.is_empty() && self.names.is_empty() && self.held.len() == 0
    }

    /// Returns how many timers are armed for no claim.
    pub fn background_timers(&self) -> usize {
        usize::from(self.alerts.timer.is_some())
    }

    /// Makes a claim, or returns the refusal. The order of the checks is part of the protocol.
    fn try_acquire(
        &mut self,
        conn: ConnId,
        request: Result<&mut AcquireLock<'_>, BadSyntax>,
        step: &mut PoolsStep<'_, '_>,
    ) -> Result<(), Reply> {
        self.check_client(conn)?;
        let request = request.map_err(|BadSyntax| Reply::BadSyntax)?;
        if self.refuses_new {
            return Err(Reply::Draining);
        }
        if !self.ceilings.is_empty() {
            self.ceilings.lower(request);
        }
        let hash = self.names.hash(request.key);
        let known = self.find(hash, request.key);
        let mut room = self.room(known, request.workers, request.max_queue, step.now);
        for KeyLimits { key, workers, max_queue } in &request.also {
            let other = self.find(self.names.hash(key), key);
            room = room.or_less(self.room(other, *workers, *max_queue, step.now));
        }
        let refusal = match room {
            Room::Full(pool) => Some((pool, RefusalReason::Full)),
            Room::Busy(pool) if request.timeout == Span::ZERO => Some((pool, RefusalReason::Timeout)),
            Room::Busy(_) | Room::Free => None,
        };
        if let Some((by, reason)) = refusal {
            let type_id = self.types.of(request.key);
            self.note_refusal(by, type_id, reason, step);
            return Err(reason.reply());
        }
        let pool = known.unwrap_or_else(|| self.create(hash, request.key));
        let hold = request.hold.min(self.settings.max_hold);
        let id = ClaimId::from_index(self.claims.vacant_key());
        let (phase, is_free) = match room {
            Room::Busy(busy) | Room::Full(busy) => {
                let timeout = step.timers.arm(step.now + request.timeout, PoolsTimer::Claim(id));
                self.top_keys.count(&self.pools[busy.index()].key, KeyEvent::Wait, step.now);
                self.type_of(pool).queued.bump();
                (ClaimPhase::Waiting { purpose: request.purpose, hold, timeout }, false)
            }
            Room::Free => (ClaimPhase::Holding { end: None, passed: 0 }, true),
        };
        self.attach(id, Claim { pool, conn, since: step.now, phase });
        if !request.who.is_empty() {
            self.whos.note(id, request.who);
        }
        if !request.also.is_empty() {
            self.attach_parts(id, request.workers, &request.also);
        }
        if is_free {
            self.begin_hold(id, hold, step);
        }
        Ok(())
    }

    /// Returns whether a pool has a lock for a request; one that does not exist yet has.
    #[inline]
    fn room(&mut self, pool: Option<PoolId>, workers: u32, max_queue: u32, now: Time) -> Room {
        let Some(pool) = pool else { return Room::Free };
        let (holding, occupied) = self.pool_at(pool).occupancy();
        if occupied >= max_queue || self.sheds(pool, now) {
            Room::Full(pool)
        } else if holding >= workers {
            Room::Busy(pool)
        } else {
            Room::Free
        }
    }

    /// Refuses a connection that has as many claims as it may, or waits.
    fn check_client(&self, conn: ConnId) -> Result<(), Reply> {
        let Some(claims) = self.clients.get(conn.index()) else { return Ok(()) };
        if claims.len() >= self.settings.max_locks {
            return Err(Reply::LockHeld);
        }
        match claims.back().map(|id| &self.claims[id.index()].phase) {
            Some(ClaimPhase::Waiting { .. }) => Err(Reply::WaitForResponse),
            Some(ClaimPhase::Holding { .. } | ClaimPhase::Part { .. }) | None => Ok(()),
        }
    }

    /// Ends the waits for the result of work that is finished, and grants the lock to the next waiter.
    fn wake_after_work(&mut self, finished: &Withdrawn, step: &mut PoolsStep<'_, '_>) {
        let worked = step.now.since(finished.since);
        while let Some(id) = self.pools[finished.pool.index()].waiting_for_anyone.front() {
            let waiter = self.withdraw(id, step);
            self.figures.add(Stat::GainedTime, worked);
            self.figures.add(Stat::WaitingTimeForGood, step.now.since(waiter.since));
            self.type_of(finished.pool).done.bump();
            step.replies.push((waiter.conn, Reply::Done));
        }
        self.grant_next(finished.pool, step);
    }

    /// Grants a lock that has come free to the oldest waiter, first among those that work for themselves.
    fn grant_next(&mut self, pool: PoolId, step: &mut PoolsStep<'_, '_>) {
        let Some(id) = self.next_waiter(pool) else { return };
        let claim = &mut self.claims[id.index()];
        let pool = &mut self.pools[claim.pool.index()];
        let of_type = &mut self.types[pool.type_id];
        let waited = step.now.since(claim.since);
        pool.queue_of(&claim.phase).remove(&mut self.links_by_pool, id);
        let phase = std::mem::replace(&mut claim.phase, ClaimPhase::Holding { end: None, passed: 0 });
        pool.queue_of(&claim.phase).push_back(&mut self.links_by_pool, id);
        let ClaimPhase::Waiting { purpose, hold, timeout } = phase else {
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
        self.begin_hold(id, hold, step);
        self.hold_parts(id);
    }

    /// Begins the hold of a claim.
    fn begin_hold(&mut self, id: ClaimId, hold: Span, step: &mut PoolsStep<'_, '_>) {
        let claim = &mut self.claims[id.index()];
        claim.since = step.now;
        if hold != Span::FOREVER {
            let end = Some(step.timers.arm(step.now + hold, PoolsTimer::Claim(id)));
            claim.phase = ClaimPhase::Holding { end, passed: 0 };
        }
        step.replies.push((claim.conn, Reply::Locked));
        self.held.push(id, 0);
        self.figures.count(Stat::TotalAcquired);
        let pool = claim.pool;
        self.type_of(pool).acquired.bump();
        self.schedule_lock_scan(step);
    }

    /// Removes a claim from every table and disarms its timer. Its pool may be left without claims.
    #[inline]
    fn withdraw(&mut self, id: ClaimId, step: &mut PoolsStep<'_, '_>) -> Withdrawn {
        let freed = self.other_pools(id);
        let Claim { pool, conn, since, phase } = self.detach(id, step.now);
        let was_held = matches!(phase, ClaimPhase::Holding { .. });
        let timer = match phase {
            ClaimPhase::Waiting { timeout, .. } => Some(timeout),
            ClaimPhase::Holding { end, .. } => end,
            ClaimPhase::Part { .. } => None,
        };
        timer.into_iter().for_each(|timer| step.timers.cancel(timer));
        Withdrawn { pool, conn, since, was_held, freed }
    }

    fn type_of(&mut self, pool: PoolId) -> &mut WorkType {
        &mut self.types[self.pools[pool.index()].type_id]
    }

    fn key_of(&self, claim: ClaimId) -> &[u8] {
        &self.pools[self.claims[claim.index()].pool.index()].key
    }
}

/// A claim that was removed.
struct Withdrawn {
    pool: PoolId,
    conn: ConnId,
    since: Time,
    was_held: bool,
    /// The other pools that it had locks of, if it was held.
    freed: Vec<Freed>,
}

impl Room {
    /// Returns the one that has less to give, and itself if they have the same.
    fn or_less(self, other: Room) -> Room {
        match (&self, &other) {
            (Room::Full(_), _) | (_, Room::Free) | (Room::Busy(_), Room::Busy(_)) => self,
            _ => other,
        }
    }
}

impl Pool {
    /// Returns how many claims are held, and how many there are.
    fn occupancy(&self) -> (u32, u32) {
        let holding = self.holders.len();
        (holding, holding + self.waiting_for_me.len() + self.waiting_for_anyone.len())
    }

    fn queue_of(&mut self, phase: &ClaimPhase) -> &mut List<ClaimId> {
        match phase {
            ClaimPhase::Holding { .. } | ClaimPhase::Part { is_held: true, .. } => &mut self.holders,
            ClaimPhase::Waiting { purpose: Purpose::Me, .. } | ClaimPhase::Part { .. } => &mut self.waiting_for_me,
            ClaimPhase::Waiting { purpose: Purpose::Anyone, .. } => &mut self.waiting_for_anyone,
        }
    }
}
