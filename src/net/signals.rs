//! Signals as events: the handler writes a byte into a socket that the loop polls.

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use nix::sys::signal::{SigSet, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::low_level::pipe;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The signals that the daemon handles.
pub struct Signals {
    stop: UnixStream,
    upgrade: UnixStream,
    drain: UnixStream,
}

impl Signals {
    /// Replaces the default actions of the signals by events of `token`.
    ///
    /// # Errors
    ///
    /// When no descriptors are left.
    pub fn listen(registry: &Registry, token: Token) -> io::Result<Self> {
        let mut stop = receiver_of(&[SIGTERM, SIGINT])?;
        let mut upgrade = receiver_of(&[SIGUSR1])?;
        let mut drain = receiver_of(&[SIGUSR2])?;
        registry.register(&mut stop, token, Interest::READABLE)?;
        registry.register(&mut upgrade, token, Interest::READABLE)?;
        registry.register(&mut drain, token, Interest::READABLE)?;
        // A terminal that goes away is no reason to stop. (SIGPIPE is ignored before `main` runs.)
        signal_hook::flag::register(SIGHUP, Arc::new(AtomicBool::new(false)))?;
        // Nor is a handover that is longer than a file may be: the write fails, and there is no upgrade.
        signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
        Signals::release();
        Ok(Signals { stop, upgrade, drain })
    }

    /// Returns true when the daemon was asked to stop since the last call.
    pub fn stop_asked(&mut self) -> bool {
        has_come(&mut self.stop)
    }

    /// Returns true when the daemon was asked to replace itself since the last call.
    pub fn upgrade_asked(&mut self) -> bool {
        has_come(&mut self.upgrade)
    }

    /// Returns true when the daemon was asked to take nothing new since the last call.
    pub fn drain_asked(&mut self) -> bool {
        has_come(&mut self.drain)
    }

    /// Blocks these signals, over exec too, until [`Signals::release`].
    pub fn hold() {
        if let Err(error) = handled_signals().thread_block() {
            log::warn!("cannot block signals: {error}");
        }
    }

    /// Unblocks them.
    pub fn release() {
        if let Err(error) = handled_signals().thread_unblock() {
            log::warn!("cannot unblock signals: {error}");
        }
    }
}

fn handled_signals() -> SigSet {
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2].into_iter().collect()
}

/// Returns a socket that receives a byte whenever one of `signals` comes.
fn receiver_of(signals: &[i32]) -> io::Result<UnixStream> {
    let (receiver, sender) = std::os::unix::net::UnixStream::pair()?;
    for signal in signals {
        pipe::register(*signal, sender.try_clone()?)?;
    }
    receiver.set_nonblocking(true)?;
    Ok(UnixStream::from_std(receiver))
}

fn has_come(receiver: &mut UnixStream) -> bool {
    matches!(receiver.read(&mut [0; 64]), Ok(len) if len > 0)
}
