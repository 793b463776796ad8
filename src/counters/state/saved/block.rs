//! Packed form of counters and holdings: without the parts that they share with the one before, in blocks of many. A
//! counter whose name differs in its last letter from the one before takes five bytes.

use crate::state::CounterId;
use poolcounter_core::record::{BlockWriter, KeptBlocks, push_name, push_number, take_name, take_number};
use poolcounter_core::{ConnId, Id, Unreadable, Writer};
use std::io;

/// A counter without its held units.
pub struct PackedCounter<'a> {
    /// Its slot in the table.
    pub slot: usize,
    pub name: &'a [u8],
    /// Highest consumption in the interval, if it changed in it.
    pub peak: Option<u32>,
    pub is_used: bool,
}

/// Packer of counters in the order of the table.
#[derive(Default)]
pub struct CounterWriter<'a> {
    pub blocks: BlockWriter,
    name: &'a [u8],
    next_slot: usize,
}

/// Unpacker of counters.
pub struct CounterReader {
    blocks: KeptBlocks,
    name: Vec<u8>,
    next_slot: usize,
    slots: usize,
}

/// Unpacker of holdings.
pub struct HoldingReader {
    blocks: KeptBlocks,
    /// Lowest number of the next connection.
    next_client: u32,
    /// Lowest counter of the next holding.
    next: u64,
    slots: usize,
}

impl<'a> CounterWriter<'a> {
    pub fn put(&mut self, out: &mut Writer<'_>, counter: &PackedCounter<'a>) -> io::Result<()> {
        let PackedCounter { slot, name, peak, is_used } = *counter;
        let (gap, before) = (slot - self.next_slot, self.name);
        (self.next_slot, self.name) = (slot + 1, name);
        self.blocks.put(out, |bytes| {
            push_number(bytes, gap as u64);
            push_name(bytes, name, before);
            push_number(bytes, peak.map_or(0, |peak| u64::from(peak) + 1) << 1 | u64::from(is_used));
        })
    }
}

impl CounterReader {
    /// Returns a reader for the counters of a table with `slots` slots.
    pub fn new(blocks: KeptBlocks, slots: usize) -> Self {
        CounterReader { blocks, name: Vec::new(), next_slot: 0, slots }
    }

    /// Returns the next counter; None after the last.
    #[inline]
    pub fn next(&mut self) -> Result<Option<PackedCounter<'_>>, Unreadable> {
        let (name, first, slots) = (&mut self.name, self.next_slot, self.slots);
        let counter = self.blocks.next(|bytes| {
            let gap = usize::try_from(take_number(bytes)?).ok()?;
            let slot = first.checked_add(gap).filter(|slot| *slot < slots)?;
            take_name(bytes, name)?;
            let levels = take_number(bytes)?;
            let peak = match levels >> 1 {
                0 => None,
                peak => Some(u32::try_from(peak - 1).ok()?),
            };
            Some((slot, peak, levels & 1 == 1))
        })?;
        Ok(counter.map(|(slot, peak, is_used)| {
            self.next_slot = slot + 1;
            PackedCounter { slot, name: &self.name, peak, is_used }
        }))
    }
}

/// Adds a connection with its holdings, which must be in the order of the counters. Connections come in the order of
/// their numbers.
pub fn put_holdings(
    blocks: &mut BlockWriter,
    out: &mut Writer<'_>,
    conn: ConnId,
    len: usize,
    holdings: impl Iterator<Item = (CounterId, u32)>,
) -> io::Result<()> {
    if len == 0 {
        return Ok(());
    }
    blocks.put(out, |bytes| {
        push_number(bytes, conn.index() as u64);
        push_number(bytes, len as u64);
    })?;
    let mut next = 0;
    for (id, resources) in holdings {
        blocks.put(out, |bytes| {
            push_number(bytes, (id.index() - next) as u64);
            push_number(bytes, resources.into());
        })?;
        next = id.index() + 1;
    }
    Ok(())
}

impl HoldingReader {
    /// Returns a reader for holdings of a table with `slots` slots.
    pub fn new(blocks: KeptBlocks, slots: usize) -> Self {
        HoldingReader { blocks, next_client: 0, next: 0, slots }
    }

    /// Returns the next connection with holdings, and their number; None after the last.
    pub fn next_client(&mut self) -> Result<Option<(ConnId, usize)>, Unreadable> {
        self.next = 0;
        let client = self.blocks.next(|bytes| {
            let conn = u32::try_from(take_number(bytes)?).ok().filter(|conn| *conn >= self.next_client)?;
            let len = usize::try_from(take_number(bytes)?).ok().filter(|len| *len <= self.slots)?;
            Some((conn, len))
        })?;
        Ok(client.map(|(conn, len)| {
            self.next_client = conn.saturating_add(1);
            (ConnId::from_index(conn as usize), len)
        }))
    }

    /// Returns the connection's next holding.
    #[inline]
    pub fn next(&mut self) -> Result<(CounterId, u32), Unreadable> {
        let (id, resources) = self.blocks.take(|bytes| {
            let id = self.next.checked_add(take_number(bytes)?).filter(|id| *id < self.slots as u64)?;
            Some((id, u32::try_from(take_number(bytes)?).ok()?))
        })?;
        self.next = id + 1;
        Ok((CounterId::from_index(id as usize), resources))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolcounter_core::record::Reader;

    #[test]
    fn connection_has_its_holdings_once() {
        for (second, is_read) in [(2, true), (1, false), (0, false)] {
            let mut saved = Vec::new();
            let (mut out, mut blocks) = (Writer::new(&mut saved), BlockWriter::default());
            for conn in [1, second] {
                let holdings = [(CounterId::from_index(0), 1)].into_iter();
                put_holdings(&mut blocks, &mut out, ConnId::from_index(conn), 1, holdings).expect("memory takes all");
            }
            blocks.end(&mut out).expect("memory takes all");
            let (mut input, slots) = (&saved[..], 1);
            let blocks = Reader::new(&mut input).keep_blocks().expect("their end is there");
            let mut reader = HoldingReader::new(blocks, slots);
            assert_eq!(reader.next_client(), Ok(Some((ConnId::from_index(1), 1))));
            assert_eq!(reader.next(), Ok((CounterId::from_index(0), 1)));
            assert_eq!(reader.next_client().is_ok(), is_read, "connection {second} after connection 1");
        }
    }
}
