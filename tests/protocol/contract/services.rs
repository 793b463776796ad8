//! The services of the daemon, and the toy. The loop, the options and the pages know all services from this list alone.

use poolcounter_service::contract::Info;

/// Every service of the daemon. The first is always on; the log names its addresses last.
pub const SERVICES: &[&Info] = &[
    &poolcounter_pools::INFO,
    &poolcounter_counters::INFO,
    &poolcounter_members::INFO,
    &poolcounter_jobs::INFO,
    &poolcounter_http::INFO,
    &poolcounter_admin::INFO,
    &super::toy::INFO,
];
