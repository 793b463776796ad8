//! Replies to a runner, read from the connection.

use super::{MANY, NumberAndBody};
use crate::Said;
use crate::connection::ClientConnection;
use crate::error::{Error, Fault};
use crate::jobs::session::{body, expect_or_not_found, line, refused, text};
use crate::jobs::{JobStatus, Reservation};
use poolcounter_core::text::plain;
use poolcounter_protocol::jobs::wire::client as wire;

pub fn read_reserved(connection: &mut ClientConnection, line: &[u8]) -> Said<Reservation<NumberAndBody>> {
    Ok(match line {
        b"TIMED_OUT" => Ok(Reservation::TimedOut),
        b"DEADLINE_SOON" => Ok(Reservation::DeadlineSoon),
        line => read_one(connection, line)?.map(Reservation::Reserved),
    })
}

pub fn read_one(connection: &mut ClientConnection, line: &[u8]) -> Said<NumberAndBody> {
    match wire::split(line) {
        ("RESERVED", rest) => {
            let (id, len) = wire::job_and_bytes(rest).ok_or(Fault::Garbled)?;
            Ok(Ok((id, body(connection, len)?)))
        }
        _ if wire::is_refusal(line) => Ok(Err(refused(line))),
        _ => Err(Fault::Garbled),
    }
}

pub fn read_many(connection: &mut ClientConnection, first: &[u8]) -> Said<Reservation<Vec<NumberAndBody>>> {
    let mut jobs = match read_reserved(connection, first)? {
        Ok(Reservation::Reserved(told)) => vec![told],
        Ok(Reservation::TimedOut) => return Ok(Ok(Reservation::TimedOut)),
        Ok(Reservation::DeadlineSoon) => return Ok(Ok(Reservation::DeadlineSoon)),
        Err(refusal) => return Ok(Err(refusal)),
    };
    loop {
        let next = line(connection)?;
        if next == b"END" {
            return Ok(Ok(Reservation::Reserved(jobs)));
        }
        match read_one(connection, &next)? {
            Ok(told) if jobs.len() < MANY => jobs.push(told),
            _ => return Err(Fault::Garbled),
        }
    }
}

pub fn read_status(connection: &mut ClientConnection, line: &[u8]) -> Said<JobStatus> {
    if line == b"NOT_FOUND" {
        return Ok(Err(Error::Expired));
    }
    if wire::is_refusal(line) {
        return Ok(Err(refused(line)));
    }
    let map = wire::parse_map(&text(connection, line)?);
    Ok(Ok(map.as_ref().and_then(JobStatus::of).ok_or(Fault::Garbled)?))
}

/// Parses a reply that starts with this word, or the loss of a job that the connection held.
pub fn expect_held(reply: &[u8], wanted: &str) -> Said<()> {
    if let Some(who) = reply.strip_prefix(b"NOT_FOUND cancelled by ") {
        return Ok(Err(Error::Cancelled(plain(&String::from_utf8_lossy(who)).into_owned())));
    }
    Ok(expect_or_not_found(reply, wanted)?.and_then(|is_held| if is_held { Ok(()) } else { Err(Error::Expired) }))
}
