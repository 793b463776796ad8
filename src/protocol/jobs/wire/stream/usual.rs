//! Complete requests as most clients write them: puts, reserves and deletes, read in one pass.

use super::CRLF;
use crate::jobs::request::JobId;
use crate::jobs::values::Put;

/// A usual request.
pub enum Usual<'a> {
    /// A put without options, and its body.
    Put(Put, &'a [u8]),
    /// A reserve of one job, and the seconds for which it may wait.
    Reserve(u32),
    /// A delete.
    Delete(JobId),
}

/// Returns the request at the front, and its length, if it is complete and usual. [`super::Stream`] reads every other
/// request.
#[inline]
pub fn usual(input: &[u8], max_size: u32) -> Option<(Usual<'_>, usize)> {
    let (request, rest) = match input.first_chunk()? {
        b"put " => {
            let (pri, rest) = small(&input[4..], b' ')?;
            let (delay, rest) = small(rest, b' ')?;
            let (ttr, rest) = small(rest, b' ')?;
            let (bytes, rest) = small(rest, b'\r')?;
            let (body, rest) = rest.strip_prefix(b"\n")?.split_at_checked(bytes as usize)?;
            if bytes > max_size {
                return None;
            }
            (Usual::Put(Put { pri, delay, ttr, options: None }, body), rest.strip_prefix(CRLF)?)
        }
        b"dele" => {
            let (id, rest) = small(input.strip_prefix(b"delete ")?, b'\r')?;
            (Usual::Delete(JobId(id.into())), rest.strip_prefix(b"\n")?)
        }
        b"rese" => {
            let (timeout, rest) = small(input.strip_prefix(b"reserve-with-timeout ")?, b'\r')?;
            (Usual::Reserve(timeout), rest.strip_prefix(b"\n")?)
        }
        _ => return None,
    };
    Some((request, input.len() - rest.len()))
}

