//! Handover format of the pools: written by a process that is replaced, read by its successor. It is independent of the
//! tables, so that these can change.

use super::parts::Part;
use super::{Claim, ClaimId, ClaimPhase, PoolsState, PoolsTimer, Purpose, WorkType};
use poolcounter_core::top_keys::SavedTopKeys;
use poolcounter_core::{ConnId, Id, Reader, Span, Time, Timers, Unreadable, Writer};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::io;

/// First record: statistics.
#[derive(Serialize, Deserialize)]
struct PoolsHead {
    figures: Vec<(String, u64)>,
    types: Vec<WorkType>,
    top_keys: SavedTopKeys,
    /// Begin of the window in which `top_keys` counts refusals.
    refusing_since: Option<Time>,
    /// Number of pools that follow.
    pools: usize,
}

/// Claims by connection and, within one, from the oldest: connection, number of newer claims, claim.
type Ranks = Vec<(ConnId, Reverse<u32>, ClaimId)>;

/// Handover of a part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct SavedPart {
    /// Index in the claim's list of parts.
    place: u32,
    /// Most holders of a lock of the pool of its whole.
    whole_workers: u32,
    /// Most holders of a lock of its own pool.
    workers: u32,
}

/// Restored claims that are not assigned to their connections and wholes yet.
#[derive(Default)]
struct Loose {
    wholes: Ranks,
    /// Parts, each with the rank of its whole.
    parts: Vec<((ConnId, Reverse<u32>), SavedPart, ClaimId)>,
    /// Kept locks with their ends.
    kept: Vec<(ClaimId, Time)>,
}

#[derive(Serialize, Deserialize)]
struct SavedPool {
    key: Vec<u8>,
    /// Claims in the order of their queues.
    claims: Vec<SavedClaim>,
}

#[derive(Serialize, Deserialize)]
struct SavedClaim {
    conn: ConnId,
    /// Number of newer claims of its connection.
    newer: u32,
    since: Time,
    /// Name that the client gave; may be empty.
    who: Box<[u8]>,
    phase: SavedPhase,
}

#[derive(Serialize, Deserialize)]
enum SavedPhase {
    Waiting {
        purpose: Purpose,
        hold: Span,
        /// True if the client asked for a longer hold.
        is_lowered: bool,
        keep: Span,
        until: Time,
    },
    Holding {
        is_lowered: bool,
        keep: Span,
        until: Option<Time>,
    },
    Kept {
        until: Time,
    },
    /// A part of the claim with the same number of newer claims.
    Part {
        is_held: bool,
        part: SavedPart,
    },
}

impl PoolsState {
    /// Writes the whole state, with deadlines in place of timers.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be written.
    pub fn save(&self, out: &mut Writer<'_>, timers: &Timers<'_, PoolsTimer>) -> io::Result<()> {
        out.put(&PoolsHead {
            figures: self.figures.save(),
            types: self.types.save(),
            top_keys: self.top_keys.save(),
            refusing_since: self.refusing_since,
            pools: self.keys(),
        })?;
        let newer = self.newer_claims()?;
        for (_, pool) in self.pools.iter().filter(|(_, pool)| !pool.is_unused()) {
            let claims = self.claims_in(pool).map(|id| self.save_claim(id, newer[self.whole_of(id).index()], timers));
            out.put(&SavedPool { key: pool.key.clone(), claims: claims.collect() })?;
        }
        Ok(())
    }

    /// Restores the state that another process saved.
    ///
    /// # Errors
    ///
    /// Fails if the record contradicts itself.
    pub fn restore(
        &mut self,
        saved: &mut Reader<'_>,
        now: Time,
        timers: &mut Timers<'_, PoolsTimer>,
    ) -> Result<(), Unreadable> {
        let PoolsHead { figures, types, top_keys, refusing_since, pools } = saved.take()?;
        self.figures.restore(&figures);
        self.types.restore(types);
        self.top_keys.restore(top_keys);
        self.refusing_since = refusing_since;
        let mut loose = Loose::default();
        for _ in 0..pools {
            self.restore_pool(saved.take()?, &mut loose, now, timers)?;
        }
        let Loose { mut wholes, mut parts, kept } = loose;
        self.restore_kept(kept);
        wholes.sort_unstable();
        parts.sort_unstable();
        parts.into_iter().try_for_each(|(rank, part, id)| self.restore_part(&wholes, rank, part, id))?;
        wholes.into_iter().for_each(|(conn, _, id)| self.attach_to_client(id, conn));
        let held = self.oldest_first(|_, phase| matches!(phase, ClaimPhase::Holding { .. }));
        held.into_iter().for_each(|id| self.held.push_back(id));
        let waits = |id, phase: &ClaimPhase| matches!(phase, ClaimPhase::Waiting { .. }) && self.parts.of(id).is_some();
        let waiting = self.oldest_first(waits);
        waiting.into_iter().for_each(|id| self.await_parts(id));
        Ok(())
    }

