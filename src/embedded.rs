//! Server embedded in another program.

use crate::services::SERVICES;
use poolcounter_server as net;
use std::io;
use std::ops::{Deref, DerefMut};

/// Server with the services of the daemon, embedded in another program.
pub struct Server(net::Server);

impl Server {
    /// Returns a server with the default limits, for one service such as `pools`, on one address to begin with, such as
    /// `127.0.0.1:0` for a free port. It uses no signals and no files; a [`crate::Stopper`] ends it.
    ///
    /// ```
    /// use poolcounter::Server;
    ///
    /// let mut server = Server::bind("127.0.0.1:0", "pools")?;
    /// let stopper = server.stopper();
    /// println!("it listens on {}", server.addresses("pools")[0]);
    /// let thread = std::thread::spawn(move || server.run());
    /// stopper.stop()?;
    /// thread.join().expect("the server does not panic")?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `address` is not an [`crate::Address`] with a port, or the service does not exist; else the
    /// error of the system, for example for an address in use.
    pub fn bind(address: &str, service: &str) -> io::Result<Self> {
        net::Server::bind(SERVICES, address, service).map(Server)
    }
}

impl Deref for Server {
    type Target = net::Server;

    fn deref(&self) -> &net::Server {
        &self.0
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut net::Server {
        &mut self.0
    }
}
