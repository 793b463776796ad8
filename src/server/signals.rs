//! Signals as events: the handler writes a byte into a socket that the loop polls.

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use nix::sys::signal::{SigSet, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::low_level::pipe;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Signals that the daemon handles.
pub struct Signals {
    stop: Receiver,
    upgrade: Receiver,
    drain: Receiver,
}

/// Socket on which each of some signals is an event.
pub struct Receiver(UnixStream);

impl Signals {
    /// Replaces the default actions of the signals by events of `token`.
    ///
    /// # Errors
    ///
    /// Fails if no descriptors are left.
    pub fn listen(registry: &Registry, token: Token) -> io::Result<Self> {
        let stop = Receiver::listen(&[SIGTERM, SIGINT], registry, token)?;
        let upgrade = Receiver::listen(&[SIGUSR1], registry, token)?;
        let drain = Receiver::listen(&[SIGUSR2], registry, token)?;
        // A terminal that goes away is no reason to stop. (SIGPIPE is ignored before `main` runs.)
        signal_hook::flag::register(SIGHUP, Arc::new(AtomicBool::new(false)))?;
        // A handover that exceeds the limit of file sizes is no reason either: the write fails, and there is no
        // upgrade.
        signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
        Signals::release();
        Ok(Signals { stop, upgrade, drain })
    }

    /// Returns true if the daemon was asked to stop since the last call.
    pub fn stop_asked(&mut self) -> bool {
        self.stop.has_come()
    }

    /// Returns true if the daemon was asked to replace itself since the last call.
    pub fn upgrade_asked(&mut self) -> bool {
        self.upgrade.has_come()
    }

    /// Returns true if the daemon was asked to drain since the last call.
    pub fn drain_asked(&mut self) -> bool {
        self.drain.has_come()
    }

    /// Blocks these signals, over exec too, until [`Signals::release`].
    pub fn hold() {
        if let Err(error) = handled_signals().thread_block() {
            log::warn!("cannot block signals: {error}");
        }
    }

    /// Blocks those of them that do not ask for the end, until [`Signals::listen`]: early in a start their default
    /// action would end the process.
    pub fn hold_requests() {
        let requests: SigSet = [Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2].into_iter().collect();
        if let Err(error) = requests.thread_block() {
            log::warn!("cannot block signals: {error}");
        }
    }

    /// Unblocks these signals.
    pub fn release() {
        if let Err(error) = handled_signals().thread_unblock() {
            log::warn!("cannot unblock signals: {error}");
        }
    }
}

fn handled_signals() -> SigSet {
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2].into_iter().collect()
}

impl Receiver {
    /// Replaces the default actions of `signals` by events of `token`. Other receivers of the same signals get their
    /// events, too.
    ///
    /// # Errors
    ///
    /// Fails if no descriptors are left.
    pub fn listen(signals: &[i32], registry: &Registry, token: Token) -> io::Result<Self> {
        let (receiver, sender) = std::os::unix::net::UnixStream::pair()?;
        for signal in signals {
            pipe::register(*signal, sender.try_clone()?)?;
        }
        receiver.set_nonblocking(true)?;
        let mut receiver = UnixStream::from_std(receiver);
        registry.register(&mut receiver, token, Interest::READABLE)?;
        Ok(Receiver(receiver))
    }

    /// Returns true if a signal has come since the last call.
    pub fn has_come(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 64]), Ok(len) if len > 0)
    }
}
