//! What of the pools outlives the process: written by one that ends, read by the one that takes over.
//! It is independent of the tables, so that these can change. What is written here cannot, without a new version of the handover.

use super::watch::Memory;
use super::{Place, PlaceId, Purpose, Stage, State, Timer, Type};
use crate::id::{ConnId, Id};
use crate::service::Unreadable;
use crate::sketch;
use crate::time::{Span, Time};
use crate::wheel::Timers;
use serde::{Deserialize, Serialize};

/// All pools, and what was counted.
#[derive(Serialize, Deserialize)]
pub struct Saved {
    figures: Vec<(String, u64)>,
    types: Vec<Type>,
    hot: sketch::Saved,
    watch: Memory,
    pools: Vec<SavedPool>,
}

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

impl State {
    /// Everything, with deadlines in place of timers.
    pub fn save(&self, timers: &Timers<'_, Timer>) -> Saved {
        let pools = self.pools.iter().map(|(_, pool)| SavedPool {
            key: pool.key.clone(),
            places: self.places_in(pool).map(|id| self.save_place(id, timers)).collect(),
        });
        Saved {
            figures: self.figures.save(),
            types: self.types.save(),
            hot: self.sketch.save(),
            watch: self.watch.memory.clone(),
            pools: pools.collect(),
        }
    }

    /// Goes on from what another process saved.
    ///
    /// # Errors
    ///
    /// When it contradicts itself.
    pub fn restore(&mut self, saved: Saved, timers: &mut Timers<'_, Timer>) -> Result<(), Unreadable> {
        self.figures.restore(&saved.figures);
        self.types.restore(saved.types);
        self.sketch.restore(saved.hot);
        self.watch.memory = saved.watch;
        let mut ranks = Vec::new();
        for SavedPool { key, places } in saved.pools {
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
                ranks.push((conn, std::cmp::Reverse(newer), id));
            }
        }
        ranks.sort_unstable();
        ranks.into_iter().for_each(|(conn, _, id)| self.attach_to_client(id, conn));
        self.watch_again(self.next_look(), timers);
        Ok(())
    }

    fn save_place(&self, id: PlaceId, timers: &Timers<'_, Timer>) -> SavedPlace {
        let Place { conn, since, stage, .. } = &self.places[id.index()];
        let newer = self.places_of(*conn).take_while(|other| *other != id).count() as u32;
        let stage = match stage {
            Stage::Waiting { purpose, hold, timeout } => {
                SavedStage::Waiting { purpose: *purpose, hold: *hold, until: timers.deadline(timeout) }
            }
            Stage::Holding { end } => SavedStage::Holding { until: end.as_ref().map(|end| timers.deadline(end)) },
        };
        SavedPlace { conn: *conn, newer, since: *since, stage }
    }
}
