//! The server within the test's own process.

use poolcounter::net::{Server, Stopper};
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
    pub fn start(service: &str) -> Embedded {
        Embedded::start_on("127.0.0.1:0", service)
    }

    /// Starts one at this address.
    pub fn start_on(address: &str, service: &str) -> Embedded {
        let mut server = Server::bind(address, service).expect("the address is free");
        let stopper = server.stopper();
        let address = server.addresses(service)[0].to_string();
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
