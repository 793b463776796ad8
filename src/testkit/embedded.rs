//! The server within the test's own process.

use crate::daemon::PATIENCE;
use poolcounter::SERVICES;
use poolcounter_server::{Address, Listener, Options, Policy, Server, Stopper};
use poolcounter_service::container::{AllSettings, Services};
use poolcounter_service::contract::Info;
use std::io::{self, ErrorKind};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A running server, which ends with the test.
pub struct Embedded {
    /// Address on which it listens.
    pub address: String,
    stopper: Stopper,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Embedded {
    /// Starts one on a free port.
    pub fn start(service: &str) -> Embedded {
        Embedded::start_on("127.0.0.1:0", service)
    }

    /// Starts a server at this address, which is retried while it is in use: the port of an ended server may serve a
    /// connection of another test for a moment.
    pub fn start_on(address: &str, service: &str) -> Embedded {
        let begun = Instant::now();
        loop {
            match Server::bind(SERVICES, address, service) {
                Ok(server) => return Embedded::run(server, service),
                Err(error) if error.kind() == ErrorKind::AddrInUse && begun.elapsed() < PATIENCE => {
                    thread::sleep(Duration::from_millis(10));
                }
                Err(error) => panic!("{address}: {error}"),
            }
        }
    }

    /// Starts a server with these services, which listens for one of them on a free port.
    pub fn of(list: &[&'static Info], service: &str) -> Embedded {
        let services = Services::of(list, &AllSettings::defaults(list).in_memory());
        let id = services.named(service).expect("is in the list");
        let mut server = Server::new(services, Policy::of(list)).expect("the system has an event queue");
        let address = Address::parse("127.0.0.1:0", 0).expect("is an address");
        let listener = Listener::bind(&address, &Options::default()).expect("a port is free");
        server.listen(listener, id).expect("can be polled");
        Embedded::run(server, service)
    }

    fn run(mut server: Server, service: &str) -> Embedded {
        let stopper = server.stopper();
        let address = server.addresses(service)[0].to_string();
        Embedded { address, stopper, thread: Some(thread::spawn(move || server.run())) }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stopper.stop().expect("the server can be woken");
        let result = self.thread.take().expect("it runs until here").join();
        // A second panic would hide the first.
        if !thread::panicking() {
            result.expect("it does not panic").expect("it can wait for events");
        }
    }
}
