//! Tests of durable jobs: killed processes, failing disks, several owners of one queue.

mod jobs_crash;
mod jobs_owners;
mod jobs_store;
