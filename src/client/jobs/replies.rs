//! Replies of a server of jobs, read from the connection.

use super::{JobStatus, PutOutcome, Reservation};
use crate::Said;
use crate::connection::{ClientConnection, PART};
use crate::error::{Error, Fault, Stop};
use poolcounter_core::text::plain;
use poolcounter_protocol::jobs::request::JobId;
use poolcounter_protocol::jobs::wire::client as wire;

/// Longest body or text, in bytes. A server can be configured for bodies of up to 1 GiB.
const LONGEST_BODY: usize = 1 << 30;
/// Largest number of jobs of one reserve.
const MANY: usize = 1000;
/// Reply of a server that may no longer own the jobs or cannot store them.
pub const INTERNAL_ERROR: &str = "INTERNAL_ERROR";
/// Reply of a server that accepts no jobs.
pub const DRAINING: &str = "DRAINING";

/// Number and body of a job, as received.
pub type NumberAndBody = (JobId, Vec<u8>);

/// Returns the next line, without its line end.
pub fn line(connection: &mut ClientConnection) -> Result<Vec<u8>, Fault> {
    connection.line().and_then(without_end)
}

pub fn without_end(mut line: Vec<u8>) -> Result<Vec<u8>, Fault> {
    if line.pop() == Some(b'\r') { Ok(line) } else { Err(Fault::Garbled) }
}

/// Returns the reason why a reply is not the expected one.
pub fn stop(reply: &[u8]) -> Stop {
    if wire::is_refusal(reply) { Stop::refused(reply) } else { Fault::Garbled.into() }
}

/// Parses a reply unless it is `NOT_FOUND`.
pub fn if_found<T>(reply: &[u8], read: impl FnOnce(&[u8]) -> Said<T>) -> Said<Option<T>> {
    if reply == b"NOT_FOUND" { Ok(None) } else { read(reply).map(Some) }
}

/// Parses a reply that starts with this word.
pub fn expect(reply: &[u8], wanted: &str) -> Said<()> {
    if wire::split(reply).0 == wanted { Ok(()) } else { Err(stop(reply)) }
}

/// Parses a reply that starts with this word (true) or is `NOT_FOUND` (false).
pub fn expect_or_not_found(reply: &[u8], wanted: &str) -> Said<bool> {
    Ok(if_found(reply, |reply| expect(reply, wanted))?.is_some())
}

/// Parses a reply that starts with this word, or the loss of a job that the connection held.
pub fn expect_held(reply: &[u8], wanted: &str) -> Said<()> {
    if let Some(who) = reply.strip_prefix(b"NOT_FOUND cancelled by ") {
        return Err(Error::Cancelled(plain(&String::from_utf8_lossy(who)).into_owned()).into());
    }
    if_found(reply, |reply| expect(reply, wanted))?.ok_or(Error::Expired.into())
}

/// Parses a reply of this word and a number.
pub fn count_of(reply: &[u8], wanted: &str) -> Said<u64> {
    expect(reply, wanted)?;
    Ok(wire::number(wire::split(reply).1).ok_or(Fault::Garbled)?)
}

/// Returns the next `len` bytes, which a line end follows.
fn body(connection: &mut ClientConnection, len: usize) -> Result<Vec<u8>, Fault> {
    if len > LONGEST_BODY {
        return Err(Fault::Garbled);
    }
    connection.accept(len);
    let mut body = Vec::new();
    while body.len() < len + 2 {
        let part = connection.bytes((len + 2 - body.len()).min(PART))?;
        body.extend_from_slice(&part);
    }
    if !body.ends_with(b"\r\n") {
        return Err(Fault::Garbled);
    }
    body.truncate(len);
    Ok(body)
}

/// Reads the text that a reply announces by its length, and parses it.
pub fn read_text<T>(
    connection: &mut ClientConnection,
    reply: &[u8],
    parse: impl FnOnce(&[u8]) -> Option<T>,
) -> Said<T> {
    let len = count_of(reply, "OK")?;
    let text = body(connection, usize::try_from(len).map_err(|_| Fault::Garbled)?)?;
    Ok(parse(&text).ok_or(Fault::Garbled)?)
}

