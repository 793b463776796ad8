//! Stream of length-prefixed values: the form of a handover. Only one value at a time is in memory, except for blocks of
//! small entries, which may be kept and read later. It knows neither files nor the meaning of the values.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};

/// Longest record for which room is made before it is read.
const SHORT_BYTES: usize = 256 * 1024;
/// Number of bytes at which a block is written: enough that its overhead does not matter.
const BLOCK_BYTES: usize = 64 * 1024;
/// Longest name in a block, in bytes: as long as any protocol allows.
const MAX_NAME_BYTES: usize = u16::MAX as usize;

/// Writer of records to a stream.
pub struct Writer<'a> {
    out: &'a mut dyn Write,
    /// Record that is being written; empty between records.
    record: Vec<u8>,
}

/// Reader of records from a stream.
pub struct Reader<'a> {
    input: &'a mut dyn Read,
    /// The last record.
    record: Vec<u8>,
}

/// Writer of very many small entries: each is packed by hand, and a record has a block of them. An empty record ends
/// them.
#[derive(Default)]
pub struct BlockWriter {
    /// Entries that are not written yet.
    block: Vec<u8>,
}

/// Entries of a [`BlockWriter`] in memory, which are read after the stream.
pub struct KeptBlocks {
    /// Blocks that are not read yet.
    blocks: VecDeque<Vec<u8>>,
    /// Number of bytes of the first record that are read.
    read: usize,
}

/// Records in memory, which are read after the stream.
pub struct KeptRecords {
    bytes: Vec<u8>,
    /// Number of bytes that are read.
    read: usize,
}

/// Saved state that this process cannot read, with the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreadable(pub String);

impl<'a> Writer<'a> {
    /// Returns a writer to `out`, which it writes in small pieces.
    pub fn new(out: &'a mut dyn Write) -> Self {
        Writer { out, record: Vec::new() }
    }

    /// Writes one value.
    ///
    /// # Errors
    ///
    /// Errors of the stream.
    pub fn put(&mut self, value: &(impl Serialize + ?Sized)) -> io::Result<()> {
        let record = std::mem::take(&mut self.record);
        let mut record = postcard::to_extend(value, record).map_err(io::Error::other)?;
        self.put_bytes(&record)?;
        record.clear();
        self.record = record;
        Ok(())
    }

    /// Writes bytes as one record.
    ///
    /// # Errors
    ///
    /// Errors of the stream.
    pub fn put_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        self.out.write_all(&len.to_be_bytes())?;
        self.out.write_all(bytes)
    }
}

impl<'a> Reader<'a> {
    /// Returns a reader of `input`, which it reads in small pieces.
    pub fn new(input: &'a mut dyn Read) -> Self {
        Reader { input, record: Vec::new() }
    }

    /// Reads one value.
    ///
    /// # Errors
    ///
    /// Fails if there is no record, or it has another type.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<T, Unreadable> {
        postcard::from_bytes(self.take_bytes()?).map_err(damaged)
    }

    /// Reads one record as bytes.
    ///
    /// # Errors
    ///
    /// Fails if there is no complete record.
    pub fn take_bytes(&mut self) -> Result<&[u8], Unreadable> {
        let mut len = [0; 4];
        self.input.read_exact(&mut len).map_err(damaged)?;
        let len = u32::from_be_bytes(len);
        self.record.clear();
        if len as usize <= SHORT_BYTES {
            self.record.resize(len as usize, 0);
            self.input.read_exact(&mut self.record).map_err(damaged)?;
            return Ok(&self.record);
        }
        // Memory grows with the bytes that arrive, whatever the length says.
        let read = self.input.take(len.into()).read_to_end(&mut self.record).map_err(damaged)?;
        if read == len as usize { Ok(&self.record) } else { Err(damaged("it ends too early")) }
    }

    /// Takes all blocks of a [`BlockWriter`], to be read later.
    ///
    /// # Errors
    ///
    /// Fails if their end is missing.
    pub fn keep_blocks(&mut self) -> Result<KeptBlocks, Unreadable> {
        let mut blocks = VecDeque::new();
        while !self.take_bytes()?.is_empty() {
            blocks.push_back(self.record.clone());
        }
        Ok(KeptBlocks { blocks, read: 0 })
    }

    /// Takes all records up to the record for which `is_last` is true, to be read later.
    ///
    /// # Errors
    ///
    /// Fails if that one is missing.
    pub fn keep_records(&mut self, is_last: impl Fn(&[u8]) -> bool) -> Result<KeptRecords, Unreadable> {
        let mut bytes = Vec::new();
        loop {
            let record = self.take_bytes()?;
            Writer::new(&mut bytes).put_bytes(record).map_err(damaged)?;
            if is_last(record) {
                return Ok(KeptRecords { bytes, read: 0 });
            }
        }
    }
}