    fn restore_pool(
        &mut self,
        SavedPool { key, claims }: SavedPool,
        loose: &mut Loose,
        now: Time,
        timers: &mut Timers<'_, PoolsTimer>,
    ) -> Result<(), Unreadable> {
        let hash = self.names.hash(&key);
        if self.find(hash, &key).is_some() || claims.is_empty() {
            return Err(Unreadable("pools: a key is there twice, or has no claims".into()));
        }
        let pool = self.create(hash, &key);
        for SavedClaim { conn, newer, since, who, phase: saved } in claims {
            let id = ClaimId::from_index(self.claims.vacant_key());
            let phase = match saved {
                SavedPhase::Waiting { purpose, hold, is_lowered, until, .. } => {
                    let timeout = timers.arm(until, PoolsTimer::Claim(id));
                    ClaimPhase::Waiting { purpose, hold, is_lowered, timeout }
                }
                SavedPhase::Holding { is_lowered, until, .. } => {
                    let end = until.map(|until| timers.arm(until, PoolsTimer::Claim(id)));
                    ClaimPhase::Holding { end, is_lowered }
                }
                SavedPhase::Kept { until } => ClaimPhase::Kept { end: timers.arm(until, PoolsTimer::Claim(id)) },
                // Its whole is assigned once all claims are restored.
                SavedPhase::Part { is_held, .. } => ClaimPhase::Part { whole: id, is_held },
            };
            match saved {
                SavedPhase::Part { part, .. } => loose.parts.push(((conn, Reverse(newer)), part, id)),
                SavedPhase::Kept { until } => loose.kept.push((id, until)),
                SavedPhase::Waiting { keep, .. } | SavedPhase::Holding { keep, .. } => {
                    loose.wholes.push((conn, Reverse(newer), id));
                    if keep > Span::ZERO {
                        self.kept.ask(id, keep);
                    }
                }
            }
            // Queues are in the order of time.
            self.attach_to_pool(id, Claim { pool, conn, since: since.min(now), phase });
            if !who.is_empty() {
                *self.whos.get_mut(id) = who;
            }
        }
        Ok(())
    }

    /// Assigns a part to its whole.
    fn restore_part(
        &mut self,
        wholes: &Ranks,
        (conn, newer): (ConnId, Reverse<u32>),
        SavedPart { whole_workers, workers, .. }: SavedPart,
        id: ClaimId,
    ) -> Result<(), Unreadable> {
        let place = wholes.binary_search_by_key(&(conn, newer), |(conn, newer, _)| (*conn, *newer));
        let (.., whole) =
            place.map(|place| wholes[place]).map_err(|_| Unreadable("pools: a part has no whole".into()))?;
        let holds = matches!(self.claims[whole.index()].phase, ClaimPhase::Holding { .. });
        match &mut self.claims[id.index()].phase {
            ClaimPhase::Part { whole: of, is_held } if *is_held == holds => *of = whole,
            _ => return Err(Unreadable("pools: a part is not like its whole".into())),
        }
        self.parts.add((whole, conn), whole_workers, Part { id, workers });
        Ok(())
    }

    /// Returns the claims that are meant, in the order of their times.
    fn oldest_first(&self, is_meant: impl Fn(ClaimId, &ClaimPhase) -> bool) -> Vec<ClaimId> {
        let claims = self.claims.iter().map(|(index, claim)| (ClaimId::from_index(index), claim));
        let meant = claims.filter(|(id, claim)| is_meant(*id, &claim.phase));
        let mut meant: Vec<(Time, ClaimId)> = meant.map(|(id, claim)| (claim.since, id)).collect();
        meant.sort_unstable();
        meant.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns, by claim, the number of newer claims of its connection.
    fn newer_claims(&self) -> io::Result<Vec<u32>> {
        let len = self.claims.iter().next_back().map_or(0, |(index, _)| index + 1);
        let mut newer = Vec::new();
        newer.try_reserve_exact(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        newer.resize(len, 0);
        for (_, claims) in self.clients.iter() {
            for (rank, id) in (0..).zip(claims.iter_back(&self.links_by_client)) {
                newer[id.index()] = rank;
            }
        }
        Ok(newer)
    }

    fn save_claim(&self, id: ClaimId, newer: u32, timers: &Timers<'_, PoolsTimer>) -> SavedClaim {
        let Claim { conn, since, phase, .. } = &self.claims[id.index()];
        let phase = match phase {
            ClaimPhase::Waiting { purpose, hold, is_lowered, timeout } => SavedPhase::Waiting {
                purpose: *purpose,
                hold: *hold,
                is_lowered: *is_lowered,
                keep: self.kept.asked(id),
                until: timers.deadline(timeout),
            },
            ClaimPhase::Holding { end, is_lowered, .. } => {
                let until = end.as_ref().map(|end| timers.deadline(end));
                SavedPhase::Holding { is_lowered: *is_lowered, keep: self.kept.asked(id), until }
            }
            ClaimPhase::Kept { end } => SavedPhase::Kept { until: timers.deadline(end) },
            ClaimPhase::Part { whole, is_held } => {
                SavedPhase::Part { is_held: *is_held, part: self.save_part(*whole, id) }
            }
        };
        SavedClaim { conn: *conn, newer, since: *since, who: self.whos.get(id).clone(), phase }
    }

    fn save_part(&self, whole: ClaimId, id: ClaimId) -> SavedPart {
        let several = self.parts.of(whole).expect("a part belongs to a claim that has parts");
        let is_meant = |(_, part): &(u32, &Part)| part.id == id;
        let (place, part) = (0..).zip(&several.parts).find(is_meant).expect("it is one of them");
        SavedPart { place, whole_workers: several.workers, workers: part.workers }
    }
}
