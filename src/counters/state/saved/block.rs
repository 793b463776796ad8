//! The packed form of counters and holdings: without what they share with the one before, in blocks of many. A counter whose
//! name differs in its last letter from the one before takes five bytes.

use crate::state::CounterId;
use poolcounter_core::id::{ConnId, Id};
use poolcounter_core::record::{Reader, Unreadable, Writer, push_number, take_number};
use std::io;

/// A block is written once it has so many bytes: enough that its overhead does not count.
const BLOCK_BYTES: usize = 64 * 1024;
/// No name in the protocol is longer.
const MAX_NAME_BYTES: usize = u16::MAX as usize;

/// A counter without what is held of it.
pub(super) struct PackedCounter<'a> {
    /// Its slot in the table.
    pub slot: usize,
    pub name: &'a [u8],
    /// The highest consumption in the interval, if it changed in it.
    pub peak: Option<u32>,
    pub is_used: bool,
}

/// Packs counters in the order of the table.
#[derive(Default)]
pub(super) struct CounterWriter {
    block: Vec<u8>,
    name: Vec<u8>,
    next_slot: usize,
}

/// Unpacks them.
pub(super) struct CounterReader {
    block: Block,
    name: Vec<u8>,
    next_slot: usize,
    slots: usize,
}

/// Packs what each connection holds, in the order of the counters.
#[derive(Default)]
pub(super) struct HoldingWriter {
    block: Vec<u8>,
}

/// Unpacks it.
pub(super) struct HoldingReader {
    block: Block,
    /// The lowest counter that the next holding may be of.
    next: u64,
    slots: usize,
}

/// A block that is being read.
#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
    at: usize,
}

impl CounterWriter {
    pub fn put(&mut self, out: &mut Writer<'_>, counter: &PackedCounter<'_>) -> io::Result<()> {
        let PackedCounter { slot, name, peak, is_used } = *counter;
        let shared = self.name.iter().zip(name).take_while(|(a, b)| a == b).count();
        let rest = &name[shared..];
        push_number(&mut self.block, (slot - self.next_slot) as u64);
        push_number(&mut self.block, shared as u64);
        push_number(&mut self.block, rest.len() as u64);
        self.block.extend_from_slice(rest);
        push_number(&mut self.block, peak.map_or(0, |peak| u64::from(peak) + 1) << 1 | u64::from(is_used));
        self.next_slot = slot + 1;
        self.name.truncate(shared);
        self.name.extend_from_slice(rest);
        write_if_large(&mut self.block, out)
    }

    /// Writes the rest, and an empty record at the end.
    pub fn end(self, out: &mut Writer<'_>) -> io::Result<()> {
        end(&self.block, out)
    }
}

impl CounterReader {
    /// Returns a reader for the counters of a table with so many slots.
    pub fn new(slots: usize) -> Self {
        CounterReader { block: Block::default(), name: Vec::new(), next_slot: 0, slots }
    }

