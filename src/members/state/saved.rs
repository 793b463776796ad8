//! Handover of the state: plain records with deadlines in place of timers, written by a process that ends and read by
//! its successor. A record follows each record to which it refers by a saved id.
//!
//! Members in queues come in the order of their queues, so that the successor appends them, and members in use by the
//! numbers of their leases.

use super::{
    Agent, AgentId, GroupId, Holding, HoldingId, KeptMember, Member, MemberId, Phase, Pool, PoolId, SavedMember, Start,
    State, Timer, Waiter,
};
use poolcounter_core::record::{push_bytes, take_array, take_bytes};
use poolcounter_core::{ConnId, Id as _, Time, Timers, Writer};
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;

/// First byte of a block of members. Other records begin with 0 or 1.
pub(super) const BLOCK: u8 = 2;
/// Number of bytes at which a block is written: some 300 members.
const BLOCK_BYTES: usize = 16 * 1024;

/// Saved entry.
#[derive(Serialize, Deserialize)]
pub(super) enum Saved {
    /// Next numbers, the number of members, and the statistics of dropped pools.
    Numbers { lease: u64, arrival: u64, start: u64, joins: u64, members: usize, past: Vec<(String, u64)> },
    /// Pool with the time of its next cull and its statistics.
    Pool { id: PoolId, pool: Box<Pool>, cull: Option<Time>, figures: Vec<(String, u64)> },
    /// Group with its pools by the number of their entry, and its removal.
    Group { id: GroupId, name: Arc<[u8]>, pools: Vec<(u64, PoolId)>, removal: Option<(bool, u64)> },
    /// Agent with the ends of its grace and its backoff.
    Agent { id: AgentId, agent: Box<Agent>, grace: Option<Time>, backoff: Option<Time> },
    /// Holding without its leases.
    Holding { id: HoldingId, holding: Holding },
    /// Member that is in no block.
    Member(Box<SavedMember>),
    /// Waiter, first come first.
    Waiter(Box<Waiter>),
    /// Start of a connected provider.
    Start { number: u64, agent: AgentId, since: Time, until: Time },
    /// Connection with its name, and the name of the pool that it serves or has served last.
    Client { conn: ConnId, name: Option<Arc<[u8]>>, pool: Option<Arc<[u8]>> },
    /// Fixed member that no pool has.
    Unknown(Arc<KeptMember>),
}