impl KeptRecords {
    /// Reads one value.
    ///
    /// # Errors
    ///
    /// Fails if there is no record, or it has another type.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<T, Unreadable> {
        postcard::from_bytes(self.take_bytes()?).map_err(damaged)
    }

    /// Reads one record as bytes, if it begins with this byte.
    pub fn take_if(&mut self, first: u8) -> Option<&[u8]> {
        let is_next = self.bytes.get(self.read + size_of::<u32>()) == Some(&first);
        if is_next { self.take_bytes().ok() } else { None }
    }

    fn take_bytes(&mut self) -> Result<&[u8], Unreadable> {
        let (len, rest) = self.bytes[self.read..].split_first_chunk().ok_or_else(contradiction)?;
        let record = rest.get(..u32::from_be_bytes(*len) as usize).ok_or_else(contradiction)?;
        self.read += len.len() + record.len();
        Ok(record)
    }
}

impl BlockWriter {
    /// Writes an entry, which `pack` appends to the block.
    ///
    /// # Errors
    ///
    /// Errors of the stream.
    #[inline]
    pub fn put(&mut self, out: &mut Writer<'_>, pack: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        pack(&mut self.block);
        if self.block.len() >= BLOCK_BYTES {
            out.put_bytes(&self.block)?;
            self.block.clear();
        }
        Ok(())
    }

    /// Writes the rest, and the end.
    ///
    /// # Errors
    ///
    /// Errors of the stream.
    pub fn end(self, out: &mut Writer<'_>) -> io::Result<()> {
        if !self.block.is_empty() {
            out.put_bytes(&self.block)?;
        }
        out.put_bytes(&[])
    }
}

impl KeptBlocks {
    /// Reads the next entry, which `unpack` removes from the front of the block; None after the last.
    ///
    /// # Errors
    ///
    /// Fails if `unpack` returns None.
    #[inline]
    pub fn next<T>(&mut self, unpack: impl FnOnce(&mut &[u8]) -> Option<T>) -> Result<Option<T>, Unreadable> {
        let Some(block) = self.blocks.front() else { return Ok(None) };
        let mut rest = &block[self.read..];
        let entry = unpack(&mut rest).ok_or_else(contradiction)?;
        self.read = block.len() - rest.len();
        if rest.is_empty() {
            self.blocks.pop_front();
            self.read = 0;
        }
        Ok(Some(entry))
    }

    /// Reads an entry that must be there.
    ///
    /// # Errors
    ///
    /// Fails like [`KeptBlocks::next`], and after the last.
    #[inline]
    pub fn take<T>(&mut self, unpack: impl FnOnce(&mut &[u8]) -> Option<T>) -> Result<T, Unreadable> {
        self.next(unpack)?.ok_or_else(contradiction)
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cold]
fn damaged(error: impl fmt::Display) -> Unreadable {
    Unreadable(format!("the handover is damaged: {error}"))
}

#[cold]
fn contradiction() -> Unreadable {
    damaged("an entry contradicts itself")
}

/// Appends a number in as few bytes as it needs: seven bits in each, the lowest first.
#[inline]
pub fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Removes and returns a number of [`push_number`] from the front of `bytes`; None if there is none.
#[inline]
pub fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    if let [byte, rest @ ..] = *bytes
        && *byte < 0x80
    {
        *bytes = rest;
        return Some(u64::from(*byte));
    }
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        // The tenth byte has room for one bit.
        number |= Some(bits << shift).filter(|shifted| shifted >> shift == bits)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Appends a name of at most 65,535 bytes, without the part that it shares with the name before.
#[inline]
pub fn push_name(bytes: &mut Vec<u8>, name: &[u8], before: &[u8]) {
    let shared = shared_prefix(name, before);
    push_number(bytes, shared as u64);
    push_bytes(bytes, &name[shared..]);
}

/// Removes a name of [`push_name`] from the front of `bytes`. `name` is the name before, and becomes this one. Returns
/// None if there is none.
#[inline]
pub fn take_name(bytes: &mut &[u8], name: &mut Vec<u8>) -> Option<()> {
    let shared = usize::try_from(take_number(bytes)?).ok().filter(|shared| *shared <= name.len())?;
    let rest = take_bytes(bytes).filter(|rest| rest.len() <= MAX_NAME_BYTES - shared)?;
    name.truncate(shared);
    name.extend_from_slice(rest);
    Some(())
}

/// Appends bytes, with their number before them.
#[inline]
pub fn push_bytes(block: &mut Vec<u8>, bytes: &[u8]) {
    push_number(block, bytes.len() as u64);
    block.extend_from_slice(bytes);
}

/// Removes and returns the bytes of [`push_bytes`] from the front of `block`; None if there are none.
#[inline]
pub fn take_bytes<'a>(block: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take_number(block)?).ok()?;
    let (bytes, behind) = block.split_at_checked(len)?;
    *block = behind;
    Some(bytes)
}

