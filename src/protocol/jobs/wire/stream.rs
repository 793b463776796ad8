//! Parser of a connection's input into requests. It keeps incomplete bodies, so that they do not stay in the buffer
//! that connections share.

mod usual;

pub use usual::{Usual, usual};

use super::words::end_of_line;
use super::{Line, MANY_BYTES, MAX_ERROR_BYTES, MAX_EXTENSION_LINE, MAX_LINE, Request, parse, schedule};
use crate::jobs::commands::{JobCommand, extension_of};
use crate::jobs::values::{Body, Failure, ManyEntry, Put, Refusal};
use poolcounter_core::browser::is_from_browser;
use poolcounter_core::record::{Reader, Unreadable, Writer};
use serde::{Deserialize, Serialize};
use std::io;

/// A complete request.
pub enum Item<'a> {
    /// A request without a body.
    Request(JobCommand, Request<'a>),
    /// A put.
    Put(Put, Body),
    /// A put-many.
    PutMany(Vec<ManyEntry>),
    /// `fail` with its text.
    Fail(Failure, Box<[u8]>),
    /// A malformed or too long request.
    Refused(Refusal),
}

/// End of a body.
const CRLF: &[u8] = b"\r\n";
/// First room for a body, whatever length its line names.
const FIRST_ROOM: usize = 64 << 10;

/// State of a connection's input between two reads.
#[derive(Default)]
pub struct Stream {
    phase: Phase,
    many: Option<Many>,
}

#[derive(Default)]
enum Phase {
    #[default]
    Line,
    /// The rest of a line that was too long is skipped.
    RestOfLine,
    Body(BodyOwner, Vec<u8>, usize),
    /// This many bytes are skipped, and then the request is refused.
    Skip(u64, Refusal),
}

/// Request that a body belongs to.
#[derive(Clone, Serialize, Deserialize)]
enum BodyOwner {
    Put(Put),
    Fail(Failure),
}

/// An incomplete put-many.
struct Many {
    left: u32,
    entries: Vec<ManyEntry>,
    /// Bytes of the bodies, including an incomplete body.
    bytes: usize,
    /// Size of the entries in bytes.
    kept: usize,
    /// Reason for which none of them is put, if there is one: then no entry is kept.
    lost: Option<Refusal>,
}

/// Result of a cut: the consumed bytes, and the item that they make.
pub struct Cut<'a> {
    /// Number of bytes that are not passed again.
    pub consumed: usize,
    /// None if more bytes must come first, unless some were consumed: then call again.
    pub item: Option<Item<'a>>,
}

/// Handover of a stream, without its bodies. They follow as bytes: the incomplete body, then the bodies of the puts.
#[derive(Serialize, Deserialize)]
struct SavedStream {
    phase: SavedPhase,
    many: Option<SavedMany>,
}

#[derive(Serialize, Deserialize)]
enum SavedPhase {
    Line,
    RestOfLine,
    Body(BodyOwner, usize),
    Skip(u64, Refusal),
}

#[derive(Serialize, Deserialize)]
struct SavedMany {
    left: u32,
    bytes: usize,
    lost: Option<Refusal>,
    entries: Vec<Result<Put, Refusal>>,
}

impl Stream {
    /// Returns whether the input is between two requests.
    pub fn is_between(&self) -> bool {
        matches!((&self.phase, &self.many), (Phase::Line, None))
    }

    /// Returns the number of bytes kept of an incomplete request.
    pub fn kept_bytes(&self) -> usize {
        let body = if let Phase::Body(_, body, _) = &self.phase { body.capacity() } else { 0 };
        body + self.many.as_ref().filter(|many| many.lost.is_none()).map_or(0, |many| many.kept)
    }

    /// Writes the kept part of a request, for a successor.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be written.
    pub fn save(&self, out: &mut Writer<'_>) -> io::Result<()> {
        let (phase, body) = match &self.phase {
            Phase::Line => (SavedPhase::Line, None),
            Phase::RestOfLine => (SavedPhase::RestOfLine, None),
            Phase::Body(what, body, len) => (SavedPhase::Body(what.clone(), *len), Some(body)),
            Phase::Skip(left, refusal) => (SavedPhase::Skip(*left, *refusal), None),
        };
        let entry = |entry: &ManyEntry| match entry {
            ManyEntry::Put(put, _) => Ok(put.clone()),
            ManyEntry::Refused(refusal) => Err(*refusal),
        };
        let many = self.many.as_ref().map(|Many { left, entries, bytes, lost, .. }| SavedMany {
            left: *left,
            bytes: *bytes,
            lost: *lost,
            entries: entries.iter().map(entry).collect(),
        });
        out.put(&SavedStream { phase, many })?;
        body.map_or(Ok(()), |body| out.put_bytes(body))?;
        for entry in self.many.iter().flat_map(|many| &many.entries) {
            if let ManyEntry::Put(_, body) = entry {
                out.put_bytes(body.bytes())?;
            }
        }
        Ok(())
    }