impl State {
    /// Writes the whole state.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be written.
    pub fn save(&self, out: &mut Writer<'_>, timers: &Timers<'_, Timer>) -> io::Result<()> {
        put(
            out,
            Saved::Numbers {
                lease: self.leases.next_number,
                arrival: self.waiters.next_arrival,
                start: self.starts.next_number,
                joins: self.pools.joins,
                members: self.members.len(),
                past: self.pools.past.save(),
            },
        )?;
        let nameless = self.pools.iter().filter(|(_, pool)| pool.is_removed).map(|(id, _)| id);
        let pools: Vec<PoolId> = self.pools.after(None).chain(nameless).collect();
        for id in &pools {
            let pool = self.pool(*id);
            let cull = pool.cull.as_ref().map(|timer| timers.deadline(timer));
            put(out, Saved::Pool { id: *id, pool: pool.to_save().into(), cull, figures: pool.figures.save() })?;
        }
        for (id, group) in self.pools.groups() {
            let pools = group.pools.iter().map(|(joined, pool)| (*joined, *pool)).collect();
            put(out, Saved::Group { id, name: group.name.clone(), pools, removal: group.removal })?;
        }
        for (id, agent) in self.agents.iter() {
            let [grace, backoff] =
                [&agent.grace, &agent.backoff].map(|timer| timer.as_ref().map(|timer| timers.deadline(timer)));
            put(out, Saved::Agent { id, agent: agent.to_save().into(), grace, backoff })?;
        }
        for (id, holding) in self.leases.holdings() {
            put(out, Saved::Holding { id, holding: holding.to_save() })?;
        }
        let mut leases: Vec<(u64, MemberId)> =
            self.leases.iter().map(|(_, lease)| (lease.number, lease.member)).collect();
        leases.sort_unstable();
        let not_leased = pools.iter().flat_map(|pool| self.members.queued_first(*pool));
        let not_leased = not_leased.filter(|id| self.phase_of(*id) != Phase::InUse);
        let mut block = vec![BLOCK];
        for id in not_leased.chain(leases.into_iter().map(|(_, member)| member)) {
            let is_packed = self.pack(id, &mut block);
            if !is_packed || block.len() >= BLOCK_BYTES {
                end_block(&mut block, out)?;
            }
            if !is_packed {
                put(out, Saved::Member(self.save_member(id, timers).into()))?;
            }
        }
        end_block(&mut block, out)?;
        self.kept.unknown.values().try_for_each(|kept| put(out, Saved::Unknown(kept.clone())))?;
        let mut waiters: Vec<&Waiter> = self.waiters.iter().map(|(_, waiter)| waiter).collect();
        waiters.sort_unstable_by_key(|waiter| waiter.rank.1);
        waiters.into_iter().try_for_each(|waiter| put(out, Saved::Waiter(waiter.to_save().into())))?;
        for Start { number, agent, since, timer, .. } in self.starts.iter() {
            put(out, Saved::Start { number: *number, agent: *agent, since: *since, until: timers.deadline(timer) })?;
        }
        for conn in (0..self.leases.conns().max(self.agents.conns())).map(ConnId::from_index) {
            let name = self.leases.name(conn).cloned();
            let pool = self.agents.last_pool(conn).cloned();
            if name.is_some() || pool.is_some() {
                put(out, Saved::Client { conn, name, pool })?;
            }
        }
        out.put(&None::<Saved>)
    }

    /// Appends a member of a provider to a block: there may be a million, for which others wait. Returns false, and
    /// appends nothing, if there is more to say of it.
    fn pack(&self, id: MemberId, block: &mut Vec<u8>) -> bool {
        let Member { name, pool, owner, born, since, proved, uses, share, phase, timer, .. } = self.member(id);
        let (Some(agent), Phase::Free, None) = (owner, phase, timer) else { return false };
        if self.members.attributes(id).is_some() || !self.members.beside(id).is_empty() {
            return false;
        }
        for index in [pool.index(), agent.index()] {
            // Lossless: an id is a u32.
            block.extend_from_slice(&(index as u32).to_le_bytes());
        }
        for time in [born, since, proved] {
            block.extend_from_slice(&time.as_micros().to_le_bytes());
        }
        block.extend_from_slice(&uses.to_le_bytes());
        block.extend_from_slice(&share.to_le_bytes());
        push_bytes(block, name);
        true
    }
}

/// Removes a member from the front of a block; None if there is none.
pub(super) fn unpack(block: &mut &[u8]) -> Option<SavedMember> {
    let [pool, agent] = [take_array(block)?, take_array(block)?].map(u32::from_le_bytes);
    let [born, since, proved] = [take_array(block)?, take_array(block)?, take_array(block)?];
    let [born, since, proved] = [born, since, proved].map(|micros| Time::from_micros(u64::from_le_bytes(micros)));
    let (uses, share) = (u32::from_le_bytes(take_array(block)?), u16::from_le_bytes(take_array(block)?));
    let owner = Some(AgentId::from_index((agent < u32::MAX).then_some(agent as usize)?));
    let new = Member::new(PoolId::from_index(pool as usize), take_bytes(block)?.into(), owner, share, born);
    Some(SavedMember::of(Member { since, proved, uses, phase: Phase::Free, ..new }))
}

fn put(out: &mut Writer<'_>, record: Saved) -> io::Result<()> {
    out.put(&Some(record))
}

fn end_block(block: &mut Vec<u8>, out: &mut Writer<'_>) -> io::Result<()> {
    if block.len() > 1 {
        out.put_bytes(block)?;
        block.truncate(1);
    }
    Ok(())
}
