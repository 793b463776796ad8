//! The lists of a server, line by line: pools, members and waiters.

use super::{LineWords, number_of, parse_long, seconds_of, split};
use std::time::Duration;

/// Pool in a server's list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedPool {
    /// Name.
    pub name: Vec<u8>,
    /// Group of the pool.
    pub group: Option<Vec<u8>>,
    /// Figures.
    pub figures: Figures,
}

/// Figures of a pool by their names on the wire: `max`, `in_use`, `free`, ...
pub type Figures = Vec<(String, u64)>;

/// Member in a server's list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedMember {
    /// Name.
    pub name: Vec<u8>,
    /// State: `free`, `in_use`, `stopping`, ...
    pub state: String,
    /// Connection that holds it, by its name or else its address.
    pub holder: Option<Vec<u8>>,
    /// Age of the member, to the millisecond.
    pub age: Duration,
    /// Time for which it has not been in use, to the millisecond; zero while it is.
    pub idle: Duration,
    /// Number of times that it was taken.
    pub uses: u64,
    /// True if it is held for longer than `warn_hold`.
    pub is_long: bool,
    /// Time for which its present holder has had it. None: it is not in use.
    pub held: Option<Duration>,
    /// Lease of its present holder.
    pub lease: Option<u64>,
    /// Time to the end of its lease, if that outlives its connection.
    pub expires: Option<Duration>,
    /// Reason why it is kept out, or will be when it is returned.
    pub kept_out: Option<KeptOut>,
}

/// Reason why a member is not handed out, though it is not in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptOut {
    /// Reason, in words of the server.
    pub why: Vec<u8>,
    /// Name or address of the peer that caused it.
    pub by: Vec<u8>,
    /// Time since then, to the millisecond.
    pub since: Duration,
}

/// Holder of a fixed member in a server's list, present or past.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedHolder {
    /// Number of the lease.
    pub lease: u64,
    /// Name, else address.
    pub holder: Vec<u8>,
    /// Address from which the member was taken.
    pub address: Vec<u8>,
    /// Time since the take, to the millisecond.
    pub taken: Duration,
    /// Time since the end, to the millisecond; None while the lease lasts.
    pub ended: Option<Duration>,
    /// End of the lease: `returned`, `failed`, `lost`, `expired`, `taken_back` and so on.
    pub how: Option<String>,
    /// Peer that has ended it, by its name or else its address, if that was another one.
    pub by: Option<Vec<u8>>,
}

/// Waiter of a pool in a server's list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedWaiter {
    /// Place in the order in which waiters are served, from 1 on.
    pub place: u64,
    /// Connection, by its name or else its address.
    pub who: Vec<u8>,
    /// Time for which it has waited, to the millisecond.
    pub waited: Duration,
    /// Priority, 0 to 9.
    pub priority: u64,
    /// Number of members that it wants.
    pub count: u64,
    /// Attributes that the members must have, as names and values.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Reads a line of `POOLS`.
pub fn parse_pool(line: &[u8]) -> Option<ListedPool> {
    let mut words = LineWords(line);
    let (name, group) = (words.next()?.to_vec(), words.next()?);
    Some(ListedPool { name, group: (group != b"-").then(|| group.to_vec()), figures: figures_of(&mut words)? })
}

/// Reads the reply to `UTILIZATION`.
pub fn parse_utilization(line: &[u8]) -> Option<Figures> {
    figures_of(&mut LineWords(line)).filter(|figures| !figures.is_empty())
}

fn figures_of(words: &mut LineWords<'_>) -> Option<Figures> {
    let mut figures = Vec::new();
    while let Some(figure) = words.next() {
        figures.push((String::from_utf8(figure.to_vec()).ok()?, parse_long(words.next()?).ok()?));
    }
    Some(figures)
}

