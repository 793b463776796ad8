//! Preamble of version 5, which had no addresses of peers. It is converted to the present form; the rest is the same.

use super::{Preamble, Rehearsed, SavedPort, SavedSocket};
use crate::clock::Clock;
use poolcounter_core::id::ConnId;
use poolcounter_core::record::{Reader, Unreadable};
use serde::Deserialize;
use std::ffi::OsString;
use std::os::fd::RawFd;

/// Version of this layout.
pub const VERSION: u32 = 5;

#[derive(Deserialize)]
struct PreambleV5 {
    clock: Clock,
    ports: Vec<SavedPort>,
    sockets: Vec<SocketV5>,
    program: Option<OsString>,
    rehearsed: Option<Rehearsed>,
}

/// Socket of a connection, in version 4 as well.
#[derive(Deserialize)]
pub struct SocketV5 {
    id: ConnId,
    fd: RawFd,
    is_unix: bool,
}

impl From<SocketV5> for SavedSocket {
    fn from(SocketV5 { id, fd, is_unix }: SocketV5) -> SavedSocket {
        SavedSocket { id, fd, is_unix, peer: None }
    }
}

/// Reads the preamble.
///
/// # Errors
///
/// Fails if it is cut off or damaged.
pub fn read(saved: &mut Reader<'_>) -> Result<Preamble, Unreadable> {
    let PreambleV5 { clock, ports, sockets, program, rehearsed } = saved.take()?;
    let sockets = sockets.into_iter().map(SavedSocket::from).collect();
    Ok(Preamble { clock, ports, sockets, program, rehearsed })
}
