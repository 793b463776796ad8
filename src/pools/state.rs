//! The pools themselves: who holds a place, who waits for one, and who is woken. It knows no sockets, no bytes on the wire
//! and no clock: it takes a connection, a request and the time, and emits replies for any connection.
//!
//! Invariant: a pool exists while somebody holds or waits. A place stands in two queues: that of its connection, oldest
//! first, and one of its pool's three, by what it is. A connection waits for one place at most, and that is its newest.

use crate::id::{ConnId, Id, id};
use crate::list::{Links, List};
use crate::names::{Hash, Names};
use crate::pools::options::PoolsSettings;
use crate::sketch::{Event, Sketch};
use crate::stats::{Figures, Pools as Stat};
use crate::time::{Span, Time};
use crate::wheel::{TimerId, Timers, timer_keys};
use serde::{Deserialize, Serialize};
use slab::Slab;

mod check;
mod saved;
mod survey;
mod types;
mod watch;

pub use saved::SAVED_VERSION;
pub use survey::{Busy, Client};
pub use types::Type;
pub use watch::{Notice, WINDOW};

use types::{TypeId, Types};
use watch::{Refusal, Watch};

/// What `ACQ4ME` and `ACQ4ANY` ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acquire<'a> {
    /// The pool's name: opaque bytes, at least one.
    pub key: &'a [u8],
    /// For whom the work is done.
    pub purpose: Purpose,
    /// A place is free while fewer hold one. At least 1.
    pub workers: u32,
    /// Nobody is let in once so many hold or wait. At least 1.
    pub max_queue: u32,
    /// How long to wait for a place; zero means not at all.
    pub timeout: Span,
    /// How long to hold it at most.
    pub hold: Span,
}

/// For whom a client does the work that it wants a place for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Purpose {
    /// For itself alone: it needs a place of its own.
    Me,
    /// For everybody who asked: once somebody has finished, the waiters need not work.
    Anyone,
}

/// A request whose key, workers or maxqueue is missing, zero or not a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadSyntax;

/// What a connection is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The connection has a place and is to do the work.
    Locked,
    /// Somebody finished the work; no place is held.
    Done,
    /// A place was given back, or a wait withdrawn.
    Released,
    /// Too many hold or wait already.
    QueueFull,
    /// No place came free in time.
    Timeout,
    /// The connection has as many places as it may have.
    LockHeld,
    /// The connection holds no such place.
    NotLocked,
    /// The connection still waits for its last request.
    WaitForResponse,
    /// See [`BadSyntax`].
    BadSyntax,
}

/// One step of the state machine: when it happens, and where its effects go.
pub struct Step<'a, 'w> {
    /// The time of the step.
    pub now: Time,
    /// The timers of the pools.
    pub timers: &'a mut Timers<'w, Timer>,
    /// Who is told what, in order.
    pub replies: &'a mut Vec<(ConnId, Reply)>,
    /// What the operator is told.
    pub notices: &'a mut Vec<Notice>,
}

id! { PoolId }
id! { PlaceId }

timer_keys! {
    /// What the pools arm timers for.
    pub enum Timer {
        /// The place was waited for, or held, for as long as it may be.
        Place(id: PlaceId),
        /// It is time to look whether there is something to tell the operator.
        Watch,
    }
}

/// How many emptied keys are kept, and how large one may be: at most 256 KiB rest here.
const SPARE_KEYS: usize = 1024;
const SPARE_KEY_BYTES: usize = 256;

struct Pool {
    key: Vec<u8>,
    hash: Hash,
    type_id: TypeId,
    holders: List<PlaceId>,
    waiting_for_me: List<PlaceId>,
    waiting_for_anyone: List<PlaceId>,
}

struct Place {
    pool: PoolId,
    conn: ConnId,
    /// When the wait, or else the hold, began.
    since: Time,
    stage: Stage,
}

enum Stage {
    Waiting {
        purpose: Purpose,
        /// How long the place may be held once it is granted.
        hold: Span,
        timeout: TimerId,
    },
    Holding {
        /// Armed when the hold has a limit.
        end: Option<TimerId>,
    },
}

/// All pools, and what each connection has in them.
pub struct State {
    settings: PoolsSettings,
    names: Names<PoolId>,
    pools: Slab<Pool>,
    /// Emptied buffers for the keys of pools to come, so that these are made without allocating.
    spare_keys: Vec<Vec<u8>>,
    places: Slab<Place>,
    /// Each connection's places, oldest first.
    clients: Vec<List<PlaceId>>,
    links_by_client: Links,
    links_by_pool: Links,
    holding: u64,
    figures: Figures<Stat>,
    types: Types,
    sketch: Sketch,
    watch: Watch,
}

