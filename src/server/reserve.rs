//! Descriptors that are kept for the case that clients have taken all the rest.

use nix::errno::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;

/// Open descriptors, which are closed when some are needed.
#[derive(Default)]
pub struct Reserve(Vec<OwnedFd>);

impl Reserve {
    /// Opens descriptors until there are `most`, or the system has no more. Each is opened alone, as there may be one
    /// only.
    pub fn fill(&mut self, most: usize) {
        while self.0.len() < most {
            let Ok(socket) = UnixDatagram::unbound() else { return };
            self.0.push(socket.into());
        }
    }

    /// Closes one descriptor, so that it can be used. Returns false if there is none.
    pub fn release_one(&mut self) -> bool {
        self.0.pop().is_some()
    }

    /// Closes all descriptors.
    pub fn release_all(&mut self) {
        self.0.clear();
    }

    /// Returns whether none is open.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns whether the system lacks descriptors or memory for a connection. It waits then, and is not lost.
pub fn is_lack(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM))
}
