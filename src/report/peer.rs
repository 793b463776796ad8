//! Peers of connections, and the process itself.

use log::LevelFilter;
use poolcounter_core::{ConnId, Count};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Peers of connections. The address of a TCP connection is its address at the start.
pub trait Peers {
    /// Returns the address of a connection's peer, without spaces: `192.0.2.7:40112`, `[2001:db8::7]:40112`, or `unix:`
    /// and the id of its process. [`GONE`] if the connection does not exist or its address is unknown.
    fn peer(&self, conn: ConnId) -> String;

    /// Returns true if a connection's peer is on this machine.
    fn is_local(&self, _conn: ConnId) -> bool {
        false
    }

    /// Returns the credentials of the process at the other end of a Unix socket.
    fn credentials(&self, _conn: ConnId) -> Option<Credentials> {
        None
    }
}

/// Credentials of a connected process, as reported by the system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Credentials {
    /// User id; `None` if the user has none in the user namespace of the daemon.
    pub uid: Option<u32>,
    /// Group id; `None` in the same case.
    pub gid: Option<u32>,
    /// Process id.
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

/// Table of no connections: every peer is gone.
pub struct NoPeers;

impl Peers for NoPeers {
    fn peer(&self, _: ConnId) -> String {
        GONE.into()
    }
}

/// Process of the daemon.
pub trait Process: Send {
    /// Returns the current usage.
    fn usage(&self) -> ProcessUsage;

    /// Returns the limit of the process's descriptors; zero if unknown.
    fn max_fds(&self) -> u64 {
        self.usage().max_fds
    }

    /// Sets the log level; `None`: that of the start of the process.
    fn set_log_level(&self, _level: Option<LevelFilter>) {}
}

/// Usage of resources by a process; zero where unknown.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ProcessUsage {
    /// Number of the process.
    pub pid: u32,
    /// Seconds of processor time of all threads, of user and system together.
    pub cpu: f64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Open file descriptors.
    pub open_fds: u64,
    /// Limit of file descriptors.
    pub max_fds: u64,
}

/// Process without information, for tests.
pub struct NoProcessInfo;

impl Process for NoProcessInfo {
    fn usage(&self) -> ProcessUsage {
        ProcessUsage::default()
    }
}

/// Address of an unknown peer.
pub const GONE: &str = "gone";

/// Counts of a service's connections since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Open connections.
    #[serde(rename = "connections")]
    pub open: u64,
    /// Connections opened so far.
    #[serde(rename = "connections_opened")]
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

impl Traffic {
    /// Adds the counts of another service.
    pub(crate) fn add(&mut self, more: Traffic) {
        self.open = self.open.saturating_add(more.open);
        self.opened += more.opened;
        self.connect_errors += more.connect_errors;
        self.failed_sends += more.failed_sends;
        self.received_bytes += more.received_bytes;
        self.sent_bytes += more.sent_bytes;
    }
}
