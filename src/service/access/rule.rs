//! One rule: the subjects that it matches, their rights and their limits.

use crate::peer::Credentials;
use poolcounter_core::glob;
use poolcounter_protocol::command::Verb;
use std::net::IpAddr;

/// Subject that a rule matches: a network, user, group or certificate name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Who {
    /// Every connection.
    All,
    /// Addresses of a network.
    Net {
        /// An address of the network.
        address: IpAddr,
        /// Number of bits that its addresses have in common.
        bits: u8,
    },
    /// User with this id, over a Unix socket.
    User(u32),
    /// Members of a group, over a Unix socket.
    Group {
        /// Id of the group, compared with that of the process.
        gid: u32,
        /// Ids of the users listed as its members.
        uids: Vec<u32>,
    },
    /// Connections with a certificate name that matches this pattern.
    Certificate(Box<[u8]>),
}

/// Identity of a connection, as far as known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Identity<'a> {
    /// Address of the peer; None for a Unix socket.
    pub ip: Option<IpAddr>,
    /// Credentials of a process on this machine.
    pub credentials: Option<Credentials>,
    /// Common name of a certificate, verified and forwarded by a proxy.
    pub certificate: Option<&'a str>,
}

/// Rights of a rule to one service.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rights {
    /// Bit mask of the verbs allowed for all keys.
    verbs: u32,
    /// Bit masks of verbs allowed for some keys only.
    of_keys: Vec<(u32, Keys)>,
}

/// Set of keys.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Keys {
    /// Keys with this prefix; most patterns are of this form.
    Beginning(Box<[u8]>),
    /// Keys that match a pattern.
    Pattern(Box<[u8]>),
}

/// Limits for all connections of a rule together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Number of connections.
    pub connections: u64,
    /// Number of locks, units, members and jobs held.
    pub locks: u64,
    /// Number of waiting requests.
    pub waits: u64,
    /// Requests per second; after a pause as many can arrive at once.
    pub requests: u64,
    /// Bytes received and not served yet, or not sent yet.
    pub memory: u64,
}

/// Access rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Name: set by the operator, else the text of its first subject.
    pub name: String,
    /// Subjects; a connection that is one of them has this rule.
    pub who: Vec<Who>,
    /// Rights by service, in the order of the list.
    pub rights: Vec<Rights>,
    /// Limits for its connections.
    pub limits: Limits,
}

impl Rule {
    /// Returns a rule that matches nothing: alone, it makes every request denied.
    pub(super) fn for_nobody() -> Rule {
        Rule { name: "(unreadable)".into(), who: Vec::new(), rights: Vec::new(), limits: Limits::NONE }
    }

    /// Returns true if it matches users or groups of this machine.
    pub fn is_for_users(&self) -> bool {
        self.who.iter().any(|who| matches!(who, Who::User(_) | Who::Group { .. }))
    }
}

impl Who {
    pub(super) fn is(&self, identity: &Identity<'_>) -> bool {
        match (self, identity) {
            (Who::All, _) => true,
            (Who::Net { address, bits }, Identity { ip: Some(ip), .. }) => shares(*address, *ip, *bits),
            (Who::User(uid), Identity { credentials: Some(credentials), .. }) => credentials.uid == Some(*uid),
            (Who::Group { gid, uids }, Identity { credentials: Some(credentials), .. }) => {
                credentials.gid == Some(*gid) || credentials.uid.is_some_and(|uid| uids.contains(&uid))
            }
            (Who::Certificate(pattern), Identity { certificate: Some(name), .. }) => {
                glob::matches(pattern, name.as_bytes())
            }
            _ => false,
        }
    }
}

/// Returns true if two addresses of one family share their first `bits` bits.
fn shares(one: IpAddr, other: IpAddr, bits: u8) -> bool {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros() >= bits.into(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros() >= bits.into(),
        _ => false,
    }
}

impl Rights {
    /// Allows some verbs for all keys, or for the keys that match a pattern.
    pub fn allow(&mut self, verbs: impl IntoIterator<Item = Verb>, pattern: Option<&[u8]>) {
        let bits = verbs.into_iter().fold(0, |bits, verb| bits | verb.bit());
        match pattern {
            None => self.verbs |= bits,
            Some(pattern) => self.of_keys.push((bits, Keys::of(pattern))),
        }
    }

    /// Returns true if nothing is allowed.
    pub(super) fn are_none(&self) -> bool {
        self.verbs == 0 && self.of_keys.is_empty()
    }

    /// Returns true if the verb is allowed for this key.
    #[inline]
    pub(super) fn include_key(&self, verb: Verb, key: &[u8]) -> bool {
        let is_for = |(verbs, keys): &(u32, Keys)| verbs & verb.bit() != 0 && keys.include(key);
        self.verbs & verb.bit() != 0 || self.of_keys.iter().any(is_for)
    }

    /// Returns true if the verb is allowed for all keys in general, or for each of these keys.
    pub(super) fn include(&self, verb: Verb, keys: &[&[u8]]) -> bool {
        let includes = |key: &&[u8]| self.include_key(verb, key);
        self.verbs & verb.bit() != 0 || !keys.is_empty() && keys.iter().all(includes)
    }
}

impl Keys {
    fn of(pattern: &[u8]) -> Keys {
        match pattern.strip_suffix(b"*").filter(|beginning| !beginning.contains(&b'*')) {
            Some(beginning) => Keys::Beginning(beginning.into()),
            None => Keys::Pattern(pattern.into()),
        }
    }

    #[inline]
    fn include(&self, key: &[u8]) -> bool {
        match self {
            Keys::Beginning(beginning) => begins_with(key, beginning),
            Keys::Pattern(pattern) => glob::matches(pattern, key),
        }
    }
}

/// Returns true if a key has this prefix, without a call for the comparison.
#[inline]
fn begins_with(key: &[u8], prefix: &[u8]) -> bool {
    let Some(key) = key.get(..prefix.len()) else { return false };
    let ((words, tail), (prefix_words, prefix_tail)) = (key.as_chunks::<8>(), prefix.as_chunks::<8>());
    words.iter().zip(prefix_words).all(|(one, other)| one == other)
        && tail.iter().zip(prefix_tail).all(|(one, other)| one == other)
}

impl Limits {
    /// Returns true if neither locks, waits nor requests are limited.
    #[inline]
    pub(super) fn are_none_for_requests(&self) -> bool {
        self.locks & self.waits & self.requests == u64::MAX
    }

    /// No limits.
    pub const NONE: Limits =
        Limits { connections: u64::MAX, locks: u64::MAX, waits: u64::MAX, requests: u64::MAX, memory: u64::MAX };
}