    /// Returns the next counter; None after the last.
    pub fn next(&mut self, saved: &mut Reader<'_>) -> Result<Option<PackedCounter<'_>>, Unreadable> {
        if !self.block.has_more(saved)? {
            return Ok(None);
        }
        let (peak, is_used) = self.unpack().ok_or_else(damaged)?;
        Ok(Some(PackedCounter { slot: self.next_slot - 1, name: &self.name, peak, is_used }))
    }

    fn unpack(&mut self) -> Option<(Option<u32>, bool)> {
        let mut bytes = &self.block.bytes[self.block.at..];
        let before = bytes.len();
        let gap = usize::try_from(take_number(&mut bytes)?).ok()?;
        let slot = self.next_slot.checked_add(gap).filter(|slot| *slot < self.slots)?;
        let shared = usize::try_from(take_number(&mut bytes)?).ok().filter(|shared| *shared <= self.name.len())?;
        let len = usize::try_from(take_number(&mut bytes)?).ok().filter(|len| *len <= MAX_NAME_BYTES - shared)?;
        let (rest, mut bytes) = bytes.split_at_checked(len)?;
        self.name.truncate(shared);
        self.name.extend_from_slice(rest);
        let levels = take_number(&mut bytes)?;
        let peak = match levels >> 1 {
            0 => None,
            peak => Some(u32::try_from(peak - 1).ok()?),
        };
        self.next_slot = slot + 1;
        self.block.at += before - bytes.len();
        Some((peak, levels & 1 == 1))
    }
}

impl HoldingWriter {
    /// Adds a connection with its holdings, which are in the order of the counters.
    pub fn put(
        &mut self,
        out: &mut Writer<'_>,
        conn: ConnId,
        len: usize,
        holdings: impl IntoIterator<Item = (CounterId, u32)>,
    ) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        push_number(&mut self.block, conn.index() as u64);
        push_number(&mut self.block, len as u64);
        let mut next = 0;
        holdings.into_iter().try_for_each(|(id, resources)| {
            push_number(&mut self.block, (id.index() - next) as u64);
            push_number(&mut self.block, resources.into());
            next = id.index() + 1;
            write_if_large(&mut self.block, out)
        })
    }

    /// Writes the rest, and an empty record at the end.
    pub fn end(self, out: &mut Writer<'_>) -> io::Result<()> {
        end(&self.block, out)
    }
}

impl HoldingReader {
    /// Returns a reader for holdings of a table with so many slots.
    pub fn new(slots: usize) -> Self {
        HoldingReader { block: Block::default(), next: 0, slots }
    }

    /// Returns the next connection that holds something, and of how many counters; None after the last.
    pub fn next_client(&mut self, saved: &mut Reader<'_>) -> Result<Option<(ConnId, usize)>, Unreadable> {
        if !self.block.has_more(saved)? {
            return Ok(None);
        }
        self.next = 0;
        let (conn, len) = self.block.take_pair().ok_or_else(damaged)?;
        let conn = u32::try_from(conn).map_err(|_| damaged())?;
        let len = usize::try_from(len).ok().filter(|len| *len <= self.slots).ok_or_else(damaged)?;
        Ok(Some((ConnId::from_index(conn as usize), len)))
    }

    /// Returns the connection's next holding.
    pub fn next(&mut self, saved: &mut Reader<'_>) -> Result<(CounterId, u32), Unreadable> {
        if !self.block.has_more(saved)? {
            return Err(damaged());
        }
        let (gap, resources) = self.block.take_pair().ok_or_else(damaged)?;
        let id = self.next.checked_add(gap).filter(|id| *id < self.slots as u64).ok_or_else(damaged)?;
        self.next = id + 1;
        Ok((CounterId::from_index(id as usize), u32::try_from(resources).map_err(|_| damaged())?))
    }
}

impl Block {
    /// Returns true when there is more, in this block or in the next, which is read then.
    fn has_more(&mut self, saved: &mut Reader<'_>) -> Result<bool, Unreadable> {
        if self.at == self.bytes.len() {
            self.bytes.clear();
            self.bytes.extend_from_slice(saved.take_bytes()?);
            self.at = 0;
        }
        Ok(!self.bytes.is_empty())
    }

    fn take_pair(&mut self) -> Option<(u64, u64)> {
        let mut bytes = &self.bytes[self.at..];
        let before = bytes.len();
        let pair = (take_number(&mut bytes)?, take_number(&mut bytes)?);
        self.at += before - bytes.len();
        Some(pair)
    }
}

fn write_if_large(block: &mut Vec<u8>, out: &mut Writer<'_>) -> io::Result<()> {
    if block.len() >= BLOCK_BYTES {
        out.put_bytes(block)?;
        block.clear();
    }
    Ok(())
}

fn end(block: &[u8], out: &mut Writer<'_>) -> io::Result<()> {
    if !block.is_empty() {
        out.put_bytes(block)?;
    }
    out.put_bytes(&[])
}

fn damaged() -> Unreadable {
    Unreadable("counters: the handover is damaged".into())
}
