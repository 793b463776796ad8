//! Services of the daemon. The loop, the options and the pages know services only through this list.

use poolcounter_service::contract::Info;

/// All services of the daemon. The first is always enabled; the log names its addresses last.
pub const SERVICES: &[&Info] = &[
    &poolcounter_pools::INFO,
    &poolcounter_counters::INFO,
    &poolcounter_members::INFO,
    &poolcounter_jobs::INFO,
    &poolcounter_http::INFO,
    &poolcounter_admin::INFO,
];
