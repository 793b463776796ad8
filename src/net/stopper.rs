//! How another thread stops the loop: a flag, and a waker so that the loop looks at it at once.

use mio::{Registry, Token, Waker};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops a server from any thread. All clones stop the same server.
#[derive(Clone, Debug)]
pub struct Stopper {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    is_asked: AtomicBool,
    waker: Waker,
}

impl Stopper {
    /// Has the loop woken under `token`. A loop has one waker, so this is called once for each.
    pub(super) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let shared = Shared { is_asked: AtomicBool::new(false), waker: Waker::new(registry, token)? };
        Ok(Stopper { shared: Arc::new(shared) })
    }

    /// Has the server end its [`run`](super::Server::run) after the present tick. It does no harm to ask twice, or after
    /// the end.
    ///
    /// # Errors
    ///
    /// When the system cannot wake the server. It stops with the next event then.
    pub fn stop(&self) -> io::Result<()> {
        self.shared.is_asked.store(true, Ordering::Release);
        self.shared.waker.wake()
    }

    /// Whether somebody has asked for the end.
    pub(super) fn is_asked(&self) -> bool {
        self.shared.is_asked.load(Ordering::Acquire)
    }
}
