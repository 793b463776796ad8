//! Where each service listens: what the options say of it, and whether that can be.

use crate::id::ServiceId;
use crate::net::Address;
use crate::registry::{PerService, SERVICES};
use crate::service::Info;

/// The addresses of the machine itself, on which the daemon listens unless it is told otherwise.
const LOCALHOST: [&str; 2] = ["127.0.0.1", "::1"];

/// Where a service listens.
#[derive(Clone, PartialEq, Debug)]
pub struct Endpoint {
    /// Whether it does at all.
    pub is_enabled: bool,
    /// Addresses to listen on; none means on those of the machine itself.
    pub listen: Vec<String>,
    /// The port of addresses that name none.
    pub port: u16,
}

/// Each address can be listened on once, by one service.
///
/// # Errors
///
/// One sentence that names the address.
pub fn check(endpoints: &PerService<Endpoint>) -> Result<(), String> {
    let mut seen: Vec<Address> = Vec::new();
    for address in ServiceId::all(SERVICES).flat_map(|service| endpoints[service].addresses()) {
        match seen.iter().find(|other| address.overlaps(other)) {
            Some(other) if *other == address => return Err(format!("{address} is to be listened on twice")),
            Some(other) => return Err(format!("{address} cannot be listened on beside {other}")),
            None => seen.push(address),
        }
    }
    Ok(())
}

impl Endpoint {
    /// Where the service listens unless it is told otherwise.
    pub fn of(info: &Info) -> Self {
        Endpoint { is_enabled: info.is_enabled, listen: Vec::new(), port: info.port }
    }

    /// Has it listen on one more address. The error is what this should have been.
    pub fn listen_on(&mut self, address: &str) -> Result<(), String> {
        // Without a port, as that may come later; this only tells whether it is an address at all.
        let parsed = Address::parse(address, 0).ok_or("an address (IP, IP:PORT, [IP6]:PORT or unix:PATH)")?;
        if !parsed.fits() {
            return Err("a path of at most 107 bytes".into());
        }
        self.listen.push(address.into());
        Ok(())
    }

    /// Where to listen; nowhere, unless it is enabled.
    pub fn addresses(&self) -> Vec<Address> {
        if !self.is_enabled {
            return Vec::new();
        }
        let texts: Vec<&str> = self.listen.iter().map(String::as_str).collect();
        let texts = if self.is_default() { &LOCALHOST[..] } else { &texts };
        let read = |text: &&str| Address::parse(text, self.port).expect("only addresses get into the list");
        texts.iter().map(read).collect()
    }

    /// Whether nobody said where to listen.
    pub fn is_default(&self) -> bool {
        self.listen.is_empty()
    }
}