    /// Reads what [`Stream::save`] writes.
    ///
    /// # Errors
    ///
    /// Fails if it is anything else.
    pub fn restore(saved: &mut Reader<'_>) -> Result<Stream, Unreadable> {
        let SavedStream { phase, many } = saved.take()?;
        let phase = match phase {
            SavedPhase::Line => Phase::Line,
            SavedPhase::RestOfLine => Phase::RestOfLine,
            SavedPhase::Skip(left, refusal) => Phase::Skip(left, refusal),
            SavedPhase::Body(what, len) => {
                let body = saved.take_bytes()?.to_vec();
                if body.len() > len {
                    return Err(Unreadable("the handover is damaged: a body is too long".into()));
                }
                Phase::Body(what, body, len)
            }
        };
        let Some(SavedMany { left, bytes, lost, entries }) = many else { return Ok(Stream { phase, many: None }) };
        let mut all = Vec::with_capacity(entries.len());
        for entry in entries {
            all.push(match entry {
                Ok(put) => ManyEntry::Put(put, Body::Own(saved.take_bytes()?.into())),
                Err(refusal) => ManyEntry::Refused(refusal),
            });
        }
        let kept = all.iter().map(ManyEntry::kept_bytes).sum();
        Ok(Stream { phase, many: Some(Many { left, entries: all, bytes, kept, lost }) })
    }

