//! The services of the daemon, and the toy. The loop, the options and the pages know all services from this list alone.

use poolcounter_service::contract::Info;

/// Every service of the daemon in its order, and the toy.
pub const SERVICES: &[&Info] = &with_toy();

const fn with_toy() -> [&'static Info; poolcounter::SERVICES.len() + 1] {
    let mut services = [&super::toy::INFO; poolcounter::SERVICES.len() + 1];
    let (own, _) = services.split_at_mut(poolcounter::SERVICES.len());
    own.copy_from_slice(poolcounter::SERVICES);
    services
}
