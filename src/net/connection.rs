//! One connection: its stream, and what is known of it. It knows nothing of the others.

use super::inlet::{Inlet, Received};
use crate::id::ServiceId;
use crate::wheel::TimerId;
use std::io::{self, Read, Write};

/// Reads of a turn in which a peer has closed its side: its last data, and its end. A third is for what cannot be read together.
const READS_TO_THE_END: usize = 3;

/// A non-blocking stream of bytes.
pub trait Stream: Read + Write {
    /// Tells the peer that nothing more will be written.
    ///
    /// # Errors
    ///
    /// When the peer is gone.
    fn finish(&mut self) -> io::Result<()>;

    /// The address of the peer, without spaces.
    ///
    /// # Errors
    ///
    /// When the peer is gone.
    fn peer(&self) -> io::Result<String>;

    /// Returns whether the peer is on this machine.
    fn is_local(&self) -> bool {
        false
    }
}

/// What an event says of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct News {
    /// There is something to read.
    pub readable: bool,
    /// There is room to write.
    pub writable: bool,
    /// The peer has closed its sending side or is gone: a short read is not the end of what can be read.
    pub hangup: bool,
    /// The connection is gone in both directions.
    pub lost: bool,
}

pub(super) struct Connection<S> {
    pub stream: S,
    pub service: ServiceId,
    pub stage: Stage,
    /// A read may bring something.
    pub readable: bool,
    /// The peer has said that it will send no more, though some of what it sent may be unread.
    pub hangup: bool,
    /// Everything that the peer sent has been read.
    pub ended: bool,
    /// The last write did not take all: an event will say when there is room.
    pub blocked: bool,
    /// Its output was full at its turn: it has no other until that drains.
    pub parked: bool,
    /// Its service wants it served no more before it says so.
    pub waiting: bool,
    /// Its service is done with it, and it ends once the replies have left that wait for a commit.
    pub draining: bool,
    /// The system has said that the connection is gone.
    pub lost: bool,
    /// Reading or writing failed, or its time is over: whatever is unsent stays so.
    pub broken: bool,
    /// Whole or partial requests that were read and not served.
    pub unserved: Vec<u8>,
    /// Its service has seen what is unserved, and waits for more.
    pub partial: bool,
}

/// How far a connection is.
pub(super) enum Stage {
    /// Its service serves it.
    Open,
    /// So it does, but the peer has closed its side and does not read what it asked for: parked, until it reads on.
    Leaving { patience: TimerId },
    /// Its service has forgotten it.
    Closed,
    /// So it has, but the last replies are not sent, or the peer has not noticed yet.
    Lingering { patience: TimerId },
}

impl<S: Stream> Connection<S> {
    pub fn new(stream: S, service: ServiceId) -> Self {
        Connection {
            stream,
            service,
            stage: Stage::Open,
            readable: false,
            hangup: false,
            ended: false,
            blocked: false,
            parked: false,
            waiting: false,
            draining: false,
            lost: false,
            broken: false,
            unserved: Vec::new(),
            partial: false,
        }
    }

    /// Returns whether its service has not been told that it is over.
    pub fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::Leaving { .. })
    }

    /// Reads once, and notes whether another read may bring more. Behind the last data of a peer that has closed its side, the
    /// end is read too: it is news of this turn, not of a later one.
    pub fn read(&mut self, inlet: &mut Inlet) -> io::Result<()> {
        for _ in 0..READS_TO_THE_END {
            match inlet.read(&mut self.stream)? {
                Received::Filled => break,
                // Data and the end that arrive together are announced together: then the end is still to be read.
                Received::Short => self.readable = self.hangup,
                Received::Nothing => self.readable = false,
                Received::End => {
                    self.readable = false;
                    self.ended = true;
                }
            }
            if !self.readable {
                break;
            }
        }
        Ok(())
    }
}
