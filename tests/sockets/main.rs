//! Tests of the daemon as a process, over sockets: clients that speak, misbehave and leave.

mod admission;
mod client;
mod client_counters;
mod client_dead;
mod client_jobs;
mod client_members;
mod counter_faults;
mod daemon;
mod dashboard;
mod faults;
mod http;
mod jobs_clients;
mod jobs_faults;
mod members_sockets;
mod page;
mod pooler_groups;
mod proxied;
mod python_client;
mod scale_out;
mod soak;
mod storm;
mod things;
mod tls;