impl State {
    /// No pools.
    pub fn new(settings: PoolsSettings) -> Self {
        State {
            settings,
            names: Names::default(),
            pools: Slab::new(),
            spare_keys: Vec::new(),
            places: Slab::new(),
            clients: Vec::new(),
            links_by_client: Links::default(),
            links_by_pool: Links::default(),
            holding: 0,
            figures: Figures::default(),
            types: Types::default(),
            sketch: Sketch::default(),
            watch: Watch::default(),
        }
    }

    /// `ACQ4ME` and `ACQ4ANY`: a place at once, a wait for one, or a refusal.
    pub fn acquire(&mut self, conn: ConnId, request: Result<Acquire<'_>, BadSyntax>, step: &mut Step<'_, '_>) {
        let Err(refusal) = self.try_acquire(conn, request, step) else { return };
        match refusal {
            Reply::LockHeld => self.figures.count(Stat::LockMismatch),
            Reply::WaitForResponse => self.figures.count(Stat::LockWhileWaiting),
            _ => {}
        }
        step.replies.push((conn, refusal));
    }

    /// `RELEASE` and `RELEASE key`: gives back the connection's newest place, or the newest on `key`. A wait is withdrawn.
    pub fn release(&mut self, conn: ConnId, key: Option<&[u8]>, step: &mut Step<'_, '_>) {
        let newest = self.places_of(conn).find(|place| key.is_none_or(|key| key == self.key_of(*place)));
        let Some(id) = newest else {
            self.figures.count(Stat::ReleaseMismatch);
            step.replies.push((conn, Reply::NotLocked));
            return;
        };
        let place = self.vacate(id, step);
        if place.was_held {
            self.wake_after_work(&place, step);
        }
        self.drop_if_unused(place.pool);
        self.figures.count(Stat::TotalReleases);
        step.replies.push((conn, Reply::Released));
    }

    /// A timer is due.
    pub fn expire(&mut self, timer: Timer, step: &mut Step<'_, '_>) {
        match timer {
            Timer::Place(id) => self.end_place(id, step),
            Timer::Watch => self.look_around(step),
        }
    }

    /// The wait of a place has lasted too long, or its hold has.
    fn end_place(&mut self, id: PlaceId, step: &mut Step<'_, '_>) {
        let place = self.detach(id, step.now);
        match place.stage {
            Stage::Waiting { timeout, .. } => {
                timeout.fired();
                self.figures.add(Stat::WastedTimeoutTime, step.now.since(place.since));
                self.note_refusal(place.pool, Refusal::Timeout, step);
                step.replies.push((place.conn, Reply::Timeout));
            }
            Stage::Holding { end } => {
                end.into_iter().for_each(TimerId::fired);
                self.hand_over(place.pool, step);
            }
        }
        self.drop_if_unused(place.pool);
    }

    /// The connection is gone: gives back all that it has, newest first.
    pub fn close(&mut self, conn: ConnId, step: &mut Step<'_, '_>) {
        while let Some(id) = self.clients.get(conn.index()).and_then(List::back) {
            let place = self.vacate(id, step);
            if place.was_held {
                self.hand_over(place.pool, step);
            }
            self.drop_if_unused(place.pool);
        }
    }

