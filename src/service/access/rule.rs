//! One rule: whom it is for, what they may ask for, and how much they may have.

use crate::peer::Credentials;
use poolcounter_core::glob;
use poolcounter_protocol::command::Verb;
use std::net::IpAddr;

/// One whom a rule is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Who {
    /// Everybody.
    All,
    /// Those whose addresses begin with the same bits.
    Net {
        /// An address of the network.
        address: IpAddr,
        /// How many bits the addresses have in common.
        bits: u8,
    },
    /// The user of this id, over a Unix socket.
    User(u32),
    /// The members of a group, over a Unix socket.
    Group {
        /// Its id, which is that of the process or among the next.
        gid: u32,
        /// The ids of those users who are listed as its members.
        uids: Vec<u32>,
    },
    /// Those in whose certificate stands such a name.
    Certificate(Box<[u8]>),
}

/// What is known of a connection that may be somebody's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Identity<'a> {
    /// Where it is from, if that is on a network.
    pub ip: Option<IpAddr>,
    /// As whom a process of this machine has connected.
    pub credentials: Option<Credentials>,
    /// The name in the certificate that a proxy has verified.
    pub certificate: Option<&'a str>,
}

/// What a service may be asked for by those whom a rule is for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rights {
    /// A bit for each verb that is free for all keys.
    verbs: u32,
    /// The same for some keys.
    of_keys: Vec<(u32, Keys)>,
}

/// Some keys.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Keys {
    /// Those that begin like this, which is what most patterns say.
    Beginning(Box<[u8]>),
    /// Those of a pattern.
    Pattern(Box<[u8]>),
}

/// How much those whom a rule is for may have together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections.
    pub connections: u64,
    /// Locks, units, members and jobs that they hold.
    pub locks: u64,
    /// Requests that wait.
    pub waits: u64,
    /// Requests in a second; as many more can come at once after a pause.
    pub requests: u64,
    /// Bytes that were received and not served, or not sent yet.
    pub memory: u64,
}

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// What it is called: by its operator, or else as the first of those whom it is for.
    pub name: String,
    /// Whom it is for.
    pub who: Vec<Who>,
    /// What they may ask each service for, by its place in the registry.
    pub rights: Vec<Rights>,
    /// How much they may have.
    pub limits: Limits,
}

impl Rule {
    /// Returns a rule that is for nobody, and so has everybody refused if there is no other.
    pub(super) fn for_nobody() -> Rule {
        Rule { name: "(unreadable)".into(), who: Vec::new(), rights: Vec::new(), limits: Limits::NONE }
    }

    /// Returns whether it is for users or groups of this machine.
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

/// Returns whether two addresses of one family begin with the same bits.
fn shares(one: IpAddr, other: IpAddr, bits: u8) -> bool {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            let differing = one.to_bits() ^ other.to_bits();
            differing.leading_zeros() >= u32::from(bits)
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            let differing = one.to_bits() ^ other.to_bits();
            differing.leading_zeros() >= u32::from(bits)
        }
        _ => false,
    }
}

impl Rights {
    /// Allows some verbs, for all keys or for those of a pattern.
    pub fn allow(&mut self, verbs: impl IntoIterator<Item = Verb>, pattern: Option<&[u8]>) {
        let bits = verbs.into_iter().fold(0, |bits, verb| bits | verb.bit());
        match pattern {
            None => self.verbs |= bits,
            Some(pattern) => self.of_keys.push((bits, Keys::of(pattern))),
        }
    }

    /// Returns whether nothing is allowed.
    pub(super) fn are_none(&self) -> bool {
        self.verbs == 0 && self.of_keys.is_empty()
    }

    /// Returns whether the verb is allowed for each of the keys, or without any.
    pub(super) fn include(&self, verb: Verb, keys: &[&[u8]]) -> bool {
        let of_key = |key: &&[u8]| {
            let mut allowed = self.of_keys.iter().filter(|(verbs, _)| verbs & verb.bit() != 0);
            allowed.any(|(_, keys)| keys.include(key))
        };
        self.verbs & verb.bit() != 0 || !keys.is_empty() && keys.iter().all(of_key)
    }
}

impl Keys {
    fn of(pattern: &[u8]) -> Keys {
        match pattern.strip_suffix(b"*").filter(|beginning| !beginning.contains(&b'*')) {
            Some(beginning) => Keys::Beginning(beginning.into()),
            None => Keys::Pattern(pattern.into()),
        }
    }

    fn include(&self, key: &[u8]) -> bool {
        match self {
            Keys::Beginning(beginning) => key.starts_with(beginning),
            Keys::Pattern(pattern) => glob::matches(pattern, key),
        }
    }
}

impl Limits {
    /// No limits.
    pub const NONE: Limits =
        Limits { connections: u64::MAX, locks: u64::MAX, waits: u64::MAX, requests: u64::MAX, memory: u64::MAX };
}
