//! Input of commands: the body of a job, or jobs one at a time; and the answers of commands with `--batch`.

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use poolcounter_client::{JobId, ReservedJob};
use poolcounter_service::options::seconds;
use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Returns a file with the body of a job, at its start. Unlike a pipe, it needs no writer.
pub fn file_of(body: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("job", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(body)?;
    file.rewind()?;
    Ok(file)
}

/// Pipe to a command, with its unsent bytes.
pub struct CommandInput {
    pipe: PipeWriter,
    unsent: Vec<u8>,
    /// True if no more jobs follow.
    pub is_last: bool,
}

impl CommandInput {
    /// Returns the command's end of the pipe, and the input.
    pub fn new() -> io::Result<(PipeReader, CommandInput)> {
        let (reader, pipe) = io::pipe()?;
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok((reader, CommandInput { pipe, unsent: Vec::new(), is_last: false }))
    }

    /// Adds the line of a job.
    pub fn add(&mut self, job: &ReservedJob) {
        write_line(job.id, &job.body, &mut self.unsent);
    }

    pub fn has_more(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Writes as much as the pipe takes. If the command has closed its end, its exit decides about the job.
    pub fn write(&mut self) {
        while !self.unsent.is_empty() {
            match self.pipe.write(&self.unsent) {
                Ok(len) => drop(self.unsent.drain(..len)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.unsent.clear(),
            }
        }
    }
}

impl AsFd for CommandInput {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}

/// Answer of a command about a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BatchAnswer {
    /// Done; with a duration, its tube is paused for that time.
    Done(Option<Duration>),
    /// Failed, for this reason.
    Failed(Vec<u8>),
    /// Failed for this reason, and to be buried instead of retried.
    Buried(Vec<u8>),
    /// Not started, or to be retried, and released; with a duration, all tubes of its wiki are paused for that time.
    Released(Option<Duration>),
}

/// Writes a job as a line: its number, a space, and its body, with a backslash, line feed or carriage return escaped as
/// `\\`, `\n` or `\r`.
pub fn write_line(id: JobId, body: &[u8], lines: &mut Vec<u8>) {
    lines.extend_from_slice(format!("{id} ").as_bytes());
    for byte in body {
        match byte {
            b'\\' => lines.extend_from_slice(b"\\\\"),
            b'\n' => lines.extend_from_slice(b"\\n"),
            b'\r' => lines.extend_from_slice(b"\\r"),
            byte => lines.push(*byte),
        }
    }
    lines.push(b'\n');
}

/// Parses `ID done [SECONDS]`, `ID fail TEXT`, `ID bury TEXT` or `ID release [SECONDS]`; None for anything else.
pub fn read_answer(line: &[u8]) -> Option<(JobId, BatchAnswer)> {
    let (id, rest) = split(line.trim_ascii_end());
    let id = JobId(id.iter().all(u8::is_ascii_digit).then(|| str::from_utf8(id).ok()?.parse().ok()).flatten()?);
    let answer = match split(rest) {
        (b"done", rest) => BatchAnswer::Done(pause(rest)?),
        (b"release", rest) => BatchAnswer::Released(pause(rest)?),
        (b"fail", text) => BatchAnswer::Failed(unescaped(text)),
        (b"bury", text) => BatchAnswer::Buried(unescaped(text)),
        _ => return None,
    };
    Some((id, answer))
}

/// Parses seconds, or an empty text.
fn pause(text: &[u8]) -> Option<Option<Duration>> {
    if text.is_empty() {
        return Some(None);
    }
    let time = seconds(str::from_utf8(text).ok()?).ok()?;
    Some((!time.is_zero()).then_some(time))
}

fn split(line: &[u8]) -> (&[u8], &[u8]) {
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    (&line[..end], line.get(end + 1..).unwrap_or_default())
}

/// Reverses [`write_line`]; any other backslash is kept.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::with_capacity(text.len()), text);
    while let [byte, behind @ ..] = rest {
        let meant = match (byte, behind.first()) {
            (b'\\', Some(b'\\')) => Some(b'\\'),
            (b'\\', Some(b'n')) => Some(b'\n'),
            (b'\\', Some(b'r')) => Some(b'\r'),
            _ => None,
        };
        plain.push(meant.unwrap_or(*byte));
        rest = if meant.is_some() { &behind[1..] } else { behind };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_one_line_with_any_body() {
        let mut lines = Vec::new();
        write_line(JobId(7), b"a\\n b\nc\r\0\xff", &mut lines);
        write_line(JobId(8), b"", &mut lines);
        assert_eq!(lines, b"7 a\\\\n b\\nc\\r\0\xff\n8 \n");
        let (_, body) = split(lines.split(|byte| *byte == b'\n').next().expect("two lines"));
        assert_eq!(unescaped(body), b"a\\n b\nc\r\0\xff");
    }

    #[test]
    fn an_answer_is_done_or_fail_and_anything_else_is_none() {
        let failed = |text: &[u8]| Some(BatchAnswer::Failed(text.into()));
        for (line, answer) in [
            (&b"7 done"[..], Some(BatchAnswer::Done(None))),
            (b"7 done\r", Some(BatchAnswer::Done(None))),
            (b"7 done 1.5", Some(BatchAnswer::Done(Some(Duration::from_millis(1500))))),
            (b"7 done 0", Some(BatchAnswer::Done(None))),
            (b"7 release", Some(BatchAnswer::Released(None))),
            (b"7 release 30", Some(BatchAnswer::Released(Some(Duration::from_secs(30))))),
            (b"7 release -1", None),
            (b"7 bury of no use", Some(BatchAnswer::Buried(b"of no use".into()))),
            (b"7 fail no such page", failed(b"no such page")),
            (b"7 fail a\\nb\\\\\\x\\", failed(b"a\nb\\\\x\\")),
            (b"7 fail", failed(b"")),
            (b"7 done well", None),
            (b"7", None),
            (b"", None),
            (b"+7 done", None),
            (b"99999999999999999999 done", None),
            (b"done 7", None),
        ] {
            assert_eq!(read_answer(line), answer.map(|answer| (JobId(7), answer)), "{}", String::from_utf8_lossy(line));
        }
    }
}