    /// Returns the next request at the front of the input. Bodies are limited to `max_size` bytes.
    pub fn cut<'a>(&mut self, input: &'a [u8], max_size: u32) -> Cut<'a> {
        match std::mem::take(&mut self.phase) {
            Phase::Line => self.cut_line(input, max_size),
            Phase::RestOfLine => self.skip_line(input),
            Phase::Body(what, body, len) => self.cut_body(what, body, len, input),
            Phase::Skip(left, refusal) => {
                let skipped = left.min(input.len() as u64);
                if skipped < left {
                    self.phase = Phase::Skip(left - skipped, refusal);
                    return Cut { consumed: skipped as usize, item: None };
                }
                Cut { consumed: skipped as usize, item: self.refuse(refusal) }
            }
        }
    }

    fn cut_line<'a>(&mut self, input: &'a [u8], max_size: u32) -> Cut<'a> {
        let mut window = &input[..input.len().min(MAX_LINE)];
        let mut found = end_of_line(window);
        // The longer limit of some words matters only for long lines.
        let extension = if found.is_none() { extension_of(window) } else { None };
        let most = if extension.is_some() { MAX_EXTENSION_LINE } else { MAX_LINE };
        if most > MAX_LINE {
            window = &input[..input.len().min(most)];
            found = end_of_line(window);
        }
        let Some(end) = found else {
            if window.len() < most {
                return Cut { consumed: 0, item: None };
            }
            if is_from_browser(window) {
                return turn_browser_away(input);
            }
            // The last byte may be the first half of a line's end.
            self.phase = Phase::RestOfLine;
            let item = self.refuse_line(extension.map_or(Refusal::BadFormat, JobCommand::wrong_form));
            return Cut { consumed: most - 1, item };
        };
        let (line, consumed) = (&input[..end], end + CRLF.len());
        if is_from_browser(line) {
            return turn_browser_away(input);
        }
        let item = match parse(line) {
            Line::Put(put, _) if self.many.is_some() && schedule::is_schedule(&put) => {
                self.refuse_line(JobCommand::PutMany.wrong_form())
            }
            Line::Put(_, bytes) if bytes > max_size => self.skip(bytes, Refusal::JobTooBig),
            Line::Put(put, bytes) => self.begin_body(BodyOwner::Put(put), bytes),
            Line::RefusedBody(command, bytes) => self.skip(bytes, command.wrong_form()),
            Line::Refused(_) if self.many.is_some() && is_put(line) => {
                self.refuse(extension_of(line).map_or(Refusal::BadFormat, JobCommand::wrong_form))
            }
            _ if self.many.is_some() => self.refuse_line(JobCommand::PutMany.wrong_form()),
            Line::Fail(_, bytes) if bytes > MAX_ERROR_BYTES => self.skip(bytes, JobCommand::Fail.wrong_form()),
            Line::Fail(failure, bytes) => self.begin_body(BodyOwner::Fail(failure), bytes),
            Line::PutMany(left) => {
                self.many = Some(Many { left, entries: Vec::new(), bytes: 0, kept: 0, lost: None });
                None
            }
            Line::Request(command, request) => Some(Item::Request(command, request)),
            Line::Refused(refusal) => Some(Item::Refused(refusal)),
        };
        let rest = &input[consumed..];
        match &self.phase {
            // If the whole body is there, it is cut at once and need not be kept.
            Phase::Body(_, _, len) if rest.len() >= len + CRLF.len() => {
                let body = self.cut(rest, max_size);
                Cut { consumed: consumed + body.consumed, ..body }
            }
            _ => Cut { consumed, item },
        }
    }

    fn skip_line(&mut self, input: &[u8]) -> Cut<'static> {
        match end_of_line(input) {
            Some(end) => Cut { consumed: end + CRLF.len(), item: None },
            None => {
                self.phase = Phase::RestOfLine;
                Cut { consumed: input.len().saturating_sub(1), item: None }
            }
        }
    }

    fn begin_body(&mut self, what: BodyOwner, bytes: u32) -> Option<Item<'static>> {
        let len = bytes as usize;
        if let Some(many) = &mut self.many {
            many.bytes += len;
            if many.bytes > MANY_BYTES {
                many.lose(Refusal::JobTooBig);
            }
            if let Some(lost) = many.lost {
                return self.skip(bytes, lost);
            }
        }
        self.phase = Phase::Body(what, Vec::new(), len);
        None
    }

    fn skip(&mut self, bytes: u32, refusal: Refusal) -> Option<Item<'static>> {
        self.phase = Phase::Skip(u64::from(bytes) + CRLF.len() as u64, refusal);
        None
    }

    fn cut_body(&mut self, what: BodyOwner, mut body: Vec<u8>, len: usize, input: &[u8]) -> Cut<'static> {
        let taken = (len - body.len()).min(input.len());
        make_room(&mut body, taken, len);
        body.extend_from_slice(&input[..taken]);
        let rest = &input[taken..];
        if body.len() < len || rest.len() < CRLF.len() {
            self.phase = Phase::Body(what, body, len);
            return Cut { consumed: taken, item: None };
        }
        let consumed = taken + CRLF.len();
        if !rest.starts_with(CRLF) {
            return Cut { consumed, item: self.refuse(Refusal::ExpectedCrlf) };
        }
        let item = match what {
            BodyOwner::Fail(failure) => Some(Item::Fail(failure, body.into())),
            BodyOwner::Put(put) => self.put(put, Body::Own(body.into())),
        };
        Cut { consumed, item }
    }

    fn put(&mut self, put: Put, body: Body) -> Option<Item<'static>> {
        if self.many.is_none() {
            return Some(Item::Put(put, body));
        }
        self.add(ManyEntry::Put(put, body))
    }

    /// Refuses a put; a put of a put-many has a reply of its own.
    fn refuse(&mut self, refusal: Refusal) -> Option<Item<'static>> {
        if self.many.is_none() { Some(Item::Refused(refusal)) } else { self.add(ManyEntry::Refused(refusal)) }
    }

    /// Refuses a malformed line, which ends a put-many, too.
    fn refuse_line(&mut self, refusal: Refusal) -> Option<Item<'static>> {
        self.many = None;
        Some(Item::Refused(refusal))
    }

    fn add(&mut self, entry: ManyEntry) -> Option<Item<'static>> {
        let many = self.many.as_mut().expect("it is one of many");
        many.left -= 1;
        if many.lost.is_none() {
            many.kept += entry.kept_bytes();
            many.entries.push(entry);
        }
        if many.left > 0 {
            return None;
        }
        let many = self.many.take().expect("it is one of many");
        Some(many.lost.map_or_else(|| Item::PutMany(many.entries), Item::Refused))
    }

    /// Drops the kept bytes for lack of memory; the rest is skipped and refused.
    pub fn give_up(&mut self) {
        if let Some(many) = &mut self.many {
            many.lose(Refusal::OutOfMemory);
        }
        match std::mem::take(&mut self.phase) {
            Phase::Body(_, body, len) => drop(self.skip((len - body.len()) as u32, Refusal::OutOfMemory)),
            phase => self.phase = phase,
        }
    }
}