/// Reads a line of `MEMBERS`. Unknown words are skipped.
pub fn parse_member(line: &[u8]) -> Option<ListedMember> {
    let mut words = LineWords(line);
    let (name, state, holder) = (words.next()?.to_vec(), words.next()?.to_vec(), words.next()?);
    let (age, idle) = (duration_of(words.next()?)?, duration_of(words.next()?)?);
    let mut member = ListedMember {
        name,
        state: String::from_utf8(state).ok()?,
        holder: (holder != b"-").then(|| holder.to_vec()),
        age,
        idle,
        uses: parse_long(words.next()?).ok()?,
        is_long: false,
        held: None,
        lease: None,
        expires: None,
        kept_out: None,
    };
    let (mut why, mut by, mut since) = (None, Vec::new(), Duration::ZERO);
    for word in words {
        match split(word) {
            Some((b"held", value)) => member.held = Some(duration_of(value)?),
            Some((b"lease", value)) => member.lease = Some(parse_long(value).ok()?),
            Some((b"expires", value)) => member.expires = Some(duration_of(value)?),
            Some((b"why", value)) => why = Some(unescape(value)),
            Some((b"by", value)) => by = unescape(value),
            Some((b"since", value)) => since = duration_of(value)?,
            _ => member.is_long |= word == b"long",
        }
    }
    member.kept_out = why.map(|why| KeptOut { why, by, since });
    Some(member)
}

/// Reads a line of `HISTORY`. Unknown words are skipped.
pub fn parse_holder(line: &[u8]) -> Option<ListedHolder> {
    let mut words = LineWords(line);
    let mut listed = ListedHolder {
        lease: parse_long(words.next()?).ok()?,
        holder: words.next()?.to_vec(),
        address: words.next()?.to_vec(),
        taken: duration_of(words.next()?)?,
        ended: None,
        how: None,
        by: None,
    };
    for word in words {
        match split(word) {
            Some((b"ended", value)) => listed.ended = Some(duration_of(value)?),
            Some((b"how", value)) => listed.how = Some(String::from_utf8_lossy(value).into_owned()),
            Some((b"by", value)) => listed.by = Some(unescape(value)),
            _ => {}
        }
    }
    Some(listed)
}

/// Reads a line of `WAITERS`.
pub fn parse_waiter(line: &[u8]) -> Option<ListedWaiter> {
    let mut words = LineWords(line);
    let mut waiter = ListedWaiter {
        place: parse_long(words.next()?).ok()?,
        who: words.next()?.to_vec(),
        waited: duration_of(words.next()?)?,
        priority: number_of(words.next()?).ok()?.into(),
        count: number_of(words.next()?).ok()?.into(),
        attributes: Vec::new(),
    };
    for word in words {
        let (name, value) = split(word)?;
        waiter.attributes.push((name.to_vec(), value.to_vec()));
    }
    Some(waiter)
}

fn duration_of(word: &[u8]) -> Option<Duration> {
    Some(Duration::from_micros(seconds_of(word).ok()?.as_micros()))
}

/// Returns the bytes of a text with percent escapes.
pub(super) fn unescape(text: &[u8]) -> Vec<u8> {
    let digit = |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let (mut bytes, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(byte) = text.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high << 4 | low) as u8);
                at += 3;
            }
            _ => {
                bytes.push(*byte);
                at += 1;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_with_and_without_their_options() {
        let plain = parse_member(b"m in_use - 1.5 0 3").expect("is a member");
        assert_eq!((plain.uses, plain.is_long, plain.held, plain.lease), (3, false, None, None));
        let held = parse_member(b"m in_use ci%20job 1.5 0 3 long held=0.250 lease=17 new=1").expect("is a member");
        assert_eq!((held.is_long, held.held, held.lease), (true, Some(Duration::from_millis(250)), Some(17)));
        let out = parse_member(b"m quarantined - 9 1 3 why=failed%20it by=10.0.0.5:99 since=1.000").expect("is one");
        let (why, by) = (b"failed it".to_vec(), b"10.0.0.5:99".to_vec());
        assert_eq!(out.kept_out, Some(KeptOut { why, by, since: Duration::from_secs(1) }));
        for line in ["", "m free - 1 0", "m free - 1 0 x", "m free - 1 0 1 held=x"] {
            assert_eq!(parse_member(line.as_bytes()), None, "{line}");
        }
        assert_eq!(unescape(b"100%, %zz, %4"), b"100%, %zz, %4", "these are no escapes");
    }

    #[test]
    fn waiters_and_figures_are_read() {
        let waiter = parse_waiter(b"1 ci 0.004 5 2 os=ios member=m").expect("is a waiter");
        assert_eq!((waiter.place, waiter.priority, waiter.count, waiter.attributes.len()), (1, 5, 2, 2));
        assert_eq!(parse_waiter(b"1 ci 0.004 5"), None);
        assert_eq!(parse_utilization(b"max 4 free 1"), Some(vec![("max".into(), 4), ("free".into(), 1)]));
        assert_eq!(parse_utilization(b"max"), None);
    }
}
