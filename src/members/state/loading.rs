//! Members and leases of another process, and what refers to them, that are read in slices after an upgrade. Until the last
//! is read nothing else happens to the state.

use super::restored::{Reading, Restored, contradiction};
use super::saved::{LeaseUnpacker, MemberUnpacker, Saved, index_of};
use super::*;
use poolcounter_core::record::{Blocks, KeptBlocks, KeptRecords, Reader, Unreadable, take_difference, take_number};

/// Members, leases or other records that are read in a slice: about a millisecond.
const SLICE: usize = 4096;
/// Most members for which room is made before they are read: some hundred MiB.
const MOST_ROOM: usize = 1 << 20;

/// Progress of reading a handover.
pub(super) struct Loading {
    parts: Restored,
    members: KeptBlocks,
    leases: KeptBlocks,
    records: KeptRecords,
    pool: Option<LoadingPool>,
    lease: LeaseUnpacker,
    /// True once the leases are read.
    are_leases_read: bool,
}

/// Pool whose members are being read.
struct LoadingPool {
    id: PoolId,
    unpacker: MemberUnpacker,
    /// Number of members that are not read yet.
    left: u64,
    /// Number of members that are not in the queues of their phases yet, and the lowest number of the next one.
    to_queue: u32,
    next: u64,
}

impl Loading {
    /// Takes the rest of a handover.
    ///
    /// # Errors
    ///
    /// Fails if it is cut off.
    pub fn new(parts: Restored, saved: &mut Reader<'_>) -> Result<Self, Unreadable> {
        let (members, leases) = (saved.keep_blocks()?, saved.keep_blocks()?);
        // A record of nothing ends them.
        let records = saved.keep_records(|record| record == [0])?;
        let lease = LeaseUnpacker::default();
        Ok(Loading { parts, members, leases, records, pool: None, lease, are_leases_read: false })
    }

    /// Reads up to `left` members, leases or records, which it counts down. Returns true after the last.
    fn read(&mut self, state: &mut State, left: &mut usize, step: &mut Step<'_, '_>) -> Result<bool, Unreadable> {
        Ok(self.read_members(state, left, step)?
            && self.read_leases(state, left, step)?
            && self.read_records(state, left, step)?)
    }

    fn read_members(
        &mut self,
        state: &mut State,
        left: &mut usize,
        step: &mut Step<'_, '_>,
    ) -> Result<bool, Unreadable> {
        while *left > 0 {
            let pool = match &mut self.pool {
                Some(pool) => pool,
                none => match LoadingPool::begin(&mut self.members, &self.parts, state)? {
                    Some(pool) => none.insert(pool),
                    None => return Ok(true),
                },
            };
            let mut reading = Reading { state: &mut *state, parts: &mut self.parts };
            if pool.read(&mut self.members, &mut reading, left, step)? {
                self.pool = None;
            }
        }
        Ok(false)
    }

    fn read_leases(
        &mut self,
        state: &mut State,
        left: &mut usize,
        step: &mut Step<'_, '_>,
    ) -> Result<bool, Unreadable> {
        while !self.are_leases_read {
            if *left == 0 {
                return Ok(false);
            }
            *left -= 1;
            let Some((lease, rule)) = self.leases.next(|bytes| self.lease.unpack(bytes))? else {
                state.leases.index_all();
                self.are_leases_read = true;
                break;
            };
            let mut reading = Reading { state: &mut *state, parts: &mut self.parts };
            let id = reading.add_lease(lease, step).ok_or_else(contradiction)?;
            rule.into_iter().for_each(|rule| state.leases.count_for_rule(id, rule));
        }
        Ok(true)
    }

    fn read_records(
        &mut self,
        state: &mut State,
        left: &mut usize,
        step: &mut Step<'_, '_>,
    ) -> Result<bool, Unreadable> {
        while *left > 0 {
            *left -= 1;
            let Some(record) = self.records.take::<Option<Saved>>()? else { return Ok(true) };
            let mut reading = Reading { state: &mut *state, parts: &mut self.parts };
            reading.read(record, step).ok_or_else(contradiction)?;
        }
        Ok(false)
    }
}

