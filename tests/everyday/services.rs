//! The services, and locks with a least time: how a client takes what they lend, and what their replies mean.

use poolcounter_testkit::daemon::Daemon;
use poolcounter_testkit::frames;
use std::net::SocketAddr;

/// A service as a client sees it.
pub struct Service {
    /// Heading of its table.
    pub heading: &'static str,
    /// Returns its address.
    pub address: fn(&Daemon) -> SocketAddr,
    /// Requests of an operator at the start, and the replies.
    pub prepare: (&'static [u8], &'static [u8]),
    /// Returns the request of a client that waits up to so many seconds.
    pub take: fn(wait_seconds: u32) -> Vec<u8>,
    /// Returns the request by which a holder gives back what the reply `taken` gave it.
    pub give_back: fn(taken: &[u8]) -> Vec<u8>,
    /// Beginnings of replies, and what they tell the client.
    pub replies: &'static [(&'static [u8], &'static str)],
    /// Whether a client can wait.
    pub has_waits: bool,
    /// Whether the daemon keeps what a holder gives back. Events that meet the daemon find it kept.
    pub is_kept: bool,
}

/// A holder's request succeeded.
pub const TAKEN: &str = "gets it";
/// Another client has it, and this one does not wait.
pub const TAKEN_BY_ANOTHER: &str = "is refused: it is taken";
/// A holder gave back what it still had.
pub const GIVEN_BACK: &str = "gave it back";

const REPLIES_OF_LOCKS: &[(&[u8], &str)] = &[
    (b"LOCKED", TAKEN),
    (b"TIMEOUT", TAKEN_BY_ANOTHER),
    (b"ERROR DRAINING", "is refused: the daemon drains"),
    (b"RELEASED", GIVEN_BACK),
];

pub const SERVICES: &[Service] = &[
    Service {
        heading: "Locks",
        address: |daemon| daemon.address,
        prepare: (b"", b""),
        take: |wait_seconds| format!("ACQ4ME k 1 9 {wait_seconds}\n").into_bytes(),
        give_back: |_| b"RELEASE k\n".to_vec(),
        replies: REPLIES_OF_LOCKS,
        has_waits: true,
        is_kept: false,
    },
    Service {
        heading: "Locks with a least time",
        address: |daemon| daemon.address,
        prepare: (b"", b""),
        take: |wait_seconds| format!("ACQ4ME kept 1 9 {wait_seconds} keep=600\n").into_bytes(),
        give_back: |_| b"RELEASE kept\n".to_vec(),
        replies: REPLIES_OF_LOCKS,
        has_waits: true,
        is_kept: true,
    },
    Service {
        heading: "Units of counters",
        address: Daemon::counters,
        prepare: (b"", b""),
        take: |_| frames::acquire(1, 1, b"c"),
        give_back: |_| frames::release(1, b"c"),
        replies: &[(&[0x91, 2, 0], TAKEN), (&[0x91, 2, 0x21], TAKEN_BY_ANOTHER), (&[0x91, 3, 0], GIVEN_BACK)],
        has_waits: false,
        is_kept: false,
    },
    Service {
        heading: "Members",
        address: Daemon::members,
        prepare: (b"POOL p 0 1 on_loss=ok\nADD p m\n", b"OK\nOK\n"),
        take: |wait_seconds| format!("TAKE p {wait_seconds}\n").into_bytes(),
        give_back: |taken| [b"RETURN ", word(taken, 1), b"\n"].concat(),
        replies: &[
            (b"MEMBER ", TAKEN),
            (b"NO_MEMBERS", TAKEN_BY_ANOTHER),
            (b"ERROR DRAINING", "is refused: the daemon drains"),
            (b"QUEUE_FULL", "is refused: the queue is full"),
            (b"RETURNED", GIVEN_BACK),
        ],
        has_waits: true,
        is_kept: false,
    },
    Service {
        heading: "Jobs",
        address: Daemon::jobs,
        prepare: (b"put 0 0 600 1\r\nj\r\n", b"INSERTED 1\r\n"),
        take: |wait_seconds| format!("reserve-with-timeout {wait_seconds}\r\n").into_bytes(),
        give_back: |taken| [b"delete ", word(taken, 1), b"\r\n"].concat(),
        replies: &[
            (b"RESERVED ", TAKEN),
            (b"TIMED_OUT", TAKEN_BY_ANOTHER),
            (b"DRAINING", "is refused: the daemon drains"),
            (b"DELETED", GIVEN_BACK),
        ],
        has_waits: true,
        is_kept: false,
    },
];

/// Returns a word of a line.
fn word(line: &[u8], index: usize) -> &[u8] {
    line.split(|byte| b" \r\n".contains(byte)).nth(index).unwrap_or_default()
}
