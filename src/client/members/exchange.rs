//! Requests of the members protocol and their replies, for consumers and providers.

use super::TakeOutcome;
use crate::Said;
use crate::connection::{ClientConnection, Probe};
use crate::error::{Error, Fault, Stop};
use poolcounter_protocol::members::request::{Attributes, Request, Taken};
use poolcounter_protocol::members::wire::client::{self as wire, Reply};
use std::borrow::Cow;
use std::time::Duration;

/// Longest text of a reason or note that is sent, in characters: enough for a sentence, and far below the longest line.
const LONGEST_TEXT: usize = 400;

/// Probe of a server at which a take waits: the return of a lease that does not exist, which needs no right.
const PROBE: Probe = Probe { request: b"RETURN 0\n", is_reply: |line| matches!(line, b"NOT_TAKEN" | b"ERROR LIMITED") };

/// Description of a member by its provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offered {
    /// Name of the member. Tasks carry the same name, with a space written as `%20`.
    pub name: Vec<u8>,
    /// Attributes, as `(name, value)`: at most 16, and 1 KiB in total.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Returns a request as it is sent.
pub fn line_of(request: &Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::write_request(&mut bytes, request);
    bytes
}

/// Sends a request that needs no wait, and returns the first line of its reply.
pub fn ask(connection: &mut ClientConnection, request: &[u8]) -> Result<Vec<u8>, Fault> {
    ask_watched(connection, request, Duration::ZERO, &mut || {})
}

/// Sends a request that may wait, and returns the first line of its reply. Sets notices aside that come before it.
pub fn ask_watched(
    connection: &mut ClientConnection,
    request: &[u8],
    wait: Duration,
    watch: &mut dyn FnMut(),
) -> Result<Vec<u8>, Fault> {
    connection.send_amid_notices(request, wait)?;
    loop {
        let line = connection.awaited_line(PROBE, watch)?;
        if !wire::is_notice(&line) {
            return Ok(line);
        }
        connection.notices.push(line);
    }
}

/// Parses a reply that may only be `success`, a refusal, or that the lease does not exist.
pub fn read_done(line: &[u8], success: &Reply<'_>) -> Said<()> {
    match wire::parse_reply(line) {
        Some(reply) if reply == *success => Ok(()),
        Some(Reply::NotTaken) => Err(Error::NotTaken.into()),
        Some(Reply::Error(words)) => Err(Stop::refused(words)),
        _ => Err(Fault::Garbled.into()),
    }
}

/// Parses the reply to a take of `count` members, or of a single member for None: the members, or the other outcome.
pub fn read_taken(
    connection: &mut ClientConnection,
    line: &[u8],
    count: Option<u32>,
) -> Said<Result<Vec<Taken>, TakeOutcome<'static>>> {
    Ok(match (wire::parse_reply(line), count) {
        (Some(Reply::Member(taken)), None) => Ok(vec![taken]),
        (Some(Reply::Members(told)), Some(count)) if told == count => {
            let mut taken = Vec::new();
            for _ in 0..count {
                match wire::parse_reply(&connection.line()?) {
                    Some(Reply::Member(one)) => taken.push(one),
                    _ => return Err(Fault::Garbled.into()),
                }
            }
            Ok(taken)
        }
        (Some(Reply::NoMembers(reason)), _) => Err(TakeOutcome::NoMembers(reason)),
        (Some(Reply::QueueFull), _) => Err(TakeOutcome::QueueFull),
        (Some(Reply::Limit), _) => Err(TakeOutcome::Limit),
        (Some(Reply::Error(words)), _) => return Err(Stop::refused(words)),
        _ => return Err(Fault::Garbled.into()),
    })
}

/// Sends the request for a list, and reads it up to the empty line at its end.
pub fn read_list<T>(connection: &mut ClientConnection, request: &[u8], parse: fn(&[u8]) -> Option<T>) -> Said<Vec<T>> {
    let mut line = ask(connection, request)?;
    if let Some(Reply::Error(words)) = wire::parse_reply(&line) {
        return Err(Stop::refused(words));
    }
    let mut rows = Vec::new();
    while !line.is_empty() {
        rows.push(parse(&line).ok_or(Fault::Garbled)?);
        line = connection.line()?;
    }
    Ok(rows)
}

/// Returns a request about a pool with an escaped name.
pub fn pool_request(word: &str, pool: &[u8]) -> Vec<u8> {
    [word.as_bytes(), b" ", pool, b"\n"].concat()
}

/// Returns the name of a pool or group in its escaped form.
pub fn sendable_name(name: &[u8]) -> Result<Cow<'_, [u8]>, Error> {
    wire::escape_name(name).ok_or(Error::BadName)
}

/// Returns the name of a member in its escaped form.
pub fn sendable_member(name: &[u8]) -> Result<Cow<'_, [u8]>, Error> {
    wire::escape_member(name).ok_or(Error::BadName)
}

/// Returns attributes in their escaped form.
///
/// # Errors
///
/// [`Error::BadName`] for a name or value that no line can carry; [`Error::BadArgument`] for attributes that no member
/// can have.
pub fn sendable_attributes(attributes: &[(Vec<u8>, Vec<u8>)]) -> Result<Attributes, Error> {
    let pair = |(name, value): &(Vec<u8>, Vec<u8>)| {
        let (name, value) = (wire::escape_name(name)?, wire::escape_name(value)?);
        Some([&*name, b"=", &*value].concat())
    };
    let pairs: Option<Vec<Vec<u8>>> = attributes.iter().map(pair).collect();
    let list = pairs.ok_or(Error::BadName)?.join(&b' ');
    wire::parse_attribute_list(&list).map_err(|rule| Error::BadArgument(rule.into()))
}

/// Returns a text in one line, cut at [`LONGEST_TEXT`].
pub fn sendable_text(text: &str) -> String {
    let line = |c: char| if c.is_control() { ' ' } else { c };
    let text: String = text.chars().map(line).take(LONGEST_TEXT).collect();
    text.trim().into()
}