impl Many {
    /// Drops the entries: none of them will be put.
    fn lose(&mut self, why: Refusal) {
        self.lost.get_or_insert(why);
        self.entries = Vec::new();
    }
}

/// Ends the connection of a browser, without a reply and without serving its input.
fn turn_browser_away(input: &[u8]) -> Cut<'static> {
    Cut { consumed: input.len(), item: Some(Item::Request(JobCommand::Quit, Request::Quit)) }
}

/// Returns true if a line begins with the word of a put, even if it is malformed.
fn is_put(line: &[u8]) -> bool {
    matches!(line.split(|byte| *byte == b' ').next(), Some(b"put" | b"put-job"))
}

/// Makes room for `more` bytes of a body, at most doubling it: its length may be a lie.
fn make_room(body: &mut Vec<u8>, more: usize, len: usize) {
    if body.capacity() - body.len() < more {
        let wanted = if more == len { len } else { (2 * body.capacity()).max(FIRST_ROOM) };
        body.reserve_exact(wanted.min(len).max(body.len() + more) - body.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the items of the bytes, passed in pieces of this length.
    fn items(bytes: &[u8], piece: usize) -> Vec<String> {
        let mut stream = Stream::default();
        let (mut buffer, mut items) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            buffer.extend_from_slice(piece);
            loop {
                let Cut { consumed, item } = stream.cut(&buffer, 10);
                let told = item.map(|item| tell(&item));
                if told.as_deref() == Some("Quit") {
                    items.extend(told);
                    return items;
                }
                let is_over = told.is_none() && consumed == 0;
                items.extend(told);
                buffer.drain(..consumed);
                if is_over {
                    break;
                }
            }
        }
        items
    }

    fn tell(item: &Item<'_>) -> String {
        match item {
            Item::Request(_, request) => format!("{request:?}").split(['(', ' ']).next().unwrap_or_default().into(),
            Item::Put(_, body) => format!("put {}", body.bytes().escape_ascii()),
            Item::Fail(failure, text) => {
                let bury = if failure.buries { " bury" } else { "" };
                format!("fail {}{bury} {}", failure.id.0, text.escape_ascii())
            }
            Item::Refused(refusal) => format!("{refusal:?}"),
            Item::PutMany(entries) => {
                let entry = |entry: &ManyEntry| match entry {
                    ManyEntry::Put(_, body) => body.bytes().escape_ascii().to_string(),
                    ManyEntry::Refused(refusal) => format!("{refusal:?}"),
                };
                format!("many {}", entries.iter().map(entry).collect::<Vec<_>>().join(","))
            }
        }
    }

    #[test]
    fn streams_are_cut_alike_however_they_come() {
        let long = format!("use {}\r\nstats\r\n", "x".repeat(300));
        let extension = format!("put-job 1 1 1 2 key={}\r\nab\r\nstats\r\n", "k".repeat(200));
        let too_long = format!("identify {}\r\nstats\r\n", "k".repeat(2000));
        let long_request = format!("POST /{} HTTP/1.1\r\ndrain\r\n", "x".repeat(300));
        let cases: [(&str, &str); 21] = [
            ("put 1 1 1 9\r\nPOST / HT\r\nstats\r\n", "put POST / HT|Stats"),
            ("put 1 1 1 9\r\nHost: a\r\n\r\nstats\r\n", "put Host: a\\r\\n|Stats"),
            ("put-many 1\r\nput 1 1 1 4\r\nGET \r\nfail 7 1 1 5\r\nHost:\r\n", "many GET |fail 7 Host:"),
            ("stats\r\nPOST / HTTP/1.1\r\nstats\r\n", "Stats|Quit"),
            ("put-many 2\r\nput 1 1 1 1\r\na\r\nHOST: a\r\nstats\r\n", "Quit"),
            (&long_request, "Quit"),
            ("put 1 1 1 3\r\nabc\r\nstats\r\n", "put abc|Stats"),
            ("put 1 1 1 0\r\n\r\nput 1 1 1 2\r\n\r\n\r\n", "put |put \\r\\n"),
            ("put 1 1 1 3\r\nabcdestats\r\n", "ExpectedCrlf|Stats"),
            ("put 1 1 1 11\r\nabcdefghijk\r\nstats\r\n", "JobTooBig|Stats"),
            ("put 1 1 1 x\r\nstats\r\n", "BadFormat|Stats"),
            ("put-job 1 1 1 3 x=y\r\nabc\r\nstats\r\n", "WrongForm(PutJob)|Stats"),
            ("fail 7 1 1 2\r\nno\r\nfail 7 1 1 5000\r\n", "fail 7 no"),
            ("fail 7 1 1 2 bury\r\nno\r\nfail 7 1 1 2 x\r\nstats\r\n", "fail 7 bury no|WrongForm(Fail)|Stats"),
            ("put-many 2\r\nput 1 1 1 1\r\na\r\nput-job 1 1 1 2 key=a\r\nbc\r\nstats\r\n", "many a,bc|Stats"),
            (
                "put-many 3\r\nput x\r\nput-job 1 1 1 1 x\r\nb\r\nput 1 1 1 1\r\nc\r\n",
                "many BadFormat,WrongForm(PutJob),c",
            ),
            ("put-many 2\r\nput 1 1 1 1\r\na\r\nstats\r\nstats\r\n", "WrongForm(PutMany)|Stats"),
            ("put-many 2\r\nput 1 1 1 1\r\naXXput 1 1 1 11\r\n01234567890\r\n", "many ExpectedCrlf,JobTooBig"),
            (&long, "BadFormat|Stats"),
            (&extension, "put ab|Stats"),
            (&too_long, "WrongForm(Identify)|Stats"),
        ];
        for (bytes, wanted) in cases {
            for piece in [1, 2, 3, 7, 223, 224, 225, 10_000] {
                let got = items(bytes.as_bytes(), piece).join("|");
                assert_eq!(got, wanted, "{} in pieces of {piece}", bytes.escape_default());
            }
        }
    }

    #[test]
    fn a_put_many_of_too_many_bytes_is_swallowed_and_refused_once() {
        let puts = |bytes: usize| format!("put 1 1 1 {bytes}\r\n{}\r\n", "x".repeat(bytes));
        for (rest, wanted) in [(1, "JobTooBig|Stats"), (0, "put-many|Stats")] {
            let bytes = ["put-many 3\r\n", &puts(MANY_BYTES), &puts(rest), &puts(0), "stats\r\n"].concat();
            let (mut stream, mut rest, mut told) = (Stream::default(), bytes.as_bytes(), Vec::new());
            while !rest.is_empty() {
                let Cut { consumed, item } = stream.cut(rest, MANY_BYTES as u32);
                told.extend(item.map(|item| match item {
                    Item::PutMany(_) => "put-many".into(),
                    other => tell(&other),
                }));
                rest = &rest[consumed..];
            }
            assert_eq!(told.join("|"), wanted);
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_answered_at_once() {
        let mut stream = Stream::default();
        let line = [b'x'; 224];
        assert!(stream.cut(&line[..223], 10).item.is_none());
        assert!(matches!(stream.cut(&line, 10).item, Some(Item::Refused(Refusal::BadFormat))));
    }

    #[test]
    fn bodies_beyond_the_memory_are_skipped() {
        for (bytes, rest) in [
            ("put 1 1 1 6\r\nabc", "def\r\nstats\r\n"),
            ("put-many 2\r\nput 1 1 1 1\r\na\r\nput 1 1 1 3\r\nb", "cd\r\nstats\r\n"),
            ("put-many 2\r\nput 1 1 1 1\r\na\r\n", "put 1 1 1 1\r\nb\r\nstats\r\n"),
        ] {
            let mut stream = Stream::default();
            let mut at = 0;
            while at < bytes.len() {
                at += stream.cut(&bytes.as_bytes()[at..], 10).consumed;
            }
            assert!(stream.kept_bytes() > 0);
            stream.give_up();
            assert_eq!(stream.kept_bytes(), 0);
            let (mut rest, mut told) = (rest.as_bytes(), Vec::new());
            while !rest.is_empty() {
                let Cut { consumed, item } = stream.cut(rest, 10);
                told.extend(item.map(|item| tell(&item)));
                rest = &rest[consumed..];
            }
            assert_eq!(told, ["OutOfMemory", "Stats"], "{bytes}");
        }
    }

    #[test]
    fn a_length_that_is_a_lie_takes_no_memory() {
        let mut stream = Stream::default();
        let cut = stream.cut(b"put 1 1 1 1073741824\r\nabc", 1 << 30);
        assert!(cut.item.is_none());
        let cut = stream.cut(b"abc", 1 << 30);
        assert_eq!((cut.consumed, stream.is_between()), (3, false));
        assert!(stream.kept_bytes() <= FIRST_ROOM);
    }
}
