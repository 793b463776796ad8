//! Waker of the loop from other threads: the stopper of an embedded server, and the stores of services. A loop has one
//! waker, so they share it, with a flag each.

use mio::{Registry, Token};
use poolcounter_service::container::ServiceId;
use poolcounter_service::contract::Wake;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Flag of the stopper. Flags of services count up from the lowest.
const STOP: u32 = 1 << 31;

/// Handle that wakes the loop.
#[derive(Clone, Debug)]
pub(super) struct Waker(Arc<Shared>);

/// Handle that stops a server from any thread. All clones stop the same server.
#[derive(Clone, Debug)]
pub struct Stopper(Waker);

#[derive(Debug)]
struct Shared {
    /// Reasons for which the loop was woken.
    flags: AtomicU32,
    waker: mio::Waker,
}

impl Waker {
    /// Returns a waker whose events have `token`.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        Ok(Waker(Arc::new(Shared { flags: AtomicU32::new(0), waker: mio::Waker::new(registry, token)? })))
    }

    /// Returns the handle with which a service's store wakes the loop.
    pub fn of(&self, service: ServiceId) -> Wake {
        let waker = self.clone();
        Wake::new(move || {
            // A loop that cannot be woken reads the flag at its next event.
            let _ = waker.raise(1 << service.index());
        })
    }

    /// Returns the stopper.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.clone())
    }

    /// Returns true if a stopper has asked for the end.
    pub fn is_stop_asked(&self) -> bool {
        self.0.flags.load(Ordering::Acquire) & STOP != 0
    }

    /// Returns the `services` whose stores have finished work since the last call.
    pub fn take<'a>(&'a self, services: impl Iterator<Item = ServiceId> + 'a) -> impl Iterator<Item = ServiceId> + 'a {
        let flags = self.0.flags.fetch_and(STOP, Ordering::AcqRel);
        services.filter(move |service| flags >> service.index() & 1 != 0)
    }

    fn raise(&self, flag: u32) -> io::Result<()> {
        self.0.flags.fetch_or(flag, Ordering::Release);
        self.0.waker.wake()
    }
}

impl Stopper {
    /// Makes the server end its [`run`](super::Server::run) after the present tick. A repeated call, or one after the
    /// end, does no harm.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot wake the server. It stops with the next event then.
    pub fn stop(&self) -> io::Result<()> {
        self.0.raise(STOP)
    }
}