    /// What was counted, with the levels as they are now. What happens below the protocol is not known here.
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
        figures.set(Stat::ProcessingWorkers, self.holding);
        figures.set(Stat::WaitingWorkers, self.places.len() as u64 - self.holding);
        figures
    }

    /// Whether nobody holds or waits.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty() && self.pools.is_empty() && self.names.is_empty() && self.holding == 0
    }

    /// How many timers are armed for no place.
    pub fn own_timers(&self) -> usize {
        usize::from(self.watch.timer.is_some())
    }

    /// Lets the request in, or says why not. The order of the checks is part of the protocol.
    fn try_acquire(
        &mut self,
        conn: ConnId,
        request: Result<Acquire<'_>, BadSyntax>,
        step: &mut Step<'_, '_>,
    ) -> Result<(), Reply> {
        self.check_client(conn)?;
        let request = request.map_err(|BadSyntax| Reply::BadSyntax)?;
        let hash = self.names.hash(request.key);
        let known = self.find(hash, request.key);
        let (holding, occupied) = known.map_or((0, 0), |pool| self.pools[pool.index()].occupancy());
        if occupied >= request.max_queue {
            known.into_iter().for_each(|pool| self.note_refusal(pool, Refusal::Full, step));
            return Err(Reply::QueueFull);
        }
        let is_free = holding < request.workers;
        if !is_free && request.timeout == Span::ZERO {
            known.into_iter().for_each(|pool| self.note_refusal(pool, Refusal::Timeout, step));
            return Err(Reply::Timeout);
        }
        let pool = known.unwrap_or_else(|| self.create(hash, request.key));
        let hold = request.hold.min(self.settings.max_hold);
        let id = PlaceId::from_index(self.places.vacant_key());
        let stage = if is_free {
            Stage::Holding { end: None }
        } else {
            let timeout = step.timers.arm(step.now + request.timeout, Timer::Place(id));
            self.sketch.count(request.key, Event::Wait, step.now);
            self.type_of(pool).queued += 1;
            Stage::Waiting { purpose: request.purpose, hold, timeout }
        };
        self.attach(id, Place { pool, conn, since: step.now, stage });
        if is_free {
            self.begin_hold(id, hold, step);
        }
        Ok(())
    }

    fn check_client(&self, conn: ConnId) -> Result<(), Reply> {
        let Some(places) = self.clients.get(conn.index()) else { return Ok(()) };
        if places.len() >= self.settings.max_locks {
            return Err(Reply::LockHeld);
        }
        match places.back().map(|id| &self.places[id.index()].stage) {
            Some(Stage::Waiting { .. }) => Err(Reply::WaitForResponse),
            Some(Stage::Holding { .. }) | None => Ok(()),
        }
    }

    /// After the work is finished: whoever waited for its result is done, and the next who wants to work may.
    fn wake_after_work(&mut self, finished: &Vacated, step: &mut Step<'_, '_>) {
        let worked = step.now.since(finished.since);
        while let Some(id) = self.pools[finished.pool.index()].waiting_for_anyone.front() {
            let waiter = self.vacate(id, step);
            self.figures.add(Stat::GainedTime, worked);
            self.figures.add(Stat::WaitingTimeForGood, step.now.since(waiter.since));
            self.type_of(finished.pool).done += 1;
            step.replies.push((waiter.conn, Reply::Done));
        }
        self.hand_over(finished.pool, step);
    }

    /// A place has come free: grants it to the oldest waiter, one who works for itself first.
    fn hand_over(&mut self, pool: PoolId, step: &mut Step<'_, '_>) {
        let pool = &mut self.pools[pool.index()];
        let of_type = &mut self.types[pool.type_id];
        let waiter = pool.waiting_for_me.front().or_else(|| pool.waiting_for_anyone.front());
        let Some(id) = waiter else { return };
        let place = &mut self.places[id.index()];
        let waited = step.now.since(place.since);
        pool.queue_of(&place.stage).remove(&mut self.links_by_pool, id);
        let stage = std::mem::replace(&mut place.stage, Stage::Holding { end: None });
        pool.queue_of(&place.stage).push_back(&mut self.links_by_pool, id);
        let Stage::Waiting { purpose, hold, timeout } = stage else {
            unreachable!("the queues of waiters hold only places that wait");
        };
        step.timers.cancel(timeout);
        of_type.waits.record(waited);
        self.figures.add(
            match purpose {
                Purpose::Me => Stat::WaitingTimeForMe,
                Purpose::Anyone => Stat::WaitingTimeForAnyone,
            },
            waited,
        );
        self.begin_hold(id, hold, step);
    }

    /// The place is its holder's from now on.
    fn begin_hold(&mut self, id: PlaceId, hold: Span, step: &mut Step<'_, '_>) {
        let place = &mut self.places[id.index()];
        place.since = step.now;
        if hold != Span::FOREVER {
            place.stage = Stage::Holding { end: Some(step.timers.arm(step.now + hold, Timer::Place(id))) };
        }
        step.replies.push((place.conn, Reply::Locked));
        self.holding += 1;
        self.figures.count(Stat::TotalAcquired);
        let pool = place.pool;
        self.type_of(pool).acquired += 1;
        self.watch_locks(step);
    }

    /// Takes a place from whoever has it and disarms its timer. Its pool may be left without anybody.
    fn vacate(&mut self, id: PlaceId, step: &mut Step<'_, '_>) -> Vacated {
        let Place { pool, conn, since, stage } = self.detach(id, step.now);
        let was_held = matches!(stage, Stage::Holding { .. });
        let timer = match stage {
            Stage::Waiting { timeout, .. } => Some(timeout),
            Stage::Holding { end } => end,
        };
        timer.into_iter().for_each(|timer| step.timers.cancel(timer));
        Vacated { pool, conn, since, was_held }
    }

    /// Puts a place into every table, with `id` the next free key of the places.
    fn attach(&mut self, id: PlaceId, place: Place) {
        self.attach_to_client(id, place.conn);
        self.attach_to_pool(id, place);
    }

    fn attach_to_client(&mut self, id: PlaceId, conn: ConnId) {
        if self.clients.len() <= conn.index() {
            self.clients.resize_with(conn.index() + 1, List::default);
        }
        self.clients[conn.index()].push_back(&mut self.links_by_client, id);
    }

    fn attach_to_pool(&mut self, id: PlaceId, place: Place) {
        self.pools[place.pool.index()].queue_of(&place.stage).push_back(&mut self.links_by_pool, id);
        let index = self.places.insert(place);
        debug_assert_eq!(index, id.index(), "the timer of the place was armed for its key");
    }

    /// Takes a place out of every table. Its timer is the caller's to deal with.
    fn detach(&mut self, id: PlaceId, now: Time) -> Place {
        let place = self.places.remove(id.index());
        let pool = &mut self.pools[place.pool.index()];
        let of_type = &mut self.types[pool.type_id];
        let age = now.since(place.since);
        self.clients[place.conn.index()].remove(&mut self.links_by_client, id);
        pool.queue_of(&place.stage).remove(&mut self.links_by_pool, id);
        match place.stage {
            Stage::Waiting { .. } => of_type.waits.record(age),
            Stage::Holding { .. } => {
                of_type.holds.record(age);
                self.holding -= 1;
                self.figures.count(Stat::ProcessedCount);
                self.figures.add(Stat::ProcessingTime, age);
            }
        }
        place
    }

    fn find(&self, hash: Hash, key: &[u8]) -> Option<PoolId> {
        self.names.find(hash, |pool| self.pools[pool.index()].key == key)
    }

    fn create(&mut self, hash: Hash, key: &[u8]) -> PoolId {
        let mut own_key = self.spare_keys.pop().unwrap_or_default();
        own_key.extend_from_slice(key);
        let type_id = self.types.of(key);
        let pool = PoolId::from_index(self.pools.insert(Pool {
            key: own_key,
            hash,
            type_id,
            holders: List::default(),
            waiting_for_me: List::default(),
            waiting_for_anyone: List::default(),
        }));
        self.names.insert(hash, pool, |pool| self.pools[pool.index()].hash);
        pool
    }

    fn drop_if_unused(&mut self, pool: PoolId) {
        if self.pools[pool.index()].occupancy() == (0, 0) {
            let Pool { mut key, hash, .. } = self.pools.remove(pool.index());
            self.names.remove(hash, pool);
            if self.spare_keys.len() < SPARE_KEYS && key.capacity() <= SPARE_KEY_BYTES {
                key.clear();
                self.spare_keys.push(key);
            }
        }
    }

    fn type_of(&mut self, pool: PoolId) -> &mut Type {
        &mut self.types[self.pools[pool.index()].type_id]
    }

    /// The connection's places, newest first.
    fn places_of(&self, conn: ConnId) -> impl Iterator<Item = PlaceId> {
        self.clients.get(conn.index()).into_iter().flat_map(|places| places.iter_back(&self.links_by_client))
    }

    fn key_of(&self, place: PlaceId) -> &[u8] {
        &self.pools[self.places[place.index()].pool.index()].key
    }
}

/// A place that nobody has any more.
struct Vacated {
    pool: PoolId,
    conn: ConnId,
    since: Time,
    was_held: bool,
}

impl Pool {
    /// How many hold a place, and how many hold or wait.
    fn occupancy(&self) -> (u32, u32) {
        let holding = self.holders.len();
        (holding, holding + self.waiting_for_me.len() + self.waiting_for_anyone.len())
    }

    fn queue_of(&mut self, stage: &Stage) -> &mut List<PlaceId> {
        match stage {
            Stage::Holding { .. } => &mut self.holders,
            Stage::Waiting { purpose: Purpose::Me, .. } => &mut self.waiting_for_me,
            Stage::Waiting { purpose: Purpose::Anyone, .. } => &mut self.waiting_for_anyone,
        }
    }
}