/// Removes and returns bytes of a given number from the front of `bytes`; None if there are fewer.
#[inline]
pub fn take_array<const LEN: usize>(bytes: &mut &[u8]) -> Option<[u8; LEN]> {
    let (array, behind) = bytes.split_first_chunk()?;
    *bytes = behind;
    Some(*array)
}

/// Returns the number of bytes at the front that are the same in both.
#[inline]
fn shared_prefix(one: &[u8], other: &[u8]) -> usize {
    let words = one.chunks_exact(8).zip(other.chunks_exact(8)).take_while(|(one, other)| one == other).count();
    let rest = one[8 * words..].iter().zip(&other[8 * words..]).take_while(|(one, other)| one == other).count();
    8 * words + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive_blocks_and_wrong_ones_are_refused() {
        let names: Vec<Vec<u8>> = (0..40_000).map(|n: u32| n.to_string().into_bytes()).collect();
        let (mut bytes, mut blocks, mut before) = (Vec::new(), BlockWriter::default(), &b""[..]);
        let mut out = Writer::new(&mut bytes);
        for (n, name) in names.iter().enumerate() {
            let pack = |bytes: &mut Vec<u8>| {
                push_name(bytes, name, before);
                push_number(bytes, u64::MAX - 3 * n as u64);
            };
            blocks.put(&mut out, pack).expect("memory takes all");
            before = name;
        }
        blocks.end(&mut out).expect("memory takes all");
        let mut kept = Reader::new(&mut &bytes[..]).keep_blocks().expect("their end is there");
        let mut name = Vec::new();
        for (n, expected) in names.iter().enumerate() {
            let taken = kept.take(|bytes| take_name(bytes, &mut name).and_then(|()| take_number(bytes)));
            assert_eq!((taken, &name), (Ok(u64::MAX - 3 * n as u64), expected));
        }
        assert_eq!(kept.next(|_| Some(())), Ok(None));
        assert!(kept.take(|_| Some(())).is_err(), "there is no more");
        assert!(Reader::new(&mut &bytes[..bytes.len() - 1]).keep_blocks().is_err());
        assert!(bytes.len() > 2 * BLOCK_BYTES);
        let mut longer = vec![b'x'; 3];
        assert_eq!(take_name(&mut &[4, 0][..], &mut longer), None, "the name before is shorter");
        assert_eq!(take_name(&mut &[3, 2, b'y'][..], &mut longer), None, "it is cut off");
    }

    #[test]
    fn prefixes_that_are_shared_are_found() {
        for len in 0..40 {
            for at in 0..len {
                let (one, mut other) = (vec![b'x'; len], vec![b'x'; len + 1]);
                other[at] = b'y';
                assert_eq!(shared_prefix(&one, &other), at);
            }
            assert_eq!(shared_prefix(&vec![b'x'; len], &vec![b'x'; len + 9]), len);
        }
    }

    #[test]
    fn records_are_taken_as_they_were_put() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.put(&(7_u32, "seven".to_string())).expect("memory takes all");
        writer.put_bytes(b"raw").expect("memory takes all");
        let mut input = &bytes[..];
        let mut reader = Reader::new(&mut input);
        assert_eq!(reader.take(), Ok((7_u32, "seven".to_string())));
        assert_eq!(reader.take_bytes(), Ok(&b"raw"[..]));
        assert!(reader.take::<u32>().is_err());
        let mut kept = Reader::new(&mut &bytes[..]).keep_records(|record| record == b"raw").expect("it is there");
        assert_eq!(kept.take(), Ok((7_u32, "seven".to_string())));
        assert!(Reader::new(&mut &bytes[..]).keep_records(|record| record == b"other").is_err());
        let mut cut = &bytes[..bytes.len() - 1];
        let mut reader = Reader::new(&mut cut);
        assert!(reader.take_bytes().is_ok() && reader.take_bytes().is_err());
    }

    #[test]
    fn numbers_come_back_and_others_are_none() {
        for number in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            push_number(&mut bytes, number);
            let mut rest = &bytes[..];
            assert_eq!((take_number(&mut rest), rest.len()), (Some(number), 0));
            assert_eq!(take_number(&mut &bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(take_number(&mut &[0xff; 11][..]), None);
    }
}
