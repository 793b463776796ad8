//! Packed form of the members. There may be a million, and no client is served while they are read.
//!
//! For each pool with members: its id and their number, its members by name, and then the numbers of those that are in
//! queues, in the order of these. Members are numbered from zero in the order in which they come; other records refer
//! to these numbers. A member leaves out its values that are those of the one before.

use super::*;
use poolcounter_core::record::{
    BlockWriter, push_bytes, push_difference, push_name, push_number, take_array, take_bytes, take_difference,
    take_name, take_number,
};

/// Bits of a phase's number; the bits above are the flags of a member.
const PHASE: u16 = 0xf;
/// The phase has a deadline.
const HAS_DEADLINE: u16 = 1 << 4;
/// It has another owner than the one before.
const HAS_OWNER: u16 = 1 << 5;
const HAS_ATTRIBUTES: u16 = 1 << 6;
/// It was used, or was proved to be alive, at another time than that of its birth.
const HAS_SINCE: u16 = 1 << 7;
const HAS_PROVED: u16 = 1 << 8;
const HAS_USES: u16 = 1 << 9;
/// It will be held when it becomes free.
const HAS_HOLD: u16 = 1 << 10;
const IS_LEAVING: u16 = 1 << 11;
const IS_FROM_FILE: u16 = 1 << 12;
/// It is young, and was returned in good state.
const IS_PROVEN: u16 = 1 << 13;

/// Most attributes for which room is made before they are read.
const FEW_ATTRIBUTES: usize = 16;

/// Member of a handover, without its name.
pub(in crate::state) struct SavedMember {
    pub id: MemberId,
    pub attributes: Attributes,
    pub owner: MemberOwner,
    pub born: Time,
    pub since: Time,
    pub proved: Time,
    pub uses: u32,
    pub share: u16,
    pub is_leaving: bool,
    pub is_from_file: bool,
    pub hold: Option<Span>,
    pub phase: SavedPhase,
    pub is_proven: bool,
}

/// Phase with a deadline in place of its timer.
pub(in crate::state) enum SavedPhase {
    Free(Option<Time>),
    Checking(Time),
    InUse,
    Stopping(Time),
    Unclean,
    Cleaning(AgentId, Option<Time>),
    Quarantined(Option<Time>),
    Held(Time),
    Delayed(Time),
    Orphaned,
    CleanLater(Time),
}

/// Numbers of the members in the handover, by slot.
pub(super) struct MemberNumbers(Vec<MemberId>);

/// Values of the member before.
struct MemberPacker<'a> {
    name: &'a [u8],
    born: Time,
    owner: MemberOwner,
}

/// Reader of the members of a pool. It reads into one place: to move a member costs as much as to read it.
pub(in crate::state) struct MemberUnpacker {
    name: Vec<u8>,
    /// Number of the next member.
    next: usize,
    /// The last member.
    member: SavedMember,
}

impl MemberNumbers {
    pub fn of(&self, id: MemberId) -> MemberId {
        self.0[id.index()]
    }
}

impl State {
    /// Writes all members, and returns their numbers.
    pub(super) fn save_members(
        &self,
        out: &mut Writer<'_>,
        now: Time,
        timers: &Timers<'_, Timer>,
    ) -> io::Result<MemberNumbers> {
        let mut numbers = vec![MemberId::from_index(0); self.members.slots()];
        let (mut first, mut blocks) = (0, BlockWriter::default());
        for pool in self.all_pools() {
            let of_pool = self.members.in_pool(pool);
            if of_pool.len() == 0 {
                continue;
            }
            blocks.put(out, |bytes| {
                push_number(bytes, pool.index() as u64);
                push_number(bytes, of_pool.len() as u64);
            })?;
            let mut packer = MemberPacker { name: b"", born: Time::START, owner: MemberOwner::Fixed };
            for (number, (name, id)) in (first..).zip(self.members.named_after(pool, None)) {
                numbers[id.index()] = MemberId::from_index(number);
                blocks.put(out, |bytes| packer.pack(bytes, name, &self.members, id, now, timers))?;
            }
            let mut next = first;
            for id in self.members.queued(pool) {
                let number = numbers[id.index()].index();
                blocks.put(out, |bytes| push_difference(bytes, number as u64, next as u64))?;
                next = number + 1;
            }
            first += of_pool.len();
        }
        blocks.end(out)?;
        Ok(MemberNumbers(numbers))
    }
}