/// Reads the job that a reply of this word announces.
pub fn read_job(connection: &mut ClientConnection, reply: &[u8], wanted: &str) -> Said<NumberAndBody> {
    expect(reply, wanted)?;
    let (id, len) = wire::job_and_bytes(wire::split(reply).1).ok_or(Fault::Garbled)?;
    Ok((id, body(connection, len)?))
}

pub fn read_reserved(connection: &mut ClientConnection, reply: &[u8]) -> Said<Reservation<NumberAndBody>> {
    match reply {
        b"TIMED_OUT" => Ok(Reservation::TimedOut),
        b"DEADLINE_SOON" => Ok(Reservation::DeadlineSoon),
        reply => read_job(connection, reply, "RESERVED").map(Reservation::Reserved),
    }
}

pub fn read_many(connection: &mut ClientConnection, first: &[u8]) -> Said<Reservation<Vec<NumberAndBody>>> {
    let mut jobs = match read_reserved(connection, first)? {
        Reservation::Reserved(job) => vec![job],
        none => return Ok(none.map(|job| vec![job])),
    };
    loop {
        let next = line(connection)?;
        if next == b"END" {
            return Ok(Reservation::Reserved(jobs));
        }
        match read_job(connection, &next, "RESERVED") {
            Ok(job) if jobs.len() < MANY => jobs.push(job),
            _ => return Err(Fault::Garbled.into()),
        }
    }
}

pub fn read_status(connection: &mut ClientConnection, reply: &[u8]) -> Said<JobStatus> {
    let status = |text: &[u8]| JobStatus::of(&wire::parse_map(text)?);
    if_found(reply, |reply| read_text(connection, reply, status))?.ok_or(Error::Expired.into())
}

/// Parses the reply to a put.
pub fn put_outcome(reply: &[u8]) -> Said<PutOutcome> {
    let (word, rest) = wire::split(reply);
    let of_buried = rest.strip_suffix(b" buried").filter(|_| word == "DUPLICATE");
    let id = || wire::number(of_buried.unwrap_or(rest)).map(JobId).ok_or(Fault::Garbled);
    Ok(match word {
        "INSERTED" => PutOutcome::Inserted(id()?),
        "BURIED" => PutOutcome::Buried(id()?),
        "DUPLICATE" if of_buried.is_some() => PutOutcome::DuplicateOfBuried(id()?),
        "DUPLICATE" => PutOutcome::Duplicate(id()?),
        "SUPERSEDED" => PutOutcome::Superseded,
        _ => return Err(stop(reply)),
    })
}

/// Parses the replies to a put-many of `count` jobs, of which `first` is the first line.
pub fn put_outcomes(
    connection: &mut ClientConnection,
    first: &[u8],
    count: usize,
) -> Said<Vec<Result<PutOutcome, Error>>> {
    // This one line is the reply to all jobs.
    if first == b"OUT_OF_MEMORY" || first == b"NOT_ALLOWED" {
        return Err(Stop::refused(first));
    }
    let refusal = |words: &str| Err(Error::Refused(words.into()));
    let mut outcomes = vec![Stop::split(put_outcome(first))?];
    while outcomes.len() < count {
        match line(connection) {
            Ok(line) => outcomes.push(Stop::split(put_outcome(&line))?),
            // A server that gives up its jobs replies once to all, and closes the connection.
            Err(_) if outcomes == [refusal(INTERNAL_ERROR)] => break,
            Err(fault) => return Err(fault.into()),
        }
    }
    match [INTERNAL_ERROR, DRAINING].map(refusal).into_iter().find(|all| outcomes.iter().all(|told| told == all)) {
        Some(Err(of_server)) => Err(of_server.into()),
        _ => Ok(outcomes),
    }
}
