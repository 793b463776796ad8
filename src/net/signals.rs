//! Signals as events: the handler writes a byte into a socket that the loop polls.

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The signals that the daemon answers.
pub struct Signals {
    stop: UnixStream,
}

impl Signals {
    /// Takes the signals over from their default actions, and has the loop woken by them under `token`.
    ///
    /// # Errors
    ///
    /// When no descriptors are left.
    pub fn listen(registry: &Registry, token: Token) -> io::Result<Self> {
        let mut stop = receiver_of(&[SIGTERM, SIGINT])?;
        registry.register(&mut stop, token, Interest::READABLE)?;
        // A terminal that goes away is no reason to stop. (SIGPIPE is ignored before `main` runs.)
        signal_hook::flag::register(SIGHUP, Arc::new(AtomicBool::new(false)))?;
        Ok(Signals { stop })
    }

    /// Whether the daemon was asked to stop since the last call.
    pub fn stop_asked(&mut self) -> bool {
        matches!(self.stop.read(&mut [0; 16]), Ok(len) if len > 0)
    }
}

/// A socket that receives a byte whenever one of `signals` comes.
fn receiver_of(signals: &[i32]) -> io::Result<UnixStream> {
    let (receiver, sender) = std::os::unix::net::UnixStream::pair()?;
    for signal in signals {
        pipe::register(*signal, sender.try_clone()?)?;
    }
    receiver.set_nonblocking(true)?;
    Ok(UnixStream::from_std(receiver))
}