/// Reads a number of 1 to 9 digits before the byte `end`, and returns the number with the bytes behind that byte.
#[inline]
fn small(bytes: &[u8], end: u8) -> Option<(u32, &[u8])> {
    let mut number = 0;
    for (place, byte) in bytes.iter().take(10).enumerate() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return (*byte == end && place > 0).then(|| (number, &bytes[place + 1..]));
        }
        // Nine digits fit; with a tenth the result is not used.
        number = u32::wrapping_add(u32::wrapping_mul(number, 10), digit.into());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{Cut, Item, Request, Stream};
    use super::*;
    use crate::jobs::commands::JobCommand;
    use crate::jobs::values::{Body, ManyEntry, Reserve};
    use poolcounter_core::random::Random;

    const MAX_SIZE: u32 = 10;

    /// Returns the usual request at the front as the parser of all requests would.
    fn cut_usual(input: &[u8]) -> Option<Cut<'_>> {
        let (request, consumed) = usual(input, MAX_SIZE)?;
        let item = match request {
            Usual::Put(put, body) => Item::Put(put, Body::Own(body.into())),
            Usual::Reserve(timeout) => {
                let reserve = Reserve { timeout: Some(timeout), many: None };
                Item::Request(JobCommand::ReserveWithTimeout, Request::Reserve(reserve))
            }
            Usual::Delete(id) => Item::Request(JobCommand::Delete, Request::Delete(id)),
        };
        Some(Cut { consumed, item: Some(item) })
    }

    fn tell(item: &Item<'_>) -> String {
        match item {
            Item::Request(command, request) => format!("{command:?} {request:?}"),
            Item::Put(put, body) => format!("{put:?} {:?}", body.bytes()),
            Item::PutMany(entries) => {
                let entry = |entry: &ManyEntry| match entry {
                    ManyEntry::Put(put, body) => format!("{put:?} {:?}", body.bytes()),
                    ManyEntry::Refused(refusal) => format!("{refusal:?}"),
                };
                entries.iter().map(entry).collect::<Vec<_>>().join(", ")
            }
            Item::Fail(failure, text) => format!("{failure:?} {text:?}"),
            Item::Refused(refusal) => format!("{refusal:?}"),
        }
    }

    fn tell_cut(cut: &Cut<'_>) -> String {
        format!("{} {:?}", cut.consumed, cut.item.as_ref().map(tell))
    }

    #[test]
    fn usual_requests_are_read_as_by_the_stream() {
        let usual_ones = [
            "put 1 2 3 4\r\nabcd\r\nrest",
            "put 999999999 000000000 999999999 0\r\n\r\n",
            "put 0 0 0 2\r\n\r\n\r\n",
            "delete 0\r\n",
            "delete 999999999\r\ndelete 1\r\n",
            "reserve-with-timeout 0\r\nquit\r\n",
        ];
        for text in usual_ones {
            let read = cut_usual(text.as_bytes()).map(|cut| tell_cut(&cut));
            assert_eq!(read, Some(tell_cut(&Stream::default().cut(text.as_bytes(), MAX_SIZE))), "{text:?}");
        }
        let others = [
            "",
            "pu",
            "put 1 1 1 1\r\na",
            "put 1 1 1 1\r\nab\r\n",
            "put 1 1 1 11\r\n01234567890\r\n",
            "put  1 1 1 1\r\na\r\n",
            "put 1 1 1\r\n",
            "put 1 1 1 1 \r\na\r\n",
            "put 4294967295 1 1 1\r\na\r\n",
            "delete\r\n",
            "delete 1\n",
            "delete 1",
            "delete 1 \r\n",
            "delete -1\r\n",
            "delete 9999999999\r\n",
            "delete \r\n",
            "reserve\r\n",
            "reserve-with-timeout 4294967296\r\n",
        ];
        for text in others {
            assert!(usual(text.as_bytes(), MAX_SIZE).is_none(), "{text:?}");
        }
    }

    /// Reads bytes that arrive in pieces of these lengths, by the parser of all requests alone or by both. Returns the
    /// items, and the number of usual requests.
    fn read(bytes: &[u8], mut piece: impl FnMut() -> usize, by_both: bool) -> (Vec<String>, usize) {
        let (mut stream, mut items, mut usual_ones) = (Stream::default(), Vec::new(), 0);
        let (mut begin, mut end) = (0, 0);
        while end < bytes.len() {
            end = bytes.len().min(end + piece());
            loop {
                let input = &bytes[begin..end];
                let usual = if by_both && stream.is_between() { cut_usual(input) } else { None };
                usual_ones += usize::from(usual.is_some());
                let cut = usual.unwrap_or_else(|| stream.cut(input, MAX_SIZE));
                begin += cut.consumed;
                items.extend(cut.item.as_ref().map(tell));
                match cut.item {
                    Some(Item::Request(_, Request::Quit)) => return (items, usual_ones),
                    None if cut.consumed == 0 => break,
                    _ => {}
                }
            }
        }
        (items, usual_ones)
    }

    /// Returns requests and parts of requests: many usual requests, and many that are almost so.
    fn some_bytes(random: &mut Random) -> Vec<u8> {
        const WORDS: &str = "put |put|delete |delete|reserve-with-timeout |reserve|put-many 2#|put-job |fail |quit|use a\0b#|\
            POST / HTTP/1.1#|Host: a#| | |0|1|2|-1|999999999|1000000000|4294967296|18446744073709551617|#|#|\r|\n|\0|key=a";
        let words: Vec<String> = WORDS.split('|').map(|word| word.replace('#', "\r\n")).collect();
        let mut bytes = Vec::new();
        for _ in 0..1 + random.below(12) {
            let number = [0, 7, 10, 999_999_999, 1_000_000_000, u64::from(u32::MAX)][random.below(6) as usize];
            match random.below(8) {
                0..3 => {
                    let body: Vec<u8> = (0..random.below(12)).map(|_| b"\r\n\0 p1"[random.below(6) as usize]).collect();
                    // Some lengths are wrong.
                    let len = body.len() as u64 + random.below(20) / 19;
                    bytes.extend(format!("put {} {number} 1 {len}\r\n", random.below(9)).bytes());
                    bytes.extend(body);
                    bytes.extend(b"\r\n");
                }
                3 => bytes.extend(format!("delete {number}\r\n").bytes()),
                4 => bytes.extend(format!("reserve-with-timeout {number}\r\n").bytes()),
                5 if random.below(9) == 0 => bytes.extend([b'x'; 230]),
                5 => bytes.extend(random.bytes::<1>()),
                _ => bytes.extend(words[random.below(words.len() as u64) as usize].bytes()),
            }
        }
        bytes
    }

    #[test]
    fn random_bytes_are_read_alike_however_they_come() {
        let mut usual_ones = 0;
        for seed in 0..4_000 {
            let mut random = Random::from_seed(seed);
            let bytes = some_bytes(&mut random);
            let (wanted, _) = read(&bytes, || bytes.len(), false);
            for longest in [1, 9, 40, 1_000] {
                let pieces = || 1 + random.below(longest) as usize;
                let (items, usual) = read(&bytes, pieces, true);
                assert_eq!(items, wanted, "seed {seed}, in pieces up to {longest}: {}", bytes.escape_ascii());
                usual_ones += usual;
            }
            let (items, usual) = read(&bytes, || bytes.len(), true);
            assert_eq!(items, wanted, "seed {seed}: {}", bytes.escape_ascii());
            usual_ones += usual;
        }
        assert!(usual_ones > 10_000, "{usual_ones} usual requests");
    }
}