impl LoadingPool {
    /// Begins with the next pool that has members; None after the last.
    fn begin(members: &mut KeptBlocks, parts: &Restored, state: &mut State) -> Result<Option<Self>, Unreadable> {
        let next = members.next(|bytes| Some((take_number(bytes)?, take_number(bytes)?)))?;
        let Some((saved_pool, count)) = next else { return Ok(None) };
        let saved_pool = index_of(saved_pool).map(PoolId::from_index).ok_or_else(contradiction)?;
        let id = parts.pool(saved_pool).ok_or_else(contradiction)?;
        let first = state.members.len();
        let room = usize::try_from(count).map_or(MOST_ROOM, |count| count.min(MOST_ROOM));
        state.members.reserve(room);
        let unpacker = MemberUnpacker::new(first);
        Ok(Some(LoadingPool { id, unpacker, left: count, to_queue: 0, next: first as u64 }))
    }

    /// Reads up to `left` members, and puts up to as many into their queues. Returns true after the last.
    fn read(
        &mut self,
        members: &mut KeptBlocks,
        reading: &mut Reading<'_>,
        left: &mut usize,
        step: &mut Step<'_, '_>,
    ) -> Result<bool, Unreadable> {
        while self.left > 0 {
            if *left == 0 {
                return Ok(false);
            }
            (self.left, *left) = (self.left - 1, *left - 1);
            let (name, member) = members.take(|bytes| self.unpacker.unpack(bytes))?;
            let id = reading.add_member(name, member, self.id, step).filter(|id| *id == member.id);
            id.ok_or_else(contradiction)?;
            if self.left == 0 {
                self.to_queue = reading.state.members.to_queue(self.id);
            }
        }
        while self.to_queue > 0 {
            if *left == 0 {
                return Ok(false);
            }
            (self.to_queue, *left) = (self.to_queue - 1, *left - 1);
            let number = members.take(|bytes| take_difference(bytes, self.next))?;
            self.next = number.wrapping_add(1);
            let id = index_of(number).map(MemberId::from_index);
            let is_queued = id.is_some_and(|id| reading.state.members.restore_queue(self.id, id));
            is_queued.then_some(()).ok_or_else(contradiction)?;
        }
        Ok(true)
    }
}

impl State {
    /// Takes a handover. The state is complete after [`State::restore_more`].
    ///
    /// # Errors
    ///
    /// Fails if it contradicts itself, or is cut off.
    pub fn restore(&mut self, saved: &mut Reader<'_>, step: &mut Step<'_, '_>) -> Result<(), Unreadable> {
        // Background work goes on later, as it would have.
        step.timers.exhaust_budget();
        let mut parts = Restored::default();
        let mut reading = Reading { state: self, parts: &mut parts };
        while let Some(record) = saved.take()? {
            reading.read(record, step).ok_or_else(contradiction)?;
        }
        self.loading = Some(Loading::new(parts, saved)?.into());
        Ok(())
    }

    /// Returns true while members of another process are not read.
    pub(super) fn is_loading(&self) -> bool {
        self.loading.is_some()
    }

    /// Reads a slice of the members of another process, and what refers to them. Returns true when there are no more.
    ///
    /// # Errors
    ///
    /// Fails if a record contradicts another. The rest is lost then.
    pub fn restore_more(&mut self, step: &mut Step<'_, '_>) -> Result<bool, Unreadable> {
        let Some(mut loading) = self.loading.take() else { return Ok(true) };
        // Background work goes on later, as it would have.
        step.timers.exhaust_budget();
        let is_over = loading.read(self, &mut SLICE.clone(), step)?;
        match is_over {
            true => self.finish_restore(loading.parts, step)?,
            false => self.loading = Some(loading),
        }
        Ok(is_over)
    }
}
