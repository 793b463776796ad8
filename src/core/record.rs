//! A stream of length-prefixed values: the form of a handover. Only one value at a time is in memory. It knows neither files nor
//! what the values are.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::io::{self, Read, Write};

/// Writes records to a stream.
pub struct Writer<'a> {
    out: &'a mut dyn Write,
    /// The record that is being written; empty between records.
    record: Vec<u8>,
}

/// Reads records from a stream.
pub struct Reader<'a> {
    input: &'a mut dyn Read,
    /// The last record.
    record: Vec<u8>,
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
    /// Those of the stream.
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
    /// Those of the stream.
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
    /// When there is none, or it has another type.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<T, Unreadable> {
        postcard::from_bytes(self.take_bytes()?).map_err(damaged)
    }

    /// Reads one record as bytes.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn take_bytes(&mut self) -> Result<&[u8], Unreadable> {
        let mut len = [0; 4];
        self.input.read_exact(&mut len).map_err(damaged)?;
        let len = u32::from_be_bytes(len);
        self.record.clear();
        // Memory grows with the bytes that are there, whatever the length says.
        let read = self.input.take(len.into()).read_to_end(&mut self.record).map_err(damaged)?;
        if read == len as usize { Ok(&self.record) } else { Err(damaged("it ends too early")) }
    }
}

impl Unreadable {
    /// Returns the error of a service whose saved part has a version that is not known here.
    pub fn version(service: &str, version: u16) -> Unreadable {
        Unreadable(format!("{service}: the handover's part has version {version}, which this program does not read"))
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn damaged(error: impl fmt::Display) -> Unreadable {
    Unreadable(format!("the handover is damaged: {error}"))
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

/// Removes and returns such a number from the front of `bytes`; None when there is none.
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

#[cfg(test)]
mod tests {
    use super::*;

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
