//! Peers of connections and the process itself, as the loop tells of them.

use log::LevelFilter;
use poolcounter_core::count::Count;
use poolcounter_core::id::ConnId;
use poolcounter_core::time::Span;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Peers at the other end of connections. The address of a TCP connection is that which it had when it began.
pub trait Peers {
    /// The address of a connection's peer, without spaces: `192.0.2.7:40112`, `[2001:db8::7]:40112`, or `unix:` and the id
    /// of its process. [`GONE`] if there is no such connection, or the system did not tell its address.
    fn peer(&self, conn: ConnId) -> String;

    /// Returns whether a connection's peer is on this machine.
    fn is_local(&self, _conn: ConnId) -> bool {
        false
    }

    /// Returns as whom the peer of a connection over a Unix socket has connected.
    fn credentials(&self, _conn: ConnId) -> Option<Credentials> {
        None
    }
}

/// As whom a process has connected, as the system vouches for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Credentials {
    /// The id of its user; None if that has none in the user namespace of the daemon.
    pub uid: Option<u32>,
    /// The id of its group; None in the same way.
    pub gid: Option<u32>,
    /// The id of the process.
    pub pid: i32,
}

impl fmt::Display for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.uid {
            Some(uid) => write!(f, "uid {uid}, pid {}", self.pid),
            None => write!(f, "an unknown user, pid {}", self.pid),
        }
    }
}

/// No connections at all: every peer is gone.
pub struct NoPeers;

impl Peers for NoPeers {
    fn peer(&self, _: ConnId) -> String {
        GONE.into()
    }
}

/// What the system tells of the process. It is asked at each call.
pub trait Process: Send {
    /// Returns what the process uses at present.
    fn usage(&self) -> ProcessUsage;

    /// Has the log have lines up to this level; None: as the process was started.
    fn set_log_level(&self, _level: Option<LevelFilter>) {}
}

/// What a process uses. Zero where the system does not tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProcessUsage {
    /// The processor time of all its threads, of user and system together.
    pub cpu: Span,
    /// Its memory that is resident, in bytes.
    pub resident_bytes: u64,
    /// Its open file descriptors.
    pub open_fds: u64,
    /// How many of those it may have.
    pub max_fds: u64,
}

/// No process of which anything is known: that of a test.
pub struct NoProcessInfo;

impl Process for NoProcessInfo {
    fn usage(&self) -> ProcessUsage {
        ProcessUsage::default()
    }
}

/// The address of a peer that is not known.
pub const GONE: &str = "gone";

/// The connections of a service, and what happened to them since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Connections that there are now.
    pub open: u64,
    /// Connections that there ever were.
    pub opened: Count,
    /// Connections that could not be accepted or served.
    pub connect_errors: Count,
    /// Replies that could not be delivered.
    pub failed_sends: Count,
    /// Bytes read.
    pub received_bytes: Count,
    /// Bytes written.
    pub sent_bytes: Count,
}
