//! Tests of durable jobs and members: killed processes, failing disks, several owners of one queue.

mod jobs_crash;
mod jobs_owners;
mod jobs_store;
mod kept_rows;
mod ledger;
mod sim;
mod stored;
