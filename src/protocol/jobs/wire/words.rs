//! Arguments of a line. One space precedes each; before a number there may be more.

use crate::jobs::name::{Pattern, TubeName};
use crate::jobs::request::JobId;
use crate::jobs::request::{JobState, SummaryBy};
use crate::jobs::values::{JobChange, JobsOf, MOST_LISTED};
use memchr::memchr_iter;

/// Error of a malformed line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wrong;

/// Rest of a line, beginning with the space before the next word.
pub(super) struct Words<'a>(&'a [u8]);

/// Returns true for 1 to `most` bytes without spaces and control bytes.
pub(super) fn is_text(bytes: &[u8], most: usize) -> bool {
    (1..=most).contains(&bytes.len()) && !bytes.iter().any(|byte| *byte == b' ' || byte.is_ascii_control())
}

/// Reads a number that consists of digits alone.
pub(super) fn number(digits: &[u8], least: u64, most: u64) -> Result<u64, Wrong> {
    match first_number(digits, least, most)? {
        (number, []) => Ok(number),
        _ => Err(Wrong),
    }
}

/// Returns the position of the end of the first line. A line feed alone does not end it.
pub(super) fn end_of_line(bytes: &[u8]) -> Option<usize> {
    let mut ends = memchr_iter(b'\n', bytes).filter_map(|feed| feed.checked_sub(1));
    ends.find(|end| bytes[*end] == b'\r')
}

/// Number of digits that are a number of 64 bits in any case.
const SAFE_DIGITS: usize = u64::MAX.ilog10() as usize;

/// Reads the number before the first space, and returns it with the bytes from there on.
#[inline]
fn first_number(bytes: &[u8], least: u64, most: u64) -> Result<(u64, &[u8]), Wrong> {
    let (mut number, mut rest) = (0_u64, bytes.iter());
    while let Some(byte) = rest.as_slice().first() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            if *byte == b' ' {
                break;
            }
            return Err(Wrong);
        }
        // Too many digits are found below.
        number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
        rest.next();
    }
    let digits = bytes.len() - rest.len();
    if digits > SAFE_DIGITS {
        number = bytes.get(..digits).and_then(checked).ok_or(Wrong)?;
    }
    if digits > 0 && least <= number && number <= most { Ok((number, rest.as_slice())) } else { Err(Wrong) }
}

