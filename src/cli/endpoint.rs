//! Where each service listens: what the options say of it, and whether that can be.

use crate::services::SERVICES;
use poolcounter_core::address::Address;
use poolcounter_service::container::{PerService, ServiceId};
use poolcounter_service::contract::Info;
use poolcounter_service::options::Endpoint;

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

/// Returns where the service listens unless it is told otherwise.
pub fn default_of(info: &Info) -> Endpoint {
    Endpoint { is_enabled: info.is_enabled, listen: Vec::new(), port: info.port, max_connections: info.max_connections }
}
