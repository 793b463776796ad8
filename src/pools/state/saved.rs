//! What of the pools outlives the process: written by one that ends, read by the one that takes over.
//! It is independent of the tables, so that these can change. What is written here cannot, without another
//! [`SAVED_VERSION`].

use super::watch::Memory;
use super::{Place, PlaceId, Purpose, Stage, State, Timer, Type};
use crate::histogram::{Histogram, TIME_BOUNDS};
use crate::id::{ConnId, Id};
use crate::record::{Reader, Unreadable, Writer};
use crate::service::IN_ONE_PIECE;
use crate::sketch;
use crate::time::{Span, Time};
use crate::wheel::Timers;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::io;

/// The version of what is written: a [`Head`], then each pool.
pub const SAVED_VERSION: u16 = 1;

/// What was counted.
#[derive(Serialize, Deserialize)]
struct Head {
    figures: Vec<(String, u64)>,
    types: Vec<Type>,
    hot: sketch::Saved,
    watch: Memory,
    /// How many pools follow.
    pools: usize,
}

/// What version 0.9.0 wrote.
#[derive(Deserialize)]
struct InOnePiece {
    figures: Vec<(String, u64)>,
    types: Vec<CoarseType>,
    hot: sketch::Saved,
    watch: Memory,
    pools: Vec<SavedPool>,
}

/// A type of work as version 0.9.0 counted it.
#[derive(Deserialize)]
struct CoarseType {
    name: Vec<u8>,
    acquired: u64,
    queued: u64,
    done: u64,
    full: u64,
    timeouts: u64,
    waits: CoarseHistogram,
    holds: CoarseHistogram,
}

/// A histogram of version 0.9.0: the bounds are [`TIME_BOUNDS`], and one bucket more has none.
#[derive(Deserialize)]
struct CoarseHistogram {
    counts: [u64; 17],
    sum: u64,
}

/// The places of each connection are found in their order once all are there: connection, newer places, place.
type Ranks = Vec<(ConnId, Reverse<u32>, PlaceId)>;

#[derive(Serialize, Deserialize)]
struct SavedPool {
    key: Vec<u8>,
    /// In the order of their queues.
    places: Vec<SavedPlace>,
}

#[derive(Serialize, Deserialize)]
struct SavedPlace {
    conn: ConnId,
    /// How many places the connection has that are newer.
    newer: u32,
    since: Time,
    stage: SavedStage,
}

#[derive(Serialize, Deserialize)]
enum SavedStage {
    Waiting { purpose: Purpose, hold: Span, until: Time },
    Holding { until: Option<Time> },
}

impl CoarseType {
    fn refine(self) -> Type {
        let fine = |CoarseHistogram { counts, sum }| Histogram::of_coarse(TIME_BOUNDS, &counts, sum);
        Type {
            name: self.name,
            acquired: self.acquired,
            queued: self.queued,
            done: self.done,
            full: self.full,
            timeouts: self.timeouts,
            waits: fine(self.waits),
            holds: fine(self.holds),
        }
    }
}

impl State {
    /// Writes everything, with deadlines in place of timers.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn save(&self, out: &mut Writer<'_>, timers: &Timers<'_, Timer>) -> io::Result<()> {
        out.put(&Head {
            figures: self.figures.save(),
            types: self.types.save(),
            hot: self.sketch.save(),
            watch: self.watch.memory.clone(),
            pools: self.pools.len(),
        })?;
        let newer = self.newer_places()?;
        for (_, pool) in &self.pools {
            let places = self.places_in(pool).map(|id| self.save_place(id, newer[id.index()], timers));
            out.put(&SavedPool { key: pool.key.clone(), places: places.collect() })?;
        }
        Ok(())
    }

    /// Goes on from what another process saved.
    ///
    /// # Errors
    ///
    /// When it contradicts itself.
    pub fn restore(
        &mut self,
        version: u16,
        saved: &mut Reader<'_>,
        timers: &mut Timers<'_, Timer>,
    ) -> Result<(), Unreadable> {
        let mut ranks = Ranks::new();
        match version {
            SAVED_VERSION => {
                let head: Head = saved.take()?;
                let pools = head.pools;
                self.restore_head(head);
                for _ in 0..pools {
                    self.restore_pool(saved.take()?, &mut ranks, timers)?;
                }
            }
            IN_ONE_PIECE => {
                let InOnePiece { figures, types, hot, watch, pools } = saved.take()?;
                let types = types.into_iter().map(CoarseType::refine).collect();
                self.restore_head(Head { figures, types, hot, watch, pools: pools.len() });
                pools.into_iter().try_for_each(|pool| self.restore_pool(pool, &mut ranks, timers))?;
            }
            _ => return Err(Unreadable::version("pools", version)),
        }
        ranks.sort_unstable();
        ranks.into_iter().for_each(|(conn, _, id)| self.attach_to_client(id, conn));
        self.watch_again(self.next_look(), timers);
        Ok(())
    }

    fn restore_head(&mut self, head: Head) {
        self.figures.restore(&head.figures);
        self.types.restore(head.types);
        self.sketch.restore(head.hot);
        self.watch.memory = head.watch;
    }

    fn restore_pool(
        &mut self,
        SavedPool { key, places }: SavedPool,
        ranks: &mut Ranks,
        timers: &mut Timers<'_, Timer>,
    ) -> Result<(), Unreadable> {
        let hash = self.names.hash(&key);
        if self.find(hash, &key).is_some() || places.is_empty() {
            return Err(Unreadable("pools: a key stands there twice, or without places".into()));
        }
        let pool = self.create(hash, &key);
        for SavedPlace { conn, newer, since, stage } in places {
            let id = PlaceId::from_index(self.places.vacant_key());
            self.holding += u64::from(matches!(stage, SavedStage::Holding { .. }));
            let stage = match stage {
                SavedStage::Waiting { purpose, hold, until } => {
                    Stage::Waiting { purpose, hold, timeout: timers.arm(until, Timer::Place(id)) }
                }
                SavedStage::Holding { until } => {
                    Stage::Holding { end: until.map(|until| timers.arm(until, Timer::Place(id))) }
                }
            };
            self.attach_to_pool(id, Place { pool, conn, since, stage });
            ranks.push((conn, Reverse(newer), id));
        }
        Ok(())
    }

    /// By place: how many places its connection has that are newer.
    fn newer_places(&self) -> io::Result<Vec<u32>> {
        let len = self.places.iter().next_back().map_or(0, |(index, _)| index + 1);
        let mut newer = Vec::new();
        newer.try_reserve_exact(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        newer.resize(len, 0);
        for places in &self.clients {
            for (rank, id) in (0..).zip(places.iter_back(&self.links_by_client)) {
                newer[id.index()] = rank;
            }
        }
        Ok(newer)
    }

    fn save_place(&self, id: PlaceId, newer: u32, timers: &Timers<'_, Timer>) -> SavedPlace {
        let Place { conn, since, stage, .. } = &self.places[id.index()];
        let stage = match stage {
            Stage::Waiting { purpose, hold, timeout } => {
                SavedStage::Waiting { purpose: *purpose, hold: *hold, until: timers.deadline(timeout) }
            }
            Stage::Holding { end } => SavedStage::Holding { until: end.as_ref().map(|end| timers.deadline(end)) },
        };
        SavedPlace { conn: *conn, newer, since: *since, stage }
    }
}
