//! The services of the daemon. All that the loop, the options and the pages know of services, they know from this list.

use crate::service::Info;
use crate::{admin, counters, http, jobs, members, pools};

/// Every service of the daemon. The first is always on; the log names its addresses last.
pub const SERVICES: &[&Info] = &[&pools::INFO, &counters::INFO, &members::INFO, &jobs::INFO, &http::INFO, &admin::INFO];
