//! One connection: its stream, and what is known of it. It knows nothing of the others.

use super::read_buffer::{ReadBuffer, ReadOutcome};
use crate::id::ServiceId;
use crate::wheel::TimerId;
use std::io::{self, Read, Write};

/// Reads of a turn in which a peer has closed its side: its last data, and its end. A third is for what cannot be read together.
const READS_TO_EOF: usize = 3;

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
}

/// What an event says of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Readiness {
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
    pub phase: Phase,
    /// A read may bring something.
    pub readable: bool,
    /// The peer has said that it will send no more, though some of what it sent may be unread.
    pub hangup: bool,
    /// Everything that the peer sent has been read.
    pub eof: bool,
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
    pub failed: bool,
    /// Whole or partial requests that were read and not served.
    pub unserved: Vec<u8>,
    /// Its service has seen what is unserved, and waits for more.
    pub partial: bool,
}

/// How far a connection is.
pub(super) enum Phase {
    /// Its service serves it.
    Open,
    /// So it does, but the peer has closed its side and does not read what it asked for: parked, until it reads on.
    HalfClosed { linger_timer: TimerId },
    /// Its service has forgotten it.
    Closed,
    /// So it has, but the last replies are not sent, or the peer has not noticed yet.
    Lingering { linger_timer: TimerId },
}

impl<S: Stream> Connection<S> {
    pub fn new(stream: S, service: ServiceId) -> Self {
        Connection {
            stream,
            service,
            phase: Phase::Open,
            readable: false,
            hangup: false,
            eof: false,
            blocked: false,
            parked: false,
            waiting: false,
            draining: false,
            lost: false,
            failed: false,
            unserved: Vec::new(),
            partial: false,
        }
    }

    /// Reads once, and notes whether another read may bring more. Behind the last data of a peer that has closed its side, the
    /// end is read too: it is news of this turn, not of a later one.
    pub fn read(&mut self, read_buffer: &mut ReadBuffer) -> io::Result<()> {
        for _ in 0..READS_TO_EOF {
            match read_buffer.read(&mut self.stream)? {
                ReadOutcome::Filled => break,
                // Data and the end that arrive together are announced together: then the end is still to be read.
                ReadOutcome::Short => self.readable = self.hangup,
                ReadOutcome::Nothing => self.readable = false,
                ReadOutcome::End => {
                    self.readable = false;
                    self.eof = true;
                }
            }
            if !self.readable {
                break;
            }
        }
        Ok(())
    }
}
