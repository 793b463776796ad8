//! Jobs: a job queue over the beanstalkd protocol, with extensions. What is here knows no sockets and no clock.

pub mod state;
pub mod stats;
pub mod wire;
