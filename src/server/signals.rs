//! Signals as events. They stay blocked, and the loop reads them from descriptors that it polls. So a signal that was
//! not read is pending, and outlives an upgrade: the next program reads it. Threads inherit what is blocked, so none of
//! them takes a signal from the loop.

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use signal_hook::consts::SIGXFSZ;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Signals that the daemon handles.
pub struct Signals {
    /// Asks for the end.
    pub stop: Receiver,
    /// Asks for the replacement of the process.
    pub upgrade: Receiver,
    /// Asks for a drain.
    pub drain: Receiver,
}

/// Descriptor on which each of some signals is an event.
pub struct Receiver(SignalFd);

impl Signals {
    /// Replaces the default actions of the signals by events of `token`. Threads that were started before must not
    /// take them.
    ///
    /// # Errors
    ///
    /// Fails if no descriptors are left.
    pub fn listen(registry: &Registry, token: Token) -> io::Result<Self> {
        // A terminal that goes away is no reason to stop: nothing reads this signal. (SIGPIPE is ignored before `main`
        // runs.)
        SigSet::from(Signal::SIGHUP).thread_block()?;
        // A handover that exceeds the limit of file sizes is no reason either: the write fails, and there is no
        // upgrade.
        signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
        Ok(Signals {
            stop: Receiver::listen(&[Signal::SIGTERM, Signal::SIGINT], registry, token)?,
            upgrade: Receiver::listen(&[Signal::SIGUSR1], registry, token)?,
            drain: Receiver::listen(&[Signal::SIGUSR2], registry, token)?,
        })
    }

    /// Registers the signals of a copy of the process, whose poll still has the signals of the process.
    ///
    /// # Errors
    ///
    /// Fails if memory is short.
    pub fn register_again(&self, registry: &Registry, token: Token) -> io::Result<()> {
        [&self.stop, &self.upgrade, &self.drain].iter().try_for_each(|one| one.register_again(registry, token))
    }

    /// Blocks the signals that do not ask for the end, until [`Signals::listen`]: early in a start their default action
    /// would end the process.
    pub fn hold_requests() {
        let requests: SigSet = [Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2].into_iter().collect();
        if let Err(error) = requests.thread_block() {
            log::warn!("cannot block signals: {error}");
        }
    }
}

impl Receiver {
    /// Replaces the default actions of `signals` by events of `token`.
    ///
    /// # Errors
    ///
    /// Fails if no descriptors are left.
    pub fn listen(signals: &[Signal], registry: &Registry, token: Token) -> io::Result<Self> {
        let signals: SigSet = signals.iter().copied().collect();
        signals.thread_block()?;
        let receiver = Receiver(SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?);
        registry.register(&mut SourceFd(&receiver.0.as_raw_fd()), token, Interest::READABLE)?;
        Ok(receiver)
    }

    /// Registers the signals of a copy of the process, whose poll still has the signals of the process.
    ///
    /// # Errors
    ///
    /// Fails if memory is short.
    pub fn register_again(&self, registry: &Registry, token: Token) -> io::Result<()> {
        let fd = self.0.as_raw_fd();
        registry.deregister(&mut SourceFd(&fd))?;
        registry.register(&mut SourceFd(&fd), token, Interest::READABLE)
    }

    /// Returns true if a signal has come since the last call.
    pub fn has_come(&mut self) -> bool {
        matches!(self.0.read_signal(), Ok(Some(_)))
    }
}
