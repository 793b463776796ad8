//! One threaded store, which keeps the data of a service. The loop hands over batches of changes and takes events; a
//! thread waits for the disk. Services supply the forms of their data, and their tables.

pub mod contract;
pub mod desk;
pub mod health;
pub mod ledger;
pub mod place;
pub mod sqlite;
