//! The lists of a server, line by line: pools and members.

use super::{LineWords, parse_long, seconds_of};
use std::time::Duration;

/// A pool as a server lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedPool {
    /// Its name.
    pub name: Vec<u8>,
    /// The group that it belongs to.
    pub group: Option<Vec<u8>>,
    /// Its figures by their names on the wire: `max`, `in_use`, `free`, ...
    pub figures: Vec<(String, u64)>,
}

/// A member as a server lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedMember {
    /// Its name.
    pub name: Vec<u8>,
    /// What it does: `free`, `in_use`, `stopping`, ...
    pub state: String,
    /// The connection that holds it, by its name or else its address.
    pub holder: Option<Vec<u8>>,
    /// How long there has been such a member, to the millisecond.
    pub age: Duration,
    /// How long it has not been in use, to the millisecond; zero while it is.
    pub idle: Duration,
    /// How often it was taken.
    pub uses: u64,
    /// It is held for longer than `warn_hold`.
    pub is_long: bool,
}

/// Reads a line of `POOLS`.
pub fn parse_pool(line: &[u8]) -> Option<ListedPool> {
    let mut words = LineWords(line);
    let (name, group) = (words.next()?.to_vec(), words.next()?);
    let mut figures = Vec::new();
    while let Some(figure) = words.next() {
        figures.push((String::from_utf8(figure.to_vec()).ok()?, parse_long(words.next()?).ok()?));
    }
    Some(ListedPool { name, group: (group != b"-").then(|| group.to_vec()), figures })
}

/// Reads a line of `MEMBERS`.
pub fn parse_member(line: &[u8]) -> Option<ListedMember> {
    let mut words = LineWords(line);
    let (name, state, holder) = (words.next()?.to_vec(), words.next()?.to_vec(), words.next()?);
    let mut duration = || Some(Duration::from_micros(seconds_of(words.next()?).ok()?.as_micros()));
    let (age, idle) = (duration()?, duration()?);
    let uses = parse_long(words.next()?).ok()?;
    let holder = (holder != b"-").then(|| holder.to_vec());
    Some(ListedMember {
        name,
        state: String::from_utf8(state).ok()?,
        holder,
        age,
        idle,
        uses,
        is_long: words.next() == Some(b"long"),
    })
}