/// Returns the number of these digits, if it has 64 bits at most.
#[cold]
fn checked(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0_u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

impl<'a> Words<'a> {
    pub fn new(rest: Option<&'a [u8]>) -> Self {
        Words(rest.unwrap_or_default())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads all text that is left, as one argument.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Returns the value if no text is left.
    pub fn end<T>(&self, value: T) -> Result<T, Wrong> {
        if self.0.is_empty() { Ok(value) } else { Err(Wrong) }
    }

    /// Reads an optional argument.
    pub fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Wrong>) -> Result<Option<T>, Wrong> {
        if self.is_empty() { Ok(None) } else { read(self).map(Some) }
    }

    pub fn word(&mut self) -> Result<&'a [u8], Wrong> {
        let rest = self.0.strip_prefix(b" ").ok_or(Wrong)?;
        let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let (word, rest) = rest.split_at(end);
        self.0 = rest;
        if word.is_empty() { Err(Wrong) } else { Ok(word) }
    }

    /// Reads the name of a file: without a slash, and not hidden.
    pub fn file_name(&mut self) -> Result<&'a [u8], Wrong> {
        let is_plain = |name: &&[u8]| !name.starts_with(b".") && !name.iter().any(|byte| *byte == b'/' || *byte < b' ');
        self.word().ok().filter(is_plain).ok_or(Wrong)
    }

    /// Skips all but one space before the next word.
    pub fn skip_spaces(&mut self) {
        while self.0.starts_with(b"  ") {
            self.0 = &self.0[1..];
        }
    }

    /// Reads a number, in one pass.
    pub fn number(&mut self, least: u64, most: u64) -> Result<u64, Wrong> {
        self.skip_spaces();
        let [b' ', digits @ ..] = self.0 else { return Err(Wrong) };
        let (number, rest) = first_number(digits, least, most)?;
        self.0 = rest;
        Ok(number)
    }

    pub fn u32(&mut self) -> Result<u32, Wrong> {
        // Lossless: it is within the limits.
        self.number(0, u64::from(u32::MAX)).map(|number| number as u32)
    }

    pub fn timeout(&mut self) -> Result<u32, Wrong> {
        self.number(0, super::MAX_TIMEOUT).map(|number| number as u32)
    }

    /// Reads the number of jobs of a command.
    pub fn count(&mut self) -> Result<u32, Wrong> {
        self.number(1, u64::from(super::MANY)).map(|number| number as u32)
    }

    pub fn id(&mut self) -> Result<JobId, Wrong> {
        self.number(0, u64::MAX).map(JobId)
    }

    pub fn tube(&mut self) -> Result<TubeName<'a>, Wrong> {
        TubeName::parse(self.word()?).ok_or(Wrong)
    }

    pub fn pattern(&mut self) -> Result<Pattern<'a>, Wrong> {
        Pattern::parse(self.word()?).ok_or(Wrong)
    }

    pub fn text(&mut self, most: usize) -> Result<&'a [u8], Wrong> {
        self.word().and_then(|word| if is_text(word, most) { Ok(word) } else { Err(Wrong) })
    }

    pub fn state(&mut self) -> Result<JobState, Wrong> {
        let word = self.word()?;
        JobState::ALL.into_iter().find(|state| state.word().as_bytes() == word).ok_or(Wrong)
    }

    /// Reads the state of jobs that are kicked.
    pub fn kicked(&mut self) -> Result<JobState, Wrong> {
        self.state().and_then(|state| match state {
            JobState::Delayed | JobState::Buried => Ok(state),
            JobState::Ready | JobState::Reserved => Err(Wrong),
        })
    }

    /// Reads the state of jobs that nobody has reserved.
    pub fn waiting(&mut self) -> Result<JobState, Wrong> {
        self.state().and_then(|state| if state == JobState::Reserved { Err(Wrong) } else { Ok(state) })
    }

    /// Reads a pattern, or a word of digits, which is the number of a job.
    pub fn jobs(&mut self) -> Result<JobsOf<'a>, Wrong> {
        let word = self.word()?;
        match number(word, 0, u64::MAX) {
            Ok(id) => Ok(JobsOf::Job(JobId(id))),
            Err(Wrong) => Pattern::parse(word).map(JobsOf::Pattern).ok_or(Wrong),
        }
    }

    /// Reads one or more of `pri=N`, `delay=S` and `ttr=S`, each once.
    pub fn change(&mut self) -> Result<JobChange, Wrong> {
        let mut change = JobChange::default();
        loop {
            let word = self.word()?;
            let equals = word.iter().position(|byte| *byte == b'=').ok_or(Wrong)?;
            let value = match &word[..equals] {
                b"pri" => &mut change.pri,
                b"delay" => &mut change.delay,
                b"ttr" => &mut change.ttr,
                _ => return Err(Wrong),
            };
            // Lossless: it is within the limits.
            let number = number(&word[equals + 1..], 0, u32::MAX.into())? as u32;
            if value.replace(number).is_some() {
                return Err(Wrong);
            }
            if self.is_empty() {
                return Ok(change);
            }
        }
    }

    /// Reads `per` and a number of seconds, if they come next.
    pub fn period(&mut self) -> Result<Option<u32>, Wrong> {
        let Some(rest) = self.0.strip_prefix(b" per").filter(|rest| rest.is_empty() || rest.starts_with(b" ")) else {
            return Ok(None);
        };
        self.0 = rest;
        // Lossless: it is within the limits.
        self.number(1, u64::from(u32::MAX)).map(|seconds| Some(seconds as u32))
    }

    /// Reads the weight of a watch.
    pub fn weight(&mut self) -> Result<u16, Wrong> {
        // Lossless: it is within the limits.
        self.number(1, super::MAX_WEIGHT).map(|number| number as u16)
    }

    /// Reads the most jobs of a list.
    pub fn listed(&mut self) -> Result<u32, Wrong> {
        // Lossless: it is within the limits.
        self.number(1, u64::from(MOST_LISTED)).map(|number| number as u32)
    }

    /// Reads the kind of a summary.
    pub fn summary_by(&mut self) -> Result<SummaryBy, Wrong> {
        let word = self.word()?;
        SummaryBy::ALL.into_iter().find(|by| by.word().as_bytes() == word).ok_or(Wrong)
    }

    /// Reads `after=ID`.
    pub fn after(&mut self) -> Result<JobId, Wrong> {
        let id = self.word()?.strip_prefix(b"after=").ok_or(Wrong)?;
        number(id, 0, u64::MAX).map(JobId)
    }

    /// Reads digits with at most one point among them.
    pub fn decimal(&mut self) -> Result<f64, Wrong> {
        self.skip_spaces();
        let word = self.word()?;
        let is_decimal = word.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
            && word.iter().filter(|byte| **byte == b'.').count() <= 1
            && word.first().is_some_and(u8::is_ascii_digit)
            && word.last().is_some_and(u8::is_ascii_digit);
        let text = std::str::from_utf8(word).map_err(|_| Wrong)?;
        if is_decimal { text.parse().map_err(|_| Wrong) } else { Err(Wrong) }
    }
}
