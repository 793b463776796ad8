//! The server within the test's own process.

use poolcounter::net::{Server, Stopper};
use poolcounter::services::Kind;
use std::io;
use std::thread::JoinHandle;

/// A running server, which ends with the test.
pub struct Embedded {
    /// Where it listens.
    pub address: String,
    stopper: Stopper,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Embedded {
    /// Starts one on a free port.
    pub fn start(kind: Kind) -> Embedded {
        Embedded::start_on("127.0.0.1:0", kind)
    }

    /// Starts one at this address.
    pub fn start_on(address: &str, kind: Kind) -> Embedded {
        let mut server = Server::bind(address, kind).expect("the address is free");
        let stopper = server.stopper().expect("there are descriptors");
        let address = server.addresses(kind)[0].to_string();
        Embedded { address, stopper, thread: Some(std::thread::spawn(move || server.run())) }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stopper.stop().expect("the server can be woken");
        let result = self.thread.take().expect("it runs until here").join();
        // A second panic would hide the first.
        if !std::thread::panicking() {
            result.expect("it does not panic").expect("it can wait for events");
        }
    }
}
