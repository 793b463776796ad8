//! Addresses of services: the options for them, and their check.

use crate::services::SERVICES;
use poolcounter_core::Address;
use poolcounter_service::container::{PerService, ServiceId};
use poolcounter_service::contract::Info;
use poolcounter_service::options::Endpoint;

/// Checks that no two services, and no service twice, listen on the same address.
///
/// # Errors
///
/// One sentence with the address.
pub fn check(endpoints: &PerService<Endpoint>) -> Result<(), String> {
    let mut seen: Vec<Address> = Vec::new();
    for address in ServiceId::all(SERVICES).flat_map(|service| endpoints[service].addresses()) {
        match seen.iter().find(|other| address.overlaps(other)) {
            Some(other) if *other == address => return Err(format!("{address} is listed twice")),
            Some(other) => return Err(format!("cannot listen on both {other} and {address}")),
            None => seen.push(address),
        }
    }
    Ok(())
}

/// Returns the default addresses and limits of a service.
pub fn default_of(info: &Info) -> Endpoint {
    Endpoint { is_enabled: info.is_enabled, listen: Vec::new(), port: info.port, max_connections: info.max_connections }
}