impl<'a> MemberPacker<'a> {
    fn pack(
        &mut self,
        bytes: &mut Vec<u8>,
        name: &'a [u8],
        members: &'a MemberTable,
        id: MemberId,
        now: Time,
        timers: &Timers<'_, Timer>,
    ) {
        let member = members.get(id);
        let (attributes, hold) = (members.attributes(id), members.hold(id));
        let deadline = member.phase.timer().map(|timer| timers.deadline(timer));
        let is_proven = member.is_proven() && now.since(member.born) < PROVEN_AGE;
        let flag = |flag, is_set| if is_set { flag } else { 0 };
        let flags = member.phase.kind() as u16
            | flag(HAS_DEADLINE, deadline.is_some())
            | flag(HAS_OWNER, member.owner != self.owner)
            | flag(HAS_ATTRIBUTES, attributes.is_some())
            | flag(HAS_SINCE, member.since != member.born)
            | flag(HAS_PROVED, member.proved != member.born)
            | flag(HAS_USES, member.uses > 0)
            | flag(HAS_HOLD, hold.is_some())
            | flag(IS_LEAVING, member.is_leaving)
            | flag(IS_FROM_FILE, member.is_from_file())
            | flag(IS_PROVEN, is_proven);
        let born = member.born.as_micros();
        push_name(bytes, name, self.name);
        bytes.extend_from_slice(&flags.to_le_bytes());
        bytes.extend_from_slice(&member.share.to_le_bytes());
        push_difference(bytes, born, self.born.as_micros());
        if member.since != member.born {
            push_difference(bytes, member.since.as_micros(), born);
        }
        if member.proved != member.born {
            push_difference(bytes, member.proved.as_micros(), born);
        }
        if member.uses > 0 {
            push_number(bytes, member.uses.into());
        }
        if member.owner != self.owner {
            push_number(bytes, number_of(member.owner));
        }
        if let Some(deadline) = deadline {
            push_difference(bytes, deadline.as_micros(), born);
        }
        if let MemberPhase::Cleaning { agent, .. } = member.phase {
            push_number(bytes, agent.index() as u64);
        }
        if let Some(attributes) = attributes {
            push_number(bytes, attributes.len() as u64);
            for part in attributes.iter().flat_map(|(name, value)| [name, value]) {
                push_bytes(bytes, part);
            }
        }
        if let Some(hold) = hold {
            push_number(bytes, hold.span.as_micros());
        }
        *self = MemberPacker { name, born: member.born, owner: member.owner };
    }
}

/// Returns the number of a member's owner: zero without a provider.
fn number_of(owner: MemberOwner) -> u64 {
    match owner {
        MemberOwner::Fixed => 0,
        MemberOwner::Agent(agent) => agent.index() as u64 + 1,
    }
}

impl MemberUnpacker {
    /// Returns a reader of the members of a pool. The first one gets the number `first`.
    pub fn new(first: usize) -> Self {
        let member = SavedMember {
            id: MemberId::from_index(first),
            attributes: Attributes::new(),
            owner: MemberOwner::Fixed,
            born: Time::START,
            since: Time::START,
            proved: Time::START,
            uses: 0,
            share: 0,
            is_leaving: false,
            is_from_file: false,
            hold: None,
            phase: SavedPhase::Orphaned,
            is_proven: false,
        };
        MemberUnpacker { name: Vec::new(), next: first, member }
    }

    /// Removes the next member from the front of `bytes`. Returns its name and the rest; None if there is none.
    #[inline]
    pub fn unpack(&mut self, bytes: &mut &[u8]) -> Option<(&[u8], &mut SavedMember)> {
        take_name(bytes, &mut self.name)?;
        let member = &mut self.member;
        let flags = u16::from_le_bytes(take_array(bytes)?);
        let has = |flag| flags & flag != 0;
        member.share = u16::from_le_bytes(take_array(bytes)?);
        let born = take_difference(bytes, member.born.as_micros())?;
        let since = if has(HAS_SINCE) { take_difference(bytes, born)? } else { born };
        let proved = if has(HAS_PROVED) { take_difference(bytes, born)? } else { born };
        (member.born, member.since, member.proved) =
            (Time::from_micros(born), Time::from_micros(since), Time::from_micros(proved));
        member.uses = if has(HAS_USES) { u32::try_from(take_number(bytes)?).ok()? } else { 0 };
        if has(HAS_OWNER) {
            member.owner = match take_number(bytes)? {
                0 => MemberOwner::Fixed,
                agent => MemberOwner::Agent(AgentId::from_index(index_of(agent - 1)?)),
            };
        }
        let deadline = if has(HAS_DEADLINE) { Some(Time::from_micros(take_difference(bytes, born)?)) } else { None };
        member.phase = match PhaseKind::ALL.get(usize::from(flags & PHASE))? {
            PhaseKind::Free => SavedPhase::Free(deadline),
            PhaseKind::Checking => SavedPhase::Checking(deadline?),
            PhaseKind::InUse => SavedPhase::InUse,
            PhaseKind::Stopping => SavedPhase::Stopping(deadline?),
            PhaseKind::Unclean => SavedPhase::Unclean,
            PhaseKind::Cleaning => SavedPhase::Cleaning(AgentId::from_index(index_of(take_number(bytes)?)?), deadline),
            PhaseKind::Quarantined => SavedPhase::Quarantined(deadline),
            PhaseKind::Held => SavedPhase::Held(deadline?),
            PhaseKind::Delayed => SavedPhase::Delayed(deadline?),
            PhaseKind::Orphaned => SavedPhase::Orphaned,
            PhaseKind::CleanLater => SavedPhase::CleanLater(deadline?),
        };
        if has(HAS_ATTRIBUTES) {
            member.attributes = take_attributes(bytes)?;
        }
        member.hold = if has(HAS_HOLD) { Some(Span::from_micros(take_number(bytes)?)) } else { None };
        (member.is_leaving, member.is_from_file) = (has(IS_LEAVING), has(IS_FROM_FILE));
        member.is_proven = has(IS_PROVEN);
        member.id = MemberId::from_index(self.next);
        self.next += 1;
        Some((&self.name, member))
    }
}

fn take_attributes(bytes: &mut &[u8]) -> Option<Attributes> {
    let count = index_of(take_number(bytes)?)?;
    let mut attributes = Attributes::with_capacity(count.min(FEW_ATTRIBUTES));
    for _ in 0..count {
        attributes.push((take_bytes(bytes)?.into(), take_bytes(bytes)?.into()));
    }
    Some(attributes)
}

/// Returns the number of a thing as an index; None if no id can have it.
pub(in crate::state) fn index_of(number: u64) -> Option<usize> {
    u32::try_from(number).ok().filter(|number| *number < u32::MAX).map(|number| number as usize)
}
